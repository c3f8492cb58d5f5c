"""Columns and fields of tab-separated, CSV, JSON-lines and Parquet files: which are read, and what is refused."""

from __future__ import annotations

import bz2
import csv
import gzip
import json
import lzma
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from seq2seq_attn.data import columnar_file, table_file
from seq2seq_attn.data.columns import Column, guess_columns
from seq2seq_attn.data.pair_formats import pair_file
from seq2seq_attn.data.store import pair_source
from seq2seq_attn.errors import UserError

PAIRS = [(f'Sentence {n}, "quoted".', f"Phrase {n} ; une autre.") for n in range(7)]
NESTED = [{"id": n, "translation": {"en": source, "fr": target}} for n, (source, target) in enumerate(PAIRS)]


class Records(NamedTuple):
    pairs: list[tuple[str, str]]
    origins: tuple[str, str]
    has_header: bool = False
    positions: tuple[int, int] = (0, 1)
    rejected: tuple[tuple[int, str], ...] = ()


def read(path: Path, source: Column = None, target: Column = None, **options: Any) -> Records:
    """Read a file as a whole."""
    file = pair_file(path, (source, target), **{"languages": ("en", "fr")} | options)
    chunks = [file.parse(chunk) for chunk in file.chunks()]
    rejected = tuple(line[1:] for chunk in chunks for line in chunk.rejected)
    pairs = [pair for chunk in chunks for pair in chunk.pairs]
    return Records(pairs, file.origins, file.has_header, file.positions, rejected)


def write_csv(path: Path, rows: Any, **options: Any) -> Path:
    with path.open("w", newline="", encoding=options.pop("encoding", "utf-8")) as file:
        csv.writer(file, **options).writerows(rows)
    return path


def write_lines(path: Path, *lines: str) -> Path:
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return path


def refused(path: Path, *columns: Column) -> str:
    with pytest.raises(UserError) as error:
        read(path, *columns)
    return str(error.value).replace(str(path), path.name)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"delimiter": ";"},
        {"delimiter": "\t"},
        {"quoting": csv.QUOTE_ALL, "encoding": "utf-8-sig", "lineterminator": "\r\n"},
        {"quoting": csv.QUOTE_ALL, "lineterminator": "\r"},
    ],
)
def test_a_csv_file_of_any_spreadsheet_is_read(options: dict[str, Any], tmp_path: Path) -> None:
    rows = [(1, "Two\nlines", "Deux\r\n\nlignes"), *((n, *pair) for n, pair in enumerate(PAIRS)), (8, "", "")]
    header = ("ID", "English", "french ")
    file = write_csv(tmp_path / "a.csv", [header, *rows], **options)
    expected = [("Two lines", "Deux lignes"), *PAIRS, ("", "")]
    assert read(file) == Records(expected, ("column English", "column french"), True, (1, 2))
    packed = tmp_path / "a.csv.gz"
    packed.write_bytes(gzip.compress(file.read_bytes()))
    assert read(packed).pairs == expected


@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
def test_a_csv_file_may_name_its_delimiter_in_its_first_line(delimiter: str, tmp_path: Path) -> None:
    rows = [("french", "english"), ("a; b, c", "d; e, f\tg"), ("h; i, j", "k; l, m\tn")]
    file = write_csv(tmp_path / "a.csv", rows, delimiter=delimiter)
    named = write_lines(tmp_path / "b.csv", f"Sep={delimiter}", *file.read_text("utf-8").splitlines())
    expected = [("d; e, f\tg", "a; b, c"), ("k; l, m\tn", "h; i, j")]
    assert read(named) == Records(expected, ("column english", "column french"), True, (1, 0))
    wide = (delimiter.join(row) for row in (("id", "french", "english"), ("1", "a", "b"), ("2", "c", "d")))
    assert read(write_lines(tmp_path / "c.csv", f"SEP={delimiter}", *wide)).pairs == [("b", "a"), ("d", "c")]


