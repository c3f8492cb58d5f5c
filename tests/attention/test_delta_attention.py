"""DeltaAttention: chunks and steps give the numbers of the definition; a key's value is replaced, not added to."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from attention.formulas import attend
from attention.layers import check_equal
from configs import attention_of
from torch import Tensor

from seq2seq_attn.attention import DeltaAttention, build_attention, delta_attention, kernel_attention
from seq2seq_attn.attention.decayed_sums import decay_within
from seq2seq_attn.attention.delta_rule import delta_weights, pseudo_values, ut_transform
from seq2seq_attn.errors import UserError
from seq2seq_attn.position.rotary import RotaryPosition

B, N, D, HEADS = 2, 23, 12, 3
CHUNK = delta_attention.CHUNK
MASK = torch.arange(N) < torch.tensor([[N], [14]])
LAYERS = [("delta",), ("gated_delta",), ("delta", "attention/decay=fixed")]
pytestmark = pytest.mark.usefixtures("double")


def layer(*preset: str, **options: Any) -> Any:
    sizes = {"query_dim": D, "key_dim": D, "value_dim": D}
    attention = attention_of(preset[0], f"attention.num_heads={HEADS}", *preset[1:], **sizes, **options).eval()
    assert isinstance(attention, DeltaAttention)
    return attention


def same(found: Tensor, expected: Tensor, atol: float = 1e-12) -> None:
    torch.testing.assert_close(found, expected, rtol=0, atol=atol)


def cut_into(chunk: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Write and read by chunks of so many positions."""
    for module in (delta_attention, kernel_attention):
        monkeypatch.setattr(module, "CHUNK", chunk)


def test_a_value_is_replaced_and_not_added_to() -> None:
    """Twice the same key, with 3 and then 5: linear attention would read 8; another key keeps its 7."""
    keys = torch.tensor([[1.0, 0], [0, 1], [1, 0]])[None, None]
    values = torch.tensor([[3.0], [7], [5]])[None, None]
    for strength, expected in ((1.0, [5.0, 7.0]), (0.5, [0.75 + 2.5, 3.5])):
        written = pseudo_values(keys, values, torch.full((1, 1, 3), strength), None, None, chunk=2)
        same((keys.mT @ written.values).squeeze(), torch.tensor(expected))
        assert written.state is not None
        same(written.state.squeeze(), torch.tensor(expected))


def test_the_weights_of_one_key_halve_with_each_token_that_writes_half() -> None:
    ones = torch.ones(1, 1, 3, 1)
    decay = decay_within(torch.zeros(1, 1, 1, 3), causal=True)
    transform = ut_transform(ones, torch.full((1, 1, 1, 3), 0.5), decay)
    weights = delta_weights(ones[:, :, :1], ones, transform, decay, torch.tensor([2]))
    same(weights.squeeze(), torch.tensor([1 / 8, 1 / 4, 1 / 2]))


