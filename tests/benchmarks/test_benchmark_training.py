"""A benchmark compares what is alike: the plain loops compute our loss, and the page says what was measured."""

from __future__ import annotations

import argparse
import io
import json
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from configs import CONF, ROOT, built
from hydra import compose, initialize_config_dir
from torch import Tensor, nn

from scripts.benchmarks import draw_training as drawing
from scripts.benchmarks import pace_training as pacing
from scripts.benchmarks import train_plainly as plainly
from scripts.benchmarks import training as benchmark
from seq2seq_attn.batch import Batch
from seq2seq_attn.data.collate import collate_pairs
from seq2seq_attn.model.encoder_decoder import EncoderDecoder
from seq2seq_attn.training.loss import label_smoothed_cross_entropy

VOCABULARY = 53
SMALL = {"A": {"layers": 2, "dim": 24, "ff_dim": 14, "heads": 3}, "B": {"dim": 22}}
PAIRS = [([5, 6, 7, 8, 9], [10, 11]), ([12], [13, 14, 15, 16]), ([5, 17, 18], [19, 20, 21])]
SPECIALS = {"pad_id": 0, "bos_id": 2, "eos_id": 3}


def settings_of(size: str, dropout: float = 0.0) -> dict[str, Any]:
    common = benchmark.COMMON | SPECIALS | {"tokens": VOCABULARY, "dropout": dropout}
    return benchmark.SIZES[size] | SMALL[size] | common


def ours_of(settings: dict[str, Any]) -> EncoderDecoder:
    """As `train.py` builds it from the overrides; no weight is what it began with."""
    options = argparse.Namespace(data=None, tokens=VOCABULARY, batch_tokens=64, override=[])
    sizes = [f"model.{side}_vocab_size={VOCABULARY}" for side in ("source", "target")]
    with initialize_config_dir(str(CONF), version_base="1.3"):
        config = compose("train", overrides=[*benchmark.overrides(settings, options), *sizes])
    torch.manual_seed(5)
    model = built(config.model)
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(0.1 * torch.randn_like(weight))
    return model


def batch_of_three() -> Batch:
    sources, targets = ([list(pair[i]) for pair in PAIRS] for i in (0, 1))
    return collate_pairs(sources, targets, [0, 1, 2], **SPECIALS)


def copied(settings: dict[str, Any], ours: EncoderDecoder) -> nn.Module:
    """The plain model with our weights."""
    plain = plainly.MODELS[settings["model"]](settings)
    joined, copy = COPIES[settings["model"]](plain, ours)
    pairs: list[tuple[nn.Module, Any]] = [*copy, (plain.embed, ours.embed_source), (plain.output, ours.output)]
    with torch.no_grad():
        for layer, parts in joined:
            layer.weight.copy_(torch.cat([part.weight for part in parts]))
        for to, of in pairs:
            to.load_state_dict(of.state_dict())
    return plain


def copy_transformer(plain: Any, ours: Any) -> tuple[list[Any], list[Any]]:
    joined, pairs = [], [(plain.encoder_norm, ours.encoder.norm), (plain.decoder_norm, ours.decoder.norm)]
    for side in ("encoder", "decoder"):
        for to, of in zip(getattr(plain, side), getattr(ours, side).layers, strict=True):
            own = of.attention if side == "encoder" else of.self_attention
            joined.append((to.joined, [*own.score.projections, own.project_values]))
            pairs += [
                (to.merge, own.project_output[0]),
                (to.expand, of.feed_forward.expand),
                (to.reduce, of.feed_forward.reduce),
                (to.norms[-1], of.feed_forward_residual.before),
                (to.norms[0], (of.attention_residual if side == "encoder" else of.self_residual).before),
            ]
            if side == "decoder":
                query, keys = of.cross_attention.score.projections
                joined.append((to.source, [keys, of.cross_attention.project_values]))
                pairs += [
                    (to.query, query),
                    (to.source_merge, of.cross_attention.project_output[0]),
                    (to.norms[1], of.cross_residual.before),
                ]
    return joined, pairs


def copy_recurrent(plain: Any, ours: Any) -> tuple[list[Any], list[Any]]:
    cell, score = ours.decoder.stack.first, ours.decoder.attention.score
    with torch.no_grad():
        plain.cell.weight_ih.copy_(torch.cat([cell.known.weight, cell.found.weight], 1))
        plain.cell.weight_hh.copy_(cell.recurrent.weight)
        plain.cell.bias_ih.copy_(cell.known.bias)
        plain.cell.bias_hh.copy_(cell.recurrent.bias)
        plain.score.weight.copy_(score.vector)
    return [], [
        (plain.encoder, ours.encoder.layers[0]),
        (plain.bridge, ours.decoder.stack.bridge),
        (plain.query, score.project_query),
        (plain.keys, score.project_key),
        (plain.combine, ours.decoder.combine),
    ]


COPIES = {"transformer": copy_transformer, "rnn": copy_recurrent}


