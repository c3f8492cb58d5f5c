"""LinearAttention: the common part of the attentions in O(n), whose memory of the past has a fixed size."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

from jaxtyping import Bool, Float, Integer
from torch import Tensor, nn

from seq2seq_attn.attention.guide import Guide
from seq2seq_attn.attention.history import History
from seq2seq_attn.attention.key_mask import key_mask
from seq2seq_attn.attention.layer import AttentionLayer
from seq2seq_attn.attention.packed_projection import MIN_PACKED_ROWS, PackedProjection, stack
from seq2seq_attn.attention.state import Attended, AttentionMemory, by_sentence, flatten_hypotheses
from seq2seq_attn.errors import UserError
from seq2seq_attn.nn.dropout import Dropout
from seq2seq_attn.nn.linear import Linear
from seq2seq_attn.nn.named_tuple import with_fields
from seq2seq_attn.nn.projections import query_key_projections


class LinearAttention(AttentionLayer):
    """The contract of attention whose queries read a sum over the keys: a memory, and how queries read it.

    Attributes:
        project_query, project_key: for all heads at once, as all projections.
        project_values, project_output: None where values are cut into heads as they are.
        backend: "dense" computes weights over all pairs, except over the past of a step: for comparison.
    """

    project_query: nn.Linear
    project_key: nn.Linear
    project_values: nn.Linear | None
    project_output: nn.Sequential | None
    backend: str

    @property
    def reads_query(self) -> bool:
        return True

    def prepare(
        self,
        keys: Float[Tensor, "batch source key_dim"],
        values: Float[Tensor, "batch source value_dim"] | None = None,
        mask: Bool[Tensor, "batch source"] | Bool[Tensor, "batch target source"] | None = None,
        start: int = 0,
        *,
        valid_length: Integer[Tensor, " batch"] | Integer[Tensor, "batch target"] | None = None,
    ) -> AttentionMemory:
        """Compute all that depends on keys and values only, as `Attention.prepare`."""
        mask = key_mask(mask, valid_length, keys, values)
        values = keys if values is None else values
        values = values if self.project_values is None else self.project_values(values)
        return self._prepare(keys, self.project_key(keys), values, mask, start)

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
        """Return the context of each query, as `Attention.forward`.

        Args:
            need_weights: return the weights, too, by all pairs; None after a past, of which there is only the sum.
        """
        query, hypotheses = by_sentence(query, len(memory.values))
        attended = self._attend(
            self.project_query(query), memory, start, causal, need_weights, same_position=hypotheses
        )
        return flatten_hypotheses(attended) if hypotheses else attended

    def attend_self(
        self,
        x: Float[Tensor, "batch length dim"],
        mask: Bool[Tensor, "batch length"] | Bool[Tensor, "batch length length"] | None = None,
        *,
        past: AttentionMemory | None = None,
        packed: PackedProjection | None = None,
        causal: bool = False,
        need_weights: bool = False,
        valid_length: Integer[Tensor, " batch"] | Integer[Tensor, "batch length"] | None = None,
    ) -> Attended:
        """Attend from a sequence to itself and to the `past` before it, as `Attention.attend_self`."""
        mask = key_mask(mask, valid_length, x)
        start = 0 if past is None else past.source
        if packed is None and x.shape[:2].numel() >= MIN_PACKED_ROWS:
            packed = self.packed()
        if packed is None:
            query, memory = self.project_query(x), self.prepare(x, mask=mask, start=start)
        else:
            query, keys, values = packed.project(x)
            memory = self._prepare(x, keys, values, mask, start)
        if past is not None:
            memory = past.append(memory)
        return with_fields(self._attend(query, memory, start, causal, need_weights), memory=memory)

    def packed(self) -> PackedProjection | None:
        """Return one matrix for queries, keys and values of one input; None where one of them is not linear."""
        if self.project_values is None or self.backend == "dense":
            return None
        return stack((self.project_query, self.project_key, self.project_values))

    @abstractmethod
    def _prepare(
        self,
        x: Float[Tensor, "batch source key_dim"],
        keys: Float[Tensor, "batch source query_dim"],
        values: Float[Tensor, "batch source context_dim"],
        mask: Bool[Tensor, "batch source"] | Bool[Tensor, "batch target source"] | None,
        start: int,
    ) -> AttentionMemory:
        """Make a memory of the tokens `x` from their projected keys and values."""

    @abstractmethod
    def _attend(
        self,
        query: Float[Tensor, "batch target query_dim"],
        memory: Any,
        start: int,
        causal: bool,
        need_weights: bool,
        same_position: bool = False,
    ) -> Attended:
        """Attend with projected queries; with `same_position` all are at position `start`."""


def linear_projections(
    *, query_dim: int, key_dim: int, value_dim: int, project_values: bool, projection_dropout: float, qkv_bias: bool
) -> tuple[nn.Linear, nn.Linear, nn.Linear | None, nn.Sequential | None]:
    """Return the projections of queries, keys, values and output; None for the last two where none are wanted."""
    query, keys = query_key_projections(query_dim, key_dim, query_dim, query_dim, bias=qkv_bias)
    if not project_values:
        return query, keys, None, None
    values = Linear(value_dim, query_dim, bias=qkv_bias)
    return query, keys, values, nn.Sequential(Linear(query_dim, query_dim, bias=qkv_bias), Dropout(projection_dropout))


def check_one_mask(layer: str, *masks: Tensor | None) -> None:
    """Check that no mask differs between queries; `layer` is the name of the class.

    Raises:
        UserError: if one does.
    """
    if any(mask is not None for mask in masks):
        raise UserError(
            f"{layer} keeps a sum of the past, which cannot differ between queries; give a mask for the sentence, "
            "(batch, source), and say by causal=True what a query may not see"
        )
