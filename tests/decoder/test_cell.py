"""Our recurrent cells, compared with torch's with the same weights."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from seq2seq_attn.decoder.cell import Cell
from seq2seq_attn.decoder.stack import Stack
from seq2seq_attn.encoder.encoder import Encoded


@pytest.mark.usefixtures("double")
@pytest.mark.parametrize("cell", ["gru", "lstm"])
def test_a_cell_equals_torchs(cell: str) -> None:
    ours = Cell(token_dim=3, step_dim=2, cell=cell, hidden_dim=5)
    theirs = {"gru": nn.GRUCell, "lstm": nn.LSTMCell}[cell](5, 5)
    theirs.weight_ih.data = torch.cat([ours.known.weight, ours.found.weight], 1)
    theirs.weight_hh.data, theirs.bias_hh.data = ours.recurrent.weight.data, torch.randn_like(theirs.bias_hh)
    ours.recurrent.bias.data = theirs.bias_hh.data
    ours.known.bias.data = theirs.bias_ih.data = torch.randn_like(theirs.bias_ih)
    known, found, hidden, memory = (torch.randn(7, width) for width in (3, 2, 5, 5))
    state = (hidden,) if cell == "gru" else (hidden, memory)
    expected = theirs(torch.cat([known, found], 1), hidden if cell == "gru" else state)
    result = ours(ours.known(known), found, state)
    for a, b in zip(result, (expected,) if cell == "gru" else expected, strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=1e-12)


def encoded(summary: Tensor) -> Encoded:
    keys = torch.randn(len(summary), 2, 3)
    return Encoded(keys, keys, torch.ones(len(summary), 2, dtype=torch.bool), summary)


def build_stack(cell: str, residual: bool = False, layer_norm: bool = False, dropout: float = 0.0) -> Stack:
    return Stack(
        token_dim=3,
        step_dim=2,
        summary_dim=7,
        cell=cell,
        hidden_dim=5,
        num_layers=3,
        residual=residual,
        layer_norm=layer_norm,
        dropout=dropout,
    )


@pytest.mark.parametrize("cell", ["gru", "lstm"])
def test_residuals_and_norms_change_outputs_and_leave_states_as_they_are(cell: str) -> None:
    stack = build_stack(cell, residual=True, layer_norm=True)
    for norm in stack.norms:
        nn.init.normal_(norm.weight)
    state = stack.start(encoded(torch.randn(4, 7)))
    known, found = torch.randn(4, stack.first.known.out_features), torch.randn(4, 2)
    output, after = stack(known, found, state)
    x = stack.norms[0](stack.first(known, found, state[0])[0])
    for cell_above, norm, before, states in zip(stack.above, stack.norms[1:], state[1:], after[1:], strict=True):
        expected = cell_above(None, x, before)
        x = norm(expected[0] + x)
        torch.testing.assert_close(states, expected)
    torch.testing.assert_close(output, x)


@pytest.mark.parametrize("cell", ["gru", "lstm"])
def test_a_stack_starts_from_the_tanh_of_the_projected_summary(cell: str) -> None:
    stack = build_stack(cell)
    summary = torch.randn(2, 7)
    state = stack.start(encoded(summary))
    expected = torch.tanh(summary @ stack.bridge.weight.T + stack.bridge.bias)
    torch.testing.assert_close(torch.cat([t for layer in state for t in layer], -1), expected)
    assert [len(layer) for layer in state] == [{"gru": 1, "lstm": 2}[cell]] * 3
