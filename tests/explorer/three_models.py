"""An RNN, a ConvS2S and a Transformer of random weights, and what an answer holds, as arrays."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import numpy as np
from tiny import SENTENCES, write_checkpoint

from seq2seq_attn.inference.translator import Translator

TEXT = SENTENCES[5]
BEAM = {"name": "beam", "beam_size": 3, "num_best": 2, "limits.max_length": 6}
RNN, CONV, TRANSFORMER = range(3)
NAMES = ("rnn", "conv", "transformer")
TWO_LAYERS = ("model.encoder.num_layers=2", "model.decoder.num_layers=2")
OVERRIDES = (
    ("model=rnn",),
    ("model=conv", "model.decoder.num_layers=2", "attention.num_heads=2"),
    (
        "model=transformer",
        "attention=alternating",
        "attention.pattern.patterns.local.k=4",
        "attention.pattern.patterns.atrous.k=4",
        "attention.num_heads=2",
        "attention@cross_attention=synthesizer_dense_vanilla",
        "cross_attention.num_heads=2",
        *TWO_LAYERS,
    ),
)


def translator_of(folder: Path, *overrides: str) -> Translator:
    """Return a translator in float64, so that two orders of a sum agree."""
    short = "search.limits.max_length=20"  # a random model writes to the limit
    translator = Translator.load(write_checkpoint(folder / "model.ckpt", short, *overrides, scale=1.5), device="cpu")
    translator.engine.model.double()  # type: ignore[attr-defined]
    return translator


def slot_of(look: dict[str, Any], name: str) -> dict[str, Any]:
    (slot,) = [slot for slot in look["slots"] if slot["name"] == name]
    return slot


def weights_of(slot: dict[str, Any]) -> np.ndarray:
    """(heads, rows, columns)"""
    numbers = np.frombuffer(base64.b64decode(slot["weights"]), {"float32": "<f4", "float16": "<f2"}[slot["dtype"]])
    return numbers.reshape(slot["heads"], slot["rows"], slot["columns"])


def hidden_of(slot: dict[str, Any]) -> np.ndarray:
    """(1 or heads, rows, columns)"""
    shape = (slot["hidden_heads"], slot["rows"], slot["columns"])
    bits = np.unpackbits(np.frombuffer(base64.b64decode(slot["hidden"]), np.uint8))
    assert 0 <= len(bits) - np.prod(shape) < 8
    return bits[: np.prod(shape)].reshape(shape).astype(bool)
