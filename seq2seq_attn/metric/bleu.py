"""Corpus BLEU, to the digit of the `sacrebleu` command. Papineni et al. 2002; Post 2018, arXiv:1804.08771."""

import logging
from typing import Any, final

import sacrebleu

from seq2seq_attn.errors import UserError, one_line
from seq2seq_attn.metric.corpus_metric import CorpusMetric
from seq2seq_attn.metric.language import language_code

TOKENIZERS = {  # sacrebleu's, of languages whose words 13a does not find; every other one has 13a
    "zh": "zh", "ja": "ja-mecab", "ko": "ko-mecab", **dict.fromkeys(("th", "lo", "km", "my", "bo"), "char"),
}  # fmt: skip
WITHOUT_MECAB = {"ja-mecab": "char", "ko-mecab": "13a"}  # Korean has spaces
log = logging.getLogger(__name__)


@final
class BLEU(CorpusMetric):
    """The metric that most papers on translation report.

    Args:
        lowercase: score without regard to case.
        tokenize: sacrebleu's name of a tokenizer; papers on European languages report `13a`. `auto`: that of the
            language: `zh`; `ja-mecab`, or `char` where MeCab is not installed; `ko-mecab`, or `13a`; `char` for Thai,
            Lao, Khmer, Burmese and Tibetan; and else `13a`.
        language: of the target, as in `fr`.
    """

    def __init__(self, *, lowercase: bool, tokenize: str, language: str | None = None) -> None:
        if tokenize == "auto":
            tokenize = tokenizer_of(language)
        scorer = scorer_of(lowercase=lowercase, tokenize=tokenize)
        # two lengths; matches and totals of each order
        super().__init__(scorer=scorer, num_counts=2 + 2 * scorer.max_ngram_order)


def default_scorer(language: str | None) -> sacrebleu.BLEU:
    """Return sacrebleu's BLEU for text in a language, as metric=bleu computes it."""
    return scorer_of(lowercase=False, tokenize=tokenizer_of(language))


def scorer_of(*, lowercase: bool, tokenize: str, **options: Any) -> sacrebleu.BLEU:
    """Return sacrebleu's own BLEU.

    Args:
        options: further ones of sacrebleu.

    Raises:
        UserError: if the tokenizer has no such name, its packages are not installed, or it cannot be downloaded.
    """
    if tokenize not in sacrebleu.BLEU.TOKENIZERS:
        choices = ", ".join(["auto", *sacrebleu.BLEU.TOKENIZERS])
        raise UserError(f"BLEU has no tokenizer {tokenize!r}; choose from: {choices}")
    # force: the hint "you forgot to detokenize" would depend on how the corpus is cut into batches
    try:
        return sacrebleu.BLEU(lowercase=lowercase, tokenize=tokenize, force=True, **options)
    except (RuntimeError, ImportError) as error:  # a tokenizer whose packages are missing
        raise UserError(
            f"sacreBLEU's tokenizer {tokenize!r} needs packages that are not installed; pip install "
            f"'sacrebleu[{tokenize.partition('-')[0]}]', or choose another tokenizer for the metric"
        ) from error
    except OSError as error:
        raise UserError(
            f"sacreBLEU's tokenizer {tokenize!r} cannot be downloaded or read ({one_line(error)}); try again with a "
            "network, or choose another tokenizer for the metric"
        ) from error


def tokenizer_of(language: str | None) -> str:
    """Return the name of the tokenizer for text in a language such as `zh`, `zh-TW` or `Chinese`; log it if not 13a."""
    name = best_tokenizer(language)
    chosen = available(name)
    if chosen != name:
        how = "by characters (char)" if chosen == "char" else "as 13a does, by blanks and punctuation"
        log.warning(
            f"BLEU tokenizes {language} {how}, also in the validations, whose BLEU chooses best.ckpt unless monitor "
            f"names another figure: pip install 'sacrebleu[{name.partition('-')[0]}]' for {name} before the training, "
            "or set metric.bleu.tokenize"
        )
    elif name != "13a":
        log.info(f"BLEU tokenizes {language} by sacreBLEU's {name}; metric.bleu.tokenize chooses another tokenizer")
    return chosen


def best_tokenizer(language: str | None) -> str:
    """Return the name of the tokenizer for text in a language, which may not be installed."""
    return TOKENIZERS.get(language_code(language) or "", "13a")


def available(name: str) -> str:
    """Return the name of a tokenizer, or of the one that replaces it where MeCab is not installed."""
    if name not in WITHOUT_MECAB:
        return name
    try:
        sacrebleu.BLEU(tokenize=name)
    except (RuntimeError, ImportError):
        return WITHOUT_MECAB[name]
    return name
