"""Token dropout: training reads the unknown token in the position of some. Sennrich et al. 2016, arXiv:1606.02891."""

from __future__ import annotations

from dataclasses import replace

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from seq2seq_attn.batch import Batch
from seq2seq_attn.errors import UserError


def check_shares(source: int | float, target: int | float) -> None:
    """Raises:
    UserError: for a share that is none, or leaves nothing to read.
    """
    for name, share in (("source", source), ("target", target)):
        if not 0 <= share < 1:
            raise UserError(f"token_dropout.{name}={share} is not from 0 to below 1; use 0.1, or 0 to drop nothing")


def drop_tokens(batch: Batch, *, source: float, target: float, unk_id: int, bos_id: int, eos_id: int) -> Batch:
    """The batch with these shares of what encoder and decoder read dropped; what the decoder must say stays.

    Each position is drawn anew from torch's generator; begin, end and padding are never dropped, and with shares of 0
    nothing is drawn. The paper sets the embedding of a dropped word to 0. With the unknown token, as in Xie et al. 2017
    (arXiv:1703.02573, blank noising), the model sees that something stood there, no other embedding has to be scaled,
    and every model can read it. Sennrich and Zhang 2019 (arXiv:1905.11901) drop words where data is scarce.
    """
    masks = {"source": batch.source_mask, "target_input": batch.target_mask}
    changed = {
        name: drop(getattr(batch, name), masks[name], share, unk_id, (bos_id, eos_id))
        for name, share in (("source", source), ("target_input", target))
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
    for token in kept:
        mask = mask & (tokens != token)
    drawn = torch.rand(tokens.shape, device=tokens.device) < share
    return tokens.masked_fill(drawn & mask, unk_id)
