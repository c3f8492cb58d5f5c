"""The contract of a corpus reader, and what it returns: cleaned splits and a report of the cleaning."""

from __future__ import annotations

import hashlib
import logging
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple, final

import numpy as np
from jaxtyping import UInt64

from seq2seq_attn.errors import UserError
from seq2seq_attn.text import printable

log = logging.getLogger(__name__)


@final
@dataclass(frozen=True)
class Split:
    """Sentence pairs in corpus order.

    Attributes:
        sources, targets: cleaned sentences; the target of a test sentence is its first reference.
        references: the uncleaned references of each row: its own, then other translations of the same source.
        shards: number of rows of each shard on disk, in order; None: the pairs are in memory.
    """

    sources: Sequence[str]
    targets: Sequence[str]
    references: Sequence[list[str]]
    shards: tuple[int, ...] | None = None

    def __len__(self) -> int:
        return len(self.sources)


@final
class EmptyTexts(Sequence[str]):
    """A sequence of empty texts that takes no memory."""

    def __init__(self, number: int) -> None:
        self.rows = range(number)

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, row: Any) -> Any:
        chosen = self.rows[row]  # raises IndexError for a row that is not there
        return [""] * len(chosen) if isinstance(chosen, range) else ""


@final
@dataclass(frozen=True)
class LoadedCorpus:
    """Splits by name: "train", "val", "test", and further test sets as "test_...", in that order.

    Attributes:
        origins: where each side was read from, such as "column 1", if the user can choose it.
        stored: a digest of the content, if the corpus is on disk.
        stored_train: a digest of the training split, if it is on disk.
        shared_targets: how many targets of each split are also in train, if the corpus is on disk; nothing of text
            without translations, whose sources are counted in `report`.
        is_one_sided: whether it has targets alone.
        num_processes: processes that prepare what is made of the corpus; None: one for each core.
        copy_to: folder to which what is made of the corpus is copied too, and read from; None: none.
    """

    splits: dict[str, Split]
    report: CleaningReport
    source_language: str
    target_language: str
    origins: tuple[str, str] = ("", "")
    stored: str | None = None
    stored_train: str | None = None
    shared_targets: dict[str, int] = field(default_factory=dict)
    copy_to: Path | None = None
    num_processes: int | None = None
    is_one_sided: bool = False

    def one_sided(self) -> LoadedCorpus:
        """Return the corpus of the targets alone, without empty ones: every source is empty.

        Raises:
            UserError: if a split has no target with text.
        """
        splits = {name: targets_alone(name, split) for name, split in self.splits.items()}
        shared = self.shared_targets
        if self.stored is None and "train" in splits:  # the splits differ in their sources, which are not read
            known = set(splits["train"].targets)
            others = {name: split.targets for name, split in splits.items() if name != "train"}
            shared = {name: sum(text in known for text in targets) for name, targets in others.items()}
        for name, count in shared.items():
            if count:
                number = len(splits[name])
                log.warning(f"{count} of {number} texts of {name} are also in train, so its score is too optimistic")
        empty = {
            f"{name}: dropped, empty": len(self.splits[name]) - len(split)
            for name, split in splits.items()
            if len(split) < len(self.splits[name])
        }
        stored = self.stored
        if stored is not None:
            kind = "one-sided without empty" if empty else "one-sided"
            stored = hashlib.sha256(f"{stored}\t{kind}".encode()).hexdigest()
        report = CleaningReport(self.report.counts | empty)
        return replace(self, splits=splits, report=report, stored=stored, is_one_sided=True)

    @property
    def direction(self) -> str:
        """The direction for display, such as `fr (column 2) → en (column 1)`, or the language of one-sided text."""
        sides = zip((self.source_language, self.target_language), self.origins, strict=True)
        shown = [f"{name} ({origin})" if origin else str(name) for name, origin in sides]
        return printable(shown[1] if self.is_one_sided else " → ".join(shown))

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 of the content of all splits."""
        return self._digest(self.splits) if self.stored is None else self.stored

    @cached_property
    def train_fingerprint(self) -> str:
        """SHA-256 of the content of the training split."""
        return self._digest(["train"]) if self.stored_train is None else self.stored_train

    def _digest(self, names: Iterable[str]) -> str:
        digest = hashlib.sha256(f"{self.source_language}\t{self.target_language}\n".encode())
        for name in names:
            split = self.splits[name]
            digest.update(f"{name}\t{len(split)}\n".encode())
            for source, target, references in zip(split.sources, split.targets, split.references, strict=True):
                # Lines contain neither NUL nor line ends, so different corpora give different bytes.
                digest.update("\0".join([source, target, *references]).encode() + b"\n")
        return digest.hexdigest()


def targets_alone(name: str, split: Split) -> Split:
    """Return a split of the targets that are not empty."""
    is_clean = name == "train" and split.shards is not None  # of any size, and cleaned when it was prepared
    if not is_clean and "" in split.targets:
        rows = [row for row, text in enumerate(split.targets) if text]
        if not rows:
            raise UserError(f"every target of {name} is empty; give a file or a split that has text")
        split = Split([], [split.targets[row] for row in rows], [split.references[row] for row in rows])
    return replace(split, sources=EmptyTexts(len(split.targets)))


class Corpus(ABC):
    """A reader that cleans and splits one collection of sentence pairs.

    Attributes:
        has_one_side: whether source and target are the same text, which is no translation to learn.
    """

    has_one_side: bool = False

    @abstractmethod
    def load(self) -> LoadedCorpus:
        """Read, clean and split the pairs.

        Raises:
            UserError: for missing or unreadable files, columns or splits.
        """

    def training_pairs(self) -> Iterator[list[tuple[str, str] | None]]:
        """Yield the pairs of the training files in order, normalised as in `load`, and None for each rejected line.

        Raises:
            UserError: if the corpus has no such files.
        """
        raise UserError(
            f"{type(self).__name__} has no training file to whose lines guided_alignment.links=FILE could belong; use "
            "data=parallel, or guided_alignment.links=eflomal"
        )

    def training_identity(self) -> list[Any]:
        """Return what changes with the lines that `training_pairs` yields, as plain data; by default nothing."""
        return []


class Pair(NamedTuple):
    """A cleaned source and target; `reference` is the uncleaned target, for scoring."""

    source: str
    target: str
    reference: str


def read(reader: Corpus) -> LoadedCorpus:
    """Return what a reader, perhaps of the user's own, loads.

    Raises:
        UserError: if that is no corpus, or a split has no pairs or not as many targets as sources.
    """
    name, corpus = f"{type(reader).__name__}.load", reader.load()
    check_kind(f"{name} returns a value", corpus, LoadedCorpus)
    check_kind(f"{name} returns a report", corpus.report, CleaningReport)
    for split, rows in corpus.splits.items():
        check_kind(f"{name} returns a split {split}", rows, Split)
        sides = {"sources": rows.sources, "targets": rows.targets, "references": rows.references}
        sizes = {len(side) for side in sides.values()}
        if sizes == {0} or len(sizes) > 1:
            counts = ", ".join(f"{len(side)} {side_name}" for side_name, side in sides.items())
            raise UserError(f"{name} returns a split {split} of {counts}; return as many of each, and at least one")
        if isinstance(rows.references[0], str):
            raise UserError(f"{name} returns texts as the references of {split}; return a list of texts for each row")
    return corpus


def check_kind(what: str, given: Any, kind: type) -> None:
    if not isinstance(given, kind):
        raise UserError(
            f"{what} of type {type(given).__name__}, not {kind.__name__}; see the corpus reader in docs/extending.md"
        )


@final
@dataclass(frozen=True)
class CleaningReport:
    """Counts in the order of the steps, such as "train: pairs read" and "train: dropped, empty side"."""

    counts: dict[str, int]


def hashes(texts: Iterator[str]) -> UInt64[np.ndarray, " texts"]:
    """Return the first 64 bits of each text's SHA-256, in the order of the digests."""
    digests = b"".join(hashlib.sha256(text.encode()).digest()[:8] for text in texts)
    return np.frombuffer(digests, ">u8").astype(np.uint64)
