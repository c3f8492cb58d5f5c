"""What a corpus reader gives: cleaned splits, and where they came from."""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, final

from seq2seq_attn.text import printable


@final
@dataclass(frozen=True)
class Split:
    """Sentence pairs in the corpus's order.

    Attributes:
        sources, targets: cleaned; the target of a test sentence is its first reference.
        references: of each row, its own and then other versions of the same source, as the file has them.
    """

    sources: list[str]
    targets: list[str]
    references: list[list[str]]

    def __len__(self) -> int:
        return len(self.sources)


@final
@dataclass(frozen=True)
class LoadedCorpus:
    """Splits by name: "train", "val", "test", and further test sets as "test_...", in that order.

    Attributes:
        origins: what each side was read from, as "column 1", where a user chooses it.
    """

    splits: dict[str, Split]
    report: CleaningReport
    source_language: str
    target_language: str
    origins: tuple[str, str] = ("", "")

    @property
    def direction(self) -> str:
        """`fr (column 2) → en (column 1)`, for people."""
        sides = zip((self.source_language, self.target_language), self.origins, strict=True)
        return printable(" → ".join(f"{name} ({origin})" if origin else str(name) for name, origin in sides))

    @cached_property
    def fingerprint(self) -> str:
        """sha256 over the content of all splits."""
        digest = hashlib.sha256(f"{self.source_language}\t{self.target_language}\n".encode())
        for name, split in self.splits.items():
            digest.update(f"{name}\t{len(split)}\n".encode())
            for source, target, references in zip(split.sources, split.targets, split.references, strict=True):
                # No line holds a NUL or a line end, so no two corpora give the same bytes.
                digest.update("\0".join([source, target, *references]).encode() + b"\n")
        return digest.hexdigest()


class Corpus(ABC):
    """Reads, cleans and splits one collection of sentence pairs."""

    @abstractmethod
    def load(self) -> LoadedCorpus: ...


class Pair(NamedTuple):
    """`reference` is the target as the file has it, for scoring; the other two are cleaned."""

    source: str
    target: str
    reference: str


@final
@dataclass(frozen=True)
class CleaningReport:
    """Counts in the order of the steps: "train: pairs read", "train: dropped, empty side", ..."""

    counts: dict[str, int]