def our_loss(model: EncoderDecoder, batch: Batch, smoothing: float) -> Tensor:
    hidden = model(batch.source, batch.source_mask, batch.target_input).hidden[batch.target_mask]
    target = batch.target_output[batch.target_mask]
    loss = label_smoothed_cross_entropy(hidden, model.output.weight, model.output.bias, target, smoothing)
    return loss.smoothed / loss.tokens


@pytest.mark.parametrize("loss", ["chunked", "cross_entropy"])
@pytest.mark.parametrize("size", list(SMALL))
def test_the_plain_loop_has_our_loss_and_gradient(size: str, loss: str) -> None:
    settings = settings_of(size)
    ours = ours_of(settings)
    plain = copied(settings, ours)
    batch = batch_of_three()
    expected = our_loss(ours, batch, 0.1)
    found = plainly.LOSSES[loss](plain, batch, 0.1)
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=0)
    expected.backward()
    found.backward()
    torch.testing.assert_close(plain.embed.weight.grad, ours.embed_source.weight.grad, rtol=1e-3, atol=1e-6)


@pytest.mark.parametrize("size", list(SMALL))
def test_the_plain_model_has_as_many_parameters_as_ours_and_drops_as_much_out(size: str) -> None:
    settings = settings_of(size, dropout=0.1)
    ours, plain = ours_of(settings), plainly.MODELS[settings["model"]](settings)
    assert sum(p.numel() for p in plain.parameters()) == sum(p.numel() for p in ours.parameters())
    dropouts = [part.p for part in ours.modules() if isinstance(part, nn.Dropout) and part.p > 0]
    assert dropouts
    assert set(dropouts) == {0.1}


def test_size_a_is_that_of_the_table() -> None:
    model = plainly.Transformer(benchmark.SIZES["A"] | benchmark.COMMON | SPECIALS | {"tokens": 8000})
    assert round(sum(p.numel() for p in model.parameters()) / 1e6, 2) == 2.35


PROGRAM = """
from scripts.benchmarks.pace_training import Pace
pace = Pace.of_benchmark()
for tokens in range(1, 100):
    pace.updated(tokens, 2 * tokens)
print("never said")
"""


def program(tmp_path: Path, code: str) -> Any:
    environment = {"PYTHONPATH": str(ROOT)}
    return pacing.Program([sys.executable, "-c", code], tmp_path / "log", environment)


def test_a_program_does_as_many_updates_as_it_is_asked_for_and_no_more(tmp_path: Path) -> None:
    found = program(tmp_path, PROGRAM)
    assert 0 < found.start_seconds < 60
    first, second = found.turn(2), found.turn(3)
    found.end()
    assert (first["tokens"], first["padded_tokens"], first["updates"]) == (2 + 3, 10, 2)
    assert (second["tokens"], second["updates"]) == (4 + 5 + 6, 3)
    assert 0 <= second["seconds"] < 60
    assert 1e6 < second["peak_memory_bytes"] < 1e9
    assert found.process.returncode == 0
    assert (tmp_path / "log").read_text() == ""


def test_a_program_that_ends_says_why(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match=r"ended without an answer.*no such peer"):
        program(tmp_path, "raise SystemExit('no such peer')")


def test_a_peer_s_batches_are_counted_and_its_optimizer_s_steps_are_paced() -> None:
    class Trainer:
        def train(self, batch: list[int], times: int) -> int:
            optimizer.step()
            return times * len(batch)

    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)])
    answers = io.StringIO()
    pace = pacing.Pace(io.StringIO("2\n" * 2), answers)
    hook = pacing.paced_by_optimizer(pace, Trainer, "train", lambda _, batch, times: (sum(batch), 2 * sum(batch)))
    try:
        assert [Trainer().train(batch, times=7) for batch in ([1], [2, 3], [4])] == [7, 14, 7]
    finally:
        hook.remove()
    optimizer.step()
    first, second = (json.loads(line) for line in answers.getvalue().splitlines())
    assert (first["tokens"], second["tokens"], second["padded_tokens"]) == (1, 2 + 3 + 4, 18)


def test_other_batches_than_ours_are_no_comparison() -> None:
    turn = {"tokens": 7, "padded_tokens": 9}
    benchmark.check_same_batches({"ours": [turn], "plain_chunked": [turn], "joeynmt": [turn | {"tokens": 5}]})
    with pytest.raises(RuntimeError, match="did not read the same batches"):
        benchmark.check_same_batches({"ours": [turn], "plain_chunked": [turn | {"tokens": 5}]})


def found_turns(*seconds: float, tokens: int = 100) -> dict[str, Any]:
    turns = [
        {"seconds": s / 2, "cpu_seconds": s, "tokens": tokens, "padded_tokens": 125, "updates": 3} for s in seconds
    ]
    return {"start_seconds": 3.25, "peak_memory_bytes": 1_500_000_000, "turns": turns}


