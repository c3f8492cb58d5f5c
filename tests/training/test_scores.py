"""The figures of a validation: what a batch adds to them, and that each begins anew."""

from __future__ import annotations

import math

import pytest
import torch
from pytorch_lightning.plugins.precision import HalfPrecision

from seq2seq_attn.data.collate import collate_pairs
from seq2seq_attn.data.corpus import Split
from seq2seq_attn.training.loss import Loss
from seq2seq_attn.training.scores import Scores

BATCH = collate_pairs([[5]], [[6]], [0], pad_id=0, bos_id=1, eos_id=2)
SPLIT = Split(["one"], ["three"], [["three"]])


def loss_of(nats: float, *, tokens: int, correct: int) -> Loss:
    sums = torch.tensor(nats)
    return Loss(sums, sums, sums, sums, tokens=tokens, correct=torch.tensor(correct))


def test_accuracy_has_all_its_digits_in_half_precision() -> None:
    scores = Scores({}, ["test"], reads_source=True, waiting=[])
    with HalfPrecision("bf16-true").val_step_context():
        scores.update("val", BATCH, SPLIT, loss_of(7.0, tokens=61, correct=35), [], [])
    assert scores.metrics_of("val")["accuracy"].compute().item() == pytest.approx(35 / 61, abs=1e-7)


def test_figures_are_means_over_the_tokens_of_one_validation() -> None:
    scores = Scores({}, ["test"], reads_source=False, waiting=[])
    for nats in (1.25, 2.5):  # of a token
        scores.update("val", BATCH, SPLIT, loss_of(2 * nats - 0.5, tokens=2, correct=1), [], [])
        scores.update("val", BATCH, SPLIT, loss_of(6 * nats + 0.5, tokens=6, correct=3), [], [])
        figures = scores.compute("val", is_test=False)
        assert {name: float(figure) for name, figure in figures.items()} == scores.figures["val"]
        assert scores.figures["val"] == pytest.approx(
            {
                "loss": nats,
                "ppl": math.exp(nats),
                "nats_per_token": nats,
                "bits_per_token": nats / math.log(2),
                "accuracy": 4 / 8,
                "bits_per_character": 8 * nats / math.log(2) / (2 * len("three\n")),
            }
        )
    assert scores.figures.keys() == {"val"}
