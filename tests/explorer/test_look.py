"""A look holds what `Translator` gives, and what the model's parts say of it."""

from __future__ import annotations

import json
from pathlib import Path
from threading import Event
from typing import Any

import numpy as np
import pytest
import torch
from explorer.three_models import (
    BEAM,
    CONV,
    NAMES,
    RNN,
    TEXT,
    TRANSFORMER,
    TWO_LAYERS,
    hidden_of,
    slot_of,
    translator_of,
    weights_of,
)
from tiny import of_text, write_checkpoint

from seq2seq_attn.alignment.attention_links import Heads
from seq2seq_attn.alignment.word_alignment import Extraction, to_pharaoh
from seq2seq_attn.attention.build import build_attention
from seq2seq_attn.errors import UserError
from seq2seq_attn.explorer import look as look_module
from seq2seq_attn.explorer.describe import describe
from seq2seq_attn.explorer.look import Explorer
from seq2seq_attn.inference.choose_search import choose_search
from seq2seq_attn.inference.line_answers import best_links
from seq2seq_attn.inference.translator import Translator
from seq2seq_attn.model.encoder_decoder import EncoderDecoder

EXTRACTION = Extraction()
NESTED = {"name": "beam", "beam_size": 3, "num_best": 2, "limits": {"max_length": 6}}  # as `Translator` takes BEAM
ALL = pytest.mark.parametrize("model", [RNN, CONV, TRANSFORMER], ids=NAMES)


@ALL
def test_numbers_are_those_of_the_translator(model: int, explorer: Explorer, translators: list[Translator]) -> None:
    (expected,) = translators[model].translate([TEXT], search=NESTED, maps=True)
    found = explorer.look({"model": model, "source": TEXT, "search": BEAM})
    target = found["target"]
    assert target["text"] == expected.text
    assert target["tokens"] == [*expected.tokens, "</s>"]
    assert target["log_prob"] == pytest.approx(expected.log_prob, abs=1e-6)
    assert target["score"] == pytest.approx(expected.score, abs=1e-6)
    assert sum(target["token_log_probs"]) == pytest.approx(expected.log_prob, abs=1e-6)
    (other,), (alternative,) = expected.alternatives, found["alternatives"]
    assert (alternative["text"], alternative["score"]) == (other.text, pytest.approx(other.score, abs=1e-6))
    tokens = {"source": found["source"]["tokens"], "target": target["tokens"]}
    tokens["target_read"] = ["<s>", *target["tokens"][:-1]]
    assert [slot["name"] for slot in found["slots"]] == [slot_map.slot for slot_map in expected.maps]
    for slot, slot_map in zip(found["slots"], expected.maps, strict=True):
        np.testing.assert_allclose(weights_of(slot), slot_map.weights, atol=1e-6)
        assert tokens[slot["row_tokens"]] == slot_map.rows
        assert tokens[slot["column_tokens"]] == slot_map.columns
        assert (slot["minimum"], slot["maximum"]) == (slot_map.weights.min(), slot_map.weights.max())
    assert json.loads(json.dumps(found, allow_nan=False)) == found


@ALL
def test_links_are_those_that_translations_are_written_with(
    model: int, explorer: Explorer, translators: list[Translator]
) -> None:
    (expected,) = translators[model].translate([TEXT], search=NESTED, maps=True)
    found = explorer.look({"model": model, "source": TEXT, "search": BEAM})["links"]
    layers = {one.slot: len(one.weights) for one in expected.maps if one.slot.startswith("cross/")}
    assert list(found["slots"]) == list(layers)
    for layer, heads in enumerate(layers.values()):
        of_layer = found["slots"][f"cross/{layer}"]
        for head in range(heads):
            assert pharaoh(of_layer["heads"][head]) == to_pharaoh(
                best_links(expected.maps, Heads(layer, head), EXTRACTION)
            )
        assert len(of_layer["heads"]) == heads
        assert pharaoh(of_layer["mean"]) == to_pharaoh(best_links(expected.maps, Heads(layer), EXTRACTION))
    assert (found["default"]["name"], found["default"]["guided"]) == ("mean of all heads", None)
    assert pharaoh(found["default"]["pairs"]) == to_pharaoh(best_links(expected.maps, Heads(), EXTRACTION))
    assert all(links for slot in found["slots"].values() for links in (*slot["heads"], slot["mean"]))
    assert found["default"]["pairs"]


