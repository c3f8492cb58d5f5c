"""Every way that attention takes under a narrow pattern gives the dense numbers, and reads only what it may."""

from __future__ import annotations

import gc
import sys
import weakref
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
from configs import attention_of, built, composed
from torch import Tensor

from seq2seq_attn.attention import attention as attention_module
from seq2seq_attn.attention.backend import blocks as blocks_module
from seq2seq_attn.attention.backend import dense as dense_module
from seq2seq_attn.attention.backend import fused as fused_module
from seq2seq_attn.attention.backend import step as step_module
from seq2seq_attn.attention.backend.pattern_cache import PatternCache
from seq2seq_attn.attention.pattern.pattern import Pattern, aligned_position

pytestmark = pytest.mark.usefixtures("double")

B, N, WIDTH, K = 3, 83, 16, 5
LENGTHS = torch.tensor([83, 40, 1])
MASK = torch.arange(N) < LENGTHS[:, None]
PATTERNS = ["local", "atrous", "sparse"]
patterns = pytest.mark.parametrize("pattern", PATTERNS)
# What meets blocks: scores of contents and of positions, head by head, and normalizers that need a whole row.
OTHERS = [
    ["attention/score=additive"],
    ["attention/score=concat", "attention/normalizer=sparsemax"],
    ["attention/score=additive", "attention/normalizer=entmax15"],
    ["attention/score=synthesizer_dense", "attention.score.max_length=97"],
    ["attention/score=synthesizer_random", "attention.score.max_length=97"],
    ["attention/score=synthesizer_factorized_random", "attention.score.max_length=97"],
    ["attention/score=fixed", "attention.num_heads=8"],
    ["attention/score=uniform"],
    ["attention/score=uniform", "attention/normalizer=hard"],  # all are equal: the first position wins
    ["attention/normalizer=sparsemax"],
    ["attention/normalizer=adaptive_entmax"],
    ["attention/score=uniform", "attention/normalizer=top_k", "attention.normalizer.k=3"],  # the first positions
    ["attention/score=l2", "attention/normalizer=sigmoid"],
    ["attention/score=soft_cap", "attention.score.cap=0.5", "attention/normalizer=identity"],
    ["attention/score=cosine", "attention/normalizer=relu"],
    ["attention/score=dynamic_conv"],
    ["attention/score=lightweight_conv", "attention/normalizer=entmax15"],
    ["attention/score=qk_norm", "attention/normalizer=sparsemax"],
]


def attending(pattern: str, *overrides: str, relative: Any = None) -> Any:
    """A layer that takes its pattern's blocks from the shortest sentence on."""
    chosen = [f"attention/pattern={pattern}", f"attention.pattern.k={K}", "attention.num_heads=2", *overrides]
    node = composed("attention=multihead", *chosen).attention
    sizes = {"query_dim": WIDTH, "key_dim": WIDTH, "value_dim": WIDTH}
    layer = built(node)(layer=0, relative=relative, **sizes).eval()
    layer.pattern.fused_from = layer.pattern.blocks_from = 1
    return layer


