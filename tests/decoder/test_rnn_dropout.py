"""Where recurrent layers have dropout, with a factor in its place that makes it a formula."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from configs import model_of
from decoder.test_cell import build_stack
from encoder.test_rnn_encoder import encoder
from torch import Tensor

from seq2seq_attn.decoder import stack as stack_module
from seq2seq_attn.decoder.cell import Cell
from seq2seq_attn.nn.dropout import Dropout

KEPT = 0.75
SOURCE = torch.tensor([[4, 5, 6, 7, 3], [8, 9, 3, 0, 0]])

pytestmark = pytest.mark.usefixtures("double", "scaled")


@pytest.fixture
def scaled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Multiply by 1 - p in place of dropout."""
    monkeypatch.setattr(Dropout, "forward", lambda self, x: x * (1 - self.p) if self.training else x)
    monkeypatch.setattr(stack_module, "dropout", lambda x, p: x * (1 - p))


def decoder_of(name: str, *overrides: str) -> Any:
    sizes = ["model.embedding_dim=10", "model.encoder.dim=6", "model.decoder.dim=6"]
    return model_of(
        f"decoder@model.decoder={name}",
        "attention=bahdanau",
        *sizes,
        f"model.decoder.dropout={1 - KEPT}",
        "model.encoder.dropout=0.0",
        *overrides,
    )


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("rnn", []),
        ("rnn", ["model.decoder.readout=maxout"]),
        ("rnn_conditional", []),
        ("rnn_luong", ["model.decoder.input_feeding=false"]),
    ],
)
def test_what_the_output_layer_reads_is_dropped(name: str, options: list[str]) -> None:
    model, embedded = decoder_of(name, *options), torch.randn(2, 4, 10)
    encoded = model._read(SOURCE, SOURCE != 0)
    plain = model.decoder.eval()(embedded, model.decoder.initial_state(encoded)).hidden
    found = model.decoder.train()(embedded, model.decoder.initial_state(encoded)).hidden
    torch.testing.assert_close(found, KEPT * plain, rtol=0, atol=1e-12)


def test_luongs_attentional_state_is_dropped_before_it_is_fed_to_the_next_step() -> None:
    model, embedded = decoder_of("rnn_luong"), torch.randn(2, 4, 10)
    encoded = model._read(SOURCE, SOURCE != 0)
    decoder = model.decoder.train()
    found = decoder(embedded, decoder.initial_state(encoded)).hidden
    state, expected = decoder.eval().initial_state(encoded), []
    for t in range(4):
        step = decoder(embedded[:, t : t + 1], state)
        expected.append(KEPT * step.hidden)
        state = replace(step.state, feed=KEPT * step.state.feed)
    torch.testing.assert_close(found, torch.cat(expected, 1), rtol=0, atol=1e-12)


@pytest.mark.parametrize("residual", [False, True])
@pytest.mark.parametrize("cell", ["gru", "lstm"])
def test_a_stack_drops_what_each_layer_above_the_first_reads(cell: str, residual: bool) -> None:
    stack = build_stack(cell, residual, dropout=1 - KEPT)
    per_cell = {"gru": 1, "lstm": 2}[cell]
    before = tuple(tuple(torch.randn(4, 5) for _ in range(per_cell)) for _ in range(3))
    known, given = torch.randn(4, stack.first.known.out_features), torch.randn(4, 2)
    output, states = stack(known, given, before)
    after: Any = stack.first(known, given, before[0])
    x = after[0]
    torch.testing.assert_close(states[0], after)
    for cell_above, layer_before, layer_after in zip(stack.above, before[1:], states[1:], strict=True):
        after = cell_above(None, KEPT * x, layer_before)
        torch.testing.assert_close(layer_after, after)
        x = after[0] + KEPT * x if residual else after[0]
    torch.testing.assert_close(output, x)  # the last layer's is dropped by the readout


def test_the_encoder_drops_the_output_of_every_layer_and_no_state() -> None:
    rnn, kept = encoder("gru", residual=True).train(), 0.7
    x = torch.randn(2, 7, 5)
    first, first_state = rnn.layers[0](x)
    second, second_state = rnn.layers[1](kept * first)
    found = rnn(x, torch.ones(2, 7, dtype=torch.bool))
    torch.testing.assert_close(found.keys, kept * (second + kept * first))
    for (state,), expected in zip(found.states, (first_state, second_state), strict=True):
        torch.testing.assert_close(state, expected.transpose(0, 1).flatten(1))


@pytest.mark.parametrize("cell", ["gru", "lstm"])
def test_recurrent_matrices_start_orthogonal_gate_by_gate(cell: str) -> None:
    def check(weight: Tensor, width: int) -> None:
        gates = weight.split(width)
        assert len(gates) == {"gru": 3, "lstm": 4}[cell]
        for gate in gates:
            torch.testing.assert_close(gate @ gate.T, torch.eye(width))

    check(Cell(token_dim=3, step_dim=2, cell=cell, hidden_dim=5).recurrent.weight, 5)
    first, _ = encoder(cell).layers
    check(first.weight_hh_l0, 3)
    check(first.weight_hh_l0_reverse, 3)
