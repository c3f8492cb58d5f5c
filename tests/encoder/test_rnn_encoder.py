"""The recurrent encoder, compared with sentences encoded one by one."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from seq2seq_attn.encoder.rnn import RNNEncoder
from seq2seq_attn.errors import UserError


def encoder(cell: str, bidirectional: bool = True, **options: bool) -> RNNEncoder:
    options = {"residual": False, "layer_norm": False} | options
    return RNNEncoder(
        input_dim=5, cell=cell, dim=6, num_layers=2, bidirectional=bidirectional, dropout=0.3, **options
    ).eval()


@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize("cell", ["gru", "lstm"])
def test_a_batch_equals_its_sentences_one_by_one(cell: str, bidirectional: bool) -> None:
    rnn = encoder(cell, bidirectional)
    torchs = {"gru": nn.GRU, "lstm": nn.LSTM}[cell](
        5, 3 if bidirectional else 6, 2, batch_first=True, bidirectional=bidirectional
    )
    torchs.load_state_dict(
        {
            name.replace("_l0", f"_l{depth}"): weight
            for depth, layer in enumerate(rnn.layers)
            for name, weight in layer.state_dict().items()
        }
    )
    x = torch.randn(3, 7, 5)
    mask = torch.arange(7) < torch.tensor([[4], [7], [1]])
    found = rnn(x, mask)
    for row, length in enumerate([4, 7, 1]):
        output, last = torchs(x[row : row + 1, :length])
        hidden = last[0] if cell == "lstm" else last
        torch.testing.assert_close(found.keys[row, :length], output[0])
        assert (found.keys[row, length:] == 0).all()
        top = hidden[-2:] if bidirectional else hidden[-1:]
        torch.testing.assert_close(found.summary[row], top.flatten())


def test_the_content_of_padding_changes_nothing() -> None:
    rnn = encoder("gru")
    x, mask = torch.randn(2, 7, 5), torch.arange(7) < torch.tensor([[4], [7]])
    other = x.masked_fill(~mask[..., None], 99.0)
    assert torch.equal(rnn(x, mask).keys, rnn(other, mask).keys)


def test_odd_width_for_two_directions_is_refused() -> None:
    with pytest.raises(
        UserError, match=r"^model.encoder.dim=7 is odd, but two directions share it; use an even number"
    ):
        RNNEncoder(
            input_dim=5,
            cell="gru",
            dim=7,
            num_layers=1,
            bidirectional=True,
            residual=False,
            layer_norm=False,
            dropout=0.0,
        )


def test_residuals_and_norms_are_those_of_the_layers_outputs() -> None:
    rnn = encoder("gru", residual=True, layer_norm=True)
    for norm in rnn.norms:
        nn.init.normal_(norm.weight)
        nn.init.normal_(norm.bias)
    x = torch.randn(1, 7, 5)
    first = rnn.norms[0](rnn.layers[0](x)[0])
    second = rnn.norms[1](rnn.layers[1](first)[0] + first)
    found = rnn(x, torch.ones(1, 7, dtype=torch.bool))
    torch.testing.assert_close(found.keys, second)
    torch.testing.assert_close(found.summary, rnn.layers[1](first)[1].transpose(0, 1).flatten(1))


@pytest.mark.parametrize("cell", ["gru", "lstm"])
def test_a_sentence_without_tokens_gives_zeros_and_leaves_the_others_alone(cell: str) -> None:
    rnn, x, mask = encoder(cell, layer_norm=True), torch.randn(3, 5, 5), torch.arange(5) < torch.tensor([[4], [0], [2]])
    found, alone = rnn(x, mask), rnn(x[[0, 2]], mask[[0, 2]])
    assert (found.keys[1] == 0).all()
    assert (found.summary[1] == 0).all()
    assert all((state[1] == 0).all() for layer in found.states for state in layer)
    torch.testing.assert_close(found.keys[[0, 2]], alone.keys)
    torch.testing.assert_close(found.states[-1][0][[0, 2]], alone.states[-1][0])


@pytest.mark.parametrize("mask", [[False, True, True], [True, False, True]])
def test_a_mask_that_is_not_of_a_beginning_is_refused(mask: list[bool]) -> None:
    with pytest.raises(UserError, match="reads a sentence from its beginning: give a mask that is True for its tokens"):
        encoder("gru")(torch.randn(1, 3, 5), torch.tensor([mask]))
