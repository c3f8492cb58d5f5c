"""Readers of tab-separated, CSV, JSON-lines, Parquet and Arrow files, whose columns are chosen by number or name."""

from __future__ import annotations

import csv
import io
import json
import logging
import re
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from itertools import chain, islice
from pathlib import Path
from typing import Any, NamedTuple, final

import numpy as np
from jaxtyping import Int64

from seq2seq_attn.data.reading import COMPRESSED, opened, plain_name
from seq2seq_attn.data.store.pair_source import (
    CHUNK_BYTES,
    CHUNK_LINES,
    MOST_BYTES,
    PairSource,
    Parsed,
    RawChunk,
    decoded_lines,
    line_blocks,
    line_chunks,
    lines_of_chunk,
    rejected_lines,
)
from seq2seq_attn.errors import UserError

log = logging.getLogger(__name__)
Batches = Iterator[tuple[Any, int]]  # record batches, and the bytes of the file read so far
Column = int | str | None  # a number from 1, or a name; None: the column that the language or the header names
NOT_TEXT = re.compile(r"[\0\ud800-\udfff]")  # JSON can escape a NUL and lone surrogates; text must not contain them
LINE_ENDS = re.compile(r"[\r\n]+")
SIDES = ("source", "target")
DELIMITERS = {"\t": "tab", ",": "comma", ";": "semicolon"}
SIDE_NAMES = (("source", "src", "input"), ("target", "tgt", "trg", "output"))  # of columns, whatever the language
TEXT_NAMES = ("text", "sentence", "content")  # of the column of a text without translations
LANGUAGE_NAMES = {
    "ar": "arabic", "bn": "bengali", "cs": "czech", "da": "danish", "de": "german", "el": "greek", "en": "english",
    "es": "spanish", "fa": "persian", "fi": "finnish", "fr": "french", "he": "hebrew", "hi": "hindi", "hu": "hungarian",
    "id": "indonesian", "it": "italian", "ja": "japanese", "km": "khmer", "ko": "korean", "lo": "lao", "my": "burmese",
    "nl": "dutch", "no": "norwegian", "pl": "polish", "pt": "portuguese", "ro": "romanian", "ru": "russian",
    "sv": "swedish", "sw": "swahili", "th": "thai", "tr": "turkish", "uk": "ukrainian", "vi": "vietnamese",
    "zh": "chinese",
}  # fmt: skip

COLUMN_NAMES = {*LANGUAGE_NAMES, *LANGUAGE_NAMES.values(), *(name for names in SIDE_NAMES for name in names)}
HEAD = 100  # rows from which the form of a file is taken


class Choice(NamedTuple):
    """What decides the columns of the source and the target; see `pair_file`."""

    columns: tuple[Column, Column]
    languages: tuple[str, str]
    positions: tuple[int, int]
    one_side: bool


def pair_file(
    path: Path,
    columns: tuple[Column, Column],
    languages: tuple[str, str],
    positions: tuple[int, int] = (0, 1),
    one_side: bool = False,
) -> PairFile:
    """Return the reader of a file.

    The name gives the format: .csv, .jsonl, .parquet, .arrow, and else tab-separated columns.

    Args:
        columns: of the source and the target. Without a number or name they are those named by their language (`fr`,
            `french`, `translation.fr`) or side (`source`, `src`), and else those at `positions`.
        languages: of the source and the target.
        positions: the columns, from 0, where nothing else tells them.
        one_side: whether the sides are not told apart, so that a JSON field may be both.

    Raises:
        UserError: if the file cannot be read, or lacks a column.
    """
    name = plain_name(path.name)
    kind: Any = next((kind for suffix, kind in KINDS.items() if name.endswith(suffix)), TabSeparatedFile)
    return kind(path, Choice(columns, languages, positions, one_side))


def is_pair_file(file: str) -> bool:
    """Return whether a file holds pairs, by its name."""
    return plain_name(file).endswith(tuple(KINDS))


