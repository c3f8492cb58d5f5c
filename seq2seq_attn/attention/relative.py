"""What attention asks of a relative position, which is passed in: attention and positions do not import each other."""

from __future__ import annotations

from typing import Protocol

from jaxtyping import Float, Int
from torch import Tensor, nn

from seq2seq_attn.attention.score.score import Score
from seq2seq_attn.tensors.error import UserError


class Relative(Protocol):
    """The part of one self-attention layer that knows how far apart two places are.

    Attributes:
        option: its name on the command line.
        needs_inner_product: it turns or reads the projected queries and keys of an inner product.
        rotates, biases, adds_context: which of the methods do something.
    """

    option: str
    needs_inner_product: bool
    rotates: bool
    biases: bool
    adds_context: bool

    def rotate(
        self, x: Float[Tensor, "batch heads length width"], place: Int[Tensor, "length"]
    ) -> Float[Tensor, "batch heads length width"]:
        """Queries or keys, turned by their places when prepared."""

    def bias(
        self,
        query: Float[Tensor, "*batch heads target width"] | None,
        query_place: Int[Tensor, "*blocks target"],
        key_place: Int[Tensor, "*blocks source"],
    ) -> Float[Tensor, "*batch heads target source"]:
        """What is added to the scores; `query` is None unless an inner product is needed."""

    def context(
        self,
        weights: Float[Tensor, "batch heads target source"],
        query_place: Int[Tensor, "target"],
        key_place: Int[Tensor, "source"],
    ) -> Float[Tensor, "batch heads target width"]:
        """What is added to the context."""


def check_relative(relative: nn.Module | None, score: Score) -> None:
    """Refuse a relative position that the score has no place for."""
    if relative is not None and relative.needs_inner_product and not score.inner_product:
        raise UserError(
            f"position={relative.option} acts on an inner product of queries and keys, which {type(score).__name__} "
            "is not; use attention/score=scaled_dot, or position=alibi or position=sinusoidal"
        )
