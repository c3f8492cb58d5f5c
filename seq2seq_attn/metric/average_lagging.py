"""Average Lagging of a simultaneous translation, in source tokens. Ma et al. 2019, eq. 8, arXiv:1810.08398."""

from __future__ import annotations

from collections.abc import Sequence

from seq2seq_attn.attention.pattern.wait_k import WaitKPattern
from seq2seq_attn.decoder.transformer import TransformerDecoder
from seq2seq_attn.model.encoder_decoder import EncoderDecoder
from seq2seq_attn.model.ensemble import Ensemble


def average_lagging(read: Sequence[int], source_length: int) -> float:
    """Return the mean of g(t) - (t - 1) / r over the target tokens up to the first for which all of the source is read.

    r is the length of the target over that of the source. If there is no such token, the mean is over all tokens.

    Args:
        read: g(t), the number of source tokens read before each target token.
    """
    ratio = len(read) / source_length
    whole = next((t for t, number in enumerate(read, 1) if number == source_length), len(read))
    return sum(number - t / ratio for t, number in enumerate(read[:whole])) / whole


def waiting_patterns(model: EncoderDecoder | Ensemble) -> list[WaitKPattern]:
    """Return the patterns of the attention to the source, by layer; empty if the model may read ahead of one of them.

    It does so where a layer has another pattern, where the encoder reads in both directions, and in a decoder that is
    no Transformer: a recurrent one starts from a summary of the source, and a convolutional one knows its length.
    """
    if not isinstance(model, EncoderDecoder) or not isinstance(model.decoder, TransformerDecoder):
        return []
    if not getattr(model.encoder, "causal", False):
        return []
    patterns = [getattr(layer, "pattern", None) for layer in model.decoder.source_attentions]
    waiting = [pattern for pattern in patterns if isinstance(pattern, WaitKPattern)]
    return waiting if len(waiting) == len(patterns) else []


def tokens_read(patterns: Sequence[WaitKPattern], source_length: int, target_length: int) -> list[int]:
    """Return g(t), which is that of the layer that waits longest."""
    return [
        max(pattern.window(position, source_length, causal=False).stop for pattern in patterns)
        for position in range(target_length)
    ]
