"""What a recurrent decoder carries from step to step."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import final

from jaxtyping import Float, Int
from torch import Tensor

from seq2seq_attn.attention.state import Memory
from seq2seq_attn.decoder.decoder import DecoderState
from seq2seq_attn.decoder.stack import StackState


@final
@dataclass(frozen=True)
class RNNState(DecoderState):
    """Attributes: position: of the next token. feed: the last attentional state, where it is fed back."""

    memory: Memory
    layers: StackState
    next_position: int
    feed: Float[Tensor, "batch feed_dim"] | None = None

    def branch(self, rows: Int[Tensor, "rows"]) -> RNNState:
        layers = tuple(tuple(tensor[rows] for tensor in layer) for layer in self.layers)
        return replace(self, layers=layers, feed=None if self.feed is None else self.feed[rows])

    def keep(self, sentences: Int[Tensor, "sentences"]) -> RNNState:
        return replace(self, memory=self.memory.select(sentences))
