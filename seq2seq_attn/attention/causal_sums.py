"""Causal attention whose weights are inner products: sums over the keys up to each query, in O(n).

Katharopoulos et al. 2020, section 3.3, arXiv:2006.16236.
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

CHUNK = 64  # positions that are computed over all pairs


def causal_sums(
    query: Float[Tensor, "batch heads length features"],
    keys: Float[Tensor, "batch heads length features"],
    values: Float[Tensor, "batch heads length width"],
    before: Float[Tensor, "batch heads features width"] | None = None,
    *,
    chunk: int = CHUNK,
) -> Float[Tensor, "batch heads length width"]:
    """Return phi(q_t) (before + sum over s <= t of phi(k_s) v_s^T), by chunks.

    Within a chunk all pairs are computed; the chunks before it contribute by one sum, so that no sum is kept for each
    position.

    Args:
        before: the sum of the positions before these; None: 0.
        chunk: positions of a chunk.
    """
    length = query.shape[2]
    if before is None:
        before = query.new_zeros(*query.shape[:2], query.shape[3], values.shape[3])
    if length <= chunk:
        return (query @ keys.mT).tril() @ values + query @ before
    padding = (0, 0, 0, -length % chunk)
    query, keys, values = (F.pad(x, padding).unflatten(2, (-1, chunk)) for x in (query, keys, values))
    sums = keys.mT @ values  # (batch, heads, chunks, features, width)
    earlier = torch.cat([before.unsqueeze(2), sums[:, :, :-1]], 2).cumsum(2)
    return ((query @ keys.mT).tril() @ values + query @ earlier).flatten(2, 3)[:, :, :length]
