"""What every attention keeps, whatever its parts: one test a law, for every YAML in conf/attention."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from attention.formulas import attend
from attention.layers import LINEAR, WIDTH, self_layer
from configs import attention_of, attentions_at_once, options
from torch import Tensor

PRESETS = options("attention")
AT_ONCE = attentions_at_once()
# One head is tried with what may tell heads apart here, and with all presets by the slow tests.
OF_HEADS = {"talking_heads", "differential", "fixed_patterns", "grouped_query", "gated", "multihead", "bahdanau"}
HEADS = [
    pytest.param(preset, heads, marks=pytest.mark.slow if heads == 1 and preset not in OF_HEADS else [])
    for preset in PRESETS
    for heads in (1, 3)
]
B, T, S = 2, 5, 7
ROUNDING = 1e-9  # of gradients, at most
pytestmark = pytest.mark.usefixtures("double")


# Options of presets that do not see all, so that they are narrower than the sentences here.
NARROW = {
    preset: ["k=2"]
    for preset in (
        *("local", "atrous", "sparse", "local_m", "local_p", "wait_k"),
        *("dynamic_conv", "lightweight_conv"),
    )
} | {
    "alternating": ["patterns.local.k=2", "patterns.atrous.k=2"],
    "global_local": ["k=1"],
    "bigbird": ["block_length=1", "k=0"],
    "dilated": ["segments=[[2,1],[4,2]]"],
    "block_summary": ["block_length=3"],
    "lsh": ["num_rounds=2"],
    "top_blocks": ["block_length=2", "num_blocks=2"],
}
# Options of presets that are not those of a long sentence.
SMALL = {
    "top_k": ["normalizer.k=2"],
    "soft_cap": ["score.cap=0.5"],
    "dynamic_conv": ["score.max_distance=1"],  # less than the k of the pattern
    "lightweight_conv": ["score.max_distance=3"],  # more
}
# Presets whose rows may sum to less than 1.
LIGHT = {
    "local_p",
    "fixed_patterns",
    "monotonic",
    "cosformer",
    "dilated",
    "lsh",
    "sink",
    "softmax_one",
    "stick_breaking",
}
SIGNED = {
    "talking_heads",
    "differential",
    "delta",
    "gated_delta",
}  # presets whose weights may be negative, and have any sum
FREE = {"relu", "sigmoid", "softmax_free"}  # presets whose weights are no shares of one sum
TIED = {"luong_dot", "plain_scaled_dot"}  # presets that compare queries and keys as they are
COMPRESSED = {"latent"}  # presets that compress keys and values by one matrix


def build(preset: str, heads: int, **sizes: int) -> Any:
    """In evaluation mode, with windows narrower than the sentences here."""
    given = [f"pattern.{option}" for option in NARROW.get(preset, [])] + SMALL.get(preset, [])
    overrides = [f"attention.num_heads={heads}", *(f"attention.{option}" for option in given)]
    attention = attention_of(preset, *overrides, **sizes).eval()
    mix = getattr(attention, "mix", None)
    for parameter in [] if mix is None else mix.parameters():
        torch.nn.init.normal_(parameter)  # a matrix over the heads is the identity at first
    return attention


def at_least(preset: str, heads: int) -> int:
    """Seven heads of the fixed patterns are not learned; two heads of keys each serve as many heads of queries."""
    return {"fixed_patterns": heads + 7, "grouped_query": 2 * heads}.get(preset, heads)


def cross(preset: str, heads: int = 1) -> tuple[Any, Tensor, Tensor, Tensor]:
    """An attention with queries, keys and values of three widths (two where the preset ties them)."""
    tied, heads = preset in TIED, at_least(preset, heads)
    query_dim, key_dim = 6 * heads, (6 if tied else 11) * heads
    value_dim = key_dim if preset in COMPRESSED else 5 * heads
    attention = build(preset, heads, query_dim=query_dim, key_dim=key_dim, value_dim=value_dim)
    return (attention, torch.randn(B, T, query_dim), torch.randn(B, S, key_dim), torch.randn(B, S, value_dim))


def rows_match_keys(preset: str, heads: int = 1) -> tuple[Any, Tensor]:
    heads = at_least(preset, heads)
    attention = build(preset, heads, query_dim=6 * heads, key_dim=6 * heads, value_dim=6 * heads)
    return attention, torch.randn(B, S, 6 * heads)


MASK = torch.tensor([[True] * 7, [True] * 4 + [False] * 3])


def gradients(loss: Tensor, *of: Tensor) -> list[Tensor]:
    found = torch.autograd.grad(loss, of, allow_unused=True)
    return [torch.zeros_like(x) if g is None else g for g, x in zip(found, of, strict=True)]


@pytest.mark.parametrize(("preset", "heads"), HEADS)
def test_cross_attention_equals_its_formula_values_and_gradients(preset: str, heads: int) -> None:
    attention, query, keys, values = cross(preset, heads)
    parameters = [x.requires_grad_() for x in (query, keys, values)] + list(attention.parameters())
    expected, expected_weights = attend(attention, query, keys, values, MASK, causal=False)
    upstream = torch.randn_like(expected)
    theirs = gradients((expected * upstream).sum(), *parameters)
    for need_weights in (False, True):
        found = attention(query, attention.prepare(keys, values, MASK), need_weights=need_weights)
        assert_near(found.context, expected, 1e-12, f"need_weights={need_weights}")
        if need_weights:
            assert_near(found.weights, expected_weights, 1e-12, "weights")
        for ours, other in zip(gradients((found.context * upstream).sum(), *parameters), theirs, strict=True):
            assert_near(ours, other, 1e-11, f"gradients, need_weights={need_weights}")


@pytest.mark.parametrize("preset", AT_ONCE)
def test_causal_self_attention_equals_its_formula(preset: str) -> None:
    attention, x = rows_match_keys(preset, heads=3)
    for mask in (None, MASK):
        expected, _ = attend(attention, x, x, x, mask, causal=True)
        for need_weights in (False, True):
            found = attention.attend_self(x, mask, causal=True, need_weights=need_weights).context
            assert_near(found, expected, 1e-12, f"masked={mask is not None}, need_weights={need_weights}")


def assert_near(found: Tensor, expected: Tensor, atol: float, case: str) -> None:
    torch.testing.assert_close(found, expected, rtol=0, atol=atol, msg=lambda message: f"{case}: {message}")


@pytest.mark.parametrize("preset", PRESETS)
def test_rows_sum_to_one_where_they_should_and_padding_weighs_exactly_nothing(preset: str) -> None:
    attention, query, keys, values = cross(preset)
    weights = attention(query, attention.prepare(keys, values, MASK), need_weights=True).weights
    if preset in SIGNED | FREE:
        assert not attention.sums_to_one
        assert (weights.sum(-1) - 1).abs().max() > 1e-3
    elif preset in LIGHT:
        assert (weights.sum(-1) <= 1 + 1e-12).all()
        assert (weights.sum(-1) > 0).any()
    else:
        torch.testing.assert_close(weights.sum(-1), torch.ones(weights.shape[:3]))
    assert (weights[1, :, :, 4:] == 0).all()


@pytest.mark.parametrize("preset", PRESETS)
def test_padding_and_neighbours_change_nothing(preset: str) -> None:
    attention, query, keys, values = cross(preset)
    together = attention(query, attention.prepare(keys, values, MASK)).context
    alone = attention(query[1:], attention.prepare(keys[1:, :4], values[1:, :4])).context
    torch.testing.assert_close(together[1:], alone, rtol=0, atol=1e-12)


@pytest.mark.parametrize("preset", AT_ONCE)
def test_a_causal_row_sees_no_later_position(preset: str) -> None:
    attention, x = rows_match_keys(preset)
    x.requires_grad_()
    attention.attend_self(x, causal=True).context[:, 3].sum().backward()
    assert (x.grad[:, 4:] == 0).all()
    assert (x.grad[:, :3] != 0).any()


@pytest.mark.parametrize("preset", AT_ONCE)
def test_one_step_at_a_time_equals_all_at_once(preset: str) -> None:
    attention, x = rows_match_keys(preset)
    expected = attention.attend_self(x, causal=True).context
    memory, steps = None, []
    for t in range(S):
        token = attention.prepare(x[:, t : t + 1], start=t)
        memory = token if memory is None else memory.append(token)
        steps.append(attention(x[:, t : t + 1], memory, start=t, causal=True).context)
    torch.testing.assert_close(torch.cat(steps, 1), expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("preset", AT_ONCE)
def test_a_chunk_behind_a_cache_equals_all_at_once(preset: str) -> None:
    attention, x = rows_match_keys(preset)
    expected = attention.attend_self(x, causal=True).context[:, 4:]
    found = attention(x[:, 4:], attention.prepare(x), start=4, causal=True).context
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("preset", AT_ONCE)
def test_self_attention_to_a_memory_of_the_same_sequence_is_that_of_one_call(preset: str) -> None:
    attention, x = self_layer(preset).attention, torch.randn(B, 40, WIDTH)  # long enough for patterns to leave out keys
    expected = attention.attend_self(x).context
    torch.testing.assert_close(attention(x, attention.prepare(x)).context, expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("need_weights", [False, True])
@pytest.mark.parametrize("preset", PRESETS)
def test_a_row_with_nothing_to_see_gives_zeros_and_finite_gradients(preset: str, need_weights: bool) -> None:
    attention, query, keys, values = cross(preset)
    inputs = [x.requires_grad_() for x in (query, keys, values)]
    mask = MASK & torch.tensor([[True], [False]])
    found = attention(query, attention.prepare(keys, values, mask), need_weights=need_weights)
    assert (found.context[1] == 0).all()
    for gradient in gradients(found.context.square().sum(), *inputs, *attention.parameters()):
        assert gradient.isfinite().all()


@pytest.mark.parametrize("preset", PRESETS)
def test_a_mask_for_each_query_is_kept(preset: str) -> None:
    attention, query, keys, values = cross(preset)
    mask = torch.rand(B, T, S) > 0.4
    expected, expected_weights = attend(attention, query, keys, values, mask, causal=False)
    found = attention(query, attention.prepare(keys, values, mask), need_weights=True)
    torch.testing.assert_close(found.context, expected, rtol=0, atol=1e-12)
    torch.testing.assert_close(found.weights, expected_weights, rtol=0, atol=1e-12)
    assert (found.weights[~mask[:, None].expand_as(found.weights)] == 0).all()


@pytest.mark.parametrize("preset", PRESETS)
def test_every_parameter_gets_a_gradient(preset: str) -> None:
    attention, query, keys, values = cross(preset)
    values.requires_grad_()
    found = attention.train()(query, attention.prepare(keys, values, MASK))
    loss = found.context.square().sum()
    if found.log_prob is not None:  # what is drawn passes no gradient on: the draw's own terms do
        loss = loss + (found.log_prob + found.entropy).sum()
    loss.backward()
    for name, parameter in attention.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.isfinite().all(), name
        assert (parameter.grad.abs() > ROUNDING).any(), name


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 2e-6), (torch.bfloat16, 5e-2)])
@pytest.mark.parametrize("preset", PRESETS)
def test_lower_precision_stays_near_float64(preset: str, dtype: torch.dtype, tolerance: float) -> None:
    attention, query, keys, values = cross(preset)
    expected = attention(query, attention.prepare(keys, values, MASK)).context
    attention.to(dtype)
    for need_weights in (False, True):
        memory = attention.prepare(keys.to(dtype), values.to(dtype), MASK)
        found = attention(query.to(dtype), memory, need_weights=need_weights).context
        assert found.dtype == dtype
        largest = expected.abs().max()
        assert ((found.double() - expected).abs().max() / largest) < tolerance


@pytest.mark.parametrize("preset", PRESETS)
def test_state_round_trips(preset: str) -> None:
    attention, query, keys, values = cross(preset)
    other, *_ = cross(preset)
    other.load_state_dict(attention.state_dict())
    ours, theirs = (a(query, a.prepare(keys, values, MASK)).context for a in (attention, other))
    assert torch.equal(ours, theirs)


@pytest.mark.parametrize("preset", PRESETS)
def test_a_memory_can_be_reordered(preset: str) -> None:
    attention, query, keys, values = cross(preset)
    rows = torch.tensor([1, 0, 1])
    selected = attention.prepare(keys, values, MASK).select(rows)
    expected = attention(query, attention.prepare(keys, values, MASK)).context[rows]
    torch.testing.assert_close(attention(query[rows], selected).context, expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("preset", sorted(set(PRESETS) - LINEAR))
def test_weights_are_those_before_dropout(preset: str) -> None:
    attention, query, keys, values = cross(preset)
    memory = attention.prepare(keys, values, MASK)
    expected = attention(query, memory, need_weights=True)
    attention.dropout = 0.5
    attention.train()
    attention.normalizer.eval()  # or a hard one would draw
    found = attention(query, memory, need_weights=True)
    torch.testing.assert_close(found.weights, expected.weights)
    assert not torch.allclose(found.context, expected.context)
