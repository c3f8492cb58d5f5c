"""What a Transformer decoder carries from step to step."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import final

from jaxtyping import Int
from torch import Tensor

from seq2seq_attn.attention.packed_projection import PackedProjection
from seq2seq_attn.attention.state import Memory
from seq2seq_attn.decoder.decoder import DecoderState


@final
@dataclass(frozen=True)
class TransformerState(DecoderState):
    """Attributes, the first three by layer.

    source: keys and values of the source. own: those of the tokens so far; None before the first.
    joined: projections of the self-attention, joined once for all steps; None in training, where all is one step.
    next_position: of the next token.
    """

    source: tuple[Memory, ...]
    own: tuple[Memory | None, ...]
    packed: tuple[PackedProjection | None, ...]
    next_position: int

    def branch(self, rows: Int[Tensor, "rows"]) -> TransformerState:
        return replace(self, own=tuple(None if memory is None else memory.branch(rows) for memory in self.own))

    def keep(self, sentences: Int[Tensor, "sentences"]) -> TransformerState:
        return replace(self, source=tuple(memory.select(sentences) for memory in self.source))
