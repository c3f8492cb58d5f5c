"""The state of the recurrent decoders between steps, and what they return."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import final

from jaxtyping import Float, Int
from torch import Tensor

from seq2seq_attn.attention.history import History
from seq2seq_attn.attention.state import Attended, AttentionMemory
from seq2seq_attn.decoder.decoder import Decoded, DecoderState
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


def decoded_of(hidden: Float[Tensor, "batch target output_dim"], state: RNNState, attended: Attended) -> Decoded:
    """Return the output of a decoder with one attention, whose steps are joined."""
    weights = attended.distribution
    return Decoded(
        hidden,
        state,
        {} if weights is None else {"cross/0": weights},
        attended.log_prob,
        attended.entropy,
        attended.alignment_loss,
    )
