"""ROUGE-N and ROUGE-L: overlap of word n-grams, and the longest common subsequence. Lin 2004, "ROUGE"."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal, final

import regex
import sacrebleu
import torchmetrics
from torchmetrics.functional.text import rouge_score

from seq2seq_attn.errors import UserError
from seq2seq_attn.metric.bleu import available, best_tokenizer, scorer_of
from seq2seq_attn.metric.language import is_unspaced
from seq2seq_attn.metric.sentence_metric import SentenceMetric

WORDS = {"words": r"[\p{L}\p{N}][\p{L}\p{N}\p{M}]*", "ascii": r"[a-z0-9]+"}  # M: vowel signs and accents


@final
class ROUGE(SentenceMetric):
    """Mean F1 of sentences, by torchmetrics; of several references the best one counts. Words are not stemmed.

    Args:
        variant: of the n-grams of one or two words, or of the longest common subsequence.
        tokenize: how the lower-cased text is cut: `words`, letters with their vowel signs, and digits, of any script;
            `ascii`, letters a-z and digits 0-9 alone, as in Google's `rouge-score` package; or the name of a sacreBLEU
            tokenizer, such as `zh`. `auto`: `words`, but for a language without spaces the tokenizer that BLEU takes.
        language: of the target, as in `fr`.
    """

    def __init__(
        self, *, variant: Literal["rouge1", "rouge2", "rougeL"], tokenize: str, language: str | None = None
    ) -> None:
        tokenize = named_tokenizer(tokenize, language)
        super().__init__(signed=f"stem:no|tok:{tokenize}|torchmetrics:{torchmetrics.__version__}")
        self.variant, self.tokenize = variant, tokenize
        self.tokens = tokens_of(tokenize)

    def sentence_scores(
        self, hypotheses: Sequence[str], references: Sequence[Sequence[str]], sources: Sequence[str]
    ) -> list[float]:
        return [self.f1(hypothesis, options) for hypothesis, options in zip(hypotheses, references, strict=True)]

    def f1(self, hypothesis: str, options: Sequence[str]) -> float:
        """Return the F1 of a sentence against its best reference, in percent."""
        scores = rouge_score(
            [hypothesis], [list(options)], normalizer=str.lower, tokenizer=self.tokens, rouge_keys=self.variant
        )
        return 100 * float(scores[f"{self.variant}_fmeasure"])


def named_tokenizer(tokenize: str, language: str | None) -> str:
    """Return the name of the tokenizer, for `auto` that of the language."""
    if tokenize != "auto":
        return tokenize
    return available(best_tokenizer(language)) if is_unspaced(language) else "words"


def tokens_of(tokenize: str) -> Callable[[str], list[str]]:
    """Return what cuts a lower-cased text into words."""
    if tokenize in WORDS:
        return regex.compile(WORDS[tokenize]).findall
    if tokenize not in sacrebleu.BLEU.TOKENIZERS:
        names = ", ".join(["auto", *WORDS, *sacrebleu.BLEU.TOKENIZERS])
        raise UserError(f"ROUGE has no tokenizer {tokenize!r}; choose from: {names}")
    tokenizer = scorer_of(lowercase=False, tokenize=tokenize).tokenizer
    return lambda text: tokenizer(text).split()
