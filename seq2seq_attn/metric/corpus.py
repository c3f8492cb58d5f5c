"""Counts of each sentence, taken by sacrebleu; as integers they add up exactly over batches and ranks.

`sentence_counts` and `corpus_score` are all that the metrics use of sacrebleu's private API, as of version 2.6.
"""

from collections.abc import Sequence
from copy import copy
from typing import Any

from sacrebleu.metrics.base import Metric as Scorer

from seq2seq_attn.errors import UserError

NUM_HEADER = 3  # one; its number of references; that number squared


def sentence_counts(
    scorer: Scorer, hypotheses: Sequence[str], references: Sequence[Sequence[str]]
) -> list[list[int | float]]:
    """Return a row for each sentence: the header, then what sacrebleu's formula needs."""
    check(hypotheses, references)
    if not hypotheses:
        return []
    rows = scorer._extract_corpus_statistics(hypotheses, reference_streams(references))  # type: ignore[arg-type]
    return [[1, len(options), len(options) ** 2, *row] for options, row in zip(references, rows, strict=True)]


def reference_streams(references: Sequence[Sequence[str]]) -> list[list[str | None]]:
    """Return one stream for each reference, as sacrebleu reads them; None is no reference, "" an empty sentence."""
    most = max(len(options) for options in references)
    return [[options[i] if i < len(options) else None for options in references] for i in range(most)]


def check(hypotheses: Sequence[str], references: Sequence[Sequence[str]]) -> None:
    if len(hypotheses) != len(references):
        raise ValueError(
            f"each hypothesis needs its list of references, got {len(hypotheses)} hypotheses "
            f"and {len(references)} lists of references"
        )
    for row, options in enumerate(references):
        if isinstance(options, str):
            raise ValueError(
                "references must be a list of references for each hypothesis, got a flat list of sentences; "
                "wrap each one: [[reference] for reference in references]"
            )
        if not options:
            raise ValueError(f"hypothesis {row} has no reference; give it at least one, or leave it out")


def corpus_score(scorer: Scorer, counts: Any) -> Any:
    """Return sacrebleu's score of the summed rows of a corpus, a float of the type of the counts."""
    check_counted(counts)
    return scorer._compute_score_from_stats(list(counts[NUM_HEADER:])).score


def check_counted(counts: Any) -> None:
    if counts[0] == 0:
        raise UserError("there is no sentence to score; give the split at least one sentence pair")


def corpus_signature(scorer: Scorer, counts: list[int], bootstrap: tuple[int, str] | None = None) -> str:
    """Return sacrebleu's signature, to be quoted with the score."""
    scorer_copy: Any = copy(scorer)  # its attributes are what the signature reads
    scorer_copy.num_refs = num_references(counts)
    if bootstrap is not None:
        scorer_copy.n_bootstrap, scorer_copy.seed = bootstrap
    return scorer_copy.get_signature().format()


def num_references(counts: list[int]) -> int:
    """Return how many references each sentence has; -1 if they differ."""
    sentences, references, squares = counts[:NUM_HEADER]
    if sentences == 0:
        raise UserError("the signature states the number of references; score a sentence before asking for it")
    same_for_all = sentences * squares == references**2  # equality in Cauchy-Schwarz
    return references // sentences if same_for_all else -1