def test_the_links_of_a_guided_run_are_those_of_its_head(translators: list[Translator]) -> None:
    guided = {"links": "eflomal", "weight": 0.05, "layer": None, "head": 1}
    one = translators[TRANSFORMER]
    explorer = Explorer([Translator(one.engine, one.tokenizer, one.config | {"guided_alignment": guided})])
    links = explorer.look({"source": TEXT, "search": BEAM})["links"]
    assert links["default"] == {
        "name": "layer 0, head 1",
        "guided": {"slot": "cross/0", "head": 1},
        "pairs": links["slots"]["cross/0"]["heads"][1],
    }


def test_the_links_of_a_run_that_is_guided_where_a_word_is_read_are_of_that_step(translators: list[Translator]) -> None:
    one = translators[TRANSFORMER]
    (expected,) = one.translate([TEXT], search=NESTED, maps=True)
    found = {}
    for shift in (False, True):
        guided = {"links": "eflomal", "weight": 0.05, "layer": 0, "head": 1, "shift": shift}
        explorer = Explorer([Translator(one.engine, one.tokenizer, one.config | {"guided_alignment": guided})])
        look = explorer.look({"source": TEXT, "search": BEAM})
        assert look["links"]["shift"] == shift
        links = best_links(expected.maps, Heads(0, 1), Extraction(shift=shift))
        found[shift] = pharaoh(look["links"]["default"]["pairs"])
        assert found[shift] == pharaoh(look["links"]["slots"]["cross/0"]["heads"][1]) == to_pharaoh(links)
    assert found[False] != found[True]


def pharaoh(pairs: list[list[int]]) -> str:
    return " ".join(f"{source}-{target}" for source, target in pairs)


@ALL
def test_a_forced_prefix_and_a_forced_translation_have_the_searchs_score(
    model: int, explorer: Explorer, translators: list[Translator]
) -> None:
    asked = {"model": model, "source": TEXT, "search": BEAM}
    second = explorer.look(asked)["top"][0][1]["id"]
    forced = explorer.look({**asked, "prefix": [second]})
    engine = translators[model].engine
    source = translators[model].tokenizer.encode_source([TEXT])
    ((best, *_),) = engine(source, choose_search(NESTED, {}), [[second]])
    target = forced["target"]
    assert target["token_ids"] == best.token_ids
    assert (target["token_ids"][0], target["forced"]) == (second, 1)
    assert target["score"] == pytest.approx(best.score, abs=1e-6)
    whole = explorer.look({**asked, "target_tokens": best.token_ids})["target"]
    assert whole["log_prob"] == pytest.approx(best.log_prob, abs=1e-6)
    assert (whole["score"], whole["forced"]) == (None, len(best.token_ids) + 1)
    np.testing.assert_allclose(whole["token_log_probs"], target["token_log_probs"], atol=1e-9)


def test_a_text_is_forced_token_by_token(explorer: Explorer, translators: list[Translator]) -> None:
    text = "the cat sees a house"
    found = explorer.look({"model": RNN, "source": TEXT, "target": text})
    (ids,) = translators[RNN].tokenizer.encode_target([text])
    assert (found["target"]["text"], found["target"]["token_ids"], found["tree"]) == (text, ids, None)
    best_of_rows = [row[0]["log_prob"] for row in found["top"]]
    assert len(best_of_rows) == len(ids) + 1 == len(found["target"]["token_log_probs"])
    assert all(own <= best for own, best in zip(found["target"]["token_log_probs"], best_of_rows, strict=True))
    assert all(len(row) == 10 for row in found["top"])
    assert all(row == sorted(row, key=lambda token: -token["log_prob"]) for row in found["top"])
    cross = weights_of(slot_of(found, "cross/0"))
    assert cross.shape[1] == len(ids) + 1
    (expected,) = translators[RNN].attention(TEXT, text)
    np.testing.assert_allclose(cross, expected.weights, atol=1e-6)


def test_words_are_those_of_the_text(explorer: Explorer) -> None:
    source = explorer.look({"model": RNN, "source": f"  {TEXT}  "})["source"]
    assert source["text"] == TEXT
    assert source["word_texts"] == TEXT.split()
    assert source["words"][-1] == -1
    for number, word in enumerate(source["word_texts"]):
        of_word = [token for token, own in zip(source["tokens"], source["words"], strict=True) if own == number]
        assert "".join(of_word).replace("▁", "") == word


