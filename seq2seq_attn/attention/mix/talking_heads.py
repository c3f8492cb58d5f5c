"""Talking heads: softmax(scores P_l) P_w, both over the heads. Shazeer et al. 2020, section 4, arXiv:2003.02436."""

from __future__ import annotations

from typing import ClassVar, final

import torch
from jaxtyping import Float
from torch import Tensor, nn

from seq2seq_attn.attention.mix.mix import Mix


@final
class TalkingHeadsMix(Mix):
    """A square matrix over the heads before the normalizer, and one after it.

    Queries, scores and values have the same number of heads (the paper's h_k = h = h_v). Both matrices are the identity
    at first, so that training starts from the attention without them.
    """

    sums_to_one: ClassVar[bool] = False

    def __init__(self, *, num_heads: int) -> None:
        super().__init__()
        self.score_matrix = nn.Parameter(torch.eye(num_heads))
        self.weight_matrix = nn.Parameter(torch.eye(num_heads))

    def before(
        self, scores: Float[Tensor, "*batch heads target source"]
    ) -> Float[Tensor, "*batch heads target source"]:
        return mix_heads(self.score_matrix, scores)

    def after(
        self, weights: Float[Tensor, "*batch heads target source"]
    ) -> Float[Tensor, "*batch heads target source"]:
        return mix_heads(self.weight_matrix, weights)


def mix_heads(
    matrix: Float[Tensor, "heads mixed"], x: Float[Tensor, "*batch heads target source"]
) -> Float[Tensor, "*batch mixed target source"]:
    """Return sums over the heads, weighted by the columns of a matrix."""
    return torch.einsum("...hts,hm->...mts", x, matrix)
