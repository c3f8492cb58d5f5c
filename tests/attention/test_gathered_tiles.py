"""Patterns whose tiles gather their keys: every fast way gives the numbers of all pairs, and reads only what it may."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest
import torch
from attention.test_sparse_ways import gradients
from configs import built, composed
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from seq2seq_attn.attention import attention as attention_module
from seq2seq_attn.attention import block as block_module
from seq2seq_attn.attention.backend import blocks as blocks_module
from seq2seq_attn.attention.backend import fused as fused_module
from seq2seq_attn.attention.backend import step as step_module
from seq2seq_attn.attention.backend.pattern_cache import PatternCache
from seq2seq_attn.attention.block import GatheredBlock
from seq2seq_attn.attention.pattern.bigbird import BigBirdPattern

pytestmark = pytest.mark.usefixtures("double")

B, N, WIDTH = 3, 83, 16
MASK = torch.arange(N) < torch.tensor([[83], [40], [1]])
PATTERNS = {
    "global_local": ["k=5", "num_global=3"],
    "bigbird": ["block_length=4", "num_random=2"],
    "dilated": ["segments=[[4,1],[16,4],[64,16]]"],
    "block_summary": ["block_length=6", "num_summary=2"],
}
SPARSE = {"sparse": ["k=5"]}  # whose windows are no slices either
patterns = pytest.mark.parametrize("pattern", list(PATTERNS))
both = pytest.mark.parametrize("causal", [False, True])
# Scores of contents and of positions, and normalizers that need a whole row; each pattern meets some of them.
OTHERS = [
    ["attention/score=additive", "attention/normalizer=entmax15"],
    ["attention/normalizer=sparsemax"],
    ["attention/score=synthesizer_random", "attention.score.max_length=97"],
    ["attention/score=uniform", "attention/normalizer=hard"],  # all are equal: the first position wins
]


def attending(pattern: str, *overrides: str, relative: Any = None) -> Any:
    """A layer that gathers tiles from the shortest sentence on."""
    chosen = [
        f"attention/pattern={pattern}",
        *(f"attention.pattern.{option}" for option in (PATTERNS | SPARSE)[pattern]),
    ]
    node = composed("attention=multihead", *chosen, "attention.num_heads=2", *overrides).attention
    layer = built(node)(layer=1, relative=relative, query_dim=WIDTH, key_dim=WIDTH, value_dim=WIDTH).eval()
    layer.pattern.fused_from = layer.pattern.blocks_from = 1
    return layer


def refuse_all_pairs(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> None:
        raise AssertionError("all pairs were scored")

    monkeypatch.setattr(attention_module, "BACKENDS", attention_module.BACKENDS[:-1])
    monkeypatch.setattr(fused_module, "pattern_bias", refuse)


def check_itself(layer: Any, causal: bool, mask: Tensor, monkeypatch: pytest.MonkeyPatch) -> None:
    x = torch.randn(B, N, WIDTH, requires_grad=True)
    expected = layer.attend_self(x, mask, causal=causal, need_weights=True).context
    refuse_all_pairs(monkeypatch)
    found = layer.attend_self(x, mask, causal=causal).context
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)
    upstream = torch.randn_like(found)
    inputs = [x, *(p for p in layer.parameters() if p.requires_grad)]
    for ours, theirs in zip(gradients(found, upstream, *inputs), gradients(expected, upstream, *inputs), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-10)


@both
@patterns
def test_the_fused_product_of_tiles_equals_all_pairs(
    pattern: str, causal: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    check_itself(attending(pattern), causal, MASK, monkeypatch)


@patterns
def test_a_mask_with_holes_goes_by_tiles(pattern: str, monkeypatch: pytest.MonkeyPatch) -> None:
    check_itself(attending(pattern), False, torch.rand(B, N) > 0.3, monkeypatch)


@pytest.mark.parametrize(
    ("pattern", "overrides", "causal"),
    [
        pytest.param(
            pattern,
            others,
            causal,
            id=f"{pattern} {' '.join(others)} {causal}",
            marks=[] if (i + k + causal) % 4 == 0 else pytest.mark.slow,
        )
        for i, pattern in enumerate(PATTERNS)
        for k, others in enumerate(OTHERS)
        for causal in (False, True)
    ],
)
def test_tiles_of_any_score_and_normalizer_equal_all_pairs(
    pattern: str, overrides: list[str], causal: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(blocks_module, "MAX_TILE_NUMBERS", 50 * B * WIDTH)
    check_itself(attending(pattern, *overrides), causal, MASK, monkeypatch)


@pytest.mark.parametrize("position", ["alibi", "relative", "rotary", "t5", "kerple", "fire"])
def test_tiles_under_a_relative_position_equal_all_pairs(position: str, monkeypatch: pytest.MonkeyPatch) -> None:
    relative = built(composed(f"position={position}").position)(dim=WIDTH).relative
    check_itself(attending("global_local", relative=relative), True, MASK, monkeypatch)


@pytest.mark.parametrize("overrides", [[], ["attention/score=additive"]], ids=["product", "blocks"])
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
def test_a_causal_step_reads_only_the_keys_it_may_see(pattern: str) -> None:
    layer, x = attending(pattern), torch.randn(B, N, WIDTH)
    expected = layer.attend_self(x, causal=True, need_weights=True).context
    memory, positions = layer.prepare(x), torch.arange(N)
    for t in (0, 7, 33, 82):
        allowed = layer.pattern.allowed(torch.tensor([[t]]), positions)[0, 0] & (positions <= t)
        read = type(memory)(memory.keys, memory.values.masked_fill(~allowed[:, None], torch.nan), None)
        found = layer(x[:, t : t + 1], read, start=t, causal=True).context
        torch.testing.assert_close(found, expected[:, t : t + 1], rtol=0, atol=1e-12)


@both
@patterns
def test_tiles_gather_a_small_part_of_the_keys_and_each_pair_once(pattern: str, causal: bool) -> None:
    n = 1024
    attention = attending(pattern).pattern
    group = attention.gathered_blocks(n, n, causal)
    counted = torch.zeros(n, n, dtype=torch.long)
    for block in group:
        assert isinstance(block, GatheredBlock)
        rows, keys = block.row_positions(torch.device("cpu")), block.key_positions(torch.device("cpu"))
        for row, key, pairs in zip(rows, keys, block.pairs, strict=True):
            counted[row] += torch.zeros(len(row), n, dtype=torch.long).index_add(1, key, pairs.long())
    positions = torch.arange(n)
    allowed = attention.allowed(positions[None], positions)[0]
    assert torch.equal(counted, (allowed.tril() if causal else allowed).long())
    gathered = sum(block.repeats * block.rows * block.keys for block in group)
    assert gathered < n * n * (0.45 if pattern == "block_summary" else 0.3)


@patterns
def test_a_short_sentence_goes_dense_and_a_long_one_by_tiles(pattern: str) -> None:
    chosen = composed("attention=multihead", f"attention/pattern={pattern}").attention
    found = built(chosen)(layer=0, query_dim=6, key_dim=6, value_dim=6).pattern
    assert 32 < found.blocks_from <= found.fused_from <= 1000


class Largest(TorchDispatchMode):
    """Record how many numbers the largest result of an operation of torch has, besides truth values."""

    numbers = 0

    def __torch_dispatch__(
        self, function: Any, types: Any, arguments: Sequence[Any] = (), options: Mapping[str, Any] | None = None
    ) -> Any:
        results = function(*arguments, **(options or {}))
        for x in tree_leaves(results):
            if isinstance(x, Tensor) and x.dtype != torch.bool:
                self.numbers = max(self.numbers, x.numel())
        return results


@both
@pytest.mark.parametrize("pattern", ["global_local", "bigbird", "dilated"])
def test_finding_the_tiles_of_a_long_sentence_takes_little_memory(
    pattern: str, causal: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(block_module, "CHUNK", 2**16)
    n = 2048
    attention = attending(pattern).pattern
    with Largest() as largest:
        blocks = attention.gathered_blocks(n, n, causal)
    listed = max(block.keys_of_tile.numel() for block in blocks)
    assert largest.numbers <= max(2**16, 2 * listed)


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The layers whose tiles are found, with nothing cached before."""
    found: list[int] = []
    gathered = BigBirdPattern.gathered_blocks

    def find(pattern: BigBirdPattern, target: int, source: int, causal: bool) -> Sequence[GatheredBlock]:
        found.append(pattern.layer)
        return gathered(pattern, target, source, causal)

    monkeypatch.setattr(BigBirdPattern, "gathered_blocks", find)
    monkeypatch.setattr(blocks_module, "CACHED_BLOCKS", PatternCache(lambda blocks: sum(b.num_bytes for b in blocks)))
    return found


