"""Minimum Bayes risk: argmax_h sum_r p(r) u(h, r). Kumar and Byrne 2004; Eikema and Aziz 2022, arXiv:2108.04718."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import chain, combinations, permutations
from typing import final

import sacrebleu
import torch
from jaxtyping import Bool, Float64, Int
from sacrebleu.metrics.base import Metric as Scorer
from torch import Tensor

from seq2seq_attn.errors import UserError
from seq2seq_attn.model.decoding_model import DecodingModel
from seq2seq_attn.search.limits import Limits
from seq2seq_attn.search.search import Hypothesis, Search, TargetVocabulary
from seq2seq_attn.text import unspaced_language

sentence_bleu = partial(sacrebleu.BLEU, effective_order=True)
UTILITIES: dict[str, Callable[[], Scorer]] = {"chrf": sacrebleu.CHRF, "bleu": sentence_bleu}


@final
class MBRSearch(Search):
    """The candidates with different texts, by falling expected utility, which is their score.

    Every candidate is a reference for every candidate, itself included, and counts as often as it was found.

    Args:
        candidates: the search that finds the candidates, several of each sentence.
        utility: sentence-level `chrf` or `bleu` (effective order) of sacreBLEU, 0-100; 100 for equal texts. The words
            of BLEU are those of 13a; where candidates are mostly in a script without spaces, of zh for Chinese, and
            else single characters.
        by_probability: weight references by the model's probability, for an n-best list (Kumar and Byrne); False:
            weight them equally, for samples, which are drawn with that probability.

    Raises:
        UserError: if the utility is unknown, or there is one candidate at most.
    """

    def __init__(self, *, candidates: Search, utility: str, by_probability: bool) -> None:
        if utility not in UTILITIES:
            raise UserError(f"search.utility={utility} is unknown; choose from: {', '.join(sorted(UTILITIES))}")
        if candidates.most_hypotheses < 2:
            raise UserError(
                f"search.candidates, {type(candidates).__name__}, finds one translation of each sentence, and MBR "
                "chooses among several; use search.candidates.num_best=5 for a beam, search.candidates.num_samples=32 "
                "for sampling, or other candidates"
            )
        self.candidates, self.by_probability = candidates, by_probability
        self.utility, self.scorer = utility, UTILITIES[utility]()

    @property
    def hypotheses_at_once(self) -> int:
        return self.candidates.hypotheses_at_once

    @property
    def most_hypotheses(self) -> int:
        return self.candidates.most_hypotheses

    @property
    def length_limits(self) -> Limits | None:
        return self.candidates.length_limits

    def __call__(
        self,
        model: DecodingModel,
        source: Int[Tensor, "batch source"],
        source_mask: Bool[Tensor, "batch source"],
        target: TargetVocabulary,
        *,
        prefixes: Sequence[Sequence[int]] | None = None,
    ) -> list[list[Hypothesis]]:
        batch = self.candidates(model, source, source_mask, target, prefixes=prefixes)
        return [self._ranked(candidates, target) for candidates in batch]

    def _ranked(self, candidates: list[Hypothesis], target: TargetVocabulary) -> list[Hypothesis]:
        """Rank the candidates by expected utility; the first, and best, of those with the same text represents all."""
        texts = target.detokenize([candidate.token_ids for candidate in candidates])
        first: dict[str, Hypothesis] = {}
        counts: dict[str, float] = defaultdict(float)
        for text, candidate, share in zip(texts, candidates, self._shares(candidates), strict=True):
            first.setdefault(text, candidate)
            counts[text] += share
        utilities = pairwise(self._scorer_of(list(first)), list(first))
        expected = utilities @ torch.tensor(list(counts.values()), dtype=torch.float64)
        ranked = [
            candidate._replace(score=score) for candidate, score in zip(first.values(), expected.tolist(), strict=True)
        ]
        return sorted(ranked, key=lambda candidate: -candidate.score)

    def _scorer_of(self, texts: list[str]) -> Scorer:
        """Return the utility for the candidates of a sentence."""
        language = unspaced_language(texts) if self.utility == "bleu" else None
        return self.scorer if language is None else sentence_bleu(tokenize="zh" if language == "zh" else "char")

    def _shares(self, candidates: list[Hypothesis]) -> list[float]:
        """Return the weight of each candidate as a reference; the weights sum to 1."""
        log_probs = torch.tensor([candidate.log_prob for candidate in candidates], dtype=torch.float64)
        return (log_probs if self.by_probability else torch.zeros_like(log_probs)).softmax(0).tolist()


def pairwise(scorer: Scorer, texts: list[str]) -> Float64[Tensor, "hypothesis reference"]:
    """Return the utility of each text as hypothesis with each as reference; the texts differ.

    It calls private methods of sacreBLEU 2.6 in order to prepare each text once, not once for every pair (of BLEU, each
    reference).
    """
    tokenized = [scorer._preprocess_segment(text) for text in texts]
    references = [scorer._extract_reference_info([text]) for text in tokenized]
    utilities = torch.full((len(texts), len(texts)), 100.0, dtype=torch.float64)
    if isinstance(scorer, sacrebleu.CHRF):
        counts = chrf_statistics([reference["ref_ngrams"][0] for reference in references])
    else:
        counts = (
            (row, column, scorer._compute_segment_statistics(tokenized[row], references[column]))
            for row, column in permutations(range(len(texts)), 2)
        )
    for row, column, statistics in counts:
        utilities[row, column] = scorer._compute_score_from_stats(statistics).score
    return utilities


def chrf_statistics(ngrams: Sequence[Sequence[Counter[str]]]) -> Iterator[tuple[int, int, list[int]]]:
    """Yield each pair of different texts, as hypothesis and reference, with the statistics that chrF is computed from.

    These are the n-grams of both and those that match, by length; the matches of a pair are those of its reverse.

    Args:
        ngrams: of each text, by length.
    """
    totals = [[counter.total() for counter in counters] for counters in ngrams]
    for row, column in combinations(range(len(ngrams)), 2):
        matches = [
            sum(min(one[ngram], other[ngram]) for ngram in one.keys() & other.keys())
            for one, other in zip(ngrams[row], ngrams[column], strict=True)
        ]
        for first, second in ((row, column), (column, row)):
            yield first, second, list(chain(*zip(totals[first], totals[second], matches, strict=True)))