def test_the_page_says_the_median_ratio_of_a_round(tmp_path: Path) -> None:
    # by rounds the plain loop takes 2, 1/2 and 3/4 of ours, while their medians are alike
    found = {
        "ours": found_turns(1.0, 2.0, 4.0),
        "plain_chunked": found_turns(2.0, 1.0, 3.0),
        "hf": found_turns(4.0, 8.0, 8.0, tokens=50),
    }
    results = {
        "commands": ["python one", "python two --keep"],
        "sizes": {"A": {"1": found, "2": found}},
        "settings": {"A": benchmark.SIZES["A"] | benchmark.COMMON},
        "options": {"batch_tokens": 4096, "tokens": 8000, "turns": 3, "updates": 3, "warm_up": 2},
        "machine": {"processor": "one", "python": "3.11", "torch": "2.13.0"},
    }
    (tmp_path / "training.json").write_text(json.dumps(results))
    page = drawing.draw(tmp_path / "training.json").read_text(encoding="utf-8")
    rows = [line for line in page.splitlines() if line.startswith("| ")]
    assert rows[0].startswith("| Transformer of 4+4 layers, 128 wide, 256 between, 4 heads | one thread: seconds")
    assert rows[1:] == [
        "| ours | 1.00 | 50 | 1.00 | 100 | 1.50 | 20% | 3.2 |",
        "| plain loop, our loss | 0.75 (0.50–2.00) | 50 | 0.75 (0.50–2.00) | 100 | 1.50 | 20% | 3.2 |",
        "| HF Marian, plain loop | 8.00 (4.00–8.00) | 6 | 8.00 (4.00–8.00) | 12 | 1.50 | 60% | 3.2 |",
    ]
    assert "it is post-norm" in page
    assert "JoeyNMT cuts" not in page
    assert "](training.png)" in page
    assert "Made by `python one`, then `python two --keep`; " in page
    assert (tmp_path / "training.png").stat().st_size > 1000


def test_the_committed_page_is_that_of_its_figures(tmp_path: Path) -> None:
    page = ROOT / "docs/benchmarks/training_cpu.md"
    shutil.copy(page.with_suffix(".json"), tmp_path)
    drawn = drawing.draw(tmp_path / "training_cpu.json").read_text(encoding="utf-8")
    assert drawn == page.read_text(encoding="utf-8")
    assert "so 49% of their tokens are padding" in drawn


def test_figures_of_another_machine_are_not_kept(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    old = {"machine": benchmark.machine() | {"processor": "AMD EPYC"}, "sizes": {}}
    (tmp_path / "training_cpu.json").write_text(json.dumps(old))
    with pytest.raises(SystemExit, match=r"^2$"):
        benchmark.main(["--keep", "--output", str(tmp_path)])
    assert "has figures of processor AMD EPYC, python" in capsys.readouterr().err


def test_what_a_page_has_of_other_sizes_and_threads_can_stay() -> None:
    settings = {"A": {"dim": 1}, "B": {"dim": 2}}
    few, many = ({"ours": found_turns(*[1.0] * count)} for count in (2, 3))
    old = {
        "commands": ["one"],
        "sizes": {"A": {"1": few, "2": few}, "B": {"1": few}},
        "settings": settings,
        "options": {"turns": 2},
        "commit": "a" * 40,
    }
    new = {"commands": ["two"], "sizes": {"A": {"2": many}}, "settings": {"A": {"dim": 1}}, "options": {"turns": 3}}
    both = benchmark.merge(old, new)
    assert both["kept_commits"] == ["a" * 40]
    assert benchmark.merge(new, new)["kept_commits"] == []  # all is measured again
    assert both["sizes"] == {"A": {"1": few, "2": many}, "B": {"1": few}}
    assert both["settings"] == settings
    assert both["commands"] == ["one", "two"]
    assert drawing.turns_of(old["sizes"]) == "2 turns of 3 updates each"
    assert drawing.turns_of(both["sizes"]) == (
        "2 turns of 3 updates each (A with 1 thread, B with 1 thread); 3 turns of 3 updates each (A with 2 threads)"
    )


@pytest.mark.slow
def test_every_program_takes_its_turns_on_a_small_corpus(tmp_path: Path) -> None:
    words = [f"w{i}" for i in range(20)]
    for split, lines in (("train", 200), ("val", 5), ("test_2016_flickr", 5)):
        for language, step in (("en", 3), ("fr", 5)):
            text = [" ".join(words[(7 * i + step * k + i // 20) % 20] for k in range(2 + i % 9)) for i in range(lines)]
            (tmp_path / f"{split}.{language}").write_text("".join(f"{line}\n" for line in text))
    benchmark.main(
        [
            "--data",
            str(tmp_path),
            "--tokens",
            "24",
            "--batch-tokens",
            "300",
            "--turns",
            "1",
            "--updates",
            "2",
            "--warm-up",
            "1",
            "--threads",
            "1",
            "--output",
            str(tmp_path / "out"),
        ]
    )
    results = json.loads((tmp_path / "out" / "training_cpu.json").read_text())
    for size in ("A", "B"):
        assert set(results["sizes"][size]["1"]) == {"ours", "plain_chunked", "plain_cross_entropy"}
    assert (tmp_path / "out" / "training_cpu.md").exists()
