"""Write docs/presets.md, a table of attentions and architectures: `python -m scripts.benchmarks.write_preset_table`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from hydra import compose, initialize_config_dir
from hydra.utils import instantiate
from omegaconf import OmegaConf

from scripts.checks.architecture_table import Row, markdown
from scripts.conf_files import ATTENTION, parts_of, presets
from seq2seq_attn.batch import Batch
from seq2seq_attn.cli.choices import purpose
from seq2seq_attn.errors import reports_user_errors, sentence_of
from seq2seq_attn.search.search import TargetVocabulary
from seq2seq_attn.training.check_config import check_slots
from seq2seq_attn.training.check_run import check_lengths, check_positions
from seq2seq_attn.training.loss import label_smoothed_cross_entropy
from seq2seq_attn.training.reinforce import Reinforce, drawn_loss

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs/presets.md"
ARCHITECTURES = ("rnn", "conv", "transformer")
WIDTH = 16  # a multiple of the eight heads of fixed_patterns
SMALL = (
    "data=parallel", "model.source_vocab_size=17", "model.target_vocab_size=19", f"model.embedding_dim={WIDTH}",
    f"model.encoder.dim={WIDTH}", f"model.decoder.dim={WIDTH}", "search.limits.max_length=2",
)  # fmt: skip
PAD, BOS, EOS = 0, 2, 3
SOURCE = torch.tensor([[4, 5, 6, 7, EOS], [8, 9, EOS, PAD, PAD]])
READ = torch.tensor([[BOS, 4, 5, 6], [BOS, 7, PAD, PAD]])
TARGET = torch.tensor([[4, 5, 6, EOS], [7, EOS, PAD, PAD]])
BATCH = Batch(
    source=SOURCE, source_mask=SOURCE != PAD, source_lengths=(SOURCE != PAD).sum(1),
    target_input=READ, target_output=TARGET, target_mask=TARGET != PAD, target_lengths=(TARGET != PAD).sum(1),
    index=torch.arange(2),
)  # fmt: skip
RUNS = "yes"
HEAD = ("`attention=`", "what it is", "score", "pattern", "normalizer", "mix, gate")
TEXT = """\
# Every attention

A preset of `attention=` combines a score, a pattern and a normalizer, and may add a mix over the heads and a gate. In
place of these it may have a feature map, or the delta rule, with or without a decay. [attention.md](attention.md) gives
the formula and a picture of each.

{parts}

## In every architecture

This table shows which combinations of `python train.py model=MODEL attention=PRESET` run. In `rnn` and `conv` models
the preset is the attention to the source; in `transformer` it is the self-attention of encoder and decoder, causal in
the decoder, and `attention@cross_attention=PRESET` selects the attention to the source
([architectures.md](architectures.md)).

**yes** means that a small model was composed and built, every weight got a finite gradient, one training step changed
the model, and greedy search took two steps. Any other entry is the message that refuses the combination before
training. In total, {runs} of {cells} run.

{table}

Made by `python -m scripts.benchmarks.write_preset_table`; a test checks that it is up to date.
"""


@reports_user_errors
def main() -> None:
    PAGE.write_text(page(), encoding="utf-8")


def page() -> str:
    """Return the text of docs/presets.md."""
    rows = {preset: [cell(model, preset) for model in ARCHITECTURES] for preset in presets()}
    cells = [outcome for row in rows.values() for outcome in row]
    lines = [("`attention=`", *(f"`model={model}`" for model in ARCHITECTURES))]
    lines += [(f"`{preset}`", *row) for preset, row in rows.items()]
    parts = markdown([HEAD, *map(parts_row, presets())])
    return TEXT.format(parts=parts, runs=cells.count(RUNS), cells=len(cells), table=markdown(lines))


def parts_row(preset: str) -> Row:
    """Return the row of a preset: what it is, and the choices that its file names."""
    chosen, what = parts_of(preset), purpose(ATTENTION / f"{preset}.yaml")
    if "score" not in chosen:
        kind = f"feature map `{chosen['feature_map']}`" if "feature_map" in chosen else "delta rule"
        decay = f", decay `{chosen['decay']}`" if "decay" in chosen else ""
        return (f"`{preset}`", what, kind + decay, "–", "–", "")
    parts = (f"`{chosen[part]}`" for part in ("score", "pattern", "normalizer"))
    others = ", ".join(f"`{chosen[part]}`" for part in ("mix", "gate") if part in chosen)
    return (f"`{preset}`", what, *parts, others)


def cell(architecture: str, preset: str) -> str:
    """Return `yes`, or the message with which this attention is refused in this architecture."""
    torch.manual_seed(1)
    overrides = [f"model={architecture}", f"attention={preset}"]
    with initialize_config_dir(str(ROOT / "conf"), version_base="1.3"):
        config = compose("train", [*SMALL, *overrides])
    try:
        check_slots(OmegaConf.to_yaml(config.model, resolve=False), overrides)
        model, search = (instantiated(config[key]) for key in ("model", "search"))
        check_positions(model)
        check_lengths(model.max_length, {"train": (SOURCE.shape[1], READ.shape[1])})
    except Exception as error:
        refusal = sentence_of(error)
        if refusal is None:
            raise
        return refusal
    train_one_step(model)
    hypotheses = search(model.eval(), SOURCE, SOURCE != PAD, TargetVocabulary(BOS, EOS, (PAD, BOS, EOS), list))
    assert all(len(best.token_ids) == 2 for best, *_ in hypotheses), (architecture, preset)
    return RUNS


def instantiated(node: Any) -> Any:
    return instantiate(OmegaConf.to_container(node, resolve=True), _convert_="all")


def train_one_step(model: Any) -> None:
    """Make one update with the loss of a run, and check that every weight gets a gradient."""
    optimizer = torch.optim.Adam(model.parameters())
    decoded = model.train()(BATCH.source, BATCH.source_mask, BATCH.target_input)
    hidden, target = decoded.hidden[BATCH.target_mask], BATCH.target_output[BATCH.target_mask]
    loss = label_smoothed_cross_entropy(hidden, model.output.weight, model.output.bias, target, 0.1)
    drawn = drawn_loss(Reinforce(momentum=0.9), BATCH, loss.loss_by_token, decoded)
    (loss.smoothed if drawn is None else loss.smoothed + drawn).backward()
    for name, weight in model.named_parameters():
        assert weight.grad is not None, name
        assert weight.grad.isfinite().all(), name
    before = [weight.detach().clone() for weight in model.parameters()]
    optimizer.step()
    assert any(not torch.equal(old, new) for old, new in zip(before, model.parameters(), strict=True))


if __name__ == "__main__":
    main()
