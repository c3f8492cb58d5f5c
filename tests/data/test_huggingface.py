"""Data sets in the forms of Hugging Face: folders of Parquet files, Arrow streams of `save_to_disk`, and the hub."""

from __future__ import annotations

import gzip
import json
import pickle
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from seq2seq_attn.data import columnar_file
from seq2seq_attn.data.cleaning import Cleaning
from seq2seq_attn.data.corpus import LoadedCorpus
from seq2seq_attn.data.huggingface import HuggingfaceCorpus, data_set_files, hub_files
from seq2seq_attn.data.pair_formats import pair_file
from seq2seq_attn.data.parallel import ParallelCorpus
from seq2seq_attn.errors import UserError

PAIRS = [(f"Sentence {n}.", f"Phrase {n}.") for n in range(40)]
COLUMNS: dict[str, Any] = {
    "source_language": "en", "target_language": "fr", "source_column": None, "target_column": None,
    "val_sentences": 3, "test_sentences": 5, "seed": 1,
}  # fmt: skip
SPLITS = {"train_split": "train", "val_split": "validation", "test_split": "test"}


def table(pairs: list[tuple[str, str]]) -> pa.Table:
    """A column of structs, as WMT14 has it."""
    return pa.table({"translation": [{"en": source, "fr": target} for source, target in pairs]})


def huggingface(folder: Path, cache: Path, name: str | None = None, **changed: Any) -> LoadedCorpus:
    options = COLUMNS | SPLITS | {"cache_dir": str(cache)} | changed
    return HuggingfaceCorpus(path=str(folder), name=name, cleaning=Cleaning(), **options).load()


def content(corpus: LoadedCorpus) -> dict[str, list[tuple[str, str]]]:
    return {name: list(zip(split.sources, split.targets, strict=True)) for name, split in corpus.splits.items()}


def parquet_folder(folder: Path) -> Path:
    """The layout of a data set of the hub: a folder for each configuration, splits in shards."""
    inside = folder / "wmt" / "fr-en"
    inside.mkdir(parents=True)
    (folder / "wmt" / "README.md").write_text("a card")
    for n, part in enumerate((PAIRS[:11], PAIRS[11:30])):
        pq.write_table(table(part), inside / f"train-{n:05d}-of-00002.parquet")
    pq.write_table(table(PAIRS[30:35]), inside / "validation-00000-of-00001.parquet")
    pq.write_table(table(PAIRS[35:]), inside / "test-00000-of-00001.parquet")
    return folder / "wmt"


def saved_folder(folder: Path) -> Path:
    """What `DatasetDict.save_to_disk` writes: Arrow streams of small batches, and their order in `state.json`."""
    folder.mkdir()
    (folder / "dataset_dict.json").write_text(json.dumps({"splits": ["train", "validation", "test"]}))
    for split, parts in (("train", (PAIRS[:11], PAIRS[11:30])), ("validation", [PAIRS[30:35]]), ("test", [PAIRS[35:]])):
        (folder / split).mkdir()
        files = [f"data-{n:05d}-of-{len(parts):05d}.arrow" for n in range(len(parts))]
        for file, part in zip(files, parts, strict=True):
            with pa.ipc.new_stream(str(folder / split / file), table(part).schema) as writer:
                writer.write_table(table(part), max_chunksize=3)
        (folder / split / "state.json").write_text(json.dumps({"_data_files": [{"filename": name} for name in files]}))
    return folder


EXPECTED = {"train": PAIRS[:30], "val": PAIRS[30:35], "test": PAIRS[35:]}


def test_a_folder_of_parquet_files_has_its_splits(tmp_path: Path) -> None:
    found = huggingface(parquet_folder(tmp_path), tmp_path / "cache", "fr-en")
    assert content(found) == EXPECTED
    assert found.direction == ("en (column translation.en and 1 more) → fr (column translation.fr and 1 more)")
    chosen = {"source_language": "fr", "target_language": "en"}
    assert content(huggingface(tmp_path / "wmt", tmp_path / "cache", "fr-en", **chosen))["val"][0] == PAIRS[30][::-1]


