"""Differential attention: softmax(q1 k1) - lambda softmax(q2 k2). Ye et al. 2024, eq. 1-3, arXiv:2410.05258."""

from __future__ import annotations

import math
from typing import ClassVar, final

import torch
from jaxtyping import Float
from torch import Tensor, nn

from seq2seq_attn.attention.mix.mix import Mix


@final
class DifferentialMix(Mix):
    """Two sets of weights for each head of the values; the second is subtracted, and what both attend to cancels.

    lambda = exp(q1 . k1) - exp(q2 . k2) + lambda_init, of four learned vectors that the heads of a layer share, and
    lambda_init = 0.8 - 0.6 exp(-0.3 layer), with layers from 0. The context of each head is divided by its root mean
    square, scaled by weights that the heads share, as in the authors' code, and multiplied by 1 - lambda_init. Weights
    may be negative; a row of them sums to 1 - lambda.

    Args:
        head_dim: width of the queries and keys of a score head, and of the four vectors.
        value_head_dim: width of the values of a head.
    """

    score_heads_per_head: ClassVar[int] = 2
    sums_to_one: ClassVar[bool] = False

    def __init__(self, *, head_dim: int, value_head_dim: int, layer: int) -> None:
        super().__init__()
        self.lambda_init = 0.8 - 0.6 * math.exp(-0.3 * layer)
        self.lambda_query = nn.Parameter(torch.empty(2, head_dim))
        self.lambda_key = nn.Parameter(torch.empty(2, head_dim))
        for vectors in (self.lambda_query, self.lambda_key):
            nn.init.normal_(vectors, std=0.1)
        self.norm = nn.RMSNorm(value_head_dim, eps=1e-5)

    def after(
        self, weights: Float[Tensor, "*batch score_heads target source"]
    ) -> Float[Tensor, "*batch heads target source"]:
        first, second = weights.chunk(2, -3)
        grown = (self.lambda_query * self.lambda_key).sum(-1).exp()
        return first - (grown[0] - grown[1] + self.lambda_init) * second

    def context(self, context: Float[Tensor, "batch heads target width"]) -> Float[Tensor, "batch heads target width"]:
        normed = self.norm(context.to(self.norm.weight.dtype)).to(context.dtype)  # the types differ under autocast
        return normed * (1 - self.lambda_init)
