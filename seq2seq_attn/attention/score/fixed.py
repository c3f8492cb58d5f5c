"""Fixed patterns of positions in seven heads, scaled dot in the others. Raganato et al. 2020, arXiv:2002.10260."""

from __future__ import annotations

from typing import final

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from seq2seq_attn.attention.score.score import Score
from seq2seq_attn.attention.state import QueryKeyPositions
from seq2seq_attn.errors import UserError
from seq2seq_attn.nn.heads import check_heads, split_heads
from seq2seq_attn.nn.projections import query_key_projections

FIXED_HEADS = ("current", "previous", "next", "left", "right", "end", "start")


@final
class FixedScore(Score):
    """Heads in the order of `FIXED_HEADS`, then the learned ones; scores are logarithms of the paper's weights.

    A token at position t of n attends to positions t, t - 1 and t + 1; to 0..t-2 with weights (s + 1)^3; to t+2..n-1
    with (n - s)^3; to all positions with (s + 1)^3, which prefers the end; to all with (n - s)^3, which prefers the
    start. The learned heads attend everywhere. A head without any such position gives zeros, as `next` and `right` do
    when causal.

    Args:
        bias: whether the two projections have a bias (`attention.qkv_bias`).
        scale: factor of the inner product (`attention.qk_scale`); None: 1 / sqrt(d_k).

    Raises:
        UserError: for fewer than eight heads, or a number of heads that does not divide the width of the queries.
    """

    never_positive: bool = True  # those of the fixed heads, which are logarithms
    reads_length: bool = True
    wide_pairs: bool = False

    def __init__(self, *, query_dim: int, key_dim: int, num_heads: int, bias: bool, scale: float | None) -> None:
        super().__init__()
        if num_heads <= len(FIXED_HEADS):
            raise UserError(
                f"fixed score has {len(FIXED_HEADS)} fixed heads and learns the others, got "
                f"attention.num_heads={num_heads}; take {len(FIXED_HEADS) + 1} or more"
            )
        check_heads("query_dim", query_dim, num_heads)
        self.num_learned = num_heads - len(FIXED_HEADS)
        width = query_dim // num_heads
        self.scale = scale if scale is not None else width**-0.5
        widths = self.num_learned * width, self.num_learned * width
        self.project_query, self.project_key = query_key_projections(query_dim, key_dim, *widths, bias=bias)

    def prepare_query(
        self, query: Float[Tensor, "batch target query_dim"]
    ) -> tuple[Float[Tensor, "batch learned target width"]]:
        return (split_heads(self.project_query(query) * self.scale, self.num_learned),)

    def prepare_keys(
        self, keys: Float[Tensor, "batch source key_dim"]
    ) -> tuple[Float[Tensor, "batch learned source width"]]:
        return (split_heads(self.project_key(keys), self.num_learned),)

    def forward(
        self, query: tuple[Tensor, ...], keys: tuple[Tensor, ...], positions: QueryKeyPositions
    ) -> Float[Tensor, "*batch heads target source"]:
        learned = query[0] @ keys[0].mT
        number = torch.promote_types(learned.dtype, torch.float32)
        key, position = positions.key.unsqueeze(-2).to(number), positions.query.unsqueeze(-1)
        end = positions.end.unsqueeze(-1).clamp(min=1)
        rising, falling = key + 1, (end - key).clamp(min=1)  # clamped in the padding only, which is hidden
        # Divided by the largest weight of a head: softmax ignores a constant, and half precision keeps its digits for
        # the positions that count.
        fixed = torch.broadcast_tensors(
            *[torch.zeros_like(key)] * 3,
            3 * (rising / (position - 1).clamp(min=1)).log(),
            3 * (falling / (end - position - 2).clamp(min=1)).log(),
            3 * (rising / end).log(),
            3 * (falling / end).log(),
        )
        fixed = torch.stack(fixed, -3)
        return torch.cat([fixed.expand(*learned.shape[:-3], *fixed.shape[-3:]), learned], -3)

    def visible(self, positions: QueryKeyPositions) -> Bool[Tensor, "*batch heads target source"]:
        ahead = positions.key.unsqueeze(-2) - positions.query.unsqueeze(-1)
        every = torch.ones_like(ahead, dtype=torch.bool)
        fixed = [ahead == 0, ahead == -1, ahead == 1, ahead <= -2, ahead >= 2, every, every]
        return torch.stack(fixed + [every] * self.num_learned, -3).unsqueeze(0)