@pytest.mark.parametrize(("length", "chunk"), [(N, 1), (N, 4), (N, 23), (CHUNK + 7, CHUNK)])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("preset", LAYERS)
def test_chunks_equal_all_pairs_values_and_gradients(
    preset: tuple[str, ...], causal: bool, length: int, chunk: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    cut_into(chunk, monkeypatch)
    attention, x = layer(*preset), torch.randn(B, length, D, requires_grad=True)
    prefix, scattered = torch.arange(length) < torch.tensor([[length], [14]]), torch.rand(B, length) > 0.4
    for mask in (None, prefix, scattered):
        by_chunks = attention.attend_self(x, mask, causal=causal).context
        dense = attention.attend_self(x, mask, causal=causal, need_weights=True)
        check_equal(by_chunks, dense.context, x, *attention.parameters())
        if causal:
            same(dense.weights.triu(1), torch.zeros_like(dense.weights))


@pytest.mark.parametrize("preset", LAYERS)
def test_a_step_carries_a_state_of_one_size_and_steps_of_any_length_equal_the_whole(
    preset: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    cut_into(2, monkeypatch)
    attention, x, mask = layer(*preset), torch.randn(B, N, D), torch.rand(B, N) > 0.4
    expected = attention.attend_self(x, mask, causal=True).context
    memory, contexts, begin, sizes = None, [], 0, set()
    for length in (1, 1, 5, 1, 3, 1, 11):
        part = slice(begin, begin + length)
        found = attention.attend_self(x[:, part], mask[:, part], past=memory, causal=True)
        memory, begin = found.memory, begin + length
        contexts.append(found.context)
        sizes.add(memory.total.shape)
        assert (memory.keys.shape[2], memory.source) == (length, begin)
    same(torch.cat(contexts, 1), expected)
    assert sizes == {(B, HEADS, D // HEADS, D // HEADS)}
    branched = memory.branch(torch.tensor([1, 1, 0]))
    assert (branched.keys.shape[2], branched.source) == (0, N)
    following = torch.randn(3, 2, D)
    whole, seen = torch.cat([x[[1, 1, 0]], following], 1), torch.cat([mask[[1, 1, 0]], torch.ones(3, 2) > 0], 1)
    for causal in (True, False):
        after = attention.attend_self(following, past=branched, causal=causal).context
        same(after, attention.attend_self(whole, seen, causal=causal).context[:, N:])


@pytest.mark.parametrize("preset", LAYERS)
def test_queries_and_keys_may_be_at_any_positions(preset: tuple[str, ...]) -> None:
    attention, x, queries = layer(*preset), torch.randn(B, N, D), torch.randn(3 * B, 1, D)
    memory = attention.prepare(x)
    for start in (0, 7, N - 1):
        shared = attention(queries, memory, start=start, causal=True).context
        alone = memory.select(torch.arange(B).repeat_interleave(3))
        same(shared, attention(queries, alone, start=start, causal=True).context)
        same(shared, attention(queries, memory, start=start, causal=True, need_weights=True).context)
    for keys, start, rows in ((5, 0, 9), (5, 3, 4), (9, 2, 3), (9, 20, 2), (0, 0, 3)):
        memory, query = attention.prepare(x[:, :keys]), x[:, :rows]
        for causal in (True, False):
            found = attention(query, memory, start=start, causal=causal)
            dense = attention(query, memory, start=start, causal=causal, need_weights=True)
            same(found.context, dense.context)
            assert dense.weights.shape == (B, HEADS, rows, keys)


@pytest.mark.parametrize("preset", LAYERS)
def test_a_mask_for_each_query_is_kept_in_causal_attention(preset: tuple[str, ...]) -> None:
    attention, x = layer(*preset), torch.randn(B, 7, D)
    mask = torch.rand(B, 7, 7) > 0.4
    expected, weights = attend(attention, x, x, x, mask, causal=True)
    found = attention.attend_self(x, mask, causal=True, need_weights=True)
    same(found.context, expected)
    same(found.weights, weights)
    selected = attention.prepare(x, mask=mask).select(torch.tensor([1, 0]))
    same(attention(x[[1, 0]], selected, causal=True).context, expected[[1, 0]])
    hypotheses = attention(x.reshape(-1, 1, D), attention.prepare(x, mask=mask), start=3, causal=True).context
    at_three, _ = attend(attention, x, x, x, mask & (torch.arange(7) <= 3), causal=False)
    same(hypotheses.reshape(B, 7, D), at_three)


def test_a_selected_memory_has_the_states_of_its_sentences_and_is_not_computed_again() -> None:
    attention, x, rows = layer("gated_delta"), torch.randn(B, N, D), torch.tensor([1, 1, 0])
    memory = attention.prepare(x, mask=MASK)
    state = memory.total
    selected = memory.select(rows)
    assert "written" in vars(selected)
    same(selected.total, state[rows])
    after = memory.append(attention.prepare(x[:, :4]))
    same(after.select(rows).total, after.total[rows])  # computed before the choice,
    same(memory.append(attention.prepare(x[:, :4])).select(rows).total, after.total[rows])  # and after it


def test_the_dense_backend_solves_no_chunk(monkeypatch: pytest.MonkeyPatch) -> None:
    attention, x = layer("gated_delta"), torch.randn(B, N, D)
    expected = attention.attend_self(x, causal=True).context
    monkeypatch.delattr(delta_attention, "pseudo_values")
    attention.backend = "dense"
    same(attention.attend_self(x, causal=True).context, expected)


def test_a_token_near_zero_has_no_boundless_gradient() -> None:
    """Its key has hardly a direction; divided by its own length, its gradient would be of the order 1e10."""
    attention, x = layer("delta"), torch.randn(B, N, D)
    x[:, 3] *= 1e-10
    x.requires_grad_()
    (gradient,) = torch.autograd.grad(attention.attend_self(x, causal=True).context.sin().sum(), x)
    assert gradient[:, 3].abs().max() < 1e8


def test_there_are_no_weights_over_a_past_of_which_the_state_is_left() -> None:
    attention, x = layer("delta"), torch.randn(B, 3, D)
    first = attention.attend_self(x, causal=True, need_weights=True)
    assert first.weights.shape == (B, HEADS, 3, 3)
    assert not first.sums_to_one
    later = attention.attend_self(x, past=first.memory, causal=True, need_weights=True)
    assert later.weights is None
    same(later.context, attention.attend_self(x, past=first.memory, causal=True).context)
    for memory in (first.memory.branch(torch.arange(B)), later.memory):  # the last position before is that of the state
        at_state = attention(x[:, :1], memory, start=2, causal=True).context
        same(at_state, attention(x[:, :1], first.memory, start=2, causal=True).context)
    with pytest.raises(UserError, match=r"position 1 may not see all of the 3 positions of which .* keeps the state"):
        attention(x, later.memory, start=1, causal=True)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("preset", LAYERS)
def test_great_queries_and_keys_give_finite_contexts_and_gradients(preset: tuple[str, ...], dtype: torch.dtype) -> None:
    attention = layer(*preset).to(dtype)
    x = (torch.randn(B, N, D) * torch.logspace(-3, 3, N)[:, None]).index_fill(1, torch.tensor([3]), 0.0)
    x = x.to(dtype).requires_grad_()
    for causal in (False, True):
        for need_weights in (False, True):
            context = attention.attend_self(x, MASK, causal=causal, need_weights=need_weights).context
            assert context.isfinite().all()
            (gradient,) = torch.autograd.grad(context.float().square().sum(), x)
            assert gradient.isfinite().all()


def test_states_are_float32_under_autocast_and_near_those_of_float64_over_a_long_sequence() -> None:
    attention, x = layer("gated_delta").float(), torch.randn(B, 2000, D, dtype=torch.float32)
    expected = attention.double().attend_self(x.double(), causal=True).context
    attention.float()
    same(attention.attend_self(x, causal=True).context.double(), expected, 1e-4)
    with torch.autocast("cpu", torch.bfloat16):
        past = attention.attend_self(x[:, :1500], causal=True)
        found = attention.attend_self(x[:, 1500:], past=past.memory, causal=True)
    assert found.memory.before.dtype == found.memory.total.dtype == torch.float32
    context = torch.cat([past.context, found.context], 1).double()
    assert ((context - expected).abs().max() / expected.abs().max()) < 0.1


def test_a_decay_is_chosen_by_name() -> None:
    attention = build_attention("delta", "decay=gate", "decay.initial_gate=0.5", dim=8).attention
    same(attention.decay.project.bias, torch.zeros(1))


def test_positions_that_change_queries_and_keys_are_refused() -> None:
    with pytest.raises(
        UserError, match=r"^the delta rule takes no position=rotary; use position=sinusoidal, learned or"
    ):
        layer("delta", relative=RotaryPosition(dim=D, base=100.0).relative)


@pytest.mark.parametrize("need_weights", [False, True])
@pytest.mark.parametrize("without", [torch.no_grad, torch.inference_mode])
@pytest.mark.parametrize("preset", [("linear",), ("gated_linear",), *LAYERS])
def test_a_memory_that_was_first_read_without_gradients_has_them(
    preset: tuple[str, ...], without: type[Any], need_weights: bool
) -> None:
    sizes = {"query_dim": D, "key_dim": D, "value_dim": D}
    attention = attention_of(preset[0], f"attention.num_heads={HEADS}", *preset[1:], **sizes).eval()
    query, keys = torch.randn(B, 5, D), torch.randn(B, N, D, requires_grad=True)
    gradients = []
    for read_before in (False, True):
        memory = attention.prepare(keys)
        if read_before:
            with without():
                attention(query, memory, need_weights=need_weights)
        context = attention(query, memory, need_weights=need_weights).context
        gradients += torch.autograd.grad(context.square().sum(), keys)
    same(*gradients)


@pytest.mark.parametrize("without", [torch.no_grad, torch.inference_mode])
@pytest.mark.parametrize("preset", [("linear",), ("gated_linear",), *LAYERS])
def test_a_past_that_has_gradients_goes_on_without_them(preset: tuple[str, ...], without: type[Any]) -> None:
    sizes = {"query_dim": D, "key_dim": D, "value_dim": D}
    attention = attention_of(preset[0], f"attention.num_heads={HEADS}", *preset[1:], **sizes).eval()
    x = torch.randn(B, 7, D)
    past = attention.attend_self(x[:, :4], causal=True).memory
    with without():
        for position in range(4, 7):
            step = attention.attend_self(x[:, position : position + 1], past=past, causal=True)
            past = step.memory
        torch.testing.assert_close(step.context, attention.attend_self(x, causal=True).context[:, 6:])
