"""BLEU of text that was tokenized by Moses, detokenized first to be comparable with that of plain text."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, lru_cache, partial
from importlib.metadata import version
from typing import Any, final

from seq2seq_attn.metric.bleu import scorer_of, tokenizer_of
from seq2seq_attn.metric.corpus_metric import CorpusMetric


@final
class DetokenizedBLEU(CorpusMetric):
    """BLEU of detokenized hypotheses and references. Multi30k's tokenized captions become its plain ones again, except
    for case and kinds of quotation marks.

    Args:
        language: of the target, as in `fr`.
        lowercase, tokenize: as in BLEU, by the same language; sacrebleu's tokenizer reads the detokenized text.
    """

    def __init__(self, *, language: str, lowercase: bool, tokenize: str) -> None:
        if tokenize == "auto":
            tokenize = tokenizer_of(language)
        scorer = scorer_of(lowercase=lowercase, tokenize=tokenize)
        scorer.tokenizer_signature = scorer.tokenizer.signature()
        scorer.tokenizer = partial(plain_tokens, tokenize_plain=scorer.tokenizer, language=language)  # type: ignore[assignment]
        super().__init__(
            scorer=scorer,
            num_counts=2 + 2 * scorer.max_ngram_order,  # two lengths; matches and totals of each order
            signed=f"detok:moses-{language}|sacremoses:{version('sacremoses')}",
        )


def plain_tokens(text: str, *, tokenize_plain: Callable[[str], str], language: str) -> str:
    return tokenize_plain(detokenized(text, language))


@lru_cache(maxsize=2**15)  # references come again at every validation
def detokenized(text: str, language: str) -> str:
    """Return the text of detokenizer.perl of Moses."""
    plain: str = moses_detokenizer(language).detokenize(text.split())
    return plain


@cache
def moses_detokenizer(language: str) -> Any:
    # Half a second to import, which a training's first step need not wait for.
    from sacremoses import MosesDetokenizer

    return MosesDetokenizer(language)
