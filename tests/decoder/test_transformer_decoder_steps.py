"""The Transformer decoder step by step: equal to one pass, with projections whose cost does not grow."""

from __future__ import annotations

from functools import partial
from itertools import pairwise
from typing import Any, final

import pytest
import torch
from configs import options
from decoder.transformer_decoders import BATCH, DIM, HEADS, LAYERS, SOURCE, TARGET, decoder, encoded, ready
from jaxtyping import Bool, Int
from nn import torch_transformer as by_torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from seq2seq_attn.attention.pattern.pattern import Pattern
from seq2seq_attn.decoder.transformer import TransformerDecoder, TransformerState

POSITIONS = options("position")
NORMS = ["pre", "post"]


def stepped(
    ours: TransformerDecoder, x: Tensor, state: TransformerState, lengths: list[int], **options: Any
) -> list[Any]:
    """Decode chunks of `lengths`, each from the state after the previous one."""
    found = []
    for chunk in x.split(lengths, 1):
        found.append(ours(chunk, state, **options))
        state = found[-1].state
    return found


@pytest.mark.usefixtures("double")
@pytest.mark.parametrize(("lengths", "gradients"), [([1] * TARGET, False), ([4, 1, 6], True)])
@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("position", POSITIONS)
def test_step_by_step_or_chunk_by_chunk_equals_all_at_once(
    position: str, norm: str, lengths: list[int], gradients: bool
) -> None:
    ours = ready(input_dim=5, norm=norm, position=by_torch.position_factory(position))
    x, state = torch.randn(BATCH, TARGET, 5), ours.initial_state(encoded())
    expected = ours(x, state)
    with torch.set_grad_enabled(gradients):
        found = stepped(ours, x, state, lengths)
    torch.testing.assert_close(torch.cat([f.hidden for f in found], 1), expected.hidden, rtol=0, atol=1e-12)
    assert found[-1].state.next_position == expected.state.next_position == TARGET


@final
class Aligned(Pattern):
    """A pattern in which each query attends to the key at its own position, if there is one."""

    def allowed(self, centre: Tensor, key_position: Int[Tensor, " source"]) -> Bool[Tensor, "batch target source"]:
        return centre[..., None] == key_position


@pytest.mark.usefixtures("double")
def test_attention_to_the_source_starts_at_the_position_reached() -> None:
    ours = ready(cross_attention=by_torch.attention_factory(HEADS, pattern=partial(Aligned)))
    x, state = torch.randn(BATCH, TARGET, DIM), ours.initial_state(encoded())
    found = stepped(ours, x, state, [4, 1, 6], need_weights=True)
    weights = torch.cat([step.weights["cross/1"] for step in found], 2)
    assert torch.equal(weights[1, 0], torch.eye(TARGET, SOURCE))
    torch.testing.assert_close(torch.cat([f.hidden for f in found], 1), ours(x, state).hidden, rtol=0, atol=1e-12)


@pytest.mark.usefixtures("double")
@pytest.mark.parametrize("position", POSITIONS)
@pytest.mark.parametrize("before", [0, 3])
def test_a_reordered_state_decodes_as_the_reordered_batch(before: int, position: str) -> None:
    ours = ready(position=by_torch.position_factory(position))
    x, source, rows = torch.randn(BATCH, TARGET, DIM), encoded(), torch.tensor([2, 0, 0, 1])
    expected = ours(x, ours.initial_state(source)).hidden[rows, before:]
    with torch.no_grad():
        state = ours.initial_state(source)
        for step in range(before):
            state = ours(x[:, step : step + 1], state).state
        state = state.select(rows)
        assert state.next_position == before
        steps = stepped(ours, x[rows, before:], state, [1] * (TARGET - before))
    torch.testing.assert_close(torch.cat([s.hidden for s in steps], 1), expected, rtol=0, atol=1e-12)


