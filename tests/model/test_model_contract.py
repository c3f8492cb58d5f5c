"""What every model keeps: for every decoder and attention, in float64."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from configs import model_of, options
from torch import Tensor

DECODERS = options("decoder")
ATTENTIONS = options("attention")
VARIANTS = ["model.decoder.cell=lstm", "model.decoder.num_layers=2", "model.encoder.num_layers=2"]
pytestmark = pytest.mark.usefixtures("double")

SOURCE = torch.tensor([[4, 5, 6, 7, 3], [8, 9, 3, 0, 0], [10, 3, 0, 0, 0]])
SOURCE_MASK = SOURCE != 0
TARGET = torch.tensor([[2, 4, 5, 6, 7, 8], [2, 9, 10, 0, 0, 0], [2, 11, 0, 0, 0, 0]])


def build(decoder: str, attention: str, *overrides: str) -> Any:
    return model_of(f"decoder@model.decoder={decoder}", f"attention={attention}", *overrides).eval()


def hidden(model: Any, source: Tensor, mask: Tensor, target: Tensor) -> Tensor:
    return model(source, mask, target).hidden


@pytest.mark.parametrize("variant", ["", *VARIANTS])
@pytest.mark.parametrize("attention", ATTENTIONS)
@pytest.mark.parametrize("decoder", DECODERS)
def test_one_step_at_a_time_equals_teacher_forcing(decoder: str, attention: str, variant: str) -> None:
    model = build(decoder, attention, *([variant] if variant else []))
    expected = hidden(model, SOURCE, SOURCE_MASK, TARGET)
    state, steps = model.encode(SOURCE, SOURCE_MASK), []
    for t in range(TARGET.shape[1]):
        decoded = model.decode(TARGET[:, t : t + 1], state)
        state = decoded.state
        assert state.place == t + 1
        steps.append(decoded.hidden)
    torch.testing.assert_close(torch.cat(steps, 1), expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("attention", ATTENTIONS)
@pytest.mark.parametrize("decoder", DECODERS)
def test_padding_and_neighbours_change_nothing(decoder: str, attention: str) -> None:
    model = build(decoder, attention)
    together = hidden(model, SOURCE, SOURCE_MASK, TARGET)
    alone = hidden(model, SOURCE[1:2, :3], SOURCE_MASK[1:2, :3], TARGET[1:2, :3])
    torch.testing.assert_close(together[1:2, :3], alone, rtol=0, atol=1e-12)


@pytest.mark.parametrize("attention", ATTENTIONS)
@pytest.mark.parametrize("decoder", DECODERS)
def test_a_hidden_state_depends_on_no_later_target(decoder: str, attention: str) -> None:
    model = build(decoder, attention)
    state = model.encode(SOURCE, SOURCE_MASK)
    embedded = model.embed_target(TARGET).detach().requires_grad_()
    model.decoder(embedded, state).hidden[:, 2].sum().backward()
    assert (embedded.grad[:, 3:] == 0).all()
    assert (embedded.grad[:, :3] != 0).any()


@pytest.mark.parametrize("attention", ATTENTIONS)
@pytest.mark.parametrize("decoder", DECODERS)
def test_every_parameter_gets_a_gradient(decoder: str, attention: str) -> None:
    model = build(decoder, attention)
    model.logits(hidden(model, SOURCE, SOURCE_MASK, TARGET)).square().mean().backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.isfinite().all(), name


@pytest.mark.parametrize("attention", ATTENTIONS)
@pytest.mark.parametrize("decoder", DECODERS)
def test_asking_for_weights_changes_nothing_and_gives_a_row_for_each_target(
    decoder: str, attention: str
) -> None:
    model = build(decoder, attention)
    plain = model(SOURCE, SOURCE_MASK, TARGET)
    asked = model(SOURCE, SOURCE_MASK, TARGET, need_weights=True)
    torch.testing.assert_close(plain.hidden, asked.hidden, rtol=0, atol=1e-12)
    assert plain.weights == {}
    assert asked.weights["cross/0"].shape == (3, 1, 6, 5)
    assert (asked.weights["cross/0"][1, :, :, 3:] == 0).all()


@pytest.mark.parametrize("decoder", DECODERS)
def test_a_reordered_state_decodes_as_the_reordered_batch(decoder: str) -> None:
    model = build(decoder, "bahdanau")
    rows = torch.tensor([2, 0, 0])
    state = model.decode(TARGET[:, :2], model.encode(SOURCE, SOURCE_MASK)).state.select(rows)
    found = model.decode(TARGET[rows, 2:], state).hidden
    expected = hidden(model, SOURCE, SOURCE_MASK, TARGET)[rows, 2:]
    # Rows have other targets behind place 2 only through `rows` itself, so they must agree.
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)


def test_luong_without_input_feeding_equals_its_own_steps() -> None:
    model = build("rnn_luong", "luong_general", "model.decoder.input_feeding=false")
    expected = hidden(model, SOURCE, SOURCE_MASK, TARGET)
    state, steps = model.encode(SOURCE, SOURCE_MASK), []
    for t in range(TARGET.shape[1]):
        decoded = model.decode(TARGET[:, t : t + 1], state)
        state = decoded.state
        steps.append(decoded.hidden)
    torch.testing.assert_close(torch.cat(steps, 1), expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("tie", ["none", "target", "all"])
def test_tied_embeddings_are_one_matrix(tie: str) -> None:
    model = model_of(f"model.tie_embeddings={tie}", source_vocab_size=17, target_vocab_size=17)
    assert (model.output.weight is model.embed_target.weight) == (tie != "none")
    assert (model.embed_source.weight is model.embed_target.weight) == (tie == "all")


@pytest.mark.parametrize("decoder", DECODERS)
def test_a_tied_output_layer_reads_a_decoder_of_any_width(decoder: str) -> None:
    model = build(decoder, "bahdanau", "model.tie_embeddings=target")
    assert model.output.weight is model.embed_target.weight
    assert (model.narrow is None) == (model.decoder.output_dim == 11)
    assert model.logits(hidden(model, SOURCE, SOURCE_MASK, TARGET)).shape == (3, 6, 19)


def test_embeddings_of_two_vocabularies_cannot_be_tied() -> None:
    sentence = "model.tie_embeddings=all needs one vocabulary for both languages; use tokenizer.joint=true"
    with pytest.raises(Exception, match=sentence):
        model_of("model.tie_embeddings=all")