@pytest.mark.parametrize(
    ("header", "languages", "swapped"),
    [
        ("en\tfr", ("en", "fr"), False),
        ("FR\tEN", ("en", "fr"), True),
        ("french\tenglish", ("en", "fr"), True),
        ("source\ttarget", ("xx", "yy"), False),
        ("trg\tsrc", ("xx", "yy"), True),
        ("German\tzh", ("de-AT", "zh_CN"), False),
        ("translation.fr\ttranslation.en", ("en", "fr"), True),
        ("fr_FR\ten-US", ("en", "fr"), True),
        ("en_GB\ten", ("en", "en_GB"), True),
        ("fra_Latn\teng_Latn", ("en", "fr"), True),
        ("zh-Hant-TW\tspa", ("es", "zh"), True),
        ("pt_PT\tpt-BR", ("pt_BR", "pt-PT"), True),
        ("zh_Hant\tzh_Hans", ("zh-Hans", "zh-Hant"), True),
        ("fre\teng", ("en", "fr"), True),
        ("cat_Latn\tEnglish", ("en", "ca"), True),
    ],
)
def test_a_header_is_recognised_and_chooses_the_columns(
    header: str, languages: tuple[str, str], swapped: bool, tmp_path: Path
) -> None:
    file = write_lines(tmp_path / "a.tsv", header, "a\tb", "c\td")
    found = read(file, languages=languages)
    assert found.has_header
    assert found.pairs == ([("b", "a"), ("d", "c")] if swapped else [("a", "b"), ("c", "d")])
    assert found.origins[0] == f"column {header.split(chr(9))[swapped]}"


@pytest.mark.parametrize("suffix", [".tsv", ".csv", ".parquet"])
@pytest.mark.parametrize(
    ("names", "columns"),
    [
        (("de", "en"), (None, None)),
        (("translation.de", "translation.en"), (None, None)),
        (("id", "de", "en"), (None, None)),
        (("German", "eng_Latn"), (None, None)),
        (("de", "en", "x"), (None, 3)),
        (("fr", "de"), (None, "de")),
        (("nb", "en"), (None, None)),
        (("Bulgarian", "English"), (None, None)),
    ],
)
def test_a_column_named_by_another_language_is_not_taken_by_its_position(
    names: tuple[str, ...], columns: tuple[Column, Column], suffix: str, tmp_path: Path
) -> None:
    row = dict(zip(names, "abc", strict=False))
    if suffix == ".parquet":
        file = tmp_path / "a.parquet"
        pq.write_table(pa.Table.from_pylist([row]), file)
    else:
        file = write_csv(tmp_path / f"a{suffix}", [names, row.values()], delimiter="\t" if suffix == ".tsv" else ",")
    assert refused(file, *columns) == (
        f"{file.name} has the columns {', '.join(names)}, and data.source_language=en data.target_language=fr; set "
        "these to the languages of two of them, or data.source_column and data.target_column to their names"
    )
    assert read(file, names[0], names[1]).pairs == [("a", "b")]


@pytest.mark.parametrize(
    ("names", "languages", "chosen"),
    [
        (("id", "translation.en", "translation.id"), ("en", "id"), (1, 2)),
        (("ID", "English", "Indonesian"), ("en", "id"), (1, 2)),
        (("id", "source", "target"), ("en", "id"), (1, 2)),
        (("No", "English", "Norwegian"), ("en", "no"), (1, 2)),
        (("en", "id"), ("en", "id"), (0, 1)),
        (("input", "output", "source"), ("en", "fr"), (0, 1)),
        (("en", "fr_FR", "fr_CA"), ("en", "fr-CA"), (0, 2)),
        (("en", "fr_FR", "fr"), ("en", "fr-CA"), (0, 2)),
        (("en", "fr_FR", "fr_CA"), ("en", "fr"), None),
        (("en", "zh_TW"), ("en", "zh-CN"), None),
        (("id", "English", "x"), ("en", "id"), None),
        (("en_id", "en_text", "fr_id", "fr_text"), ("en", "fr"), None),
        (("EN_ID", "EN_TEXT", "FR_ID", "FR_TEXT"), ("en", "fr"), None),
        (("article", "title"), ("title", "article"), (1, 0)),
    ],
)
def test_names_of_one_form_are_chosen_and_unclear_ones_are_not(
    names: tuple[str, ...], languages: tuple[str, str], chosen: tuple[int, int] | None
) -> None:
    assert guess_columns(names, languages) == chosen


