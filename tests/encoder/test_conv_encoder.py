"""The convolutional encoder, compared with the formulas of its paper position by position."""

from __future__ import annotations

from functools import partial

import pytest
import torch
from nn.conv_formulas import gated, gradients, linear, randomise
from torch import Tensor

from seq2seq_attn.encoder.conv import ConvEncoder
from seq2seq_attn.errors import UserError
from seq2seq_attn.position.learned import LearnedPosition

pytestmark = pytest.mark.usefixtures("double")
LENGTHS = [4, 7, 1]
MASK = torch.arange(7) < torch.tensor(LENGTHS)[:, None]


def fresh(input_dim: int = 5, dim: int = 11, kernel_size: int = 3, dropout: float = 0.3) -> ConvEncoder:
    position = partial(LearnedPosition, join="add", max_length=13)
    return ConvEncoder(
        input_dim=input_dim, position=position, dim=dim, num_layers=3, kernel_size=kernel_size, dropout=dropout
    )


def encoder(kernel_size: int = 3) -> ConvEncoder:
    return randomise(fresh(kernel_size=kernel_size))


def read(conv: ConvEncoder, sentence: Tensor) -> tuple[Tensor, Tensor]:
    """Return keys and values of one sentence by sections 3.1 to 3.4, with zeros beyond its ends."""
    positions = range(len(sentence))
    e = [conv.dropout(sentence[j] + conv.position.table[j]) for j in positions]
    h = [linear(conv.widen, e[j]) for j in positions]
    for layer in conv.layers:
        reach = layer.kernel_size // 2
        nothing = torch.zeros_like(h[0])
        windows = [[h[i] if i in positions else nothing for i in range(j - reach, j + reach + 1)] for j in positions]
        h = [(gated(layer, windows[j]) + h[j]) / 2**0.5 for j in positions]
    z = [linear(conv.narrow, h[j]) for j in positions]
    return torch.stack(z), torch.stack([(z[j] + e[j]) / 2**0.5 for j in positions])


@pytest.mark.parametrize("kernel_size", [1, 3, 5])
def test_a_padded_batch_equals_the_papers_formulas_values_and_gradients(kernel_size: int) -> None:
    conv, x = encoder(kernel_size), torch.randn(3, 7, 5, requires_grad=True)
    found = conv(x, MASK)
    losses = [torch.zeros(()), torch.zeros(())]
    for row, length in enumerate(LENGTHS):
        keys, values = read(conv, x[row, :length])
        ours = (found.keys[row, :length], found.values[row, :length], found.summary[row])
        for a, b in zip(ours, (keys, values, keys.mean(0)), strict=True):
            torch.testing.assert_close(a, b, rtol=0, atol=1e-12)
            upstream = torch.randn_like(a)
            losses = [losses[0] + (a * upstream).sum(), losses[1] + (b * upstream).sum()]
        assert (found.keys[row, length:] == 0).all()
        assert (found.values[row, length:] == 0).all()
    of = [x, *conv.parameters()]
    for a, b in zip(gradients(losses[0], of), gradients(losses[1], of), strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=1e-11)


def test_the_content_of_padding_changes_neither_values_nor_gradients() -> None:
    conv, x = encoder(), torch.randn(3, 7, 5)
    found, other = conv(x, MASK), conv(x.masked_fill(~MASK[..., None], torch.nan), MASK)
    assert torch.equal(found.keys, other.keys)
    assert torch.equal(found.values, other.values)
    assert torch.equal(found.summary, other.summary)
    of = list(conv.parameters())
    for a, b in zip(
        gradients(found.values.square().sum(), of), gradients(other.values.square().sum(), of), strict=True
    ):
        assert torch.equal(a, b)


def test_a_sentence_alone_and_with_more_padding_give_the_same() -> None:
    conv, x = encoder(kernel_size=5), torch.randn(3, 7, 5)
    together, alone = conv(x, MASK), conv(x[:1, :4], MASK[:1, :4])
    torch.testing.assert_close(together.keys[:1, :4], alone.keys, rtol=0, atol=1e-13)
    torch.testing.assert_close(together.values[:1, :4], alone.values, rtol=0, atol=1e-13)
    torch.testing.assert_close(together.summary[:1], alone.summary, rtol=0, atol=1e-13)


def test_values_are_keys_and_the_embedding_with_its_position() -> None:
    conv, x = fresh().eval(), torch.randn(2, 7, 5)
    found = conv(x, torch.ones(2, 7, dtype=torch.bool))
    torch.testing.assert_close(found.values * 2**0.5 - found.keys, x + conv.position.table[:7])


def test_three_layers_with_windows_of_three_read_three_positions_on_both_sides() -> None:
    conv, x = encoder(), torch.randn(1, 11, 5, requires_grad=True)
    keys = conv(x, torch.ones(1, 11, dtype=torch.bool)).keys
    (seen,) = gradients(keys[0, 5].square().sum(), [x])
    assert [bool((position != 0).any()) for position in seen[0]] == [False] * 2 + [True] * 7 + [False] * 2


def test_a_sentence_without_a_token_gives_zeros_and_finite_gradients() -> None:
    conv, x = encoder(), torch.randn(2, 7, 5, requires_grad=True)
    found = conv(x, torch.tensor([[False] * 7, [True] * 7]))
    assert (found.values[0] == 0).all()
    assert (found.summary[0] == 0).all()
    of = [x, *conv.parameters()]
    loss = found.values.square().sum() + found.summary.square().sum()
    assert all(g.isfinite().all() for g in gradients(loss, of))


def test_every_parameter_gets_a_gradient() -> None:
    conv = fresh()
    found = conv(torch.randn(3, 7, 5), MASK)
    found.values.square().sum().backward()
    assert [name for name, p in conv.named_parameters() if p.grad is None or not p.grad.any()] == []


def test_weights_start_with_the_papers_standard_deviations() -> None:
    conv = fresh(input_dim=149, dim=211, dropout=0.3)
    variances = {"widen": 0.7 / 149, "narrow": 1 / 211, "layers.0.linear": 2.8 / (3 * 211)}
    for name, variance in variances.items():
        deviation = conv.get_submodule(name).weight.std()
        torch.testing.assert_close(deviation, torch.tensor(variance**0.5), rtol=0.03, atol=0)


def test_an_even_window_is_refused() -> None:
    sentence = (
        r"^model.encoder.kernel_size=4 is even, but a window has equally many positions on both sides; use an odd "
        r"number$"
    )
    with pytest.raises(UserError, match=sentence):
        fresh(kernel_size=4)
