"""Entropy and coverage by hand."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from seq2seq_attn.errors import UserError
from seq2seq_attn.metric.attention import AttentionFigures
from seq2seq_attn.model.encoder_decoder import attention_to_source

SOURCE_MASK = torch.tensor([[True, True, False]])
TARGET_MASK = torch.tensor([[True, True, False]])
#                                source: one,  two, padding
HEAD = torch.tensor([[1.0, 0.0, 0.0], [0.5, 0.5, 0.0], [0.0, 1.0, 0.0]])  # the last row is padding


def figures(weights: dict[str, Tensor]) -> AttentionFigures:
    found = AttentionFigures()
    found.update(weights, SOURCE_MASK, TARGET_MASK)
    return found


def test_a_worked_example_in_which_padding_does_not_count() -> None:
    found = figures({"cross/0": HEAD[None, None]})
    assert found.entropy == pytest.approx((0 + math.log(2)) / 2, rel=1e-6)
    assert found.coverage == (min(1, 1.5) + 0.5) / 2


def test_coverage_is_that_of_the_mean_over_layers_and_heads_and_entropy_is_the_mean_of_theirs() -> None:
    left, right = torch.tensor([1.0, 0.0, 0.0]).expand(3, 3), torch.tensor([0.0, 1.0, 0.0]).expand(3, 3)
    for weights in (
        {"cross/0": torch.stack([left, right])[None]},
        {"cross/0": left[None, None], "cross/1": right[None, None]},
    ):
        found = figures(weights)
        assert (found.entropy, found.coverage) == (0.0, 1.0)  # either head alone covers a half
    assert figures({"cross/0": left[None, None]}).coverage == 0.5


def test_only_what_reads_the_source_counts() -> None:
    other = torch.full((1, 1, 3, 3), 1 / 3)
    weights = {"encoder/0": other, "self/0": other, "cross/0": HEAD[None, None]}
    assert vars(figures(weights)) == vars(figures({"cross/0": HEAD[None, None]}))


def test_batches_weigh_by_their_tokens() -> None:
    found = figures({"cross/0": HEAD[None, None]})
    flat = torch.full((1, 1, 5, 7), 1 / 7)
    found.update({"cross/0": flat}, torch.ones(1, 7, dtype=torch.bool), torch.ones(1, 5, dtype=torch.bool))
    assert found.entropy == pytest.approx((math.log(2) + 5 * math.log(7)) / (2 + 5), rel=1e-6)
    assert found.coverage == pytest.approx((1.5 + 7 * 5 / 7) / (2 + 7), rel=1e-6)


def test_nothing_seen_is_zero() -> None:
    assert (AttentionFigures().entropy, AttentionFigures().coverage) == (0.0, 0.0)


def test_attention_without_weights_has_no_figures() -> None:
    figures = AttentionFigures()
    figures.update({"encoder/0": torch.ones(1, 1, 2, 2)}, torch.ones(1, 2).bool(), torch.ones(1, 2).bool())
    assert not figures.has_weights
    figures.update({"cross/0": torch.ones(1, 1, 2, 2) / 2}, torch.ones(1, 2).bool(), torch.ones(1, 2).bool())
    assert figures.has_weights
    assert figures.figures == {"attention_entropy": pytest.approx(math.log(2)), "attention_coverage": 1.0}
    with pytest.raises(UserError, match=r"^the attention to the source has no weights, which search.coverage_penalty "):
        attention_to_source({"encoder/0": torch.ones(1, 1, 1, 2)})
