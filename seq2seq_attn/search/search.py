"""The contract of a search, which turns a source batch into translations with a model."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import NamedTuple

from jaxtyping import Bool, Int
from torch import Tensor

from seq2seq_attn.model.decoding_model import DecodingModel
from seq2seq_attn.search.limits import Limits
from seq2seq_attn.tokenizer.sentencepiece import SentencePieceTokenizer


class Hypothesis(NamedTuple):
    """A translation.

    Attributes:
        token_ids: without begin and end tokens.
        log_prob: log-probability in nats, end token included.
        score: what translations of a sentence are ranked by.
    """

    token_ids: list[int]
    log_prob: float
    score: float


def by_score(hypothesis: Hypothesis) -> tuple[bool, float]:
    """Return a key that sorts the best first; before it comes a score that is NaN, so that no search hides it."""
    return not math.isnan(hypothesis.score), -hypothesis.score


class TargetVocabulary(NamedTuple):
    """The part of the target vocabulary that a search needs.

    Attributes:
        banned_ids: ids that may not occur in a translation.
        detokenize: function from lists of ids to texts, for searches that compare texts.
    """

    bos_id: int
    eos_id: int
    banned_ids: tuple[int, ...]
    detokenize: Callable[[list[list[int]]], list[str]]

    @classmethod
    def of(cls, tokenizer: SentencePieceTokenizer) -> TargetVocabulary:
        banned = (tokenizer.pad_id, tokenizer.bos_id, tokenizer.unk_id, *tokenizer.sentinels)
        return cls(tokenizer.bos_id, tokenizer.eos_id, banned, tokenizer.decode_target)


class Search(ABC):
    """A search without weights or state; the model must be in evaluation mode."""

    @property
    def hypotheses_at_once(self) -> int:
        """Largest number of rows of a sentence in a decoding step."""
        return 1

    @property
    def most_hypotheses(self) -> int:
        """Largest number of translations of a sentence."""
        return 1

    @property
    def length_limits(self) -> Limits | None:
        """Limits of the length of a translation; None: they are not known."""
        return getattr(self, "limits", None)

    @abstractmethod
    def __call__(
        self,
        model: DecodingModel,
        source: Int[Tensor, "batch source"],
        source_mask: Bool[Tensor, "batch source"],
        target: TargetVocabulary,
        *,
        prefixes: Sequence[Sequence[int]] | None = None,
    ) -> list[list[Hypothesis]]:
        """Return the translations of each sentence, at least one, best first.

        Args:
            prefixes: ids that the translation of each sentence must begin with.
        """
