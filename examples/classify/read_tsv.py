"""A reader of labelled sentences: in each line a text, a tab and the label 0 or 1."""

from __future__ import annotations

import random
import re
from collections import Counter
from pathlib import Path

from examples.classify.read_keras_imdb import FIRST, RARE, START, Split
from seq2seq_attn.data.reading import read_lines
from seq2seq_attn.errors import UserError

TEST_SHARE = 0.2  # of one file


def read_tsv(path: Path, *, test_path: Path | None, num_words: int, length: int, seed: int) -> dict[str, Split]:
    """Return the lines as tokens and labels of `train` and `test`, in the form of Keras' reviews.

    Words are lower-cased, without punctuation. A text starts with START, words that are not among the most frequent of
    the training lines become RARE, and the last `length` tokens are kept.

    Args:
        test_path: None: a fifth of the lines of `path`, drawn by `seed`, are for testing.

    Raises:
        UserError: for a line without a tab and a label, or too few lines to test on some.
    """
    lines = {"train": labelled(path), "test": labelled(test_path) if test_path else []}
    if test_path is None:
        random.Random(seed).shuffle(lines["train"])
        kept = round(TEST_SHARE * len(lines["train"]))
        lines = {"train": lines["train"][kept:], "test": lines["train"][:kept]}
    if not lines["train"] or not lines["test"]:
        raise UserError(f"{path} has too few lines for training and testing; add some")
    counts = Counter(word for words, _ in lines["train"] for word in words)
    tokens = {word: FIRST + rank for rank, (word, _) in enumerate(counts.most_common(num_words - FIRST))}
    return {
        name: (
            [[START, *(tokens.get(word, RARE) for word in words)][-length:] for words, _ in split],
            [label for _, label in split],
        )
        for name, split in lines.items()
    }


def labelled(path: Path) -> list[tuple[list[str], int]]:
    """Return the words and the label of each line."""
    found = []
    for number, line in enumerate(read_lines(path), start=1):
        text, tab, label = line.rpartition("\t")
        if not tab or label.strip() not in ("0", "1"):
            raise UserError(
                f"{path}, line {number}: no tab and label 0 or 1 at the end; write `text<tab>label`, without a header"
            )
        found.append((re.findall(r"[\w']+", text.lower()), int(label)))
    return found