class PairFile(PairSource):
    """A file with both sides of each pair.

    Attributes:
        origins: where the source and the target are read, such as "column 2".
        has_header: whether the first line names the columns.
        positions: of the two columns, from 0.
    """

    origins: tuple[str, str]
    has_header = False
    positions = (0, 1)

    def __init__(self, path: Path) -> None:
        self.files, self.path = (path,), path

    def options(self) -> list[Any]:
        return [*self.origins, self.has_header, *self.positions]


class Table(PairFile):
    """A file of rows, all with as many columns as the first.

    The first row is a header if a column is chosen by name, or if it names a source and a target.
    """

    delimiter: str

    def _choose(self, choice: Choice, line: int, first: list[str]) -> None:
        kind = DELIMITERS[self.delimiter]
        if choice.one_side and (at := text_column(first)) is not None:
            self.width, self.positions, self.has_header = (
                len(first),
                (at, at),
                first[at].strip().casefold() in TEXT_NAMES,
            )
            self.origins = (f"column {at + 1}",) * 2
            return
        if choice.one_side and len(first) > 2:
            raise UserError(
                f"{self.path}, line {line}: {len(first)} columns, none of which is named text; leave one or two "
                "columns of text, or name one text"
            )
        if len(first) < 2:
            raise UserError(
                f"{self.path}, line {line}: {len(first)} {kind}-separated column{'s' * (len(first) != 1)}, and a pair "
                "needs two; the name of a file of another format must end in .csv, .jsonl or .parquet"
            )
        guessed = guess_columns(first, choice.languages)
        self.width = len(first)
        names_languages = choice.one_side and all(name.strip().casefold() in COLUMN_NAMES for name in first)
        self.has_header = (
            guessed is not None or names_languages or any(isinstance(column, str) for column in choice.columns)
        )
        self.positions = choose_columns(self.path, choice.columns, guessed or choice.positions, first, self.has_header)
        source, target = (f"column {shown_name(first[at]) if self.has_header else at + 1}" for at in self.positions)
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
        block = next(line_blocks(path, num_lines=1)).content.partition(b"\n")[0]
        self._choose(choice, 1, decoded_lines(block)[0][0].split("\t"))

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

    def __init__(self, path: Path, choice: Choice) -> None:
        super().__init__(path)
        self.delimiter = find_delimiter(next(iter(Blocks(path))))
        line, first = next(csv_rows(Blocks(path), self.delimiter), (1, []))
        self._choose(choice, line, first)

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