@pytest.mark.parametrize(
    ("rows", "columns", "pairs"),
    [
        (
            (("eng", "Hello", "fra", "Bonjour"), ("eng", "Cat", "fra", "Chat")),
            (2, 4),
            [("Hello", "Bonjour"), ("Cat", "Chat")],
        ),
        (
            (("eng", "Hello", "fra", "Bonjour"), ("eng", "Cat", "fra", "Chat")),
            (None, None),
            [("eng", "Hello"), ("eng", "Cat")],
        ),
        ((("it", "es"), ("cane", "perro")), (1, 2), [("it", "es"), ("cane", "perro")]),
    ],
)
def test_names_of_languages_in_the_data_make_no_header(
    rows: tuple[tuple[str, ...], ...], columns: tuple[Column, Column], pairs: list[tuple[str, str]], tmp_path: Path
) -> None:
    for file in (write_csv(tmp_path / "a.csv", rows), write_csv(tmp_path / "a.tsv", rows, delimiter="\t")):
        found = read(file, *columns)
        assert (found.pairs, found.has_header) == (pairs, False)


@pytest.mark.parametrize("names", [("id", "question", "answer"), ("en_id", "en_text", "fr_id", "fr_text")])
def test_names_of_three_columns_that_say_nothing_are_refused(names: tuple[str, ...], tmp_path: Path) -> None:
    file = tmp_path / "a.parquet"
    pq.write_table(pa.Table.from_pylist([dict(zip(names, "abcd", strict=False))]), file)
    assert refused(file).startswith(f"a.parquet has the columns {', '.join(names)}, and data.source_language=en")
    assert read(file, names[1], names[2]).pairs == [("b", "c")]


def test_two_columns_of_other_names_are_taken_by_their_position(tmp_path: Path) -> None:
    file = tmp_path / "a.parquet"
    pq.write_table(pa.Table.from_pylist([{"en": "a", "summary": "b"}]), file)
    assert read(file, languages=("article", "title")).pairs == [("a", "b")]
    pq.write_table(pa.Table.from_pylist([{"question": "a", "answer": "b"}]), file)
    assert read(file).pairs == [("a", "b")]


@pytest.mark.parametrize(
    "first", ["no\tit", "id\tit", "en\tla", "fr\ta", "source\tla source", "Source\tsource", "English.\tFrench."]
)
def test_a_first_pair_that_looks_a_little_like_a_header_is_a_pair(first: str, tmp_path: Path) -> None:
    found = read(write_lines(tmp_path / "a.tsv", first, "a\tb"))
    assert (len(found.pairs), found.has_header, found.origins) == (2, False, ("column 1", "column 2"))


@pytest.mark.parametrize(
    ("names", "columns", "one_side", "expected"),
    [
        (("id", "French", "en"), (None, None), False, ("c", "b")),
        (("tgt", "raw", "src"), (None, None), False, ("c", "a")),
        (("id", "French", "en"), ("id", None), False, ("a", "b")),
        (("id", "fr", "x"), (None, "id"), False, None),
        (("en", "fr"), ("fr", "en"), False, ("b", "a")),
        (("url", "Sentence", "en", "fr"), (None, None), True, ("b", "b")),
        (("url", "en", "fr"), (None, None), True, ("b", "c")),
        (("en", "fr"), (None, None), True, ("a", "b")),
        (("id", "x", "y"), (None, None), True, None),
    ],
)
def test_the_same_columns_are_chosen_in_every_format(
    names: tuple[str, ...],
    columns: tuple[Column, Column],
    one_side: bool,
    expected: tuple[str, str] | None,
    tmp_path: Path,
) -> None:
    row = "abcd"[: len(names)]
    files = [write_csv(tmp_path / "a.csv", [names, row]), write_csv(tmp_path / "a.tsv", [names, row], delimiter="\t")]
    files.append(write_lines(tmp_path / "a.jsonl", json.dumps(dict(zip(names, row, strict=True)))))
    files.append(tmp_path / "a.parquet")
    pq.write_table(pa.Table.from_pylist([dict(zip(names, row, strict=True))]), files[-1])
    for file in files:
        if expected is None:
            with pytest.raises(UserError, match=r"none of which is named text|no text in the field|are both column"):
                read(file, *columns, one_side=one_side)
        else:
            assert read(file, *columns, one_side=one_side).pairs == [expected], file.name


