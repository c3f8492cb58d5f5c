"""Random synthesizer: R, one number for each pair of positions. Tay et al. 2020, arXiv:2005.00743."""

from __future__ import annotations

from typing import Annotated, final

import torch
from jaxtyping import Float
from torch import Tensor, nn

from seq2seq_attn.attention.score.score import Score, check_max_length
from seq2seq_attn.attention.state import QueryKeyPositions


@final
class SynthesizerRandomScore(Score):
    """A table for each head, the same for every sentence.

    It is drawn from N(0, 1), the spread of scaled dot scores: a table that is never trained must prefer some positions.

    Args:
        max_length: number of positions that it has scores for.
        trainable: False keeps the table as it was drawn; it is saved in checkpoints, too.
    """

    reads_query: bool = False
    wide_pairs: bool = False
    table: Tensor

    def __init__(self, *, num_heads: int, max_length: Annotated[int, "[1, 1000000]"], trainable: bool) -> None:
        super().__init__()
        self.max_length = max_length
        self.query_parts = self.key_parts = 0
        table = torch.randn(num_heads, max_length, max_length)
        if trainable:
            self.table = nn.Parameter(table)
        else:
            self.register_buffer("table", table)

    def prepare_query(self, query: Float[Tensor, "batch target query_dim"]) -> tuple[()]:
        return ()

    def prepare_keys(self, keys: Float[Tensor, "batch source key_dim"]) -> tuple[()]:
        return ()

    def forward(
        self, query: tuple[Tensor, ...], keys: tuple[Tensor, ...], positions: QueryKeyPositions
    ) -> Float[Tensor, "*batch heads target source"]:
        check_max_length(self, positions.target_length, positions.source_length)
        if positions.rows is not None and positions.columns is not None:
            return self.table[None, :, positions.rows, positions.columns]
        scores = self.table[:, positions.query.unsqueeze(-1), positions.key.unsqueeze(-2)]
        return scores.movedim(0, -3).unsqueeze(0)
