"""Location score: W h, one row of W for each source position. Luong et al. 2015, eq. 8, arXiv:1508.04025."""

from __future__ import annotations

from typing import Annotated, final

from jaxtyping import Float
from torch import Tensor

from seq2seq_attn.attention.score.score import Score, check_max_length
from seq2seq_attn.attention.state import QueryKeyPositions
from seq2seq_attn.nn.heads import HeadLinear, check_heads, split_heads


@final
class LocationScore(Score):
    """Scores of positions, computed from the query alone. Each head takes a slice of the query.

    Args:
        max_length: number of source positions, the rows of W.

    Raises:
        UserError: if the number of heads does not divide the width of the queries, or a source has more positions.
    """

    wide_pairs: bool = False

    def __init__(self, *, query_dim: int, num_heads: int, max_length: Annotated[int, "[1, 1000000]"]) -> None:
        super().__init__()
        check_heads("query_dim", query_dim, num_heads)
        self.num_heads, self.max_length = num_heads, max_length
        self.key_parts = 0
        self.project = HeadLinear(
            num_heads=num_heads, input_dim=query_dim // num_heads, output_dim=max_length, bias=False
        )

    def prepare_query(
        self, query: Float[Tensor, "batch target query_dim"]
    ) -> tuple[Float[Tensor, "batch heads target width"]]:
        return (split_heads(query, self.num_heads),)

    def prepare_keys(self, keys: Float[Tensor, "batch source key_dim"]) -> tuple[()]:
        return ()

    def forward(
        self, query: tuple[Tensor, ...], keys: tuple[Tensor, ...], positions: QueryKeyPositions
    ) -> Float[Tensor, "*batch heads target source"]:
        check_max_length(self, positions.source_length)
        return self.project.at(query[0], positions.key)
