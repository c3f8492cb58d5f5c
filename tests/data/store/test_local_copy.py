"""Copies of prepared data on a disk of the node: complete, made once, and never over a file of anyone else."""

from __future__ import annotations

import errno
import shutil
from collections import namedtuple
from pathlib import Path
from typing import Any

import pytest
from data.store.pair_list import PairList

from seq2seq_attn.data.cleaning import Cleaning
from seq2seq_attn.data.data_module import TranslationDataModule
from seq2seq_attn.data.store import local_copy as module
from seq2seq_attn.data.store.held_out import HeldOut
from seq2seq_attn.data.store.local_copy import local_copy
from seq2seq_attn.data.store.text_store import stored_corpus
from seq2seq_attn.errors import UserError
from seq2seq_attn.tokenizer.sentencepiece import SentencePieceTokenizer

PAIRS = [(f"the cat sees dog {n}", f"le chat voit chien {n}") for n in range(120)]


@pytest.fixture
def prepared(tmp_path: Path) -> Path:
    folder = tmp_path / "shared" / "corpora" / "0123"
    (folder / "train").mkdir(parents=True)
    for name, size in (("corpus.json", 30), ("train/00000.arrow", 500), ("train/00001.arrow", 700), ("lock", 0)):
        (folder / name).write_bytes(bytes([len(name)]) * size)
    return folder


def names(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def test_a_folder_is_copied_once(prepared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    local = local_copy(prepared, tmp_path / "node")
    assert local == tmp_path / "node" / "corpora" / "0123"
    assert names(local) == ["corpus.json", "train/00000.arrow", "train/00001.arrow"]
    assert all((local / name).read_bytes() == (prepared / name).read_bytes() for name in names(local))
    monkeypatch.setattr(shutil, "copyfile", lambda *given: pytest.fail("copied again"))
    assert local_copy(prepared, tmp_path / "node") == local


def test_a_copy_that_was_killed_goes_on(prepared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    copy, copied = shutil.copyfile, []

    def dying(source: Path, target: Path) -> Any:
        copied.append(source.name)
        if len(copied) == 2:
            target.write_bytes(b"half")
            raise KeyboardInterrupt
        return copy(source, target)

    monkeypatch.setattr(shutil, "copyfile", dying)
    with pytest.raises(KeyboardInterrupt):
        local_copy(prepared, tmp_path / "node")
    local = local_copy(prepared, tmp_path / "node")
    assert copied == ["corpus.json", "00000.arrow", "00000.arrow", "00001.arrow"]
    assert names(local) == ["corpus.json", "train/00000.arrow", "train/00001.arrow"]


def test_what_is_left_of_a_killed_copy_takes_no_room(
    prepared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = tmp_path / "node" / "corpora" / "0123" / "train" / f"00000.arrow{module.COPYING}"
    left.parent.mkdir(parents=True)
    left.write_bytes(bytes(500))
    usage = namedtuple("usage", "free")
    monkeypatch.setattr(module.shutil, "disk_usage", lambda path: usage(1300 - 500 * left.exists()))
    assert names(local_copy(prepared, tmp_path / "node")) == ["corpus.json", "train/00000.arrow", "train/00001.arrow"]


def test_a_complete_copy_is_read_where_nothing_can_be_written(
    prepared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    local = local_copy(prepared, tmp_path / "node")
    monkeypatch.setattr(module, "FileLock", lambda file: pytest.fail(f"{file} is opened for writing"))
    assert local_copy(prepared, tmp_path / "node") == local


def test_a_file_of_another_size_is_named_and_stays(prepared: Path, tmp_path: Path) -> None:
    mine = tmp_path / "node" / "corpora" / "0123" / "train" / "00001.arrow"
    mine.parent.mkdir(parents=True)
    mine.write_bytes(b"mine")
    with pytest.raises(UserError, match=r"00001.arrow is not a copy of .*, whose size is 700 bytes; move it, or give"):
        local_copy(prepared, tmp_path / "node")
    assert mine.read_bytes() == b"mine"


def test_a_disk_without_room_or_leave_is_one_sentence(
    prepared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = namedtuple("usage", "free")
    monkeypatch.setattr(module.shutil, "disk_usage", lambda path: usage(1000))
    with pytest.raises(UserError) as refused:
        local_copy(prepared, tmp_path / "node")
    assert str(refused.value) == (
        f"data.copy_to={tmp_path / 'node'} cannot hold the prepared data (1,230 bytes for 1,000 that are free); make "
        "room, or give another one"
    )
    assert names(tmp_path / "node" / "corpora" / "0123") == []
    monkeypatch.undo()

    def filling(source: Path, target: Path) -> None:
        target.write_bytes(b"a part")
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(shutil, "copyfile", filling)
    with pytest.raises(UserError, match=r"cannot hold the prepared data \(No space left on device\); make room"):
        local_copy(prepared, tmp_path / "node")
    assert names(tmp_path / "node" / "corpora" / "0123") == []
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(UserError, match=r"cannot hold the prepared data \((Not a directory|File exists)\)"):
        local_copy(prepared, tmp_path / "file")


def test_a_training_reads_texts_and_ids_from_the_copy_alone(tmp_path: Path) -> None:
    def data(copy_to: Path | None) -> TranslationDataModule:
        corpus = stored_corpus(
            {"train": [PairList(PAIRS)]},
            Cleaning(),
            held_out=HeldOut({"val": 9}, 1),
            cache_dir=tmp_path / "shared" / "corpora",
            languages=("en", "fr"),
            copy_to=copy_to,
        )
        tokenizer = SentencePieceTokenizer("unigram", 40, True, 0.0, None)
        tokenizer.train(corpus.splits["train"].sources[:], corpus.splits["train"].targets[:])
        cache = str(tmp_path / "shared")
        found = TranslationDataModule(corpus, tokenizer, batch_tokens=200, seed=1, cache_dir=cache)
        found.prepare_data()
        return found

    shared, local = data(None), data(tmp_path / "node")
    shutil.rmtree(tmp_path / "shared")
    texts: Any = local.corpus.splits["val"].sources
    for file in (local.encoded("train").folder, *texts.files):
        assert file.is_relative_to(tmp_path / "node")
    batches = list(local.train_dataloader())
    assert sorted(row for batch in batches for row in batch.index.tolist()) == list(range(len(PAIRS) - 9))
    assert texts[0].startswith("the cat")
    assert local.corpus.fingerprint == shared.corpus.fingerprint
