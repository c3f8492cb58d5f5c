"""What a Transformer decoder carries from step to step."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

from jaxtyping import Int
from torch import Tensor

from seq2seq_attn.attention.memory import Memory
from seq2seq_attn.decoder.decoder import DecoderState


@final
@dataclass(frozen=True)
class TransformerState(DecoderState):
    """Attributes, the first two by layer.

    source: keys and values of the source. own: those of the tokens so far; None before the first.
    place: of the next token.
    """

    source: tuple[Memory, ...]
    own: tuple[Memory | None, ...]
    place: int

    def select(self, rows: Int[Tensor, "rows"]) -> TransformerState:
        source = tuple(memory.select(rows) for memory in self.source)
        own = tuple(None if memory is None else memory.select(rows) for memory in self.own)
        return TransformerState(source, own, self.place)
