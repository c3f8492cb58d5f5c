"""The mean of the places that are real: one vector for a sentence of any length."""

from jaxtyping import Bool, Float
from torch import Tensor


def masked_mean(
    x: Float[Tensor, "batch length dim"], mask: Bool[Tensor, "batch length"]
) -> Float[Tensor, "batch dim"]:
    """Zeros for a sentence without any real place; what stands where `mask` is False is not read."""
    total = x.masked_fill(~mask.unsqueeze(-1), 0.0).sum(1)
    return total / mask.sum(1, keepdim=True).clamp(min=1)
