"""Labelled sentences become tokens in the form of Keras' reviews, and other lines are refused by file and line."""

from __future__ import annotations

from pathlib import Path

import pytest

from examples.classify.read_tsv import read_tsv
from seq2seq_attn.errors import UserError

LINES = "It's dull, DULL!\t0\nGreat cast; dull plot.\t1\n"


def read(folder: Path, text: str, test: str | None = None, **options: int) -> dict:
    path, test_path = folder / "train.tsv", None
    path.write_text(text, encoding="utf-8")
    if test is not None:
        test_path = folder / "test.tsv"
        test_path.write_text(test, encoding="utf-8")
    return read_tsv(path, test_path=test_path, **({"num_words": 9, "length": 9, "seed": 1} | options))


def test_words_are_ranked_by_their_number_in_the_training_lines(tmp_path: Path) -> None:
    # PAD 0, START 1, RARE 2; dull 3, it's 4, great 5, cast 6, plot 7.
    splits = read(tmp_path, LINES, "a\tgreat film\t1\n")
    assert splits == {"train": ([[1, 4, 3, 3], [1, 5, 6, 3, 7]], [0, 1]), "test": ([[1, 2, 5, 2]], [1])}


def test_rarer_words_share_a_token_and_the_last_tokens_are_kept(tmp_path: Path) -> None:
    splits = read(tmp_path, LINES, LINES, num_words=5, length=3)
    assert splits["train"] == splits["test"] == ([[4, 3, 3], [2, 3, 2]], [0, 1])


def test_without_a_test_file_a_fifth_of_the_lines_is_drawn(tmp_path: Path) -> None:
    text = "".join(f"number{number}\t{number % 2}\n" for number in range(20))
    splits = read(tmp_path, text, num_words=100)
    assert [len(splits[name][1]) for name in ("train", "test")] == [16, 4]
    assert splits == read(tmp_path, text, num_words=100)
    assert splits["test"] != read(tmp_path, text, num_words=100, seed=2)["test"]


@pytest.mark.parametrize("line", ["no label", "text\t2", "text\t", "sentence\tlabel"])
def test_a_line_without_a_label_is_refused(line: str, tmp_path: Path) -> None:
    with pytest.raises(
        UserError, match=r"train.tsv, line 3: no tab and label 0 or 1 at the end; write `text<tab>label`"
    ):
        read(tmp_path, f"{LINES}{line}\n")


def test_too_few_lines_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"train.tsv has too few lines for training and testing; add some"):
        read(tmp_path, LINES)