def test_a_saved_data_set_has_its_splits(tmp_path: Path) -> None:
    folder = saved_folder(tmp_path / "saved")
    assert content(huggingface(folder, tmp_path / "cache")) == EXPECTED
    one = content(huggingface(folder / "validation", tmp_path / "cache", val_sentences=1, test_sentences=1))
    assert sorted(pair for pairs in one.values() for pair in pairs) == PAIRS[30:35]


def test_a_split_that_is_missing_is_held_out_and_one_that_is_not_read_is_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = parquet_folder(tmp_path) / "fr-en"
    (folder / "validation-00000-of-00001.parquet").rename(folder / "dev.parquet")
    with caplog.at_level("INFO"):
        found = huggingface(folder, tmp_path / "cache")
    assert {name: len(split) for name, split in found.splits.items()} == {"train": 27, "val": 3, "test": 5}
    assert "1 files of" in caplog.text
    assert "are not read, such as dev.parquet; set data.val_split=" in caplog.text
    assert "validation: held out of train" in caplog.text
    (folder / "validation.parquet").write_bytes((folder / "dev.parquet").read_bytes())
    caplog.clear()
    huggingface(folder, tmp_path / "cache", val_split="valid", test_sentences=None)
    assert caplog.records[-1].levelname == "WARNING"
    assert caplog.messages[-1] == (
        f"{folder} has the splits train, test, validation; valid: held out of train, and validation not read"
    )
    (folder / "validation.parquet").unlink()
    named = huggingface(folder, tmp_path / "cache", val_split="dev", test_split=None)
    assert {name: len(split) for name, split in named.splits.items()} == {"train": 25, "val": 5, "test": 5}
    assert content(named)["val"] == PAIRS[30:35]


def test_files_without_the_name_of_a_split_are_the_training_split(tmp_path: Path) -> None:
    for n in range(2):
        pq.write_table(table(PAIRS[20 * n : 20 * n + 20]), tmp_path / f"part{n}.parquet")
    (tmp_path / "dataset_info.json").write_text('{"en": "describes", "fr": "the data set"}')
    folder, file = data_set_files(str(tmp_path), None), data_set_files(str(tmp_path / "part1.parquet"), None)
    assert folder == {"train": [str(tmp_path / f"part{n}.parquet") for n in range(2)]}
    assert file == {"train": [str(tmp_path / "part1.parquet")]}


def test_a_folder_named_like_a_file_of_pairs_is_that_of_its_files(tmp_path: Path) -> None:
    for split in ("train", "test"):
        (tmp_path / f"{split}.parquet").mkdir()
        (tmp_path / f"{split}.parquet" / "part-00000.snappy.parquet").write_bytes(b"as Spark writes them")
    assert data_set_files(str(tmp_path), None) == {
        split: [str(tmp_path / f"{split}.parquet" / "part-00000.snappy.parquet")] for split in ("train", "test")
    }


