"""The bootstrap interval of a score, as sacrebleu computes it. Koehn 2004, section 3."""

from __future__ import annotations

import os
from collections.abc import Sequence
from copy import deepcopy
from statistics import fmean
from typing import NamedTuple

import numpy as np
from jaxtyping import Int

from seq2seq_attn.errors import UserError
from seq2seq_attn.metric.text_metric import TextMetric

FEWEST_RESAMPLES = 40  # so that 95 % leave out one on each side


class Confidence(NamedTuple):
    """95 % of the resampled test sets score about mean - margin to mean + margin.

    Attributes:
        mean: of the resampled test sets, near the figure itself.
        margin: half of the interval from 2.5 % to 97.5 %.
        signature: with the number of resamples and the seed.
    """

    mean: float
    margin: float
    signature: str


def confidence(
    metric: TextMetric,
    hypotheses: Sequence[str],
    references: Sequence[Sequence[str]],
    resamples: int,
    sources: Sequence[str] = (),
) -> Confidence:
    """Return the interval that `sacrebleu --confidence` prints.

    Args:
        resamples: the number of test sets drawn, two or more.
    """
    metric_copy = deepcopy(metric)
    metric_copy.reset()
    rows = metric_copy.sentence_counts(hypotheses, references, sources)
    metric_copy.add(rows)
    counts = np.array(rows, dtype=np.float32)  # as in sacrebleu, whose scores are of this type too: its digits are ours
    scores = sorted(metric_copy.score(counts[drawn].sum(0)) for drawn in draw(len(rows), resamples))
    cut = resamples // 40
    mean, margin = type(scores[-1])(fmean(scores)), 0.5 * (scores[-cut - 1] - scores[cut])
    return Confidence(float(mean), float(margin), metric_copy.signature((resamples, seed())))


def draw(sentences: int, resamples: int) -> Int[np.ndarray, "resamples sentences"]:
    """Return the rows of each resampled test set, drawn with replacement as sacrebleu draws them."""
    generator = np.random.default_rng(None if seed() == "none" else int(seed()))
    return generator.choice(sentences, size=(resamples, sentences), replace=True)


def seed() -> str:
    """Return sacrebleu's seed; `none` draws another one each time."""
    return os.environ.get("SACREBLEU_SEED", "12345").lower()


def check_bootstrap(resamples: int) -> None:
    """Refuse a number of resamples that has no interval of 95 %; 0 asks for none."""
    if resamples != 0 and resamples < FEWEST_RESAMPLES:
        raise UserError(f"bootstrap={resamples} resamples give no interval of 95 %; use 1000, or 0 for none")
