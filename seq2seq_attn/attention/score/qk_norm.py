"""QK-norm score: RMSNorm(W q) . RMSNorm(U k) / sqrt(d_k). Dehghani et al. 2023, section 2, arXiv:2302.05442."""

from __future__ import annotations

from typing import final

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from seq2seq_attn.attention.score.projected import ProjectedScore
from seq2seq_attn.nn.precision import at_least_float32

EPSILON = 1e-6  # added to a mean square: a vector of zeros stays one


@final
class QkNormScore(ProjectedScore):
    """`scaled_dot` of heads that are divided by their root mean square and multiplied by a gain for each number.

    The norm is that of Zhang and Sennrich 2019, arXiv:1910.07467; so are the paper's layer norms, without centering and
    bias. The heads of a layer share a gain of queries and one of keys, both 1 at first. Rotary positions turn the
    normalized heads.

    Args:
        num_kv_heads: number of heads of keys, each for a group of query heads (`attention.num_kv_heads`); None:
            `num_heads`.
        head_dim: d_k (`attention.head_dim`); None: query_dim / num_heads.
        bias: whether the two projections have a bias (`attention.qkv_bias`).
        scale: factor of the inner product (`attention.qk_scale`); None: 1 / sqrt(d_k).
    """

    def __init__(
        self,
        *,
        query_dim: int,
        key_dim: int,
        num_heads: int,
        num_kv_heads: int | None,
        head_dim: int | None,
        bias: bool,
        scale: float | None,
    ) -> None:
        super().__init__(
            query_dim=query_dim,
            key_dim=key_dim,
            num_heads=num_heads,
            num_kv_heads=num_kv_heads,
            head_dim=head_dim,
            bias=bias,
        )
        self.product_scale = scale if scale is not None else self.head_dim**-0.5  # of the projection it would be lost
        self.query_gain, self.key_gain = (nn.Parameter(torch.ones(self.head_dim)) for _ in range(2))

    def of_query(
        self, heads: Float[Tensor, "batch heads target head_dim"]
    ) -> Float[Tensor, "batch heads target head_dim"]:
        return rms_norm(heads, self.query_gain * self.product_scale)

    def of_keys(
        self, heads: Float[Tensor, "batch kv_heads source head_dim"]
    ) -> Float[Tensor, "batch kv_heads source head_dim"]:
        return rms_norm(heads, self.key_gain)


def rms_norm(x: Float[Tensor, "*rows width"], gain: Float[Tensor, " width"]) -> Float[Tensor, "*rows width"]:
    """Divide vectors by their root mean square, in float32 at least, and multiply their numbers by a gain."""
    wide = at_least_float32(x)
    return F.rms_norm(wide, gain.shape, gain.to(wide.dtype), EPSILON).to(x.dtype)
