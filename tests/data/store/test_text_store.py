"""A corpus prepared on disk holds what the definitions say, whatever the sizes of chunks, shards and partitions."""

from __future__ import annotations

import hashlib
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from data.store.pair_list import PairList

from seq2seq_attn.data.cleaning import Cleaning
from seq2seq_attn.data.corpus import LoadedCorpus
from seq2seq_attn.data.store import duplicates, pair_source, part, prepare_text, shard
from seq2seq_attn.data.store.held_out import HeldOut
from seq2seq_attn.data.store.pair_source import LineAlignedFiles
from seq2seq_attn.data.store.text_store import stored_corpus
from seq2seq_attn.errors import UserError

Pairs = list[tuple[str, str]]


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Chunks, blocks, shards and partitions of a few rows."""
    monkeypatch.setattr(pair_source, "CHUNK_LINES", 17)
    monkeypatch.setattr(shard, "BLOCK_ROWS", 5)
    monkeypatch.setattr(shard, "SHARD_ROWS", 60)
    monkeypatch.setattr(duplicates, "PARTITION_ROWS", 40)


def dirty(number: int) -> Pairs:
    """Pairs with empty sides, other blanks, duplicates, and sources that occur with several targets."""
    draw = random.Random(1)
    pairs = [(f"the cat  {draw.randint(0, 150)}", f"le\u00a0chat {draw.randint(0, 3)}") for _ in range(number)]
    return [("", "x") if i % 31 == 0 else ("a " * 200, "b") if i % 37 == 0 else pair for i, pair in enumerate(pairs)]


def written(folder: Path, name: str, pairs: Pairs) -> LineAlignedFiles:
    files = folder / f"{name}.en", folder / f"{name}.fr"
    for file, side in zip(files, zip(*pairs, strict=True), strict=True):
        file.write_bytes("".join(f"{text}\n" for text in side).encode())
    return LineAlignedFiles(*files)


def clean(text: str) -> str:
    return " ".join(text.split())


def expected(pairs: Pairs, val: int, test: int, seed: int) -> dict[str, Any]:
    """The definition: clean, keep the first of equal pairs, hold out the sources of the smallest SHA-256."""
    kept = {}
    for source, target in pairs:
        pair = clean(source), clean(target)
        if all(pair) and max(len(text.split()) for text in pair) <= 100:
            kept.setdefault(pair, target)
    versions: dict[str, Any] = {}
    for (source, target), reference in kept.items():
        versions.setdefault(source, []).append((target, reference))
    order = sorted(versions, key=lambda source: hashlib.sha256(f"{seed}\t{source}".encode()).digest())
    held = {"val": order[:val], "test": order[val : val + test]}
    rows = {
        name: [(source, versions[source][0][0], list(dict.fromkeys(r for _, r in versions[source]))) for source in some]
        for name, some in held.items()
    }
    train = [(*pair, [reference]) for pair, reference in kept.items() if pair[0] not in order[: val + test]]
    return {"train": train, **rows}


def content(corpus: LoadedCorpus) -> dict[str, Any]:
    return {
        name: list(zip(split.sources, split.targets, split.references, strict=True))
        for name, split in corpus.splits.items()
    }


def stored(source: Any, cache: Path, **options: Any) -> LoadedCorpus:
    options = {"held_out": HeldOut({"val": 7, "test": 9}, 3), "languages": ("en", "fr"), **options}
    files = source if isinstance(source, dict) else {"train": [source]}
    return stored_corpus(files, Cleaning(), cache_dir=cache, **options)


def test_it_holds_what_the_definition_says_in_order(tmp_path: Path) -> None:
    pairs = dirty(400)
    corpus = stored(written(tmp_path, "train", pairs), tmp_path / "cache")
    assert content(corpus) == expected(pairs, 7, 9, 3)
    assert corpus.report.counts["all: pairs read"] == 400
    kept = sum(len(rows) for rows in content(corpus).values())
    assert kept < 400 - corpus.report.counts["all: dropped, duplicate"]


@pytest.mark.usefixtures("small")
def test_many_shards_hold_the_same_pairs_in_blocks_from_everywhere(tmp_path: Path) -> None:
    pairs = dirty(400)
    corpus = stored(written(tmp_path, "train", pairs), tmp_path / "cache")
    found, whole = content(corpus), expected(pairs, 7, 9, 3)
    assert sorted(found["train"]) == sorted(whole["train"])
    assert found["train"] != whole["train"]
    assert (found["val"], found["test"]) == (whole["val"], whole["test"])
    shards = corpus.splits["train"].shards
    assert shards is not None
    assert len(shards) > 2
    assert max(shards) <= 66
    rows = [whole["train"].index(row) for row in found["train"][: shards[0]]]
    assert np.ptp(rows) > len(whole["train"]) / 2


@pytest.mark.usefixtures("small")
def test_texts_are_read_by_row_by_slice_and_one_after_another(tmp_path: Path) -> None:
    split = stored(written(tmp_path, "train", dirty(400)), tmp_path / "cache").splits["train"]
    texts = list(split.sources)
    assert [split.sources[i] for i in range(len(split))] == texts
    assert split.sources[50:190] == texts[50:190]
    assert split.sources[-1] == texts[-1]
    assert split.sources[3:150:7] == texts[3:150:7]
    assert [split.references[i] for i in range(100)] == list(split.references)[:100]


def test_given_sets_keep_all_rows_each_with_its_own_reference(tmp_path: Path) -> None:
    val = [("a cat", "un chat"), ("a dog", "un chien"), ("a cat", "le\u00a0chat"), ("", "x")]
    files = {"train": [PairList([("a dog", "le chien"), ("one", "un")])], "val": [PairList(val)]}
    corpus = stored(files, tmp_path, held_out=HeldOut({}, 1))
    assert content(corpus)["val"] == [
        ("a cat", "un chat", ["un chat"]),
        ("a dog", "un chien", ["un chien"]),
        ("a cat", "le chat", ["le\u00a0chat"]),
        ("", "x", ["x"]),
    ]
    assert corpus.report.counts["val: sources also in train"] == 1


def test_a_later_start_reads_nothing_and_another_content_or_cleaning_is_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pairs = dirty(100)
    source = written(tmp_path, "train", pairs)
    first = stored(source, tmp_path / "cache")
    prepared: list[int] = []
    prepare = prepare_text.prepare_text
    monkeypatch.setattr(
        "seq2seq_attn.data.store.text_store.prepare_text", lambda *a, **k: prepared.append(1) or prepare(*a, **k)
    )
    assert content(stored(source, tmp_path / "cache")) == content(first)
    assert not prepared
    again = written(tmp_path, "train", [*pairs[:50], ("the end", "la fin"), *pairs[51:]])
    changed = stored(again, tmp_path / "cache")
    assert prepared == [1]
    assert changed.fingerprint != first.fingerprint
    stored(again, tmp_path / "cache", held_out=HeldOut({"val": 7, "test": 9}, 4))
    assert prepared == [1, 1]


@pytest.mark.slow
@pytest.mark.usefixtures("small")
def test_the_content_does_not_depend_on_the_number_of_processes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("seq2seq_attn.data.store.text_store.SMALL", 0)
    source = written(tmp_path, "train", dirty(300))
    alone, several = (stored(source, tmp_path / str(n), num_processes=n) for n in (1, 2))
    assert content(alone) == content(several)
    assert alone.fingerprint == several.fingerprint


@pytest.mark.usefixtures("small")
def test_a_preparation_that_was_killed_goes_on_with_its_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = written(tmp_path, "train", dirty(300))
    whole = stored(source, tmp_path / "whole")
    write, count = shard.replacing, iter(range(1000))

    def dying(file: Path) -> Any:
        if next(count) in (6, 22):  # a part, and a shard
            raise KeyboardInterrupt
        return write(file)

    for module in (part, shard):
        monkeypatch.setattr(module, "replacing", dying)
    for _ in range(2):
        with pytest.raises(KeyboardInterrupt):
            stored(source, tmp_path / "killed")
    assert content(stored(source, tmp_path / "killed")) == content(whole)
    # 18 parts, four shards and twice the two held-out sets: parts and shards that were there were not written again
    assert next(count) == 18 + 4 + 2 * 2 + 2


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("size", [0, 500])
def test_files_that_were_cut_are_written_again_and_temporaries_removed(tmp_path: Path, size: int) -> None:
    source = written(tmp_path, "train", dirty(300))
    first = stored(source, tmp_path / "cache")
    (folder,) = (path for path in (tmp_path / "cache").iterdir() if path.is_dir())
    whole = content(first)
    (folder / "corpus.json").unlink()
    shards = sorted((folder / "train").glob("*.arrow"))
    part = folder / "parts" / "train" / "000001.arrow"
    part.parent.mkdir(parents=True)
    for file in (shards[1], part):
        file.write_bytes(shards[1].read_bytes()[:size])
    left, mine = folder / "train" / "00000.arrow.41.0123abcd", folder / "train" / "00000.arrow.old"
    left.write_bytes(b"half")
    mine.write_bytes(b"mine")
    again = stored(source, tmp_path / "cache")
    assert (content(again), again.fingerprint) == (whole, first.fingerprint)
    assert not left.exists()
    assert mine.read_bytes() == b"mine"


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("verify", [False, True])
def test_a_file_that_changes_while_it_is_prepared_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, verify: bool
) -> None:
    source = written(tmp_path, "train", dirty(300))
    before = source.files[1].read_bytes()
    prepare = prepare_text.prepare_text

    def meanwhile(*given: Any, **options: Any) -> Any:
        source.files[1].write_bytes(before.replace(b"chat", b"chien"))
        return prepare(*given, **options)

    monkeypatch.setattr("seq2seq_attn.data.store.text_store.prepare_text", meanwhile)
    with pytest.raises(UserError, match=r"train.en or .*train.fr or its modification time changed while the corpus"):
        stored(source, tmp_path / "cache", verify=verify)
    assert not [path for path in (tmp_path / "cache").iterdir() if path.is_dir()]
    monkeypatch.undo()
    source.files[1].write_bytes(before)
    assert all("chat" in target for _, target, _ in content(stored(source, tmp_path / "cache"))["test"])


def test_broken_lines_are_rejected_listed_and_counted_up_to_the_limit(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    source = written(tmp_path, "train", dirty(400))
    lines = source.files[0].read_bytes().split(b"\n")
    lines[40], lines[299] = b"caf\xe9", b"a NUL \0"
    source.files[0].write_bytes(b"\n".join(lines))
    corpus = stored(source, tmp_path / "cache")
    assert corpus.report.counts["all: pairs read"] == 398
    (list_file,) = (tmp_path / "cache").glob("*/rejected_train.tsv")
    name = source.files[0]
    assert list_file.read_text() == f"{name}\t41\tnot UTF-8\n{name}\t300\ta NUL byte\n"
    assert "2 lines of train are rejected" in caplog.text
    with pytest.raises(UserError, match=r"train.en, line 41: not UTF-8; 2 of 400 lines .* data.max_rejected=0.004"):
        stored(source, tmp_path / "cache", max_rejected=0.004)
    list_file.unlink()
    caplog.clear()
    stored(source, tmp_path / "cache")
    assert f"2 lines of train are rejected (the list of them, {list_file}, is gone)" in caplog.text


def test_files_of_unequal_length_are_refused_with_both_numbers(tmp_path: Path) -> None:
    source = written(tmp_path, "train", dirty(50))
    source.files[1].write_bytes(source.files[1].read_bytes() + b"one more\n")
    with pytest.raises(UserError, match=r"train.en has 50 lines and .*train.fr has 51; parallel files need"):
        stored(source, tmp_path / "cache")


def test_chunks_end_at_a_number_of_bytes_wherever_the_files_are_read_and_the_sides_stay_in_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pairs = [(f"{n} " + "x" * (n * 7 % 60), f"{n} " + "y" * (n * 11 % 290)) for n in range(200)]
    source = written(tmp_path, "train", pairs)
    whole = stored(source, tmp_path / "whole")
    monkeypatch.setattr(pair_source, "CHUNK_LINES", 17)
    monkeypatch.setattr(pair_source, "CHUNK_BYTES", 700)
    found = []
    for size in (5, 64, 1 << 22):
        monkeypatch.setattr(pair_source, "BUFFER", size)
        found.append(list(source.chunks()))
    chunks = found[0]
    for other in found[1:]:
        assert [(chunk.first, chunk.content) for chunk in other] == [(chunk.first, chunk.content) for chunk in chunks]
    sizes = [sum(map(len, chunk.content)) for chunk in chunks]
    assert 700 < max(sizes) < 700 + 360
    assert len(sizes) > 40
    parsed = [source.parse(chunk).pairs for chunk in chunks]
    assert [pair for some in parsed for pair in some] == pairs
    assert [chunk.first for chunk in chunks] == np.cumsum([1, *map(len, parsed[:-1])]).tolist()
    assert stored(source, tmp_path / "cut").fingerprint == whole.fingerprint
    source.files[1].write_bytes(source.files[1].read_bytes() + b"one more\n")
    with pytest.raises(UserError, match=r"train.en has 200 lines and .*train.fr has 201; parallel files need"):
        stored(source, tmp_path / "cache")


@pytest.mark.parametrize("ending", ["\n", "\r\n"])
@pytest.mark.parametrize("last", [True, False])
def test_lines_end_at_lf_or_cr_lf_and_a_byte_order_mark_is_no_text(tmp_path: Path, ending: str, last: bool) -> None:
    files = tmp_path / "a.en", tmp_path / "a.fr"
    for file in files:
        file.write_bytes(
            b"\xef\xbb\xbf" + ending.join(f"line {i}" for i in range(50)).encode() + ending.encode() * last
        )
    corpus = stored(LineAlignedFiles(*files), tmp_path / "cache")
    assert sorted(text for split in corpus.splits.values() for text in split.sources) == sorted(
        f"line {i}" for i in range(50)
    )


@pytest.mark.usefixtures("small")
def test_a_shard_that_is_gone_is_written_again_and_a_damaged_one_is_named(tmp_path: Path) -> None:
    source = written(tmp_path, "train", dirty(300))
    whole = content(stored(source, tmp_path / "cache"))
    shard = sorted((tmp_path / "cache").glob("*/train/*.arrow"))[1]
    shard.unlink()
    corpus = stored(source, tmp_path / "cache")
    assert content(corpus) == whole
    shard.write_bytes(shard.read_bytes()[:-100])
    with pytest.raises(UserError, match=rf"^{shard}, a shard of the prepared corpus, is missing or damaged; delete "):
        list(corpus.splits["train"].sources)


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("cut", [b"", b'{"shards": {', b'{"counts": {}}', b"[]"])
def test_a_corpus_whose_record_is_cut_is_prepared_again(cut: bytes, tmp_path: Path) -> None:
    source = written(tmp_path, "train", dirty(60))
    whole = content(stored(source, tmp_path / "cache"))
    (record,) = (tmp_path / "cache").glob("*/corpus.json")
    record.write_bytes(cut)
    assert content(stored(source, tmp_path / "cache")) == whole


@pytest.mark.usefixtures("small")
def test_targets_that_are_also_in_train_are_said_of_one_sided_text(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    train = [(f"source {n}", f"text {n}") for n in range(200)]
    val = [("one", "text 3"), ("two", "text 3"), ("three", "text 190"), ("four", "another text")]
    corpus = stored({"train": [PairList(train)], "val": [PairList(val)]}, tmp_path, held_out=HeldOut({}, 1))
    assert len(corpus.splits["train"].shards or ()) > 2
    assert not caplog.messages
    corpus.one_sided()
    assert caplog.messages == ["3 of 4 texts of val are also in train, so its score is too optimistic"]


def test_the_training_split_has_a_fingerprint_of_its_own(tmp_path: Path) -> None:
    def corpus(train: Pairs, val: Pairs) -> LoadedCorpus:
        return stored({"train": [PairList(train)], "val": [PairList(val)]}, tmp_path, held_out=HeldOut({}, 1))

    one, other_val, other_order = (corpus(dirty(100)[::step], dirty(size)) for step, size in ((1, 5), (1, 6), (-1, 5)))
    assert one.train_fingerprint == other_val.train_fingerprint != other_order.train_fingerprint
    assert len({one.fingerprint, other_val.fingerprint, other_order.fingerprint}) == 3
