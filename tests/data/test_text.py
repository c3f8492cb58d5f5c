"""data=text: lines without translations, from text files and from both sides of files of pairs."""

from __future__ import annotations

import gzip
import json
import pickle
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from configs import built, compose_train

from seq2seq_attn.data import text as text_module
from seq2seq_attn.data.corpus import CleaningReport, EmptyTexts, LoadedCorpus, Split
from seq2seq_attn.data.pair_formats import is_pair_file, pair_file
from seq2seq_attn.data.store import pair_source
from seq2seq_attn.data.store.pair_source import LineAlignedFiles
from seq2seq_attn.errors import UserError


def load(folder: Path, *overrides: str) -> LoadedCorpus:
    return built(compose_train("data=text", f"data.cache_dir={folder / 'cache'}", *overrides).data).load()


@pytest.fixture
def files(tmp_path: Path) -> Path:
    (tmp_path / "a.txt").write_text("".join(f"line {number}\n" for number in range(30)) + "line 1\n\n", "utf-8")
    (tmp_path / "b.tsv").write_text("one\tun\ntwo\tdeux\n", "utf-8")
    return tmp_path


def test_every_line_is_in_one_split_once_and_its_own_target(files: Path) -> None:
    corpus = load(files, f"data.train=[{files / 'a.txt'},{files / 'b.tsv'}]", "data.val_sentences=3")
    lines: list[Any] = []
    for split in corpus.splits.values():
        assert list(split.sources) == list(split.targets)
        lines += split.sources
    assert sorted(lines) == sorted([*(f"line {number}" for number in range(30)), "one", "un", "two", "deux"])
    assert len(corpus.splits["val"]) == 3


