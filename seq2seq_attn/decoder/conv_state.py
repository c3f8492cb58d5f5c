"""What a convolutional decoder carries from step to step."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

from jaxtyping import Float, Int
from torch import Tensor

from seq2seq_attn.attention.memory import Memory
from seq2seq_attn.decoder.decoder import DecoderState


@final
@dataclass(frozen=True)
class ConvState(DecoderState):
    """One memory a layer, and no more of the past than the next window reads.

    Attributes:
        inputs: the last `kernel_size - 1` inputs of each convolution, zeros before the first token.
        context_scale: sqrt(m) for m real source tokens.
        place: of the next token.
    """

    memories: tuple[Memory, ...]
    inputs: tuple[Float[Tensor, "batch before dim"], ...]
    context_scale: Float[Tensor, "batch 1 1"]
    place: int

    def select(self, rows: Int[Tensor, "rows"]) -> ConvState:
        memories = tuple(memory.select(rows) for memory in self.memories)
        inputs = tuple(before[rows] for before in self.inputs)
        return ConvState(memories, inputs, self.context_scale[rows], self.place)
