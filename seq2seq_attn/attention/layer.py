"""The contract of an attention layer, which encoders, decoders and layers of one's own models call."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

from jaxtyping import Bool, Float, Integer
from torch import Tensor, nn

from seq2seq_attn.attention.guide import Guide
from seq2seq_attn.attention.history import History
from seq2seq_attn.attention.packed_projection import PackedProjection
from seq2seq_attn.attention.state import Attended, AttentionMemory
from seq2seq_attn.errors import UserError
from seq2seq_attn.position.relative_encoding import RelativeEncoding


class AttentionLayer(nn.Module, ABC):
    """Attention of queries to keys and values, prepared once as a memory of the layer's own kind.

    Attributes:
        context_dim: width of the context.
        num_heads: number of heads of the weights.
        relative: the relative position encoding of self-attention; None: there is none.
        sums_to_one: whether the weights of a row are a distribution over the keys.
        reads_history: whether the weights depend on those of the steps before.
    """

    reads_history: bool = False

    context_dim: int
    num_heads: int
    relative: RelativeEncoding | None

    @property
    def sums_to_one(self) -> bool:
        return True

    @property
    @abstractmethod
    def reads_query(self) -> bool:
        """Whether the content of a query changes its context; False where that depends on positions alone."""

    @abstractmethod
    def prepare(
        self,
        keys: Float[Tensor, "batch source key_dim"],
        values: Float[Tensor, "batch source value_dim"] | None = None,
        mask: Bool[Tensor, "batch source"] | Bool[Tensor, "batch target source"] | None = None,
        start: int = 0,
        *,
        valid_length: Integer[Tensor, " batch"] | Integer[Tensor, "batch target"] | None = None,
    ) -> AttentionMemory:
        """Compute all that depends on keys and values only."""

    @abstractmethod
    def forward(
        self,
        query: Float[Tensor, "batch target query_dim"],
        memory: Any,
        *,
        start: int = 0,
        causal: bool = False,
        need_weights: bool = False,
        history: History | None = None,
        guide: Guide | None = None,
    ) -> Attended:
        """Return the context of each query to a memory of this layer, after the steps that `history` is of.

        Args:
            guide: return the loss of these links, too, if `check_guide` admits them.
        """

    def check_guide(self, head: int) -> None:
        """Refuse to guide this head.

        Raises:
            UserError: if there is no such head, or the layer computes no loss of links.
        """
        raise UserError(
            f"{type(self).__name__} computes its context without weights, which guided_alignment would train; use an "
            "attention with a score, such as attention=multihead or attention=bahdanau, or guided_alignment.links=null"
        )

    def first_history(self, memory: Any) -> History | None:
        """Return the history before the first step; None for a layer that reads none."""
        return None

    @abstractmethod
    def attend_self(
        self,
        x: Float[Tensor, "batch length dim"],
        mask: Bool[Tensor, "batch length"] | Bool[Tensor, "batch length length"] | None = None,
        *,
        past: Any = None,
        packed: PackedProjection | None = None,
        causal: bool = False,
        need_weights: bool = False,
        valid_length: Integer[Tensor, " batch"] | Integer[Tensor, "batch length"] | None = None,
    ) -> Attended:
        """Attend from a sequence to itself and to the `past` before it."""

    @abstractmethod
    def packed(self) -> PackedProjection | None:
        """Return one matrix for queries, keys and values of one input; None where there is none."""
