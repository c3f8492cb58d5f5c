"""A corpus that comes with its splits."""

import re

import pytest

from seq2seq_attn.data.cleaning import Cleaning
from seq2seq_attn.data.demo import DemoCorpus
from seq2seq_attn.errors import UserError

FILES = {
    "train.tsv": "Go.\tVa !\nGo.\tVa !\n\tVide\nRun!\tCours\u202f!\nOne\u2028two\tUn\n",
    "val.tsv": "Stop.\tArrête\u202f!\nStop.\tStop !\n\tVide\n",
    "test.tsv": "Go.\tAllez\u202f!\n",
    "unseen.tsv": "Jump.\tSaute !\n",
}


@pytest.fixture
def folder(tmp_path):
    for name, content in FILES.items():
        (tmp_path / name).write_bytes(content.encode())
    return tmp_path


def load(folder, source="en", target="fr"):
    corpus = DemoCorpus(path=str(folder), source_language=source, target_language=target, cleaning=Cleaning())
    return corpus.load()


def test_training_is_cleaned_and_nothing_is_dropped_from_the_other_splits(folder):
    splits = load(folder).splits
    assert list(splits) == ["train", "val", "test", "test_unseen"]
    assert splits["train"].sources == ["Go.", "Run!", "One two"]
    assert splits["train"].targets == ["Va !", "Cours !", "Un"]
    assert splits["val"].sources == ["Stop.", "Stop.", ""]
    assert splits["val"].targets == ["Arrête !", "Stop !", "Vide"]


def test_references_are_uncleaned_and_each_row_has_its_own(folder):
    references = load(folder).splits["val"].references
    assert references == [["Arrête\u202f!"], ["Stop !"], ["Vide"]]


def test_every_step_is_counted_by_split_and_overlap_warned_of(folder, caplog):
    counts = load(folder).report.counts
    assert {name: count for name, count in counts.items() if count} == {
        "train: pairs read": 5,
        "train: pairs normalised": 2,
        "train: dropped, empty side": 1,
        "train: dropped, duplicate": 1,
        "val: pairs read": 3,
        "val: pairs normalised": 1,
        "test: pairs read": 1,
        "test: pairs normalised": 1,
        "test_unseen: pairs read": 1,
        "test: sources also in train": 1,
    }
    assert caplog.messages == ["1 of 1 source sentences of test are also in train, so its score is too optimistic"]


def test_the_direction_can_be_reversed(folder):
    corpus = load(folder, "fr", "en")
    assert (corpus.source_language, corpus.target_language) == ("fr", "en")
    assert corpus.splits["test"].sources == ["Allez !"]
    assert corpus.splits["test"].references == [["Go."]]


def test_the_fingerprint_is_of_the_content(folder):
    before = load(folder).fingerprint
    assert load(folder).fingerprint == before
    assert load(folder, "fr", "en").fingerprint != before
    (folder / "unseen.tsv").write_bytes(b"Jump.\tSautez !\n")
    assert load(folder).fingerprint != before


def test_a_missing_folder_is_one_sentence(tmp_path):
    sentence = (
        f"data=demo: the folder {tmp_path}/none does not exist; set data.path=FOLDER to a "
        "folder with train.tsv, val.tsv, test.tsv, unseen.tsv"
    )
    with pytest.raises(UserError, match=f"^{re.escape(sentence)}$"):
        load(tmp_path / "none")


def test_a_missing_file_is_one_sentence(folder):
    (folder / "val.tsv").unlink()
    with pytest.raises(
        UserError, match=rf"^{re.escape(str(folder / 'val.tsv'))} does not exist; check data.path, or data.train, "
    ):
        load(folder)


def test_training_of_which_cleaning_leaves_nothing_is_one_sentence(folder):
    (folder / "train.tsv").write_bytes(b"word\t" + b"mot " * 100_000 + b"\n\tVide\n")
    sentence = (
        "no sentence pair is left to train on after cleaning (1 dropped, empty side; 1 dropped, over 1000 "
        "characters); check data.path or loosen data.cleaning"
    )
    with pytest.raises(UserError, match=f"^{re.escape(sentence)}$"):
        load(folder)