@pytest.mark.usefixtures("double")
def test_two_continuations_of_one_state_do_not_disturb_each_other() -> None:
    ours = ready()
    prefix, one, other = (torch.randn(BATCH, length, DIM) for length in (3, 4, 4))
    state = ours.initial_state(encoded())
    expected = [ours(torch.cat([prefix, rest], 1), state).hidden[:, 3:] for rest in (one, other)]
    with torch.no_grad():
        (*_, behind) = stepped(ours, prefix, state, [1, 1, 1])
        states, found = [behind.state, behind.state], ([], [])
        for step in range(4):
            for number, rest in enumerate((one, other)):
                decoded = ours(rest[:, step : step + 1], states[number])
                states[number] = decoded.state
                found[number].append(decoded.hidden)
    for steps, whole in zip(found, expected, strict=True):
        torch.testing.assert_close(torch.cat(steps, 1), whole, rtol=0, atol=1e-12)


@pytest.mark.usefixtures("double")
@pytest.mark.parametrize("norm", NORMS)
def test_a_memory_of_another_width_that_is_not_projected_is_brought_to_the_decoders(norm: str) -> None:
    reading = by_torch.attention_factory(HEADS, project_values=False)
    ours = ready(input_dim=5, key_dim=13, value_dim=21, norm=norm, cross_attention=reading)
    assert all(layer.project_context.weight.shape == (DIM, 21) for layer in ours.layers)
    x, state = torch.randn(BATCH, TARGET, 5), ours.initial_state(encoded(13, 21))
    expected = ours(x, state).hidden
    assert expected.shape == (BATCH, TARGET, ours.output_dim)
    found = torch.cat([s.hidden for s in stepped(ours, x, state, [1] * TARGET)], 1)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)


def linears_called(ours: TransformerDecoder, x: Tensor, state: TransformerState) -> dict[str, tuple]:
    """Return the input shape of each linear layer that is called, by name."""
    shapes: dict[str, tuple] = {}
    hooks = [
        module.register_forward_pre_hook(lambda _, inputs, name=name: shapes.update({name: inputs[0].shape}))
        for name, module in ours.named_modules()
        if isinstance(module, nn.Linear)
    ]
    ours(x, state)
    for hook in hooks:
        hook.remove()
    return shapes


def test_a_step_projects_its_own_token_and_nothing_of_the_source() -> None:
    ours, x = decoder(input_dim=5), torch.randn(BATCH, TARGET, 5)
    with torch.no_grad():
        state = ours(x, ours.initial_state(encoded())).state
        shapes = linears_called(ours, x[:, :1], state)
    linears = {name for name, module in ours.named_modules() if isinstance(module, nn.Linear)}
    of_source = {
        name
        for name in linears
        if name.endswith(("cross_attention.score.project_key", "cross_attention.project_values"))
    }
    of_itself = {
        name
        for name in linears
        if "self_attention.score.project" in name or name.endswith("self_attention.project_values")
    }
    assert (len(of_source), len(of_itself)) == (2 * LAYERS, 3 * LAYERS)
    assert set(shapes) == linears - of_source - of_itself
    assert [(joined.weight.shape, joined.bias.shape) for joined in state.packed] == [
        ((3 * DIM, DIM), (3 * DIM,))
    ] * LAYERS  # self-attention: one product, with one matrix for all steps
    assert {shape[:2] for shape in shapes.values()} == {(BATCH, 1)}


def test_a_later_step_costs_more_by_its_products_with_more_keys_only() -> None:
    ours, state = decoder().eval(), None
    costs, source = [], encoded()
    with torch.no_grad():
        state = ours.initial_state(source)
        for _ in range(TARGET):
            with FlopCounterMode(display=False) as counter:
                state = ours(torch.randn(BATCH, 1, DIM), state, need_weights=True).state
            costs.append(counter.get_total_flops())
    products = 2  # with the key and with the value, a multiplication and an addition for each number
    growth = [after - before for before, after in pairwise(costs)]
    assert growth == [products * 2 * LAYERS * BATCH * DIM] * (TARGET - 1)


def test_projections_packed_for_decoding_follow_the_weights_and_are_not_stored_on_the_module() -> None:
    ours, source, x = decoder().eval(), encoded(), torch.randn(BATCH, 1, DIM)
    with torch.no_grad():
        before = ours(x, ours.initial_state(source)).hidden
        for parameter in ours.parameters():
            parameter.data.mul_(1.5)
        after = ours(x, ours.initial_state(source)).hidden
    expected = ours(x, ours.initial_state(source)).hidden  # with gradients, nothing is packed
    torch.testing.assert_close(after, expected, rtol=0, atol=1e-12)
    assert not torch.allclose(after, before)
