"""Average Lagging by hand, and of the models that it is of."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from configs import built, composed
from small_run import run_here, write_pairs

from seq2seq_attn.attention.pattern.full import FullPattern
from seq2seq_attn.attention.pattern.wait_k import WaitKPattern
from seq2seq_attn.batch import Batch
from seq2seq_attn.metric.average_lagging import average_lagging, tokens_read, waiting_patterns
from seq2seq_attn.training.translation_module import TranslationModule

SIZES = ["model.source_vocab_size=13", "model.target_vocab_size=13", "model.embedding_dim=12"]
SIZES += [f"model.{side}.{size}" for side in ("encoder", "decoder") for size in ("dim=12", "num_layers=2")]
TRANSFORMER = ["model=transformer", "attention.num_heads=1", "cross_attention.num_heads=1"]
WAIT = ["attention@cross_attention=wait_k", "cross_attention.pattern.k=2", "model.encoder.causal=true"]


def equation_8(k: int, source: int, target: int) -> float:
    """With g(t) = min(k + t - 1, |x|), in the paper's letters, t from 1."""
    t = np.arange(1, target + 1, dtype=np.float64)
    g = np.minimum(k + t - 1, source)
    tau = int(np.argmax(g == source)) + 1 if (g == source).any() else target
    return float((g - (t - 1) * source / target)[:tau].mean())


def patterns(*k: int, length_ratio: float = 1.0) -> list[WaitKPattern]:
    return [WaitKPattern(k=one, length_ratio=length_ratio) for one in k]


@pytest.mark.parametrize(
    ("k", "source", "target", "lagging"),
    [
        (2, 6, 6, 2.0),  # g = 2 3 4 5 6: as far behind all the way, and the sixth token does not count
        (2, 6, 4, (2 + 1.5 + 1 + 0.5) / 4),  # g = 2 3 4 5, less 0 1.5 3 4.5
        (3, 4, 8, (3 + 3.5) / 2),  # g = 3 4, less 0 0.5
        (9, 5, 7, 5.0),  # all of the source is read first
        (1, 1, 1, 1.0),
    ],
)
def test_a_worked_example(k: int, source: int, target: int, lagging: float) -> None:
    assert average_lagging(tokens_read(patterns(k), source, target), source) == pytest.approx(lagging, rel=1e-12)
    assert equation_8(k, source, target) == pytest.approx(lagging, rel=1e-12)


def test_it_is_equation_8_for_any_lengths() -> None:
    lengths = np.random.default_rng(1).integers(1, 30, (200, 3)).tolist()
    for k, source, target in lengths:
        found = average_lagging(tokens_read(patterns(k), source, target), source)
        assert found == pytest.approx(equation_8(k, source, target), rel=1e-12)


def test_what_was_read_is_what_the_pattern_allows_in_the_layer_that_waits_longest() -> None:
    layers = patterns(2, 5, length_ratio=1.5)
    centre = layers[0].centre(torch.zeros(1, 11, 1), torch.arange(11), torch.zeros(1, 11, dtype=torch.long))
    allowed = layers[1].allowed(centre, torch.arange(17))[0]
    assert tokens_read(layers, 17, 11) == allowed.sum(-1).tolist()


@pytest.mark.parametrize(
    ("overrides", "number"),
    [
        (WAIT, 2),
        (WAIT[:2], 0),  # the encoder reads ahead
        (["model.encoder.causal=true"], 0),
        (["model.encoder.causal=true", "attention=wait_k"], 0),
        ([*WAIT[2:], "attention=wait_k", "decoder@model.decoder=rnn"], 0),  # it starts from a summary of the source
    ],
)
def test_it_is_of_models_that_read_nothing_ahead(overrides: list[str], number: int) -> None:
    model = built(composed(*TRANSFORMER, *SIZES, *overrides).model)
    assert [pattern.k for pattern in waiting_patterns(model)] == [2] * number


def test_one_layer_that_reads_all_of_the_source_reads_ahead() -> None:
    model = built(composed(*TRANSFORMER, *SIZES, *WAIT).model)
    model.decoder.source_attentions[1].pattern = FullPattern()
    assert waiting_patterns(model) == []


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_a_run_reports_the_mean_over_its_translations(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lengths: list[tuple[int, int]] = []
    original = TranslationModule.translate

    def translate(self: TranslationModule, batch: Batch) -> list[list[int]]:
        token_ids = original(self, batch)
        lengths.extend(zip(batch.source_lengths.tolist(), (len(ids) + 1 for ids in token_ids), strict=True))
        return token_ids

    monkeypatch.setattr(TranslationModule, "translate", translate)
    sizes = ["model.encoder.num_layers=1", "model.decoder.num_layers=1", "attention.num_heads=1"]
    given = [*write_pairs(tmp_path), "model=transformer", *sizes, *WAIT, "cross_attention.num_heads=1"]
    found = run_here(tmp_path / "run", *given, "trainer.max_epochs=1")
    of_test = lengths[-7:]  # as many as the test set has
    assert found["test/average_lagging"] == pytest.approx(np.mean([equation_8(2, *pair) for pair in of_test]), abs=1e-6)
    assert "val/average_lagging" in (tmp_path / "run" / "metrics.csv").read_text(encoding="utf-8").splitlines()[0]