def test_a_text_file_is_read_once_and_gives_what_it_gives_as_both_sides_of_pairs(
    files: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with (files / "a.txt").open("ab") as file:
        file.write(b"caf\xe9\n")
    given = ["data.max_rejected=0.1", f"data.train={files / 'a.txt'}"]
    read: list[str] = []
    opened = pair_source.opened

    def counted(path: Path, compressed: bool = True) -> Any:
        read.extend([path.name] if compressed else [])
        return opened(path, compressed)

    monkeypatch.setattr(pair_source, "opened", counted)
    corpus = load(files, *given)
    assert read == ["a.txt"]
    assert corpus.report.counts["all: lines rejected"] == 1
    monkeypatch.setattr(text_module, "Lines", lambda path: LineAlignedFiles(path, path))
    assert load(files, *given).fingerprint == corpus.fingerprint
    assert len(list((files / "cache" / "corpora").glob("*/corpus.json"))) == 2


def test_no_lines_are_held_out_where_none_are_wanted(files: Path) -> None:
    corpus = load(files, f"data.train={files / 'a.txt'}", "data.val_sentences=0", "data.test_sentences=0")
    assert (list(corpus.splits), len(corpus.splits["train"])) == (["train"], 30)


def test_one_sided_text_has_the_targets_alone_and_another_fingerprint(files: Path) -> None:
    corpus = load(files, f"data.train={files / 'a.txt'}", "data.target_language=fr")
    one_sided = corpus.one_sided()
    assert corpus.direction == "fr → fr"
    assert one_sided.direction == "fr"
    sources = one_sided.splits["train"].sources
    assert (len(sources), list(sources), sources[-1]) == (len(sources), [""] * len(corpus.splits["train"]), "")
    assert sources[2:5] == [""] * 3
    with pytest.raises(IndexError, match="out of range"):
        sources[len(sources)]
    assert isinstance(sources, EmptyTexts)
    assert len(pickle.dumps(EmptyTexts(1 << 40))) < 200  # no list of them
    assert list(one_sided.splits["train"].targets) == list(corpus.splits["train"].targets)
    assert one_sided.fingerprint != corpus.fingerprint


def test_no_file_and_a_file_that_is_not_there_are_refused_with_the_way_out(files: Path) -> None:
    with pytest.raises(UserError, match=r"data=text needs data\.train=FILE"):
        load(files)
    with pytest.raises(UserError, match=r"none\.txt"):
        load(files, f"data.train={files / 'none.txt'}")


def test_json_lines_of_one_field_are_read_once_and_those_of_two_on_both_sides(tmp_path: Path) -> None:
    (tmp_path / "one.jsonl").write_text("".join(f'{{"text": "line {n}"}}\n' for n in range(30)) + "\n \n", "utf-8")
    (tmp_path / "two.jsonl").write_text('{"en": "one", "fr": "un"}\n', "utf-8")
    corpus = load(tmp_path, f"data.train={tmp_path / 'one.jsonl'}", "data.val_sentences=3")
    assert corpus.report.counts["all: pairs read"] == 30
    both = load(tmp_path, f"data.train=[{tmp_path / 'one.jsonl'},{tmp_path / 'two.jsonl'}]", "data.val_sentences=3")
    assert both.report.counts["all: pairs read"] == 32
    (tmp_path / "three.jsonl").write_text('{"a": "one", "b": "un", "c": "eins"}\n', "utf-8")
    with pytest.raises(
        UserError, match=r"three.jsonl, line 1: .*; set data.text_column to the name of the field, or leave one"
    ):
        load(tmp_path, f"data.train={tmp_path / 'three.jsonl'}")


@pytest.mark.parametrize("kind", ["parquet", "arrow", "csv", "tsv"])
@pytest.mark.parametrize("beside", [{}, {"id": list(range(30))}, {"url": [f"http://x/{n}" for n in range(30)]}])
def test_the_column_of_the_text_is_read_alone_and_once(kind: str, beside: dict[str, list[Any]], tmp_path: Path) -> None:
    columns, file = beside | {"text": [f"line {n}" for n in range(30)]}, tmp_path / f"a.{kind}"
    if kind == "parquet":
        pq.write_table(pa.table(columns), file)
    elif kind == "arrow":
        with pa.OSFile(str(file), "wb") as sink, pa.ipc.new_file(sink, pa.table(columns).schema) as writer:
            writer.write_table(pa.table(columns))
    else:
        rows = [list(columns), *(list(map(str, row)) for row in zip(*columns.values(), strict=True))]
        file.write_text("".join(("," if kind == "csv" else "\t").join(row) + "\n" for row in rows), encoding="utf-8")
    corpus = load(tmp_path, f"data.train={file}", "data.val_sentences=3", "data.test_sentences=3")
    lines = [line for split in corpus.splits.values() for line in split.sources]
    assert sorted(lines) == sorted(columns["text"])


def test_a_file_of_one_column_is_no_file_of_pairs(tmp_path: Path) -> None:
    pq.write_table(pa.table({"en": ["one"]}), tmp_path / "a.parquet")
    with pytest.raises(UserError, match=r"a.parquet has one column \(en\), and a pair needs two$"):
        pair_file(tmp_path / "a.parquet", (None, None), ("en", "fr"))
    pq.write_table(pa.table({}), tmp_path / "empty.parquet")
    with pytest.raises(UserError, match=r"empty.parquet has no column, and a pair needs two$"):
        pair_file(tmp_path / "empty.parquet", (None, None), ("en", "fr"))


def test_documents_of_one_sided_text_have_one_side(tmp_path: Path) -> None:
    for name, one_side in (("text", True), ("demo", False)):
        config = compose_train("data=documents", f"data@data.corpus={name}", f"paths.cache_dir={tmp_path}")
        assert built(config.data).has_one_side == one_side


@pytest.mark.parametrize("name", ["sentence", "text", "content"])
def test_the_field_of_the_text_alone_is_read(name: str, tmp_path: Path) -> None:
    lines = [f'{{"url": "https://site{n}.org", "{name}": "line {n}"}}' for n in range(30)]
    (tmp_path / "a.jsonl").write_text("\n".join(lines) + "\n", "utf-8")
    for language in ("fr", "en"):
        corpus = load(tmp_path, f"data.train={tmp_path / 'a.jsonl'}", f"data.target_language={language}")
        read = [text for split in corpus.splits.values() for text in split.targets]
        assert sorted(read) == sorted(f"line {n}" for n in range(30))


@pytest.mark.parametrize("kind", ["csv", "tsv", "jsonl", "parquet"])
def test_a_column_may_be_chosen_and_the_table_says_which_are_read(kind: str, tmp_path: Path) -> None:
    columns, file = {"date": ["May", "June"] * 15, "body": [f"line {n}" for n in range(30)]}, tmp_path / f"a.{kind}"
    rows = list(zip(*columns.values(), strict=True))
    if kind == "parquet":
        pq.write_table(pa.table({"id": list(range(30))} | columns), file)
    elif kind == "jsonl":
        file.write_text("".join(json.dumps(dict(zip(columns, row, strict=True))) + "\n" for row in rows), "utf-8")
    else:
        separator = "," if kind == "csv" else "\t"
        file.write_text("".join(separator.join(row) + "\n" for row in [tuple(columns), *rows]), "utf-8")
    whole = ("data.val_sentences=0", "data.test_sentences=0", "data.cleaning.deduplicate=false")
    both = load(tmp_path, f"data.train={file}", *whole)
    named = "field date, field body" if kind == "jsonl" else "column date, column body"
    assert both.one_sided().direction == f"text ({named if kind in ('jsonl', 'parquet') else 'column 1, column 2'})"
    assert len(both.splits["train"]) == (60 if kind in ("jsonl", "parquet") else 62)
    chosen = load(tmp_path, f"data.train={file}", *whole, "data.text_column=body")
    assert list(chosen.splits["train"].targets) == columns["body"]
    assert chosen.one_sided().direction == f"text ({'field' if kind == 'jsonl' else 'column'} body)"
    if kind != "jsonl":
        number = 3 if kind == "parquet" else 2
        by_number = load(tmp_path, f"data.train={file}", *whole, f"data.text_column={number}")
        header = [] if kind == "parquet" else ["body"]  # a name that is no language is text
        assert list(by_number.splits["train"].targets) == [*header, *columns["body"]]
    with pytest.raises(UserError, match=r"a.\w+.*'?title.*; set data.text_column to the name"):
        load(tmp_path, f"data.train={file}", *whole, "data.text_column=title")


def test_a_header_of_languages_is_no_text_where_the_column_is_a_number(tmp_path: Path) -> None:
    (tmp_path / "a.tsv").write_text("en\tfr\n" + "".join(f"line {n}\tligne {n}\n" for n in range(30)), "utf-8")
    whole = ("data.val_sentences=0", "data.test_sentences=0", f"data.train={tmp_path / 'a.tsv'}")
    for column in (2, "fr"):
        found = load(tmp_path, *whole, f"data.text_column={column}")
        assert list(found.splits["train"].targets) == [f"ligne {n}" for n in range(30)]


def test_a_column_of_lines_is_refused(files: Path) -> None:
    with pytest.raises(
        UserError, match=r"^data.text_column=body chooses .*, and no file is one of these; leave it out$"
    ):
        load(files, f"data.train={files / 'a.txt'}", "data.text_column=body")
    assert len(load(files, f"data.train={files / 'a.txt'}", "data.text_column=''").splits["train"]) > 20


@pytest.mark.parametrize("kind", ["txt", "tsv", "jsonl"])
def test_empty_lines_are_no_texts_of_any_split(kind: str, tmp_path: Path) -> None:
    for name, blank in (("train", True), ("plain", False), ("blank", True)):
        lines = [line for n in range(20) for line in ([f"line {n}", " \u00a0"] if blank else [f"line {n}"])]
        written = {"txt": str, "tsv": lambda line: f"{line}\t{line}", "jsonl": lambda line: json.dumps({"text": line})}
        (tmp_path / f"{name}.{kind}").write_text("".join(written[kind](line) + "\n" for line in lines), "utf-8")
    given = [f"data.{split}={tmp_path / f'{name}.{kind}'}" for split, name in (("train", "train"), ("test", "blank"))]
    corpus = load(tmp_path, *given, f"data.val={tmp_path / f'plain.{kind}'}")
    assert list(corpus.splits["test"].targets) == list(corpus.splits["val"].targets)
    assert len(corpus.splits["train"]) == 20
    sides = 2 if kind == "tsv" else 1
    assert (corpus.report.counts["test: dropped, empty"], len(corpus.splits["val"])) == (20 * sides, 20 * sides)
    (tmp_path / f"blank.{kind}").write_bytes(b"\n" if kind != "tsv" else b"\t\n")
    with pytest.raises(UserError, match=r"has no text for the split test; give a file|is no JSON|line 1: not JSON"):
        load(tmp_path, *given)


@pytest.mark.parametrize("kind", ["TSV", "Csv", "JSONL", "Parquet", "TSV.GZ"])
def test_endings_in_large_letters_are_known(kind: str, tmp_path: Path) -> None:
    pairs = [(f"line {n}", f"ligne {n}") for n in range(30)]
    file, small = tmp_path / f"a.{kind}", kind.lower()
    if small == "parquet":
        pq.write_table(pa.table(dict(zip(("en", "fr"), zip(*pairs, strict=True), strict=True))), file)
    else:
        lines = {
            "tsv": [f"{en}\t{fr}\n" for en, fr in pairs],
            "csv": [f'"{en}","{fr}"\n' for en, fr in pairs],
            "jsonl": [json.dumps({"en": en, "fr": fr}) + "\n" for en, fr in pairs],
        }[small.removesuffix(".gz")]
        content = "".join(lines).encode()
        file.write_bytes(gzip.compress(content) if small.endswith(".gz") else content)
    whole = ("data.val_sentences=0", "data.test_sentences=0")
    assert sorted(load(tmp_path, f"data.train={file}", *whole).splits["train"].targets) == sorted(sum(pairs, ()))
    assert is_pair_file(file.name)
    assert table_of(pair_file(file, (None, None), ("en", "fr"))) == pairs


def table_of(reader: Any) -> list[tuple[str, str]]:
    return [pair for chunk in reader.chunks() for pair in reader.parse(chunk).pairs]


def test_texts_that_several_splits_have_are_said_of_one_sided_text(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def split(numbers: range) -> Split:
        texts = [f"text {number // 2}" for number in numbers]
        return Split([f"source {number}" for number in numbers], texts, [[text] for text in texts])

    splits = {"train": split(range(10)), "val": split(range(9, 13)), "test": split(range(20, 22))}
    LoadedCorpus(splits, CleaningReport({}), "en", "fr").one_sided()
    assert caplog.messages == ["1 of 4 texts of val are also in train, so its score is too optimistic"]


def test_texts_whose_two_sides_are_one_are_counted_once(files: Path, caplog: pytest.LogCaptureFixture) -> None:
    (files / "val.txt").write_text("line 3\nanother\n", "utf-8")
    load(files, f"data.train={files / 'a.txt'}", f"data.val={files / 'val.txt'}").one_sided()
    assert caplog.messages == ["1 of 2 source sentences of val are also in train, so its score is too optimistic"]


def test_the_field_named_text_is_read_also_where_the_first_record_has_none(tmp_path: Path) -> None:
    records = [{"text": None, "url": "u1"}, *({"text": f"text {n}", "url": f"u{n}"} for n in range(200))]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")
    corpus = load(tmp_path, f"data.train={tmp_path / 'a.jsonl'}", "data.val_sentences=0", "data.test_sentences=0")
    assert list(corpus.splits["train"].targets) == [f"text {n}" for n in range(200)]


def test_a_table_has_one_or_two_columns_of_text_and_a_header_of_languages_is_none_of_it(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("english,french\nhello,bonjour\n", encoding="utf-8")
    whole = ("data.val_sentences=0", "data.test_sentences=0")
    assert list(load(tmp_path, f"data.train={tmp_path / 'a.csv'}", *whole).splits["train"].targets) == [
        "hello",
        "bonjour",
    ]
    (tmp_path / "b.csv").write_text("id,english,french\n17,hello,bonjour\n", encoding="utf-8")
    with pytest.raises(
        UserError, match=r"b.csv, line 1: 3 columns, none of which is named text; give data.text_column=NAME"
    ):
        load(tmp_path, f"data.train={tmp_path / 'b.csv'}", *whole)
    columns = {"id": ["17", "18"], "english": ["hello", "yes"], "french": ["bonjour", "oui"]}
    chosen = load(tmp_path, f"data.train={tmp_path / 'b.csv'}", *whole, "data.text_column=french")
    assert list(chosen.splits["train"].targets) == ["bonjour"]
    pq.write_table(pa.table(columns), tmp_path / "c.parquet")
    with pytest.raises(
        UserError, match=r"c.parquet: 3 columns of text \(id, english, french\), none of which is named "
    ):
        load(tmp_path, f"data.train={tmp_path / 'c.parquet'}", *whole)
    with pytest.raises(UserError, match=r"^data.val is an empty list; name a file, or write data.val=null$"):
        load(tmp_path, f"data.train={tmp_path / 'a.csv'}", "data.val=[]")
