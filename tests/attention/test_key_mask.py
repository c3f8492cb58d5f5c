"""Lengths instead of a mask, which every attention takes, and the masks that it refuses."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import jaxtyping
import pytest
import torch
from attention.layers import WIDTH, cross_layer, self_layer
from configs import options
from torch import Tensor

from seq2seq_attn.attention import build_attention
from seq2seq_attn.attention.build import option_reads_history
from seq2seq_attn.attention.key_mask import INTEGERS
from seq2seq_attn.errors import UserError

PRESETS = options("attention")
B, T, S = 3, 5, 7
LENGTHS = torch.tensor([7, 0, 4])
LENGTHS_OF_QUERIES = torch.tensor([[1, 2, 3, 4, 5], [0, 0, 0, 0, 0], [7, 0, 3, 9, -2]])
SMALL = torch.randn(B, S, 6)


def as_mask(lengths: Tensor) -> Tensor:
    return torch.tensor([[key < n for key in range(S)] for n in lengths.flatten()]).unflatten(0, lengths.shape)


def same(left: Any, right: Any) -> None:
    assert torch.equal(left.context, right.context)
    assert (left.weights is None) == (right.weights is None)
    assert left.weights is None or torch.equal(left.weights, right.weights)


@pytest.mark.parametrize(
    ("preset", "lengths"),  # half of the presets with each; the other half is slow
    [
        pytest.param(preset, lengths, id=f"{preset}-{of}", marks=[] if (i + j) % 2 else pytest.mark.slow)
        for i, preset in enumerate(PRESETS)
        for j, (of, lengths) in enumerate({"sentences": LENGTHS, "queries": LENGTHS_OF_QUERIES}.items())
    ],
)
def test_lengths_are_the_mask_of_the_first_keys(preset: str, lengths: Tensor) -> None:
    layer, mask = cross_layer(preset), as_mask(lengths)
    query, keys = torch.randn(B, T, WIDTH), torch.randn(B, S, WIDTH)
    for need_weights in (False, True):
        found = layer(query, keys, valid_length=lengths, need_weights=need_weights)
        same(found, layer(query, keys, mask=mask, need_weights=need_weights))
        assert (found.context[1] == layer(query, keys, mask=torch.zeros_like(mask)).context[1]).all()
    memory = layer.attention.prepare(keys, valid_length=lengths)
    same(layer.attention(query, memory), layer(query, keys, mask=mask))
    if option_reads_history(preset):
        return

    rows_match_keys, x = self_layer(preset), keys[:, :T]
    for causal in (False, True):
        found = rows_match_keys(x, valid_length=lengths, causal=causal, need_weights=True)
        same(found, rows_match_keys(x, mask[..., :T], causal=causal, need_weights=True))
        same(rows_match_keys(x, valid_length=lengths, causal=causal), rows_match_keys(x, mask[..., :T], causal=causal))


@pytest.mark.parametrize("dtype", INTEGERS)
def test_every_integer_is_a_length(dtype: torch.dtype) -> None:
    layer, lengths = build_attention("sparse", dim=6, num_heads=3), torch.tensor([7, 0, 4])
    same(layer(SMALL, valid_length=lengths.to(dtype)), layer(SMALL, as_mask(lengths)))


@pytest.fixture
def unchecked() -> Iterator[None]:
    """Signatures are not checked, as outside of the tests."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)


def ways() -> list[tuple[str, Callable[..., Any]]]:
    rows_match_keys, cross = build_attention("sparse", dim=6), build_attention("bahdanau", query_dim=6, key_dim=6)
    return [
        ("self", lambda **which: rows_match_keys(SMALL, **which)),
        ("cross", lambda **which: cross(SMALL[:, :T], SMALL, **which)),
        ("prepare", lambda **which: cross.attention.prepare(SMALL, **which)),
        ("attend_self", lambda **which: rows_match_keys.attention.attend_self(SMALL, **which)),
    ]


