"""User-supplied parallel data and the files of Multi30k: what is read, and what is refused with which message."""

from __future__ import annotations

import gzip
import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from seq2seq_attn.data.cleaning import Cleaning
from seq2seq_attn.data.corpus import LoadedCorpus
from seq2seq_attn.data.multi30k import Multi30kCorpus
from seq2seq_attn.data.parallel import ParallelCorpus
from seq2seq_attn.errors import UserError

PAIRS = [(f"Sentence {n}.", f"Phrase {n}.") for n in range(31)]


def parallel(train: Any, val: Any = None, test: Any = None, **fields: Any) -> LoadedCorpus:
    return ParallelCorpus(
        train=train,
        val=val,
        test=test,
        cleaning=Cleaning(),
        val_sentences=3,
        test_sentences=5,
        seed=1,
        **{"source_language": "en", "target_language": "fr", "source_field": None, "target_field": None} | fields,
    ).load()


def write(file: Path, lines: list[str]) -> str:
    content = "".join(line + "\n" for line in lines).encode()
    file.write_bytes(gzip.compress(content) if file.suffix == ".gz" else content)
    return str(file)


def two_files(folder: Path, end: str = "") -> list[str]:
    return [
        write(folder / f"all.{name}{end}", [pair[side] for pair in PAIRS]) for side, name in enumerate(("en", "fr"))
    ]


def message_of(read: Any) -> str:
    with pytest.raises(UserError) as refused:
        read()
    return str(refused.value)


@pytest.mark.parametrize("form", ["two", "two_gz", "tsv", "jsonl", "jsonl_fields"])
def test_every_form_gives_the_same_corpus(form: str, tmp_path: Path) -> None:
    expected = parallel(two_files(tmp_path))
    if form.startswith("two"):
        files: Any = two_files(tmp_path, ".gz" if form == "two_gz" else "")
    elif form == "tsv":
        files = write(tmp_path / "all.tsv", ["\t".join(pair) for pair in PAIRS])
    else:
        names = ("en", "fr") if form == "jsonl" else ("source", "translated")
        files = write(tmp_path / "all.jsonl", [json.dumps(dict(zip(names, pair, strict=True))) for pair in PAIRS])
    fields = {"source_field": "source", "target_field": "translated"} if form == "jsonl_fields" else {}
    found = parallel(files, **fields)
    assert found.fingerprint == expected.fingerprint
    assert {name: len(split) for name, split in found.splits.items()} == {"train": 23, "val": 3, "test": 5}


def test_columns_are_chosen_by_number_and_shown_in_the_direction(tmp_path: Path) -> None:
    file = write(tmp_path / "all.tsv", ["\t".join((*pair, "someone")) for pair in PAIRS])
    french = {"source_language": "fr", "target_language": "en"}
    named, swapped = parallel(file, **french), parallel(file, **french, source_column=2, target_column=1)
    assert (named.direction, named.splits["train"].sources[0][:8]) == ("fr (column 1) → en (column 2)", "Sentence")
    assert (swapped.direction, swapped.splits["train"].sources[0][:6]) == ("fr (column 2) → en (column 1)", "Phrase")
    assert parallel(file, source_column=1, target_column=3).splits["val"].targets == ["someone"] * 3
    line = ", line 1: 2 tab-separated columns instead of 3 (source, target, anything); fix or remove the line"
    file = write(tmp_path / "all.tsv", ["\t".join(pair) for pair in PAIRS])
    assert message_of(lambda: parallel(file, target_column=3)) == f"{file}{line}"
    for source, target in ((1, 1), (0, 1), (1, 4)):
        assert message_of(partial(parallel, file, source_column=source, target_column=target)) == (
            f"data.source_column={source} and data.target_column={target} are not two columns of the file; use two "
            "different numbers from 1 to 3"
        )


def test_the_direction_names_files_and_fields_too(tmp_path: Path) -> None:
    assert parallel(two_files(tmp_path)).direction == "en (all.en) → fr (all.fr)"
    lines = [json.dumps({"a": source, "b": target}) for source, target in PAIRS]
    file = write(tmp_path / "all.jsonl.gz", lines)
    fields = {"source_field": "b", "target_field": "a"}
    assert parallel(file, **fields).direction == "en (field b) → fr (field a)"


def test_splits_that_are_given_are_kept(tmp_path: Path) -> None:
    files = [write(tmp_path / f"{n}.tsv", ["\t".join(pair) for pair in PAIRS[10 * n : 10 * n + 10]]) for n in range(3)]
    found = parallel(*files)
    assert found.splits["test"].sources == [source for source, _ in PAIRS[20:30]]


