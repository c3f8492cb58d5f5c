"""Tables: tab-separated lines, and CSV files, whose quotation marks may enclose line ends."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import chain, islice
from pathlib import Path
from typing import final

from seq2seq_attn.data.columns import Choice, choose_columns, is_header, named_columns, shown_name, text_column
from seq2seq_attn.data.pair_file import HEAD, PairFile, join_lines
from seq2seq_attn.data.store.pair_source import (
    CHUNK_BYTES,
    CHUNK_LINES,
    MOST_BYTES,
    Parsed,
    RawChunk,
    decoded_lines,
    line_blocks,
    line_chunks,
    rejected_lines,
)
from seq2seq_attn.errors import UserError

DELIMITERS = {"\t": "tab", ",": "comma", ";": "semicolon"}


class Table(PairFile):
    """A file of rows, all with as many columns as the first.

    The first row is a header if a column is chosen by name, or if it names a source and a target.
    """

    delimiter: str
    way_out = "the name of a file of another format must end in .csv, .jsonl or .parquet"

    def _choose(self, choice: Choice, line: int, first: list[str], second: Sequence[str] = ()) -> None:
        is_given = choice.columns[0] is not None
        has_only_text = choice.one_side and text_column(first) is not None
        if choice.one_side and not is_given and len(first) > 2 and named_columns(first, choice) is None:
            raise UserError(
                f"{self.path}, line {line}: {len(first)} columns, none of which is named text; give "
                f"{choice.option()}=NAME, or one or two columns of text"
            )
        if len(first) < 2 and not has_only_text:
            columns = f"{DELIMITERS[self.delimiter]}-separated column{'s' * (len(first) != 1)}"
            raise UserError(f"{self.path}, line {line}: {len(first)} {columns}, and a pair needs two; {self.way_out}")
        self.width, self.has_header = len(first), is_header(first, choice, second)
        self.positions = choose_columns(self.path, first, choice, self.has_header)
        shows_names = self.has_header and not has_only_text
        source, target = (f"column {shown_name(first[at]) if shows_names else at + 1}" for at in self.positions)
        self.origins = (source, target)

    def _pairs(self, rows: Iterable[tuple[int, list[str]]]) -> Parsed:
        parsed, (source, target), kind = Parsed([]), self.positions, DELIMITERS[self.delimiter]
        for line, row in rows:
            if len(row) == self.width:
                parsed.pairs.append((join_lines(row[source]), join_lines(row[target])))
            else:
                columns = f"{len(row)} {kind}-separated column{'s' * (len(row) > 1)}"
                reason = f"{columns}, where the first line has {self.width}"
                parsed.rejected.append((str(self.path), line, reason))
        return parsed


@final
class TabSeparatedFile(Table):
    """A file with a pair in each line."""

    delimiter = "\t"

    def __init__(self, path: Path, choice: Choice) -> None:
        super().__init__(path)
        block = next(line_blocks(path, num_lines=HEAD)).content
        rows = [line.split("\t") for line in decoded_lines(block)[0]]
        if len(rows) > 1 and all(is_quoted(field) for row in rows for field in row):
            raise UserError(
                f"{path}: every field of its first {len(rows)} lines is in quotation marks, which would be read as "
                "part of the text; if they only enclose it, name the file .csv"
            )
        self._choose(choice, 1, *rows[:2])

    def chunks(self) -> Iterator[RawChunk]:
        return line_chunks(self.path)

    def parse(self, chunk: RawChunk) -> Parsed:
        lines, bad = decoded_lines(chunk.content)
        begin = 1 if self.has_header and chunk.first == 1 else 0
        bad = {at: reason for at, reason in bad.items() if at >= begin}
        rows = ((chunk.first + at, line.split("\t")) for at, line in enumerate(lines) if at >= begin and at not in bad)
        parsed = self._pairs(rows)
        return Parsed(parsed.pairs, [*rejected_lines(self.path, chunk, bad), *parsed.rejected])


@final
class CsvFile(Table):
    """A file of comma-, semicolon- or tab-separated values, where quotation marks may enclose line ends."""

    way_out = "separate them by commas, semicolons or tabs"

    def __init__(self, path: Path, choice: Choice) -> None:
        super().__init__(path)
        self.delimiter = find_delimiter(next(iter(Blocks(path))))
        (line, first), *rest = list(islice(csv_rows(Blocks(path), self.delimiter), 2)) or [(1, [])]
        self._choose(choice, line, first, *(row for _, row in rest))

    def chunks(self) -> Iterator[RawChunk]:
        blocks, first = Blocks(self.path), 1
        some: list[tuple[int, list[str]]] = []
        size = 0  # in characters, which are fewer than the bytes
        for line, row in csv_rows(blocks, self.delimiter):
            some.append((line, row))
            size += sum(map(len, row))
            if len(some) >= CHUNK_LINES or size >= CHUNK_BYTES:
                yield RawChunk(first, blocks.read, some)
                first, some, size = first + len(some), [], 0
        if some:
            yield RawChunk(first, blocks.read, some)

    def parse(self, chunk: RawChunk) -> Parsed:
        return self._pairs(chunk.content[1:] if self.has_header and chunk.first == 1 else chunk.content)


def is_quoted(field: str) -> bool:
    return len(field) > 1 and field[0] == field[-1] == '"'


def find_delimiter(text: str) -> str:
    """Return the comma, semicolon or tab that gives most of the first hundred rows as many columns as the first.

    Of several, the one with most such rows is taken, then one that makes two columns, then the one rarer in texts. A
    first line such as `sep=;`, which spreadsheets know, names it.
    """
    if named := re.match(r"sep=([,;\t])\r?\n", text, re.IGNORECASE):
        return named[1]
    found = []
    for preference, delimiter in enumerate((",", ";", "\t")):
        reader = csv.reader(io.StringIO(text, ""), delimiter=delimiter)
        rows: list[list[str]] = []
        with suppress(csv.Error):  # a quotation mark that is never closed, whose line csv_rows names
            rows.extend(row for row in islice(long_rows(reader), HEAD) if row)
        share = sum(len(row) == len(rows[0]) for row in rows) / len(rows) if rows else 0.0
        if share > 0.5 and len(rows[0]) > 1:
            found.append((share, len(rows[0]) == 2, preference, delimiter))
    return max(found)[-1] if found else ","


@final
class Blocks(Iterable[str]):
    """The text of a file block by block; `read` is the bytes read so far, compressed if they are."""

    def __init__(self, path: Path) -> None:
        self.path, self.read = path, 0

    def __iter__(self) -> Iterator[str]:
        first = 1
        for block, lines, read in line_blocks(self.path, carriage_returns=True):
            self.read = read
            yield decode(self.path, first, block)
            first += lines


def csv_rows(blocks: Blocks, delimiter: str) -> Iterator[tuple[int, list[str]]]:
    """Yield the rows of a CSV file, each with the line on which it begins, but for empty lines and a first `sep=;`."""
    lines = chain.from_iterable(io.StringIO(text, "") for text in blocks)
    reader = csv.reader(lines, delimiter=delimiter, strict=True)
    line = 1
    try:
        for row in long_rows(reader):
            if row and not (line == 1 and [cell.lower() for cell in row] == ["sep=", ""]):
                yield line, row
            line = reader.line_num + 1
    except csv.Error as error:
        raise UserError(
            f"{blocks.path}, line {line}: not CSV ({error}); close the quotation mark of the text that begins here, "
            "and double one inside of it"
        ) from error


def long_rows(reader: Iterator[list[str]]) -> Iterator[list[str]]:
    """Yield the rows of a reader, whose cells may be as long as a line; the limit is one of the whole process."""
    while True:
        before = csv.field_size_limit(MOST_BYTES)
        try:
            row = next(reader, None)
        finally:
            csv.field_size_limit(before)
        if row is None:
            return
        yield row


def decode(path: Path, first: int, block: bytes) -> str:
    """Return the text of a block whose lines cannot be told apart from each other's."""
    try:
        text = block.decode()
    except UnicodeDecodeError as error:
        line = first + block.count(b"\n", 0, error.start)
        raise UserError(f"{path}, line {line}: not UTF-8; convert the file to UTF-8 or remove the line") from error
    if "\0" in text:
        line = first + text.count("\n", 0, text.index("\0"))
        raise UserError(f"{path}, line {line}: a NUL byte, so this is not plain text; remove the line")
    return text
