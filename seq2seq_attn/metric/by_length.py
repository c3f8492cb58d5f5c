"""A metric by the length of the source. Bahdanau et al. 2015, figure 2, arXiv:1409.0473."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from torchmetrics import Metric

from seq2seq_attn.text import num_words

LENGTHS = {"1-5": 5, "6-10": 10, "11-20": 20, "21-30": 30, "31-50": 50, "51+": math.inf}  # words, and the most


class Bucket(NamedTuple):
    """Sentences of about one length.

    Attributes:
        words: of the source, as in `6-10`.
    """

    words: str
    sentences: int
    score: float


def length_bucket(source: str) -> str:
    """Return the label in LENGTHS of a source's number of words, see `num_words`."""
    words = num_words(source)
    return next(label for label, most in LENGTHS.items() if words <= most)


def score_by_length(
    metric: Metric, sources: Sequence[str], hypotheses: Sequence[str], references: Sequence[Sequence[str]]
) -> list[Bucket]:
    """Return the metric of each bucket that has a sentence; an empty source is among the shortest."""
    rows: dict[str, list[int]] = {label: [] for label in LENGTHS}
    for row, source in enumerate(sources):
        rows[length_bucket(source)].append(row)
    buckets = []
    for label, chosen in rows.items():
        if chosen:
            scorer = metric.clone()
            scorer.reset()
            scorer.update([hypotheses[row] for row in chosen], [references[row] for row in chosen])
            buckets.append(Bucket(label, len(chosen), scorer.compute().item()))
    return buckets
