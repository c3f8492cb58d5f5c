"""A prepared corpus: opened from the cache if its files, cleaning and split are those that were prepared."""

from __future__ import annotations

import hashlib
import json
import logging
import re
import shutil
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from itertools import pairwise
from pathlib import Path
from typing import Any, final

import numpy as np
import pyarrow as pa

from seq2seq_attn.data.cleaning import Cleaning
from seq2seq_attn.data.corpus import CleaningReport, LoadedCorpus, Split
from seq2seq_attn.data.splitting import warn_of_overlap
from seq2seq_attn.data.store.corpus_weights import Mixture
from seq2seq_attn.data.store.held_out import HeldOut
from seq2seq_attn.data.store.local_copy import local_copy
from seq2seq_attn.data.store.pair_source import PairSource
from seq2seq_attn.data.store.part import read_table
from seq2seq_attn.data.store.prepare_text import prepare_text
from seq2seq_attn.data.store.progress import progress
from seq2seq_attn.data.store.rejected import check_rejected
from seq2seq_attn.data.store.shard import shard_file
from seq2seq_attn.distributed.workers import Workers, num_cores
from seq2seq_attn.errors import UserError
from seq2seq_attn.files import locked, replacing

FORMAT = 3  # of the files; another one is prepared anew
SMALL = 1 << 25  # bytes of files that one process prepares before others would have started
TEMPORARY = re.compile(r".+\.arrow\.\d+\.[0-9a-f]{8}")  # of `files.replacing`
ROWS = 1 << 11  # decoded at once when all texts are read

log = logging.getLogger(__name__)


class Texts(Sequence[Any]):
    """A column of a split, in shards on disk, one of which is open at a time.

    Args:
        files, rows: the shards, and the number of rows of each.
        name: of the column.
    """

    def __init__(self, files: list[Path], rows: list[int], name: str) -> None:
        self.files, self.name = files, name
        self.starts = np.cumsum([0, *rows])
        self._open: tuple[int, Any] = (-1, None)

    def __len__(self) -> int:
        return int(self.starts[-1])

    def __getitem__(self, row: Any) -> Any:
        if isinstance(row, slice):
            return self._slice(*row.indices(len(self)))
        row = range(len(self))[row]
        number = int(np.searchsorted(self.starts, row, "right")) - 1
        return self._value(number, row - int(self.starts[number]))

    def __iter__(self) -> Iterator[Any]:
        for number in range(len(self.files)):
            rows = len(self._column(number))
            for start in range(0, rows, ROWS):
                yield from self._values(number, start, min(start + ROWS, rows))

    def _slice(self, start: int, end: int, step: int) -> list[Any]:
        values: list[Any] = []
        for number, (first, last) in enumerate(pairwise(self.starts.tolist())):
            if max(start, first) < min(end, last):
                values += self._values(number, max(start, first) - first, min(end, last) - first)
        return values[::step]

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_open": (-1, None)}

    def _column(self, number: int) -> pa.ChunkedArray:
        if self._open[0] != number:
            self._open = (number, open_shard(self.files[number]))
        return self._open[1][self.name]

    def _value(self, number: int, row: int) -> Any:
        return self._column(number)[row].as_py()

    def _values(self, number: int, start: int, end: int) -> list[Any]:
        return self._column(number).slice(start, end - start).to_pylist()


def open_shard(file: Path) -> pa.Table:
    """Return the texts of a shard.

    Raises:
        UserError: if it is gone, or is no longer what was written.
    """
    try:
        return read_table(file)
    except (OSError, pa.ArrowInvalid) as error:
        raise UserError(
            f"{file}, a shard of the prepared corpus, is missing or damaged; delete {file.parents[1]} and run the "
            "command again"
        ) from error


@final
class References(Texts):
    """The references of each row; where none are stored, the target is the only one."""

    def __init__(self, files: list[Path], rows: list[int]) -> None:
        super().__init__(files, rows, "references")
        self._targets = Texts(files, rows, "target")

    def _value(self, number: int, row: int) -> Any:
        references = super()._value(number, row)
        return [self._targets._value(number, row)] if references is None else references

    def _values(self, number: int, start: int, end: int) -> list[Any]:
        pairs = zip(super()._values(number, start, end), self._targets._values(number, start, end), strict=True)
        return [[target] if references is None else references for references, target in pairs]


