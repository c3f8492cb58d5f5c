"""Patterns of content, lsh and top_blocks: what they select, by hand and by formula, in steps and under padding."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from attention.formulas import attend
from configs import attention_factory, attention_of, model_of
from torch import Tensor

from seq2seq_attn.attention.pattern.lsh import LshPattern
from seq2seq_attn.attention.pattern.top_blocks import TopBlocksPattern
from seq2seq_attn.errors import UserError

pytestmark = pytest.mark.usefixtures("double")

B, S, T = 2, 13, 5
MASK = torch.arange(S) < torch.tensor([[S], [7]])
OPTIONS = {
    "lsh": ["attention.pattern.num_rounds=2"],
    "top_blocks": ["attention.pattern.block_length=3", "attention.pattern.num_blocks=2"],
}
presets = pytest.mark.parametrize("preset", list(OPTIONS))


def layer(preset: str, *overrides: str) -> Any:
    sizes = {"query_dim": 8, "key_dim": 8, "value_dim": 8}
    return attention_of(preset, *OPTIONS[preset], "attention.num_heads=2", *overrides, **sizes).eval()


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("by_query", [False, True])
@presets
def test_self_attention_equals_its_formula(preset: str, by_query: bool, causal: bool) -> None:
    attention, x = layer(preset), torch.randn(B, S, 8, requires_grad=True)
    mask = torch.rand(B, S, S) > 0.3 if by_query else MASK
    expected, weights = attend(attention, x, x, x, mask, causal=causal, own=True)
    assert 0.05 < (weights > 0).double().mean() < 0.5, "the pattern leaves nothing out"
    parameters = [x, *attention.parameters()]
    upstream = torch.randn_like(expected)
    theirs = torch.autograd.grad((expected * upstream).sum(), parameters)
    for need_weights in (False, True):
        found = attention.attend_self(x, mask, causal=causal, need_weights=need_weights)
        torch.testing.assert_close(found.context, expected, rtol=0, atol=1e-12)
        for ours, other in zip(torch.autograd.grad((found.context * upstream).sum(), parameters), theirs, strict=True):
            torch.testing.assert_close(ours, other, rtol=0, atol=1e-11)


@pytest.mark.parametrize("normalizer", ["softmax", "sparsemax"])
@presets
def test_steps_and_chunks_equal_the_whole_pass(preset: str, normalizer: str) -> None:
    attention, x = layer(preset, f"attention/normalizer={normalizer}"), torch.randn(B, S, 8)
    expected = attention.attend_self(x, causal=True).context
    for cuts in ([1] * S, [4, 1, 8]):
        past, parts = None, []
        for tokens in x.split(cuts, 1):
            attended = attention.attend_self(tokens, past=past, causal=True)
            past = attended.memory
            parts.append(attended.context)
        torch.testing.assert_close(torch.cat(parts, 1), expected, rtol=0, atol=1e-12)


@presets
def test_padding_changes_no_choice(preset: str) -> None:
    attention, x = layer(preset), torch.randn(B, S, 8)
    for causal in (False, True):
        together = attention.attend_self(x, MASK, causal=causal, need_weights=True).weights
        alone = attention.attend_self(x[1:, :7], causal=causal, need_weights=True).weights
        torch.testing.assert_close(together[1:, :, :7, :7], alone, rtol=0, atol=1e-12)


@presets
@pytest.mark.parametrize("causal", [False, True])
def test_a_query_past_the_last_key_has_no_key_of_its_own(preset: str, causal: bool) -> None:
    attention, x, keys = layer(preset), torch.randn(B, 5, 8), torch.randn(B, 7, 8)
    asked = {"start": 5, "causal": causal}  # positions 5 to 9, of which the last three have no key
    whole = attention(x, attention.prepare(keys), **asked)
    setattr(attention.pattern, "buckets_from" if preset == "lsh" else "listed_from", 1)
    weights = attention(x, attention.prepare(keys), **asked, need_weights=True).weights
    torch.testing.assert_close(attention(x, attention.prepare(keys), **asked).context, whole.context)
    assert weights.shape[-2:] == (5, 7)
    assert weights.isfinite().all()
    for row in range(5):
        one = attention(x[:, row : row + 1], attention.prepare(keys), start=5 + row, causal=causal)
        torch.testing.assert_close(one.context, whole.context[:, row : row + 1], rtol=0, atol=1e-12)


def test_top_blocks_by_hand() -> None:
    # Blocks of two with the mean keys 0, 3, -2, 1 and 2. A query of 1 takes the largest, one of -1 the smallest.
    keys = torch.tensor([[[[0.0], [0.0], [0.5], [5.5], [-1.0], [-3.0], [1.0], [1.0], [2.0]]]])
    pattern = TopBlocksPattern(block_length=2, num_blocks=2)

    def blocks(query: float, visible: Tensor | None, own: int | None) -> list[int]:
        position = None if own is None else torch.tensor([own])
        found = pattern.select(torch.tensor([[[[query]]]]), keys, visible, position)[0, 0, 0].nonzero()[:, 0].tolist()
        assert all(s + 1 in found for s in found if s % 2 == 0 and s < 8)
        return sorted({s // 2 for s in found})

    assert blocks(1.0, None, None) == [1, 4]
    assert blocks(-1.0, None, None) == [0, 2]
    assert blocks(1.0, None, 5) == [1, 2]  # the own one, and the best of the others
    assert blocks(1.0, torch.arange(9)[None, None, None] != 3, None) == [3, 4]  # a hidden key is not in the mean
    assert blocks(1.0, torch.arange(9)[None, None, None] <= 1, 1) == [0]  # blocks without a visible key
    assert blocks(0.0, None, None) == [0, 1]  # of equal ones the first


def test_lsh_by_hand() -> None:
    # The columns of R are the axes, so the four buckets are the directions right, up, left and down.
    pattern = LshPattern(head_dim=2, layer=0, num_buckets=4, num_rounds=1, seed=0)
    pattern.rotations = torch.eye(2)[None]
    keys = torch.tensor([[[[2.0, 1.0], [1.0, 2.0], [-3.0, 1.0], [0.0, -1.0], [9.0, -8.0]]]])
    query = torch.tensor([[[[1.0, 0.5], [0.1, 1.0], [-1.0, -0.5]]]])
    assert [row.nonzero()[:, 0].tolist() for row in pattern.select(query, keys, None, None)[0, 0]] == [[0, 4], [1], [2]]
    own = pattern.select(query, keys, None, torch.tensor([1, 2, 4]))[0, 0]
    assert [row.nonzero()[:, 0].tolist() for row in own] == [[0, 1, 4], [1, 2], [2, 4]]


def test_another_round_only_adds_keys() -> None:
    query, keys = torch.randn(B, 3, S, 4), torch.randn(B, 3, S, 4)
    few, more = (LshPattern(head_dim=4, layer=0, num_buckets=8, num_rounds=n, seed=0) for n in (1, 4))
    more.rotations[0] = few.rotations[0]
    one, four = (pattern.select(query, keys, None, None) for pattern in (few, more))
    assert (one <= four).all()
    assert 0.08 < one.double().mean() < 0.18  # an eighth
    assert 0.3 < four.double().mean() < 0.55  # 1 - (7/8)^4 = 0.41


def test_rotations_depend_on_seed_and_layer_and_are_saved() -> None:
    def rotations(layer: int, seed: int) -> Tensor:
        return LshPattern(head_dim=4, layer=layer, num_buckets=8, num_rounds=2, seed=seed).rotations

    assert torch.equal(rotations(1, 2), rotations(1, 2))
    assert not torch.equal(rotations(1, 2), rotations(2, 2))
    assert not torch.equal(rotations(1, 2), rotations(1, 3))
    assert "pattern.rotations" in layer("lsh").state_dict()


def test_a_layer_of_alternating_patterns_selects_by_content() -> None:
    chosen = "attention/pattern@attention.pattern.patterns.atrous=lsh"
    found = [
        attention_factory("alternating", chosen)(query_dim=8, key_dim=8, value_dim=8, layer=number).pattern
        for number in (0, 1)
    ]
    assert [type(pattern).__name__ for pattern in found] == ["LocalPattern", "LshPattern"]
    assert torch.equal(
        found[1].rotations, LshPattern(head_dim=8, layer=1, num_buckets=8, num_rounds=4, seed=0).rotations
    )


@presets
def test_a_score_that_is_no_inner_product_is_refused(preset: str) -> None:
    name = {"lsh": "LshPattern", "top_blocks": "TopBlocksPattern"}[preset]
    sentence = (
        rf"^{name} selects keys by an inner product of queries and keys, which AdditiveScore is not; "
        r"use attention/score=scaled_dot, or attention/pattern=sparse$"
    )
    with pytest.raises(UserError, match=sentence):
        layer(preset, "attention/score=additive")


def test_a_query_without_a_key_in_its_bucket_gets_zeros_in_cross_attention() -> None:
    attention = layer("lsh", "attention.pattern.num_buckets=64", "attention.pattern.num_rounds=1")
    query, keys = torch.randn(B, T, 8), torch.randn(B, 1, 8)
    found = attention(query, attention.prepare(keys), need_weights=True)
    nothing = found.weights.sum(-1) == 0  # (batch, heads, target)
    assert nothing.any()
    assert found.context.isfinite().all()


@presets
def test_hypotheses_that_share_a_source_choose_as_if_each_had_its_own(preset: str) -> None:
    model = model_of(f"attention={preset}", "model=rnn", *OPTIONS[preset])
    source, rows = torch.tensor([[4, 5, 6, 7, 8, 9, 3]]), torch.tensor([0, 0, 0])
    mask, read = source != 0, torch.tensor([5, 6, 7])
    with torch.inference_mode():
        shared = model.eval().step(read, model.encode(source, mask).branch(rows)).log_probs
        own = model.step(read, model.encode(source[rows], mask[rows])).log_probs
    torch.testing.assert_close(shared, own, rtol=0, atol=1e-12)


def test_autocast_rounds_no_mean_of_top_blocks() -> None:
    keys = torch.tensor([[[[258.0], [258.5], [257.0]]]], dtype=torch.float32)  # the first two are equal in bfloat16
    pattern = TopBlocksPattern(block_length=1, num_blocks=1)
    with torch.autocast("cpu", torch.bfloat16):
        found = pattern.select(torch.ones(1, 1, 1, 1, dtype=torch.float32), keys, None, None)
    assert found.flatten().tolist() == [False, True, False]