@final
class JsonLines(PairFile):
    """A file with a JSON object in each line; `translation.en` is a field of a field."""

    def __init__(self, path: Path, choice: Choice) -> None:
        super().__init__(path)
        for column, side in zip(choice.columns, SIDES, strict=True):
            if isinstance(column, int):
                raise UserError(f"data.{side}_column={column} is a number, and {path} has named fields; give a name")
        block = next(line_blocks(path, num_lines=HEAD)).content
        lines = decoded_lines(b"\n".join(block.split(b"\n", HEAD)[:HEAD]))[0]
        first = lines[0]
        if first.lstrip().startswith("[") or first.strip() == "{":
            raise UserError(
                f"{path}, line 1: not JSON lines, but one JSON text; write one object per line, for example by "
                "`jq -c '.[]'`"
            )
        fields = read_fields(first)
        if isinstance(fields, Reason):
            raise UserError(f"{path}, line 1: {fields}; fix or remove the line")
        for record in map(read_fields, lines[1:]):  # of a field that the first has not, or without a text
            others = {} if isinstance(record, Reason) else record
            fields |= {name: text for name, text in others.items() if not isinstance(fields.get(name), str)}
        guessed = guess_columns(list(fields), choice.languages)
        defaults = choice.languages if guessed is None else [list(fields)[at] for at in guessed]
        texts = [name for name in fields if not isinstance(text_of(fields, name), Reason)]
        named = text_column(list(fields)) if choice.one_side else None
        if named is not None and list(fields)[named] in texts:
            defaults = [list(fields)[named]] * 2
        elif choice.one_side and guessed is None and choice.languages[0] not in fields and len(texts) in (1, 2):
            defaults = [texts[0], texts[-1]]
        self.names = (str(choice.columns[0] or defaults[0]), str(choice.columns[1] or defaults[1]))
        for name, side in zip(self.names, SIDES, strict=True):
            if isinstance(reason := text_of(fields, name), Reason):
                way_out = f"set data.{side}_column to the name of the field"
                if choice.one_side:
                    way_out = f"leave one or two fields of text, or name one {name}"
                raise UserError(f"{path}, line 1: {reason}; {way_out}")
        if self.names[0] == self.names[1] and not choice.one_side:
            listed = readable(", ".join(fields))
            raise UserError(
                f"{path}: source and target are both the field {self.names[0]} (fields: {listed}); "
                "set data.source_column and data.target_column to two of them"
            )
        self.origins = (f"field {self.names[0]}", f"field {self.names[1]}")

    def chunks(self) -> Iterator[RawChunk]:
        return line_chunks(self.path)

    def parse(self, chunk: RawChunk) -> Parsed:
        lines, bad = decoded_lines(chunk.content)
        parsed = Parsed([], rejected_lines(self.path, chunk, bad))
        for number, line in enumerate(lines):
            if number in bad:
                continue
            fields = read_fields(line)
            texts = [fields] if isinstance(fields, Reason) else [text_of(fields, name) for name in self.names]
            reason = next((text for text in texts if isinstance(text, Reason)), None)
            if reason is None:
                parsed.pairs.append((texts[0], texts[1]))
            else:
                parsed.rejected.append((str(self.path), chunk.first + number, str(reason)))
        return parsed


class Reason(str):
    """Why a text is none."""


def read_fields(line: str) -> dict[str, Any] | Reason:
    """Return the fields of a JSON object, or why it is none."""
    try:
        record = json.loads(line)
        return leaf_fields(record) if isinstance(record, dict) else Reason("not a JSON object")
    except (ValueError, RecursionError) as error:  # also for a number that is too long, or nesting too deep
        return Reason(f"not JSON ({getattr(error, 'msg', error)})")


def text_of(fields: dict[str, Any], name: str) -> str:
    """Return the text of a field on one line, or a `Reason`."""
    text = fields.get(name)
    if not isinstance(text, str):
        return Reason(f"no text in the field '{name}' (fields: {readable(', '.join(fields)) if fields else 'none'})")
    if NOT_TEXT.search(text):
        return Reason(f"a NUL or half a surrogate pair in the field '{name}', so this is not plain text")
    return join_lines(text)


def without_empty(files: list[Path], given: str) -> list[Path]:
    """Return the files without the empty ones, which many tools write for parts without rows; if all are, the first.

    Args:
        given: what names the files, for a warning.
    """
    empty = [file for file in files if is_empty(file)] if len(files) > 1 else []
    if empty:
        log.warning(f"{len(empty)} of the {len(files)} files of {given} are empty, such as {empty[0]}")
    return [file for file in files if file not in empty] or files[:1]


def is_empty(path: Path) -> bool:
    """Return whether a file holds no bytes, compressed or not, or is a Parquet file without rows."""
    if not path.is_file():
        return False
    if not path.stat().st_size:
        return True
    if path.suffix in COMPRESSED:
        with suppress(UserError), opened(path) as stream:  # a damaged file is not empty; its reader reports it
            return not stream.read(1)
        return False
    if path.suffix != ".parquet":
        return False
    import pyarrow as pa
    from pyarrow import parquet

    try:
        return parquet.read_metadata(path).num_rows == 0
    except (OSError, pa.ArrowException):  # damaged; its reader reports it
        return False


