"""Whatever a request holds, it is answered or refused in one sentence."""

from __future__ import annotations

import json
import random
from contextlib import suppress
from typing import Any

import pytest
from explorer.three_models import BEAM, TEXT

from seq2seq_attn.errors import UserError
from seq2seq_attn.explorer.look import Explorer
from seq2seq_attn.explorer.request import KEYS, Intervention, LookRequest, ModelBounds, parse_look
from seq2seq_attn.explorer.search_options import build_search, known_searches
from seq2seq_attn.search.beam import BeamSearch

BOUNDS = [ModelBounds({"cross/0": 1}, 45, (0, 2, 3), 20), ModelBounds({"self/0": 2, "cross/0": 4}, 45, (0, 2, 3), 20)]
HOSTILE: list[Any] = [
    None, True, False, 0, -1, 1, 7, 10**30, 10**5000, 0.5, -0.0, 1e308, float("nan"), float("inf"), "", "beam", "mbr",
    "cross/0", "\ud800", "\x00\x1b[2J", "<script>alert(1)</script>", "\u202eabc", "a" * 100_000, "é" * 300, [], {},
    [[]], [0], [7, 9], [10**5000], ["a"], [None], [True], {"name": "beam"}, {"name": ["beam"]}, {"name": None},
    {"_target_": "os.system"}, {"name": "beam", "_target_": "os.system", "command": "id"}, {"beam_size": 10**5000},
    {"name": "beam", "length_penalty": "\udc80"}, {"name": "mbr", "utility": "\ud800"}, {"name": "beam", "limits": {}},
    {"name": "sampling", "temperature": float("nan")}, {"do": "uniform", "slot": "cross/0", "head": 0},
    [{"do": "uniform", "slot": "cross/0", "head": 0}], [{"do": "uniform", "slot": "cross/9", "head": 0}],
    [{"do": "erase", "slot": "cross/0"}], [{"do": "knock_out", "slot": "cross/0", "head": 99}], {"\ud800": 1},
]  # fmt: skip


def test_a_request_is_a_value() -> None:
    data = {
        "model": 1, "source": TEXT, "search": {"name": "beam"}, "prefix": [7, 9], "hide": [1], "tree": True,
        "interventions": [{"do": "knock_out", "slot": "self/0", "head": 1}, {"do": "uniform", "slot": "cross/0"}],
        "target": None, "slots": ["cross/0"],
    }  # fmt: skip
    assert parse_look(data, BOUNDS) == LookRequest(
        1,
        TEXT,
        {"name": "beam"},
        prefix=[7, 9],
        interventions=(Intervention("knock_out", "self/0", 1), Intervention("uniform", "cross/0", None)),
        hide=(1,),
        tree=True,
        slots=("cross/0",),
    )


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"sourse": "a"}, "a request has no 'sourse'; it takes: model, source"),
        ({"source": None}, "source=null must be a text"),
        ({"source": "a" * 10_001}, "source has 10,001 characters, and 10,000 are the most; shorten it"),
        ({"model": 2}, "model is 2, and must be a whole number from 0 to 1"),
        ({"model": True}, "model is true, and must be a whole number"),
        ({"tree": 1}, "tree=1 must be true or false"),
        ({"search": "beam"}, "search='beam' must be an object"),
        ({"prefix": [45]}, "a token in prefix is 45, and must be a whole number from 0 to 44"),
        ({"prefix": [3]}, "a token in prefix is 3, which marks a begin, an end or padding; leave it out"),
        ({"target_tokens": [7] * 21}, "the target_tokens has 21 tokens, and 20 are the most here; shorten it"),
        ({"target": "a", "prefix": [7]}, "target and prefix exclude each other; give one of them"),
        ({"hide": 3}, "hide=3 must be a list"),
        ({"hide": [-1]}, "a word in hide is -1"),
        ({"slots": ["cross/1"]}, "a slot in slots is 'cross/1'; choose from: cross/0"),
        ({"interventions": [{"do": "erase"}]}, "do of an intervention is 'erase'; choose from: knock_out, uniform"),
        ({"interventions": [{"do": "uniform", "slot": "self/0"}]}, "slot of an intervention is 'self/0'; choose from"),
        ({"interventions": [{"do": "uniform", "slot": "cross/0", "head": 1}]}, "a head of cross/0 is 1, and must be"),
    ],
)
def test_what_is_wrong_is_said(change: dict[str, Any], sentence: str) -> None:
    with pytest.raises(UserError) as error:
        parse_look({"source": TEXT, **change}, BOUNDS)
    assert str(error.value).startswith(sentence)


