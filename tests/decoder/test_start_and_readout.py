"""What a recurrent decoder starts from, and what it gives to the output layer, compared with their formulas."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from configs import built, composed, model_of
from hydra.errors import InstantiationException
from torch import Tensor

from seq2seq_attn.encoder.encoder import Encoded

DECODERS = ["rnn", "rnn_conditional", "rnn_luong"]
SIZES = ["model.embedding_dim=10", "model.encoder.dim=6", "model.decoder.dim=6"]


def model(decoder: str, *overrides: str) -> Any:
    return model_of(f"decoder@model.decoder={decoder}", "attention=bahdanau", *SIZES, *overrides).eval()


@pytest.mark.parametrize("cell", ["gru", "lstm"])
@pytest.mark.parametrize("decoder", DECODERS)
def test_a_decoder_starts_from_the_last_states_of_the_encoders_layers(decoder: str, cell: str) -> None:
    cells = [f"model.{side}.{option}" for side in ("encoder", "decoder") for option in (f"cell={cell}", "num_layers=2")]
    ours = model(decoder, "model.decoder.start=states", *cells)
    source = torch.tensor([[4, 5, 6, 7, 3], [8, 9, 3, 0, 0]])
    encoded = ours._read(source, source != 0)
    assert ours.decoder.stack.bridge is None
    assert ours.decoder.initial_state(encoded).layers == encoded.states
    assert [len(layer) for layer in encoded.states] == [{"gru": 1, "lstm": 2}[cell]] * 2
    # the first half is of the forward direction at the last token, the second of the backward one at the first token
    forward, backward = encoded.states[1][0].split(3, -1)
    last = torch.stack([encoded.keys[0, 4], encoded.keys[1, 2]])
    torch.testing.assert_close(forward, last[:, :3])
    torch.testing.assert_close(backward, encoded.keys[:, 0, 3:])
    assert not torch.equal(encoded.states[0][0], encoded.states[1][0])


@pytest.mark.parametrize(
    ("overrides", "sentence"),
    [
        (["model.encoder.num_layers=2"], "has 2 gru layers of width 6, the decoder 1 gru layer of width 6; give both"),
        (["model.encoder.cell=lstm"], "has 1 lstm layer of width 6, the decoder 1 gru layer of width 6; give both the"),
        (["model.encoder.dim=8"], "the encoder has 1 gru layer of width 8, the decoder 1 gru"),
        (["encoder@model.encoder=transformer"], "has no recurrent layers, .* or use model.decoder.start=summary"),
    ],
)
def test_an_encoder_with_other_layers_is_refused(overrides: list[str], sentence: str) -> None:
    with pytest.raises(InstantiationException, match=sentence):
        model("rnn", "model.decoder.start=states", "attention.num_heads=1", *overrides)


@pytest.mark.parametrize("decoder", DECODERS)
@pytest.mark.parametrize("cell", ["gru", "lstm"])
@pytest.mark.parametrize("precision", [torch.bfloat16, torch.float16])
def test_states_of_the_encoder_start_a_decoder_in_half_precision(
    decoder: str, cell: str, precision: torch.dtype
) -> None:
    cells = [f"model.{side}.cell={cell}" for side in ("encoder", "decoder")]
    ours = model(decoder, "model.decoder.start=states", *cells)
    source, target = torch.tensor([[4, 5, 6, 7, 3], [8, 9, 3, 0, 0]]), torch.tensor([[2, 4, 5], [2, 6, 0]])
    exact = ours(source, source != 0, target).hidden
    with torch.autocast("cpu", precision):
        found = ours(source, source != 0, target).hidden
    torch.testing.assert_close(found.float(), exact, rtol=0, atol=0.05)
    found.float().sum().backward()


@pytest.mark.parametrize(
    ("options", "named"), [(["layer_norm=true"], "layer_norm"), (["residual=true", "num_layers=2"], "residual")]
)
def test_the_papers_maxout_is_refused_with_what_its_state_would_not_have(options: list[str], named: str) -> None:
    chosen = [f"model.decoder.{option}" for option in options]
    with pytest.raises(InstantiationException, match=rf"which has no {named}; use model.decoder.{named}=false, or rea"):
        model("rnn", "model.decoder.readout=maxout", *chosen)
    model("rnn_conditional", "model.decoder.readout=maxout", *chosen)
    model("rnn", "model.decoder.readout=maxout", "model.decoder.residual=true")


def decoded(kind: str) -> tuple[Any, Encoded, Tensor, Any]:
    config = composed("model.decoder.dim=6", "attention=luong_general", f"model.decoder.readout={kind}")
    decoder = built(config.model.decoder)(input_dim=5, key_dim=7, value_dim=7, summary_dim=4).eval()
    source, embedded = torch.randn(2, 3, 7), torch.randn(2, 4, 5)
    encoded = Encoded(source, source, torch.ones(2, 3, dtype=torch.bool), torch.randn(2, 4))
    return decoder, encoded, embedded, decoder(embedded, decoder.initial_state(encoded))


@pytest.mark.usefixtures("double")
@pytest.mark.parametrize("kind", ["linear", "tanh", "maxout"])
def test_a_readout_is_its_formula(kind: str) -> None:
    decoder, encoded, embedded, found = decoded(kind)
    layers, expected = decoder.stack.start(encoded), []
    memory = decoder.attention.prepare(encoded.keys, encoded.values, encoded.mask)
    for token, known in zip(embedded.unbind(1), decoder.stack.token_gates(embedded), strict=True):
        before = layers[-1][0]
        context = decoder.attention(before[:, None], memory).context[:, 0]
        state, layers = decoder.stack(known, context, layers)
        if kind == "linear":
            expected.append(state)
            continue
        linear = torch.cat([before if kind == "maxout" else state, context, token], -1) @ decoder.readout.weight.T
        linear = linear + decoder.readout.bias
        expected.append(torch.tanh(linear) if kind == "tanh" else torch.maximum(linear[:, 0::2], linear[:, 1::2]))
    torch.testing.assert_close(found.hidden, torch.stack(expected, 1), rtol=0, atol=1e-12)
    state, steps = decoder.initial_state(encoded), []
    for t in range(4):
        step = decoder(embedded[:, t : t + 1], state)
        state = step.state
        steps.append(step.hidden)
    torch.testing.assert_close(torch.cat(steps, 1), found.hidden, rtol=0, atol=1e-12)
    assert decoder.output_dim == found.hidden.shape[-1] == {"linear": 6, "tanh": 5, "maxout": 5}[kind]


def test_a_linear_readout_has_no_dropout_of_its_own() -> None:
    decoder, encoded, embedded, found = decoded("linear")
    again = decoder.train()(embedded, decoder.initial_state(encoded))
    assert torch.equal(again.hidden, found.hidden)


@pytest.mark.usefixtures("double")
@pytest.mark.parametrize("activation", ["tanh", "none"])
@pytest.mark.parametrize("input_feeding", [True, False])
def test_luongs_attentional_state_is_its_formula(input_feeding: bool, activation: str) -> None:
    options = [f"model.decoder.input_feeding={input_feeding}", f"model.decoder.activation={activation}"]
    ours = model("rnn_luong", *options)
    decoder, source, target = ours.decoder, torch.tensor([[4, 5, 6, 7, 3], [8, 9, 3, 0, 0]]), torch.randn(2, 4, 10)
    encoded = ours._read(source, source != 0)
    layers, feed, expected = decoder.stack.start(encoded), torch.zeros(2, 6), []
    memory = decoder.attention.prepare(encoded.keys, encoded.values, encoded.mask)
    for known in decoder.stack.token_gates(target):
        state, layers = decoder.stack(known, feed if input_feeding else None, layers)
        context = decoder.attention(state[:, None], memory).context[:, 0]
        combined = torch.cat([context, state], -1) @ decoder.combine.weight.T + decoder.combine.bias
        feed = torch.tanh(combined) if activation == "tanh" else combined
        expected.append(feed)
    found = decoder(target, decoder.initial_state(encoded)).hidden
    torch.testing.assert_close(found, torch.stack(expected, 1), rtol=0, atol=1e-12)
