"""BLEU of lower-cased, normalised and tokenized text, as papers on Multi30k report it. Koehn et al. 2007 (Moses)."""

from functools import cache, lru_cache, partial
from importlib.metadata import version
from typing import Any, final

import sacrebleu

from seq2seq_attn.metric.corpus_metric import CorpusMetric


@final
class TokenizedBLEU(CorpusMetric):
    """BLEU of detokenized sentences after Moses' tokenization of hypotheses and references.

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
    """Return the text after lowercase.perl, normalize-punctuation.perl and tokenizer.perl of Moses."""
    normalizer, tokenizer = moses(language)
    # The script reads the line end, after which it moves a final quotation mark before the full stop.
    normalized = normalizer.normalize(text.lower() + "\n")
    return tokenizer.tokenize(normalized, return_str=True, escape=True)


@cache
def moses(language: str) -> tuple[Any, Any]:
    """Return the tools; perl_parity is as in Multi30k's files: ’ is a quotation mark unless between ASCII letters."""
    # Half a second to import, which a training's first step need not wait for.
    from sacremoses import MosesPunctNormalizer, MosesTokenizer

    return MosesPunctNormalizer(language, perl_parity=True), MosesTokenizer(language)
