"""Text infilling and sentence permutation; the target is the text. Lewis et al. 2020, section 2.2, arXiv:1910.13461."""

from __future__ import annotations

from typing import Annotated, final

import numpy as np

from seq2seq_attn.objective.objective import NoiseVocabulary, Objective


@final
class Infilling(Objective):
    """A text of n tokens loses round(noise_density n) of them in spans, whose lengths have a Poisson distribution.

    Each span becomes one mask, the first sentinel; a span of length 0 inserts one. No two spans touch.

    Args:
        noise_density: share of the tokens that are lost.
        mean_span_length: of the Poisson distribution.
        permute_sentences: whether the sentences of a text are shuffled first.
    """

    num_sentinels = 1

    def __init__(
        self,
        *,
        noise_density: Annotated[float, "(0, 1)"],
        mean_span_length: Annotated[float, "(0, inf)"],
        permute_sentences: bool,
    ) -> None:
        self.noise_density, self.mean_span_length = noise_density, mean_span_length
        self.permute_sentences = permute_sentences

    def __call__(
        self, token_ids: list[int], vocabulary: NoiseVocabulary, generator: np.random.Generator
    ) -> tuple[list[int], list[int]]:
        read = permuted(token_ids, vocabulary.sentence_ends, generator) if self.permute_sentences else token_ids
        lengths = self._lengths(round(len(read) * self.noise_density), generator)
        kept = len(read) - sum(lengths)
        before = sorted(generator.choice(kept + 1, min(len(lengths), kept + 1), replace=False).tolist())
        source: list[int] = []
        start = 0
        # where there are more spans than places for them, the last are one
        lengths = [*lengths[: len(before) - 1], sum(lengths[len(before) - 1 :])] if before else []
        for number, length in zip(np.diff([0, *before]).tolist(), lengths, strict=True):
            source += [*read[start : start + number], vocabulary.sentinels[0]]
            start += number + length
        return source + read[start:], token_ids

    def _lengths(self, lost: int, generator: np.random.Generator) -> list[int]:
        """Return the lengths of spans, in the order of the text, which lose so many tokens."""
        lengths: list[int] = []
        while (left := lost - sum(lengths)) > 0:
            lengths.append(min(left, int(generator.poisson(self.mean_span_length))))
        return lengths


def permuted(token_ids: list[int], ends: frozenset[int], generator: np.random.Generator) -> list[int]:
    """Return the sentences in a random order."""
    fences = [0, *(i + 1 for i, token in enumerate(token_ids) if token in ends and i + 1 < len(token_ids))]
    sentences = [token_ids[a:b] for a, b in zip(fences, [*fences[1:], len(token_ids)], strict=True)]
    return [token for number in generator.permutation(len(sentences)) for token in sentences[number]]