def test_columns_are_chosen_by_number_or_name_with_and_without_a_header(tmp_path: Path) -> None:
    named = write_lines(tmp_path / "a.tsv", "raw\tclean\tfr", "a\tb\tc")
    assert read(named, "clean", "raw") == Records([("b", "a")], ("column clean", "column raw"), True, (1, 0))
    assert read(named, "raw", 3).pairs == [("a", "c")]
    assert read(named, 2, 3).pairs == [("clean", "fr"), ("b", "c")]  # nothing says that the first line is a header
    assert read(write_lines(tmp_path / "b.tsv", "fr\ten", "a\tb"), 1, 2).pairs == [("a", "b")]
    assert refused(named, "french", 1) == (
        "a.tsv has no column french (columns: raw, clean, fr); set data.source_column to the name or number of one of "
        "them"
    )
    plain = write_lines(tmp_path / "c.tsv", "a\tb", "c\td")
    assert read(plain, positions=(1, 0)).pairs == [("b", "a"), ("d", "c")]


@pytest.mark.parametrize(
    ("name", "lines", "sentence"),
    [
        (
            "a.csv",
            ["en,fr", "a,b", '"c,d', "e,f"],
            "line 3: not CSV (unexpected end of data); close the quotation mark",
        ),
        ("a.csv", ["en,fr", '"a "b" c",d'], "line 2: not CSV (',' expected after '\"'); close the quotation mark"),
        ("a.csv", ["only", "one"], "line 1: 1 comma-separated column, and a pair needs two; separate them by commas, "),
        ("a.csv", ["", ""], "line 1: 0 comma-separated columns, and a pair needs two"),
        (
            "a.txt",
            ["a,b"],
            "line 1: 1 tab-separated column, and a pair needs two; the name of a file of another format",
        ),
        (
            "a.json",
            ["[", '{"en": "a", "fr": "b"}', "]"],
            "line 1: not JSON lines, but one JSON text; write one object per line",
        ),
        (
            "a.json",
            ['[{"en": "a", "fr": "b"}]'],
            "line 1: not JSON lines, but one JSON text; write one object per line",
        ),
        ("a.jsonl", ["3"], "line 1: not a JSON object; fix or remove the line"),
        (
            "a.jsonl",
            ['{"t": {"en": "a", "de": "b"}}'],
            "no text in the field 'en' (fields: t.en, t.de); set data.source",
        ),
        ("a.xlsx", ["PK"], "a.xlsx is a spreadsheet; save it as CSV"),
        ("a.tsv.7z", ["x"], "a.tsv.7z is compressed; decompress it, or compress it with gzip"),
        ("a.tsv.xz", ["x"], "a.tsv.xz is a damaged xz file ("),
        ("a.tsv.bz2", ["x"], "a.tsv.bz2 is a damaged bzip2 file ("),
        ("a.tsv.zst", ["x"], "a.tsv.zst is a damaged zstd file (ZSTD decompress failed: Unknown frame descriptor)"),
    ],
)
def test_a_broken_file_is_named_with_its_line(name: str, lines: list[str], sentence: str, tmp_path: Path) -> None:
    assert sentence in refused(write_lines(tmp_path / name, *lines))


