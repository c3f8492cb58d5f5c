"""BLEU of lower-cased, normalised and tokenized text, as papers on Multi30k report it. Koehn et al. 2007 (Moses)."""

from functools import cache, lru_cache, partial
from importlib.metadata import version
from typing import Any, final

import sacrebleu

from seq2seq_attn.metric.corpus_metric import CorpusMetric


@final
class TokenizedBLEU(CorpusMetric):
    """Takes detokenized sentences, and tokenizes hypotheses and references alike.

    Args:
        language: of the target, as in `fr`; one that Moses has no abbreviations for is tokenized as English.
    """

    def __init__(self, *, language: str) -> None:
        scorer = sacrebleu.BLEU(lowercase=True, tokenize="none", force=True)
        scorer.tokenizer = partial(moses_tokenized, language=language)  # type: ignore[assignment]
        scorer.tokenizer_signature = f"moses-{language}"
        super().__init__(
            scorer=scorer,
            num_counts=2 + 2 * scorer.max_ngram_order,  # two lengths; matches and totals of each order
            signed=f"norm:moses-{language}|escape:yes|sacremoses:{version('sacremoses')}",
        )


@lru_cache(maxsize=2**15)  # references come again at every validation
def moses_tokenized(text: str, language: str) -> str:
    """lowercase.perl, normalize-punctuation.perl and tokenizer.perl of Moses, one after the other."""
    normalizer, tokenizer = moses(language)
    # The line end counts: the script reads it, and so moves a last quotation mark before the full stop.
    normalized = normalizer.normalize(text.lower() + "\n")
    return tokenizer.tokenize(normalized, return_str=True, escape=True)


@cache
def moses(language: str) -> tuple[Any, Any]:
    """perl_parity: as Multi30k's files have it, where ’ is a quotation mark unless ASCII letters are on both sides."""
    # Half a second to import, which a training's first step need not wait for.
    from sacremoses import MosesPunctNormalizer, MosesTokenizer

    return MosesPunctNormalizer(language, perl_parity=True), MosesTokenizer(language)
