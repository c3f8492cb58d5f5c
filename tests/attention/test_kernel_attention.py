"""KernelAttention: chunks, steps and stabilisers give the numbers of the definition; its sums do not grow."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from attention.layers import KERNELS
from configs import attention_factory, attention_of, model_of
from torch import Tensor

from seq2seq_attn.attention import build_attention, kernel_attention
from seq2seq_attn.attention.feature_map.performer import MAX_EXPONENT, orthogonal_directions
from seq2seq_attn.attention.state import AttentionMemory
from seq2seq_attn.errors import UserError
from seq2seq_attn.position.alibi import AlibiPosition
from seq2seq_attn.position.rotary import RotaryPosition

PRESETS = sorted(KERNELS)
B, N, D, HEADS = 2, 23, 12, 3
MASK = torch.arange(N) < torch.tensor([[N], [14]])
pytestmark = pytest.mark.usefixtures("double")


def layer(preset: str, *overrides: str, **options: Any) -> Any:
    sizes = {"query_dim": D, "key_dim": D, "value_dim": D}
    return attention_of(preset, f"attention.num_heads={HEADS}", *overrides, **sizes, **options).eval()


def same(found: Tensor, expected: Tensor, atol: float = 1e-12) -> None:
    torch.testing.assert_close(found, expected, rtol=0, atol=atol)


@pytest.mark.parametrize("chunk", [1, 4, 23])
@pytest.mark.parametrize("preset", PRESETS)
def test_chunks_equal_all_pairs_values_and_gradients(preset: str, chunk: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel_attention, "CHUNK", chunk)
    attention, x = layer(preset), torch.randn(B, N, D, requires_grad=True)
    upstream = torch.randn(B, N, D)
    for mask in (None, MASK):
        by_chunks = attention.attend_self(x, mask, causal=True).context
        dense = attention.attend_self(x, mask, causal=True, need_weights=True)
        same(by_chunks, dense.context)
        same(dense.weights.triu(1), torch.zeros_like(dense.weights))
        gradients = [
            torch.autograd.grad((context * upstream).sum(), [x, *attention.parameters()])
            for context in (by_chunks, dense.context)
        ]
        for ours, theirs in zip(*gradients, strict=True):
            same(ours, theirs, 1e-11)


@pytest.mark.parametrize("preset", PRESETS)
def test_a_step_carries_sums_of_one_size_and_steps_of_any_length_equal_the_whole(
    preset: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kernel_attention, "CHUNK", 2)
    attention, x = layer(preset), torch.randn(B, N, D)
    expected = attention.attend_self(x, causal=True).context
    memory, contexts, begin, sizes = None, [], 0, set()
    for length in (1, 1, 5, 1, 3, 1, 11):
        found = attention.attend_self(x[:, begin : begin + length], past=memory, causal=True)
        memory, begin = found.memory, begin + length
        contexts.append(found.context)
        sizes.add(memory.total.shape)
        assert (memory.keys.shape[2], memory.source) == (length, begin)
    same(torch.cat(contexts, 1), expected)
    assert len(sizes) == 1
    branched = memory.branch(torch.tensor([1, 1, 0]))
    assert (branched.keys.shape[2], branched.source) == (0, N)


@pytest.mark.parametrize("preset", PRESETS)
def test_hypotheses_of_one_position_see_the_keys_up_to_it(preset: str) -> None:
    attention, x, queries = layer(preset), torch.randn(B, N, D), torch.randn(3 * B, 1, D)
    memory = attention.prepare(x)
    for start in (0, 7, N - 1):
        shared = attention(queries, memory, start=start, causal=True).context
        own = attention(queries, memory.select(torch.arange(B).repeat_interleave(3)), start=start, causal=True)
        same(shared, own.context)
        same(shared, attention(queries, memory, start=start, causal=True, need_weights=True).context)


@pytest.mark.parametrize("preset", PRESETS)
def test_causal_queries_may_be_more_or_fewer_than_keys(preset: str) -> None:
    attention, x = layer(preset), torch.randn(B, N, D)
    for keys, start, rows in ((5, 0, 9), (5, 3, 4), (9, 2, 3), (9, 20, 2), (0, 0, 3)):
        memory, query = attention.prepare(x[:, :keys]), x[:, :rows]
        found = attention(query, memory, start=start, causal=True)
        dense = attention(query, memory, start=start, causal=True, need_weights=True)
        same(found.context, dense.context)


def test_there_are_no_weights_over_a_past_of_which_the_sum_is_left() -> None:
    attention, x = layer("linear"), torch.randn(B, 3, D)
    first = attention.attend_self(x, causal=True, need_weights=True)
    assert first.weights.shape == (B, HEADS, 3, 3)
    later = attention.attend_self(x, past=first.memory, causal=True, need_weights=True)
    assert later.weights is None
    same(later.context, attention.attend_self(x, past=first.memory, causal=True).context)
    with pytest.raises(UserError, match=r"position 1 may not see all of the 3 positions of which .* keeps the sum"):
        attention(x, later.memory, start=1, causal=True)


@pytest.mark.parametrize("preset", ["linear", "delta"])
def test_a_mask_for_each_query_is_refused_where_only_sums_are_kept(preset: str) -> None:
    attention, x = layer(preset), torch.randn(B, 3, D)
    of_queries = torch.ones(B, 3, 3, dtype=torch.bool)
    memory = attention.prepare(x, mask=of_queries)
    sentence = r"keeps a sum of the past, .* give a mask for the sentence, \(batch, source\)"
    for ask in (
        lambda: memory.branch(torch.tensor([0])),
        lambda: memory.append(attention.prepare(x)),
        lambda: attention.prepare(x).append(memory),
    ):
        with pytest.raises(UserError, match=sentence):
            ask()
    same(
        attention(x, attention.prepare(x, mask=MASK[:, None, :3])).context,  # one row for all queries
        attention(x, attention.prepare(x, mask=MASK[:, :3])).context,
    )
    assert attention.prepare(x, mask=MASK[:, None, :3]).branch(torch.tensor([0])).source == 3


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("preset", PRESETS)
def test_great_queries_and_keys_give_finite_contexts_and_gradients(preset: str, dtype: torch.dtype) -> None:
    attention = layer(preset).to(dtype)
    x = (torch.randn(B, N, D) * torch.logspace(-3, 3, N)[:, None]).to(dtype).requires_grad_()
    for causal in (False, True):
        found = attention.attend_self(x, MASK, causal=causal, need_weights=True)
        assert found.context.isfinite().all()
        if preset != "cosformer":  # of which a row may have no features
            sums = found.weights.float().sum(-1)
            torch.testing.assert_close(sums, torch.ones_like(sums), rtol=0, atol=2e-2)
        context = attention.attend_self(x, MASK, causal=causal).context
        (gradient,) = torch.autograd.grad(context.float().square().sum(), x)
        assert gradient.isfinite().all()


@pytest.mark.parametrize("preset", PRESETS)
def test_sums_are_float32_under_autocast(preset: str) -> None:
    attention, x = layer(preset).float(), torch.randn(B, 200, D, dtype=torch.float32)
    expected = attention.attend_self(x, causal=True).context
    with torch.autocast("cpu", torch.bfloat16):
        past = attention.attend_self(x[:, :150], causal=True)
        found = attention.attend_self(x[:, 150:], past=past.memory, causal=True)
    assert found.memory.before.dtype == found.memory.total.dtype == torch.float32
    context = torch.cat([past.context, found.context], 1).float()
    assert ((context - expected).abs().max() / expected.abs().max()) < 5e-2


def test_linear_features_of_very_negative_numbers_do_not_vanish_in_float32() -> None:
    x = torch.tensor([[[[-30.0, 0.0, 2.0]]]], dtype=torch.float32)
    found = layer("linear").feature_map.key_features(x, torch.arange(1))[0, 0, 0]
    torch.testing.assert_close(found, torch.tensor([-30.0, 0.0, 1.0986123], dtype=torch.float32).exp())


def test_features_of_a_performer_are_a_draw_of_seed_layer_and_redraw() -> None:
    def directions(*overrides: str, layer: int = 0) -> Tensor:
        torch.manual_seed(len(overrides))  # which changes nothing
        factory = attention_factory("performer", *(f"attention.feature_map.{override}" for override in overrides))
        return factory(layer=layer, query_dim=64, key_dim=3, value_dim=3).state_dict()["feature_map.directions"]

    first = directions()
    assert first.shape == (266, 64)  # 64 ln 64
    assert torch.equal(first, directions("seed=0", "redraw=0"))
    draws = [first, directions(layer=1), directions("seed=1"), directions("redraw=1"), directions("seed=1", layer=1)]
    assert len({draw.sum().item() for draw in draws}) == len(draws)
    block = torch.nn.functional.normalize(first[:64], dim=1)
    same(block @ block.T, torch.eye(64))
    assert first.norm(dim=1).mean() == pytest.approx(64**0.5, rel=0.02)
    assert directions("num_features=7").shape == (7, 64)


def test_the_features_of_a_performer_estimate_the_weights_of_scaled_dot_attention() -> None:
    performer = layer("performer", "attention.feature_map.num_features=20000")
    exact = layer("multihead")
    exact.score.project_query.weight, exact.score.project_key.weight = (
        performer.project_query.weight,
        performer.project_key.weight,
    )
    x = torch.randn(B, N, D) / 2
    found, expected = (a.attend_self(x, MASK, causal=True, need_weights=True).weights for a in (performer, exact))
    assert (found - expected).abs().max() < 0.03
    few = layer("performer").attend_self(x, MASK, causal=True, need_weights=True).weights
    assert (few - expected).abs().max() > 0.03


@pytest.mark.slow
def test_directions_prefer_none() -> None:
    mean = torch.stack([orthogonal_directions(4, 4, (seed, 0, 0)) for seed in range(2000)]).mean(0)
    assert mean.abs().max() < 5 / 2000**0.5


def test_directions_do_not_depend_on_the_default_dtype() -> None:
    seeds = (5, 1, 2)
    doubles = orthogonal_directions(9, 4, seeds)
    torch.set_default_dtype(torch.float32)
    assert torch.equal(orthogonal_directions(9, 4, seeds), doubles)
    assert doubles.dtype == torch.float64


def test_the_directions_of_an_outline_have_a_shape_alone() -> None:
    with torch.device("meta"):
        outline = orthogonal_directions(23, 7, (5, 1, 2))
    assert outline.is_meta
    assert outline.shape == (23, 7)


def test_sums_of_the_greatest_features_are_finite_in_float32() -> None:
    assert 2.0**20 * 2.0**10 * torch.tensor(MAX_EXPONENT, dtype=torch.float32).exp() < torch.finfo(torch.float32).max


def test_a_cosformer_refuses_a_position_beyond_its_length() -> None:
    attention, x = layer("cosformer", "attention.feature_map.max_length=5"), torch.randn(B, 6, D)
    sentence = "is defined for 5 positions, but a sentence has 6; set attention.feature_map.max_length=6 or more"
    memory = attention.prepare(x[:, :5])
    for ask in (
        lambda: attention.prepare(x),
        lambda: attention(x, memory),
        lambda: attention(x[:, :1], memory, start=5),
    ):
        with pytest.raises(UserError, match=sentence):
            ask()
    assert attention.attend_self(x[:, :5]).context.isfinite().all()
    model = model_of("model=transformer", "attention=cosformer", "attention.feature_map.max_length=5")
    assert model.max_length == 5


@pytest.mark.parametrize(
    ("preset", "position", "option"),
    [
        ("linear", RotaryPosition, "rotary"),
        ("cosformer", RotaryPosition, "rotary"),
        ("performer", AlibiPosition, "alibi"),
    ],
)
def test_a_position_encoding_of_scores_is_refused(preset: str, position: Any, option: str) -> None:
    options = {"base": 10000.0} if position is RotaryPosition else {}
    with pytest.raises(UserError, match=f"^position={option} changes scores, which .*FeatureMap does not have; use"):
        layer(preset, relative=position(dim=D, **options).relative)


def test_a_performer_takes_rotary_positions_step_by_step_as_all_at_once() -> None:
    attention, x = layer("performer", relative=RotaryPosition(dim=D, base=100.0).relative), torch.randn(B, N, D)
    expected = attention.attend_self(x, causal=True)
    assert (expected.context - layer("performer").attend_self(x, causal=True).context).abs().max() > 1e-3
    memory: AttentionMemory | None = None
    for t in range(N):
        found = attention.attend_self(x[:, t : t + 1], past=memory, causal=True)
        memory = found.memory
        same(found.context[:, 0], expected.context[:, t])


@pytest.mark.parametrize(
    ("override", "sentence"),
    [
        ("num_features=0", "attention.feature_map.num_features=0 must be at least 1; use null"),
        ("redraw=-1", "attention.feature_map.seed=0 and redraw=-1 must not be negative; use 0"),
    ],
)
def test_a_number_that_draws_nothing_is_refused(override: str, sentence: str) -> None:
    with pytest.raises(UserError, match=sentence):
        attention_of("performer", f"attention.feature_map.{override}", query_dim=8, key_dim=8, value_dim=8)


def test_a_feature_map_is_replaced_by_name() -> None:
    attention = build_attention("linear", "feature_map=cosformer", "feature_map.max_length=9", dim=8).attention
    assert attention.feature_map.max_length == 9
    with pytest.raises(UserError, match="max_length=0 must be at least 1; use 256"):
        attention_of("cosformer", "attention.feature_map.max_length=0", query_dim=8, key_dim=8, value_dim=8)


def test_what_is_drawn_on_the_cpu_is_moved_to_the_default_device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "get_default_device", lambda: torch.device("meta"))
    assert layer("performer").feature_map.directions.is_meta
    assert layer("lsh").pattern.rotations.is_meta
