"""The history of earlier steps that some attentions read: a value that goes into a step and comes out of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import final

from jaxtyping import Float, Int
from torch import Tensor, nn

from seq2seq_attn.errors import UserError


class ReadsHistory:
    """A score or normalizer that depends on the weights of the steps before.

    Its history holds a number for each key, 0 where the key is hidden. Its `forward` takes it as `history`, which has
    the shape of the scores, so that hypotheses that share a memory are rows of one sentence; None: before the first
    step. A normalizer also takes `in_search` (see `History`).
    """

    def first_history(self, zeros: Float[Tensor, "*rows source"]) -> Float[Tensor, "*rows source"]:
        """Return the history before the first step."""
        return zeros

    def next_history(
        self, history: Float[Tensor, "batch heads target source"], weights: Float[Tensor, "batch heads target source"]
    ) -> Float[Tensor, "batch heads target source"]:
        """Return the history after a step with these weights, which are those before dropout."""
        return weights


@final
@dataclass(frozen=True)
class History:
    """The histories of the parts of a layer, a row for each hypothesis.

    Attributes:
        score, normalizer: what the part remembers; None: nothing.
        in_search: whether a search chooses the tokens, instead of a given target.
    """

    score: Float[Tensor, "rows heads target source"] | None
    normalizer: Float[Tensor, "rows heads target source"] | None
    in_search: bool = False

    @classmethod
    def first(cls, score: nn.Module, normalizer: nn.Module, zeros: Float[Tensor, "batch heads 1 source"]) -> History:
        """Return the history before the first step."""
        return cls(first_of(score, zeros), first_of(normalizer, zeros))

    def next(
        self, score: nn.Module, normalizer: nn.Module, weights: Float[Tensor, "batch heads target source"]
    ) -> History:
        """Return the history after a step with these weights."""
        return replace(
            self, score=next_of(score, self.score, weights), normalizer=next_of(normalizer, self.normalizer, weights)
        )

    def select(self, rows: Int[Tensor, " rows"]) -> History:
        """Return the hypotheses `rows`, in that order."""
        return self._each(lambda history: history[rows])

    def first_rows(self, count: int) -> History:
        """Return the history of the first queries of each sentence."""
        return self._each(lambda history: history[:, :, :count])

    def by_sentence(self, sentences: int) -> History:
        """Turn hypotheses that are neighbours into queries of one sentence."""
        return self._each(lambda history: history.unflatten(0, (sentences, -1)).squeeze(3).transpose(1, 2))

    def by_hypothesis(self) -> History:
        """Turn queries of one sentence into rows of one query each."""
        return self._each(lambda history: history.transpose(1, 2).flatten(0, 1).unsqueeze(2))

    def _each(self, change: Callable[[Tensor], Tensor]) -> History:
        score, normalizer = (None if part is None else change(part) for part in (self.score, self.normalizer))
        return History(score, normalizer, self.in_search)


def first_of(part: nn.Module, zeros: Float[Tensor, "batch heads 1 source"]) -> Tensor | None:
    return part.first_history(zeros) if isinstance(part, ReadsHistory) else None


def next_of(
    part: nn.Module,
    history: Float[Tensor, "batch heads target source"] | None,
    weights: Float[Tensor, "batch heads target source"],
) -> Tensor | None:
    return part.next_history(history, weights) if isinstance(part, ReadsHistory) and history is not None else None


def reads_history(score: nn.Module, normalizer: nn.Module) -> bool:
    """Return whether a part reads the weights of the steps before.

    Raises:
        UserError: for one inside another part, which does not pass the history on.
    """
    for part in (score, normalizer):
        for inner in part.modules():
            if isinstance(inner, ReadsHistory) and inner is not part:
                raise UserError(
                    f"{type(inner).__name__} reads the weights of the steps before, which {type(part).__name__} does "
                    "not pass on; use it as attention/score itself, not within another"
                )
    return isinstance(score, ReadsHistory) or isinstance(normalizer, ReadsHistory)


def check_no_history(layer: nn.Module) -> None:
    """Refuse an attention layer with a history.

    Raises:
        UserError: for a part that reads the weights of the steps before.
    """
    for part in layer.modules():
        if isinstance(part, ReadsHistory):
            raise UserError(
                f"{type(part).__name__} reads the weights of the steps before, but this model attends from a whole "
                "sentence at once; use model=rnn, or another attention"
            )