class ColumnarFile(PairFile):
    """A binary file of named columns; `translation.en` is a field of a column."""

    kind: str

    def __init__(self, path: Path, choice: Choice) -> None:
        super().__init__(path)
        if path.suffix in COMPRESSED:
            raise UserError(f"{path} is a compressed {self.kind}, so decompress it")
        with self._open() as (schema, batches):
            names = leaf_names(schema)
            guessed = guess_columns(names, choice.languages)
            at = text_column(names) if choice.one_side else None
            if choice.one_side and at is None and guessed is None and len(names) > 2:
                raise UserError(
                    f"{path}: {len(names)} columns ({readable(', '.join(names))}), none of which is named text; leave "
                    "one or two columns of text, or name one text"
                )
            if at is None:
                positions = guessed or choice.positions
                self.positions = choose_columns(path, choice.columns, positions, names, has_names=True)
            else:
                self.positions = (at, at)
            self.names = [names[at] for at in self.positions]
            if twice := [name for name in self.names if names.count(name) > 1]:
                raise UserError(f"{path} has the column {twice[0]} {names.count(twice[0])} times; rename the others")
            self.columns = list(dict.fromkeys(self.names))
            table = next((flat(batch) for batch, _ in batches(self.columns) if len(batch)), None)
        if table is None:
            raise UserError(f"{path} has no rows; get the file again")
        self._check_types(table)
        self.origins = (f"column {self.names[0]}", f"column {self.names[1]}")

    def chunks(self) -> Iterator[RawChunk]:
        first = 1
        with self._open() as (_, batches):
            for table, read in equal_tables(batches(self.columns), self.columns):
                yield RawChunk(first, read, packed(table))
                first += len(table)

    def parse(self, chunk: RawChunk) -> Parsed:
        from pyarrow import ipc

        return table_pairs(ipc.open_stream(chunk.content).read_all(), str(self.path), chunk.first)

    @abstractmethod
    def _open(self) -> AbstractContextManager[tuple[Any, Callable[[list[str]], Batches]]]:
        """Return the schema, and what yields the record batches with at least these columns."""

    def _check_types(self, table: Any) -> None:
        import pyarrow as pa

        for name in self.names:
            kind = table[name].type
            kind = kind.value_type if pa.types.is_dictionary(kind) else kind
            if not (pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)):
                raise UserError(f"{self.path}: the column '{name}' holds {kind}, not text; choose another column")


@final
class ParquetFile(ColumnarFile):
    """A Parquet file, decoded one row group after another."""

    kind = "Parquet file; Parquet is compressed already"

    @contextmanager
    def _open(self) -> Iterator[Any]:
        import pyarrow.parquet as pq  # 0.3 s that other formats do not pay

        with opened(self.path) as stream, pq.ParquetFile(stream) as file:  # whose errors are OSError and ValueError

            def batches(names: list[str]) -> Batches:
                groups = map(file.metadata.row_group, range(file.metadata.num_row_groups))
                widest = max((group.total_byte_size / max(1, group.num_rows) for group in groups), default=1.0)
                at_once = max(1, min(CHUNK_LINES, int(CHUNK_BYTES / max(1.0, widest))))
                rows = 0
                for batch in file.iter_batches(at_once, columns=names, use_threads=False):
                    rows += len(batch)
                    yield batch, self.size * rows // file.metadata.num_rows

            yield file.schema_arrow, batches


@final
class ArrowFile(ColumnarFile):
    """An Arrow file, mapped into memory, of either kind: with a table of its batches, or as a stream of them."""

    kind = "Arrow file, which is mapped into memory"

    @contextmanager
    def _open(self) -> Iterator[Any]:
        import pyarrow as pa
        from pyarrow import ipc

        with opened(self.path), pa.memory_map(str(self.path)) as file:
            indexed = file.read(6) == b"ARROW1"
            file.seek(0)
            reader = ipc.open_file(file) if indexed else ipc.open_stream(file)

            def batches(names: list[str]) -> Batches:
                if not indexed:
                    yield from ((batch, file.tell()) for batch in reader)
                    return
                for number in range(reader.num_record_batches):
                    yield reader.get_batch(number), self.size * (number + 1) // reader.num_record_batches

            yield reader.schema, batches


