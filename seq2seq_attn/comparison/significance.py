"""Paired bootstrap over sentences of the difference of a row's score, mean over seeds, from the baseline's. Koehn 2004.

sacreBLEU's `--paired-bs` centres the absolute differences instead of the differences, and of two systems that are
equally good it gives one in ten a p-value below 0.05; the p-values here are larger.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int, Num

from seq2seq_attn.comparison.read import Run
from seq2seq_attn.metric.bleu import BLEU
from seq2seq_attn.metric.by_length import LENGTHS, length_bucket
from seq2seq_attn.metric.confidence import draw
from seq2seq_attn.metric.text_metric import TextMetric

ALPHA = 0.05
LEAST_PER_COMPARISON = 50  # resampled test sets
LEAST_BLEU, LEAST_DIFFERENCE = 1.0, 0.05  # below these no difference of BLEU is called significant
FLOOR = (
    f"No difference is marked where both have less than {LEAST_BLEU:g} BLEU, since n-grams that match that rarely say "
    f"nothing of the translations, nor one below {LEAST_DIFFERENCE:g} BLEU, which rounds to 0.0."
)


class Difference(NamedTuple):
    """The difference from the baseline in the score.

    Attributes:
        low, high: the interval of 95 % of the resampled test sets.
        p: the chance of so large a difference if both were equally good; None where there is no difference.
        significant: whether p, corrected for the number of rows or the choice of the baseline, is below 5 %, and the
            difference notable.
    """

    value: float
    low: float
    high: float
    p: float | None
    significant: bool


def is_notable(bleu: float, other: float) -> bool:
    """Return whether a difference is large enough to be marked if it is significant; see FLOOR."""
    return max(bleu, other) >= LEAST_BLEU and abs(bleu - other) >= LEAST_DIFFERENCE


class Counted(NamedTuple):
    """The counts of each sentence of a run, from whose sum a metric scores any selection."""

    metric: TextMetric
    counts: Num[np.ndarray, "sentences counts"]

    def score(self) -> float:
        return float(self.metric.score(self.counts.sum(0).tolist()))

    def by_length(self, sources: Sequence[str]) -> dict[str, tuple[int, float]]:
        """Return the number of sentences and their score, by words of the source."""
        lengths = np.array([length_bucket(source) for source in sources])
        chosen = {label: self.counts[lengths == label] for label in LENGTHS}
        return {
            label: (len(rows), float(self.metric.score(rows.sum(0).tolist())))
            for label, rows in chosen.items()
            if len(rows)
        }

    def resampled(self, drawn: Int[np.ndarray, "resamples sentences"]) -> Float[np.ndarray, " resamples"]:
        """Return the score of test sets that have each sentence as often as it was drawn."""
        return np.array([self.metric.score(sums) for sums in (drawn @ self.counts).tolist()])


def count_sentences(run: Run) -> Counted:
    """Return the counts of a run's translations, by the metric that it is compared by."""
    counts = run.scorer.sentence_counts(run.system.hypotheses, run.system.references, run.system.sources)
    return Counted(run.scorer, np.array(counts, dtype=float))


def differences(
    rows: Mapping[str, Sequence[Counted]], baseline: str, resamples: int, *, chosen: bool = True
) -> dict[str, Difference]:
    """Return the difference of each row but the baseline, by label.

    Args:
        rows: the seeds of each row by its label; all have the sentences of one test set.
        resamples: see `enough_resamples`.
        chosen: whether the baseline was chosen before its score was known; if not, it is the row with the highest
            score, and a difference is compared with those between the best and the worst of rows that are equally good.
    """
    resamples = enough_resamples(resamples, len(rows) - 1)
    metric, counts = rows[baseline][0]
    drawn = np.stack([np.bincount(chosen, minlength=len(counts)) for chosen in draw(len(counts), resamples)])
    scores = {label: float(np.mean([seed.score() for seed in seeds])) for label, seeds in rows.items()}
    samples = {label: np.mean([seed.resampled(drawn) for seed in seeds], axis=0) for label, seeds in rows.items()}
    base, base_samples = scores[baseline], samples[baseline]
    by_label = {
        label: difference(scores[label] - base, samples[label] - base_samples) for label in rows if label != baseline
    }
    notable = {
        label: is_notable(scores[label], base) if isinstance(metric, BLEU) else abs(one.value) >= LEAST_DIFFERENCE
        for label, one in by_label.items()
    }
    marked = holm(by_label) if chosen else beyond_range(by_label, list(samples.values()))
    return {label: one._replace(significant=one.significant and notable[label]) for label, one in marked.items()}


def enough_resamples(resamples: int, comparisons: int) -> int:
    """Return at least as many as a clear difference needs after the correction: no p-value is below 1 / (them + 1)."""
    return max(resamples, LEAST_PER_COMPARISON * comparisons)


def difference(value: float, samples: Float[np.ndarray, " resamples"]) -> Difference:
    """Return the difference; its p-value says how often a resampled one is at least that far from their mean."""
    distances, ordered = np.abs(samples - samples.mean()), np.sort(samples)
    beyond = int((distances >= abs(value)).sum())
    cut = len(samples) // 40
    p = None if value == 0 else (beyond + 1) / (len(samples) + 1)
    return Difference(value, float(ordered[cut]), float(ordered[len(ordered) - cut - 1]), p, False)


def holm(by_label: dict[str, Difference]) -> dict[str, Difference]:
    """Mark what is significant at a family-wise error rate of ALPHA. Holm 1979."""
    ordered = sorted(by_label, key=lambda label: 1.0 if (p := by_label[label].p) is None else p)
    corrected = dict(by_label)
    for position, label in enumerate(ordered):
        p = by_label[label].p
        if p is None or p * (len(ordered) - position) >= ALPHA:
            break
        corrected[label] = by_label[label]._replace(significant=True)
    return corrected


def beyond_range(
    by_label: dict[str, Difference], samples: Sequence[Float[np.ndarray, " resamples"]]
) -> dict[str, Difference]:
    """Mark differences that the range of all rows, each less its mean, reaches in fewer than ALPHA of the resamples.

    This is a resampled form of Tukey's range test, which allows for the choice of any two rows; of two rows it is the
    test of their difference.
    """
    ranges = np.ptp(np.stack([row - row.mean() for row in samples]), axis=0)

    def p(value: float) -> float:
        return (int((ranges >= abs(value)).sum()) + 1) / (len(ranges) + 1)

    return {label: one._replace(significant=p(one.value) < ALPHA) for label, one in by_label.items()}