def stored_corpus(
    sources: dict[str, list[PairSource]],
    cleaning: Cleaning,
    *,
    held_out: HeldOut,
    cache_dir: Path,
    languages: tuple[str, str],
    origins: tuple[str, str] = ("", ""),
    max_rejected: float = 0.01,
    num_processes: int | None = None,
    verify: bool = False,
    mixture: Mixture | None = None,
    copy_to: Path | None = None,
) -> LoadedCorpus:
    """Return the corpus of these files, prepared now or before.

    Args:
        sources: files by split; without "train", nothing is held out.
        cache_dir: folder of prepared corpora.
        max_rejected: largest share of lines that may be rejected.
        num_processes: processes that prepare; None: as many as cores.
        verify: compare the whole files with those that were prepared.
        mixture: the weights of the corpora that the sources name.
        copy_to: folder, such as of a node's own disk, from whose copy the corpus is read; None: from `cache_dir`.
    """
    identity = identities(sources, verify)
    settings = [FORMAT, identity, vars(cleaning), held_out, languages]
    if mixture is not None:
        weights, seed, temperature = mixture
        settings += [[weights, seed], [source.corpus for source in sources.get("train", [])]]
        settings += [] if temperature is None else [temperature]
    key = hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()[:32]
    folder = cache_dir / key
    is_new = not is_complete(folder)
    with locked(cache_dir / f"{key}.lock") if is_new else nullcontext():  # of this machine's processes and others'
        if not is_complete(folder):
            remove_temporaries(folder)
            about = prepare(sources, cleaning, held_out, folder, max_rejected, num_processes, mixture)
            check_unchanged(sources, identity, folder, verify)
            with replacing(folder / "corpus.json") as stream:  # a sign that the shards are complete
                stream.write(json.dumps(about).encode())
    about = json.loads((folder / "corpus.json").read_text())
    for split in () if is_new else sources:
        label = split if split != "train" or len(sources) > 1 else "all"
        counts = {name.removeprefix(f"{label}: "): count for name, count in about["counts"].items()}
        if "lines rejected" in counts:
            check_rejected(folder, split, counts, max_rejected)
    if copy_to is not None:
        folder = local_copy(folder, copy_to)
    splits = {split: open_split(folder, split, shards) for split, shards in about["shards"].items()}
    for split, rows in splits.items():
        warn_of_overlap(split, about["counts"].get(f"{split}: sources also in train", 0), len(rows))
    digest, train_digest = (
        hashlib.sha256(json.dumps([languages, shards]).encode()).hexdigest()
        for shards in (about["shards"], about["shards"].get("train"))
    )
    return LoadedCorpus(
        splits,
        CleaningReport(about["counts"]),
        *languages,
        origins,
        stored=digest,
        stored_train=train_digest,
        shared_targets=about.get("shared_targets", {}),  # not there if an earlier version prepared it
        copy_to=copy_to,
        num_processes=num_processes,
    )


def is_complete(folder: Path) -> bool:
    """Return whether a corpus was prepared in this folder, and all of its shards are there."""
    file = folder / "corpus.json"
    if not file.exists():
        return False
    try:
        shards = json.loads(file.read_text())["shards"]
    except (ValueError, KeyError, TypeError):  # a copy was interrupted
        return False
    return all(shard_file(folder, split, number).exists() for split in shards for number in range(len(shards[split])))


def prepare(
    sources: dict[str, list[PairSource]],
    cleaning: Cleaning,
    held_out: HeldOut,
    folder: Path,
    max_rejected: float,
    num_processes: int | None,
    mixture: Mixture | None,
) -> dict[str, Any]:
    """Write the shards; return what `prepare_text` does."""
    size = sum(source.size for files in sources.values() for source in files)
    processes = 1 if size <= SMALL else num_processes or num_cores()
    with progress("Reading the corpus", size, shown=size > SMALL) as advance, Workers(processes) as workers:
        return prepare_text(
            sources,
            cleaning,
            held_out,
            folder,
            workers=workers,
            max_rejected=max_rejected,
            advance=advance,
            mixture=mixture,
        )


def remove_temporaries(folder: Path) -> None:
    """Remove what is left of files that `replacing` had begun when a preparation was killed."""
    for file in folder.rglob("*.arrow.*"):
        if TEMPORARY.fullmatch(file.name):
            file.unlink()


def identities(sources: dict[str, list[PairSource]], verify: bool) -> dict[str, list[Any]]:
    return {split: [source.identity(verify) for source in files] for split, files in sources.items()}


def check_unchanged(
    sources: dict[str, list[PairSource]], before: dict[str, list[Any]], folder: Path, verify: bool
) -> None:
    """Refuse files that are no longer what they were before they were read, and remove what was made of them.

    Raises:
        UserError: if one has changed.
    """
    after = identities(sources, verify)
    for split, files in sources.items():
        for source, old, new in zip(files, before[split], after[split], strict=True):
            if old != new:
                shutil.rmtree(folder, ignore_errors=True)
                names = " or ".join(str(file) for file in source.files)
                raise UserError(
                    f"{names} or its modification time changed while the corpus was being prepared; run the command "
                    "again"
                )


def open_split(folder: Path, split: str, shards: list[list[Any]]) -> Split:
    files = [shard_file(folder, split, number) for number in range(len(shards))]
    rows = [count for count, _ in shards]
    return Split(Texts(files, rows, "source"), Texts(files, rows, "target"), References(files, rows), tuple(rows))
