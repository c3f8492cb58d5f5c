"""The tree of a search holds each of its steps, and its best leaf is the translation."""

from __future__ import annotations

from typing import Any

import pytest
from explorer.three_models import BEAM, CONV, NAMES, RNN, TEXT, TRANSFORMER
from tiny import SENTENCES, of_text

from seq2seq_attn.explorer import search_tree
from seq2seq_attn.explorer.look import Explorer
from seq2seq_attn.inference.translator import Translator

ALL = pytest.mark.parametrize("model", [RNN, CONV, TRANSFORMER], ids=NAMES)


def nodes_of(tree: dict[str, Any]) -> dict[int, dict[str, Any]]:
    return {node["id"]: node for step in tree["steps"] for node in step["nodes"]}


def path_to(tree: dict[str, Any], node: int | None) -> list[int]:
    """Token ids from the root to a node."""
    nodes, path = nodes_of(tree), []
    while node is not None:
        path.append(nodes[node]["token_id"])
        node = nodes[node]["parent"]
    return path[::-1]


@ALL
def test_a_beam_is_a_tree(model: int, explorer: Explorer, translators: list[Translator]) -> None:
    asked = {"model": model, "source": TEXT, "search": BEAM}
    found = explorer.look({**asked, "tree": True})
    assert found["target"] == explorer.look(asked)["target"]
    tree, eos = found["tree"], translators[model].tokenizer.eos_id
    nodes = nodes_of(tree)
    continued = {node["parent"] for node in nodes.values()}
    for number, step in enumerate(each["nodes"] for each in tree["steps"]):
        kept = [node for node in step if node["state"] == "kept"]
        assert len(kept) <= 3
        assert len(step) <= 6
        assert step == sorted(step, key=lambda node: (-node["total"], node["rank"]))
        for node in step:
            above = 0.0 if node["parent"] is None else nodes[node["parent"]]["total"]
            assert node["total"] == pytest.approx(above + node["log_prob"], abs=1e-9)
            assert (node["parent"] is None) == (number == 0)
            assert (node["state"] == "finished") == (node["score"] is not None)
            assert node["state"] != "finished" or node["token_id"] == eos
            assert node["id"] not in continued or node["state"] == "kept"
    assert all(node["state"] != "kept" for node in tree["steps"][-1]["nodes"])  # the search stopped
    best = nodes[tree["best"]]
    assert path_to(tree, tree["best"]) == [*found["target"]["token_ids"], eos]
    assert (best["state"], best["score"]) == ("finished", found["target"]["score"])
    assert best["total"] == found["target"]["log_prob"]
    (second,) = [path_to(tree, node) for node in nodes if nodes[node]["score"] == found["alternatives"][0]["score"]]
    assert second == [*found["alternatives"][0]["token_ids"], eos]
    dropped = next(node for node in nodes.values() if node["state"] == "dropped" and node["token_id"] != eos)
    path = path_to(tree, dropped["id"])
    forced = explorer.look({"model": model, "source": TEXT, "target_tokens": path})["target"]["token_log_probs"]
    assert sum(forced[:-1]) == pytest.approx(dropped["total"], abs=1e-6)
    assert forced[-2] == pytest.approx(dropped["log_prob"], abs=1e-6)


def test_what_is_left_when_the_search_stops_is_dropped(explorer: Explorer) -> None:
    search = {"name": "beam", "beam_size": 3, "patience": 0.1}  # until the first hypothesis has finished
    asked = {"model": TRANSFORMER, "source": SENTENCES[0], "search": search, "tree": True}
    last = explorer.look(asked)["tree"]["steps"][-1]["nodes"]
    assert [node["state"] for node in last] == ["dropped", "finished", *["dropped"] * 4]


@pytest.mark.parametrize("ngram", [0, 1])
@ALL
def test_greedy_search_is_a_chain_beside_the_second_best(model: int, ngram: int, explorer: Explorer) -> None:
    search = {"name": "greedy", "limits.max_length": 6, "no_repeat_ngram": ngram}
    asked = {"model": model, "source": TEXT, "search": search}
    expected, found = explorer.look(asked)["target"], explorer.look({**asked, "tree": True})
    assert found["target"] == expected
    tree = found["tree"]
    assert [len(step["nodes"]) for step in tree["steps"]][:-1] == [2] * (len(tree["steps"]) - 1)
    assert all(step["nodes"][0]["state"] in ("kept", "finished") for step in tree["steps"])
    assert path_to(tree, tree["best"])[:-1] == expected["token_ids"]


def test_a_prefix_is_the_only_way(explorer: Explorer) -> None:
    best = explorer.look({"source": TEXT, "search": BEAM})
    prefix = [best["top"][0][2]["id"], best["top"][1][3]["id"]]
    tree = explorer.look({"source": TEXT, "search": BEAM, "prefix": prefix, "tree": True})["tree"]
    assert [[node["token_id"] for node in step["nodes"]] for step in tree["steps"][:2]] == [[prefix[0]], [prefix[1]]]
    assert path_to(tree, tree["best"])[:2] == prefix


def test_a_tree_is_bounded(explorer: Explorer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search_tree, "MAX_NODES", 10)
    found = explorer.look({"source": TEXT, "search": BEAM, "tree": True})
    assert 0 < len(nodes_of(found["tree"])) <= 10
    assert found["tree"]["best"] is None
    assert of_text(found["notes"]) == [
        f"the tree has more nodes than are shown, the first {len(nodes_of(found['tree']))}"
    ]