@pytest.mark.parametrize(
    ("name", "lines", "line", "reason"),
    [
        ("a.csv", ["a,b", '"c', 'd",e', "f,g,h"], 4, "3 comma-separated columns, where the first line has 2"),
        ("a.tsv", ["a\tb", "c d", "e\tf"], 2, "1 tab-separated column, where the first line has 2"),
        ("a.tsv", ["en\tfr", "e\tf", "a\tb\tc"], 3, "3 tab-separated columns, where the first line has 2"),
        ("a.jsonl", ['{"en": "e", "fr": "f"}', '{"en": "a"}'], 2, "no text in the field 'fr' (fields: en)"),
        (
            "a.jsonl",
            ['{"en": "e", "fr": "f"}', '{"en": 3, "fr": ""}'],
            2,
            "no text in the field 'en', which holds 3 (fields: en, fr)",
        ),
        ("a.jsonl", ['{"en": "e", "fr": "f"}', "[1]"], 2, "not a JSON object"),
        (
            "a.jsonl",
            ['{"en": "e", "fr": "f"}', '{"en": "\\ud800", "fr": ""}'],
            2,
            "a NUL or half a surrogate pair in the field 'en', so this is not plain text",
        ),
        ("a.jsonl", ['{"en": "e", "fr": "f"}', "{"], 2, "not JSON (Expecting property name enclosed in double quotes)"),
        ("a.tsv", ["a\tb", "c\0\td", "e\tf"], 2, "a NUL byte"),
    ],
)
def test_a_broken_line_is_rejected_by_itself(
    name: str, lines: list[str], line: int, reason: str, tmp_path: Path
) -> None:
    found = read(write_lines(tmp_path / name, *lines))
    assert found.rejected == ((line, reason),)
    assert found.pairs[-1] in [("e", "f"), ("c d", "e")]


@pytest.mark.parametrize("name", ["a.tsv", "a.csv", "a.jsonl"])
def test_compressed_files_hold_what_the_plain_file_holds(name: str, tmp_path: Path) -> None:
    rows = [json.dumps(dict(zip(("en", "fr"), pair, strict=True))) for pair in PAIRS]
    plain = write_lines(tmp_path / name, *(["\t".join(pair) for pair in PAIRS] if name == "a.tsv" else rows))
    if name == "a.csv":
        write_csv(plain, [("en", "fr"), *PAIRS])
    zst = tmp_path / f"{name}.zst"
    with pa.CompressedOutputStream(str(zst), "zstd") as stream:
        stream.write(plain.read_bytes())
    assert read(zst) == read(plain)
    for ending, module in (("gz", gzip), ("xz", lzma), ("bz2", bz2)):
        packed = tmp_path / f"{name}.{ending}"
        packed.write_bytes(module.compress(plain.read_bytes()))
        assert read(packed) == read(plain)
        chunks = list(pair_file(packed, (None, None), ("en", "fr")).chunks())
        assert chunks[-1].read == packed.stat().st_size


@pytest.mark.parametrize(("ending", "kind"), [("gz", "gzip"), ("xz", "xz"), ("bz2", "bzip2")])
def test_a_compressed_file_that_was_cut_is_damaged(ending: str, kind: str, tmp_path: Path) -> None:
    file = tmp_path / f"a.tsv.{ending}"
    module: Any = {"gz": gzip, "xz": lzma, "bz2": bz2}[ending]
    file.write_bytes(module.compress("".join(f"{n}\t{n * n}\n" for n in range(5000)).encode())[:-30])
    assert refused(file).startswith(f"a.tsv.{ending} is a damaged {kind} file (Compressed file ended before ")