KINDS = {  # by the end of the name
    ".tsv": TabSeparatedFile, ".csv": CsvFile, ".json": JsonLines, ".jsonl": JsonLines, ".ndjson": JsonLines,
    ".parquet": ParquetFile, ".arrow": ArrowFile,
}  # fmt: skip


def equal_tables(batches: Batches, names: list[str]) -> Iterator[tuple[Any, int]]:
    """Yield these columns of text in tables as large as chunks, and the bytes of the file read."""
    import pyarrow as pa

    held: Any = None
    ends, read = np.zeros(0, np.int64), 0
    for batch, read in batches:
        table = flat(batch).select(names)
        held = table if held is None else pa.concat_tables([held, table])
        ends = np.concatenate([ends, text_ends(table) + (ends[-1] if len(ends) else 0)])
        while rows := lines_of_chunk(ends, CHUNK_LINES):
            yield held.slice(0, rows), read
            held, ends = held.slice(rows), ends[rows:] - ends[rows - 1]
    if held is not None and len(held):
        yield held, read


def text_ends(table: Any) -> Int64[np.ndarray, " rows"]:
    """Return how many bytes of text the rows until each one have."""
    import pyarrow as pa
    import pyarrow.compute as pc

    sizes = (pc.binary_length(texts.cast(pa.large_string())) for texts in table.columns)
    return np.cumsum(sum(pc.fill_null(some, 0).to_numpy() for some in sizes))


def packed(table: Any) -> bytes:
    """Return the rows of a table as an Arrow stream; to pickle a slice would copy the whole that it is cut from."""
    import pyarrow as pa

    text = pa.schema([(name, pa.large_string()) for name in table.column_names])
    stream = pa.BufferOutputStream()
    with pa.ipc.new_stream(stream, text) as writer:
        writer.write_table(table.cast(text))
    return stream.getvalue().to_pybytes()


def flat(batch: Any) -> Any:
    """Return the batch as a table whose columns hold no structs."""
    import pyarrow as pa

    table = pa.Table.from_batches([batch])
    while any(pa.types.is_struct(field.type) for field in table.schema):
        table = table.flatten()
    return table


