"""Span corruption: spans become sentinels; the target restores them. Raffel et al. 2020, 3.1.4, arXiv:1910.10683."""

from __future__ import annotations

from typing import Annotated, final

import numpy as np
from jaxtyping import Int64

from seq2seq_attn.objective.objective import NoiseVocabulary, Objective


@final
class Denoising(Objective):
    """A text of n tokens loses round(noise_density n) of them, at least one, in spans of a mean length.

        source  Thank you <0> me to your party <1> week
        target  <0> for inviting <1> last <2>

    Every choice of the spans is equally likely. In the paper's code the last span is always at the end of the text,
    which has 512 tokens; a sentence, which loses one span, would always lose its end.

    Args:
        noise_density: share of the tokens that are lost.
        mean_span_length: mean length of a lost span.
        num_sentinels: number of sentinels, one more than the most spans of a text.
    """

    def __init__(
        self,
        *,
        noise_density: Annotated[float, "(0, 1)"],
        mean_span_length: Annotated[float, "[1, inf)"],
        num_sentinels: Annotated[int, "[2, 1000]"],
    ) -> None:
        self.noise_density, self.mean_span_length = noise_density, mean_span_length
        self.num_sentinels = num_sentinels

    def __call__(
        self, token_ids: list[int], vocabulary: NoiseVocabulary, generator: np.random.Generator
    ) -> tuple[list[int], list[int]]:
        length = len(token_ids)
        lost = min(max(1, round(length * self.noise_density)), length)
        kept = length - lost
        spans = min(max(1, round(lost / self.mean_span_length)), lost, kept + 1, self.num_sentinels - 1)
        before = segments(kept + 2, spans + 1, generator)
        before[[0, -1]] -= 1  # the text may begin and end with a lost span
        source: list[int] = []
        target: list[int] = []
        start = 0
        lengths = zip(before.tolist(), segments(lost, spans, generator).tolist(), strict=False)
        for sentinel, (kept_length, lost_length) in zip(vocabulary.sentinels, lengths, strict=False):
            middle, end = start + kept_length, start + kept_length + lost_length
            source += [*token_ids[start:middle], sentinel]
            target += [sentinel, *token_ids[middle:end]]
            start = end
        return source + token_ids[start:], [*target, vocabulary.sentinels[spans]]


def segments(total: int, count: int, generator: np.random.Generator) -> Int64[np.ndarray, " count"]:
    """Return positive lengths with this sum; all compositions are equally likely."""
    inner = np.sort(generator.choice(total - 1, count - 1, replace=False)) + 1 if count > 1 else np.zeros(0, np.int64)
    return np.diff(np.concatenate([[0], inner, [total]]).astype(np.int64))
