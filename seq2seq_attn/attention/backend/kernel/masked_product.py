"""Context of a softmax over inner products where a mask says what is seen: n x n numbers, in one call."""

from __future__ import annotations

from jaxtyping import Bool, Float
from torch import Tensor
from torch.nn import functional as F


def masked_product(
    query: Float[Tensor, "batch heads target width"],
    keys: Float[Tensor, "batch heads source width"],
    values: Float[Tensor, "batch heads source value_width"],
    allowed: Bool[Tensor, "#batch 1 #target source"] | Float[Tensor, "#batch 1 #target source"] | None,
) -> Float[Tensor, "batch heads target value_width"]:
    """`allowed` None: everything is seen; numbers: 0 or -inf. A row that sees nothing gets zeros, not NaN."""
    return F.scaled_dot_product_attention(query, keys, values, attn_mask=allowed, scale=1.0)
