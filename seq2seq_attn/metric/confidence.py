"""How far a figure would move on other sentences of the kind: sacrebleu's bootstrap. Koehn 2004, section 3."""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from typing import Any, NamedTuple

from sacrebleu.significance import _bootstrap_resample

from seq2seq_attn.errors import UserError
from seq2seq_attn.metric.corpus import check, reference_streams
from seq2seq_attn.metric.corpus_metric import CorpusMetric


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
    metric: CorpusMetric, hypotheses: Sequence[str], references: Sequence[Sequence[str]], resamples: int
) -> Confidence:
    """Sentences drawn with replacement, as many as there are; the seed is 12345, or SACREBLEU_SEED.

    Args:
        resamples: test sets drawn, two or more.
    """
    check(hypotheses, references)
    own = deepcopy(metric)  # else every later signature of the metric would speak of a bootstrap
    scorer: Any = own.scorer
    score = scorer.corpus_score(hypotheses, reference_streams(references))
    counts = scorer._extract_corpus_statistics(hypotheses, reference_streams(references))
    scorer.n_bootstrap = resamples
    scorer.seed, drawn = _bootstrap_resample(counts, scorer, resamples)
    # Where nothing matches, the score is Python's 0.0 among numbers of numpy, and a mean of both is an error.
    number = type(max(one.score for one in drawn))
    for one in drawn:
        one.score = number(one.score)
    score.estimate_ci(drawn)
    signature = "|".join(filter(None, (scorer.get_signature().format(), own.signed)))
    return Confidence(float(score._mean), float(score._ci), signature)


def check_bootstrap(resamples: int) -> None:
    """Before the work whose figures want intervals; 0 asks for none."""
    if resamples < 0 or resamples == 1:
        raise UserError(f"bootstrap={resamples} resamples give no interval; use 1000, or 0 for none")