def test_what_a_pattern_and_causality_forbid_is_hidden(explorer: Explorer) -> None:
    """`alternating` is local in layer 0 and atrous in layer 1, both with k = 4."""
    found = explorer.look({"model": TRANSFORMER, "source": " ".join([TEXT, TEXT]), "search": BEAM})
    for kind in ("encoder", "self"):
        for layer in (0, 1):
            slot = slot_of(found, f"{kind}/{layer}")
            row, column = np.indices((slot["rows"], slot["columns"]))
            forbidden = abs(row - column) > 4 if layer == 0 else (row - column) % 4 != 0
            if kind == "self":
                forbidden |= column > row
            assert slot["hidden_heads"] == 1
            np.testing.assert_array_equal(hidden_of(slot)[0], forbidden)
            assert (weights_of(slot)[:, forbidden] == 0).all()
    assert slot_of(found, "cross/0")["hidden"] is None  # it may attend to everything


@pytest.mark.parametrize("preset", ["linear", "delta"])
def test_a_causal_encoder_hides_what_follows_from_attention_that_keeps_a_sum_too(preset: str, tmp_path: Path) -> None:
    options = ["attention.num_heads=2", "model.encoder.causal=true", *TWO_LAYERS]
    translator = translator_of(tmp_path, "model=transformer", f"attention={preset}", *options)
    found = Explorer([translator]).look({"source": TEXT, "search": BEAM, "hide": [1]})
    slot, words = slot_of(found, "encoder/1"), np.array(found["source"]["words"])
    row, column = np.indices((slot["rows"], slot["columns"]))
    np.testing.assert_array_equal(hidden_of(slot)[0], (column > row) | (words[column] == 1))
    assert (weights_of(slot)[:, column > row] == 0).all()


@pytest.mark.parametrize(
    "overrides",
    [
        ("model=rnn", "attention=coverage", "attention.num_heads=2"),
        ("model=rnn", "attention=monotonic"),
        ("model=rnn", "attention=local_p"),
        ("model=rnn", "attention=lsh", "attention.num_heads=2", "attention.pattern.num_buckets=6"),
        ("model=conv", "attention=fixed_patterns", "attention.num_heads=8", *TWO_LAYERS),
        ("model=conv", "attention=differential", "attention.num_heads=2", *TWO_LAYERS),
        ("model=transformer", "attention=linear", "attention.num_heads=2", *TWO_LAYERS),
    ],
    ids=lambda overrides: overrides[1],
)
def test_every_kind_of_attention_has_maps_of_the_search(overrides: tuple[str, ...], tmp_path: Path) -> None:
    translator = translator_of(tmp_path, *overrides)
    (expected,) = translator.translate([TEXT], search=NESTED, maps=True)
    found = Explorer([translator]).look({"source": TEXT, "search": BEAM})
    assert sum(found["target"]["token_log_probs"]) == pytest.approx(expected.log_prob, abs=1e-6)
    for slot, slot_map in zip(found["slots"], expected.maps, strict=True):
        np.testing.assert_allclose(weights_of(slot), slot_map.weights, atol=1e-6)
        if slot["hidden"] is not None:
            assert (weights_of(slot) * hidden_of(slot) == 0).all()
    hidden = {slot["name"]: slot["hidden_heads"] for slot in found["slots"]}
    preset = overrides[1].partition("=")[2]
    assert (
        hidden
        == {
            "coverage": {"cross/0": None},
            "monotonic": {"cross/0": None},
            "local_p": {"cross/0": 1},
            "lsh": {"cross/0": 2},  # each head has its own buckets
            "fixed_patterns": {"cross/0": 8, "cross/1": 8},
            "differential": {"cross/0": None, "cross/1": None},
            "linear": {
                "encoder/0": None,
                "encoder/1": None,
                "self/0": 1,
                "self/1": 1,
                "cross/0": None,
                "cross/1": None,
            },
        }[preset]
    )


def test_the_summary_of_a_head_by_hand() -> None:
    weights = torch.tensor([[[0.0, 1.0, 0.0], [0.25, 0.25, 0.5], [0.0, 0.0, 0.0]]])
    (found,) = look_module.summaries(weights, "encoder", [0, 0, 1], ["word", "</s>"])
    assert found["entropy"] == pytest.approx((0 + 1.5 * np.log(2)) / 2)  # a row without weight does not count
    assert found["diagonal"] == pytest.approx((1 + 1) / 2)
    assert found["sink"] == pytest.approx(0.5 / 2)
    assert found["previous"] == pytest.approx(0.25 / 2)
    assert found["mostly"] == [{"word": "word", "share": 0.75}, {"word": "</s>", "share": 0.25}]
    aligned = torch.tensor([[[1.0, 0.0, 0.0, 0.0], [0.0, 0.0, 0.0, 1.0]], [[0.0, 0.0, 1.0, 0.0], [0.5, 0.0, 0.5, 0.0]]])
    on, off = look_module.summaries(aligned, "cross", [0, 1, 2, 3], ["a", "b", "c", "</s>"])
    assert (on["diagonal"], off["diagonal"]) == (1.0, 0.25)  # of 2 rows and 4 columns: row 1 is at column 3
    last = torch.zeros(1, 14, 8)
    last[0, 13, 6] = 1.0  # beside the diagonal, which ends at column 7
    assert look_module.summaries(last, "cross", [0] * 8, [""])[0]["diagonal"] == 1.0
    (negative,) = look_module.summaries(-weights, "encoder", [0, 0, 1], ["word", "</s>"])
    assert negative == found


