"""General score: q . W k. Luong et al. 2015, section 3.1, arXiv:1508.04025."""

from __future__ import annotations

from typing import ClassVar, final

from jaxtyping import Float
from torch import Tensor, nn

from seq2seq_attn.attention.score.score import Score
from seq2seq_attn.attention.state import QueryKeyPositions
from seq2seq_attn.nn.heads import check_heads, split_heads
from seq2seq_attn.nn.linear import Linear


@final
class GeneralScore(Score):
    """A bilinear form. W is applied to the keys once for each source sentence, so a step costs as much as with dot.

    Raises:
        UserError: if the number of heads does not divide the width of the queries.
    """

    inner_product: ClassVar[bool] = True

    def __init__(self, *, query_dim: int, key_dim: int, num_heads: int) -> None:
        super().__init__()
        check_heads("query_dim", query_dim, num_heads)
        self.num_heads = num_heads
        self.project_key = Linear(key_dim, query_dim, bias=False)
        nn.init.xavier_uniform_(self.project_key.weight)

    def prepare_query(
        self, query: Float[Tensor, "batch target query_dim"]
    ) -> tuple[Float[Tensor, "batch heads target width"]]:
        return (split_heads(query, self.num_heads),)

    def prepare_keys(
        self, keys: Float[Tensor, "batch source key_dim"]
    ) -> tuple[Float[Tensor, "batch heads source width"]]:
        return (split_heads(self.project_key(keys), self.num_heads),)

    def forward(
        self, query: tuple[Tensor, ...], keys: tuple[Tensor, ...], positions: QueryKeyPositions
    ) -> Float[Tensor, "*batch heads target source"]:
        return query[0] @ keys[0].mT
