"""The contract of a score: the compatibility of a query and a key, before normalization."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection
from functools import partial
from typing import Any, ClassVar

from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from seq2seq_attn.attention.state import QueryKeyPositions
from seq2seq_attn.errors import UserError
from seq2seq_attn.factory import named_arguments


class Score(nn.Module, ABC):
    """A score owns its projections of queries and keys; masks, softmax and dropout are not its concern.

    `*batch` is `batch`, or `batch blocks` where a pattern cuts the sequence. Heads come after the blocks.
    Scores are always finite: the normalizer hides keys.

    Attributes:
        inner_product: whether `forward` is `query[0] @ keys[0].mT`, with any scale folded into the query; a head of
            keys may serve several of queries (`matmul_groups`).
        rotatable: whether prepared queries and keys are vectors of a head's width that meet in an inner product, which
            a rotary or Shaw's relative position encoding needs.
        never_positive: whether a head has no score above 0.
        reads_query: whether the scores depend on the content of a query.
        reads_length: whether they depend on the number of keys.
        wide_pairs: whether `forward` holds as many numbers for each pair as a query has, as a hidden layer of pairs
            does; blocks are then computed in small tiles, and once more for their gradient.
        max_length: number of positions that it has scores for; None: any.
        query_parts, key_parts: number of tensors that `prepare_query` and `prepare_keys` return.
        running_sums: how many of these keys, counted from the last, a memory holds as sums over all keys up to each;
            keys that the mask hides add nothing.
    """

    inner_product: ClassVar[bool] = False
    never_positive: bool = False
    reads_query: bool = True
    reads_length: bool = False
    wide_pairs: bool = True
    max_length: int | None = None
    query_parts: int = 1
    key_parts: int = 1
    running_sums: int = 0

    def __init_subclass__(cls, **options: Any) -> None:
        """A class with another `forward` than its base's is no inner product unless it says so."""
        super().__init_subclass__(**options)
        if "forward" in vars(cls) and "inner_product" not in vars(cls):
            cls.inner_product = False

    @property
    def rotatable(self) -> bool:
        return self.inner_product

    @abstractmethod
    def prepare_query(
        self, query: Float[Tensor, "batch target query_dim"]
    ) -> tuple[Float[Tensor, "batch _ target _"], ...]:
        """Compute all that depends on the queries only."""

    @abstractmethod
    def prepare_keys(
        self, keys: Float[Tensor, "batch source key_dim"]
    ) -> tuple[Float[Tensor, "batch _ source _"], ...]:
        """Compute all that depends on the keys only, once for each source sentence."""

    def query_at(
        self, query: tuple[Tensor, ...], keys: tuple[Tensor, ...], position: Int[Tensor, "batch target"]
    ) -> tuple[Tensor, ...]:
        """Return prepared queries with what the score reads from the prepared keys at their positions.

        There is at least one key. A position is at most that of the last key that the sentence may attend to.
        """
        return query

    @abstractmethod
    def forward(
        self, query: tuple[Tensor, ...], keys: tuple[Tensor, ...], positions: QueryKeyPositions
    ) -> Float[Tensor, "*batch heads target source"]:
        """Score every prepared query against every prepared key; `*batch` is 1 where contents do not matter."""

    def visible(self, positions: QueryKeyPositions) -> Bool[Tensor, "*batch heads target source"] | None:
        """Return the positions that the score itself allows, head by head; None: all."""
        return None


def check_prepared(score: Score, prepared: Any) -> tuple[Tensor, ...]:
    """Return what a score prepared.

    Raises:
        UserError: if that is one tensor, whose first sentence would be read as its first part.
    """
    if isinstance(prepared, Tensor):
        raise UserError(
            f"{type(score).__name__} prepares a tensor, and prepare_query and prepare_keys must each return a tuple of "
            "tensors; write (x,) for one"
        )
    return prepared  # type: ignore[no-any-return]


def check_max_length(score: Score, *lengths: int) -> None:
    """Check lengths against `score.max_length`.

    They are plain numbers (see `QueryKeyPositions`), so that no tensor is read.

    Raises:
        UserError: for a length beyond `score.max_length`.
    """
    longest = max(lengths)
    if score.max_length is not None and longest > score.max_length:
        raise UserError(
            f"{type(score).__name__} has scores for {score.max_length} positions, but a sentence has {longest}; "
            f"set attention.score.max_length={longest} or more (in a mixture "
            "attention.score.scores.NAME.max_length, and in soft_cap attention.score.score.max_length)"
        )


def check_taken(scores: Collection[partial[Any]], **given: Any) -> None:
    """Refuse options that are given, but that the constructor of no score takes.

    Args:
        given: by the names of the constructor's arguments; None: not given.
    """
    for argument, value in given.items():
        if value is not None and not any(argument in named_arguments(score) for score in scores):
            names = " or ".join(dict.fromkeys(score.func.__name__ for score in scores))
            option = "qk_scale" if argument == "scale" else argument
            raise UserError(
                f"{names} takes no attention.{option}={value}; leave it null, or use attention/score=scaled_dot"
            )
