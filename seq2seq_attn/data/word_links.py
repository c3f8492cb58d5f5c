"""Links between the words of sentence pairs: read in Pharaoh form, stored beside the corpus, projected to tokens."""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Iterable
from functools import cached_property
from itertools import chain, islice
from pathlib import Path
from typing import NamedTuple, final

import numpy as np
import torch
from jaxtyping import Bool, Int64, Integer, UInt16, UInt64
from sentencepiece import SentencePieceProcessor
from torch import Tensor

from seq2seq_attn.batch import Batch
from seq2seq_attn.data.corpus import Split, hashes
from seq2seq_attn.data.encoded import map_array, save_array
from seq2seq_attn.data.store.pair_source import line_blocks
from seq2seq_attn.errors import UserError
from seq2seq_attn.files import replacing, sha256
from seq2seq_attn.text import printable
from seq2seq_attn.tokenizer.sentencepiece import WORD_MARK, SentencePieceTokenizer

PHARAOH = re.compile(rb"[ \t]*(?:\d{1,9}-\d{1,9}(?:[ \t]+|$))*")
COMPLETE = "complete.json"  # beside the folders of the splits
MOST_WORDS = (1 << 16) - 1  # of a side; a longer one has no links
Pairs = Iterable[list[tuple[str, str] | None]]  # the pairs of a file, in order and cleaned; None for a rejected line


@final
class WordLinks:
    """The links of a split, mapped into memory: row `i` has `links[offsets[i] : offsets[i + 1]]`.

    Attributes:
        links: source word and target word, counted from 0.
        words: how many words the source and the target of each row have.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._open()

    def _open(self) -> None:
        self.links, self.offsets, self.words = (
            map_array(self.folder / f"{name}.npy") for name in ("links", "offsets", "words")
        )

    def __getstate__(self) -> dict[str, Path]:
        return {"folder": self.folder}

    def __setstate__(self, state: dict[str, Path]) -> None:
        self.folder = state["folder"]
        self._open()

    def __len__(self) -> int:
        return len(self.words)

    def of(
        self, rows: Int64[np.ndarray, " batch"]
    ) -> tuple[Int64[np.ndarray, " links"], Int64[np.ndarray, " links"], Int64[np.ndarray, " links"]]:
        """Return the links of these rows: their number among `rows`, the source words and the target words."""
        at, counts = ranges(self.offsets, rows)
        links = self.links[at].astype(np.int64)
        return np.repeat(np.arange(len(rows)), counts), links[:, 0], links[:, 1]

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the links and of how many each row has."""
        both = "".join(sha256(self.folder / f"{name}.npy") for name in ("links", "offsets"))
        return hashlib.sha256(both.encode()).hexdigest()

    @property
    def num_linked(self) -> int:
        """Number of rows that have a link."""
        return int((np.diff(self.offsets) > 0).sum())


def ranges(
    offsets: Int64[np.ndarray, " fences"], rows: Int64[np.ndarray, " rows"]
) -> tuple[Int64[np.ndarray, " all"], Int64[np.ndarray, " rows"]]:
    """Return the numbers in `offsets[i] .. offsets[i + 1]` of all rows, one after another, and how many each has."""
    starts, counts = offsets[rows], offsets[rows + 1] - offsets[rows]
    ends = np.cumsum(counts)
    return np.arange(ends[-1] if len(ends) else 0) + np.repeat(starts - ends + counts, counts), counts


def write_links(
    folder: Path,
    links: Integer[np.ndarray, "links 2"],
    counts: Integer[np.ndarray, " rows"],
    words: Integer[np.ndarray, "rows 2"],
) -> None:
    """Write the links of a split, of which row `i` has the next `counts[i]`."""
    arrays = {
        "links": links.astype(np.uint16),
        "words": np.minimum(words, MOST_WORDS).astype(np.uint16),
        "offsets": np.cumsum([0, *counts.tolist()]),
    }
    for name, array in arrays.items():
        save_array(folder / f"{name}.npy", array)


