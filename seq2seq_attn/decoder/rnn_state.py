"""The state of the recurrent decoders between steps, and the attention outputs that they collect over steps."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import final

import torch
from jaxtyping import Float, Int
from torch import Tensor

from seq2seq_attn.attention.history import History
from seq2seq_attn.attention.state import Attended, AttentionMemory
from seq2seq_attn.decoder.decoder import DecoderState
from seq2seq_attn.decoder.stack import StackState


@final
@dataclass(frozen=True)
class RNNState(DecoderState):
    """The source memory, the states of the layers and the position of the next token.

    Attributes:
        feed: the last attentional state h~, with input feeding; None without.
        history: of an attention that reads the weights of the steps before; None: it reads none.
    """

    memory: AttentionMemory
    layers: StackState
    next_position: int
    feed: Float[Tensor, "batch feed_dim"] | None = None
    history: History | None = None

    def branch(self, rows: Int[Tensor, " rows"]) -> RNNState:
        layers = tuple(tuple(tensor[rows] for tensor in layer) for layer in self.layers)
        feed = None if self.feed is None else self.feed[rows]
        history = None if self.history is None else self.history.select(rows)
        return replace(self, layers=layers, feed=feed, history=history)

    def keep(self, sentences: Int[Tensor, " sentences"]) -> RNNState:
        return replace(self, memory=self.memory.select(sentences))

    def for_search(self) -> RNNState:
        return replace(self, history=None if self.history is None else replace(self.history, in_search=True))


@final
class StepOutputs:
    """The attention weights, log-probabilities, entropies and losses of links of the steps so far, if there are any."""

    def __init__(self) -> None:
        self._steps: list[Attended] = []

    def add(self, attended: Attended) -> None:
        self._steps.append(attended)

    def join(self, slot: str) -> tuple[dict[str, Tensor], Tensor | None, Tensor | None, Tensor | None]:
        """Return the weights by slot, and the others as `Decoded` has them, concatenated along the target."""
        weights = self._cat("distribution", dim=2)
        others = [self._cat(field, dim=1) for field in ("log_prob", "entropy", "alignment_loss")]
        return {} if weights is None else {slot: weights}, others[0], others[1], others[2]

    def _cat(self, field: str, dim: int) -> Tensor | None:
        values = [getattr(step, field) for step in self._steps]
        return None if not values or values[0] is None else torch.cat(values, dim)
