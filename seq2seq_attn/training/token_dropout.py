"""Token dropout: in training the unknown token replaces some tokens. Sennrich et al. 2016, arXiv:1606.02891."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from seq2seq_attn.batch import Batch


def drop_tokens(batch: Batch, shares: Mapping[str, float], *, unk_id: int, kept: tuple[int, ...]) -> Batch:
    """Return the batch with shares of what encoder and decoder read dropped; the target output stays.

    Each position is drawn anew from torch's generator; begin, end and padding are never dropped, and with shares of 0
    nothing is drawn. The paper sets the embedding of a dropped word to 0. With the unknown token, as in Xie et al. 2017
    (arXiv:1703.02573, blank noising), the model sees that a token was there, no other embedding has to be scaled,
    and every model can read it. Sennrich and Zhang 2019 (arXiv:1905.11901) drop words where data is scarce.

    Args:
        shares: from 0 to below 1, of "source" and of "target".
        unk_id: the id that is read instead. kept: ids that are never dropped.
    """
    masks = {"source": batch.source_mask, "target_input": batch.target_mask}
    changed = {
        name: drop(getattr(batch, name), masks[name], share, unk_id, kept)
        for name, share in (("source", shares["source"]), ("target_input", shares["target"]))
        if share > 0
    }
    return replace(batch, **changed)


def drop(
    tokens: Int[Tensor, "batch length"],
    mask: Bool[Tensor, "batch length"],
    share: float,
    unk_id: int,
    kept: tuple[int, ...],
) -> Int[Tensor, "batch length"]:
    """Return the tokens with this share of those under the mask, except the `kept` ids, replaced."""
    for token in kept:
        mask = mask & (tokens != token)
    return tokens.masked_fill(draw(tokens, share) & mask, unk_id)


def draw(tokens: Int[Tensor, "batch length"], share: float) -> Bool[Tensor, "batch length"]:
    """Draw each position with this probability, in float32 even where torch's default is half precision.

    One number in 256 of bfloat16 would be 0.
    """
    return torch.rand(tokens.shape, device=tokens.device, dtype=torch.float32) < share
