"""Vectors divided by their length."""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from seq2seq_attn.nn.precision import at_least_float32

LEAST_NORM = 1e-6  # by which a shorter vector is divided, so that its gradient stays bounded


def unit_length(x: Float[Tensor, "*rows width"]) -> Float[Tensor, "*rows width"]:
    """Divide vectors by their length, in float32 at least, for half precision would take a short one for 0."""
    return F.normalize(at_least_float32(x), dim=-1, eps=LEAST_NORM).to(x.dtype)