WRONG = [
    ({"mask": torch.ones(B, S)}, r"^a mask is boolean, .* is torch.float32; give mask.bool\(\) if 1 means that"),
    ({"mask": torch.ones(B, S).long()}, r"this one is torch.int64; .* mask == 0 .*, and lengths as valid_length=$"),
    ({"mask": LENGTHS}, "this one is torch.int64; .* and lengths as valid_length=$"),
    ({"mask": [[True] * S] * B}, "this one is a list; give mask.bool"),
    ({"mask": torch.ones(B).bool()}, r"^the mask has the shape \(3,\), and the keys are 7 in each of 3 sentences; "),
    ({"mask": torch.ones(S).bool()}, r"has the shape \(7,\), .* \(batch, source\), or \(batch, target, source\) with"),
    ({"mask": torch.ones(1, S).bool()}, r"^the mask has the shape \(1, 7\), and the keys are 7 in each of 3 sentences"),
    ({"mask": torch.ones(B, S + 1).bool()}, r"^the mask has the shape \(3, 8\)"),
    ({"mask": torch.ones(1, T, S).bool()}, r"^the mask has the shape \(1, 5, 7\)"),
    ({"mask": torch.ones(B, 1, T, S).bool()}, r"^the mask has the shape \(3, 1, 5, 7\)"),
    ({"mask": torch.ones(B, S).bool(), "valid_length": LENGTHS}, "^attention takes a mask or valid_length, and got"),
    ({"valid_length": LENGTHS.float()}, "^valid_length is a tensor of integers, and this one is torch.float32; give"),
    ({"valid_length": LENGTHS.bool()}, "and this one is torch.bool; .*, and a boolean mask as mask=$"),
    ({"valid_length": [7, 0, 4]}, r"and this one is a list; give numbers of keys, such as torch.tensor\(\[7, 4\]\)"),
    ({"valid_length": LENGTHS[:2]}, r"^valid_length has the shape \(2,\), and the keys are of 3 sentences; give one"),
    ({"valid_length": LENGTHS[0]}, r"^valid_length has the shape \(\), and the keys are of 3 sentences; give one"),
    ({"valid_length": LENGTHS[:, None, None]}, r"has the shape \(3, 1, 1\), .* \(batch,\), .* \(batch, target\)$"),
]  # fmt: skip


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(("way", "call"), ways(), ids=[name for name, _ in ways()])
@pytest.mark.parametrize(("given", "sentence"), WRONG, ids=range(len(WRONG)))
def test_what_is_no_mask_or_no_length_is_refused(
    way: str, call: Callable[..., Any], given: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(UserError, match=sentence):
        call(**given)


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("preset", ["multihead", "linear"])
@pytest.mark.parametrize("shape", [(S, 6), (6,), (B, 1, S, 6)])
def test_what_is_no_sequence_is_refused(preset: str, shape: tuple[int, ...]) -> None:
    rows_match_keys, cross = build_attention(preset, dim=6), build_attention(preset, query_dim=6, key_dim=6)
    sentence = rf"^attention takes sequences of the shape \(batch, length, width\), and these have \({shape[0]}"
    for call in (lambda x: rows_match_keys(x), lambda x: cross(SMALL, x), lambda x: cross(x, SMALL)):
        with pytest.raises(UserError, match=sentence):
            call(torch.randn(*shape))


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("shape", [(B, S - 1), (B, S + 4), (B, 1), (1, S), (B + 1, S)])
@pytest.mark.parametrize("preset", ["multihead", "luong_general", "linear", "latent", "local"])
def test_values_of_other_keys_are_refused(preset: str, shape: tuple[int, int]) -> None:
    layer = build_attention(preset, query_dim=6, key_dim=6)
    with pytest.raises(UserError, match=r"^the values have the shape .*, and the keys are 7 in each of 3 sentences; "):
        layer(SMALL[:, :2], SMALL, torch.randn(*shape, 6))


@pytest.mark.parametrize("given", [{"mask": torch.ones(B, 4, S).bool()}, {"valid_length": torch.ones(B, 4).long()}])
def test_a_mask_of_other_queries_is_refused(given: dict[str, Tensor]) -> None:
    layer = build_attention("multihead", query_dim=6, key_dim=6)
    memory = layer.attention.prepare(SMALL, **given)
    with pytest.raises(
        UserError, match="has 4 queries, and there are 1; prepare the keys with a mask of these queries"
    ):
        layer.attention(SMALL[:, :1], memory, start=2)


@pytest.mark.parametrize("preset", ["multihead", "bahdanau", "linear"])
@pytest.mark.parametrize(
    ("rows", "target", "said"), [(6, 5, "6 rows of 5"), (4, 1, "4 rows of 1"), (1, 2, "1 rows of 2")]
)
def test_queries_of_other_sentences_are_refused(preset: str, rows: int, target: int, said: str) -> None:
    layer = build_attention(preset, query_dim=6, key_dim=6).attention
    with pytest.raises(UserError, match=f"^{said} queries do not go with a memory of 3 sentences; give as many rows"):
        layer(torch.randn(rows, target, 6), layer.prepare(SMALL))
    assert layer(torch.randn(6, 1, 6), layer.prepare(SMALL)).context.shape[:2] == (6, 1)


@pytest.mark.usefixtures("unchecked")
def test_masks_of_other_queries_are_not_joined() -> None:
    layer = build_attention("multihead", dim=6)
    memory = layer(SMALL[:, :4], valid_length=torch.tensor([4, 3, 2])).memory
    lengths = torch.tensor([[1, 1, 2]] * B)
    with pytest.raises(
        UserError, match=r"shapes \(3, 4\) and \(3, 3, 3\) cannot be joined; give both for the sentence"
    ):
        layer(SMALL[:, 4:], past=memory, valid_length=lengths)
    with pytest.raises(UserError, match="a memory with a mask and one without cannot be joined; give both"):
        layer(SMALL[:, 4:], past=memory)
    earlier = layer(SMALL[:, :3], valid_length=torch.tensor([[1, 2, 3]] * B)).memory
    with pytest.raises(UserError, match=r"shapes \(3, 3, 3\) and \(3, 3, 3\) cannot be joined; give both"):
        layer(SMALL[:, 4:], past=earlier, valid_length=torch.tensor([[1, 2, 3]] * B))


@pytest.mark.usefixtures("unchecked")
def test_a_mask_with_one_row_is_one_for_the_sentence() -> None:
    layer, lengths = build_attention("multihead", dim=6), torch.tensor([4, 3, 2])
    first = layer(SMALL[:, :4], valid_length=lengths[:, None], need_weights=True)
    expected = layer(SMALL[:, :4], valid_length=lengths, need_weights=True)
    assert first.memory.mask.shape == (B, 4)
    assert layer.attention.prepare(SMALL, valid_length=lengths[:, None]).mask.shape == (B, S)
    assert torch.equal(first.weights, expected.weights)
    step = {"past": first.memory, "mask": torch.ones(B, 1, 1, dtype=torch.bool)}
    later = {"past": expected.memory, "mask": torch.ones(B, 1, dtype=torch.bool)}
    assert torch.equal(layer(SMALL[:, 4:5], **step).context, layer(SMALL[:, 4:5], **later).context)
