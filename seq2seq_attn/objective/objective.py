"""The contract of a training objective, which makes a source and a target of one text."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import NamedTuple, final

import numpy as np

from seq2seq_attn.errors import UserError
from seq2seq_attn.tokenizer.sentencepiece import SentencePieceTokenizer

TRIES = 20  # of noise that makes too many tokens
SENTENCE_ENDS = (".", "!", "?", "…", "。", "！", "？")


class NoiseVocabulary(NamedTuple):
    """The tokens that noise needs: marks of what is left out, and the ids that end a sentence."""

    sentinels: list[int]
    sentence_ends: frozenset[int]


class Objective(ABC):
    """Noise for one text; it draws from the given generator alone.

    Attributes:
        num_sentinels: number of marks of left-out text that the vocabulary must have.
    """

    num_sentinels: int

    @abstractmethod
    def __call__(
        self, token_ids: list[int], vocabulary: NoiseVocabulary, generator: np.random.Generator
    ) -> tuple[list[int], list[int]]:
        """Return the source and the target that are made of a text, all without begin and end tokens."""

    def vocabulary(self, tokenizer: SentencePieceTokenizer) -> NoiseVocabulary:
        """Return the tokens of a tokenizer that the noise needs.

        Raises:
            UserError: if it has too few sentinels.
        """
        sentinels, model = tokenizer.sentinels, tokenizer.target_model
        if len(sentinels) < self.num_sentinels:
            raise UserError(
                f"{type(self).__name__} needs {self.num_sentinels} sentinels, and the tokenizer that is kept or given "
                f"has {len(sentinels)}; leave out tokenizer.model, or use init_from.tokenizer=new"
            )
        ends = (i for i in range(model.get_piece_size()) if model.id_to_piece(i).endswith(SENTENCE_ENDS))
        return NoiseVocabulary(sentinels[: self.num_sentinels], frozenset(ends))


@final
class Noise:
    """The objective as a function of the seed, the epoch and the row, so that a resumed run sees the same noise."""

    def __init__(self, objective: Objective, tokenizer: SentencePieceTokenizer, seed: int) -> None:
        self.objective, self.vocabulary, self.seed = objective, objective.vocabulary(tokenizer), seed

    def __call__(
        self, row: int, token_ids: list[int], epoch: int | None, max_length: int | None = None
    ) -> tuple[list[int], list[int]]:
        """Return a source and a target of this row.

        Args:
            epoch: from 0; None: of an evaluation, which always has the same noise.
            max_length: most tokens of either, with the end or begin token; noise that makes more is drawn again, and
                at last cut. None: any.
        """
        generator = np.random.default_rng([self.seed, 0 if epoch is None else epoch + 1, row])
        source, target = self.objective(token_ids, self.vocabulary, generator)
        for _ in range(TRIES):
            if max_length is None or max(len(source), len(target)) < max_length:
                return source, target
            source, target = self.objective(token_ids, self.vocabulary, generator)
        most = None if max_length is None else max_length - 1
        return source[:most], target[:most]
