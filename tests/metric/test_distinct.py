"""distinct-n against its definition."""

from __future__ import annotations

from random import Random

import pytest
from configs import composed

from seq2seq_attn.metric.distinct import Distinct
from seq2seq_attn.training.monitor import validation_figures

TEXTS = ["I don't know.", "I don't know", "Maybe in Paris, maybe not.", ""]


def distinct(n: int, texts: list[str]) -> float:
    metric = Distinct(n=n, tokenize="words")
    metric.update(texts, [["any"]] * len(texts))
    return float(metric.compute())


def test_a_worked_example() -> None:
    # I don t know | I don t know | maybe in paris maybe not: 13 words
    assert distinct(1, TEXTS) == pytest.approx(100 * 8 / 13)
    # i-don don-t t-know; maybe-in in-paris paris-maybe maybe-not
    assert distinct(2, TEXTS) == pytest.approx(100 * 7 / 13)
    assert distinct(2, ["one"]) == distinct(1, [""]) == 0.0
    assert distinct(1, ["one"]) == 100.0


@pytest.mark.parametrize(("references", "number"), [([1, 1], "1"), ([3, 3], "3"), ([1, 2], "var")])
def test_the_signature_has_the_number_of_references(references: list[int], number: str) -> None:
    metric = Distinct(n=2, tokenize="words")
    metric.update(["one two", "one"], [["any"] * count for count in references])
    assert metric.signature() == f"nrefs:{number}|n:2|tok:words"


@pytest.mark.parametrize("n", [1, 2, 3])
def test_it_is_the_different_ngrams_of_all_outputs_over_their_words(n: int) -> None:
    draw = Random(n)
    texts = [" ".join(draw.choices("abcdefg", k=draw.randrange(9))) for _ in range(50)]
    ngrams = {tuple(text.split()[i : i + n]) for text in texts for i in range(len(text.split()) - n + 1)}
    assert distinct(n, texts) == pytest.approx(100 * len(ngrams) / sum(len(text.split()) for text in texts))


def test_no_validation_has_it_so_that_it_cannot_choose_a_checkpoint() -> None:
    figures = validation_figures(composed("metric=[distinct,rouge]"))
    assert not [name for name in figures if "distinct" in name]
    assert "val/rougeL" in figures
