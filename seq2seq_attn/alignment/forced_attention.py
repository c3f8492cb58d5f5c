"""The attention along a given translation, by one teacher-forced pass, so that any search has maps."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int

from seq2seq_attn.data.collate import collate_sources
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


@torch.inference_mode()
def attention_along(
    model: EncoderDecoder, tokenizer: SentencePieceTokenizer, source: list[int], target: list[int]
) -> list[SlotMap]:
    """Return the map of every slot for one sentence, given without begin and end; the end token is the last row
    and column.
    """
    device = model.embed_source.weight.device
    ids, _, mask = collate_sources([source], pad_id=tokenizer.pad_id, eos_id=tokenizer.eos_id)
    target_input = torch.tensor([[tokenizer.bos_id, *target]], device=device)
    decoded = model(ids.to(device), mask.to(device), target_input, need_weights=True)
    read = [*marked_source_words(tokenizer, tokenizer.source_tokens(source)), "</s>"]
    written = marked_words(tokenizer, tokenizer.target_tokens(target))
    axes = {
        "cross": (read, [*written, "</s>"]),
        "self": (["<s>", *written], [*written, "</s>"]),
        "encoder": (read, read),
    }
    return [
        SlotMap(slot, weights[0].float().cpu().numpy(), *axes[slot.partition("/")[0]])
        for slot, weights in decoded.weights.items()
    ]


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
