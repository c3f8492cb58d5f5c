"""A corpus without splits, split by source sentence."""

import re
import zipfile
from dataclasses import replace

import pytest

from seq2seq_attn.data import tatoeba
from seq2seq_attn.data.cleaning import Cleaning
from seq2seq_attn.data.corpus import Split
from seq2seq_attn.data.splitting import with_test_set
from seq2seq_attn.data.tatoeba import TatoebaCorpus
from seq2seq_attn.errors import UserError

VERSIONS = 3


@pytest.fixture
def file(tmp_path):
    lines = [f"Sentence {i}.\tPhrase\u202f{i}, version {v}.\tCC-BY #{i}\n" for i in range(53) for v in range(VERSIONS)]
    path = tmp_path / "fra.txt"
    path.write_bytes("".join(lines).encode())
    return path


def load(path, seed=1, val_sentences=5, test_sentences=7, source="en", target="fr", cache_dir="unused", **options):
    corpus = TatoebaCorpus(
        path=None if path is None else str(path),
        source_language=source,
        target_language=target,
        cleaning=Cleaning(),
        val_sentences=val_sentences,
        test_sentences=test_sentences,
        seed=seed,
        cache_dir=str(cache_dir),
        **options,
    )
    return corpus.load()


def test_no_source_is_in_two_splits_and_none_is_lost(file):
    splits = load(file).splits
    assert {name: len(split) for name, split in splits.items()} == {"train": 41 * VERSIONS, "val": 5, "test": 7}
    sources = [set(split.sources) for split in splits.values()]
    assert sum(len(s) for s in sources) == len(set.union(*sources)) == 53


def test_held_out_sources_occur_once_with_all_their_uncleaned_translations(file):
    split = load(file).splits["test"]
    for source, target, references in zip(split.sources, split.targets, split.references, strict=True):
        number = source.removeprefix("Sentence ").removesuffix(".")
        assert target == f"Phrase {number}, version 0."
        assert references == [f"Phrase\u202f{number}, version {v}." for v in range(VERSIONS)]


def test_the_split_is_a_function_of_seed_and_sources_whatever_their_order(file):
    before = load(file)
    assert load(file).fingerprint == before.fingerprint
    assert set(load(file, seed=2).splits["val"].sources) != set(before.splits["val"].sources)
    file.write_bytes(b"\n".join(file.read_bytes().splitlines()[::-1]))
    assert load(file).splits["val"].sources == before.splits["val"].sources


def test_sources_that_only_cleaning_makes_equal_stay_together(tmp_path):
    path = tmp_path / "fra.txt"
    path.write_bytes(
        "".join(f"a{blank}{i}\tb {v}\n" for i in range(11) for v, blank in enumerate(" \u00a0\u2009")).encode()
    )
    splits = load(path, val_sentences=2, test_sentences=2).splits
    assert [len(r) for r in splits["val"].references] == [3, 3]
    assert not set(splits["train"].sources) & set(splits["val"].sources)


def test_the_direction_can_be_reversed(file):
    splits = load(file, source="fr", target="en").splits
    assert len(splits["train"]) == 53 * VERSIONS - 12
    assert splits["val"].sources[0].startswith("Phrase ")


def test_without_a_path_it_is_downloaded_once_and_unpacked(file, tmp_path, monkeypatch):
    fetched = []

    def fetch(url, archive, instead):
        fetched.append(url)
        archive.parent.mkdir(parents=True, exist_ok=True)
        with zipfile.ZipFile(archive, "w") as zipped:
            zipped.writestr("fra.txt", file.read_bytes())
        return archive

    monkeypatch.setattr(tatoeba, "fetch", fetch)
    found = [load(None, cache_dir=tmp_path / "cache").fingerprint for _ in range(2)]
    assert found == [load(file).fingerprint] * 2
    assert fetched == ["https://www.manythings.org/anki/fra-eng.zip"]


def test_a_download_that_is_not_a_zip_file_is_deleted_and_refused(tmp_path, monkeypatch):
    def fetch(url, archive, instead):
        archive.parent.mkdir(parents=True, exist_ok=True)
        archive.write_bytes(b"<html>busy</html>")
        return archive

    monkeypatch.setattr(tatoeba, "fetch", fetch)
    sentence = (
        "https://www.manythings.org/anki/fra-eng.zip is not a zip file with fra.txt in it (File is not a zip file); "
        "try again, or set data.path=FILE"
    )
    with pytest.raises(UserError, match=f"^{re.escape(sentence)}$"):
        load(None, cache_dir=tmp_path)
    assert not list((tmp_path / "tatoeba").iterdir())


@pytest.mark.parametrize(("val", "test"), [(40, 13), (53, 0), (7, -1)])
def test_splits_that_leave_nothing_to_train_on_are_refused(file, val, test):
    asked = f"data.val_sentences={val}" + (f" and data.test_sentences={test}" if test else "")
    sentence = (
        f"{asked} do not fit a corpus of 53 different source sentences: each must be at least 1 and leave some to "
        f"train on; use data.val_sentences=2{' data.test_sentences=2' if test else ''}"
    )
    with pytest.raises(UserError, match=f"^{re.escape(sentence)}$"):
        load(file, val_sentences=val, test_sentences=test)


@pytest.mark.parametrize(("val", "test", "left"), [(0, 0, []), (5, 0, ["val"]), (0, 7, ["test"])])
def test_no_sentences_held_out_leaves_no_such_split(file, val, test, left):
    splits = load(file, val_sentences=val, test_sentences=test).splits
    assert list(splits) == ["train", *left]
    assert len(splits["train"]) == (53 - val - test) * VERSIONS


def test_only_the_first_pairs_are_read(file):
    train = load(file, val_sentences=0, test_sentences=0, num_pairs=4).splits["train"]
    assert train.sources == ["Sentence 0."] * 3 + ["Sentence 1."]
    assert train.targets[-1] == "Phrase 1, version 0."


def test_training_pairs_are_the_test_set_where_none_is_held_out(file, caplog):
    loaded = load(file, val_sentences=0, test_sentences=0)
    with_one = with_test_set(loaded)
    train, scored = (with_one.splits[name] for name in ("train", "test_train"))
    assert (scored.sources, scored.targets, scored.references) == (train.sources, train.targets, train.references)
    assert caplog.messages[0].startswith("No pairs are held out for a test, so 159 training pairs are scored, as test_")
    many = Split(*([str(row) for row in range(2500)] for _ in range(2)), [[""]] * 2500)
    spread = with_test_set(replace(loaded, splits={"train": many})).splits["test_train"]
    assert spread.sources == [str(row * 5 // 2) for row in range(1000)]
    with_val = load(file, val_sentences=5, test_sentences=7)
    assert with_test_set(with_val) is with_val
