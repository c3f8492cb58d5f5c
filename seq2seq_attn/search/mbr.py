"""Minimum Bayes risk: the candidate most like all. Kumar and Byrne 2004; Eikema and Aziz 2022, arXiv:2108.04718."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from functools import partial
from typing import final

import sacrebleu
import torch
from jaxtyping import Bool, Float64, Int
from sacrebleu.metrics.base import Metric as Scorer
from torch import Tensor

from seq2seq_attn.errors import UserError
from seq2seq_attn.model.decoding_model import DecodingModel
from seq2seq_attn.search.search import Hypothesis, Search, TargetVocabulary

UTILITIES: dict[str, Callable[[], Scorer]] = {
    "chrf": sacrebleu.CHRF,
    "bleu": partial(sacrebleu.BLEU, effective_order=True),
}


@final
class MBRSearch(Search):
    """Candidates of different texts, by falling expected utility, which is their score.

    Every candidate serves as reference for every candidate, itself too, and counts as often as it was found.

    Args:
        candidates: the search that finds them.
        utility: `chrf` or `bleu` of a sentence (effective order), 0-100, of sacrebleu; 100 for equal texts.
        by_probability: a reference counts by the model's probability, as befits an n-best list (Kumar and Byrne);
            else all count the same, as befits samples, which are drawn by that probability.
    """

    def __init__(self, *, candidates: Search, utility: str, by_probability: bool) -> None:
        if utility not in UTILITIES:
            raise UserError(f"search.utility={utility} is unknown; choose from: {', '.join(sorted(UTILITIES))}")
        self.candidates, self.by_probability = candidates, by_probability
        self.scorer = UTILITIES[utility]()

    @property
    def hypotheses_at_once(self) -> int:
        return self.candidates.hypotheses_at_once

    def __call__(
        self,
        model: DecodingModel,
        source: Int[Tensor, "batch source"],
        source_mask: Bool[Tensor, "batch source"],
        target: TargetVocabulary,
        *,
        prefixes: Sequence[Sequence[int]] | None = None,
    ) -> list[list[Hypothesis]]:
        found = self.candidates(model, source, source_mask, target, prefixes=prefixes)
        return [self._ranked(candidates, target) for candidates in found]

    def _ranked(self, candidates: list[Hypothesis], target: TargetVocabulary) -> list[Hypothesis]:
        """Of several candidates of one text the first, which is the best of them, stands for all."""
        texts = target.detokenize([candidate.token_ids for candidate in candidates])
        first: dict[str, Hypothesis] = {}
        counts: dict[str, float] = defaultdict(float)
        for text, candidate, share in zip(texts, candidates, self._shares(candidates), strict=True):
            first.setdefault(text, candidate)
            counts[text] += share
        expected = pairwise(self.scorer, list(first)) @ torch.tensor(list(counts.values()), dtype=torch.float64)
        found = [
            candidate._replace(score=score) for candidate, score in zip(first.values(), expected.tolist(), strict=True)
        ]
        return sorted(found, key=lambda candidate: -candidate.score)

    def _shares(self, candidates: list[Hypothesis]) -> list[float]:
        """What each candidate counts as a reference; 1 together."""
        log_probs = torch.tensor([candidate.log_prob for candidate in candidates], dtype=torch.float64)
        return (log_probs if self.by_probability else torch.zeros_like(log_probs)).softmax(0).tolist()


def pairwise(scorer: Scorer, texts: list[str]) -> Float64[Tensor, "hypothesis reference"]:
    """Utility of each of different texts as the hypothesis, with each as the reference."""
    tokenized = [scorer._preprocess_segment(text) for text in texts]
    references = [scorer._extract_reference_info([text]) for text in tokenized]  # once, not for every pair
    utilities = torch.full((len(texts), len(texts)), 100.0, dtype=torch.float64)
    for row, hypothesis in enumerate(tokenized):
        for column, reference in enumerate(references):
            if row != column:
                counts = scorer._compute_segment_statistics(hypothesis, reference)
                utilities[row, column] = scorer._compute_score_from_stats(counts).score
    return utilities
