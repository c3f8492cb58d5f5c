"""The mask of the keys, given as a mask or as lengths."""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float, Integer
from torch import Tensor

from seq2seq_attn.errors import UserError

INTEGERS = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)


def key_mask(
    mask: Bool[Tensor, "batch source"] | Bool[Tensor, "batch target source"] | None,
    valid_length: Integer[Tensor, " batch"] | Integer[Tensor, "batch target"] | None,
    keys: Float[Tensor, "batch source key_dim"],
    values: Float[Tensor, "values_batch values_source value_dim"] | None = None,
) -> Bool[Tensor, "batch source"] | Bool[Tensor, "batch target source"] | None:
    """Return `mask`, or a mask that is True at the first `valid_length` keys of each sentence or query; None: all keys.

    A mask with one row for all queries is returned as one for the sentence.

    Lengths are not checked, because reading them would make a GPU wait: 0 and below mean no key, the number of keys
    and above mean all.

    Raises:
        UserError: for a mask that is not boolean, lengths that are not integers, one of another shape, or both at once;
            and for values that are not those of the keys, which torch's kernel would read past their end.
    """
    check_sequences(keys)
    if values is not None and values.shape[:2] != keys.shape[:2]:
        raise UserError(
            f"the values have the shape {tuple(values.shape)}, and the keys are {keys.shape[1]} in each of {len(keys)} "
            "sentences; give one value for each key"
        )
    if valid_length is None:
        if mask is not None:
            check_mask(mask, keys)
        return one_row(mask)
    if mask is not None:
        raise UserError("attention takes a mask or valid_length, and got both; leave one of them out")
    if not isinstance(valid_length, Tensor) or valid_length.dtype not in INTEGERS:
        raise UserError(
            f"valid_length is a tensor of integers, and this one is {kind(valid_length)}; give numbers of keys, such "
            "as torch.tensor([7, 4]) for two sentences, and a boolean mask as mask="
        )
    if valid_length.dim() not in (1, 2) or len(valid_length) != len(keys):
        raise UserError(
            f"valid_length has the shape {tuple(valid_length.shape)}, and the keys are of {len(keys)} sentences; give "
            "one length for each sentence, (batch,), or one for each of its queries, (batch, target)"
        )
    return one_row(torch.arange(keys.shape[1], device=valid_length.device) < valid_length.unsqueeze(-1))


def one_row(mask: Tensor | None) -> Tensor | None:
    """Return a mask that has one row for all queries as one for the sentence."""
    return mask[:, 0] if mask is not None and mask.dim() == 3 and mask.shape[1] == 1 else mask


def check_sequences(x: Float[Tensor, "batch length width"]) -> None:
    """Refuse queries, keys or values of other dimensions."""
    if x.dim() != 3:
        raise UserError(
            f"attention takes sequences of the shape (batch, length, width), and these have {tuple(x.shape)}; give "
            "x[None] for a single one"
        )


def check_mask(mask: Bool[Tensor, "*shape"], keys: Float[Tensor, "batch source key_dim"]) -> None:
    """Check that a mask is one of these keys: torch would spread one of another shape over the wrong dimension."""
    if not isinstance(mask, Tensor) or mask.dtype != torch.bool:
        raise UserError(
            f"a mask is boolean, True where a key may be attended to, and this one is {kind(mask)}; give mask.bool() "
            "if 1 means that, mask == 0 for an additive mask of 0 and -inf, and lengths as valid_length="
        )
    batch, source = keys.shape[:2]
    if mask.dim() not in (2, 3) or (mask.shape[0], mask.shape[-1]) != (batch, source):
        raise UserError(
            f"the mask has the shape {tuple(mask.shape)}, and the keys are {source} in each of {batch} sentences; give "
            "one of the shape (batch, source), or (batch, target, source) with a row for each query"
        )


def kind(x: object) -> str:
    return str(x.dtype) if isinstance(x, Tensor) else f"a {type(x).__name__}"


def check_rows(mask: Bool[Tensor, "batch rows source"], target: int) -> None:
    """Check that a mask for each query has as many rows as there are queries.

    Raises:
        UserError: if it has not.
    """
    if mask.shape[1] not in (1, target):
        raise UserError(
            f"the mask, or valid_length, has {mask.shape[1]} queries, and there are {target}; prepare the keys with a "
            "mask of these queries, or with one for the sentence"
        )
