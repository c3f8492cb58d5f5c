"""Guided alignment of a head: Chen et al. 2016, arXiv:1607.01628; Garg et al. 2019, arXiv:1909.02074."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from jaxtyping import Bool, Float
from torch import Tensor

from seq2seq_attn.nn.precision import at_least_float32

if TYPE_CHECKING:
    from seq2seq_attn.attention.normalizer.normalizer import Normalizer


class Guide(NamedTuple):
    """The links that the weights of one head should agree with.

    Attributes:
        layer: number of the decoder's layer, from 0.
        head: number of the head, from 0.
        links: True where the token that a step writes is linked to a source token.
    """

    layer: int
    head: int
    links: Bool[Tensor, "batch target source"]

    def at(self, step: int) -> Guide:
        """Return the guide of one step."""
        return self._replace(links=self.links[:, step : step + 1])

    def loss(
        self,
        normalizer: Normalizer,
        scores: Float[Tensor, "batch score_heads target source"],
        allowed: Bool[Tensor, "#batch #score_heads #target #source"] | None,
        weights: Float[Tensor, "batch heads target source"],
    ) -> Float[Tensor, "batch target"]:
        """Return the loss of each row, at least in float32; 0 for a row without links to keys that it may attend to.

        The target of a row is the uniform distribution over its linked keys (Garg et al. 2019, section 4.2).
        """
        links = self.links
        if allowed is not None:
            allowed = allowed[:, self.head if allowed.shape[1] > 1 else 0]
            links = links & allowed
        linked = at_least_float32(links.to(scores.dtype))
        target = linked / linked.sum(-1, keepdim=True).clamp(min=1)
        scores, weights = (at_least_float32(x[:, self.head if x.shape[1] > 1 else 0]) for x in (scores, weights))
        loss = normalizer.alignment_loss(scores, weights, allowed, target, self.head)
        return loss.masked_fill(~links.any(-1), 0.0)
