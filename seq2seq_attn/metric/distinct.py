"""distinct-n: different n-grams of all outputs together, per token. Li et al. 2016, section 5.1, arXiv:1510.03055."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, ClassVar, final

from seq2seq_attn.metric.corpus import NUM_HEADER, check, check_counted, num_references
from seq2seq_attn.metric.rouge import named_tokenizer, tokens_of
from seq2seq_attn.metric.text_metric import TextMetric


@final
class Distinct(TextMetric):
    """In percent, of lower-cased words; the references play no role.

    It is a property of a whole test set, of which each n-gram counts once, so validations are without it, and a
    resampled test set, which has sentences twice, would have a lower one.

    Args:
        n: number of words of an n-gram.
        tokenize, language: how the text is cut, as of ROUGE.
    """

    scores_whole_test: ClassVar[bool] = True
    has_interval: ClassVar[bool] = False

    def __init__(self, *, n: Annotated[int, "[1, 10]"], tokenize: str, language: str | None = None) -> None:
        super().__init__(num_counts=2)
        tokenize = named_tokenizer(tokenize, language)
        self.n, self.tokens, self.signed = n, tokens_of(tokenize), f"n:{n}|tok:{tokenize}"

    def sentence_counts(
        self, hypotheses: Sequence[str], references: Sequence[Sequence[str]], sources: Sequence[str] = ()
    ) -> list[list[int | float]]:
        """Return for each sentence the number of n-grams that no earlier one has, and of its words."""
        check(hypotheses, references)
        seen: set[tuple[str, ...]] = set()
        rows: list[list[int | float]] = []
        for hypothesis, options in zip(hypotheses, references, strict=True):
            words, before = self.tokens(hypothesis.lower()), len(seen)
            seen.update(zip(*(words[start:] for start in range(self.n)), strict=False))
            rows.append([1, len(options), len(options) ** 2, len(seen) - before, len(words)])
        return rows

    def score(self, counts: Any) -> Any:
        check_counted(counts)
        different, words = counts[NUM_HEADER:]
        return 100 * different / max(words, 1)

    def signature(self, bootstrap: tuple[int, str] | None = None) -> str:
        """Return a signature in the form of sacrebleu's."""
        with self.sync_context():
            number = num_references(self.counts.tolist())
        return f"nrefs:{'var' if number < 0 else number}|{self.signed}"
