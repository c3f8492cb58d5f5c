"""Patterns narrower than the sentence: rows by hand, laws between them, and the same numbers however they are asked."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import pytest
import torch
from attention.formulas import attend
from configs import attention_of, built, composed
from torch import Tensor

from seq2seq_attn.attention.pattern.alternating import AlternatingPattern
from seq2seq_attn.attention.pattern.atrous import AtrousPattern
from seq2seq_attn.attention.pattern.full import FullPattern
from seq2seq_attn.attention.pattern.local import LocalPattern
from seq2seq_attn.attention.pattern.local_p import LocalPPattern
from seq2seq_attn.attention.pattern.pattern import Pattern, aligned_position
from seq2seq_attn.attention.pattern.sparse import SparsePattern
from seq2seq_attn.errors import UserError

pytestmark = pytest.mark.usefixtures("double")

HEADS, B, T, S = 2, 3, 5, 11
MASK = torch.arange(S) < torch.tensor([[11], [7], [2]])
TURNS = ["attention.pattern.patterns.local.k=2", "attention.pattern.patterns.atrous.k=3"]
# Preset, layer and overrides: windows that leave out keys of 11.
NARROW = [
    ("local", 0, ["attention.pattern.k=2"]),
    ("atrous", 0, ["attention.pattern.k=3"]),
    ("sparse", 0, ["attention.pattern.k=3"]),
    ("local_m", 0, ["attention.pattern.k=2"]),
    ("local_p", 0, ["attention.pattern.k=3"]),
    ("alternating", 0, TURNS),
    ("alternating", 1, TURNS),
    ("global_local", 0, ["attention.pattern.k=1"]),
    ("bigbird", 3, ["attention.pattern.block_length=1", "attention.pattern.k=0"]),
    ("dilated", 0, ["attention.pattern.segments=[[2,1],[6,3]]"]),
    ("block_summary", 0, ["attention.pattern.block_length=3"]),
    ("wait_k", 0, ["attention.pattern.k=2"]),
]
GATHERED = ("global_local", "bigbird", "dilated", "block_summary")
# The same around positions that are not the query's own.
STRETCHED = [
    (preset, layer, [*overrides, "attention.pattern.length_ratio=1.5"])
    for preset, layer, overrides in NARROW
    if preset in ("local", "atrous", "sparse", "wait_k", *GATHERED)
]
narrow = pytest.mark.parametrize(("preset", "layer", "overrides"), NARROW)
narrow_or_stretched = pytest.mark.parametrize(("preset", "layer", "overrides"), NARROW + STRETCHED)


def layer_of(preset: str, layer: int, overrides: list[str], **sizes: int) -> Any:
    node = composed(f"attention={preset}", f"attention.num_heads={HEADS}", *overrides).attention
    attention = built(node)(layer=layer, **sizes).eval()
    if isinstance(attention.pattern, LocalPPattern):
        attention.pattern.vector.data *= 9  # predictions from end to end, not about the middle
    return attention


def cross(preset: str, layer: int, overrides: list[str]) -> tuple[Any, Tensor, Tensor, Tensor]:
    attention = layer_of(preset, layer, overrides, query_dim=6, key_dim=7, value_dim=10)
    return attention, torch.randn(B, T, 6), torch.randn(B, S, 7), torch.randn(B, S, 10)


def rows_match_keys(preset: str, layer: int, overrides: list[str]) -> tuple[Any, Tensor]:
    attention = layer_of(preset, layer, overrides, query_dim=6, key_dim=6, value_dim=6)
    return attention, torch.randn(B, S, 6)


def seen(pattern: Pattern, row: int, length: int) -> list[int]:
    positions = torch.arange(length)
    query, end = torch.zeros(1, length, 1), torch.full((1, length), length)
    return pattern.allowed(pattern.centre(query, positions, end), positions)[0, row].nonzero().flatten().tolist()


@pytest.mark.parametrize(
    ("kind", "row", "keys"),
    [
        (LocalPattern, 1, [0, 1, 2, 3, 4]),
        (LocalPattern, 5, [2, 3, 4, 5, 6, 7, 8]),
        (AtrousPattern, 1, [1, 4, 7]),
        (AtrousPattern, 9, [0, 3, 6, 9]),
        (SparsePattern, 1, [0, 1, 2, 3, 4, 7]),
        (SparsePattern, 9, [0, 3, 6, 7, 8, 9]),
    ],
)
def test_rows_of_ten_positions_by_hand(kind: Any, row: int, keys: list[int]) -> None:
    assert seen(kind(k=3, length_ratio=1.0), row, length=10) == keys


@pytest.mark.parametrize(
    ("preset", "overrides", "row", "keys"),
    [
        ("global_local", ["k=1", "num_global=2"], 7, [0, 1, 6, 7, 8]),
        ("global_local", ["k=1", "num_global=2"], 1, list(range(10))),
        ("dilated", ["segments=[[2,1],[8,4]]"], 5, [0, 4, 5]),
        ("dilated", ["segments=[[2,1],[8,4]]"], 9, [8, 9]),
        ("block_summary", ["block_length=4", "num_summary=1"], 5, [3, 4, 5, 6, 7]),
        ("block_summary", ["block_length=4", "num_summary=2"], 9, [2, 3, 6, 7, 8, 9]),
        ("bigbird", ["block_length=2", "k=1", "num_random=0"], 6, [0, 1, 4, 5, 6, 7, 8, 9]),
        (
            "bigbird",
            ["block_length=2", "k=0", "num_global=0", "num_random=9"],
            2,
            list(range(10)),
        ),  # 1 drew 0, all drew 1
    ],
)
def test_rows_of_ten_positions_of_further_patterns_by_hand(
    preset: str, overrides: list[str], row: int, keys: list[int]
) -> None:
    overrides = [f"attention.pattern.{option}" for option in overrides]
    pattern = layer_of(preset, 0, overrides, query_dim=6, key_dim=6, value_dim=6).pattern
    assert seen(pattern, row, length=10) == keys


def test_a_random_block_depends_on_seed_layer_and_block_and_not_on_the_length() -> None:
    def drawn(layer: int, seed: int, length: int) -> Tensor:
        overrides = [f"attention.pattern.{option}" for option in ("block_length=1", "k=0", f"seed={seed}")]
        pattern = layer_of("bigbird", layer, overrides, query_dim=6, key_dim=6, value_dim=6).pattern
        positions = torch.arange(length)
        return pattern.allowed(positions[None], positions)[0]

    whole = drawn(layer=0, seed=0, length=200)
    assert torch.equal(drawn(0, 0, 90), whole[:90, :90])
    for layer, seed in ((1, 0), (0, 1)):
        assert not torch.equal(drawn(layer, seed, 200), whole)
    assert torch.equal(whole, whole.T)
    past = whole.tril(-1)[2:, 1:]  # without the global block
    assert (past.sum(-1) == 1).all()
    columns = past.nonzero()[:, 1] / torch.arange(2, 200).clamp(min=2)
    assert 0.3 < columns.mean() < 0.7  # about uniform over what is before
    options = [f"attention.pattern.{option}" for option in ("block_length=1", "k=3", "num_global=2", "num_random=2")]
    pattern = layer_of("bigbird", 0, options, query_dim=6, key_dim=6, value_dim=6).pattern
    blocks = torch.arange(200)
    for draw in (0, 1):
        chosen = pattern.drawn(blocks, draw)
        assert ((chosen == -1) | (chosen >= 2) & (chosen < blocks - 3)).all()  # neither global nor of the window
        assert (chosen[10:] >= 0).all()


@pytest.mark.parametrize(
    ("preset", "override", "sentence"),
    [
        ("global_local", "k=0", "a pattern needs k >= 1, got 0; set attention.pattern.k=1 or more"),
        ("global_local", "num_global=-1", "attention.pattern.num_global=-1 is too small; set it to 0 or more"),
        ("bigbird", "block_length=0", "attention.pattern.block_length=0 is too small; set it to 1 or more"),
        ("bigbird", "num_random=-1", "attention.pattern.num_random=-1 is too small; set it to 0 or more"),
        ("dilated", "segments=[[4,1],[6,2]]", r"the dilated pattern got segments=\[\[4, 1\], \[6, 2\]\]; give pairs"),
        ("dilated", "segments=[[4,3]]", r"segments=\[\[4, 3\]\]; .* as attention.pattern.segments=\[\[4,1\],"),
        ("dilated", "segments=[]", r"the dilated pattern got segments=\[\]; give pairs"),
        ("block_summary", "num_summary=5", "a block of 4 positions has no 5 last ones; set attention.pattern.num_su"),
        ("block_summary", "num_summary=0", "attention.pattern.num_summary=0 is too small; set it to 1 or more"),
        ("top_blocks", "num_blocks=0", "attention.pattern.num_blocks=0 is too small; set it to 1 or more"),
        ("lsh", "num_rounds=0", "attention.pattern.num_rounds=0 is too small; set it to 1 or more"),
        ("lsh", "num_buckets=5", "attention.pattern.num_buckets=5 is odd, but .*; set it to 6"),
        *((preset, "length_ratio=0.0", "a pattern needs a length_ratio above 0, got 0.0") for preset in GATHERED),
    ],
)
def test_an_option_that_makes_no_sense_is_refused(preset: str, override: str, sentence: str) -> None:
    with pytest.raises(UserError, match=f"^{sentence}" if ".*" not in sentence else sentence):
        layer_of(preset, 0, [f"attention.pattern.{override}"], query_dim=6, key_dim=6, value_dim=6)


@pytest.mark.parametrize(
    ("ratio", "positions", "expected"),
    [
        (1.0, [0, 1, 2, 3], [0, 1, 2, 3]),
        (0.5, [0, 1, 2, 3, 4, 5], [0, 1, 1, 2, 2, 3]),
        (1.5, [0, 1, 2, 3, 4, 5], [0, 2, 3, 5, 6, 8]),
        (0.7, [45, 85], [32, 60]),  # 31.5 and 59.5, below which a product of floats ends
    ],
)
def test_the_aligned_position_rounds_halves_up(ratio: float, positions: list[int], expected: list[int]) -> None:
    assert aligned_position(torch.tensor(positions), ratio).tolist() == expected


@pytest.mark.parametrize(
    ("kind", "keys"), [(LocalPattern, [5, 6, 7, 8, 9]), (AtrousPattern, [2, 5, 8]), (SparsePattern, [2, 5, 6, 7, 8, 9])]
)
def test_rows_around_an_aligned_position_by_hand(kind: Any, keys: list[int]) -> None:
    assert seen(kind(k=3, length_ratio=2.0), row=4, length=10) == keys


@narrow_or_stretched
def test_cross_attention_equals_its_formula(preset: str, layer: int, overrides: list[str]) -> None:
    attention, *inputs = cross(preset, layer, overrides)
    query, keys, values = (x.requires_grad_() for x in inputs)
    expected, weights = attend(attention, query, keys, values, MASK, causal=False)
    found = attention(query, attention.prepare(keys, values, MASK), need_weights=True)
    assert (weights[0] == 0).any(), "the pattern leaves nothing out"
    torch.testing.assert_close(found.weights, weights, rtol=0, atol=1e-12)
    parameters = [query, keys, values, *attention.parameters()]
    upstream = torch.randn_like(expected)
    for ours, theirs in zip(
        torch.autograd.grad((found.context * upstream).sum(), parameters),
        torch.autograd.grad((expected * upstream).sum(), parameters),
        strict=True,
    ):
        torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-11)


@narrow
def test_causal_self_attention_equals_its_formula(preset: str, layer: int, overrides: list[str]) -> None:
    attention, x = rows_match_keys(preset, layer, overrides)
    expected, _ = attend(attention, x, x, x, MASK, causal=True)
    found = attention.attend_self(x, MASK, causal=True).context
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)


@narrow
def test_a_causal_step_or_chunk_behind_a_cache_equals_the_whole_pass(
    preset: str, layer: int, overrides: list[str]
) -> None:
    attention, x = rows_match_keys(preset, layer, overrides)
    expected = attention.attend_self(x, causal=True).context
    for cuts in ([1] * S, [4, 1, 6]):
        past, parts = None, []
        for token in x.split(cuts, 1):
            attended = attention.attend_self(token, past=past, causal=True)
            past = attended.memory
            parts.append(attended.context)
        torch.testing.assert_close(torch.cat(parts, 1), expected, rtol=0, atol=1e-12)


@narrow_or_stretched
def test_a_step_of_cross_attention_equals_the_whole_pass(preset: str, layer: int, overrides: list[str]) -> None:
    attention, query, keys, values = cross(preset, layer, overrides)
    memory = attention.prepare(keys, values, MASK)
    expected = attention(query, memory).context
    steps = [attention(query[:, t : t + 1], memory, start=t).context for t in range(T)]
    torch.testing.assert_close(torch.cat(steps, 1), expected, rtol=0, atol=1e-12)


@narrow_or_stretched
def test_padding_and_neighbours_change_nothing(preset: str, layer: int, overrides: list[str]) -> None:
    attention, query, keys, values = cross(preset, layer, overrides)
    together = attention(query, attention.prepare(keys, values, MASK)).context
    alone = attention(query[1:], attention.prepare(keys[1:, :7], values[1:, :7], MASK[1:, :7])).context
    torch.testing.assert_close(together[1:], alone, rtol=0, atol=1e-12)


@narrow_or_stretched
def test_a_block_of_rows_and_columns_equals_those_of_the_whole(preset: str, layer: int, overrides: list[str]) -> None:
    attention, query, *_ = cross(preset, layer, overrides)
    pattern = attention.pattern
    end, positions, keys = torch.tensor([[S], [7], [2]]).expand(-1, T), torch.arange(T), torch.arange(S)
    whole = pattern.centre(query, positions, end)
    rows, columns = torch.tensor([4, 1, 3]), torch.tensor([2, 10, 5, 7, 0])
    centre = pattern.centre(query[:, rows], rows, end[:, rows])
    allowed = pattern.allowed(whole, keys)
    assert torch.equal(pattern.allowed(centre, columns), allowed[:, rows][..., columns])
    weights = torch.rand(B, HEADS, T, S)
    block = pattern.reweigh(weights[:, :, rows][..., columns], centre, columns)
    torch.testing.assert_close(block, pattern.reweigh(weights, whole, keys)[:, :, rows][..., columns])


@pytest.mark.parametrize(
    "choice",
    [
        ["attention/pattern=local", "attention.pattern.k=10"],
        ["attention/pattern=sparse", "attention.pattern.k=10"],
        ["attention/pattern=atrous", "attention.pattern.k=1"],
        ["attention/pattern=sparse", "attention.pattern.k=1"],
    ],
)
def test_window_as_wide_as_the_sentence_or_stride_of_one_equals_full_attention(choice: list[str]) -> None:
    full, patterned = (attention_of("multihead", *c, query_dim=6, key_dim=6, value_dim=6) for c in ([], choice))
    patterned.load_state_dict(full.state_dict())
    x = torch.randn(B, S, 6)
    for causal in (False, True):
        ours, theirs = (a.attend_self(x, MASK, causal=causal).context for a in (patterned, full))
        torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-12)


@pytest.mark.parametrize("k", [1, 2, 3, 5, 12])
def test_sparse_is_local_and_atrous_together(k: int) -> None:
    centre, key = torch.arange(T)[None], torch.arange(S)
    local, atrous, sparse = (
        kind(k=k, length_ratio=1.5).allowed(centre, key) for kind in (LocalPattern, AtrousPattern, SparsePattern)
    )
    assert torch.equal(sparse, local | atrous)


def test_a_query_far_past_the_last_key_sees_nothing_and_gets_zeros() -> None:
    attention, *_ = cross("local_m", 0, ["attention.pattern.k=2"])
    query, keys, values = torch.randn(1, 7, 6), torch.randn(1, 3, 7), torch.randn(1, 3, 10)
    context = attention(query, attention.prepare(keys, values)).context
    assert (context[0, 5:] == 0).all()
    assert (context[0, :5] != 0).all()


def test_alternating_takes_its_patterns_in_turn_and_from_the_start_again() -> None:
    node = composed("attention=alternating", "attention/pattern@attention.pattern.patterns.third=full").attention
    sizes = {"query_dim": 6, "key_dim": 6, "value_dim": 6}
    kinds = [type(built(node)(layer=layer, **sizes).pattern) for layer in range(5)]
    assert kinds == [LocalPattern, AtrousPattern, FullPattern, LocalPattern, AtrousPattern]


def test_a_list_in_a_list_takes_its_own_turns() -> None:
    local, atrous = (partial(kind, k=2, length_ratio=1.0) for kind in (LocalPattern, AtrousPattern))
    inner = partial(AlternatingPattern, patterns={"local": local, "atrous": atrous})
    outer = AlternatingPattern(
        query_dim=6, key_dim=6, num_heads=1, head_dim=6, patterns={"inner": inner, "full": partial(FullPattern)}
    )
    kinds = [type(outer.for_layer(layer)) for layer in range(6)]
    assert kinds == [LocalPattern, FullPattern, AtrousPattern, FullPattern, LocalPattern, FullPattern]


def test_a_layer_owns_the_parameters_of_its_own_pattern_only() -> None:
    overrides = ["attention/pattern@attention.pattern.patterns.atrous=local_p"]
    owned = []
    for layer in (0, 1):
        attention = layer_of("alternating", layer, overrides, query_dim=6, key_dim=6, value_dim=6)
        owned.append([name for name, _ in attention.named_parameters() if name.startswith("pattern.")])
    assert owned == [[], ["pattern.vector", "pattern.project_query.weight"]]


@pytest.mark.parametrize("preset", ["local_m", "local_p"])
def test_luongs_local_attention_is_general_within_ten(preset: str) -> None:
    attention = attention_of(preset, query_dim=6, key_dim=7, value_dim=5)
    assert type(attention.score).__name__ == "GeneralScore"
    assert attention.pattern.k == 10


@pytest.mark.parametrize(
    "pattern",
    [
        partial(LocalPattern, length_ratio=1.0),
        partial(AtrousPattern, length_ratio=1.0),
        partial(SparsePattern, length_ratio=1.0),
        partial(LocalPPattern, query_dim=3),
    ],
)
@pytest.mark.parametrize("k", [0, -3])
def test_a_window_of_nothing_is_refused(pattern: partial[Any], k: int) -> None:
    sentence = rf"^a pattern needs k >= 1, got {k}; set attention.pattern.k=1 or more$"
    with pytest.raises(UserError, match=sentence):
        pattern(k=k)


@pytest.mark.parametrize("kind", [LocalPattern, AtrousPattern, SparsePattern])
@pytest.mark.parametrize("ratio", [0.0, -1.5, math.inf, math.nan])
def test_a_ratio_that_no_lengths_have_is_refused(kind: Any, ratio: float) -> None:
    sentence = (
        rf"^a pattern needs a length_ratio above 0, got {ratio}; set attention.pattern.length_ratio to source "
        r"tokens per target token, or leave it at 1.0$"
    )
    with pytest.raises(UserError, match=sentence):
        kind(k=3, length_ratio=ratio)


def test_an_empty_list_of_patterns_is_refused() -> None:
    sentence = (
        r"^attention.pattern.patterns is empty, so there is none for a layer; name one, as "
        r"attention/pattern@attention.pattern.patterns.local=local$"
    )
    empty = ["~attention.pattern.patterns.local", "~attention.pattern.patterns.atrous"]
    with pytest.raises(UserError, match=sentence):
        attention_of("alternating", *empty, query_dim=6, key_dim=6, value_dim=6)
