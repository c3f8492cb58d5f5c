"""Is a row's BLEU another than the baseline's? Paired bootstrap over sentences, of the mean over seeds. Koehn 2004.

With one seed each the p-values are sacrebleu's, and those of compare_translations.py.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from seq2seq_attn.comparison.read import Run
from seq2seq_attn.comparison.rows import Row
from seq2seq_attn.comparison.translations import ALPHA, is_notable
from seq2seq_attn.metric.bleu import BLEU
from seq2seq_attn.metric.by_length import LENGTHS
from seq2seq_attn.metric.corpus import corpus_score, sentence_counts


class Difference(NamedTuple):
    """From the baseline, in BLEU.

    Attributes:
        low, high: of 95 % of the resampled test sets.
        p: the chance of so large a difference if both were equally good; None where there is no difference.
        significant: whether p, corrected for the number of rows, is below 5 %, and the difference notable.
    """

    value: float
    low: float
    high: float
    p: float | None
    significant: bool


class Counted:
    """The sentences of a run, each counted once for all that is asked of them."""

    def __init__(self, run: Run) -> None:
        options = run.config["metric"]["bleu"]
        self.scorer = BLEU(lowercase=options["lowercase"], tokenize=options["tokenize"]).scorer
        counts = sentence_counts(self.scorer, run.system.hypotheses, run.system.references)
        self.counts: Float[np.ndarray, "sentences counts"] = np.array(counts, dtype=float)
        words = [len(source.split()) for source in run.system.sources]
        self.lengths = np.array([next(label for label, most in LENGTHS.items() if number <= most) for number in words])

    def score(self) -> float:
        return corpus_score(self.scorer, self.counts.sum(0).tolist())

    def by_length(self) -> dict[str, tuple[int, float]]:
        """Sentences, and their BLEU, by words of the source."""
        chosen = {label: self.counts[self.lengths == label] for label in LENGTHS}
        return {
            label: (len(rows), corpus_score(self.scorer, rows.sum(0).tolist()))
            for label, rows in chosen.items()
            if len(rows)
        }

    def resampled(self, drawn: Int[np.ndarray, "resamples sentences"]) -> Float[np.ndarray, " resamples"]:
        """BLEU of test sets that have each sentence as often as it was drawn."""
        return np.array([corpus_score(self.scorer, sums) for sums in (drawn @ self.counts).tolist()])


def differences(
    rows: Sequence[Row], counted: dict[str, Counted], baseline: Row, resamples: int
) -> dict[str, Difference]:
    """By label, of each row but the baseline.

    Args:
        counted: by the name of the run; all have the sentences of one test set.
    """
    drawn = draw(len(baseline.runs[0].system.sources), resamples)
    scores = {row.label: float(np.mean([counted[run.name].score() for run in row.runs])) for row in rows}
    samples = {row.label: np.mean([counted[run.name].resampled(drawn) for run in row.runs], axis=0) for row in rows}
    found = {}
    for row in rows:
        if row is not baseline:
            value = scores[row.label] - scores[baseline.label]
            found[row.label] = difference(value, samples[row.label] - samples[baseline.label])
    notable = {label: is_notable(scores[label], scores[baseline.label]) for label in found}
    return {label: one._replace(significant=one.significant and notable[label]) for label, one in holm(found).items()}


def draw(sentences: int, resamples: int) -> Int[np.ndarray, "resamples sentences"]:
    """How often each sentence stands in each resampled test set; the draws, and their seed, are sacrebleu's."""
    seed = os.environ.get("SACREBLEU_SEED", "12345")
    generator = np.random.default_rng(None if seed.lower() == "none" else int(seed))
    chosen = generator.choice(sentences, size=(resamples, sentences), replace=True)
    return np.stack([np.bincount(row, minlength=sentences) for row in chosen])


def difference(value: float, samples: Float[np.ndarray, " resamples"]) -> Difference:
    """The p-value is sacrebleu's: how often a resampled difference is that far from their mean."""
    distances, ordered = np.abs(samples), np.sort(samples)
    beyond = int((distances - distances.mean() > abs(value)).sum())
    cut = len(samples) // 40
    p = None if value == 0 else (beyond + 1) / (len(samples) + 1)
    return Difference(value, float(ordered[cut]), float(ordered[len(ordered) - cut - 1]), p, False)


def holm(found: dict[str, Difference]) -> dict[str, Difference]:
    """Says what is significant if none of as many true nulls may be called so. Holm 1979."""
    ordered = sorted(found, key=lambda label: 1.0 if (p := found[label].p) is None else p)
    corrected = dict(found)
    for position, label in enumerate(ordered):
        p = found[label].p
        if p is None or p * (len(ordered) - position) >= ALPHA:
            break
        corrected[label] = found[label]._replace(significant=True)
    return corrected