def test_long_answers_have_16_bits_or_fewer_slots(explorer: Explorer, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: dict[str, Any] = {"model": TRANSFORMER, "source": TEXT, "search": BEAM}
    expected = slot_of(explorer.look(asked), "cross/1")
    monkeypatch.setattr(look_module, "MAX_FLOAT32", 10)
    found = slot_of(explorer.look(asked), "cross/1")
    assert (expected["dtype"], found["dtype"]) == ("float32", "float16")
    np.testing.assert_allclose(weights_of(found), weights_of(expected), atol=1e-3)
    monkeypatch.setattr(look_module, "MAX_WEIGHTS", weights_of(expected).size)
    with pytest.raises(UserError, match="are the most; shorten it"):
        explorer.look(asked)
    assert [slot["name"] for slot in explorer.look({**asked, "slots": ["cross/1"]})["slots"]] == ["cross/1"]


def test_the_models_are_described(explorer: Explorer, translators: list[Translator]) -> None:
    found = explorer.models()
    assert json.loads(json.dumps(found, allow_nan=False)) == found
    assert [model["architecture"] for model in found["models"]] == ["RNN", "ConvS2S", "Transformer"]
    assert [model["run"] for model in found["models"]] == ["runs/a", "runs/b", "runs/c"]
    assert found["searches"]["beam"]["beam_size"] == 5
    assert found["searches"]["beam"]["limits.max_length"] == 512
    for model, translator in zip(found["models"], translators, strict=True):
        assert model["default_search"]["name"] == "greedy"
        assert model["tokenizer"] == translator.tokenizer.fingerprint
        assert model["parameters"] == sum(p.numel() for p in translator.engine.model.parameters())  # type: ignore[attr-defined]
    presets = [{slot["name"]: slot["preset"] for slot in model["slots"]} for model in found["models"]]
    dense = "synthesizer_dense_vanilla"
    assert presets[RNN] == {"cross/0": "bahdanau"}
    assert presets[CONV] == {"cross/0": "luong_dot", "cross/1": "luong_dot"}
    assert presets[TRANSFORMER] == {
        "encoder/0": "alternating", "encoder/1": "alternating", "self/0": "alternating", "cross/0": dense,
        "self/1": "alternating", "cross/1": dense,
    }  # fmt: skip
    (slot,) = found["models"][RNN]["slots"]
    assert slot["title"].startswith("Additive attention")
    assert "v . tanh(W q + U k)" in slot["formula"]
    assert slot["parts"]["score"].startswith("additive: v . tanh(W q + U k)")
    assert slot["parts"]["mix"] is None
    assert slot["sums_to_one"] is True
    assert slot["changes"] == ["knock_out", "uniform"]


@pytest.mark.parametrize(
    ("runs", "names"),
    [
        (["runs/a", "runs/b"], ["Transformer, x (a)", "Transformer, x (b)"]),
        (["one/a", "two/a"], ["Transformer, x (one/a)", "Transformer, x (two/a)"]),
        (["", ""], ["Transformer, x (1)", "Transformer, x (2)"]),
        (["runs/a", "runs/a"], ["Transformer, x (1)", "Transformer, x (2)"]),
    ],
)
def test_models_of_one_name_are_told_apart(runs: list[str], names: list[str]) -> None:
    models = [{"name": "Transformer, x", "run": run} for run in runs]
    assert [model["name"] for model in look_module.told_apart(models)] == names
    other = {"name": "RNN, x", "run": "runs/a"}
    assert look_module.told_apart([models[0], other]) == [models[0], other]


def test_an_explorer_of_two_runs_of_one_kind_names_both(translators: list[Translator]) -> None:
    twice = Explorer([translators[RNN]] * 2, ["runs/a", "runs/b"]).models()["models"]
    assert [model["name"] for model in twice] == ["RNN (a)", "RNN (b)"]


@pytest.mark.parametrize(
    ("preset", "parts"),
    [
        ("synthesizer_dense_vanilla", ["W2 relu(W1 x + b1) + b2", "(W q) . (U k) / sqrt(d_k)", "exp(score) / sum of"]),
        ("synthesizer_random_dense", ["W2 relu(W1 x + b1) + b2", "Random synthesizer: R,"]),
        ("soft_cap", ["c tanh(score / c)", "(W q) . (U k) / sqrt(d_k)"]),
        ("entmax15", ["q . W k", "between softmax and sparsemax"]),
        ("linear", ["phi(x) = elu(x) + 1"]),
        ("gated_delta", ["f_t = sigmoid(w . x_t + b)"]),
    ],
)
def test_a_description_holds_the_formula_of_each_component(preset: str, parts: list[str]) -> None:
    found = describe(build_attention(preset, query_dim=16, key_dim=16, num_heads=1).attention, None, None)
    for part in parts:
        assert part in found["formula"]
        assert any(part in text for text in found["parts"].values() if text is not None)


def test_the_delta_rule_is_described_by_its_own_formula() -> None:
    layer = build_attention("gated_delta", query_dim=16, key_dim=16, num_heads=1).attention
    found = describe(layer, None, None)
    assert found["formula"].startswith("Delta rule: S_t = f_t (I - b_t k_t k_t^T) S_(t-1) + b_t k_t v_t^T, c_t = ")
    assert not found["sums_to_one"]
    assert found["changes"] == ["knock_out"]  # the page offers no other
    linear = describe(build_attention("linear", query_dim=16, key_dim=16, num_heads=1).attention, None, None)
    assert linear["formula"].startswith("Linear feature map: ")
    assert linear["sums_to_one"]
    assert linear["changes"] == ["knock_out", "uniform"]


def test_an_ensemble_is_refused(translators: list[Translator], tmp_path: Path) -> None:
    files = [write_checkpoint(tmp_path / f"{seed}.ckpt", seed=seed) for seed in (1, 2)]
    with pytest.raises(UserError, match="not at an ensemble's"):
        Explorer([Translator.load(files, device="cpu")])
    with pytest.raises(UserError, match="needs a model"):
        Explorer([])


def test_a_language_model_is_refused(translators: list[Translator], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(EncoderDecoder, "reads_source", False)
    with pytest.raises(UserError, match="and this is a language model"):
        Explorer([translators[0]])


def test_a_model_whose_attention_has_no_weights_is_refused(
    translators: list[Translator], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("seq2seq_attn.inference.engine.attention_along_batch", lambda *given: [[] for _ in given[2]])
    with pytest.raises(UserError, match=r"^this model's attention has no weights, and the explorer shows weights; "):
        Explorer([translators[0]])


def test_a_search_that_takes_too_long_is_stopped(translators: list[Translator]) -> None:
    hasty = Explorer(translators, max_seconds=0.0)
    with pytest.raises(UserError, match="the search took longer than 0 seconds; use a smaller one"):
        hasty.look({"source": TEXT})
    assert not translators[RNN].engine.model.embed_target._forward_pre_hooks  # type: ignore[attr-defined]


def test_a_search_that_nobody_waits_for_is_stopped(explorer: Explorer) -> None:
    stopped = Event()
    assert explorer.look({"source": TEXT}, stopped)["target"]["text"]
    stopped.set()
    with pytest.raises(UserError, match="the search was stopped"):
        explorer.look({"source": TEXT}, stopped)


def test_searches_without_a_tree_say_so(explorer: Explorer) -> None:
    found = explorer.look({"source": TEXT, "search": {"name": "sampling", "num_samples": 2}, "tree": True})
    assert found["tree"] is None
    assert of_text(found["notes"]) == ["only beam search and greedy search have a tree"]


@pytest.mark.parametrize("tree", [False, True])
def test_a_translation_with_as_many_tokens_as_it_may_have_is_noted(explorer: Explorer, tree: bool) -> None:
    search = {"name": "greedy", "limits.max_length": 2}
    cut = explorer.look({"source": TEXT, "search": search, "tree": tree})
    assert cut["notes"] == ["its translation may be cut at 2 tokens, the most that search.limits.max_length allows"]
    full = explorer.look({"source": TEXT, "search": search, "tree": tree, "prefix": cut["target"]["token_ids"]})
    assert full["notes"] == ["nothing is added to its prefix of 2 tokens, since search.limits.max_length allows 2"]
