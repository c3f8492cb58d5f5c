"""Local-p pattern: a Gaussian around a predicted position. Luong et al. 2015, eq. 9-10, arXiv:1508.04025."""

from __future__ import annotations

from typing import Annotated, ClassVar, final

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from seq2seq_attn.attention.pattern.pattern import Pattern, check_k
from seq2seq_attn.nn.linear import Linear
from seq2seq_attn.nn.precision import at_least_float32
from seq2seq_attn.nn.tanh import tanh


@final
class LocalPPattern(Pattern):
    """p = S sigmoid(v . tanh(W q)); keys |s - p| <= k; weights times exp(-(s - p)^2 / (2 sigma^2)), sigma = k / 2.

    S is the length of the sentence, or the query's position + 1 when causal. Rows are not normalized again and sum to
    less than 1. Positions and p count from 0; the authors' code counts both from 1, with p = S sigmoid(..) + 1. There
    the centre of the window is p rounded down; here, as in the paper, it is p.

    Args:
        k: the paper's D, keys on each side of the predicted position.

    Raises:
        UserError: for k below 1.
    """

    reweighs: ClassVar[bool] = True
    reads_query: ClassVar[bool] = True

    def __init__(self, *, query_dim: int, k: Annotated[int, "[1, 1000000]"]) -> None:
        super().__init__()
        check_k(k)
        self.k = k
        self.listed_from = 16 * (2 * k + 1)  # measured on one CPU core, as that of top_blocks
        self.project_query = Linear(query_dim, query_dim, bias=False)
        self.vector = nn.Parameter(torch.empty(1, query_dim))
        nn.init.xavier_uniform_(self.project_query.weight)
        nn.init.xavier_uniform_(self.vector)

    def centre(
        self,
        query: Float[Tensor, "batch target query_dim"],
        aligned: Int[Tensor, " target"],
        end: Int[Tensor, "#batch target"],
    ) -> Float[Tensor, "batch target"]:
        logit = tanh(self.project_query(query)) @ self.vector[0]
        # bfloat16 has no number between 128 and 129: positions need a wider type.
        return end * torch.sigmoid(at_least_float32(logit))

    def allowed(
        self,
        centre: Float[Tensor, "#batch target"],
        key_position: Int[Tensor, " source"] | Int[Tensor, "#batch target source"],
    ) -> Bool[Tensor, "#batch target source"]:
        return (key_position - centre[..., None]).abs() <= self.k

    def listed(self, centre: Float[Tensor, "#batch target"]) -> Int[Tensor, "#batch target listed"]:
        first = (centre.detach() - self.k).ceil().long()
        window = first[..., None] + torch.arange(2 * self.k + 1, device=first.device)
        return window.masked_fill(~self.allowed(centre.detach(), window), -1)

    def reweigh(
        self,
        weights: Float[Tensor, "batch heads target source"],
        centre: Float[Tensor, "#batch target"],
        key_position: Int[Tensor, " source"] | Int[Tensor, "#batch target source"],
    ) -> Float[Tensor, "batch heads target source"]:
        deviations = (key_position - centre[..., None]) / (self.k / 2)  # (batch, target, source)
        return weights * torch.exp(-deviations.square() / 2).to(weights.dtype)[:, None]
