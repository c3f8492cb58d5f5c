"""Properties of every position encoding, for every YAML in conf/position and each of its variants."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from configs import CONF, built, options
from omegaconf import OmegaConf
from torch import Tensor

OPTIONS = options("position")
JOINED = [("sinusoidal", {"join": "concat"}), ("learned", {"join": "concat"})]
VARIANTS = [*((name, {}) for name in OPTIONS), *JOINED, ("relative", {"values": False})]
RELATIVE = [("rotary", {}), ("alibi", {}), ("relative", {"max_distance": 2}), ("relative", {"values": False})]
RELATIVE += [("t5", {}), ("t5", {"num_buckets": 4, "max_distance": 3}), ("kerple", {}), ("fire", {})]
CONSTANT = {"log_rate", "log_threshold"}  # of fire, before training
B, H, T, S, WIDTH, DIM = 2, 3, 5, 7, 10, 11
EXACT = {"rtol": 0, "atol": 1e-12}

every = pytest.mark.parametrize(("name", "changed"), VARIANTS)
relative = pytest.mark.parametrize(("name", "changed"), RELATIVE)


def position(name: str, changed: dict[str, Any], dim: int = DIM) -> Any:
    return built(OmegaConf.merge(OmegaConf.load(CONF / f"position/{name}.yaml"), changed))(dim=dim)


def part(name: str, changed: dict[str, Any]) -> Any:
    return position(name, changed, dim=H * WIDTH).relative(num_heads=H, head_dim=WIDTH)


def added(parts: Any, query: Tensor, keys: Tensor, query_position: Tensor, key_position: Tensor) -> Tensor:
    """Return the scores of an attention with this part, for a block or for all positions."""
    turned = parts.rotate(query, query_position) @ parts.rotate(keys, key_position).mT
    return turned + parts.bias(query, query_position, key_position)


def test_all_options_are_tried_and_those_with_a_relative_part_are_known() -> None:
    found = {name for name in OPTIONS if position(name, {}).relative(num_heads=H, head_dim=WIDTH) is not None}
    assert found == {name for name, _ in RELATIVE} < set(OPTIONS)


@every
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_width_and_dtype_stay(name: str, changed: dict[str, Any], dtype: torch.dtype) -> None:
    embedded = torch.randn(B, T, DIM, dtype=dtype)
    joined = position(name, changed).to(dtype)(embedded, start=3)
    assert (joined.shape, joined.dtype) == (embedded.shape, dtype)


@every
@pytest.mark.usefixtures("double")
def test_one_step_at_a_time_equals_all_at_once(name: str, changed: dict[str, Any]) -> None:
    positions, embedded = position(name, changed), torch.randn(B, S, DIM)
    steps = [positions(embedded[:, t : t + 1], start=t) for t in range(S)]
    torch.testing.assert_close(torch.cat(steps, 1), positions(embedded), **EXACT)


@every
@pytest.mark.usefixtures("double")
def test_a_token_that_is_moved_changes_only_where_positions_are_joined(name: str, changed: dict[str, Any]) -> None:
    positions, embedded = position(name, changed), torch.randn(B, T, DIM)
    moved = positions(embedded, start=1)
    assert torch.equal(moved, positions(embedded)) == (name not in ("sinusoidal", "learned"))


@every
@pytest.mark.usefixtures("double")
def test_batch_mates_and_longer_sentences_change_nothing(name: str, changed: dict[str, Any]) -> None:
    positions, embedded = position(name, changed), torch.randn(B, S, DIM)
    alone = positions(embedded[1:, :T])
    torch.testing.assert_close(positions(embedded)[1:, :T], alone, **EXACT)


@every
def test_a_sentence_longer_than_any_before_is_accepted(name: str, changed: dict[str, Any]) -> None:
    positions, short, long = position(name, changed), torch.randn(1, 3, DIM), torch.randn(1, 1009, DIM)
    assert positions.max_length is None or positions.max_length >= long.shape[1]
    before = positions(short)
    assert positions(long).isfinite().all()
    assert torch.equal(positions(short), before)


@every
def test_state_round_trips_and_holds_weights_alone(name: str, changed: dict[str, Any]) -> None:
    ours, theirs = position(name, changed, H * WIDTH), position(name, changed, H * WIDTH)
    embedded, query = torch.randn(B, T, H * WIDTH), torch.randn(B, H, T, WIDTH)
    modules = [(ours, theirs)]
    if name in {known for known, _ in RELATIVE}:
        modules += [tuple(p.relative(num_heads=H, head_dim=WIDTH) for p in (ours, theirs))]
    ours(embedded)
    for mine, other in modules:
        assert set(mine.state_dict()) == {key for key, _ in mine.named_parameters()}
        other.load_state_dict(mine.state_dict())
    assert torch.equal(ours(embedded), theirs(embedded))
    for mine, other in modules[1:]:
        index = torch.arange(T)
        assert torch.equal(mine.bias(query, index, index), other.bias(query, index, index))


@relative
def test_every_layer_has_a_part_of_its_own(name: str, changed: dict[str, Any]) -> None:
    positions = position(name, changed, H * WIDTH)
    first, second = (positions.relative(num_heads=H, head_dim=WIDTH) for _ in range(2))
    assert first is not second
    assert not {id(p) for p in first.parameters()} & {id(p) for p in second.parameters()}
    for (key, ours), theirs in zip(first.named_parameters(), second.parameters(), strict=True):
        assert torch.equal(ours, theirs) == (key in CONSTANT)


@relative
@pytest.mark.usefixtures("double")
def test_a_part_does_exactly_what_its_attributes_state(name: str, changed: dict[str, Any]) -> None:
    parts, query, weights = part(name, changed), torch.randn(B, H, T, WIDTH), torch.rand(B, H, T, S)
    query_position, key_position = torch.arange(2, 2 + T), torch.arange(S)
    assert parts.rotates == (not torch.equal(parts.rotate(query, query_position), query))
    assert parts.biases == bool((parts.bias(query, query_position, key_position) != 0).any())
    assert parts.adds_context == bool((parts.context(weights, query_position, key_position) != 0).any())
    assert parts.rotates or parts.biases
    reads = parts.rotates or (parts.bias(query, query_position, key_position).shape[0] == B)
    assert parts.needs_inner_product == reads
    if not reads:
        unread = parts.bias(None, query_position, key_position)
        assert torch.equal(unread, parts.bias(query, query_position, key_position))


@relative
@pytest.mark.usefixtures("double")
def test_only_the_distance_of_two_positions_counts(name: str, changed: dict[str, Any]) -> None:
    parts, query, keys = part(name, changed), torch.randn(B, H, T, WIDTH), torch.randn(B, H, S, WIDTH)
    query_position, key_position, weights = torch.arange(T), torch.arange(S), torch.rand(B, H, T, S)
    near = added(parts, query, keys, query_position, key_position)
    torch.testing.assert_close(added(parts, query, keys, query_position + 101, key_position + 101), near, **EXACT)
    assert not torch.allclose(added(parts, query, keys, query_position + 1, key_position), near)
    contexts = [parts.context(weights, query_position + far, key_position + far) for far in (0, 101)]
    assert torch.equal(*contexts)


@relative
@pytest.mark.usefixtures("double")
def test_blocks_equal_the_whole(name: str, changed: dict[str, Any]) -> None:
    parts, weights = part(name, changed), torch.rand(B, H, 6, S)
    query, keys = torch.randn(B, H, 6, WIDTH), torch.randn(B, H, S, WIDTH)
    query_position, key_position = torch.arange(6), torch.arange(S)
    rows, columns = query_position.view(2, 3), torch.stack([key_position[:4], key_position[3:]])
    cut = query.view(B, H, 2, 3, WIDTH).transpose(1, 2)  # (batch, blocks, heads, target, width)
    whole = parts.bias(query, query_position, key_position).expand(B, H, 6, S)
    found = parts.bias(cut, rows, columns).expand(B, 2, H, 3, 4)
    for block in range(2):
        expected = whole[:, :, rows[block]][..., columns[block]]
        torch.testing.assert_close(found[:, block], expected, **EXACT)
        seen = weights[:, :, rows[block]][..., columns[block]]
        one = parts.context(seen, rows[block], columns[block])
        blocks = torch.stack([seen, torch.rand_like(seen)], 1)
        positions = torch.stack([rows[block], rows[0]]), torch.stack([columns[block], columns[0]])
        torch.testing.assert_close(parts.context(blocks, *positions)[:, 0], one, **EXACT)
    assert parts.rotate(keys, key_position).shape == keys.shape


@relative
@pytest.mark.usefixtures("double")
def test_a_step_of_scores_equals_its_row_of_all_scores(name: str, changed: dict[str, Any]) -> None:
    parts, query, keys = part(name, changed), torch.randn(B, H, S, WIDTH), torch.randn(B, H, S, WIDTH)
    position, weights = torch.arange(S), torch.rand(B, H, S, S).tril()
    scores, context = added(parts, query, keys, position, position), parts.context(weights, position, position)
    for t in range(S):
        now, seen = position[t : t + 1], position[: t + 1]
        step = added(parts, query[:, :, t : t + 1], keys[:, :, : t + 1], now, seen)
        torch.testing.assert_close(step, scores[:, :, t : t + 1, : t + 1], **EXACT)
        step = parts.context(weights[:, :, t : t + 1, : t + 1], now, seen)
        assert step.shape[2] == 1
        torch.testing.assert_close(step, context[:, :, min(t, context.shape[2] - 1), None], **EXACT)


@relative
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.bfloat16, 3e-2)])
@pytest.mark.usefixtures("double")
def test_lower_precision_stays_near_float64_far_into_a_sentence(
    name: str, changed: dict[str, Any], dtype: torch.dtype, tolerance: float
) -> None:
    parts, query, position = part(name, changed), torch.randn(B, H, T, WIDTH), torch.arange(995, 995 + T)
    weights, key_position = torch.rand(B, H, T, S), torch.arange(S)

    def all_three(kind: torch.dtype) -> list[Tensor]:
        parts.to(kind)
        return [
            parts.rotate(query.to(kind), position),
            parts.bias(query.to(kind), position, key_position),
            parts.context(weights.to(kind), position, key_position),
        ]

    exact = all_three(torch.float64)
    own = [True, parts.needs_inner_product and parts.biases, parts.adds_context]  # else whatever torch's default is
    for found, expected, cast in zip(all_three(dtype), exact, own, strict=True):
        assert found.dtype == dtype or not cast
        assert (found - expected).abs().max() <= tolerance * expected.abs().max()
