"""Lightweight convolution score: r_(s-t), one number for each distance. Wu et al. 2019, section 3, arXiv:1901.10430."""

from __future__ import annotations

from typing import Annotated, final

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from seq2seq_attn.attention.score.dynamic_conv import check_max_distance, distance_index
from seq2seq_attn.attention.score.score import Score
from seq2seq_attn.attention.state import QueryKeyPositions


@final
class LightweightConvScore(Score):
    """A learned number for each of 2 max_distance + 1 distances in each head, the same for every sentence and position.

    Under the pattern `local` with k = max_distance, the softmax of a row is a kernel of 2 k + 1 weights, shared by the
    channels of a head; when causal, a kernel of k + 1 weights that ends at the token. Under a wider pattern, keys
    further away have the number of the largest distance.

    In the paper the softmax is over the whole kernel, and zeros are added at both ends of a sentence; here it is over
    the keys that are seen, so the weights of a row near an end sum to 1, too. The paper has a gated linear unit
    before the convolution; here the values are a linear projection. The DropConnect of the paper is
    `attention.dropout`.

    Args:
        max_distance: positions on each side that have a number of their own. Distances are those of s and t
            themselves, whatever the `length_ratio` of the pattern.

    Raises:
        UserError: for a `max_distance` below 1.
    """

    reads_query: bool = False
    wide_pairs: bool = False

    def __init__(self, *, num_heads: int, max_distance: Annotated[int, "[1, 1000000]"]) -> None:
        super().__init__()
        check_max_distance(max_distance)
        self.max_distance = max_distance
        self.query_parts = self.key_parts = 0
        self.table = nn.Parameter(torch.empty(2 * max_distance + 1, num_heads))
        nn.init.xavier_uniform_(self.table)

    def prepare_query(self, query: Float[Tensor, "batch target query_dim"]) -> tuple[()]:
        return ()

    def prepare_keys(self, keys: Float[Tensor, "batch source key_dim"]) -> tuple[()]:
        return ()

    def forward(
        self, query: tuple[Tensor, ...], keys: tuple[Tensor, ...], positions: QueryKeyPositions
    ) -> Float[Tensor, "*batch heads target source"]:
        scores = F.embedding(distance_index(positions, self.max_distance), self.table)
        return scores.movedim(-1, -3).unsqueeze(0)
