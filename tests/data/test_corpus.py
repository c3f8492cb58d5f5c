"""What a corpus reader may return, and a corpus of its targets alone."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from seq2seq_attn.data.corpus import CleaningReport, Corpus, LoadedCorpus, Split, read
from seq2seq_attn.data.encoded import encode_split
from seq2seq_attn.errors import UserError
from seq2seq_attn.tokenizer.sentencepiece import SentencePieceTokenizer

TEXTS = [f"text {number}" for number in range(5)]
ONE_EACH = [[text] for text in TEXTS]
WHOLE = Split(TEXTS, TEXTS, ONE_EACH)


class OwnCorpus(Corpus):
    """A reader that returns what it is given."""

    def __init__(self, returned: Any) -> None:
        self.returned = returned

    def load(self) -> LoadedCorpus:
        return self.returned


def corpus(val: Any = WHOLE, report: Any = None) -> LoadedCorpus:
    splits = {"train": WHOLE, "val": val}
    return LoadedCorpus(splits, report or CleaningReport({}), "en", "fr")


@pytest.mark.parametrize(
    ("returned", "sentence"),
    [
        (lambda: TEXTS, "a value of type list, not LoadedCorpus; see the corpus reader in docs/extending.md"),
        (lambda: unchecked(val=TEXTS), "a split val of type list, not Split; see"),
        (lambda: unchecked(report={"train": 5}), "a report of type dict, not CleaningReport; see"),
        (lambda: corpus(Split([], [], [])), "a split val of 0 sources, 0 targets, 0 references; return as many"),
        (lambda: corpus(replace(WHOLE, targets=["text"])), "a split val of 5 sources, 1 targets, 5 references; return"),
        (lambda: unchecked(val=unchecked_split(TEXTS)), "texts as the references of val; return a list of texts for"),
    ],
)
def test_a_reader_that_returns_no_corpus_is_one_sentence(returned: Any, sentence: str) -> None:
    with pytest.raises(UserError, match=f"^OwnCorpus.load returns {sentence}"):
        read(OwnCorpus(returned()))


def unchecked(**fields: Any) -> LoadedCorpus:
    """Return a corpus with fields of other types, which are checked in tests alone."""
    loaded = corpus()
    loaded.splits["val"] = fields.get("val", WHOLE)
    object.__setattr__(loaded, "report", fields.get("report", loaded.report))
    return loaded


def unchecked_split(references: Any) -> Split:
    split = Split(TEXTS, TEXTS, ONE_EACH)
    object.__setattr__(split, "references", references)
    return split


def test_a_split_of_tuples_is_encoded_as_one_of_lists(tmp_path: Path) -> None:
    tokenizer = SentencePieceTokenizer("word", 20, True, 0.0, None)
    tokenizer.train(TEXTS, TEXTS)
    found = [
        encode_split(split, tokenizer, tmp_path / str(number)).shard(0).source_ids.tolist()
        for number, split in enumerate((WHOLE, Split(tuple(TEXTS), tuple(TEXTS), ONE_EACH)))
    ]
    assert found[0] == found[1] == [token for ids in tokenizer.encode_source(TEXTS) for token in ids]


def test_empty_targets_are_no_text_of_a_language_model() -> None:
    val = Split(["a", "b", "c"], ["", "text", ""], [[""], ["Text"], [""]])
    alone = corpus(val).one_sided()
    assert (list(alone.splits["val"].targets), alone.splits["val"].references) == (["text"], [["Text"]])
    assert (len(alone.splits["val"]), alone.report.counts) == (1, {"val: dropped, empty": 2})
    stored, without = (replace(corpus(split), stored="digest").one_sided() for split in (WHOLE, val))
    assert stored.fingerprint != without.fingerprint  # what is made of them has other rows
    with pytest.raises(UserError, match=r"^every target of val is empty; give a file or a split that has text$"):
        corpus(Split(["a"], [""], [[""]])).one_sided()
