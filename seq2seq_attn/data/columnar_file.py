"""Parquet and Arrow files, whose columns have names and types."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, final

import numpy as np
from jaxtyping import Int64

from seq2seq_attn.data.columns import Choice, choose_columns, named_columns, readable
from seq2seq_attn.data.pair_file import PairFile
from seq2seq_attn.data.reading import compressed_ending, opened
from seq2seq_attn.data.store.pair_source import CHUNK_BYTES, CHUNK_LINES, Parsed, RawChunk, lines_of_chunk
from seq2seq_attn.errors import UserError

Batches = Iterator[tuple[Any, int]]  # record batches, and the bytes of the file read so far


class ColumnarFile(PairFile):
    """A binary file of named columns; `translation.en` is a field of a column."""

    kind: str

    def __init__(self, path: Path, choice: Choice) -> None:
        super().__init__(path)
        if compressed_ending(path):
            raise UserError(f"{path} is a compressed {self.kind}, so decompress it")
        with self._open() as (schema, batches):
            columns = leaf_columns(schema)
            names = [name for name, _ in columns]
            if choice.one_side and choice.columns[0] is None and named_columns(names, choice) is None:
                choice = choice._replace(positions=self._text_positions(columns, choice))
            self.positions = choose_columns(path, names, choice)
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

    def _text_positions(self, columns: list[tuple[str, Any]], choice: Choice) -> tuple[int, int]:
        """Return the positions of the first and the last column of text, of which there may be one or two.

        Args:
            columns: names and types.
        """
        texts = [at for at, (_, kind) in enumerate(columns) if is_text(kind)]
        if not texts:
            listed = readable(", ".join(f"{name} of {kind}" for name, kind in columns))
            raise UserError(f"{self.path} has no column of text ({listed or 'no column'}); write one as strings")
        if len(texts) > 2:
            listed = readable(", ".join(columns[at][0] for at in texts))
            raise UserError(
                f"{self.path}: {len(texts)} columns of text ({listed}), none of which is named text; give "
                f"{choice.option()}=NAME, or one or two columns of text"
            )
        return texts[0], texts[-1]

    def _check_types(self, table: Any) -> None:
        for name in self.names:
            if not is_text(kind := table[name].type):
                raise UserError(f"{self.path}: the column '{name}' holds {kind}, not text; choose another column")


def is_text(kind: Any) -> bool:
    """Return whether a type of Arrow is that of texts."""
    import pyarrow as pa

    kind = kind.value_type if pa.types.is_dictionary(kind) else kind
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


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

        with opened(self.path), pa.memory_map(str(self.path)) as file:
            schema, whole_batches = arrow_batches(file)

            def batches(names: list[str]) -> Batches:
                before = 0
                for batch, read in whole_batches:  # one may be the whole file
                    for start in range(0, len(batch), CHUNK_LINES):
                        part = batch.slice(start, CHUNK_LINES)
                        yield part, before + (read - before) * (start + len(part)) // len(batch)
                    before = read

            yield schema, batches


def arrow_batches(file: Any) -> tuple[Any, Batches]:
    """Return the schema of an Arrow file that is mapped into memory, of either kind, and its record batches."""
    from pyarrow import ipc

    indexed = file.read(6) == b"ARROW1"
    file.seek(0)
    reader = ipc.open_file(file) if indexed else ipc.open_stream(file)

    def batches() -> Batches:
        if not indexed:
            yield from ((batch, file.tell()) for batch in reader)
            return
        for number in range(reader.num_record_batches):
            yield reader.get_batch(number), file.size() * (number + 1) // reader.num_record_batches

    return reader.schema, batches()


def leaf_columns(fields: Any, prefix: str = "") -> list[tuple[str, Any]]:
    """Return the names and types of the columns of a schema, those inside a struct as `outer.inner`."""
    import pyarrow as pa

    columns = []
    for field in fields:
        inner = pa.types.is_struct(field.type)
        name = f"{prefix}{field.name}"
        columns += leaf_columns(list(field.type), f"{name}.") if inner else [(name, field.type)]
    return columns


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