def test_files_of_unequal_length_are_refused_with_their_counts(tmp_path: Path) -> None:
    source, target = two_files(tmp_path)
    write(Path(target), ["une", "deux"])
    assert message_of(lambda: parallel([source, target])) == (
        f"{source} has 31 lines and {target} has 2; parallel files need the same number, line for line"
    )


def test_a_separator_inside_a_line_does_not_misalign(tmp_path: Path) -> None:
    lines = ["one\u2028two", "three\u0085four", *(f"more {n}" for n in range(29))]
    files = [write(tmp_path / "u.en", lines), write(tmp_path / "u.fr", [pair[1] for pair in PAIRS])]
    pairs = [p for split in parallel(files).splits.values() for p in zip(split.sources, split.targets, strict=True)]
    assert ("three four", "Phrase 1.") in pairs


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ('{"en": "Go."}', "no text in the field 'fr' (fields: en); set data.target_field to the name of the field"),
        (
            '{"en": 3, "fr": "Va !"}',
            "no text in the field 'en' (fields: en, fr); set data.source_field to the name of the field",
        ),
        ("[1]", "no text in the field 'en' (fields: none); set data.source_field to the name of the field"),
        ("{", "not JSON (Expecting property name enclosed in double quotes); fix or remove the line"),
    ],
)
def test_a_json_line_without_its_fields_is_named(line: str, sentence: str, tmp_path: Path) -> None:
    file = write(tmp_path / "a.jsonl", [json.dumps({"en": "Go.", "fr": "Va !"}), line])
    assert message_of(lambda: parallel(file)) == f"{file}, line 2: {sentence}"


def test_one_held_out_split_without_the_other_is_refused(tmp_path: Path) -> None:
    files = two_files(tmp_path)
    assert message_of(lambda: parallel(files, files)) == (
        "data.test is missing; set both data.val and data.test, or neither to hold them out of data.train"
    )
    assert message_of(lambda: parallel(None)) == (
        "data=parallel needs data.train=[SOURCE,TARGET] or data.train=FILE, a .tsv or .jsonl file"
    )
    assert message_of(lambda: parallel(files[:1])) == "data.train lists 1 files; use [SOURCE,TARGET] or one file"


def test_a_truncated_gz_is_named(tmp_path: Path) -> None:
    source, target = two_files(tmp_path, ".gz")
    Path(source).write_bytes(Path(source).read_bytes()[:-9])
    assert message_of(lambda: parallel([source, target])).startswith(f"{source} is a damaged gzip file (")


def multi30k(folder: Path | None, cache: Path, **changed: str) -> LoadedCorpus:
    settings = {"suffix": "", "test_split": "test_2016_flickr"} | changed
    return Multi30kCorpus(
        path=None if folder is None else str(folder),
        source_language="en",
        target_language="fr",
        cleaning=Cleaning(),
        cache_dir=str(cache),
        **settings,
    ).load()


@pytest.mark.parametrize("end", ["", ".gz"])
def test_multi30k_reads_its_folder(end: str, tmp_path: Path) -> None:
    for n, split in enumerate(("train", "val", "test_2016_flickr", "test_2017_flickr")):
        for side, language in enumerate(("en", "fr")):
            write(tmp_path / f"{split}.{language}{end}", [pair[side] for pair in PAIRS[7 * n : 7 * n + 7]])
    found = multi30k(tmp_path, tmp_path, test_split="test_2017_flickr")
    assert {name: len(split) for name, split in found.splits.items()} == {"train": 7, "val": 7, "test": 7}
    assert found.splits["test"].sources[0] == "Sentence 21."


def test_multi30k_finds_the_tokenized_files_in_their_subfolder(tmp_path: Path) -> None:
    (tmp_path / "tok").mkdir()
    for split in ("train", "val", "test_2016_flickr"):
        for side, language in enumerate(("en", "fr")):
            write(tmp_path / "tok" / f"{split}.lc.norm.tok.{language}", [pair[side] for pair in PAIRS])
    assert len(multi30k(tmp_path, tmp_path, suffix=".lc.norm.tok").splits["train"]) == 31


def test_multi30k_names_the_missing_file(tmp_path: Path) -> None:
    assert message_of(lambda: multi30k(tmp_path, tmp_path)) == (
        f"{tmp_path} has no train.en or train.en.gz; check data.path, data.suffix, data.test_split and the languages"
    )
    assert message_of(lambda: multi30k(None, tmp_path, suffix=".tok")) == (
        "files with data.suffix=.tok are not downloaded; set data.path=FOLDER to a folder with them"
    )
