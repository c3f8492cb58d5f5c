"""Factorized random synthesizer: R1 R2^T of rank k. Tay et al. 2020, arXiv:2005.00743."""

from __future__ import annotations

from typing import Annotated, final

import torch
from jaxtyping import Float
from torch import Tensor, nn

from seq2seq_attn.attention.score.score import Score, check_max_length
from seq2seq_attn.attention.state import QueryKeyPositions
from seq2seq_attn.nn.heads import rows_at


@final
class SynthesizerFactorizedRandomScore(Score):
    """A vector for each target position and one for each source position, in each head, the same for every sentence.

    Their products have variance 1 at first, like the table of the random synthesizer.

    Args:
        max_length: number of positions that it has scores for.
        rank: width of the vectors, k.
    """

    reads_query: bool = False
    wide_pairs: bool = False

    def __init__(
        self, *, num_heads: int, max_length: Annotated[int, "[1, 1000000]"], rank: Annotated[int, "[1, 16384]"]
    ) -> None:
        super().__init__()
        self.max_length = max_length
        self.query_parts = self.key_parts = 0
        self.target = nn.Parameter(torch.empty(num_heads, max_length, rank))
        self.source = nn.Parameter(torch.empty(num_heads, max_length, rank))
        for table in (self.target, self.source):
            nn.init.normal_(table, std=rank**-0.25)

    def prepare_query(self, query: Float[Tensor, "batch target query_dim"]) -> tuple[()]:
        return ()

    def prepare_keys(self, keys: Float[Tensor, "batch source key_dim"]) -> tuple[()]:
        return ()

    def forward(
        self, query: tuple[Tensor, ...], keys: tuple[Tensor, ...], positions: QueryKeyPositions
    ) -> Float[Tensor, "*batch heads target source"]:
        check_max_length(self, positions.target_length, positions.source_length)
        scores = rows_at(self.target, positions.query) @ rows_at(self.source, positions.key).mT
        return scores.unsqueeze(0)