def write_complete(folder: Path) -> None:
    """Write the sizes of all arrays, as a sign that they are complete."""
    sizes = {file.relative_to(folder).as_posix(): os.stat(file).st_size for file in sorted(folder.glob("*/*.npy"))}
    with replacing(folder / COMPLETE) as stream:
        stream.write(json.dumps(sizes).encode())


def is_complete(folder: Path) -> bool:
    """Return whether the links of all splits are there as they were written."""
    try:
        sizes = json.loads((folder / COMPLETE).read_text())
        return all(os.stat(folder / name).st_size == size for name, size in sizes.items())
    except (OSError, ValueError):
        return False


class FileLinks(NamedTuple):
    """The links of a file, and of each of its lines the hash of the pair, the number of links and those of words.

    Numbers of words above 65,535 wrap around; such pairs get no links.
    """

    links: UInt16[np.ndarray, "links 2"]
    pairs: UInt64[np.ndarray, " lines"]
    counts: Int64[np.ndarray, " lines"]
    words: Int64[np.ndarray, "lines 2"]

    def write(self, split: Split, folder: Path) -> None:
        """Write the links of the rows of a split, found by their text; equal pairs have the links of the first.

        A split of which no row is found has no folder.
        """
        order = np.argsort(self.pairs, kind="stable")
        sought = pair_hashes(zip(split.sources, split.targets, strict=True))
        position = np.searchsorted(self.pairs[order], sought).clip(max=len(order) - 1)
        line = order[position]
        match = self.pairs[line] == sought
        if not match.any():
            return
        offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(self.counts)])
        at, _ = ranges(offsets, line[match])
        write_links(folder, self.links[at], np.where(match, self.counts[line], 0), self.words[line] * match[:, None])


def pair_hashes(pairs: Iterable[tuple[str, str]]) -> UInt64[np.ndarray, " pairs"]:
    return hashes(f"{source}\0{target}" for source, target in pairs)


def read_links(file: Path, chunks: Pairs) -> FileLinks:
    """Read links in Pharaoh form, `0-0 2-1`: words of the source and of the target, a line for each pair.

    Args:
        chunks: the pairs that the lines are of.

    Raises:
        UserError: if a line is no links, a word is not there, or there are more lines than pairs, or fewer.
    """
    lines = chain.from_iterable(block.removesuffix(b"\n").split(b"\n") for block, _, _ in line_blocks(file))
    read: list[FileLinks] = []
    first, missing = 1, 0
    for chunk in chunks:
        some = [line.removesuffix(b"\r") for line in islice(lines, len(chunk))]
        missing += len(chunk) - len(some)
        if not missing:
            read.append(parse_links(file, first, some, chunk))
        first += len(some)
    more = sum(1 for _ in lines)
    if missing or more:
        raise UserError(
            f"{file} has {first - 1 + more:,} lines, and the training files have {first - 1 + missing:,} pairs; "
            "guided_alignment.links needs one line for each pair, empty if it has no links"
        )
    return FileLinks(*map(np.concatenate, zip(*read, strict=True)))


def parse_links(file: Path, first: int, lines: list[bytes], pairs: list[tuple[str, str] | None]) -> FileLinks:
    """Return the links of some lines, the first of which has the number `first`; those of rejected pairs are none."""
    for number, line in enumerate(lines, start=first):
        if not PHARAOH.fullmatch(line):
            raise UserError(
                f"{file}, line {number}: '{printable(line.decode(errors='replace'))[:60]}' is not links in Pharaoh "
                "form, such as 0-0 2-1: source word and target word, counted from 0; correct the line"
            )
    texts = [("", "") if pair is None else pair for pair in pairs]
    lines = [b"" if pair is None else line for line, pair in zip(lines, pairs, strict=True)]
    words = np.array([(len(source.split()), len(target.split())) for source, target in texts]).reshape(-1, 2)
    counts = np.array([line.count(b"-") for line in lines], np.int64)
    numbers = b" ".join(lines).replace(b"-", b" ").split()
    links = np.array(numbers, dtype="S9").astype(np.int64).reshape(-1, 2)
    row = np.repeat(np.arange(len(lines)), counts)
    outside = np.flatnonzero((links >= words[row]).any(1))
    if len(outside):
        (source, target), (sources, targets) = links[outside[0]], words[row[outside[0]]]
        raise UserError(
            f"{file}, line {first + row[outside[0]]}: the link {source}-{target} is outside of its pair, which has "
            f"{sources} source and {targets} target words, counted from 0; correct the line, or give the file whose "
            "lines are those of data.train, source first"
        )
    return FileLinks(links.astype(np.uint16), pair_hashes(texts), counts, words)


