"""User-supplied parallel data and the files of Multi30k: what is read, and what is refused with which message."""

from __future__ import annotations

import gzip
import json
import re
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from configs import built, composed

from seq2seq_attn.data import table_file
from seq2seq_attn.data.cleaning import Cleaning
from seq2seq_attn.data.corpus import LoadedCorpus
from seq2seq_attn.data.multi30k import Multi30kCorpus
from seq2seq_attn.data.parallel import ParallelCorpus
from seq2seq_attn.data.splitting import warn_of_decomposed
from seq2seq_attn.data.store import pair_source
from seq2seq_attn.data.store.text_store import stored_corpus
from seq2seq_attn.errors import UserError

PARTS = [[(f"Sentence {n}.", f"Phrase {n}.") for n in some] for some in (range(9), range(9, 20), range(20, 31))]
PAIRS = [(f"Sentence {n}.", f"Phrase {n}.") for n in range(31)]
DEFAULTS: dict[str, Any] = {
    "source_language": "en", "target_language": "fr", "source_column": None, "target_column": None,
    "val_sentences": 3, "test_sentences": 5,
}  # fmt: skip


@pytest.fixture(autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(DEFAULTS, "cache_dir", str(tmp_path_factory.mktemp("cache")))


def parallel(train: Any, val: Any = None, test: Any = None, **fields: Any) -> LoadedCorpus:
    return ParallelCorpus(train=train, val=val, test=test, cleaning=Cleaning(), seed=1, **DEFAULTS | fields).load()


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


@pytest.mark.parametrize(
    "form",
    [
        "two",
        "two_gz",
        "tsv",
        "jsonl",
        "jsonl_fields",
        "two_pairs",
        "two_globs",
        "tsvs",
        "tsv_glob",
        "parquets",
        "arrows",
    ],
)
def test_every_form_gives_the_same_corpus(form: str, tmp_path: Path) -> None:
    expected = parallel(two_files(tmp_path))
    if form.startswith("two"):
        files: Any = two_files(tmp_path, ".gz" if form == "two_gz" else "")
    elif form in ("two_pairs", "two_globs"):
        files = [
            [
                write(tmp_path / f"part{n}.{name}", [pair[side] for pair in part])
                for side, name in enumerate(("en", "fr"))
            ]
            for n, part in enumerate(PARTS)
        ]
        files = files if form == "two_pairs" else [str(tmp_path / f"part?.{name}") for name in ("en", "fr")]
    elif form in ("tsvs", "tsv_glob"):
        files = [write(tmp_path / f"part{n}.tsv", list(map("\t".join, part))) for n, part in enumerate(PARTS)]
        files = files if form == "tsvs" else str(tmp_path / "part*.tsv")
    elif form in ("parquets", "arrows"):
        files = [str(tmp_path / f"part{n}.{form[:-1]}") for n in range(len(PARTS))]
        for file, part in zip(files, PARTS, strict=True):
            table = pa.table([list(side) for side in zip(*part, strict=True)], ["en", "fr"])
            if form == "parquets":
                pq.write_table(table, file)
            else:
                with pa.ipc.new_file(file, table.schema) as writer:
                    writer.write_table(table, max_chunksize=4)
    elif form == "tsv":
        files = write(tmp_path / "all.tsv", ["\t".join(pair) for pair in PAIRS])
    else:
        names = ("en", "fr") if form == "jsonl" else ("source", "translated")
        files = write(tmp_path / "all.jsonl", [json.dumps(dict(zip(names, pair, strict=True))) for pair in PAIRS])
    fields = {"source_column": "source", "target_column": "translated"} if form == "jsonl_fields" else {}
    found = parallel(files, **fields)
    assert found.fingerprint == expected.fingerprint
    assert {name: len(split) for name, split in found.splits.items()} == {"train": 23, "val": 3, "test": 5}


@pytest.mark.parametrize(
    ("name", "files"),
    [
        ("parallel", "train={}"),
        ("text", "train={}"),
        ("huggingface", "path={}"),
        ("mixture", "corpora={{one:{{train:{}}}}}"),
    ],
)
def test_each_reader_of_the_users_files_hands_on_how_they_are_prepared(
    name: str, files: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: dict[str, Any] = {}

    def prepare(*given: Any, **options: Any) -> LoadedCorpus:
        asked.update(options)
        return stored_corpus(*given, **options)

    for module in ("parallel", "text"):
        monkeypatch.setattr(f"seq2seq_attn.data.{module}.stored_corpus", prepare)
    file = write(tmp_path / "all.tsv", list(map("\t".join, PAIRS)))
    options = ("max_rejected=0.07", "num_processes=3", "verify=true", "seed=5", "val_sentences=4")
    folders = (f"cache_dir={tmp_path / 'cache'}", f"copy_to={tmp_path / 'node'}")
    given = (f"data.{option}" for option in (files.format(file), *options, *folders))
    found = built(composed(f"data={name}", *given).data).load()
    assert (asked["max_rejected"], asked["num_processes"], asked["verify"]) == (0.07, 3, True)
    assert (asked["held_out"].seed, asked["held_out"].sentences["val"]) == (5, 4)
    assert (found.num_processes, found.copy_to) == (3, tmp_path / "node")
    assert asked["cache_dir"] == tmp_path / "cache" / "corpora"


def test_several_json_files_are_files_of_pairs(tmp_path: Path) -> None:
    files = []
    for name in ("a", "b"):
        rows = [{"en": f"hello {name} {number}", "fr": f"bonjour {name} {number}"} for number in range(30)]
        text = "".join(f"{json.dumps(row)}\n" for row in rows)
        files.append(str(write(tmp_path / f"{name}.json", text.splitlines())))
    split = parallel(files).splits["train"]
    assert all(source.startswith("hello ") for source in split.sources)
    assert {source.split()[1] for source in split.sources} == {"a", "b"}


def test_columns_are_chosen_by_number_and_shown_in_the_direction(tmp_path: Path) -> None:
    file = write(tmp_path / "all.tsv", ["\t".join((*pair, "someone", "4")) for pair in PAIRS])
    french = {"source_language": "fr", "target_language": "en"}
    named, swapped = parallel(file, **french), parallel(file, **french, source_column=2, target_column=1)
    assert (named.direction, named.splits["train"].sources[0][:8]) == ("fr (column 1) → en (column 2)", "Sentence")
    assert (swapped.direction, swapped.splits["train"].sources[0][:6]) == ("fr (column 2) → en (column 1)", "Phrase")
    assert parallel(file, source_column=1, target_column=3).splits["val"].targets[:] == ["someone"] * 3
    for chosen, sentence in (
        (
            {"target_column": 5},
            "has no column 5 (columns: 1 to 4); set data.target_column to the name or number of one",
        ),
        ({"source_column": 2}, "source and target are both column 2 (columns: 1 to 4); set data.source_column and"),
        ({"source_column": "en"}, f"has no column en (columns: {PAIRS[0][0]}, {PAIRS[0][1]}, someone, 4); set data."),
    ):
        assert sentence in message_of(partial(parallel, file, **chosen))


def test_the_direction_names_files_and_fields_too(tmp_path: Path) -> None:
    assert parallel(two_files(tmp_path)).direction == "en (all.en) → fr (all.fr)"
    lines = [json.dumps({"a": source, "b": target}) for source, target in PAIRS]
    file = write(tmp_path / "all.jsonl.gz", lines)
    fields = {"source_column": "b", "target_column": "a"}
    assert parallel(file, **fields).direction == "en (field b) → fr (field a)"


def test_splits_that_are_given_are_kept(tmp_path: Path) -> None:
    files = [write(tmp_path / f"{n}.tsv", ["\t".join(pair) for pair in PAIRS[10 * n : 10 * n + 10]]) for n in range(3)]
    found = parallel(*files)
    assert list(found.splits["test"].sources) == [source for source, _ in PAIRS[20:30]]


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


def test_a_few_broken_lines_are_rejected_and_listed_and_more_end_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    lines = [json.dumps({"en": source, "fr": target}) for source, target in PAIRS]
    file = write(tmp_path / "a.jsonl", [*lines, '{"en": "Go."}', *lines, "{"])
    sentence = message_of(lambda: parallel(file))
    match = re.fullmatch(
        rf"{file}, line 32: no text in the field 'fr' \(fields: en\); 2 of 64 lines of train are rejected, more than "
        r"data.max_rejected=0.01 \(listed in (.*)\): fix or remove them",
        sentence,
    )
    assert match
    rows = [line.split("\t") for line in Path(match[1]).read_text().splitlines()]
    assert [row[:2] for row in rows] == [[file, "32"], [file, "64"]]
    found = parallel(file, max_rejected=0.04)
    assert found.report.counts["all: lines rejected"] == 2
    assert sum(len(split) for split in found.splits.values()) == len(PAIRS)
    assert f"2 lines of train are rejected, such as {file}, line 32: no text" in caplog.text


def test_files_that_are_not_there_are_named(tmp_path: Path) -> None:
    assert message_of(lambda: parallel(None)) == (
        "data=parallel needs data.train=[SOURCE,TARGET] or data.train=FILE, a .tsv, .csv, .jsonl, .parquet or .arrow "
        "file; an evaluation needs data.test=FILE alone"
    )
    assert message_of(lambda: parallel(two_files(tmp_path)[:1])) == (
        "data.train has a list of 1 files; use [SOURCE,TARGET], [[SOURCE,TARGET],...], or files of pairs, which end in "
        ".tsv, .csv, .jsonl, .parquet or .arrow"
    )
    nothing = str(tmp_path / "*.tsv")
    assert message_of(lambda: parallel(nothing)) == f"data.train={nothing} matches no file; check the pattern"
    sides = [str(tmp_path / "all.*"), str(tmp_path / "all.fr")]
    assert message_of(lambda: parallel(sides)) == (
        f"data.train: {sides[0]} is 2 files and {sides[1]} is 1; parallel files need the same number"
    )


def test_sides_are_paired_by_what_their_wildcards_stand_for(tmp_path: Path) -> None:
    """By their names, news.en comes before news.extra.en, but news.fr after news.extra.fr."""
    for name, pairs in (("news", PAIRS[:15]), ("news.extra", PAIRS[15:])):
        for side, language in enumerate(("en", "fr")):
            write(tmp_path / f"{name}.{language}", [f"{pair[side]}" for pair in pairs])
    sides = [str(tmp_path / "n?ws*.en"), str(tmp_path / "[n]ews*.fr")]
    with pytest.raises(UserError, match=r"news\S*\.(en|fr) has no partner among .*; the wildcards of both sides"):
        parallel(sides)
    corpus = parallel([str(tmp_path / "n?ws*.en"), str(tmp_path / "n?ws*.fr")])
    found = [zip(split.sources, split.targets, strict=True) for split in corpus.splits.values()]
    assert sorted(pair for pairs in found for pair in pairs) == sorted(PAIRS)
    (tmp_path / "news.extra.fr").rename(tmp_path / "news.other.fr")
    assert message_of(lambda: parallel([str(tmp_path / "*.en"), str(tmp_path / "*.fr")])) == (
        f"data.train: {tmp_path / 'news.extra.en'} has no partner among {tmp_path / '*.fr'}; the wildcards of both "
        "sides must match the same text, as in [en/*.en,fr/*.fr]; or list the pairs, [[a.en,a.fr],[b.en,b.fr]]"
    )


@pytest.mark.parametrize("given", ["val", "test"])
def test_a_split_that_is_not_given_is_held_out_of_train(given: str, tmp_path: Path) -> None:
    """A source of the given split is not held out for the other split."""
    train = write(tmp_path / "train.tsv", ["\t".join(pair) for pair in PAIRS])
    both = parallel(train, val_sentences=15, test_sentences=15).splits
    own = [*both["val"].sources[:9], *both["test"].sources[:9]]
    file = write(tmp_path / "given.tsv", [f"{source}\tautre" for source in own])
    splits = parallel(train, **{given: file}).splits
    other = "val" if given == "test" else "test"
    assert list(splits) == ["train", "val", "test"]
    assert splits[given].targets[:] == ["autre"] * 18
    assert len(splits[other]) == DEFAULTS[f"{other}_sentences"]
    assert not set(splits[other].sources) & {*own, *splits["train"].sources}
    assert len(splits["train"]) + len(splits[other]) == len(PAIRS)


def test_a_file_without_a_header_has_the_columns_of_the_training_file(tmp_path: Path) -> None:
    train = write(tmp_path / "train.csv", ["n,fr,en", *(f"1,{target},{source}" for source, target in PAIRS)])
    val = write(tmp_path / "val.csv", ["1,autre,other"])
    found = parallel(train, val=val)
    assert (found.splits["val"].sources[:], found.splits["val"].targets[:]) == (["other"], ["autre"])
    assert found.direction == "en (column en) → fr (column fr)"
    assert {name: count for name, count in found.report.counts.items() if "header" in name} == {"train: header line": 1}


def test_a_table_without_a_header_and_without_its_column_is_refused(tmp_path: Path) -> None:
    train = write(tmp_path / "train.tsv", ["n\ten\tfr", *(f"1\t{source}\t{target}" for source, target in PAIRS)])
    val = write(tmp_path / "val.tsv", ["other\tautre"])
    with pytest.raises(UserError, match=r"val\.tsv has 2 columns and no header, and a file before it has the target"):
        parallel(train, val=val)


def test_a_later_part_without_a_header_has_the_columns_of_the_first(tmp_path: Path) -> None:
    lines = ["fr\ten", *(f"{target}\t{source}" for source, target in PAIRS)]
    parts = [write(tmp_path / f"part{n}.tsv", some) for n, some in enumerate((lines[:20], lines[20:]))]
    assert parallel(parts).fingerprint == parallel(write(tmp_path / "all.tsv", lines)).fingerprint


def test_other_columns_of_the_same_name_are_another_corpus(tmp_path: Path) -> None:
    file = write(
        tmp_path / "a.tsv", ["en\tfr\tfr", *(f"{source}\t{target}\tautre {target}" for source, target in PAIRS)]
    )
    found = [parallel(file, source_column=1, target_column=column).splits["train"].targets[0] for column in (2, 3)]
    assert found[1] == f"autre {found[0]}"


def test_a_file_of_a_byte_order_mark_alone_is_empty(tmp_path: Path) -> None:
    file = tmp_path / "a.tsv"
    file.write_bytes(b"\xef\xbb\xbf")
    for files in (str(file), [str(file), str(file)]):
        assert message_of(partial(parallel, files)).startswith(f"{file} is empty")


@pytest.mark.parametrize("split", ["val", "test"])
def test_a_given_set_without_a_pair_is_refused(split: str, tmp_path: Path) -> None:
    train = write(tmp_path / "train.tsv", ["\t".join(pair) for pair in PAIRS])
    empty = write(tmp_path / "empty.tsv", ["en\tfr"])
    message = message_of(partial(parallel, train, **{split: empty}))
    assert message == f"{empty} has no text for the split {split}; give a file or a split that has some, or none"
    message = message_of(partial(parallel, empty))
    assert message == f"{empty} has no text for the split train; give a file or a split that has some"


def test_an_evaluation_needs_no_training_file(tmp_path: Path) -> None:
    file = write(tmp_path / "new.tsv", ["\t".join(pair) for pair in PAIRS])
    found = parallel(None, test=file)
    assert {name: len(split) for name, split in found.splits.items()} == {"test": 31}
    assert (found.direction, found.report.counts["test: pairs read"]) == ("en (column 1) → fr (column 2)", 31)


@pytest.mark.parametrize(("pairs", "size"), [(3, 1), (29, 2), (50, 5), (12_000, 1000)])
def test_held_out_splits_are_a_tenth_of_a_small_corpus_and_the_table_says_so(
    pairs: int, size: int, tmp_path: Path
) -> None:
    lines = [f"Sentence {n}.\tPhrase {n}." for n in range(pairs)]
    lines += [f"Sentence {n}.\tAutre {n}." for n in range(pairs)]
    found = parallel(write(tmp_path / "a.tsv", lines), val_sentences=None, test_sentences=None)
    assert {name: len(split) for name, split in found.splits.items()} == {
        "train": 2 * (pairs - 2 * size),
        "val": size,
        "test": size,
    }
    share = "" if size == 1000 else f" ({size / pairs:.0%} of the sources)"
    assert found.report.counts[f"val: pairs held out{share}"] == 2 * size
    for name in ("val", "test"):
        for source, references in zip(found.splits[name].sources, found.splits[name].references, strict=True):
            number = source.removeprefix("Sentence ")
            assert references == [f"Phrase {number}", f"Autre {number}"]


def test_a_corpus_that_is_too_small_to_hold_out_is_refused(tmp_path: Path) -> None:
    file = write(tmp_path / "a.tsv", ["a\tb", "c\td"])
    auto = {"val_sentences": None, "test_sentences": None}
    assert message_of(lambda: parallel(file, **auto)) == (
        "2 different source sentences are too few to hold out val and test; give more, or data.val=FILE and "
        "data.test=FILE"
    )
    assert len(parallel(file, test=file, val=file, **auto).splits["train"]) == 2


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


@pytest.mark.parametrize(("val", "test", "left"), [(0, 0, []), (3, 0, ["val"])])
def test_no_sentences_held_out_leaves_no_such_split(tmp_path: Path, val: int, test: int, left: list[str]) -> None:
    file = write(tmp_path / "all.tsv", ["\t".join(pair) for pair in PAIRS])
    splits = parallel(file, val_sentences=val, test_sentences=test).splits
    assert list(splits) == ["train", *left]
    assert len(splits["train"]) == 31 - val


@pytest.mark.parametrize("split", ["val", "test"])
def test_a_given_set_may_have_several_references(split: str, tmp_path: Path) -> None:
    train = write(tmp_path / "train.tsv", ["\t".join(pair) for pair in PAIRS])
    texts = {
        "en": ["a cat", "a dog", "a cat"],
        "0": ["un\u00a0chat", "un chien", "le chat"],
        "1": ["chat", "un chien", ""],
    }
    files = [write(tmp_path / f"set.{end}", lines) for end, lines in texts.items()]
    for given in (files, [files]):
        found = parallel(train, **{split: given}).splits[split]
        assert list(found.sources) == texts["en"]
        assert list(found.targets) == ["un chat", "un chien", "le chat"]
        assert list(found.references) == [["un\u00a0chat", "chat"], ["un chien"] * 2, ["le chat"]]
    assert message_of(partial(parallel, files)).startswith("data.train has a list of 3 files; use [SOURCE,TARGET]")


def test_references_of_another_length_and_broken_ones_are_named(tmp_path: Path) -> None:
    files = [write(tmp_path / name, ["a", "b", "c"]) for name in ("set.en", "set.0")]
    short = write(tmp_path / "set.1", ["a", "b"])
    assert message_of(partial(parallel, None, test=[*files, short])) == (
        f"{files[0]} has 3 lines and {short} has 2; parallel files need the same number, line for line"
    )
    Path(short).write_bytes(b"a\n\xff\nc\n")
    found = parallel(None, test=[*files, short], max_rejected=0.5)
    assert list(found.splits["test"].sources) == ["a", "c"]
    assert found.report.counts["test: lines rejected"] == 1


def test_rows_of_one_source_are_scored_as_other_toolkits_do(tmp_path: Path) -> None:
    file = write(tmp_path / "set.tsv", ["Thank you.\tMerci.", "Hello.\tSalut.", "Thank you.\tJe vous remercie."])
    references = parallel(None, test=file).splits["test"].references
    assert list(references) == [["Merci."], ["Salut."], ["Je vous remercie."]]


def test_a_table_without_a_header_follows_a_table_and_says_so_but_no_parquet(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    headed = write(tmp_path / "head.tsv", ["fr\ten", *(f"Phrase {n}.\tSentence {n}." for n in range(9))])
    plain = write(tmp_path / "plain.tsv", [f"Phrase {n}.\tSentence {n}." for n in range(9, 12)])
    corpus = parallel(headed, val=plain, test_sentences=0)
    assert list(corpus.splits["val"].sources) == [f"Sentence {n}." for n in range(9, 12)]
    (said,) = [line for line in caplog.messages if "has no header" in line]
    assert said.startswith(f"{plain} has no header; as in {headed}, column 2 is read as the source and 1 as the target")
    caplog.clear()
    columns = [[pair[side] for pair in PAIRS] for side in (1, 0)]
    pq.write_table(pa.table(dict(zip(("fr", "en"), columns, strict=True))), tmp_path / "a.parquet")
    usual = write(tmp_path / "usual.tsv", ["Sentence 40.\tPhrase 40."])
    corpus = parallel([str(tmp_path / "a.parquet"), usual], val=usual, test_sentences=0)
    assert list(corpus.splits["val"].sources) == ["Sentence 40."]
    assert "Sentence 40." in list(corpus.splits["train"].sources)
    assert not [line for line in caplog.messages if "has no header" in line]


def test_an_evaluation_says_once_which_columns_of_tables_without_a_header_are_read(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    lines = [f"1,{target},{source}" for source, target in PAIRS]
    plain, headed = write(tmp_path / "plain.csv", lines), write(tmp_path / "headed.csv", ["n,fr,en", *lines])
    found = parallel(None, val=plain, test=[plain, plain]).splits["test"]
    assert (found.sources[0], found.targets[0]) == ("1", PAIRS[0][1])
    said = [line for line in caplog.messages if "has no header" in line]
    assert said == [
        f"{plain} has no header; column 1 is read as the source and 2 as the target (data.source_column and "
        "data.target_column choose others)"
    ]
    caplog.clear()
    parallel(None, test=headed)
    parallel(None, test=plain, source_column=3, target_column=2)
    parallel(plain, val=plain, test=plain)  # the direction that a training prints names the columns
    assert not [line for line in caplog.messages if "has no header" in line]


def test_files_whose_names_are_those_of_the_other_sides_languages_are_warned_of(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    source, target = two_files(tmp_path, ".gz")
    parallel([source, target])
    parallel([target, source], source_language="fr", target_language="en")
    assert not [line for line in caplog.messages if "exchange" in line]
    parallel([[target, source]], source_language="English", target_language="fr_CA")
    assert caplog.messages[-1] == (
        f"{target} is read as the source, English, and {source} as the target, fr_CA; exchange the files, or "
        "data.source_language and data.target_language"
    )


def test_a_pair_of_single_matches_is_compared_too(tmp_path: Path) -> None:
    write(tmp_path / "train.en", ["one"])
    write(tmp_path / "dev.fr", ["deux"])
    message = message_of(lambda: parallel([f"{tmp_path}/*.en", f"{tmp_path}/*.fr"]))
    assert "has no partner among" in message
    write(tmp_path / "train.fr", ["un"])
    whole = {"val_sentences": 0, "test_sentences": 0}
    corpus = parallel([f"{tmp_path}/*.en", f"{tmp_path}/train.fr"], **whole)
    assert corpus.splits["train"].targets[0] == "un"


def test_empty_parts_are_left_out_unless_all_are(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    text = pa.table({"en": pa.array([], pa.string()), "fr": pa.array([], pa.string())})
    pq.write_table(text, tmp_path / "a.parquet")
    pq.write_table(pa.table({"en": ["one"], "fr": ["un"]}), tmp_path / "b.parquet")
    (tmp_path / "a.tsv").write_bytes(b"")
    write(tmp_path / "b.tsv", ["two\tdeux"])
    for compression, ending in (("gzip", "gz"), ("zstd", "zst")):
        for name in ("a", "b"):
            with pa.CompressedOutputStream(f"{tmp_path}/{name}.tsv.{ending}", compression) as stream:
                stream.write((tmp_path / f"{name}.tsv").read_bytes())
        assert (tmp_path / f"a.tsv.{ending}").stat().st_size > 0
    for kind, source in (("parquet", "one"), ("tsv", "two"), ("tsv.gz", "two"), ("tsv.zst", "two")):
        corpus = parallel(f"{tmp_path}/*.{kind}", val_sentences=0, test_sentences=0)
        assert list(corpus.splits["train"].sources) == [source]
        assert (
            f"1 of the 2 files of data.train={tmp_path}/*.{kind} are empty, such as {tmp_path}/a.{kind}" in caplog.text
        )
        (tmp_path / f"b.{kind}").unlink()
        assert f"{tmp_path}/a.{kind}" in message_of(lambda kind=kind: parallel(f"{tmp_path}/*.{kind}"))


def test_a_higher_limit_of_rejected_lines_cleans_nothing_again_and_a_lower_one_is_kept_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = write(tmp_path / "a.tsv", [*("\t".join(pair) for pair in PAIRS), "one column"])
    assert "more than data.max_rejected=0.01" in message_of(lambda: parallel(file))
    with monkeypatch.context() as patched:
        patched.setattr(Cleaning, "normalize", None)  # no chunk is cleaned again
        corpus = parallel(file, max_rejected=0.1)
    assert sum(len(split) for split in corpus.splits.values()) == len(PAIRS)
    assert "1 of 32 lines of train are rejected, more than data.max_rejected=0.01" in message_of(lambda: parallel(file))
    assert not list(Path(DEFAULTS["cache_dir"]).rglob("parts"))


def test_a_prepared_corpus_is_read_where_nothing_can_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = write(tmp_path / "a.tsv", ["\t".join(pair) for pair in PAIRS])
    parallel(file)
    monkeypatch.setattr("seq2seq_attn.data.store.text_store.locked", None)
    assert len(parallel(file).splits["train"]) == 23


def test_references_that_no_translation_can_equal_are_counted(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    decomposed, composed = "e\u0301te\u0301", "été"
    sides = [write(tmp_path / f"test.{n}", lines) for n, lines in enumerate(
        (["a", "b", "c"], [composed, decomposed, "x"], [decomposed, decomposed, "y"])
    )]  # fmt: skip
    train = write(tmp_path / "train.tsv", [f"source {n}\t{decomposed} {n}" for n in range(20)])
    corpus = parallel(train, test=sides, test_sentences=None)
    assert corpus.splits["test"].targets[1] == composed
    warn_of_decomposed(corpus, ["val", "test"])
    assert [line.partition(" are not in Unicode's NFC")[0] for line in caplog.messages] == [
        "3 of 3 references of val",
        "3 of 6 references of test",
    ]
    caplog.clear()
    warn_of_decomposed(parallel(train, test=[sides[0], sides[0]], test_sentences=None), ["test"])
    assert not caplog.messages


@pytest.mark.parametrize("end", [".tsv", ".csv"])
def test_a_pair_of_a_later_chunk_is_counted_without_the_header(
    end: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (pair_source, table_file):
        monkeypatch.setattr(module, "CHUNK_LINES", 4)
    rows = [[f"source {n}", f"target {n}"] for n in range(6)] + [["long", "x" * 10_001]]
    separator = "\t" if end == ".tsv" else ","
    for name, header in (("with", [["en", "fr"]]), ("without", [])):
        file = write(tmp_path / f"{name}{end}", [separator.join(row) for row in header + rows])
        assert message_of(lambda file=file: parallel(None, test=file)).startswith("pair 7 of test")


def test_a_number_of_sentences_of_a_given_split_is_warned_of(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    train = write(tmp_path / "train.tsv", [f"source {n}\ttarget {n}" for n in range(20)])
    val = write(tmp_path / "val.tsv", [f"other {n}\tautre {n}" for n in range(4)])
    splits = parallel(train, val=val, val_sentences=2, test_sentences=3).splits
    assert {name: len(split) for name, split in splits.items()} == {"train": 17, "val": 4, "test": 3}
    assert caplog.messages == [
        "data.val_sentences=2 changes nothing, since val is given and not held out of train; give one of the two"
    ]
