"""Links of given pairs by a model's attention."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from seq2seq_attn.alignment.forced_attention import SlotMap, WordMaps, attention_along_words
from seq2seq_attn.alignment.word_alignment import Extraction, Link, chosen_weights, links_of, weights_by_word
from seq2seq_attn.data.cleaning import Cleaning
from seq2seq_attn.model.encoder_decoder import EncoderDecoder
from seq2seq_attn.tokenizer.sentencepiece import SentencePieceTokenizer

Words = tuple[list[str], list[str]]  # of a source and of its target


class Heads(NamedTuple):
    """Which weights of cross-attention align words: those of a layer and a head, or the mean over all, if None."""

    layer: int | None = None
    head: int | None = None

    def __str__(self) -> str:
        if self.layer is None:
            return "mean of all heads" if self.head is None else f"head {self.head}, mean of all layers"
        return f"layer {self.layer}, " + ("mean of all heads" if self.head is None else f"head {self.head}")


def guided_head(config: Mapping[str, Any], model: EncoderDecoder) -> Heads | None:
    """Return the head that guided alignment taught to align words; None: a run without guided alignment.

    Args:
        config: of the run, as its checkpoint holds it.
    """
    guided = config.get("guided_alignment") or {}
    if guided.get("links") is None or not guided.get("weight"):
        return None
    layer = guided.get("layer")
    return Heads(last_but_one(model) if layer is None else layer, guided.get("head", 0))


def guided_shift(config: Mapping[str, Any]) -> bool:
    """Return whether guided alignment taught a head the links of the word that a step reads, not writes.

    Args:
        config: of the run, as its checkpoint holds it.
    """
    guided = config.get("guided_alignment") or {}
    return guided.get("links") is not None and bool(guided.get("shift"))


def chosen_extraction(options: Mapping[str, Any], config: Mapping[str, Any]) -> Extraction:
    """Return how the options `alignment_*` read links from the weights of a run.

    Args:
        config: of the run, as its checkpoint holds it.
    """
    shift = options["alignment_shift"]
    return Extraction(
        options["alignment_threshold"], guided_shift(config) if shift is None else shift, options["alignment_sink"]
    )


def last_but_one(model: EncoderDecoder) -> int:
    """Return the number of the last layer but one that attends to the source, or of the only one."""
    return max(0, len(model.decoder.source_attentions) - 2)


def word_maps(model: EncoderDecoder, tokenizer: SentencePieceTokenizer, pairs: Sequence[Words]) -> list[WordMaps]:
    """Return the attention along each pair, whose words are normalised as texts to translate are."""
    cleaning = Cleaning()
    return [
        attention_along_words(model, tokenizer, *([cleaning.normalize_text(word) for word in side] for side in pair))
        for pair in pairs
    ]


def attended_links(maps: WordMaps, heads: Heads, extraction: Extraction) -> list[Link]:
    """Return the links of a pair by the weights of some heads."""
    weights = chosen_weights(maps.maps, *heads)
    by_word = weights_by_word(weights, maps.source, maps.target, num_words=maps.num_words, shift=extraction.shift)
    return links_of(by_word, extraction)


def links_by_layer(
    maps: Sequence[SlotMap], source: Sequence[int], target: Sequence[int], *, shift: bool = False
) -> dict[str, dict[str, list[Any]]]:
    """Return the links of each head of cross-attention and of the mean of each layer, by slot, as lists.

    Args:
        source, target: the word, from 0, that each token belongs to, without the end token.
        shift: see `Extraction`.
    """
    found: dict[str, dict[str, list[Any]]] = {}
    for one in maps:
        if one.slot.startswith("cross/"):
            heads = [chosen_links(one.weights[[head]], source, target, shift=shift) for head in range(len(one.weights))]
            found[one.slot] = {"heads": heads, "mean": chosen_links(one.weights, source, target, shift=shift)}
    return found


def chosen_links(
    weights: Float[np.ndarray, "heads rows columns"], source: Sequence[int], target: Sequence[int], *, shift: bool
) -> list[list[int]]:
    """Return the links by the mean of some heads, as lists of two words."""
    by_word = weights_by_word(weights, np.array(source, np.int64), np.array(target, np.int64), shift=shift)
    return [list(link) for link in links_of(by_word)]


def all_heads(maps: WordMaps) -> list[Heads]:
    """Return every head, the mean of each layer that has several heads, and the mean of all."""
    found = []
    for one in maps.maps:
        if one.slot.startswith("cross/"):
            layer, heads = int(one.slot.partition("/")[2]), len(one.weights)
            found += [Heads(layer, head) for head in range(heads)] + [Heads(layer)] * (heads > 1)
    return found if len(found) == 1 else [*found, Heads()]
