"""Corpus chrF (chrF++ with word_order 2), to the digit of the `sacrebleu` command. Popović 2015, 2017."""

from typing import Annotated, final

import sacrebleu

from seq2seq_attn.errors import UserError
from seq2seq_attn.metric.corpus_metric import CorpusMetric


@final
class CHRF(CorpusMetric):
    """F-score of character n-grams, so that a word with another ending still counts.

    Args:
        char_order: longest character n-gram.
        word_order: longest word n-gram; 0 is chrF, 2 is chrF++.
        beta: how many times recall weighs as much as precision.
        lowercase: score without regard to case.

    Raises:
        UserError: for numbers that are too small.
    """

    def __init__(
        self,
        *,
        char_order: Annotated[int, "[1, 1000]"],
        word_order: Annotated[int, "[0, 1000]"],
        beta: Annotated[int, "(0, inf)"],
        lowercase: bool,
    ) -> None:
        if char_order < 1 or word_order < 0 or beta < 0:
            raise UserError(
                "chrF needs char_order >= 1, word_order >= 0 and beta >= 0, "
                f"got {char_order}, {word_order} and {beta}; papers report 6, 0 (chrF++: 2) and 2"
            )
        scorer = sacrebleu.CHRF(char_order=char_order, word_order=word_order, beta=beta, lowercase=lowercase)
        # n-grams of the hypothesis, of the reference, in both
        super().__init__(scorer=scorer, num_counts=3 * scorer.order, signed=signed_beta(beta))


def signed_beta(beta: int) -> str:
    """Return the field of a signature for another beta than 2, which sacrebleu has in the name alone, as in `chrF3`."""
    return "" if beta == sacrebleu.CHRF.BETA else f"beta:{beta}"
