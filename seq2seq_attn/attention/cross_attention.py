"""Attention of one sequence to another, as a layer for any model. Bahdanau et al. 2015, arXiv:1409.0473."""

from __future__ import annotations

from typing import final

from jaxtyping import Bool, Float, Integer
from torch import Tensor, nn

from seq2seq_attn.attention.layer import AttentionLayer
from seq2seq_attn.attention.state import Attended


@final
class CrossAttention(nn.Module):
    """Queries of one sequence attend to keys and values of another, all at once.

    For one query at a time, call `attention.prepare` once and `attention` at each step.
    """

    def __init__(self, attention: AttentionLayer) -> None:
        super().__init__()
        self.attention = attention

    @property
    def context_dim(self) -> int:
        """Width of the context: that of the query where the output is projected, else that of the values."""
        return self.attention.context_dim

    def forward(
        self,
        query: Float[Tensor, "batch target query_dim"],
        keys: Float[Tensor, "batch source key_dim"],
        values: Float[Tensor, "batch source value_dim"] | None = None,
        mask: Bool[Tensor, "batch source"] | Bool[Tensor, "batch target source"] | None = None,
        *,
        valid_length: Integer[Tensor, " batch"] | Integer[Tensor, "batch target"] | None = None,
        need_weights: bool = False,
    ) -> Attended:
        """Return the context of each query and, if asked for, the weights.

        Args:
            values: averaged by the weights; None: the keys.
            mask: True where a key may be attended to, for the sentence or for each query; None: everywhere.
            valid_length: instead of a mask, how many of the first keys may be attended to, for the sentence or for each
                query; 0 and below: none, as many as there are and above: all.
        """
        memory = self.attention.prepare(keys, values, mask, valid_length=valid_length)
        return self.attention(query, memory, need_weights=need_weights)
