"""Plain scaled dot score: q . k / sqrt(d_k), without a weight. Vaswani et al. 2017, eq. 1, arXiv:1706.03762."""

from __future__ import annotations

from typing import ClassVar, final

from jaxtyping import Float
from torch import Tensor

from seq2seq_attn.attention.score.score import Score
from seq2seq_attn.attention.state import QueryKeyPositions
from seq2seq_attn.errors import UserError
from seq2seq_attn.nn.heads import check_heads, split_heads


@final
class PlainScaledDotScore(Score):
    """The inner product of queries and keys as they come: `dot` with a scale, or `scaled_dot` without projections.

    Args:
        scale: factor of the inner product (`attention.qk_scale`); None: 1 / sqrt(d_k).
    """

    inner_product: ClassVar[bool] = True

    def __init__(self, *, query_dim: int, key_dim: int, num_heads: int, scale: float | None) -> None:
        super().__init__()
        if query_dim != key_dim:
            raise UserError(
                f"plain_scaled_dot score needs query_dim == key_dim, got {query_dim} and {key_dim}; "
                "use attention/score=scaled_dot"
            )
        check_heads("query_dim", query_dim, num_heads)
        self.num_heads = num_heads
        self.scale = scale if scale is not None else (query_dim // num_heads) ** -0.5

    def prepare_query(
        self, query: Float[Tensor, "batch target query_dim"]
    ) -> tuple[Float[Tensor, "batch heads target width"]]:
        return (split_heads(query, self.num_heads) * self.scale,)

    def prepare_keys(
        self, keys: Float[Tensor, "batch source key_dim"]
    ) -> tuple[Float[Tensor, "batch heads source width"]]:
        return (split_heads(keys, self.num_heads),)

    def forward(
        self, query: tuple[Tensor, ...], keys: tuple[Tensor, ...], positions: QueryKeyPositions
    ) -> Float[Tensor, "*batch heads target source"]:
        return query[0] @ keys[0].mT
