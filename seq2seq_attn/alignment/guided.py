"""What guided alignment taught a run: the head that aligns words, and the step whose weights are its links."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from seq2seq_attn.alignment.attention_links import Heads
from seq2seq_attn.alignment.word_alignment import Extraction
from seq2seq_attn.model.encoder_decoder import EncoderDecoder

DEFAULTS = {  # of the options by which links are read from weights
    "alignment_layer": None, "alignment_head": None, "alignment_threshold": None, "alignment_shift": None,
    "alignment_sink": True,
}  # fmt: skip


def changed_options(options: Mapping[str, Any]) -> list[str]:
    """Return the names of the options `alignment_*` that differ from their defaults."""
    return [name for name, default in DEFAULTS.items() if options[name] != default]


def guidance(config: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return the options of guided alignment; None: a run without it, which has no links or a weight of 0.

    Args:
        config: of the run, as its checkpoint holds it.
    """
    guided: Mapping[str, Any] = config.get("guided_alignment") or {}
    return guided if guided.get("links") is not None and guided.get("weight") else None


def guided_head(config: Mapping[str, Any], model: EncoderDecoder) -> Heads | None:
    """Return the head that guided alignment taught to align words; None: a run without guided alignment."""
    guided = guidance(config)
    if guided is None:
        return None
    layer = guided.get("layer")
    return Heads(last_but_one(model) if layer is None else layer, guided.get("head", 0))


def guided_shift(config: Mapping[str, Any]) -> bool:
    """Return whether guided alignment taught a head the links of the word that a step reads, not writes."""
    guided = guidance(config)
    return guided is not None and bool(guided.get("shift"))


def chosen_extraction(options: Mapping[str, Any], config: Mapping[str, Any]) -> Extraction:
    """Return how the options `alignment_*` read links from the weights of a run.

    Args:
        config: of the run.
    """
    shift = options["alignment_shift"]
    return Extraction(
        options["alignment_threshold"], guided_shift(config) if shift is None else shift, options["alignment_sink"]
    )


def last_but_one(model: EncoderDecoder) -> int:
    """Return the number of the last layer but one that attends to the source, or of the only one."""
    return max(0, len(model.decoder.source_attentions) - 2)
