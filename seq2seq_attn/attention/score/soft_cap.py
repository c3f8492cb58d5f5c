"""Soft cap: c tanh(score / c) of another score. Gemma Team 2024 (Gemma 2), section 2, arXiv:2408.00118."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Any, cast, final

from jaxtyping import Float
from torch import Tensor

from seq2seq_attn.attention.score.score import Score, check_taken
from seq2seq_attn.attention.state import QueryKeyPositions
from seq2seq_attn.errors import UserError
from seq2seq_attn.factory import build_part, redefines


@final
class SoftCapScore(Score):
    """A score that stays between -cap and cap, nearly as it was where it is far from both.

    The bias of a relative position encoding is added after the cap.

    Args:
        score: partial of the score, which takes the sizes that its signature names.
        num_kv_heads, head_dim, bias, scale: passed to the score if it takes them (`attention.num_kv_heads`,
            `attention.head_dim`, `attention.qkv_bias`, `attention.qk_scale`).
        cap: the bound; Gemma 2's is 50.

    Raises:
        UserError: for a score that hides positions, or a scale that the score does not take.
    """

    def __init__(
        self,
        *,
        query_dim: int,
        key_dim: int,
        num_heads: int,
        num_kv_heads: int | None,
        head_dim: int | None,
        bias: bool,
        scale: float | None,
        score: partial[Any],
        cap: Annotated[float, "(0, inf)"],
    ) -> None:
        super().__init__()
        kind = cast(type[Score], score.func)
        if redefines(kind, Score.visible):
            raise UserError(f"soft_cap bounds scores, but {kind.__name__} hides positions; use it alone")
        if redefines(kind, Score.query_at):
            raise UserError(f"soft_cap gives its score no query positions, which {kind.__name__} needs; use it alone")
        optional = {"num_kv_heads": num_kv_heads, "head_dim": head_dim, "scale": scale}
        check_taken([score], **optional)
        sizes = {"query_dim": query_dim, "key_dim": key_dim, "num_heads": num_heads, "bias": bias, **optional}
        self.score: Score = build_part(score, **sizes)
        self.cap = cap
        self.query_parts, self.key_parts = self.score.query_parts, self.score.key_parts
        self.reads_query, self.max_length = self.score.reads_query, self.score.max_length
        self.never_positive = self.score.never_positive
        self.wide_pairs = self.score.wide_pairs and not self.score.inner_product

    @property
    def rotatable(self) -> bool:
        return self.score.rotatable

    def prepare_query(
        self, query: Float[Tensor, "batch target query_dim"]
    ) -> tuple[Float[Tensor, "batch _ target _"], ...]:
        return self.score.prepare_query(query)

    def prepare_keys(
        self, keys: Float[Tensor, "batch source key_dim"]
    ) -> tuple[Float[Tensor, "batch _ source _"], ...]:
        return self.score.prepare_keys(keys)

    def forward(
        self, query: tuple[Tensor, ...], keys: tuple[Tensor, ...], positions: QueryKeyPositions
    ) -> Float[Tensor, "*batch heads target source"]:
        # torch's tanh: near 0, the one of nn/tanh.py is less exact, and the cap would multiply its error
        return self.cap * (self.score(query, keys, positions) / self.cap).tanh()
