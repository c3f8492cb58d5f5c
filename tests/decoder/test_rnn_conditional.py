"""The conditional recurrent decoder, compared with its formula written with torch's cells."""

from __future__ import annotations

import pytest
import torch
from configs import built, composed
from torch import Tensor, nn

from seq2seq_attn.decoder.cell import Cell
from seq2seq_attn.decoder.rnn_conditional import RNNConditionalDecoder
from seq2seq_attn.encoder.encoder import Encoded

pytestmark = pytest.mark.usefixtures("double")
MASK = torch.tensor([[True] * 5, [True, True, False, False, False]])


def build(*overrides: str) -> RNNConditionalDecoder:
    config = composed("decoder@model.decoder=rnn_conditional", "attention=luong_dot", "model.decoder.dim=6", *overrides)
    decoder = built(config.model.decoder)(input_dim=7, key_dim=6, value_dim=6, summary_dim=4)
    for parameter in decoder.parameters():
        nn.init.normal_(parameter, std=0.5)
    return decoder.eval()


def inputs() -> tuple[Encoded, Tensor]:
    source = torch.randn(2, 5, 6)
    return Encoded(source, source, MASK, torch.randn(2, 4)), torch.randn(2, 3, 7)


def same_cell(cell: Cell) -> nn.RNNCellBase:
    read = cell.known if cell.found is None else cell.found
    kind = nn.GRUCell if cell.kind.num_states == 1 else nn.LSTMCell
    theirs = kind(read.in_features, cell.recurrent.in_features)
    theirs.weight_ih, theirs.bias_ih = read.weight, read.bias
    theirs.weight_hh, theirs.bias_hh = cell.recurrent.weight, cell.recurrent.bias
    return theirs


def attend(query: Tensor, encoded: Encoded) -> Tensor:
    """Return the context of Luong's dot attention, softmax(s h) over real tokens."""
    scores = torch.einsum("bd,bsd->bs", query, encoded.keys).masked_fill(~encoded.mask, -torch.inf)
    return torch.einsum("bs,bsd->bd", scores.softmax(-1), encoded.values)


def test_a_step_reads_then_attends_then_reads_what_was_attended() -> None:
    decoder = build()
    encoded, embedded = inputs()
    reader, writer = same_cell(decoder.reader), same_cell(decoder.stack.first)
    hidden, expected = torch.tanh(decoder.stack.bridge(encoded.summary)), []
    for token in embedded.unbind(1):
        middle = reader(token, hidden)
        context = attend(middle, encoded)
        hidden = writer(context, middle)
        expected.append(decoder.readout(torch.cat([hidden, context, token], -1)))
    decoded = decoder(embedded, decoder.initial_state(encoded))
    torch.testing.assert_close(decoded.hidden, torch.stack(expected, 1), rtol=0, atol=1e-12)
    torch.testing.assert_close(decoded.state.layers[0][0], hidden, rtol=0, atol=1e-12)


def test_an_lstm_keeps_its_memory_through_both_cells_and_layers_above_keep_their_own() -> None:
    decoder = build("model.decoder.cell=lstm", "model.decoder.num_layers=2")
    encoded, embedded = inputs()
    reader, writer, above = map(same_cell, (decoder.reader, decoder.stack.first, *decoder.stack.above))
    first, memory, second, upper = torch.tanh(decoder.stack.bridge(encoded.summary)).chunk(4, -1)
    expected = []
    for token in embedded.unbind(1):
        first, memory = reader(token, (first, memory))
        context = attend(first, encoded)
        first, memory = writer(context, (first, memory))
        second, upper = above(first, (second, upper))
        expected.append(decoder.readout(torch.cat([second, context, token], -1)))
    decoded = decoder(embedded, decoder.initial_state(encoded))
    torch.testing.assert_close(decoded.hidden, torch.stack(expected, 1), rtol=0, atol=1e-12)


def test_the_query_has_read_the_token_of_its_own_step() -> None:
    decoder = build()
    encoded, embedded = inputs()
    changed = embedded.clone()
    changed[:, 0] += 1
    weights = [
        decoder(words, decoder.initial_state(encoded), need_weights=True).weights["cross/0"][0, 0, 0]
        for words in (embedded, changed)
    ]
    assert (weights[0] - weights[1]).abs().max() > 1e-3
