"""What each head of an attention does, in numbers and words: entropy, diagonal, sink, previous token, words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor


def confidences(weights: Float[Tensor, "heads rows columns"]) -> Float[Tensor, " heads"]:
    """Return the largest weight of a row as a distribution, mean of the rows that have any.

    Voita et al. 2019 leave the end token out; here a head whose weight is all on it has confidence 1.
    """
    wide, _, factors = distributions(weights)
    return (wide.amax(-1) * factors).sum(-1)


def distributions(
    weights: Float[Tensor, "heads rows columns"],
) -> tuple[Float[Tensor, "heads rows columns"], Float[Tensor, "heads rows"], Float[Tensor, "heads rows"]]:
    """Return absolute weights, their sums, and factors with which a sum over rows is a mean of distributions."""
    wide = weights.abs()
    totals = wide.sum(-1)
    factors = torch.where(totals > 0, 1 / totals, 0)
    return wide, totals, factors / (totals > 0).sum(-1, keepdim=True).clamp(min=1)


def summaries(
    weights: Float[Tensor, "heads rows columns"], kind: str, words: Sequence[int], word_texts: Sequence[str]
) -> list[dict[str, Any]]:
    """Return what each head does, of the absolute weights of the rows that have any, as distributions.

    Args:
        words: word of each column, an index of `word_texts`.
    """
    heads, rows, columns = weights.shape
    wide, totals, factors = distributions(weights)
    entropy = (torch.special.entr(wide).sum(-1) * factors + torch.special.entr(totals).neg() * factors).sum(-1)
    by_column = (factors[:, None] @ wide)[:, 0]
    across, down = (columns - 1, max(1, rows - 1)) if kind == "cross" else (1, 1)
    centre = torch.arange(rows) * across  # of each row, times `down`: a fraction would be rounded, and miss a column
    near = -(-centre // down)[:, None] + torch.arange(-1, 2)  # all columns within 1 are among these
    counted = (near >= 0) & (near < columns) & ((down * near - centre[:, None]).abs() <= down)
    near_weights = wide.gather(2, near.clamp(0, columns - 1).expand(heads, -1, -1)) * counted
    diagonal = (near_weights.sum(-1) * factors).sum(-1)
    previous = (wide.diagonal(-1, 1, 2) * factors[:, 1 : columns + 1]).sum(-1)
    by_word = by_column.new_zeros(heads, len(word_texts)).index_add_(1, torch.tensor(words), by_column)
    shares, most = by_word.topk(min(3, len(word_texts)))
    return [
        {
            "entropy": float(entropy[head]),
            "diagonal": float(diagonal[head]),
            "sink": float(by_column[head, 0 if kind == "self" else -1]),
            "previous": float(previous[head]),
            "mostly": [
                {"word": word_texts[word], "share": share}
                for word, share in zip(most[head].tolist(), shares[head].tolist(), strict=True)
                if share > 0
            ],
        }
        for head in range(heads)
    ]
