"""Words of the translations over those of the references. Papineni et al. 2002, 2.2.2."""

from __future__ import annotations

from collections.abc import Sequence

from seq2seq_attn.metric.corpus import NUM_HEADER, sentence_counts
from seq2seq_attn.metric.corpus_metric import CorpusMetric


def length_ratio(metric: CorpusMetric, hypotheses: Sequence[str], references: Sequence[Sequence[str]]) -> float:
    """Return the ratio by the words of this BLEU; of several references the one closest in length counts.

    Of two as close the shorter one counts. Below 1, BLEU's brevity penalty is exp(1 - 1 / ratio).
    """
    rows = sentence_counts(metric.scorer, hypotheses, references)
    written, expected = (sum(row[NUM_HEADER + position] for row in rows) for position in (0, 1))
    return written / max(expected, 1)