@pytest.mark.parametrize(
    ("search", "sentence"),
    [
        ({"name": "bean"}, "search is 'bean'; choose from: beam, "),
        ({"name": "beam", "beem_size": 5}, "search has no option 'beem_size'; it has: "),
        ({"name": "beam", "beam_size": 65}, "search.beam_size=65 is out of range here; use a number of at most 64"),
        (
            {"name": "samples", "temperature": 0},
            "search.temperature=0 is out of range here; use a number of at least 0",
        ),
        ({"name": "beam", "beam_size": 2.5}, "search.beam_size=2.5 must be int"),
        ({"name": "beam", "beam_size": 2, "num_best": 3}, "search.num_best=3 must be at least 1 and at most"),
        ({"name": "beam", "limits": {"max_length": 5}}, "search has no option 'limits'"),
        ({"name": "beam", "_target_": "os.system"}, "search has no option '_target_'"),
        ({"name": "beam", "limits.max_length": "a"}, "search.limits.max_length=a must be int"),
        ({"name": "beam", "coverage_penalty": float("nan")}, "search.coverage_penalty=nan is out of range here"),
        ({"name": "mbr", "utility": "bert"}, "search.utility=bert is unknown"),
        ({"beam_size": 3}, "search has no option 'beam_size'; it has: no_repeat_ngram, limits.max_length"),
    ],
)
def test_a_search_that_there_is_not_is_refused(search: dict[str, Any], sentence: str) -> None:
    with pytest.raises(UserError) as error:
        build_search(search, known_searches()["greedy"], known_searches())
    assert str(error.value).startswith(sentence)


def test_options_are_set() -> None:
    wanted = {"name": "beam", "beam_size": 7, "length_penalty.alpha": 1, "limits.max_length": 11, "patience": 2}
    search = build_search(wanted, known_searches()["greedy"], known_searches())
    assert isinstance(search, BeamSearch)
    assert (search.beam_size, search.limits.max_length, search.patience) == (7, 11, 2)
    assert search.length_penalty.alpha == 1.0  # type: ignore[attr-defined]
    assert known_searches()["beam"]["beam_size"] == 5  # as before


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_hostile_requests_raise_nothing_else(seed: int, explorer: Explorer) -> None:
    """Every request is refused in a sentence or is fit for a model; some of those are answered."""
    drawn = random.Random(seed)
    bounds = [model.bounds for model in explorer._models]
    sentences, fit = [], []
    for _ in range(1000):
        data: Any = {"source": TEXT}
        for key in drawn.sample([*KEYS, "\ud800", "other"], drawn.randrange(4)):
            data[key] = drawn.choice(HOSTILE)
        if drawn.random() < 0.02:
            data = drawn.choice(HOSTILE)
        try:
            request = parse_look(data, bounds)
            build_search(request.search, known_searches()["greedy"], known_searches())
            fit.append(data)
        except UserError as error:
            sentences.append(str(error))
    assert len(sentences) > 500
    assert all(sentence.isprintable() and len(sentence) < 600 for sentence in sentences)
    assert len(fit) > 100
    answered = 0
    for data in drawn.sample(fit, 20):
        data["search"] = BEAM
        with suppress(UserError):
            json.dumps(explorer.look(data), allow_nan=False)
            answered += 1
    assert answered >= 15


@pytest.mark.parametrize(
    "source",
    [
        "<img src=x onerror=alert(1)> & \"' {{7*7}}",
        "\ud83d \udc00 the\x00cat\x1b[31m \u2028",
        "القط \u202e יוסף 的猫",
        "▁ ▁▁ a",
    ],
    ids=["markup", "controls", "scripts", "marks"],
)
def test_any_text_is_answered_as_plain_json(source: str, explorer: Explorer) -> None:
    found = explorer.look({"source": source, "search": BEAM, "target": None})
    text = json.dumps(found, ensure_ascii=False, allow_nan=False)
    assert json.loads(text.encode()) == found
    assert len(found["source"]["words"]) == len(found["source"]["tokens"])
    assert max(found["source"]["words"]) < len(found["source"]["word_texts"])
    forced = explorer.look({"source": TEXT, "target": source})
    json.dumps(forced, ensure_ascii=False, allow_nan=False).encode()


@pytest.mark.parametrize(
    ("request_", "sentence"),
    [
        ({"source": " \t\x00"}, "the sentence is empty; write one"),
        ({"source": "a b " * 300}, "the sentence has"),
        ({"source": TEXT, "target": "a b " * 300}, "the translation has"),
        ({"source": TEXT, "hide": [100]}, "the sentence has"),
    ],
)
def test_a_sentence_that_cannot_be_looked_at_is_refused(
    request_: dict[str, Any], sentence: str, explorer: Explorer
) -> None:
    with pytest.raises(UserError, match=sentence):
        explorer.look(request_)
