"""The attention along given translations, by one teacher-forced pass, so that any search has maps."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int

from seq2seq_attn.data.collate import collate_pairs
from seq2seq_attn.errors import UserError
from seq2seq_attn.model.encoder_decoder import EncoderDecoder
from seq2seq_attn.tokenizer.sentencepiece import WORD_MARK, SentencePieceTokenizer


class SlotMap(NamedTuple):
    """Weights of one slot, such as `cross/0`, with the tokens of its columns and rows.

    A row of the target is named by the token that it predicts, a column by the token read there.
    """

    slot: str
    weights: Float[np.ndarray, "heads rows columns"]
    columns: list[str]
    rows: list[str]


def attention_along(
    model: EncoderDecoder, tokenizer: SentencePieceTokenizer, source: list[int], target: list[int]
) -> list[SlotMap]:
    """Return the map of every slot for one sentence, given without begin and end; the end token is the last row
    and column.
    """
    (maps,) = attention_along_batch(model, tokenizer, [source], [target])
    return maps


@torch.inference_mode()
def attention_along_batch(
    model: EncoderDecoder, tokenizer: SentencePieceTokenizer, sources: list[list[int]], targets: list[list[int]]
) -> list[list[SlotMap]]:
    """Return what `attention_along` does for each sentence of a batch."""
    special = {"pad_id": tokenizer.pad_id, "bos_id": tokenizer.bos_id, "eos_id": tokenizer.eos_id}
    batch = collate_pairs(sources, targets, range(len(sources)), **special).to(model.embed_source.weight.device)
    decoded = model(batch.source, batch.source_mask, batch.target_input, need_weights=True)
    slots = {slot: weights.float().cpu().numpy() for slot, weights in decoded.weights.items()}
    return [
        slot_maps(tokenizer, {slot: weights[row] for slot, weights in slots.items()}, source, target)
        for row, (source, target) in enumerate(zip(sources, targets, strict=True))
    ]


def slot_maps(
    tokenizer: SentencePieceTokenizer,
    slots: dict[str, Float[np.ndarray, "heads _ _"]],
    source: list[int],
    target: list[int],
) -> list[SlotMap]:
    """Return the maps of a sentence by its weights in every slot, which may be padded."""
    read = [*marked_source_words(tokenizer, tokenizer.source_tokens(source)), "</s>"]
    written = marked_words(tokenizer, tokenizer.target_tokens(target))
    axes = {
        "cross": (read, [*written, "</s>"]),
        "self": (["<s>", *written], [*written, "</s>"]),
        "encoder": (read, read),
    }
    maps = []
    for slot, weights in slots.items():
        columns, rows = axes[slot.partition("/")[0]]
        maps.append(SlotMap(slot, weights[:, : len(rows), : len(columns)].copy(), columns, rows))
    return maps


class WordMaps(NamedTuple):
    """The maps of a pair's attention to the source, and the word, from 0, that each token of both sides belongs to."""

    maps: list[SlotMap]
    source: Int[np.ndarray, " source_tokens"]
    target: Int[np.ndarray, " target_tokens"]
    num_words: tuple[int, int]


def attention_along_words(
    model: EncoderDecoder, tokenizer: SentencePieceTokenizer, source: list[str], target: list[str]
) -> WordMaps:
    """Return the maps of the attention to the source, of a pair of sentences whose words are encoded one by one.

    Raises:
        UserError: if the model has fewer positions than the pair has tokens.
    """
    sides = tokenizer.encode_source(source), tokenizer.encode_target(target)
    source_ids, target_ids = ([token for word in words for token in word] for words in sides)
    longest = max(len(source_ids), len(target_ids)) + 1
    if model.max_length is not None and longest > model.max_length:
        raise UserError(
            f"the pair of '{' '.join(source[:5])} ...' has {longest} tokens, and the model has positions for "
            f"{model.max_length}; leave it out"
        )
    source_words, target_words = (np.repeat(np.arange(len(words)), [len(word) for word in words]) for words in sides)
    all_maps = attention_along(model, tokenizer, source_ids, target_ids)
    maps = [one for one in all_maps if one.slot.startswith("cross/")]
    return WordMaps(maps, source_words, target_words, (len(source), len(target)))


def marked_words(tokenizer: SentencePieceTokenizer, tokens: list[str]) -> list[str]:
    """Return target tokens, with the mark of a word's begin before an unknown word: a word model keeps none of it."""
    return marked(tokens, tokenizer.target_model.id_to_piece(tokenizer.unk_id), tokenizer.target_model_type)


def marked_source_words(tokenizer: SentencePieceTokenizer, tokens: list[str]) -> list[str]:
    """Do what `marked_words` does for source tokens."""
    return marked(tokens, tokenizer.source_model.id_to_piece(tokenizer.unk_id), tokenizer.model_type)


def marked(tokens: list[str], unknown: str, model_type: str) -> list[str]:
    if model_type != "word":
        return tokens
    return [f"{WORD_MARK}{token}" if token == unknown else token for token in tokens]
