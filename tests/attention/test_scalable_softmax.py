"""Scalable softmax: powers of the number of keys by hand, and what counts as a key."""

from __future__ import annotations

import math

import pytest
import torch
from attention.layers import check_equal
from configs import attention_of

from seq2seq_attn.attention import attention as attention_module
from seq2seq_attn.attention.backend import fused
from seq2seq_attn.attention.normalizer.scalable_softmax import ScalableSoftmaxNormalizer


def scalable(scale: float, heads: int = 1) -> ScalableSoftmaxNormalizer:
    return ScalableSoftmaxNormalizer(num_heads=heads, initial_scale=scale)


def test_weights_are_powers_of_the_number_of_keys() -> None:
    rows = {(5.0,): [1.0], (0.0, 1.0): [1 / 3, 2 / 3], (0.0, 0.0, 0.0, 1.0): [1 / 7, 1 / 7, 1 / 7, 4 / 7]}
    for scores, weights in rows.items():
        found = scalable(1.0)(torch.tensor([[scores]]), None).weights
        torch.testing.assert_close(found, torch.tensor([[weights]]))


def test_keys_that_a_row_does_not_see_do_not_count() -> None:
    scores = torch.tensor([0.0, 1.0, 9.0, 2.0]).expand(1, 3, -1)
    allowed = torch.tensor([[True, True, False, False], [True, True, False, True], [False] * 4])[None]
    found = scalable(1.0)(scores, allowed).weights
    expected = torch.tensor([[1 / 3, 2 / 3, 0, 0], [1 / 13, 3 / 13, 0, 9 / 13], [0, 0, 0, 0]])
    torch.testing.assert_close(found[0], expected)


@pytest.mark.usefixtures("double")
def test_where_the_factor_is_one_it_is_softmax_in_each_head() -> None:
    normalizer, scores = scalable(1 / math.log(7), heads=3), torch.randn(3, 5, 7)
    torch.testing.assert_close(normalizer(scores, None).weights, scores.softmax(-1), rtol=0, atol=1e-14)
    normalizer.scales.data = torch.tensor([1.0, 2.0, -3.0]) / math.log(7)
    expected = (scores * torch.tensor([1.0, 2.0, -3.0])[:, None, None]).softmax(-1)
    torch.testing.assert_close(normalizer(scores, None).weights, expected, rtol=0, atol=1e-14)


@pytest.mark.parametrize(("keys", "weight", "by_softmax"), [(10, 0.940, 0.943), (1000, 0.9996, 0.129)])
def test_the_largest_weight_of_the_first_figure_does_not_fade(keys: int, weight: float, by_softmax: float) -> None:
    scores = torch.full((1, 1, keys), -2.0)
    scores[..., -1] = 3.0
    assert scalable(0.43)(scores, None).weights[0, 0, -1].item() == pytest.approx(weight, abs=6e-4)
    assert scores.softmax(-1)[0, 0, -1].item() == pytest.approx(by_softmax, abs=6e-4)


@pytest.mark.usefixtures("double")
def test_a_causal_row_is_that_of_a_sentence_which_ends_there() -> None:
    sizes = {"query_dim": 12, "key_dim": 12, "value_dim": 12}
    attention = attention_of("scalable_softmax", "attention.num_heads=2", **sizes).eval()
    x = torch.randn(2, 9, 12)
    context = attention.attend_self(x, causal=True).context
    for end in range(1, 10):
        alone = attention(x[:, end - 1 : end], attention.prepare(x[:, :end])).context
        torch.testing.assert_close(context[:, end - 1 : end], alone, rtol=0, atol=1e-12)


def test_one_key_teaches_the_scale_nothing() -> None:
    normalizer = scalable(0.3)
    normalizer(torch.randn(1, 5, 1), None).weights.square().sum().backward()
    assert normalizer.scales.grad.tolist() == [0.0]


@pytest.mark.usefixtures("double")
@pytest.mark.parametrize("causal", [False, True])
def test_the_fused_kernel_gives_the_numbers_of_all_pairs(causal: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = {"query_dim": 12, "key_dim": 12, "value_dim": 12}
    attention = attention_of("scalable_softmax", "attention.num_heads=2", **sizes).eval()
    attention.normalizer.scales.data = torch.tensor([0.4, 1.3])
    x, holes = torch.randn(3, 11, 12, requires_grad=True), torch.arange(33).view(3, 11) % 4 != 1
    for mask in (None, torch.arange(11) < torch.tensor([[11], [4], [0]]), holes):
        expected = attention.attend_self(x, mask, causal=causal, need_weights=True).context
        with monkeypatch.context() as patch:
            patch.setattr(attention_module, "BACKENDS", (fused.attend,))
            found = attention.attend_self(x, mask, causal=causal).context
        check_equal(found, expected, x, *attention.parameters())
