"""Attention of one sequence to itself, as a layer for any model. Vaswani et al. 2017, 3.2.3, arXiv:1706.03762."""

from __future__ import annotations

from typing import final

from jaxtyping import Bool, Float, Integer
from torch import Tensor, nn

from seq2seq_attn.attention.layer import AttentionLayer
from seq2seq_attn.attention.state import Attended, AttentionMemory


@final
class SelfAttention(nn.Module):
    """Queries, keys and values are the same sequence, and the context is as wide.

    Args:
        attention: built with one width for all three.
    """

    def __init__(self, attention: AttentionLayer) -> None:
        super().__init__()
        self.attention = attention

    def forward(
        self,
        x: Float[Tensor, "batch length dim"],
        mask: Bool[Tensor, "batch length"] | Bool[Tensor, "batch length length"] | None = None,
        *,
        valid_length: Integer[Tensor, " batch"] | Integer[Tensor, "batch length"] | None = None,
        past: AttentionMemory | None = None,
        causal: bool = False,
        need_weights: bool = False,
    ) -> Attended:
        """Return the context of each position and, if asked for, the weights.

        Args:
            mask: True where a token is real, for the sequence or for each of its queries; None: everywhere. The
                contexts of padding are arbitrary.
            valid_length: instead of a mask, how many tokens are real, for the sequence or for each of its queries;
                0 and below: none, the length and above: all.
            past: `memory` of the previous call, whose sequence `x` continues.
            causal: a position attends to itself and to those before it only.
        """
        return self.attention.attend_self(
            x, mask, past=past, causal=causal, need_weights=need_weights, valid_length=valid_length
        )