def refuse_all_pairs(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise AssertionError("all pairs were scored")

    monkeypatch.setattr(attention_module, "BACKENDS", attention_module.BACKENDS[:-1])
    monkeypatch.setattr(dense_module, "attend", refuse)
    monkeypatch.setattr(fused_module, "masked_product", refuse)


def gradients(context: Tensor, upstream: Tensor, *of: Tensor) -> list[Tensor]:
    found = torch.autograd.grad((context * upstream).sum(), of, allow_unused=True)
    return [torch.zeros_like(x) if g is None else g for g, x in zip(found, of, strict=True)]


def check_itself(layer: Any, causal: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    x = torch.randn(B, N, WIDTH, requires_grad=True)
    expected = layer.attend_self(x, MASK, causal=causal, need_weights=True).context
    refuse_all_pairs(monkeypatch)
    found = layer.attend_self(x, MASK, causal=causal).context
    torch.testing.assert_close(found[MASK], expected[MASK], rtol=0, atol=1e-12)
    upstream = torch.randn_like(found) * MASK[..., None]
    inputs = [x, *(p for p in layer.parameters() if p.requires_grad)]
    for ours, theirs in zip(gradients(found, upstream, *inputs), gradients(expected, upstream, *inputs), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-10)


@pytest.mark.parametrize(
    ("pattern", "overrides"),
    [
        pytest.param(
            pattern, others, id=f"{pattern} {' '.join(others)}", marks=[] if i % 3 == k % 3 else pytest.mark.slow
        )
        for k, others in enumerate(OTHERS)
        for i, pattern in enumerate(PATTERNS)
    ],
)
def test_blocks_of_any_score_and_normalizer_equal_all_pairs(
    pattern: str, overrides: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    check_itself(attending(pattern, *overrides), causal=True, monkeypatch=monkeypatch)


@pytest.mark.parametrize("causal", [False, True])
@patterns
def test_additive_tile_by_tile_equals_all_pairs(pattern: str, causal: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocks_module, "MAX_TILE_NUMBERS", 7 * B * N * WIDTH)
    check_itself(attending(pattern, "attention/score=additive"), causal, monkeypatch)


@pytest.mark.parametrize("position", ["alibi", "relative", "rotary", "t5", "kerple", "fire"])
@patterns
def test_blocks_under_a_relative_position_equal_all_pairs(
    pattern: str, position: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    relative = built(composed(f"position={position}").position)(dim=WIDTH).relative
    check_itself(attending(pattern, relative=relative), causal=True, monkeypatch=monkeypatch)


@pytest.mark.parametrize("causal", [False, True])
@patterns
def test_the_kernel_equals_all_pairs(pattern: str, causal: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    check_itself(attending(pattern), causal, monkeypatch)


@pytest.mark.parametrize("overrides", [[], ["attention/score=additive"]], ids=["product", "parts"])
@pytest.mark.parametrize("source", [31, 200])
@patterns
def test_cross_attention_of_another_length_equals_all_pairs(
    pattern: str, source: int, overrides: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    layer = attending(pattern, *overrides)
    query, keys = torch.randn(B, N, WIDTH), torch.randn(B, source, WIDTH)
    memory = layer.prepare(keys, mask=torch.arange(source) < torch.tensor([[source], [source - 7], [0]]))
    expected = layer(query, memory, need_weights=True).context
    refuse_all_pairs(monkeypatch)
    torch.testing.assert_close(layer(query, memory).context, expected, rtol=0, atol=1e-12)


@patterns
def test_a_mask_with_holes_goes_by_blocks(pattern: str, monkeypatch: pytest.MonkeyPatch) -> None:
    layer, x = attending(pattern), torch.randn(B, N, WIDTH)
    mask = torch.rand(B, N) > 0.3
    expected = layer.attend_self(x, mask, need_weights=True).context
    refuse_all_pairs(monkeypatch)
    torch.testing.assert_close(layer.attend_self(x, mask).context, expected, rtol=0, atol=1e-12)


@patterns
def test_dropout_of_the_weights_leaves_their_mean_and_goes_by_blocks(
    pattern: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    layer, x = attending(pattern, "attention.dropout=0.5"), torch.randn(1, N, WIDTH)
    expected = layer.attend_self(x).context
    refuse_all_pairs(monkeypatch)
    draws = layer.train().attend_self(x.expand(400, -1, -1)).context
    assert draws.std(0).mean() > 0.01
    assert (draws.mean(0) - expected[0]).abs().mean() < 2 * (draws.std(0) / 20).mean()  # of 400 draws


@pytest.mark.parametrize("overrides", [[], ["attention/score=additive"]], ids=["product", "dense"])
@pytest.mark.parametrize("ratio", [1.0, 1.5])
@patterns
def test_a_step_reads_only_the_keys_it_may_see_and_equals_all_at_once(
    pattern: str, ratio: float, overrides: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    layer = attending(pattern, f"attention.pattern.length_ratio={ratio}", *overrides)
    if ratio != 1:
        layer.pattern.fused_from = layer.pattern.blocks_from = 10**9
    query, keys = torch.randn(B, 60, WIDTH), torch.randn(B, N, WIDTH)
    memory = layer.prepare(keys, mask=MASK)
    expected = layer(query, memory, need_weights=True)
    for t in (0, 7, 33, 52):
        allowed = layer.pattern.allowed(aligned_position(torch.tensor([t]), ratio)[None], torch.arange(N))
        poisoned = memory.values.masked_fill(~allowed[0, 0][:, None], torch.nan)
        read = type(memory)(memory.keys, poisoned, memory.mask)
        found = layer(query[:, t : t + 1], read, start=t).context
        torch.testing.assert_close(found, expected.context[:, t : t + 1], rtol=0, atol=1e-12)


@pytest.mark.parametrize(("pattern", "keys"), [("local", 6), ("atrous", 14), ("sparse", 18)])
def test_a_causal_step_gives_the_product_as_many_keys_as_it_sees(
    pattern: str, keys: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At position 67, k = 5: 62..67; 2, 7, ..., 67; and of both, without 62 and 67 twice."""
    layer, x = attending(pattern), torch.randn(B, 68, WIDTH)
    expected = layer.attend_self(x, causal=True).context[:, 67:]
    counted = []
    product = step_module.masked_product

    def count(query: Tensor, k: Tensor, *others: Any) -> Tensor:
        counted.append(k.shape[2])
        return product(query, k, *others)

    monkeypatch.setattr(step_module, "masked_product", count)
    past = layer.attend_self(x[:, :67], causal=True).memory
    found = layer.attend_self(x[:, 67:], past=past, causal=True).context
    assert counted == [keys]
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)


@patterns
def test_queries_that_do_not_start_their_sentence_equal_those_of_the_whole(pattern: str) -> None:
    layer = attending(pattern)
    query, memory = torch.randn(B, N, WIDTH), layer.prepare(torch.randn(B, N, WIDTH))
    expected = layer(query, memory).context[:, 31:]
    torch.testing.assert_close(layer(query[:, 31:], memory, start=31).context, expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("source", [32, 700])
@patterns
def test_a_short_sentence_goes_dense_and_a_long_one_by_blocks(pattern: str, source: int) -> None:
    layer = attention_of("multihead", f"attention/pattern={pattern}", query_dim=6, key_dim=6, value_dim=6)
    assert (source >= layer.pattern.fused_from) == (source == 700)
    assert (source >= layer.pattern.blocks_from) == (source == 700)


@patterns
def test_a_product_too_short_for_its_kernel_goes_dense_where_other_scores_go_by_blocks(
    pattern: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    layer, x = attending(pattern), torch.randn(B, N, WIDTH)
    layer.pattern.fused_from = N + 1
    expected = layer.attend_self(x, MASK, need_weights=True).context
    monkeypatch.setattr(attention_module, "BACKENDS", (fused_module.attend,))
    torch.testing.assert_close(layer.attend_self(x, MASK).context[MASK], expected[MASK], rtol=0, atol=1e-12)


def dense(pattern: str) -> Any:
    """A layer that goes dense at any length."""
    layer = attending(pattern)
    layer.pattern.fused_from = layer.pattern.blocks_from = sys.maxsize
    return layer


def dense_and_counted(pattern: str, monkeypatch: pytest.MonkeyPatch) -> tuple[Any, list[int]]:
    """A layer that goes dense at any length, and the lengths of which it has made a mask."""
    monkeypatch.setattr(fused_module, "CACHED_MASKS", PatternCache(lambda mask: mask.nbytes))
    layer, made = dense(pattern), []
    allowed = layer.pattern.allowed

    def count(centre: Tensor, positions: Tensor) -> Tensor:
        made.append(len(positions))
        return allowed(centre, positions)

    monkeypatch.setattr(layer.pattern, "allowed", count)
    return layer, made


@patterns
def test_the_mask_of_a_short_sentence_is_made_once(pattern: str, monkeypatch: pytest.MonkeyPatch) -> None:
    layer, made = dense_and_counted(pattern, monkeypatch)
    for length in (N, 31, N, 31):
        layer.attend_self(torch.randn(B, length, WIDTH), MASK[:, :length])
        layer.attend_self(torch.randn(B, length, WIDTH))
    assert made == [N, 31]
    layer.attend_self(torch.randn(B, N, WIDTH), causal=True)
    assert made == [N, 31, N]


def test_threads_may_share_a_cache() -> None:
    pattern, cache = attending("local").pattern, PatternCache(lambda value: value)

    def use(_: int) -> list[int]:
        return [cache.make_once(lambda pattern, number: number + 1, pattern, row % 50) for row in range(1000)]

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(use, range(4))) == [[row % 50 + 1 for row in range(1000)]] * 4
    assert len(cache) == cache.most


def test_the_mask_of_a_long_sentence_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fused_module, "MAX_CACHED_PAIRS", N * N - 1)
    layer, made = dense_and_counted("local", monkeypatch)
    for _ in range(2):
        layer.attend_self(torch.randn(B, N, WIDTH))
    assert made == [N, N]


def test_a_mask_made_in_inference_serves_training(monkeypatch: pytest.MonkeyPatch) -> None:
    layer, made = dense_and_counted("sparse", monkeypatch)
    x = torch.randn(B, N, WIDTH, requires_grad=True)
    with torch.inference_mode():
        expected = layer.attend_self(x).context
    found = layer.attend_self(x).context
    found.sum().backward()
    assert made == [N]
    assert torch.equal(found, expected)


@patterns
def test_a_pattern_whose_options_change_gets_another_mask(pattern: str) -> None:
    layer, x = dense(pattern), torch.randn(B, N, WIDTH)
    before = layer.attend_self(x).context
    layer.pattern.k = 3
    found = layer.attend_self(x).context
    torch.testing.assert_close(found, layer.attend_self(x, need_weights=True).context, rtol=0, atol=1e-12)
    assert not torch.allclose(found, before)


def test_equal_layers_share_a_mask_that_keeps_none_of_them_alive(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fused_module, "CACHED_MASKS", PatternCache(lambda mask: mask.nbytes))
    layers = [dense("local") for _ in range(6)]
    for layer in layers:
        layer.attend_self(torch.randn(B, N, WIDTH))
    assert len(fused_module.CACHED_MASKS) == 1
    dead = weakref.ref(layer.pattern)
    del layer, layers
    gc.collect()
    assert dead() is None


def test_the_masks_kept_are_few_and_the_last_used(monkeypatch: pytest.MonkeyPatch) -> None:
    layer, made = dense_and_counted("local", monkeypatch)
    monkeypatch.setattr(fused_module.CACHED_MASKS, "most", 2)
    for length in (5, 7, 5, 11, 5, 7):
        layer.attend_self(torch.randn(B, length, WIDTH))
    assert made == [5, 7, 11, 7]
    assert len(fused_module.CACHED_MASKS) == 2


@patterns
def test_the_kernel_refuses_a_second_derivative(pattern: str) -> None:
    layer, x = attending(pattern), torch.randn(B, N, WIDTH, requires_grad=True)
    output = layer.attend_self(x).context
    for loss in (output.square().sum(), output.sum()):  # whose gradient by the output is a constant
        with pytest.raises(RuntimeError, match="differentiate twice"):
            torch.autograd.grad(loss, x, create_graph=True)


class BackwardsPattern(Pattern):
    """A window around the position as far from the end as the query is from the start."""

    def centre(self, query: Tensor, aligned: Tensor, end: Tensor) -> Tensor:
        return end - 1 - aligned

    def allowed(self, centre: Tensor, key_position: Tensor) -> Tensor:
        return (key_position - centre[..., None]).abs() <= 2


@pytest.mark.parametrize("causal", [False, True])
def test_a_centre_that_a_pattern_defines_is_that_of_every_backend(causal: bool) -> None:
    sizes = {"query_dim": WIDTH, "key_dim": WIDTH, "value_dim": WIDTH}
    layer = attention_of("multihead", "attention.num_heads=2", **sizes).eval()
    layer.pattern = BackwardsPattern()
    query, memory = torch.randn(B, 7, WIDTH), layer.prepare(torch.randn(B, N, WIDTH), mask=MASK)
    expected = layer(query, memory, causal=causal, need_weights=True).context
    torch.testing.assert_close(layer(query, memory, causal=causal).context, expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    ("overrides", "calls"),
    [
        (["attention/score=dynamic_conv"], "blocks"),
        (["attention/score=lightweight_conv"], "blocks"),
        (["attention/score=uniform"], "blocks"),
        (["attention/score=fixed", "attention.num_heads=8"], "blocks"),
        (["attention/score=soft_cap"], "blocks"),
        (["attention/score=soft_cap", "attention/score@attention.score.score=additive"], "tiles"),
        (["attention/score=additive"], "tiles"),
    ],
    ids=str,
)
def test_only_a_score_with_a_hidden_layer_for_pairs_is_cut_into_tiles(
    overrides: list[str], calls: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(blocks_module, "MAX_TILE_NUMBERS", 2**10)
    layer, scored = attending("local", *overrides), []
    forward = layer.score.forward

    def count(*arguments: Any) -> Tensor:
        scored.append(arguments)
        return forward(*arguments)

    monkeypatch.setattr(layer.score, "forward", count)
    layer.attend_self(torch.randn(B, N, WIDTH, requires_grad=True), MASK).context.sum().backward()
    blocks = sum(len(group) for group in layer.pattern.block_groups(N, N, False))
    assert len(scored) == blocks if calls == "blocks" else len(scored) > 4 * blocks
