"""A split as token ids: flat arrays on disk, mapped into memory rather than loaded."""

from __future__ import annotations

from pathlib import Path
from typing import final

import numpy as np
from jaxtyping import Int32, Int64
from rich.progress import track

from seq2seq_attn.data.corpus import Split
from seq2seq_attn.files import replacing
from seq2seq_attn.tokenizer.sentencepiece import SentencePieceTokenizer

CHUNK = 10_000  # sentences encoded at once
LONG = 100_000  # sentences; a split of this size or more gets a progress bar
ARRAYS = ("source_ids", "target_ids", "source_offsets", "target_offsets")


@final
class EncodedSplit:
    """Token ids of all sentences: sentence `i` is `ids[offsets[i] : offsets[i + 1]]`, without begin or end token."""

    def __init__(
        self,
        *,
        source_ids: Int32[np.ndarray, "source_tokens"],
        target_ids: Int32[np.ndarray, "target_tokens"],
        source_offsets: Int64[np.ndarray, "fences"],
        target_offsets: Int64[np.ndarray, "fences"],
    ) -> None:
        if len(source_ids) != source_offsets[-1] or len(target_ids) != target_offsets[-1]:
            raise ValueError("the ids and offsets of an encoded split do not match")
        self.source_ids, self.target_ids = source_ids, target_ids
        self.source_offsets, self.target_offsets = source_offsets, target_offsets

    def __len__(self) -> int:
        return len(self.source_offsets) - 1

    def source(self, i: int) -> Int32[np.ndarray, "tokens"]:
        return self.source_ids[self.source_offsets[i] : self.source_offsets[i + 1]]

    def target(self, i: int) -> Int32[np.ndarray, "tokens"]:
        return self.target_ids[self.target_offsets[i] : self.target_offsets[i + 1]]

    @property
    def source_lengths(self) -> Int64[np.ndarray, "sentences"]:
        return np.diff(self.source_offsets)

    @property
    def target_lengths(self) -> Int64[np.ndarray, "sentences"]:
        return np.diff(self.target_offsets)


def encode_split(split: Split, tokenizer: SentencePieceTokenizer, folder: Path) -> EncodedSplit:
    """Return the encoding cached in `folder`, a folder for exactly this content; encode the split if it is missing."""
    try:
        return open_encoded(folder)
    except (OSError, ValueError, EOFError):
        pass  # not there yet, or damaged
    source_ids, source_offsets = flatten(split.sources, tokenizer, "source")
    target_ids, target_offsets = flatten(split.targets, tokenizer, "target")
    for name, array in zip(ARRAYS, (source_ids, target_ids, source_offsets, target_offsets), strict=True):
        with replacing(folder / f"{name}.npy") as stream:
            np.save(stream, array)
    return open_encoded(folder)


def open_encoded(folder: Path) -> EncodedSplit:
    return EncodedSplit(**{name: map_array(folder / f"{name}.npy") for name in ARRAYS})


def map_array(file: Path) -> np.ndarray:
    """Return the array read-only, as a plain ndarray: indexing a memmap object is slow."""
    try:
        return np.load(file, mmap_mode="r").view(np.ndarray)
    except ValueError:  # an empty array cannot be mapped
        return np.load(file)


def flatten(
    sentences: list[str], tokenizer: SentencePieceTokenizer, side: str
) -> tuple[Int32[np.ndarray, "tokens"], Int64[np.ndarray, "fences"]]:
    """Return the ids of all sentences as one array, and their offsets in it."""
    encode = tokenizer.encode_source if side == "source" else tokenizer.encode_target
    ids, lengths = [np.zeros(0, np.int32)], [0]
    starts = range(0, len(sentences), CHUNK)
    for start in track(starts, f"Encoding the {side} side", transient=True, disable=len(sentences) < LONG):
        rows = encode(sentences[start : start + CHUNK])
        lengths += [len(row) for row in rows]
        ids.append(np.concatenate([np.asarray(row, np.int32) for row in rows]))
    return np.concatenate(ids), np.cumsum(lengths, dtype=np.int64)
