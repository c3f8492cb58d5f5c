"""Links of given pairs by a model's attention."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from hydra.utils import instantiate

from seq2seq_attn.alignment.forced_attention import SlotMap, WordMaps, attention_along_words
from seq2seq_attn.alignment.word_alignment import (
    Extraction,
    Link,
    WordWeights,
    chosen_weights,
    links_of,
    weights_by_word,
    word_links,
)
from seq2seq_attn.data.cleaning import Cleaning, cleaning_options
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


def word_maps(
    model: EncoderDecoder, tokenizer: SentencePieceTokenizer, pairs: Sequence[Words], config: Mapping[str, Any]
) -> list[WordMaps]:
    """Return the attention along each pair, whose words are normalised as the run does it with texts to translate.

    Args:
        config: of the run.
    """
    return [attention_along_words(model, tokenizer, *pair) for pair in normalised(pairs, config)]


def pair_lengths(tokenizer: SentencePieceTokenizer, pairs: Sequence[Words], config: Mapping[str, Any]) -> Iterator[int]:
    """Yield the number of tokens of the longer side of each pair, end token included, as `word_maps` encodes them."""
    for source, target in normalised(pairs, config):
        sides = tokenizer.encode_source(source), tokenizer.encode_target(target)
        yield max(sum(map(len, words)) for words in sides) + 1


def normalised(pairs: Sequence[Words], config: Mapping[str, Any]) -> Iterator[Words]:
    cleaning: Cleaning = instantiate(cleaning_options(config["data"]), _convert_="all")
    for pair in pairs:
        source, target = ([cleaning.normalize_text(word) for word in side] for side in pair)
        yield source, target


def attended_links(maps: WordMaps, heads: Heads, extraction: Extraction) -> list[Link]:
    """Return the links of a pair by the weights of some heads."""
    return links_of(attended_weights(maps, heads, extraction), extraction)


def attended_weights(maps: WordMaps, heads: Heads, extraction: Extraction) -> WordWeights:
    """Return the weights of some heads by word, which the links of a pair are read from."""
    weights = chosen_weights(maps.maps, *heads)
    return weights_by_word(weights, maps.source, maps.target, num_words=maps.num_words, shift=extraction.shift)


def links_by_layer(maps: Sequence[SlotMap], extraction: Extraction) -> dict[str, dict[str, Any]]:
    """Return the links of each head of cross-attention and of the mean of each layer, by slot, as `as_lists` does."""
    by_slot: dict[str, dict[str, Any]] = {}
    for one in maps:
        if one.slot.startswith("cross/"):
            links = partial(word_links, columns=one.columns, rows=one.rows, extraction=extraction)
            heads = [as_lists(links(one.weights[[head]])) for head in range(len(one.weights))]
            by_slot[one.slot] = {"heads": heads, "mean": as_lists(links(one.weights))}
    return by_slot


def as_lists(links: Sequence[Link]) -> list[list[int]]:
    """Return links as JSON has them."""
    return [list(link) for link in links]


def all_heads(maps: WordMaps) -> list[Heads]:
    """Return every head, the mean of each layer that has several heads, and the mean of all."""
    choices = []
    for one in maps.maps:
        if one.slot.startswith("cross/"):
            layer, heads = int(one.slot.partition("/")[2]), len(one.weights)
            choices += [Heads(layer, head) for head in range(heads)] + [Heads(layer)] * (heads > 1)
    return choices if len(choices) == 1 else [*choices, Heads()]
