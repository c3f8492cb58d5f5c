"""Records of a run at its start: configuration, versions, commit, data, and the parameters of the model."""

from __future__ import annotations

import json
import platform
import subprocess
import sys
from collections import Counter
from importlib.metadata import version
from pathlib import Path
from typing import Any, final

import pytorch_lightning as pl
import torch
from omegaconf import OmegaConf
from torch import nn

from seq2seq_attn.attention.layer import AttentionLayer
from seq2seq_attn.data.corpus import LoadedCorpus
from seq2seq_attn.data.data_module import TranslationDataModule, evenly_spread
from seq2seq_attn.data.encoded import unknown_shares
from seq2seq_attn.distributed.run_lock import PROVENANCE
from seq2seq_attn.files import replacing
from seq2seq_attn.model.encoder_decoder import EncoderDecoder
from seq2seq_attn.text import new_table, plain_console, printable
from seq2seq_attn.training.results import forget_results
from seq2seq_attn.training.translation_module import TranslationModule

PACKAGES = (
    "torch", "pytorch-lightning", "torchmetrics", "hydra-core", "sentencepiece", "sacrebleu", "sacremoses", "numpy",
)  # fmt: skip
MEBIBYTE = 2**20
EXAMPLES = 3  # training pairs that are printed
PER_PARAMETER = 4  # numbers while training: the weight, its gradient and the two moments of Adam


@final
class RecordStart(pl.Callback):
    """Replaces what is on record of the run, once its checkpoint's weights and the state of its data are loaded.

    Until then the run may be refused, and the records in its folder stay as they were. So it is the last callback.
    """

    def __init__(self, run_dir: Path) -> None:
        self.run_dir = run_dir

    def on_fit_start(self, trainer: pl.Trainer, pl_module: Any) -> None:
        if trainer.is_global_zero:
            forget_results(self.run_dir)  # first: with the new configuration they would seem to be its own
            record_start(self.run_dir, trainer, pl_module, trainer.datamodule)  # type: ignore[attr-defined]


def record_start(
    run_dir: Path, trainer: pl.Trainer, module: TranslationModule, datamodule: TranslationDataModule
) -> None:
    """Write `provenance.json` and `config.yaml`, resolved, before the first update, and print data and model.

    A folder with `provenance.json` is that of a run, which may be begun again if it is killed here.
    """
    run_dir.mkdir(parents=True, exist_ok=True)
    parent = {"init_from": module.parent} if module.parent else {}
    started = provenance(datamodule.corpus) | devices(trainer) | parent
    written = json.dumps(started, indent=2, ensure_ascii=False)
    with replacing(run_dir / PROVENANCE) as stream:
        stream.write(f"{written}\n".encode())
    with replacing(run_dir / "config.yaml") as stream:
        stream.write(OmegaConf.to_yaml(OmegaConf.create(module.config)).encode())
    sides = (module.model.encoder, module.model.decoder)
    parts = " → ".join(type(side).__name__ for side in sides if side is not None)
    model = model_counts(module.model)
    frozen = frozen_by_part(module.model)
    print_data(datamodule)
    columns, rows = ("parameters of", "count", "frozen"), [(*row, frozen.get(row[0], "")) for row in model.items()]
    shown = len(columns) if frozen else 2
    plain_console().print(new_table(columns[:shown], [row[:shown] for row in rows], f"Model: {parts}"))


def print_data(datamodule: TranslationDataModule) -> None:
    """Print the data table."""
    data = data_counts(datamodule)
    plain_console().print(new_table(("what", "count"), data.items(), f"Data: {datamodule.corpus.direction}"))


def print_examples(datamodule: TranslationDataModule) -> None:
    """Print the tokens of some training pairs, evenly spread: whether both sides are what they should be."""
    corpus, tokenizer = datamodule.corpus, datamodule.tokenizer
    train = corpus.splits["train"]
    sides = (
        (corpus.source_language, train.sources, tokenizer.encode_source, tokenizer.source_tokens),
        (corpus.target_language, train.targets, tokenizer.encode_target, tokenizer.target_tokens),
    )
    lines = ["\nTraining pairs, as tokens (▁ is a blank):"]
    for row in evenly_spread(EXAMPLES, len(train)).tolist():
        for language, texts, encode, tokens in sides:
            if text := texts[row]:  # a corpus of one side has no sources
                lines.append(f"{row + 1:>9,} {language}  {printable(' '.join(tokens(encode([text])[0])))}")
    print("\n".join(lines), end="\n\n")