def test_empty_parts_and_hidden_files_of_a_folder_are_left_out(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = parquet_folder(tmp_path) / "fr-en"
    pq.write_table(table(PAIRS[:1]).slice(0, 0), folder / "train-00002.parquet")
    (folder / "train-00003.parquet").write_bytes(b"")
    (folder / "train-00004.tsv.gz").write_bytes(gzip.compress(b""))
    (folder / ".ipynb_checkpoints").mkdir()
    for name in (".ipynb_checkpoints/train-00000-checkpoint.csv", ".train.tsv"):
        (folder / name).write_text("hidden\tcaché\n", encoding="utf-8")
    assert content(huggingface(folder, tmp_path / "cache")) == EXPECTED
    assert f"3 of the 5 files of a split of {folder} are empty, such as {folder / 'train-00002.parquet'}" in caplog.text


def test_empty_parts_of_a_saved_data_set_are_left_out(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    train = saved_folder(tmp_path / "saved") / "train"
    names = [file.name for file in sorted(train.glob("*.arrow"))]
    no_rows = table(PAIRS[:1]).slice(0, 0)
    for name, kind in (("stream.arrow", pa.ipc.new_stream), ("file.arrow", pa.ipc.new_file)):
        with kind(str(train / name), no_rows.schema) as writer:
            writer.write_table(no_rows)
    named = [{"filename": name} for name in ("stream.arrow", *names, "file.arrow")]
    (train / "state.json").write_text(json.dumps({"_data_files": named}))
    assert content(huggingface(tmp_path / "saved", tmp_path / "cache")) == EXPECTED
    assert f"2 of the 4 files of {train} are empty, such as {train / 'stream.arrow'}" in caplog.text


def test_an_evaluation_reads_the_test_split_alone(tmp_path: Path) -> None:
    found = huggingface(parquet_folder(tmp_path), tmp_path / "cache", "fr-en", train_split=None, val_split=None)
    assert content(found) == {"test": PAIRS[35:]}


@pytest.mark.parametrize("kind", ["parquet", "file", "stream"])
def test_a_chunk_is_as_large_as_its_rows_and_in_order(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A slice of a large batch pickles as the whole batch; thousands of small batches would be as many parts."""
    monkeypatch.setattr(columnar_file, "CHUNK_LINES", 16)
    file = tmp_path / f"a.{'parquet' if kind == 'parquet' else 'arrow'}"
    pairs = [(f"{n} " + "x" * 500, f"{n} " + "y" * 500) for n in range(100)]
    if kind == "parquet":
        pq.write_table(table(pairs), file)
    else:
        make = pa.ipc.new_file if kind == "file" else pa.ipc.new_stream
        with make(str(file), table(pairs).schema) as writer:
            writer.write_table(table(pairs[:60]))
            writer.write_table(table(pairs[60:]), max_chunksize=3)
    source = pair_file(file, (None, None), ("en", "fr"))
    chunks = list(source.chunks())
    assert [chunk.first for chunk in chunks] == [1, 17, 33, 49, 65, 81, 97]
    assert max(len(pickle.dumps(chunk)) for chunk in chunks) < 16 * 1000 * 1.5
    assert [pair for chunk in chunks for pair in source.parse(chunk).pairs] == pairs
    assert 0 < chunks[0].read <= chunks[-1].read <= source.size


def test_rows_without_text_are_rejected_with_their_number(tmp_path: Path) -> None:
    file = tmp_path / "a.arrow"
    some = pa.table({"en": ["one", None, "three"], "fr": ["un", "deux", "a\0b"]})
    with pa.ipc.new_file(str(file), some.schema) as writer:
        writer.write_table(some)
    source = pair_file(file, (None, None), ("en", "fr"))
    parsed = [source.parse(chunk) for chunk in source.chunks()]
    assert parsed[0].pairs == [("one", "un")]
    assert parsed[0].rejected == [
        (str(file), 2, "no text in the column 'en'"),
        (str(file), 3, "a NUL byte in the column 'fr'"),
    ]


def message_of(read: Any) -> str:
    with pytest.raises(UserError) as refused:
        read()
    return str(refused.value)


def test_what_is_not_there_is_one_sentence(tmp_path: Path) -> None:
    folder, cache = parquet_folder(tmp_path), tmp_path / "cache"
    refused = partial(huggingface, folder, cache)
    assert message_of(partial(refused, "de-en")) == (
        f"{folder / 'de-en'} is no folder (folders beside it: fr-en); check data.name"
    )
    assert message_of(partial(refused, train_split="learn")) == (
        f"{folder} has no split 'learn' (splits: validation, test, train); set data.train_split"
    )
    assert message_of(lambda: huggingface(tmp_path / "none", cache)).endswith(
        "none does not exist; give a folder, a file or the name of a data set of the hub"
    )
    (tmp_path / "empty").mkdir()
    assert message_of(lambda: huggingface(tmp_path / "empty", cache)) == (
        f"{tmp_path / 'empty'} has no .parquet, .arrow, .jsonl, .csv or .tsv file; check data.path and data.name"
    )
    (tmp_path / "pairs.txt").write_text("one\tun\n")
    assert message_of(lambda: huggingface(tmp_path / "pairs.txt", cache)) == (
        f"data.path={tmp_path / 'pairs.txt'} does not end in .parquet, .arrow, .jsonl, .csv or .tsv; rename it, or use "
        "data=parallel data.train=FILE"
    )
    (tmp_path / "pairs.tsv").write_text("one\tun\n")
    assert message_of(lambda: huggingface(tmp_path / "pairs.tsv", cache, "fr-en")) == (
        f"data.name=fr-en chooses a part of a data set, and data.path={tmp_path / 'pairs.tsv'} is a file; leave it out"
    )
    (tmp_path / "broken.arrow").write_bytes(b"no Arrow file")
    assert message_of(lambda: huggingface(tmp_path / "broken.arrow", cache)).startswith(
        f"{tmp_path / 'broken.arrow'} cannot be read ("
    )


def test_a_name_of_the_hub_without_the_package_names_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "datasets", None)
    assert message_of(lambda: data_set_files("wmt/wmt14", "fr-en")) == (
        "data.path=wmt/wmt14 is no file or folder; a data set of the hub needs the package datasets: pip install "
        "'seq2seq_attn[hub]'"
    )


def test_what_the_package_datasets_writes_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    datasets = pytest.importorskip("datasets")
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "hub")
    datasets.disable_progress_bars()
    folder = parquet_folder(tmp_path) / "fr-en"
    loaded = hub_files(str(folder), None)  # as by a name, but without the network
    assert {Path(file).suffix for files in loaded.values() for file in files} == {".arrow"}
    files = {"val" if split == "validation" else split: files for split, files in loaded.items()}
    options = COLUMNS | {"cache_dir": str(tmp_path / "cache")}
    assert content(ParallelCorpus(**files, cleaning=Cleaning(), **options).load()) == EXPECTED
    saved = datasets.load_dataset(str(folder))
    saved["train"] = saved["train"].select(range(29, -1, -1))
    saved.save_to_disk(str(tmp_path / "saved"), num_shards={"train": 3, "validation": 1, "test": 1})
    assert content(huggingface(tmp_path / "saved", tmp_path / "cache")) == EXPECTED | {"train": PAIRS[29::-1]}
    assert message_of(lambda: hub_files(str(folder), "no-such-name")).endswith(
        "check data.path, data.name and the network"
    )


def test_names_of_splits_may_have_several_words_and_other_splits_are_not_trained_on(tmp_path: Path) -> None:
    for name in ("a-train", "a-test", "a-test_2017"):
        (tmp_path / f"{name}.tsv").write_text("a\tb\n")
    files = data_set_files(str(tmp_path), None, ("train", "validation", "test_2017"))
    assert {split: [Path(file).name for file in found] for split, found in files.items()} == {
        "train": ["a-train.tsv"],
        "test_2017": ["a-test_2017.tsv"],
        "test": ["a-test.tsv"],
    }
    (tmp_path / "a-train.tsv").rename(tmp_path / "pairs.tsv")
    assert all("test" not in file for file in data_set_files(str(tmp_path), None, ("train",)).get("train", []))


def test_the_innermost_name_of_a_split_counts_and_two_at_once_are_refused(tmp_path: Path) -> None:
    folder = tmp_path / "splits_train_test"
    folder.mkdir()
    for name in ("train", "test"):
        (folder / f"{name}.tsv").write_text(f"of {name}\tx\n", encoding="utf-8")
    (tmp_path / "validation").mkdir()
    (tmp_path / "validation" / "part-0.tsv").write_text("of val\tx\n", encoding="utf-8")
    assert {name: [path for path, _ in pairs] for name, pairs in content(huggingface(tmp_path, tmp_path)).items()} == {
        "train": ["of train"], "val": ["of val"], "test": ["of test"],
    }  # fmt: skip
    (folder / "more.tsv").write_text("a\tx\n", encoding="utf-8")
    message = message_of(lambda: huggingface(tmp_path, tmp_path))
    assert message.startswith("splits_train_test/more.tsv: splits_train_test names the splits test and train; rename")