def table_pairs(table: Any, file: str, first: int) -> Parsed:
    """Return the pairs of a table with two columns of text, or one for both; rows with a null or a NUL are rejected.

    Raises:
        UserError: if a text is not UTF-8.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    bad: dict[int, str] = {}
    texts = []
    for name in table.column_names:
        column = table[name]
        try:
            column.validate(full=True)
        except pa.ArrowInvalid as error:
            raise UserError(
                f"{file}, from row {first} on: {error} in the column '{name}'; write the file anew"
            ) from error
        for wrong, what in (
            (pc.is_null(column), "no text"),
            (pc.fill_null(pc.match_substring(column, "\0"), False), "a NUL byte"),
        ):
            bad |= dict.fromkeys(np.flatnonzero(wrong.to_numpy()).tolist(), f"{what} in the column '{name}'")
        texts.append(pc.replace_substring_regex(column, r"[\r\n]+", " ").to_pylist())
    pairs = list(zip(texts[0], texts[-1], strict=True))
    rejected = [(file, first + row, reason) for row, reason in sorted(bad.items())]
    return Parsed([pair for row, pair in enumerate(pairs) if row not in bad] if bad else pairs, rejected)


def find_delimiter(text: str) -> str:
    """Return the comma, semicolon or tab that gives most of the first hundred rows as many columns as the first.

    Of several, the one with most such rows is taken, then one that makes two columns, then the one rarer in texts.
    """
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
    """Yield the rows of a CSV file, each with the line on which it begins; empty lines are left out."""
    lines = chain.from_iterable(io.StringIO(text, "") for text in blocks)
    reader = csv.reader(lines, delimiter=delimiter, strict=True)
    line = 1
    try:
        for row in long_rows(reader):
            if row:
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


def guess_columns(names: Sequence[str], languages: tuple[str, str]) -> tuple[int, int] | None:
    """Return the positions of the names of a source and a target; None if one of the two is missing."""
    plain = [name.strip().casefold() for name in names]
    positions = []
    for language, side in zip(languages, SIDE_NAMES, strict=True):
        code = language.casefold()
        words = [code, re.split(r"[-_]", code)[0]]
        words += [LANGUAGE_NAMES[word] for word in words if word in LANGUAGE_NAMES]
        candidates = [*words, *(f"translation.{word}" for word in words), *side]
        positions.append(next((plain.index(word) for word in candidates if word in plain), None))
    source, target = positions
    return None if source is None or target is None or source == target else (source, target)


def text_column(names: Sequence[str]) -> int | None:
    """Return the position of the only text of a file without pairs: the column named so, or the only one; or None."""
    plain = [name.strip().casefold() for name in names]
    named = next((plain.index(name) for name in TEXT_NAMES if name in plain), None)
    return 0 if named is None and len(names) == 1 else named


def choose_columns(
    path: Path, columns: tuple[Column, Column], guessed: tuple[int, int], names: Sequence[str], has_names: bool
) -> tuple[int, int]:
    """Return the positions of the source and the target column, from 0."""
    chosen = []
    listed = readable(", ".join(names)) if has_names else f"1 to {len(names)}"
    for column, guess, side in zip(columns, guessed, SIDES, strict=True):
        if isinstance(column, str):
            exact = [name.strip() for name in names]
            at = exact.index(column) if column in exact else len(names)
        else:
            at = guess if column is None else column - 1
        if column is None and not 0 <= at < len(names):
            if len(names) > 1:  # a table without a header, after one with it
                raise UserError(
                    f"{path} has {len(names)} columns and no header, and a file before it has the {side} in column "
                    f"{at + 1}; set data.{side}_column, or add a header"
                )
            many = f"one column ({listed})" if names else "no column"
            raise UserError(f"{path} has {many}, and a pair needs two")
        if not 0 <= at < len(names):
            raise UserError(
                f"{path} has no column {column} (columns: {listed}); set data.{side}_column to the name or number of "
                "one of them"
            )
        chosen.append(at)
    if chosen[0] == chosen[1]:
        name = shown_name(names[chosen[0]]) if has_names else str(chosen[0] + 1)
        raise UserError(
            f"{path}: source and target are both column {name} (columns: {listed}); set data.source_column and "
            "data.target_column to two of them"
        )
    return chosen[0], chosen[1]


def leaf_fields(record: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return the fields of a JSON object, those of an inner object as `outer.inner`."""
    fields: dict[str, Any] = {}
    for name, value in record.items():
        fields |= leaf_fields(value, f"{prefix}{name}.") if isinstance(value, dict) else {f"{prefix}{name}": value}
    return fields


def leaf_names(fields: Any, prefix: str = "") -> list[str]:
    """Return the names of the columns of a schema, those inside a struct as `outer.inner`."""
    import pyarrow as pa

    names = []
    for field in fields:
        inner = pa.types.is_struct(field.type)
        name = f"{prefix}{field.name}"
        names += leaf_names(list(field.type), f"{name}.") if inner else [name]
    return names


def join_lines(text: str) -> str:
    """Return the text with a blank for each run of line ends."""
    return LINE_ENDS.sub(" ", text)


def shown_name(name: str) -> str:
    return readable(name.strip(), 30)


def readable(text: str, most: int = 100) -> str:
    """Return the first `most` characters of `text`, with unprintable ones replaced, for a one-line message."""
    shown = "".join(letter if letter.isprintable() else "�" for letter in text[:most])
    return shown + "…" * (len(text) > most)
