"""The share of repeated n-grams in a text. Welleck et al. 2020, "seq-rep-n", arXiv:1908.04319, section 6."""

from __future__ import annotations

from collections.abc import Iterable

from seq2seq_attn.text import split_words


def repetition(sentences: Iterable[str], n: int = 4) -> float:
    """Return the share of n-grams that occurred before in the same sentence.

    seq-rep-n is 1 - |different n-grams| / |n-grams| of one text; here both are summed over the sentences first, so
    that a short one weighs little. Words are those of `text.split_words`.
    """
    total = different = 0
    for sentence in sentences:
        words = split_words(sentence)
        ngrams = [tuple(words[start : start + n]) for start in range(len(words) - n + 1)]
        total, different = total + len(ngrams), different + len(set(ngrams))
    return (total - different) / max(total, 1)
