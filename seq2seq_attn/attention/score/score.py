"""The contract of a score: what a query thinks of a key, or of a position."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

from jaxtyping import Bool, Float
from torch import Tensor, nn

from seq2seq_attn.attention.state import QueryKeyPositions
from seq2seq_attn.errors import UserError


class Score(nn.Module, ABC):
    """Owns its projections of queries and keys, and nothing of masks, softmax or dropout.

    `*batch` is `batch`, or `batch blocks` where a pattern cuts the sequence. Heads stand after the blocks.
    Scores are finite always: hiding is the normalizer's work.

    Attributes:
        inner_product: `forward` is `query[0] @ keys[0].mT`, any scale folded into the query.
        reads_query: False where the scores are the same for every query content.
        max_length: positions that it has scores for; None: any.
        query_parts, key_parts: tensors that `prepare_query` and `prepare_keys` return.
    """

    inner_product: ClassVar[bool] = False
    reads_query: bool = True
    max_length: int | None = None
    query_parts: int = 1
    key_parts: int = 1

    @abstractmethod
    def prepare_query(
        self, query: Float[Tensor, "batch target query_dim"]
    ) -> tuple[Float[Tensor, "batch _ target _"], ...]:
        """What is made of a query before it meets a key."""

    @abstractmethod
    def prepare_keys(
        self, keys: Float[Tensor, "batch source key_dim"]
    ) -> tuple[Float[Tensor, "batch _ source _"], ...]:
        """What is made of the keys, once for a source sentence."""

    @abstractmethod
    def forward(
        self, query: tuple[Tensor, ...], keys: tuple[Tensor, ...], positions: QueryKeyPositions
    ) -> Float[Tensor, "*batch heads target source"]:
        """Scores of every prepared query against every prepared key; `*batch` may be 1 where contents do not matter."""

    def visible(self, positions: QueryKeyPositions) -> Bool[Tensor, "*batch heads target source"] | None:
        """Positions that the score itself looks at, head by head; None: all."""
        return None


def check_max_length(score: Score, *lengths: int | None) -> None:
    """Compare plain numbers (see `QueryKeyPositions`), so that no tensor is read; None: not known.

    Raises:
        UserError: for a length beyond `score.max_length`.
    """
    longest = max((length for length in lengths if length is not None), default=0)
    if score.max_length is not None and longest > score.max_length:
        raise UserError(
            f"{type(score).__name__} has scores for {score.max_length} positions, but a sentence has {longest}; "
            f"set attention.score.max_length={longest} or more (in a mixture, attention.score.scores.NAME.max_length)"
        )
