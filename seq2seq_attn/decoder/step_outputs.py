"""Collect what attention says step by step."""

from __future__ import annotations

from typing import final

import torch
from torch import Tensor

from seq2seq_attn.attention.state import Attended


@final
class StepOutputs:
    """Weights, log-probabilities and entropies of the steps so far, where there are any."""

    def __init__(self) -> None:
        self._steps: list[Attended] = []

    def add(self, attended: Attended) -> None:
        self._steps.append(attended)

    def joined(self, slot: str) -> tuple[dict[str, Tensor], Tensor | None, Tensor | None]:
        """Weights by slot, log-probability and entropy, joined along the target."""
        weights = self._join("weights", dim=2)
        return {} if weights is None else {slot: weights}, self._join("log_prob", 1), self._join("entropy", 1)

    def _join(self, field: str, dim: int) -> Tensor | None:
        found = [getattr(step, field) for step in self._steps]
        return None if not found or found[0] is None else torch.cat(found, dim)
