"""The generated documents and dialogues: as written by the script, and answerable from what they say."""

from __future__ import annotations

import random
import re

import pytest
from configs import ROOT, built, composed

from scripts.demo_corpus import tasks
from scripts.demo_corpus.__main__ import DATA
from scripts.demo_corpus.lexicon import Lexicon

FILES = {task: ROOT / "data/demo" / task for task in ("summary", "dialogue")}


def pairs(task: str, split: str) -> list[list[str]]:
    return [line.split("\t") for line in (FILES[task] / f"{split}.tsv").read_text("utf-8").splitlines()]


@pytest.mark.parametrize("task", FILES)
def test_the_first_committed_lines_are_what_the_script_writes(task: str) -> None:
    sampler = tasks.TaskSampler(Lexicon(DATA / "lexicon.yaml"), random.Random(f"{task} 1"))
    draw = sampler.document if task == "summary" else sampler.dialogue
    drawn = [list(pair) for _ in range(30) for pair in draw()]
    assert pairs(task, "train")[: len(drawn)] == drawn


@pytest.mark.slow
@pytest.mark.parametrize("task", FILES)
def test_the_committed_files_equal_the_generated_ones(task: str) -> None:
    found = tasks.build(task, 1)
    assert found == {split: [tuple(pair) for pair in pairs(task, split)] for split in found}


def test_a_headline_is_an_event_of_its_document_in_fewer_words() -> None:
    documents = pairs("summary", "train")
    assert len(documents) == 2_000
    for document, headline in documents:
        sentences = re.findall(r"[^.?]+[.?]", document)
        assert 5 <= len(sentences) <= 12
        hero = headline.split()[0]
        assert any(hero in sentence and len(sentence.split()) >= len(headline.split()) for sentence in sentences)


def test_an_answer_is_said_before() -> None:
    turns = pairs("dialogue", "train")
    assert len({tuple(turn) for turn in turns}) > 5_000
    for said, answer in turns:
        assert said.endswith("?")
        assert answer.startswith("Yes, ") or set(re.findall(r"[a-zé]+", answer.lower())) - {"no"} <= set(
            re.findall(r"[a-zé]+", said.lower())
        ), (said, answer)


@pytest.mark.parametrize("task", FILES)
def test_no_source_is_in_two_files_and_none_is_left_out(task: str) -> None:
    corpus = built(composed(f"data=demo_{task}").data).load()
    assert list(corpus.splits) == ["train", "val", "test"]
    sources = [set(split.sources) for split in corpus.splits.values()]
    assert sum(map(len, sources)) == len(set().union(*sources))
    assert len(corpus.splits["train"]) == len(pairs(task, "train"))
