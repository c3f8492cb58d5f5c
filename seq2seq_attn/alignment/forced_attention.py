"""The attention along a given translation, by one teacher-forced pass, so that any search has maps."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float

from seq2seq_attn.data.collate import collate_sources
from seq2seq_attn.model.encoder_decoder import EncoderDecoder
from seq2seq_attn.tokenizer.sentencepiece import SentencePieceTokenizer


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
    read = [*tokenizer.source_tokens(source), "</s>"]
    written = tokenizer.target_tokens(target)
    axes = {
        "cross": (read, [*written, "</s>"]),
        "self": (["<s>", *written], [*written, "</s>"]),
        "encoder": (read, read),
    }
    return [
        SlotMap(slot, weights[0].float().cpu().numpy(), *axes[slot.partition("/")[0]])
        for slot, weights in decoded.weights.items()
    ]
