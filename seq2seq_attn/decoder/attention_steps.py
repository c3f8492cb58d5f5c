"""Attention to the source within the loop of a recurrent decoder."""

from __future__ import annotations

from typing import final

from jaxtyping import Float
from torch import Tensor

from seq2seq_attn.attention.guide import Guide
from seq2seq_attn.attention.layer import AttentionLayer
from seq2seq_attn.attention.state import Attended, join_steps
from seq2seq_attn.decoder.rnn_state import RNNState


@final
class AttentionSteps:
    """An attention that is called once for each target position after a state, in their order.

    Args:
        attention: to the source, which `state` has the memory of.
        state: before the first of these positions.
        need_weights: whether the steps are to return weights.
        guide: of the links of all these positions; None: there is none.
    """

    def __init__(self, attention: AttentionLayer, state: RNNState, *, need_weights: bool, guide: Guide | None) -> None:
        self.attention, self.state, self.need_weights, self.guide = attention, state, need_weights, guide
        self._history = state.history
        self._steps: list[Attended] = []

    def __call__(self, query: Float[Tensor, "batch dim"]) -> Float[Tensor, "batch context_dim"]:
        """Return the context of the next position."""
        step = len(self._steps)
        attended = self.attention(
            query.unsqueeze(1),
            self.state.memory,
            start=self.state.next_position + step,
            need_weights=self.need_weights,
            history=self._history,
            guide=None if self.guide is None else self.guide.at(step),
        )
        self._history = attended.history
        self._steps.append(attended)
        return attended.context.squeeze(1)

    def joined(self) -> Attended:
        """Return what all steps returned, as of one call."""
        return join_steps(self._steps)
