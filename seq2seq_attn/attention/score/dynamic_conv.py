"""Dynamic convolution score: w_(s-t) . q_t, a score of each distance. Wu et al. 2019, section 4, arXiv:1901.10430."""

from __future__ import annotations

from typing import Annotated, final

from jaxtyping import Float, Int
from torch import Tensor, nn

from seq2seq_attn.attention.score.score import Score
from seq2seq_attn.attention.state import QueryKeyPositions
from seq2seq_attn.errors import UserError
from seq2seq_attn.nn.heads import split_heads
from seq2seq_attn.nn.linear import Linear


@final
class DynamicConvScore(Score):
    """The scores of 2 max_distance + 1 distances in each head, computed from the whole query; no key is read.

    Under the pattern `local` with k = max_distance, the softmax of a row is a kernel of 2 k + 1 weights that its
    token has computed, shared by the channels of a head; when causal, a kernel of k + 1 weights that ends at the token.
    Under a wider pattern, keys further away have the score of the largest distance.

    In the paper the softmax is over the whole kernel, and zeros are added at both ends of a sentence; here it is over
    the keys that are seen, so the weights of a row near an end sum to 1, too. The paper has a gated linear unit
    before the convolution, and computes the kernel from its output; here the values are a linear projection, and the
    kernel is computed from the input of the layer. The DropConnect of the paper is `attention.dropout`.

    Args:
        max_distance: positions on each side that have a score of their own. Distances are those of s and t themselves,
            whatever the `length_ratio` of the pattern.

    Raises:
        UserError: for a `max_distance` below 1.
    """

    wide_pairs: bool = False

    def __init__(self, *, query_dim: int, num_heads: int, max_distance: Annotated[int, "[1, 1000000]"]) -> None:
        super().__init__()
        check_max_distance(max_distance)
        self.num_heads, self.max_distance = num_heads, max_distance
        self.key_parts = 0
        self.project = Linear(query_dim, num_heads * (2 * max_distance + 1), bias=False)
        nn.init.xavier_uniform_(self.project.weight)

    def prepare_query(
        self, query: Float[Tensor, "batch target query_dim"]
    ) -> tuple[Float[Tensor, "batch heads target distances"]]:
        return (split_heads(self.project(query), self.num_heads),)

    def prepare_keys(self, keys: Float[Tensor, "batch source key_dim"]) -> tuple[()]:
        return ()

    def forward(
        self, query: tuple[Tensor, ...], keys: tuple[Tensor, ...], positions: QueryKeyPositions
    ) -> Float[Tensor, "*batch heads target source"]:
        by_distance = query[0]  # (*batch, heads, target, distances)
        index = distance_index(positions, self.max_distance).unsqueeze(-3)
        return by_distance.gather(-1, index.expand(*by_distance.shape[:-1], index.shape[-1]))


def check_max_distance(max_distance: int) -> None:
    """Refuse a kernel of less than a neighbour on each side."""
    if max_distance < 1:
        raise UserError(f"attention.score.max_distance={max_distance} must be at least 1; use 10, the k of local")


def distance_index(positions: QueryKeyPositions, max_distance: int) -> Int[Tensor, "*blocks target source"]:
    """Return key - query, clipped to `max_distance` on each side and counted from 0."""
    distance = positions.key.unsqueeze(-2) - positions.query.unsqueeze(-1)
    return distance.clamp(-max_distance, max_distance) + max_distance