def data_counts(datamodule: TranslationDataModule) -> dict[str, str]:
    """Return what was read, and what cleaning dropped."""
    corpus, tokenizer = datamodule.corpus, datamodule.tokenizer
    counts = {f"{name}: sentences": len(split) for name, split in corpus.splits.items()}
    unchanged = {f"{name}: pairs read": len(split) for name, split in corpus.splits.items()}
    counts |= {what: count for what, count in corpus.report.counts.items() if count and count != unchanged.get(what)}
    counts |= {f"{name}: pairs with word links": links.num_linked for name, links in datamodule.links.items()}
    counts |= {"tokens, source": tokenizer.source_vocab_size, "tokens, target": tokenizer.target_vocab_size}
    shown = {what: f"{count:,}" for what, count in counts.items()}
    shares = {
        f"{name}: unknown {side} tokens": share
        for name in ("train", "val")
        if name in corpus.splits
        for side, share in unknown_shares(datamodule.encoded(name)).items()
    }
    shown |= {what: "< 0.01%" if share < 0.00005 else f"{share:.2%}" for what, share in shares.items() if share}
    return shown | {"padding of training batches": f"{datamodule.padding_share:.1%}"}


def model_counts(model: EncoderDecoder) -> dict[str, str]:
    """Return the parameters by part, and the memory that training takes for them."""
    counts = {name: f"{count:,}" for name, count in parameters_by_part(model).items()}
    needed = sum(p.numel() * p.element_size() * (PER_PARAMETER if p.requires_grad else 1) for p in model.parameters())
    return counts | {"MiB of weights, gradients, Adam": f"{needed / MEBIBYTE:,.1f}"}


def frozen_by_part(model: EncoderDecoder) -> dict[str, str]:
    """Return how many parameters of each part are not trained; empty if all are."""
    return {name: f"{count:,}" for name, count in parameters_by_part(model, frozen=True).items() if count}


def parameters_by_part(model: EncoderDecoder, frozen: bool = False) -> dict[str, int]:
    """Return the parameters of each part; a shared one counts once. Those of attention are among the others.

    Args:
        frozen: count those alone that are not trained.
    """
    counts: Counter[str] = Counter()
    for name, parameter in model.named_parameters():
        if not (frozen and parameter.requires_grad):
            counts[name.partition(".")[0]] += parameter.numel()
    attentions = nn.ModuleList(part for part in model.modules() if isinstance(part, AttentionLayer))
    attention_count = sum(p.numel() for p in attentions.parameters() if not (frozen and p.requires_grad))
    return dict(counts) | ({"of which attention": attention_count} if attention_count else {}) | {"all": counts.total()}


def provenance(corpus: LoadedCorpus) -> dict[str, Any]:
    """Return what this process runs, and on which data, as plain data."""
    return {
        "command": sys.argv,
        "commit": commit(),
        "data_fingerprint": corpus.fingerprint,
        "data_report": dict(corpus.report.counts),
        "python": platform.python_version(),
        "platform": platform.platform(),
        "threads": torch.get_num_threads(),
        "versions": {package: version(package) for package in PACKAGES},
    }


def devices(trainer: pl.Trainer) -> dict[str, Any]:
    """Return the name and the number of the devices of a training."""
    device = trainer.strategy.root_device
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else device.type
    return {"device": name, "devices": trainer.world_size}


def commit() -> str | None:
    """Return the commit of the checkout that this code runs from, marked if it was changed; None outside one."""
    folder = Path(__file__).resolve().parents[2]
    if not (folder / ".git").exists():
        return None
    # Without the lock under which it would refresh the index, and which a command that is stopped here would leave.
    git = ["git", "--no-optional-locks", "-C", str(folder)]
    try:
        head = subprocess.run([*git, "rev-parse", "HEAD"], capture_output=True, text=True, check=True).stdout.strip()
        changed = subprocess.run([*git, "status", "--porcelain"], capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return None
    return head + ("-changed" if changed.strip() else "")
