"""A normalizer with log-probabilities and entropies that can be added up by hand."""

from __future__ import annotations

from typing import final

import torch
from torch import Tensor

from seq2seq_attn.attention.normalizer.normalizer import Normalized, Normalizer


@final
class SamplingNormalizer(Normalizer):
    """Weights of a softmax; a row's number as its log-probability, twice that as its entropy."""

    def forward(self, scores: Tensor, allowed: Tensor | None) -> Normalized:
        number = torch.arange(scores.shape[-2], dtype=scores.dtype).expand(scores.shape[:-1])
        return Normalized(scores.softmax(-1), number, 2 * number)
