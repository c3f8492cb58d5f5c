"""User-supplied sentence pairs: two line-aligned files per split, or one file of columns or records."""

from __future__ import annotations

import fnmatch
import glob
import logging
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, final

from seq2seq_attn.data.cleaning import Cleaning
from seq2seq_attn.data.columns import Column, ColumnName
from seq2seq_attn.data.corpus import CleaningReport, Corpus, LoadedCorpus
from seq2seq_attn.data.pair_file import PairFile
from seq2seq_attn.data.pair_formats import is_pair_file, pair_file, without_empty
from seq2seq_attn.data.reading import plain_name
from seq2seq_attn.data.store.corpus_weights import Mixture
from seq2seq_attn.data.store.held_out import HeldOut
from seq2seq_attn.data.store.pair_source import LineAlignedFiles, PairSource
from seq2seq_attn.data.store.text_store import stored_corpus
from seq2seq_attn.data.table_file import CsvFile, Table
from seq2seq_attn.errors import UserError
from seq2seq_attn.paths import given_path

log = logging.getLogger(__name__)
Files = str | list[str] | list[list[str]] | None


@final
class ParallelCorpus(Corpus):
    """A parallel corpus of any size, read from the user's files.

    Args:
        train, val, test: [SOURCE,TARGET], two line-aligned files; FILE, with pairs, as .tsv, .csv, .jsonl, .parquet or
            .arrow; [FILE,FILE,...]; or [[SOURCE,TARGET],[SOURCE,TARGET],...]. All but .parquet and .arrow may end in
            .gz, .zst, .xz or .bz2. `*` and `?` stand for several files, in the order of their names; those of two sides
            are paired by the text that the wildcards match. `val` and `test` may be [SOURCE,REFERENCE,REFERENCE,...],
            too; each of their rows is scored by its own references. Without `val` or `test`, that split is held out of
            `train` by source sentence, which is scored by all its translations.
        source_language, target_language: names of the two sides; they also choose columns and fields that are named
            like them.
        source_column, target_column: number of a column, from 1, or the name of a column or JSON field, where
            `translation.en` is a field of a field; None: see `pair_file`.
        val_sentences, test_sentences: source sentences of the held-out splits; None: 1,000, at most a tenth of all; 0:
            there is no such split.
        seed: of the choice of these sentences.
        max_rejected: largest share of lines that may be rejected, because they are not text or lack a column.
        num_processes: processes that prepare a large corpus; None: one for each core.
        verify: read the files as a whole to see whether they are those that were prepared; otherwise sizes, times and
            samples are compared.
        copy_to: folder on a disk of the node, to which the prepared data is copied once and from which it is read;
            None: read from `cache_dir`.

    Raises:
        UserError: if the files and columns do not make a corpus.
    """

    def __init__(
        self,
        *,
        train: Files,
        val: Files,
        test: Files,
        source_language: str,
        target_language: str,
        source_column: Column,
        target_column: Column,
        cleaning: Cleaning,
        val_sentences: Annotated[int | None, "[0, 1000000]"],
        test_sentences: Annotated[int | None, "[0, 1000000]"],
        seed: Annotated[int, "[0, 4294967295]"],
        cache_dir: str,
        max_rejected: Annotated[float, "[0, 1]"] = 0.01,
        num_processes: Annotated[int | None, "[1, 1000]"] = None,
        verify: bool = False,
        copy_to: str | None = None,
    ) -> None:
        self.files = {"train": train, "val": val, "test": test}
        self.languages = (source_language, target_language)
        self.columns: tuple[Column, Column] = (source_column, target_column)
        self.cleaning = cleaning
        self.held_out = {"val": val_sentences, "test": test_sentences}
        self.seed, self.cache_dir = seed, given_path(cache_dir, "data.cache_dir") / "corpora"
        self.copy_to = None if copy_to is None else given_path(copy_to, "data.copy_to")
        self.max_rejected, self.num_processes, self.verify = max_rejected, num_processes, verify

    def load(self) -> LoadedCorpus:
        """Open or prepare the corpus; without `train`, the other splits alone, for an evaluation."""
        if all(given is None for given in self.files.values()):
            raise UserError(
                "data=parallel needs data.train=[SOURCE,TARGET] or data.train=FILE, a .tsv, .csv, .jsonl, .parquet or "
                ".arrow file; an evaluation needs data.test=FILE alone"
            )
        return self.load_with([] if self.files["train"] is None else self._train)

    def training_pairs(self) -> Iterator[list[tuple[str, str] | None]]:
        yield from normalized_chunks(self._train, self.cleaning)

    def training_identity(self) -> list[Any]:
        return [source.identity(self.verify) for source in self._train]

    @cached_property
    def _train(self) -> list[PairSource]:
        return pair_sources(self.files["train"], "data.train", self.columns, self.languages)

    def load_with(
        self, train: list[PairSource], mixture: Mixture | None = None, before: Sequence[PairSource] | None = None
    ) -> LoadedCorpus:
        """Open or prepare the corpus of these training files, or none, and the given validation and test files.

        Args:
            mixture: the weights of the corpora that the training files name.
            before: the training files whose order of columns validation and test files take; None: all.
        """
        before = train if before is None else before
        sources = {"train": train} if train else {}
        for split in ("val", "test"):
            given = self.files[split]
            if given is not None:
                sources[split] = pair_sources(given, f"data.{split}", self.columns, self.languages, before)
        if not before and None in self.columns:
            sets = (files for split, files in sources.items() if split != "train")
            say_columns([table for files in sets for table in files if isinstance(table, Table)])
        corpus = stored_corpus(
            sources,
            self.cleaning,
            held_out=HeldOut.of(self.held_out, sources, self.seed),
            cache_dir=self.cache_dir,
            languages=self.languages,
            origins=origins(next(iter(sources.values()))),
            max_rejected=self.max_rejected,
            num_processes=self.num_processes,
            verify=self.verify,
            mixture=mixture,
            copy_to=self.copy_to,
        )
        headers = {split: sum(source.has_header for source in files) for split, files in sources.items()}
        counts = {f"{split}: header line": number for split, number in headers.items() if number}
        return replace(corpus, report=CleaningReport(corpus.report.counts | counts))


