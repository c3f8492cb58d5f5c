"""A change of a head equals its definition, is the same in a search and along a translation, and ends."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
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
    hidden_of,
    slot_of,
    translator_of,
    weights_of,
)
from tiny import of_text
from torch import Tensor

from seq2seq_attn.data.collate import collate_sources
from seq2seq_attn.errors import UserError
from seq2seq_attn.explorer.intervention import Intervention, attention_layers, hidden, intervened
from seq2seq_attn.explorer.look import Explorer
from seq2seq_attn.inference.translator import Translator

TARGET = [7, 9, 12, 8, 11]
ALL = pytest.mark.parametrize("model", [RNN, CONV, TRANSFORMER], ids=NAMES)


def batch_of(translator: Translator) -> tuple[Tensor, Tensor, Tensor]:
    tokenizer = translator.tokenizer
    (ids,) = tokenizer.encode_source([TEXT])
    source, _, mask = collate_sources([ids], pad_id=tokenizer.pad_id, eos_id=tokenizer.eos_id)
    return source, mask, torch.tensor([[tokenizer.bos_id, *TARGET]])


def hidden_states(translator: Translator) -> Tensor:
    model: Any = translator.engine.model  # type: ignore[attr-defined]
    with torch.inference_mode():
        return model(*batch_of(translator)).hidden


def intervened_states(translator: Translator, *interventions: Intervention) -> Tensor:
    with intervened(translator.engine.model, interventions):  # type: ignore[attr-defined]
        return hidden_states(translator)


@contextmanager
def before_output_projection(layer: Any, change: Callable[[Tensor], Tensor]) -> Iterator[None]:
    """Change the joined contexts that the projection of the output reads."""
    handle = layer.project_output[0].register_forward_pre_hook(lambda _, given: (change(given[0]),))
    yield
    handle.remove()


def without(head: int, width: int) -> Callable[[Tensor], Tensor]:
    """Return what sets the columns of a head to 0."""

    def change(context: Tensor) -> Tensor:
        context = context.clone()
        context[..., head * width : (head + 1) * width] = 0
        return context

    return change


@pytest.mark.parametrize("slot", ["encoder/1", "self/0", "cross/1"])
def test_a_head_of_a_transformer_knocked_out_is_0_before_the_output_projection(
    slot: str, translators: list[Translator]
) -> None:
    translator = translators[TRANSFORMER]
    model: Any = translator.engine.model  # type: ignore[attr-defined]
    kind, _, number = slot.partition("/")
    side = model.encoder if kind == "encoder" else model.decoder
    layer = getattr(side.layers[int(number)], {"encoder": "attention"}.get(kind, f"{kind}_attention"))
    with before_output_projection(layer, without(1, 8)):
        expected = hidden_states(translator)
    found = intervened_states(translator, Intervention("knock_out", slot, 1))
    torch.testing.assert_close(found, expected)
    assert not torch.allclose(found, hidden_states(translator))


def test_a_head_of_a_conv_decoder_knocked_out_is_0_in_its_slice_of_the_context(translators: list[Translator]) -> None:
    translator = translators[CONV]
    layer: Any = translator.engine.model.decoder.layers[1].attention  # type: ignore[attr-defined]
    assert layer.project_output is None
    handle = layer.register_forward_hook(
        lambda _, given, attended: attended._replace(context=without(0, 8)(attended.context))
    )
    expected = hidden_states(translator)
    handle.remove()
    found = intervened_states(translator, Intervention("knock_out", "cross/1", 0))
    torch.testing.assert_close(found, expected)
    assert not torch.allclose(found, hidden_states(translator))


def test_the_layer_of_an_rnn_knocked_out_gives_a_context_of_0(translators: list[Translator]) -> None:
    """By the decoder's formula: s_t = f([e_t; 0], s_{t-1}), output tanh(W [s_t; 0; e_t])."""
    translator = translators[RNN]
    model: Any = translator.engine.model  # type: ignore[attr-defined]
    source, mask, target_input = batch_of(translator)
    with torch.inference_mode():
        embedded = model.embed_target(target_input)
        decoder, layers, states = model.decoder, model.encode(source, mask).layers, []
        nothing = torch.zeros(1, decoder.attention.context_dim, dtype=torch.float64)
        for known in decoder.stack.token_gates(embedded):
            output, layers = decoder.stack(known, nothing, layers)
            states.append(torch.cat([output, nothing], -1))
        expected = decoder.readout(torch.cat([torch.stack(states, 1), embedded], -1))
    torch.testing.assert_close(intervened_states(translator, Intervention("knock_out", "cross/0", None)), expected)


