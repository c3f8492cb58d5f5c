"""The state of the recurrent decoders between steps, and the attention outputs that they collect over steps."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import final

import torch
from jaxtyping import Float, Int
from torch import Tensor

from seq2seq_attn.attention.state import Attended, Memory
from seq2seq_attn.decoder.decoder import DecoderState
from seq2seq_attn.decoder.stack import StackState


@final
@dataclass(frozen=True)
class RNNState(DecoderState):
    """The source memory, the states of the layers and the position of the next token.

    Attributes:
        feed: the last attentional state h~, with input feeding; None without.
    """

    memory: Memory
    layers: StackState
    next_position: int
    feed: Float[Tensor, "batch feed_dim"] | None = None

    def branch(self, rows: Int[Tensor, "rows"]) -> RNNState:
        layers = tuple(tuple(tensor[rows] for tensor in layer) for layer in self.layers)
        return replace(self, layers=layers, feed=None if self.feed is None else self.feed[rows])

    def keep(self, sentences: Int[Tensor, "sentences"]) -> RNNState:
        return replace(self, memory=self.memory.select(sentences))


@final
class StepOutputs:
    """The attention weights, log-probabilities and entropies of the steps so far, if there are any."""

    def __init__(self) -> None:
        self._steps: list[Attended] = []

    def add(self, attended: Attended) -> None:
        self._steps.append(attended)

    def join(self, slot: str) -> tuple[dict[str, Tensor], Tensor | None, Tensor | None]:
        """Return the weights by slot, log-probabilities and entropies, concatenated along the target."""
        weights = self._cat("distribution", dim=2)
        return {} if weights is None else {slot: weights}, self._cat("log_prob", 1), self._cat("entropy", 1)

    def _cat(self, field: str, dim: int) -> Tensor | None:
        values = [getattr(step, field) for step in self._steps]
        return None if not values or values[0] is None else torch.cat(values, dim)
