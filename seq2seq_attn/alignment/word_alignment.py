"""Links from each target word to the source word with most attention. Bahdanau et al. 2015, arXiv:1409.0473, 5.2.1."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from jaxtyping import Float, Int

BLANK = "▁"  # SentencePiece's mark of a word's first token
Link = tuple[int, int]  # source word, target word


def word_links(
    weights: Float[np.ndarray, "heads rows columns"], columns: Sequence[str], rows: Sequence[str]
) -> list[Link]:
    """Return a link for each target word, in order; none where most weight is on the end token, or all weights are 0.

    Args:
        weights, columns, rows: of a cross-attention slot, as `attention_along` gives them: tokens of the source and
            of the target, each with the end token last.
    """
    by_word = word_weights(weights, columns, rows)
    best = by_word.argmax(1)
    seen = (best < by_word.shape[1] - 1) & (by_word.max(1) > 0)
    return [(int(best[word]), int(word)) for word in seen.nonzero()[0]]


def word_weights(
    weights: Float[np.ndarray, "heads rows columns"], columns: Sequence[str], rows: Sequence[str]
) -> Float[np.ndarray, "target_words source_words_and_end"]:
    """Return means over heads and the tokens of a target word of sums over those of a source word.

    The last column is the end token. Rows of weights that sum to 1 keep their sum.
    """
    assert weights.shape[1:] == (len(rows), len(columns)), "a name for each row and column, end tokens included"
    source, target = word_of_each(columns[:-1]), word_of_each(rows[:-1])
    num_source, num_target = (int(words.max(initial=-1)) + 1 for words in (source, target))
    to_source = np.eye(num_source + 1)[[*source, num_source]]  # (columns, source words and end)
    to_target = np.eye(num_target)[target]  # (rows without the end, target words)
    summed = to_target.T @ weights.astype(np.float64).mean(0)[:-1] @ to_source
    return summed / to_target.sum(0)[:, None]


def word_of_each(tokens: Sequence[str]) -> Int[np.ndarray, "tokens"]:
    """Return the word, from 0, that each token belongs to; a word begins with its first letter after a blank's mark.

    The words are those of `text.split()`, except where a `word` tokenizer's `<unk>` hides the mark. A mark on its own
    belongs to the word after it, the last ones to the last word.
    """
    words, marked = -1, True
    found = []
    for token in tokens:
        marked = marked or token.startswith(BLANK)
        if marked and token.strip(BLANK):
            words, marked = words + 1, False
        found.append(words + 1 if marked else words)
    return np.clip(np.array(found, dtype=np.int64), 0, max(words, 0))


def to_pharaoh(links: Iterable[Link]) -> str:
    """Return `0-0 2-1`: source word and target word, in order of the target."""
    return " ".join(f"{source}-{target}" for source, target in sorted(links, key=lambda link: link[::-1]))


def from_pharaoh(text: str) -> list[Link]:
    """Return the links of a line in Pharaoh form."""
    pairs = (link.split("-") for link in text.split())
    return [(int(source), int(target)) for source, target in pairs]
