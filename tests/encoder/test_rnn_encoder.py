"""The recurrent encoder against sentences read one by one."""

from __future__ import annotations

import pytest
import torch

from seq2seq_attn.encoder.rnn import RNNEncoder
from seq2seq_attn.tensors.error import UserError


def encoder(cell: str, num_layers: int = 2, bidirectional: bool = True) -> RNNEncoder:
    return RNNEncoder(
        input_dim=5, cell=cell, hidden_dim=6, num_layers=num_layers, bidirectional=bidirectional, dropout=0.3
    ).eval()  # fmt: skip


@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize("cell", ["gru", "lstm"])
def test_a_batch_equals_its_sentences_one_by_one(cell: str, bidirectional: bool) -> None:
    rnn = encoder(cell, bidirectional=bidirectional)
    x = torch.randn(3, 7, 5)
    mask = torch.arange(7) < torch.tensor([[4], [7], [1]])
    found = rnn(x, mask)
    for row, length in enumerate([4, 7, 1]):
        output, last = rnn.rnn(x[row : row + 1, :length])
        hidden = last[0] if cell == "lstm" else last
        torch.testing.assert_close(found.keys[row, :length], output[0])
        assert (found.keys[row, length:] == 0).all()
        top = hidden[-2:] if bidirectional else hidden[-1:]
        torch.testing.assert_close(found.summary[row], top.flatten())


def test_what_stands_in_the_padding_changes_nothing() -> None:
    rnn = encoder("gru")
    x, mask = torch.randn(2, 7, 5), torch.arange(7) < torch.tensor([[4], [7]])
    other = x.masked_fill(~mask[..., None], 99.0)
    assert torch.equal(rnn(x, mask).keys, rnn(other, mask).keys)


def test_odd_width_for_two_directions_is_refused() -> None:
    with pytest.raises(UserError, match=r"two directions share encoder.hidden_dim=7; make it even"):
        RNNEncoder(input_dim=5, cell="gru", hidden_dim=7, num_layers=1, bidirectional=True, dropout=0.0)