@pytest.mark.parametrize("name", ["a.tsv", "a.csv", "a.jsonl", "a.parquet", "a.arrow"])
def test_a_chunk_ends_at_a_number_of_bytes(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pairs = [(f"{n} " + "x" * (n % 300), f"{n} " + "y" * (n * 7 % 500)) for n in range(400)]
    file, table = tmp_path / name, pa.table({"en": [pair[0] for pair in pairs], "fr": [pair[1] for pair in pairs]})
    if name == "a.parquet":
        pq.write_table(table, file, row_group_size=150)
    elif name == "a.arrow":
        with pa.ipc.new_file(str(file), table.schema) as writer:
            writer.write_table(table, max_chunksize=70)
    elif name == "a.csv":
        write_csv(file, pairs)
    else:
        rows = [json.dumps({"en": source, "fr": target}) for source, target in pairs]
        write_lines(file, *(["\t".join(pair) for pair in pairs] if name == "a.tsv" else rows))
    for module in (table_file, columnar_file, pair_source):
        monkeypatch.setattr(module, "CHUNK_BYTES", 4000)
    source = pair_file(file, (None, None), ("en", "fr"))
    parsed = [source.parse(chunk).pairs for chunk in source.chunks()]
    assert [pair for some in parsed for pair in some] == pairs
    sizes = [sum(len(text) for pair in some for text in pair) for some in parsed]
    assert max(sizes) < 4000 + 830
    assert min(sizes[:-1]) > 3000


@pytest.mark.parametrize("new", [pa.ipc.new_file, pa.ipc.new_stream])
def test_a_large_batch_of_an_arrow_file_is_read_in_parts_and_cut_as_small_ones_are(
    new: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(columnar_file, "CHUNK_LINES", 5)
    table, found = pa.table({"en": [f"a {n}" for n in range(23)], "fr": [f"b {n}" for n in range(23)]}), []
    for rows in (23, 3):
        file = tmp_path / f"{rows}.arrow"
        with new(str(file), table.schema) as writer:
            writer.write_table(table, max_chunksize=rows)
        source: Any = pair_file(file, (None, None), ("en", "fr"))
        with source._open() as (_, batches):
            assert max(len(batch) for batch, _ in batches(source.columns)) <= 5
        chunks = list(source.chunks())
        read = [chunk.read for chunk in chunks]
        assert len(set(read)) == len(read) == 5
        assert read == sorted(read)
        assert file.stat().st_size - read[-1] < 20  # of the end of a stream
        found.append([(chunk.first, source.parse(chunk).pairs) for chunk in chunks])
    assert found[0] == found[1]


def test_one_json_field_for_both_sides_is_refused(tmp_path: Path) -> None:
    file = write_lines(tmp_path / "a.jsonl", '{"en": "a", "fr": "b"}')
    assert refused(file, "fr", None) == (
        "a.jsonl: source and target are both the field fr (fields: en, fr); set data.source_column and "
        "data.target_column to two of them"
    )


def test_fields_inside_of_fields_are_found_and_named(tmp_path: Path) -> None:
    file = write_lines(tmp_path / "a.jsonl", *map(json.dumps, NESTED))
    origins = ("field translation.en", "field translation.fr")
    assert read(file) == Records(PAIRS, origins)
    assert read(file, languages=("fr", "en")).pairs == [(target, source) for source, target in PAIRS]
    assert read(file, "translation.fr", "translation.en").origins == origins[::-1]
    dotted = write_lines(tmp_path / "b.jsonl", '{"a.en": "x", "b": {"c": {"d": "y\\nz"}}}')
    assert read(dotted, "a.en", "b.c.d").pairs == [("x", "y z")]
    assert refused(file, 2, 3) == "data.source_column=2 is a number, and a.jsonl has named fields; give a name"
    deep = write_lines(tmp_path / "c.jsonl", '{"a":' * 900 + "1" + "}" * 900)
    assert "line 1: n" in refused(deep)


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.dictionary(pa.int32(), pa.string())])
def test_a_parquet_file_of_several_row_groups_is_read(kind: pa.DataType, tmp_path: Path) -> None:
    table = pa.table({name: pa.array([pair[at] for pair in PAIRS], kind) for at, name in ((1, "fr"), (0, "en"))})
    file = tmp_path / "a.parquet"
    pq.write_table(table, file, row_group_size=2)
    assert read(file) == Records(PAIRS, ("column en", "column fr"), positions=(1, 0))
    assert read(file, 1, 2).pairs == [(target, source) for source, target in PAIRS]
    nested = tmp_path / "b.parquet"
    pq.write_table(pa.Table.from_pylist([*NESTED, {"translation": {"en": "a\r\nb", "fr": "c"}}]), nested)
    found = read(nested)
    assert (found.pairs, found.origins[0]) == ([*PAIRS, ("a b", "c")], "column translation.en")


