"""What a convolutional decoder carries from step to step."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import final

from jaxtyping import Float, Int
from torch import Tensor

from seq2seq_attn.attention.state import Memory
from seq2seq_attn.decoder.decoder import DecoderState


@final
@dataclass(frozen=True)
class ConvState(DecoderState):
    """One memory a layer, and no more of the past than the next window reads.

    Attributes:
        inputs: the last `kernel_size - 1` inputs of each convolution, zeros before the first token.
        context_scale: sqrt(m) for m real source tokens, of each hypothesis.
        next_position: of the next token.
    """

    memories: tuple[Memory, ...]
    inputs: tuple[Float[Tensor, "batch before dim"], ...]
    context_scale: Float[Tensor, "batch 1 1"]
    next_position: int

    def branch(self, rows: Int[Tensor, "rows"]) -> ConvState:
        inputs = tuple(before[rows] for before in self.inputs)
        return replace(self, inputs=inputs, context_scale=self.context_scale[rows])

    def keep(self, sentences: Int[Tensor, "sentences"]) -> ConvState:
        return replace(self, memories=tuple(memory.select(sentences) for memory in self.memories))
