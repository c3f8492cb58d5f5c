"""The explorer behind its server: the numbers of Translator, and hostile sentences."""

from __future__ import annotations

import os
from base64 import b64decode
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random

import numpy as np
import pytest
from explorer.served import serving
from tiny import SENTENCES

from seq2seq_attn.explorer.look import Explorer
from seq2seq_attn.inference.translator import Translator

MARKUP = (
    "<script>run()</script>",
    "<img src=x onerror=run()>",
    "&lt;",
    "\"'`",
    "</textarea>",
    "${run()}",
    "]]>",
    "-->",
)
CONTROLS = ("\x00", "\x1b[31m", "\r\n", "\u2028", "\u202e", "\ufeff", "\ud800", "\udfff", "\U000e0001", "\u0301" * 4)
SCRIPTS = ("the cat", "père", "بيت أحمر", "赤い家", "🏠🐈‍⬛", "ﷺ", "ß", "x" * 30)
SHORT = {"name": "greedy", "limits.max_length": 3}


@pytest.mark.parametrize("name", ["rnn", "conv", "transformer"])
def test_numbers_equal_those_of_the_translator(
    name: str, explorers: dict[str, Explorer], served_models: dict[str, Translator]
) -> None:
    texts = SENTENCES[:4]
    with serving(explorers[name].models(), explorers[name].look) as served:
        looks = [served.look(source=text).json for text in texts]
        assert served.ask("GET", "/api/models").json["models"][0]["run"] == f"runs/{name}"
    for text, look in zip(texts, looks, strict=True):
        (expected,) = served_models[name].translate([text], maps=True)
        assert look["target"]["text"] == expected.text
        assert look["target"]["log_prob"] == pytest.approx(expected.log_prob, abs=1e-6)
        assert look["target"]["score"] == pytest.approx(expected.score, abs=1e-6)
        assert [slot["name"] for slot in look["slots"]] == [one.slot for one in expected.maps]
        for slot, one in zip(look["slots"], expected.maps, strict=True):
            weights = np.frombuffer(b64decode(slot["weights"]), "<f4").reshape(one.weights.shape)
            assert np.abs(weights - one.weights).max() < 1e-6


def resident() -> float:
    """Return the memory that this process has now, in MiB."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20


def hostile_sentence(number: int) -> str:
    random = Random(number)
    pieces = random.choices(MARKUP + CONTROLS + SCRIPTS, k=random.randrange(1, 4))
    return random.choice((" ", "")).join(pieces)


@pytest.mark.slow
@pytest.mark.parametrize("share", [9, pytest.param(1, marks=pytest.mark.slow)])  # each ninth, and all
def test_hostile_sentences_are_answered_or_refused_in_one_sentence_and_none_is_lost(
    share: int, explorers: dict[str, Explorer]
) -> None:
    sentences = [hostile_sentence(number) for number in range(236)] + [f"the{chr(code)}cat" for code in range(256)]
    sentences += ["", " ", "\n", "a" * 10**5, "a " * 50_000, "<b>" * 30_000, "\ud800" * 10**5, "é" * 9_999]
    sentences = sentences[::share]
    explorer = explorers["rnn"]
    with serving(explorer.models(), explorer.look) as served, ThreadPoolExecutor(50) as clients:
        served.look(source="the cat", slots=["cross/0"])  # what the first answer loads stays
        before = resident()
        quick = [{"search": SHORT} if number % 2 else {"target_tokens": [7, 9]} for number in range(len(sentences))]
        asked = [{"source": text, "slots": ["cross/0"]} | more for text, more in zip(sentences, quick, strict=True)]
        answers = list(clients.map(lambda request: served.look(**request), asked))
        grown = resident() - before
    assert len(answers) == -(-500 // share)
    for text, answer in zip(sentences, answers, strict=True):
        assert answer.headers["content-type"] == "application/json"
        assert answer.body.isascii()
        assert answer.status == 200, answer.json
        if "error" not in answer.json:
            assert answer.json["slots"][0]["name"] == "cross/0"
        else:
            error = answer.json["error"]
            assert error.isprintable()
            assert len(error) < 300
            assert "empty" in error or len(text) > 1000
    assert sum("slots" in answer.json for answer in answers) > 0.9 * len(answers)
    assert grown < 100, f"{grown:.0f} MiB more"