def test_a_uniform_head_averages_the_values(translators: list[Translator]) -> None:
    translator = translators[TRANSFORMER]
    model: Any = translator.engine.model  # type: ignore[attr-defined]
    source, mask, _ = batch_of(translator)
    layer = model.decoder.layers[0].cross_attention
    with torch.inference_mode():
        mean = layer.project_values(model.encoder(model.embed_source(source) * model.scale, mask).values).mean(1)

    def change(context: Tensor) -> Tensor:
        return torch.cat([mean[:, None, :8].expand(-1, context.shape[1], -1), context[..., 8:]], -1)

    with before_output_projection(layer, change):
        expected = hidden_states(translator)
    torch.testing.assert_close(intervened_states(translator, Intervention("uniform", "cross/0", 0)), expected)


@ALL
def test_uniform_weights_are_equal_wherever_the_head_may_attend(model: int, explorer: Explorer) -> None:
    slots = ["encoder/0", "self/1", "cross/0"] if model == TRANSFORMER else ["cross/0"]
    changes = [{"do": "uniform", "slot": slot, "head": 0} for slot in slots]
    found = explorer.look({"model": model, "source": TEXT, "search": BEAM, "interventions": changes})
    for name in slots:
        slot = slot_of(found, name)
        free = np.ones((slot["rows"], slot["columns"])) if slot["hidden"] is None else ~hidden_of(slot)[0]
        np.testing.assert_allclose(weights_of(slot)[0], free / free.sum(-1, keepdims=True), atol=1e-6)


@ALL
@pytest.mark.parametrize("do", ["knock_out", "uniform", "hide"])
def test_a_search_and_a_given_translation_see_the_same_change(do: str, model: int, explorer: Explorer) -> None:
    asked: dict[str, Any] = {"model": model, "source": TEXT, "search": BEAM}
    slots = ["encoder/1", "self/0", "self/1", "cross/1"] if model == TRANSFORMER else ["cross/0"]
    changes = {"interventions": [{"do": do, "slot": slot, "head": None} for slot in slots]}
    found = explorer.look({**asked, **({"hide": [0, 2]} if do == "hide" else changes)})
    target = found["target"]
    assert sum(target["token_log_probs"]) == pytest.approx(target["log_prob"], abs=1e-6)
    plain = explorer.look({**asked, "target_tokens": target["token_ids"]})["target"]
    assert abs(plain["log_prob"] - target["log_prob"]) > 1e-3
    if do == "knock_out":
        assert all((weights_of(slot_of(found, slot)) == 0).all() for slot in slots)


@pytest.mark.parametrize("do", ["knock_out", "uniform"])
@pytest.mark.parametrize(
    "preset", ["linear", "gated_linear", "talking_heads", "differential", "local_p", "coverage", "lsh"]
)
def test_every_kind_of_attention_is_changed_alike_at_each_step(preset: str, do: str, tmp_path: Path) -> None:
    model = ["model=rnn"] if preset == "coverage" else ["model=transformer"]
    layers = [] if preset == "coverage" else ["model.encoder.num_layers=1", "model.decoder.num_layers=1"]
    lsh = ["attention.pattern.num_buckets=6"] if preset == "lsh" else []
    translator = translator_of(tmp_path, *model, f"attention={preset}", "attention.num_heads=2", *layers, *lsh)
    explorer, slot = Explorer([translator]), "cross/0" if preset == "coverage" else "self/0"
    asked = {"source": TEXT, "search": BEAM, "interventions": [{"do": do, "slot": slot, "head": 1}]}
    found = explorer.look(asked)
    assert sum(found["target"]["token_log_probs"]) == pytest.approx(found["target"]["log_prob"], abs=1e-6)
    weights, hidden_pairs = weights_of(slot_of(found, slot))[1], slot_of(found, slot)["hidden"]
    free = np.ones(weights.shape) if hidden_pairs is None else ~hidden_of(slot_of(found, slot))[-1]
    expected = np.zeros(weights.shape) if do == "knock_out" else free / np.maximum(1, free.sum(-1, keepdims=True))
    np.testing.assert_allclose(weights, expected, atol=1e-6)


