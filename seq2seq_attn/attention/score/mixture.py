"""Mixture of scores: their sum with learned shares that sum to 1. Tay et al. 2020, arXiv:2005.00743."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial, reduce
from itertools import islice
from typing import Any, cast, final

import torch
from jaxtyping import Float
from torch import Tensor, nn

from seq2seq_attn.attention.score.score import Score, check_taken
from seq2seq_attn.attention.state import QueryKeyPositions
from seq2seq_attn.errors import UserError
from seq2seq_attn.factory import build_part, redefines


@final
class MixtureScore(Score):
    """A sum of scores; the shares are a softmax over one learned number for each score and head, equal at first.

    One for each head, as the paper indexes its alphas; the authors' code has one for each layer.

    Args:
        scores: partials by name, each of which takes the sizes that its signature names.
        num_kv_heads, head_dim, bias, scale: passed to the scores that take them (`attention.num_kv_heads`,
            `attention.head_dim`, `attention.qkv_bias`, `attention.qk_scale`).

    Raises:
        UserError: for an empty mixture, a score that hides positions, or an option that no score takes.
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
        scores: dict[str, partial[Any]],
    ) -> None:
        super().__init__()
        optional = {"num_kv_heads": num_kv_heads, "head_dim": head_dim, "scale": scale}
        check_scores(scores, optional)
        sizes = {"query_dim": query_dim, "key_dim": key_dim, "num_heads": num_heads, "bias": bias, **optional}
        self.scores = nn.ModuleDict({name: build_part(score, **sizes) for name, score in scores.items()})
        self.logits = nn.Parameter(torch.zeros(len(scores), num_heads))
        self.query_parts = sum(score.query_parts for score in self._each())
        self.key_parts = sum(score.key_parts for score in self._each())
        self.reads_query = any(score.reads_query for score in self._each())
        self.wide_pairs = any(score.wide_pairs and not score.inner_product for score in self._each())
        self.never_positive = all(score.never_positive for score in self._each())
        self.max_length = min((s.max_length for s in self._each() if s.max_length is not None), default=None)

    def _each(self) -> Iterable[Score]:
        return cast(Iterable[Score], self.scores.values())

    def prepare_query(
        self, query: Float[Tensor, "batch target query_dim"]
    ) -> tuple[Float[Tensor, "batch _ target _"], ...]:
        return tuple(part for score in self._each() for part in score.prepare_query(query))

    def prepare_keys(
        self, keys: Float[Tensor, "batch source key_dim"]
    ) -> tuple[Float[Tensor, "batch _ source _"], ...]:
        return tuple(part for score in self._each() for part in score.prepare_keys(keys))

    def forward(
        self, query: tuple[Tensor, ...], keys: tuple[Tensor, ...], positions: QueryKeyPositions
    ) -> Float[Tensor, "*batch heads target source"]:
        queries, memories = iter(query), iter(keys)
        shares = self.logits.softmax(0)[..., None, None]  # (scores, heads, 1, 1)
        mixed = []
        for share, score in zip(shares, self._each(), strict=True):
            score_query = tuple(islice(queries, score.query_parts))
            score_keys = tuple(islice(memories, score.key_parts))
            mixed.append(share * score(score_query, score_keys, positions))
        return reduce(torch.add, mixed)  # some have a batch of 1


def check_scores(scores: dict[str, partial[Any]], optional: dict[str, Any]) -> None:
    if not scores:
        raise UserError("a mixture needs scores; add one with attention/score@attention.score.scores.first=SCORE")
    for name, score in scores.items():
        kind = cast(type[Score], score.func)
        if redefines(kind, Score.visible):
            raise UserError(
                f"a mixture adds scores, but {kind.__name__} hides positions; "
                f"take another score than attention.score.scores.{name}, or use it alone"
            )
        if redefines(kind, Score.query_at):
            raise UserError(
                f"a mixture gives its scores no query positions, which {kind.__name__} needs; take another score than "
                f"attention.score.scores.{name}, or use it alone"
            )
    check_taken(scores.values(), **optional)
