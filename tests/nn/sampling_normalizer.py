"""A normalizer with simple log-probabilities and entropies, for tests of their sums."""

from __future__ import annotations

from typing import final

import torch
from torch import Tensor

from seq2seq_attn.attention.normalizer.normalizer import Normalized, Normalizer


@final
class SamplingNormalizer(Normalizer):
    """Softmax weights, with the number of a row as log-probability and twice that as entropy."""

    def forward(self, scores: Tensor, allowed: Tensor | None) -> Normalized:
        number = torch.arange(scores.shape[-2], dtype=scores.dtype).expand(scores.shape[:-1])
        return Normalized(scores.softmax(-1), number, 2 * number)