def test_rows_of_a_parquet_file_without_text_are_rejected_and_a_file_without_texts_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(columnar_file, "CHUNK_LINES", 2)
    file = tmp_path / "a.parquet"
    columns = {"en": ["a", "b", None, "d"], "fr": ["x", "y\0", "z", "u"], "n": [1, 2, 3, 4]}
    pq.write_table(pa.table(columns), file, row_group_size=2)
    found = read(file)
    assert found.rejected == ((2, "a NUL byte in the column 'fr'"), (3, "no text in the column 'en'"))
    assert found.pairs == [("a", "x"), ("d", "u")]
    assert refused(file, "n") == "a.parquet: the column 'n' holds int64, not text; choose another column"
    pq.write_table(pa.table({name: values[:0] for name, values in columns.items()}), file)
    assert "the column 'en' holds null" in refused(file) or "has no rows" in refused(file)
    file.write_bytes(b"PAR1 no Parquet")
    assert refused(file).startswith("a.parquet cannot be read (Parquet magic bytes not found in footer.")
    assert refused(tmp_path / "none.parquet").startswith("none.parquet does not exist; check data.path")
    for ending in ("gz", "zst", "xz", "bz2"):
        assert refused(tmp_path / f"a.parquet.{ending}") == (
            f"a.parquet.{ending} is a compressed Parquet file; Parquet is compressed already, so decompress it"
        )


def test_a_cell_longer_than_csv_s_own_limit_is_a_cell(tmp_path: Path) -> None:
    long = "word " * 40_000
    records = read(write_lines(tmp_path / "a.csv", "en,fr", "hello,bonjour", f'"{long}",x', "yes,oui"))
    assert [source for source, _ in records.pairs] == ["hello", long, "yes"]
    assert csv.field_size_limit() == 131_072  # Python's, of the whole process


def test_a_column_that_a_parquet_file_has_twice_is_named(tmp_path: Path) -> None:
    pq.write_table(pa.table([["a"], ["b"], ["c"]], names=["en", "fr", "fr"]), tmp_path / "a.parquet")
    assert refused(tmp_path / "a.parquet").endswith("a.parquet has the column fr 2 times; rename the others")


def test_the_first_line_of_json_may_be_blank_and_a_message_has_the_value_of_its_line(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('\n \n{"en": "a", "fr": "b"}\n', encoding="utf-8")
    reader = pair_file(tmp_path / "a.jsonl", (None, None), ("en", "fr"))
    assert [pair for chunk in reader.chunks() for pair in reader.parse(chunk).pairs] == [("a", "b")]
    (tmp_path / "b.jsonl").write_text('{"en": 1, "fr": "b"}\n{"en": 2, "fr": "c"}\n', encoding="utf-8")
    with pytest.raises(UserError, match=r"line 1: no text in the field 'en', which holds 1 \(fields: en, fr\)"):
        pair_file(tmp_path / "b.jsonl", (None, None), ("en", "fr"))


def test_a_parquet_file_without_text_says_what_it_has(tmp_path: Path) -> None:
    pq.write_table(pa.table({"id": [1], "share": [0.5]}), tmp_path / "a.parquet")
    with pytest.raises(UserError, match=r"a.parquet has no column of text \(id of int64, share of double\); "):
        pair_file(tmp_path / "a.parquet", (None, None), ("en", "fr"), one_side=True)
