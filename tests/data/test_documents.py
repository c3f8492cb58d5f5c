"""Consecutive sentences joined: aligned sides, lengths within the limits, the same documents for the same seed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from configs import built, composed

from seq2seq_attn.data.corpus import CleaningReport, Corpus, LoadedCorpus, Split
from seq2seq_attn.data.documents import DocumentCorpus, warn_of_gaps
from seq2seq_attn.errors import UserError
from seq2seq_attn.tokenizer.sentencepiece import SentencePieceTokenizer


class Counted(Corpus):
    """Sentence n is the word `n`, two to four times, and its translation the word `-n`, two to six times."""

    def __init__(self, sentences: int) -> None:
        self.sentences = sentences

    def load(self) -> LoadedCorpus:
        numbers = range(self.sentences)
        sources = [" ".join([f"{n}"] * (2 + n % 3)) for n in numbers]
        targets = [" ".join([f"-{n}"] * (2 + n % 5)) for n in numbers]
        split = Split(sources, targets, [[f"first {n}", f"second {n}"] for n in numbers])
        report = CleaningReport({"train: pairs read": 7})
        return LoadedCorpus({"train": split, "test": split}, report, "en", "fr", stored="digest of the sentences")


def joined(sentences: int = 97, low: int = 11, high: int = 23, seed: int = 1) -> LoadedCorpus:
    return DocumentCorpus(
        corpus=Counted(sentences), min_words=low, max_words=high, seed=seed, source_language="en", target_language="fr"
    ).load()


def numbers(text: str) -> list[str]:
    return list(dict.fromkeys(text.replace("-", "").replace("first", "").split()))


def test_both_sides_and_the_reference_have_the_same_consecutive_sentences() -> None:
    split = joined().splits["train"]
    assert len(split) > 5
    for source, target, references in zip(split.sources, split.targets, split.references, strict=True):
        assert len(references) == 1
        assert numbers(source) == numbers(target) == numbers(references[0])
        first = int(numbers(source)[0])
        assert numbers(source) == [str(first + offset) for offset in range(len(numbers(source)))]


@pytest.mark.parametrize(
    ("step", "named", "way_out"),
    [
        (
            "val: pairs held out (10% of the sources)",
            "val: pairs held out",
            "data.corpus.val=FILE and data.corpus.test",
        ),
        ("all: dropped, duplicate", "all: dropped, duplicate", "data.corpus.cleaning.deduplicate=false and wider"),
        ("all: dropped, over 100 words", "all: dropped, over 100 words", "data.corpus.cleaning.deduplicate=false and"),
    ],
)
def test_sentences_that_are_no_neighbours_are_warned_of(
    step: str, named: str, way_out: str, caplog: pytest.LogCaptureFixture
) -> None:
    joined()
    warn_of_gaps({step: 0, "all: pairs read": 7})
    assert not caplog.messages
    warn_of_gaps({step: 1200, "all: pairs read": 7})
    (message,) = caplog.messages
    assert named in message
    assert f"(1,200); give {way_out}" in message


def test_sentences_that_are_stored_in_another_order_are_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    class Sharded(Counted):
        def load(self) -> LoadedCorpus:
            loaded = super().load()
            train = replace(loaded.splits["train"], shards=(self.sentences - 40, 40))
            return replace(loaded, splits={"train": train, "test": replace(train, shards=(self.sentences,))})

    options = {"min_words": 11, "max_words": 23, "seed": 1, "source_language": "en", "target_language": "fr"}
    DocumentCorpus(corpus=Sharded(97), **options).load()
    assert caplog.messages == [
        "data=documents joins sentences that are not neighbours where blocks of 2,048 lines meet, since the 97 pairs "
        "of train are stored in such blocks, in random order; at most 524,288 pairs keep their order"
    ]


def test_the_included_documents_have_only_neighbours(caplog: pytest.LogCaptureFixture) -> None:
    built(composed("data=documents").data).load()
    assert not caplog.messages


def test_other_documents_of_the_same_sentences_are_encoded_anew() -> None:
    assert len({joined().fingerprint, joined(high=29).fingerprint, joined(seed=2).fingerprint}) == 3
    assert joined().fingerprint == joined().fingerprint


def test_no_sentence_is_lost_or_repeated_except_at_the_end() -> None:
    split = joined().splits["train"]
    found = [number for source in split.sources for number in numbers(source)]
    assert found == [str(number) for number in range(len(found))]
    assert 97 - 23 < len(found) < 97


def test_the_longer_side_is_within_a_sentence_of_the_drawn_length() -> None:
    split = joined(sentences=997).splits["train"]
    longest = [
        max(len(source.split()), len(target.split()))
        for source, target in zip(split.sources, split.targets, strict=True)
    ]
    assert min(longest) > 11 - 6
    assert max(longest) <= 23
    assert len(set(longest)) > 10


def test_documents_are_a_function_of_the_seed() -> None:
    assert joined().fingerprint == joined().fingerprint != joined(seed=2).fingerprint
    assert joined().report.counts["train: documents"] == len(joined().splits["train"])
    assert joined().report.counts["train: pairs read"] == 7


def test_limits_that_the_corpus_cannot_meet_are_refused() -> None:
    with pytest.raises(UserError, match=r"sentence 5 of train has 6 words, more than data.min_words=5"):
        joined(low=5)
    with pytest.raises(UserError, match="train has too few sentences for a document of 23 words; use a smaller"):
        joined(sentences=3, low=23)
    with pytest.raises(UserError, match=r"data.min_words=29 and data.max_words=23 are not 1 <= min_words"):
        joined(low=29)


@pytest.mark.slow
def test_documents_of_the_demo_corpus_have_a_thousand_to_four_thousand_tokens(tmp_path: Path) -> None:
    corpus = built(composed("data=documents").data).load()
    sentences = built(composed().data).load().splits["train"]
    tokenizer = SentencePieceTokenizer("unigram", 2000, True, 0.0, str(tmp_path))
    tokenizer.train(sentences.sources[::2], sentences.targets[::2])
    for split in corpus.splits.values():
        sides = tokenizer.encode_source(split.sources), tokenizer.encode_target(split.targets)
        longest = [max(len(source), len(target)) for source, target in zip(*sides, strict=True)]
        assert 1000 <= min(longest) < max(longest) <= 4000
    assert len(corpus.splits["train"]) > 50
    assert min(len(split) for split in corpus.splits.values()) > 3


def test_words_of_a_document_are_those_by_which_the_cleaning_counts() -> None:
    class Chinese(Counted):
        def load(self) -> LoadedCorpus:
            loaded = super().load()
            texts = ["我们明天去公园里玩"] * self.sentences  # 9 characters count as 5 words
            return replace(loaded, splits={"train": Split(texts, texts, [[text] for text in texts])})

    options = {"min_words": 11, "max_words": 23, "seed": 1, "source_language": "en", "target_language": "fr"}
    split = DocumentCorpus(corpus=Chinese(97), **options).load().splits["train"]
    assert {2, 3, 4} >= {len(source.split()) for source in split.sources} > {2}


def test_languages_that_are_not_those_of_the_sentences_are_refused() -> None:
    options = {"corpus": Counted(97), "min_words": 11, "max_words": 23, "seed": 1}
    corpus = DocumentCorpus(source_language="fr", target_language="en", **options)
    with pytest.raises(UserError, match=r"data.target_language=en are not those of the sentences, en and fr; choose "):
        corpus.load()
