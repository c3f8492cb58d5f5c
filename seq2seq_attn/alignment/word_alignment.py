"""Links of words from weights of cross-attention. Bahdanau et al. 2015, arXiv:1409.0473, 5.2.1.

A target word is linked to the source word with the highest weight, or to each above a threshold: Dou and Neubig 2021,
arXiv:2101.08231, 2.2. Shifted, its weights are those of the step that reads it: Chen et al. 2020, arXiv:2004.14837, 3.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from seq2seq_attn.alignment.forced_attention import SlotMap
from seq2seq_attn.errors import UserError
from seq2seq_attn.tokenizer.sentencepiece import WORD_MARK

Link = tuple[int, int]  # source word, target word
WordWeights = Float[np.ndarray, "target_words source_words_and_end"]


class Extraction(NamedTuple):
    """How links are read from weights.

    Attributes:
        threshold: a target word is linked to each source word with more weight; None: to the one with most.
        shift: the weights of a target token are those of the step that reads it, not of the one that writes it.
        sink: weight on the source's end token counts, so that a word with most of its weight there has no link; if
            false, the weights on the words are divided by their sum.
    """

    threshold: int | float | None = None
    shift: bool = False
    sink: bool = True


BY_MOST_WEIGHT = Extraction()


def chosen_weights(
    maps: Sequence[SlotMap], layer: int | None, head: int | None
) -> Float[np.ndarray, "heads rows columns"]:
    """Return the weights of cross-attention in a layer and a head, from 0; None: in all of them.

    Raises:
        UserError: for a layer or a head that does not attend to the source.
    """
    cross = {int(one.slot.partition("/")[2]): one for one in maps if one.slot.startswith("cross/")}
    if not cross:
        raise UserError("this model has no attention to a source whose weights could align words")
    if layer is not None and layer not in cross:
        raise UserError(f"alignment_layer={layer} does not exist; choose from: {', '.join(map(str, sorted(cross)))}")
    chosen = list(cross.values()) if layer is None else [cross[layer]]
    if head is None:
        return np.concatenate([one.weights for one in chosen])
    heads = min(len(one.weights) for one in chosen)
    if not 0 <= head < heads:
        raise UserError(f"alignment_head={head} does not exist; choose from 0 to {heads - 1}")
    return np.stack([one.weights[head] for one in chosen])


def word_links(
    weights: Float[np.ndarray, "heads rows columns"],
    columns: Sequence[str],
    rows: Sequence[str],
    extraction: Extraction = BY_MOST_WEIGHT,
) -> list[Link]:
    """Return links of target words, in their order.

    Args:
        weights, columns, rows: of a cross-attention slot, as `attention_along` gives them: tokens of the source and
            of the target, each with the end token last.
    """
    return links_of(word_weights(weights, columns, rows, shift=extraction.shift), extraction)


def links_of(by_word: WordWeights, extraction: Extraction = BY_MOST_WEIGHT) -> list[Link]:
    """Return links of target words, in their order; a word has none where all weights are 0."""
    weights, end = by_word[:, :-1], by_word[:, -1:]
    if not extraction.sink:
        weights, end = weights / np.maximum(weights.sum(1, keepdims=True), np.finfo(float).tiny), 0 * end
    if extraction.threshold is not None:
        return [(int(source), int(target)) for target, source in np.argwhere(weights > extraction.threshold)]
    best = np.concatenate([weights, end], 1).argmax(1)
    seen = (best < weights.shape[1]) & (weights > 0).any(1)
    return [(int(best[target]), int(target)) for target in seen.nonzero()[0]]


def word_weights(
    weights: Float[np.ndarray, "heads rows columns"],
    columns: Sequence[str],
    rows: Sequence[str],
    *,
    shift: bool = False,
) -> WordWeights:
    """Return means over heads and the tokens of a target word of sums over those of a source word.

    The last column is the end token. Rows of weights that sum to 1 keep their sum.
    """
    assert weights.shape[1:] == (len(rows), len(columns)), "a name for each row and column, end tokens included"
    return weights_by_word(weights, word_of_each(columns[:-1]), word_of_each(rows[:-1]), shift=shift)


def weights_by_word(
    weights: Float[np.ndarray, "heads target_tokens_and_end source_tokens_and_end"],
    source: Int[np.ndarray, " source_tokens"],
    target: Int[np.ndarray, " target_tokens"],
    *,
    num_words: tuple[int, int] | None = None,
    shift: bool = False,
) -> WordWeights:
    """Return what `word_weights` returns.

    Args:
        source, target: the word, from 0, that each token belongs to.
        num_words: of source and target; None: up to the last that has a token. A word without a token has weight 0.
        shift: read the weights of a target token one step later.
    """
    num_source, num_target = num_words or (int(words.max(initial=-1)) + 1 for words in (source, target))
    to_source = np.eye(num_source + 1)[[*source, num_source]]  # (columns, source words and end)
    to_target = np.eye(num_target)[target]  # (rows without the end, target words)
    mean = weights.astype(np.float64).mean(0)
    summed = to_target.T @ (mean[1:] if shift else mean[:-1]) @ to_source
    return summed / np.maximum(to_target.sum(0), 1)[:, None]


def word_of_each(tokens: Sequence[str]) -> Int[np.ndarray, " tokens"]:
    """Return the word, from 0, that each token belongs to; a word begins with its first letter after a blank's mark.

    The words are those of `text.split()`. A mark on its own belongs to the word after it, the last ones to the last
    word.
    """
    words, marked = -1, True
    word_indices = []
    for token in tokens:
        marked = marked or token.startswith(WORD_MARK)
        if marked and token.strip(WORD_MARK):
            words, marked = words + 1, False
        word_indices.append(words + 1 if marked else words)
    return np.clip(np.array(word_indices, dtype=np.int64), 0, max(words, 0))


def to_pharaoh(links: Iterable[Link]) -> str:
    """Return `0-0 2-1`: source word and target word, in order of the target."""
    return " ".join(f"{source}-{target}" for source, target in sorted(links, key=lambda link: link[::-1]))


def from_pharaoh(text: str) -> list[Link]:
    """Return the links of a line in Pharaoh form."""
    pairs = (link.split("-") for link in text.split())
    return [(int(source), int(target)) for source, target in pairs]