@final
class TokenLinks:
    """The projection of links from words to the tokens of a batch, whatever their segmentation.

    The tokens of a word are those from the first letter after SentencePiece's mark; a mark on its own belongs to the
    word after it. A pair whose tokens do not show as many words as its text has, as two unknown words of a `word`
    tokenizer that are one token, has no links.
    """

    def __init__(self, links: WordLinks, tokenizer: SentencePieceTokenizer) -> None:
        self.links = links
        self.source = Marks.of(tokenizer.source_model, tokenizer.model_type == "word")
        self.target = Marks.of(tokenizer.target_model, tokenizer.target_model_type == "word")

    def __call__(self, batch: Batch) -> Bool[Tensor, "batch target source"]:
        """Return where a token of `target_output` is linked to one of the source; the end tokens have no links."""
        rows = batch.index.numpy()
        source, sources = self.source.words(batch.source.numpy(), batch.source_lengths.numpy() - 1)
        target, targets = self.target.words(batch.target_output.numpy(), batch.target_lengths.numpy() - 1)
        row, source_word, target_word = self.links.of(rows)
        shown = (np.stack([sources, targets], 1) == self.links.words[rows]).all(1)[row]
        # the last row and column are those of the end token and padding, without links
        table = np.zeros((len(rows), targets.max(initial=0) + 1, sources.max(initial=0) + 1), bool)
        table[row[shown], target_word[shown], source_word[shown]] = True
        linked = table[np.arange(len(rows))[:, None, None], target[:, :, None], source[:, None, :]]
        return torch.from_numpy(linked)


class Marks(NamedTuple):
    """Of each token: whether it has the mark of a word's begin, and whether it has anything else."""

    begins: Bool[np.ndarray, " vocabulary"]
    letters: Bool[np.ndarray, " vocabulary"]

    @classmethod
    def of(cls, model: SentencePieceProcessor, whole_words: bool) -> Marks:
        """Return the marks of a model; with `whole_words` the unknown token is a word."""
        tokens = [model.id_to_piece(i) for i in range(model.get_piece_size())]
        begins = np.array([token.startswith(WORD_MARK) for token in tokens])
        begins[model.unk_id()] = whole_words
        return cls(begins, np.array([bool(token.strip(WORD_MARK)) for token in tokens]))

    def words(
        self, ids: Int64[np.ndarray, "batch length"], lengths: Int64[np.ndarray, " batch"]
    ) -> tuple[Int64[np.ndarray, "batch length"], Int64[np.ndarray, " batch"]]:
        """Return the word that each token belongs to, -1 from `lengths` on, and the number of words of each row."""
        real = np.arange(ids.shape[1]) < lengths[:, None]
        marks, letters = self.begins[ids].cumsum(1), self.letters[ids] & real
        marks_before = np.maximum.accumulate(np.where(letters, marks, -1), 1)[:, :-1]  # at the last letters
        first = letters.copy()
        first[:, 1:] &= marks[:, 1:] > marks_before
        words = first.sum(1)
        word = first.cumsum(1) - letters  # a mark on its own: the next word
        word = np.minimum(word, words[:, None] - 1)
        return np.where(real, word, -1), words


def prepared_links(folder: Path, splits: Iterable[str]) -> dict[str, WordLinks]:
    """Return the links of those splits that have some."""
    return {split: WordLinks(folder / split) for split in splits if (folder / split / "offsets.npy").exists()}