@pytest.mark.parametrize("overrides", [[], ["attention/score=additive"]], ids=["product", "blocks"])
def test_tiles_are_found_once_for_each_length_and_layer(overrides: list[str], made: list[int]) -> None:
    layers, x = [attending("bigbird", *overrides) for _ in range(3)], torch.randn(B, N, WIDTH, requires_grad=True)
    layers[2].pattern.layer = 2  # which draws other blocks
    with torch.inference_mode():
        expected = [layer.attend_self(x).context for layer in layers]
    assert made == [1, 2]
    found = [layer.attend_self(x).context for layer in layers]
    torch.stack(found).sum().backward()  # with the tiles that were found in inference
    assert made == [1, 2]
    for one, other in zip(found, expected, strict=True):
        assert torch.equal(one, other)
    layers[0].attend_self(x[:, :71])
    layers[0].attend_self(x, causal=True)
    assert made == [1, 2, 1, 1]
    layers[2].backend = "dense"
    torch.testing.assert_close(layers[2].attend_self(x).context, found[2], rtol=0, atol=1e-12)


@pytest.mark.parametrize("pattern", [*PATTERNS, *SPARSE])
def test_the_window_of_a_step_is_made_once_for_all_layers_and_sentences(
    pattern: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(step_module, "CACHED_WINDOWS", PatternCache(lambda window: window.nbytes, most=256))
    layers, made = [attending(pattern) for _ in range(3)], []
    for layer in layers:
        window = layer.pattern.window

        def count(position: int, *others: Any, window: Any = window) -> Tensor:
            made.append(position)
            return window(position, *others)

        monkeypatch.setattr(layer.pattern, "window", count)
    for _ in range(2):
        past: list[Any] = [None] * len(layers)
        for _ in range(9):
            x = torch.randn(B, 1, WIDTH)
            for row, layer in enumerate(layers):
                past[row] = layer.attend_self(x, past=past[row], causal=True).memory
    assert made == list(range(9))
