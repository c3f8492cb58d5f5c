"""Sentence-level BLEU, averaged over sentences. Papineni et al. 2002; smoothing: Chen and Cherry 2014, method 3."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, final

import sacrebleu

from seq2seq_attn.metric.bleu import scorer_of, tokenizer_of
from seq2seq_attn.metric.sentence_metric import SentenceMetric


@final
class SentenceBLEU(SentenceMetric):
    """The mean of sacreBLEU's `sentence_bleu`, which unlike corpus BLEU weighs short sentences as much as long ones.

    Sentences of fewer words than the order are scored by the n-grams that they have (effective order).

    Args:
        max_ngram_order: length of the longest n-grams; 4 in papers on translation.
        lowercase, tokenize, language: as in BLEU.
    """

    def __init__(
        self,
        *,
        max_ngram_order: Annotated[int, "[1, 1000]"],
        lowercase: bool,
        tokenize: str,
        language: str | None = None,
    ) -> None:
        if tokenize == "auto":
            tokenize = tokenizer_of(language)
        options = {"max_ngram_order": max_ngram_order, "effective_order": True}
        scorer = scorer_of(lowercase=lowercase, tokenize=tokenize, **options)
        super().__init__(
            signed=f"case:{'lc' if lowercase else 'mixed'}|eff:yes|order:{max_ngram_order}|tok:{tokenize}|smooth:exp|"
            f"version:{sacrebleu.__version__}"
        )
        self.scorer = scorer

    def sentence_scores(
        self, hypotheses: Sequence[str], references: Sequence[Sequence[str]], sources: Sequence[str]
    ) -> list[float]:
        return [
            self.scorer.sentence_score(hypothesis, options).score
            for hypothesis, options in zip(hypotheses, references, strict=True)
        ]