def pair_sources(
    given: Any,
    option: str,
    columns: tuple[Column, Column],
    languages: tuple[str, str],
    before: Sequence[PairSource] = (),
) -> list[PairSource]:
    """Return the readers of the files that an option names.

    A table without a header has its columns where the first table with one has them; a message says so if the source is
    not first.

    Args:
        columns, languages: see `pair_file`.
        before: files before those, as of the training set.

    Raises:
        UserError: if they are not files of pairs, or pairs of files.
    """
    pairs = isinstance(given, list) and any(isinstance(entry, list) or is_pair_file(entry) for entry in given)
    if isinstance(given, str) or not pairs:
        given = [given]
    sources: list[PairSource] = []
    for entry in given:
        if isinstance(entry, str):
            for file in matching_files(entry, option):
                tables = (one for one in (*before, *sources) if isinstance(one, Table))
                first = next((one for one in tables if one.has_header), None)
                source = pair_file(file, columns, languages, (0, 1) if first is None else first.positions)
                sources.append(source)
                if isinstance(source, Table) and not source.has_header and None in columns:
                    say_order(source, first)
        else:
            pairs_of_files = aligned(entry, option)
            say_swapped(pairs_of_files[0], languages)
            sources += pairs_of_files
    return sources


def say_order(table: Table, first: Table | None) -> None:
    """Warn that a table without a header is read in another table's order of columns, if that is not the usual one."""
    if first is not None and table.positions == first.positions != (0, 1):
        source, target = (position + 1 for position in table.positions)
        log.warning(
            f"{table.path} has no header; as in {first.path}, column {source} is read as the source and {target} as "
            "the target (data.source_column and data.target_column choose others)"
        )


def say_swapped(pair: PairSource, languages: tuple[str, str]) -> None:
    """Warn of two files whose names end in the languages of each other's side."""
    ends = [ColumnName.of(plain_name(file.name).rpartition(".")[2]).language for file in pair.files[:2]]
    source, target = (ColumnName.of(language).language for language in languages)
    if ends == [target, source] and source != target:
        log.warning(
            f"{pair.files[0]} is read as the source, {languages[0]}, and {pair.files[1]} as the target, "
            f"{languages[1]}; exchange the files, or data.source_language and data.target_language"
        )


def say_columns(tables: list[Table]) -> None:
    """Warn that validation and test tables without a header are read by position, which no training file shows."""
    if tables and not any(table.has_header for table in tables):
        source, target = (position + 1 for position in tables[0].positions)
        log.warning(
            f"{tables[0].path} has no header; column {source} is read as the source and {target} as the target "
            "(data.source_column and data.target_column choose others)"
        )


