"""A sacrebleu metric over a corpus that comes in batches, and from several processes."""

from __future__ import annotations

from abc import ABC
from collections.abc import Sequence
from typing import Any

from sacrebleu.metrics.base import Metric as Scorer

from seq2seq_attn.metric.corpus import corpus_score, corpus_signature, sentence_counts
from seq2seq_attn.metric.text_metric import TextMetric


class CorpusMetric(TextMetric, ABC):
    """A metric of detokenized sentences, computed by sacrebleu from the counts of the whole corpus.

    Args:
        scorer: of sacrebleu.
        num_counts: how many counts the scorer's formula needs of a sentence.
        units: the units of the last count in 1, where it is a fraction.
        signed: the processing before the scorer, for the signature.
    """

    def __init__(self, *, scorer: Scorer, num_counts: int, units: int = 1, signed: str = "") -> None:
        super().__init__(num_counts=num_counts, units=units)
        self.scorer, self.signed = scorer, signed

    def sentence_counts(
        self, hypotheses: Sequence[str], references: Sequence[Sequence[str]], sources: Sequence[str] = ()
    ) -> list[list[int | float]]:
        return sentence_counts(self.scorer, hypotheses, references)

    def score(self, counts: Any) -> Any:
        return corpus_score(self.scorer, counts)

    def signature(self, bootstrap: tuple[int, str] | None = None) -> str:
        """Return sacrebleu's signature for the sentences of all processes since the last reset."""
        with self.sync_context():
            signature = corpus_signature(self.scorer, self.counts.tolist(), bootstrap)
        return f"{signature}|{self.signed}" if self.signed else signature
