"""A split as token ids in shards on disk: flat arrays, mapped into memory one shard at a time."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, final

import numpy as np
from jaxtyping import Int64, Integer

from seq2seq_attn.data.batch_sampler import Lengths
from seq2seq_attn.data.corpus import Split
from seq2seq_attn.data.store.encode_range import encode_range
from seq2seq_attn.data.store.local_copy import local_copy
from seq2seq_attn.data.store.progress import progress
from seq2seq_attn.distributed.workers import Workers, num_cores
from seq2seq_attn.errors import UserError
from seq2seq_attn.files import locked, replacing
from seq2seq_attn.tokenizer.sentencepiece import SentencePieceTokenizer

RANGE = 20_000  # sentences encoded at once
LONG = 100_000  # pairs; a split of this size or more is encoded in several processes, with a progress bar
ARRAYS = ("source_ids", "target_ids", "source_offsets", "target_offsets")

log = logging.getLogger(__name__)


@final
class EncodedShard:
    """Token ids of all sentences: sentence `i` is `ids[offsets[i] : offsets[i + 1]]`, without begin or end token."""

    def __init__(
        self,
        *,
        source_ids: Integer[np.ndarray, " source_tokens"],
        target_ids: Integer[np.ndarray, " target_tokens"],
        source_offsets: Integer[np.ndarray, " fences"],
        target_offsets: Integer[np.ndarray, " fences"],
    ) -> None:
        if len(source_ids) != source_offsets[-1] or len(target_ids) != target_offsets[-1]:
            raise ValueError("the ids and offsets of an encoded split do not match")
        self.source_ids, self.target_ids = source_ids, target_ids
        self.source_offsets, self.target_offsets = source_offsets, target_offsets

    def __len__(self) -> int:
        return len(self.source_offsets) - 1

    @property
    def lengths(self) -> Lengths:
        return Lengths(np.diff(self.source_offsets), np.diff(self.target_offsets))


@final
class EncodedSplit(Sequence[Lengths]):
    """The shards of a split: its items are their lengths; one shard is open at a time.

    Attributes:
        starts: number of the first row of each shard, and the number of all rows.
        longest: length in tokens of the longest source and target, with the end or begin token.
    """

    def __init__(self, folder: Path, rows: Sequence[int], longest: tuple[int, int]) -> None:
        self.folder, self.longest = folder, longest
        self.starts: Int64[np.ndarray, " fences"] = np.cumsum([0, *rows])
        self._open: tuple[int, EncodedShard | None] = (-1, None)

    def __len__(self) -> int:
        return len(self.starts) - 1

    def __getitem__(self, number: Any) -> Any:
        return self.shard(range(len(self))[number]).lengths

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_open": (-1, None)}

    @property
    def num_rows(self) -> int:
        return int(self.starts[-1])

    def shard(self, number: int) -> EncodedShard:
        """Return the arrays of a shard; those of another one are released."""
        if self._open[0] != number or self._open[1] is None:
            self._open = (number, open_shard(self.folder, number))
        assert self._open[1] is not None
        return self._open[1]

    def locate(self, rows: Sequence[int]) -> tuple[EncodedShard, Int64[np.ndarray, " rows"]]:
        """Return the shard of these rows, which must be those of one shard, and their numbers in it."""
        index = np.asarray(rows, np.int64)
        number = int(np.searchsorted(self.starts, index[0], "right")) - 1 if len(index) else 0
        return self.shard(number), index - self.starts[number]


def encode_split(
    split: Split,
    tokenizer: SentencePieceTokenizer,
    folder: Path,
    copy_to: Path | None = None,
    num_processes: int | None = None,
) -> EncodedSplit:
    """Return the encoding in `folder`, a folder for exactly this content; encode the shards that are missing.

    Args:
        copy_to: folder from whose copy the encoding is read; None: from `folder`.
        num_processes: processes that encode a large split; None: one for each core.
    """
    rows = split.shards or (len(split),)
    if not all(is_complete(folder, number) for number in range(len(rows))):
        with locked(folder / "lock"):
            missing = [number for number in range(len(rows)) if not is_complete(folder, number)]
            if missing:
                encode_shards(split, tokenizer, folder, rows, missing, num_processes)
    return open_encoded(folder if copy_to is None else local_copy(folder, copy_to))


def open_encoded(folder: Path) -> EncodedSplit:
    shards = [json.loads(file.read_text()) for file in sorted(folder.glob("*.json"))]
    sources, targets = zip(*(shard["longest"] for shard in shards), strict=True)
    return EncodedSplit(folder, [shard["rows"] for shard in shards], (max(sources), max(targets)))


def encode_shards(
    split: Split,
    tokenizer: SentencePieceTokenizer,
    folder: Path,
    rows: Sequence[int],
    missing: list[int],
    num_processes: int | None,
) -> None:
    """Encode these shards, side by side in several processes if they are large."""
    starts = np.cumsum([0, *rows]).tolist()
    total = 2 * sum(rows[number] for number in missing)
    sides = (
        (tokenizer.source_model.serialized_model_proto(), split.sources),
        (tokenizer.target_model.serialized_model_proto(), split.targets),
    )
    ranges = [
        (side, slice(start, min(start + RANGE, starts[number + 1])))
        for number in missing
        for side in (0, 1)
        for start in range(starts[number], starts[number + 1], RANGE) or [starts[number]]
    ]
    tasks = (
        (model, texts, part) if split.shards else (model, texts[part], None)
        for side, part in ranges
        for model, texts in [sides[side]]
    )
    long = total >= 2 * LONG
    done = 0
    processes = (num_processes or num_cores()) if long else 1
    with progress("Encoding", total, "sentences", shown=long) as advance, Workers(processes) as workers:
        results = zip(ranges, workers.map(encode_range, tasks), strict=True)
        for number in missing:
            arrays = {}
            for side in ("source", "target"):
                ids, lengths = [], [np.zeros(1, np.int64)]
                for _ in range(0, max(rows[number], 1), RANGE):
                    _, (some_ids, some_lengths) = next(results)
                    ids.append(some_ids)
                    lengths.append(some_lengths)
                    done += len(some_lengths)
                    advance(done)
                arrays[f"{side}_ids"] = np.concatenate(ids)
                arrays[f"{side}_offsets"] = np.cumsum(np.concatenate(lengths))
            write_shard(folder, number, arrays)


def write_shard(folder: Path, number: int, arrays: dict[str, np.ndarray]) -> None:
    """Write the arrays and then, as a sign that they are complete, their sizes and the longest lengths."""
    for name, array in arrays.items():
        save_array(folder / f"{number:05d}.{name}.npy", array)
    longest = [int(np.diff(arrays[f"{side}_offsets"]).max(initial=0)) + 1 for side in ("source", "target")]
    sizes = {name: os.stat(folder / f"{number:05d}.{name}.npy").st_size for name in ARRAYS}
    with replacing(shard_json(folder, number)) as stream:
        stream.write(
            json.dumps({"rows": len(arrays["source_offsets"]) - 1, "longest": longest, "sizes": sizes}).encode()
        )


def is_complete(folder: Path, number: int) -> bool:
    try:
        sizes = json.loads(shard_json(folder, number).read_text())["sizes"]
        return all(os.stat(folder / f"{number:05d}.{name}.npy").st_size == size for name, size in sizes.items())
    except (OSError, ValueError, KeyError):
        return False


def shard_json(folder: Path, number: int) -> Path:
    return folder / f"{number:05d}.json"


def open_shard(folder: Path, number: int) -> EncodedShard:
    """Return the arrays of a shard.

    Raises:
        UserError: if they are gone, or are no longer what was written.
    """
    try:
        return EncodedShard(**{name: map_array(folder / f"{number:05d}.{name}.npy") for name in ARRAYS})
    except (OSError, ValueError, EOFError) as error:
        raise UserError(
            f"shard {number} of the encoded data in {folder} is missing or damaged ({error}); delete this folder and "
            "run the command again"
        ) from error


def save_array(file: Path, array: np.ndarray) -> None:
    """Write an array by the stream's own `write`: that of numpy does not say that a disk is full."""
    with replacing(file) as stream:
        np.save(SimpleNamespace(write=stream.write), array)  # type: ignore[arg-type] # it takes any that writes


def map_array(file: Path) -> np.ndarray:
    """Return the array read-only, as a plain ndarray: indexing a memmap object is slow."""
    try:
        return np.load(file, mmap_mode="r").view(np.ndarray)
    except ValueError:  # an empty array cannot be mapped
        return np.load(file)


def unknown_shares(split: EncodedSplit) -> dict[str, float]:
    """Return the share of the tokens of each side, in the first shard, that the vocabulary lacks."""
    sample = split.shard(0)
    sides = {"source": sample.source_ids, "target": sample.target_ids}
    return {
        side: float(np.mean(ids == SentencePieceTokenizer.unk_id)) if len(ids) else 0.0 for side, ids in sides.items()
    }
