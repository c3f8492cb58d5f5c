"""Our cells against torch's, with the same weights."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from seq2seq_attn.decoder.cell import Cell
from seq2seq_attn.decoder.stack import Stack


@pytest.mark.usefixtures("double")
@pytest.mark.parametrize("cell", ["gru", "lstm"])
def test_a_cell_equals_torchs(cell: str) -> None:
    ours = Cell(known_dim=3, found_dim=2, cell=cell, hidden_dim=5)
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


@pytest.mark.parametrize("cell", ["gru", "lstm"])
def test_a_stack_starts_from_the_tanh_of_the_projected_summary(cell: str) -> None:
    stack = Stack(known_dim=3, found_dim=2, summary_dim=7, cell=cell, hidden_dim=5, num_layers=3, dropout=0.0)
    summary = torch.randn(2, 7)
    state = stack.start(summary)
    expected = torch.tanh(summary @ stack.bridge.weight.T + stack.bridge.bias)
    torch.testing.assert_close(torch.cat([t for layer in state for t in layer], -1), expected)
    assert [len(layer) for layer in state] == [{"gru": 1, "lstm": 2}[cell]] * 3
