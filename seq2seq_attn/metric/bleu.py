"""Corpus BLEU, to the digit of the `sacrebleu` command. Papineni et al. 2002; Post 2018, arXiv:1804.08771."""

from typing import final

import sacrebleu

from seq2seq_attn.errors import UserError
from seq2seq_attn.metric.corpus_metric import CorpusMetric


@final
class BLEU(CorpusMetric):
    """The metric that most papers on translation report.

    Args:
        lowercase: score without regard to case.
        tokenize: sacrebleu's name of a tokenizer; papers on European languages report `13a`.
    """

    def __init__(self, *, lowercase: bool, tokenize: str) -> None:
        if tokenize not in sacrebleu.BLEU.TOKENIZERS:
            raise UserError(f"BLEU has no tokenizer {tokenize!r}; choose from: {', '.join(sacrebleu.BLEU.TOKENIZERS)}")
        # force: the hint "you forgot to detokenize" would depend on how the corpus is cut into batches
        scorer = sacrebleu.BLEU(lowercase=lowercase, tokenize=tokenize, force=True)
        # two lengths; matches and totals of each order
        super().__init__(scorer=scorer, num_counts=2 + 2 * scorer.max_ngram_order)
