"""Entropy of cross-attention, and the share of the source that it covers."""

from __future__ import annotations

from typing import final

import torch
from jaxtyping import Bool, Float
from torch import Tensor


@final
class AttentionFigures:
    """Means over all sentences so far.

    Entropy is in nats, of each target token's weights, in every layer and head; it is 0 where one token has all weight.
    Where the weights of a normalizer do not sum to 1 or are negative, it is that of `Attended.distribution`.

    Coverage is the mean over source tokens of min(1, sum of weights over target tokens), of the mean attention of all
    layers and heads: the inside of the coverage penalty of Wu et al. 2016, eq. 14, arXiv:1609.08144. At 1 no token was
    left out. End tokens count on both sides.
    """

    def __init__(self) -> None:
        self._entropy = self._covered = 0.0
        self._rows = self._columns = 0

    def update(
        self,
        weights: dict[str, Float[Tensor, "batch _ _ _"]],
        source_mask: Bool[Tensor, "batch source"],
        target_mask: Bool[Tensor, "batch target"],
    ) -> None:
        """Add sentences.

        Args:
            weights: by slot, (batch, heads, target, source); only those named `cross/...` count.
        """
        layers = [layer.float() for slot, layer in weights.items() if slot.startswith("cross/")]
        if not layers:  # an attention of one's own may have no weights
            return
        for layer in layers:
            entropy = torch.special.entr(layer).sum(-1).mean(1)[target_mask]
            self._entropy += float(entropy.double().sum())
            self._rows += len(entropy)
        mean = torch.stack([layer.mean(1) for layer in layers]).mean(0)  # (batch, target, source)
        covered = mean.masked_fill(~target_mask[..., None], 0.0).sum(1).clamp(max=1.0)[source_mask]
        self._covered += float(covered.double().sum())
        self._columns += len(covered)

    @property
    def has_weights(self) -> bool:
        """Whether the attention of any sentence had weights."""
        return self._rows > 0

    @property
    def figures(self) -> dict[str, float]:
        """The means, as an evaluation reports them."""
        return {"attention_entropy": self.entropy, "attention_coverage": self.coverage}

    @property
    def entropy(self) -> float:
        return self._entropy / max(self._rows, 1)

    @property
    def coverage(self) -> float:
        return self._covered / max(self._columns, 1)