def normalized_chunks(sources: list[PairSource], cleaning: Cleaning) -> Iterator[list[tuple[str, str] | None]]:
    """Yield the pairs of these files chunk by chunk, normalised, and None for each rejected line.

    Raises:
        UserError: if it is not known which rows of a CSV file are rejected.
    """
    for source in sources:
        for chunk in source.chunks():
            parsed, first = source.parse(chunk), chunk.first + (source.has_header and chunk.first == 1)
            rejected = {line for _, line, _ in parsed.rejected}
            if rejected and isinstance(source, CsvFile):  # whose rows may take several lines
                file, line, reason = parsed.rejected[0]
                raise UserError(
                    f"{file}, line {line}: {reason}; guided_alignment.links=FILE needs a pair in every row of a CSV "
                    "file: correct the row"
                )
            lines = range(first, first + len(parsed.pairs) + len(rejected) + len(parsed.blank))
            pairs = iter(cleaning.normalize_pairs(parsed.pairs))
            yield [None if line in rejected else next(pairs) for line in lines if line not in parsed.blank]


def aligned(sides: list[str], option: str) -> list[PairSource]:
    if len(sides) > 2 and option in ("data.val", "data.test") and not any(glob.has_magic(side) for side in sides):
        return [LineAlignedFiles(*(given_path(side, option) for side in sides))]
    if len(sides) != 2:
        raise UserError(
            f"{option} has a list of {len(sides)} files; use [SOURCE,TARGET], [[SOURCE,TARGET],...], or files "
            "of pairs, which end in .tsv, .csv, .jsonl, .parquet or .arrow"
        )
    sources, targets = (matching_files(side, option) for side in sides)
    if len(sources) != len(targets):
        raise UserError(
            f"{option}: {sides[0]} is {len(sources)} files and {sides[1]} is {len(targets)}; parallel files "
            "need the same number"
        )
    if len(sources) > 1 or all(map(has_wildcards, sides)):
        # news.en comes before news.extra.en, but news.fr after news.extra.fr
        by_text = [
            {matched_text(file, side): file for file in files}
            for files, side in zip((sources, targets), sides, strict=True)
        ]
        if lonely := sorted(by_text[0].keys() ^ by_text[1].keys()):
            side = 0 if lonely[0] in by_text[0] else 1
            raise UserError(
                f"{option}: {by_text[side][lonely[0]]} has no partner among {sides[1 - side]}; the wildcards of both "
                "sides must match the same text, as in [en/*.en,fr/*.fr]; or list the pairs, [[a.en,a.fr],[b.en,b.fr]]"
            )
        targets = [by_text[1][text] for text in by_text[0]]
    return [LineAlignedFiles(*files) for files in zip(sources, targets, strict=True)]


def matched_text(file: Path, pattern: str) -> tuple[str, ...]:
    """Return the parts of a file's name that the wildcards of its pattern match."""
    parts = re.split(r"(\*+|\?|\[!?\]?[^]]*\])", str(given_path(pattern, "data")))
    for at in range(1, len(parts), 2):
        parts[at] = "(.*)" if "*" in parts[at] else f"({fnmatch.translate(parts[at])[4:-3]})"  # without (?s: and )\Z
    regex = "".join(part if at % 2 else re.escape(part) for at, part in enumerate(parts))
    match = re.fullmatch(regex, str(file), re.DOTALL)
    return (str(file),) if match is None else match.groups()


def matching_files(pattern: str, option: str) -> list[Path]:
    """Return the file of this name, or the files that a pattern matches, in the order of their names.

    Of several files the empty ones are left out.

    Raises:
        UserError: if a pattern matches none.
    """
    path = given_path(pattern, option)
    if not has_wildcards(pattern):
        return [path]
    files = sorted(map(Path, glob.glob(str(path))))
    if not files:
        raise UserError(f"{option}={pattern} matches no file; check the pattern")
    return without_empty(files, f"{option}={pattern}")


def has_wildcards(pattern: str) -> bool:
    """Return whether a pattern is one, and not the name of a file."""
    path = given_path(pattern, "data")
    return glob.has_magic(str(path)) and not os.path.lexists(path)


def origins(sources: list[PairSource]) -> tuple[str, str]:
    """Return where the two sides are read: the file, column or field of the first, and how many others there are."""
    first, others = sources[0], f" and {len(sources) - 1} more" if len(sources) > 1 else ""
    names = first.origins if isinstance(first, PairFile) else (first.files[0].name, first.files[1].name)
    return f"{names[0]}{others}", f"{names[1]}{others}"