def test_a_head_of_the_delta_rule_is_knocked_out_and_cannot_be_uniform(tmp_path: Path) -> None:
    layers = ["model.encoder.num_layers=1", "model.decoder.num_layers=1"]
    translator = translator_of(tmp_path, "model=transformer", "attention=gated_delta", "attention.num_heads=2", *layers)
    explorer = Explorer([translator])
    asked: dict[str, Any] = {"source": TEXT, "search": BEAM}
    found = explorer.look(asked | {"interventions": [{"do": "knock_out", "slot": "self/0", "head": 1}]})
    assert sum(found["target"]["token_log_probs"]) == pytest.approx(found["target"]["log_prob"], abs=1e-6)
    weights = weights_of(slot_of(found, "self/0"))
    assert (weights[1] == 0).all()
    assert (weights[0] != 0).any()
    for slot in ("encoder/0", "self/0"):
        layer: Any = attention_layers(translator.engine.model)[slot]  # type: ignore[attr-defined]
        with before_output_projection(layer, without(1, layer.context_dim // 2)):
            expected = hidden_states(translator)
        torch.testing.assert_close(intervened_states(translator, Intervention("knock_out", slot, 1)), expected)
        assert not torch.allclose(expected, hidden_states(translator))
    with pytest.raises(
        UserError, match=r"^the weights of self/0 come from the delta rule and cannot be made uniform; use kno"
    ):
        explorer.look(asked | {"interventions": [{"do": "uniform", "slot": "self/0", "head": None}]})


@ALL
def test_hidden_words_are_masked_as_padding_is(model: int, explorer: Explorer) -> None:
    found = explorer.look({"model": model, "source": TEXT, "search": BEAM, "hide": [1]})
    columns = [word == 1 for word in found["source"]["words"]]
    slots = [slot for slot in found["slots"] if slot["kind"] != "self"]
    for slot in slots:
        assert (weights_of(slot)[:, :, columns] == 0).all()
        assert hidden_of(slot)[:, :, columns].all()
        np.testing.assert_allclose(weights_of(slot).sum(-1), 1, atol=1e-6)
    (note,) = of_text(found["notes"])
    word = TEXT.split()[1]
    expected = f"hidden in encoder and cross-attention: {word}"
    if model != TRANSFORMER:
        expected = f"hidden in cross-attention only: {word}; the encoder reads them"
    assert note == expected


def test_the_first_words_hidden_from_a_transformer_are_left_out_of_everything(translators: list[Translator]) -> None:
    """What a hidden word is does not change the translation's probability."""
    translator = translators[TRANSFORMER]
    model: Any = translator.engine.model  # type: ignore[attr-defined]
    source, mask, target_input = batch_of(translator)
    visible = torch.arange(source.shape[1]) != 2
    other = source.clone()
    other[0, 2] = 20
    with hidden(model, visible), torch.inference_mode():
        expected, found = (model(ids, mask, target_input).hidden for ids in (source, other))
    torch.testing.assert_close(found, expected)


@ALL
def test_the_model_is_as_before_afterwards_even_after_an_error(model: int, translators: list[Translator]) -> None:
    translator = translators[model]
    module: Any = translator.engine.model  # type: ignore[attr-defined]
    before = hidden_states(translator)
    everything = [Intervention("uniform", slot, None) for slot in attention_layers(module)]
    nothing = torch.zeros(1, dtype=torch.bool)
    with pytest.raises(ZeroDivisionError), hidden(module, nothing), intervened(module, everything):
        raise ZeroDivisionError
    assert torch.equal(hidden_states(translator), before)
    assert all(layer.change_weights is None for layer in attention_layers(module).values())  # type: ignore[attr-defined]
    assert not module.encoder._forward_hooks
    assert not module.encoder._forward_pre_hooks


def test_attention_by_features_hides_words_and_is_as_before_afterwards(tmp_path: Path) -> None:
    layers = ["model.encoder.num_layers=1", "model.decoder.num_layers=1", "attention.num_heads=2"]
    translator = translator_of(tmp_path, "model=transformer", "attention=linear", *layers)
    before = hidden_states(translator)
    found = Explorer([translator]).look(
        {
            "source": TEXT,
            "search": BEAM,
            "hide": [0],
            "interventions": [{"do": "uniform", "slot": "self/0", "head": None}],
        }
    )
    assert sum(found["target"]["token_log_probs"]) == pytest.approx(found["target"]["log_prob"], abs=1e-6)
    columns = [word == 0 for word in found["source"]["words"]]
    for slot in ("encoder/0", "cross/0"):
        assert (weights_of(slot_of(found, slot))[:, :, columns] == 0).all()
        assert (hidden_of(slot_of(found, slot)) == columns).all()
    assert torch.equal(hidden_states(translator), before)


def test_what_the_model_does_not_have_is_refused(translators: list[Translator]) -> None:
    module: Any = translators[RNN].engine.model  # type: ignore[attr-defined]
    for slot, head, sentence in [("self/0", None, "no attention self/0"), ("cross/0", 1, "none is number 1")]:
        changed = intervened(module, [Intervention("uniform", slot, head)])
        with pytest.raises(UserError, match=sentence), changed:
            pass
