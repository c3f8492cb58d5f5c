"""The contract of a search: a model and a source batch to translations."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import NamedTuple

from jaxtyping import Bool, Int
from torch import Tensor

from seq2seq_attn.model.decoding_model import DecodingModel
from seq2seq_attn.tokenizer.sentencepiece import SentencePieceTokenizer


class Hypothesis(NamedTuple):
    """Tokens without begin and end; their log-probability in nats, end token included; what it is ranked by."""

    token_ids: list[int]
    log_prob: float
    score: float


class TargetVocabulary(NamedTuple):
    """What a search knows of the tokens that it chooses from.

    Attributes:
        banned_ids: tokens that no translation holds.
        detokenize: texts of lists of tokens, for a search that compares texts.
    """

    bos_id: int
    eos_id: int
    banned_ids: tuple[int, ...]
    detokenize: Callable[[list[list[int]]], list[str]]

    @classmethod
    def of(cls, tokenizer: SentencePieceTokenizer) -> TargetVocabulary:
        banned = (tokenizer.pad_id, tokenizer.bos_id, tokenizer.unk_id)
        return cls(tokenizer.bos_id, tokenizer.eos_id, banned, tokenizer.decode_target)


class Search(ABC):
    """No weights, no state: `model` must be in evaluation mode."""

    @property
    def hypotheses_at_once(self) -> int:
        """Most rows that a sentence takes in a step."""
        return 1

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
        """The translations of each sentence, best first, at least one; the sentences in order.

        Args:
            prefixes: tokens that the translation of each sentence begins with.
        """
