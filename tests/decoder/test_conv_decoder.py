"""The convolutional decoder, compared with the formulas of its paper by position and layer."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import torch
from configs import built, composed
from nn.conv_formulas import gated, gradients, linear, randomise
from torch import Tensor

from seq2seq_attn.attention.normalizer.normalizer import Normalized, Normalizer
from seq2seq_attn.attention.score.score import Score
from seq2seq_attn.attention.state import QueryKeyPositions
from seq2seq_attn.decoder.conv import ConvDecoder, ConvState
from seq2seq_attn.encoder.encoder import Encoded
from seq2seq_attn.nn.masked import masked_softmax
from seq2seq_attn.position.learned import LearnedPosition

pytestmark = pytest.mark.usefixtures("double")
INPUT, KEY, VALUE, DIM, LAYERS = 5, 5, 7, 11, 3  # dot ties keys and queries
LENGTHS = [4, 6, 1]
MASK = torch.arange(6) < torch.tensor(LENGTHS)[:, None]


def factory(preset: str) -> partial[Any]:
    return built(composed(f"attention={preset}").attention)


def fresh(attention: partial[Any], kernel_size: int = 3, value_dim: int = VALUE) -> ConvDecoder:
    position = partial(LearnedPosition, join="add", max_length=31)
    return ConvDecoder(
        input_dim=INPUT,
        key_dim=KEY,
        value_dim=value_dim,
        summary_dim=13,
        attention=attention,
        position=position,
        dim=DIM,
        num_layers=LAYERS,
        kernel_size=kernel_size,
        dropout=0.3,
    )


def decoder(preset: str = "luong_dot", kernel_size: int = 3) -> ConvDecoder:
    return randomise(fresh(factory(preset), kernel_size))


def source(mask: Tensor = MASK) -> Encoded:
    batch, length = mask.shape
    keys, values = torch.randn(batch, length, KEY), torch.randn(batch, length, VALUE)
    return Encoded(keys.requires_grad_(), values.requires_grad_(), mask, torch.randn(batch, 13))


def speak(conv: ConvDecoder, target: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    """Return the hidden states of one sentence by sections 3.1 to 3.4, for a source without padding."""
    g = [conv.dropout(target[t] + conv.position.table[t]) for t in range(len(target))]
    x = [linear(conv.widen, position) for position in g]
    for layer in conv.layers:
        after = []
        for t in range(len(target)):
            nothing = torch.zeros_like(x[0])
            h = gated(
                layer.convolution,
                [x[i] if i >= 0 else nothing for i in range(t - layer.convolution.kernel_size + 1, t + 1)],
            )
            scores = torch.zeros(len(keys))
            if layer.project_query is not None:
                d = (linear(layer.project_query, h) + g[t]) / 2**0.5
                scores = torch.stack([d @ key for key in keys])
            shares = scores.exp() / scores.exp().sum()
            context = sum(share * value for share, value in zip(shares, values, strict=True))
            context = len(keys) * (1 / len(keys)) ** 0.5 * context
            attended = (h + linear(layer.project_context, context)) / 2**0.5
            after.append((attended + x[t]) / 2**0.5)
        x = after
    return torch.stack([conv.dropout(linear(conv.narrow, position)) for position in x])


def step_by_step(conv: ConvDecoder, embedded: Tensor, state: ConvState) -> Tensor:
    hidden = []
    for token in embedded.split(1, 1):
        decoded = conv(token, state)
        state = decoded.state
        hidden.append(decoded.hidden)
    return torch.cat(hidden, 1)


@pytest.mark.parametrize("need_weights", [False, True])
@pytest.mark.parametrize("kernel_size", [1, 2, 3])
@pytest.mark.parametrize("preset", ["luong_dot", "none"])
def test_a_batch_equals_the_papers_formulas_values_and_gradients(
    preset: str, kernel_size: int, need_weights: bool
) -> None:
    conv, encoded = decoder(preset, kernel_size), source()
    embedded = torch.randn(3, 5, INPUT, requires_grad=True)
    found = conv(embedded, conv.initial_state(encoded), need_weights=need_weights).hidden
    expected = torch.stack(
        [
            speak(conv, embedded[row], encoded.keys[row, :length], encoded.values[row, :length])
            for row, length in enumerate(LENGTHS)
        ]
    )
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)
    upstream, of = torch.randn_like(found), [embedded, encoded.keys, encoded.values, *conv.parameters()]
    for ours, theirs in zip(
        gradients((found * upstream).sum(), of), gradients((expected * upstream).sum(), of), strict=True
    ):
        torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-11)


@pytest.mark.parametrize("kernel_size", [1, 2, 3])
@pytest.mark.parametrize("preset", ["luong_dot", "none", "bahdanau"])
def test_one_step_at_a_time_equals_all_at_once(preset: str, kernel_size: int) -> None:
    conv, encoded, embedded = decoder(preset, kernel_size), source(), torch.randn(3, 8, INPUT)
    start = conv.initial_state(encoded)
    whole = conv(embedded, start)
    assert (start.next_position, whole.state.next_position) == (0, 8)
    torch.testing.assert_close(step_by_step(conv, embedded, start), whole.hidden, rtol=0, atol=1e-12)


@pytest.mark.parametrize("chunks", [(1, 7), (2, 5, 1), (6, 2)])
def test_chunks_after_a_prefix_equal_all_at_once(chunks: tuple[int, ...]) -> None:
    conv, encoded, embedded = decoder(kernel_size=5), source(), torch.randn(3, 8, INPUT)
    state, hidden = conv.initial_state(encoded), []
    for chunk in embedded.split(chunks, 1):
        decoded = conv(chunk, state)
        state = decoded.state
        hidden.append(decoded.hidden)
    expected = conv(embedded, conv.initial_state(encoded)).hidden
    torch.testing.assert_close(torch.cat(hidden, 1), expected, rtol=0, atol=1e-12)


def test_a_step_reads_one_window_and_its_state_does_not_grow() -> None:
    conv, encoded = decoder(), source()
    start = state = conv.initial_state(encoded)
    seen: list[torch.Size] = []
    for layer in conv.layers:
        layer.convolution.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0].shape))
    for position in range(7):
        state = conv(torch.randn(3, 1, INPUT), state).state
        assert state.next_position == position + 1
        assert all(a is b for a, b in zip(state.memories, start.memories, strict=True))
        assert [before.shape for before in state.inputs] == [(3, 2, DIM)] * LAYERS
    assert seen == [(3, 3, DIM)] * LAYERS * 7


def test_a_state_is_a_value_that_a_step_leaves_as_it_was() -> None:
    conv, encoded, embedded = decoder(), source(), torch.randn(3, 4, INPUT)
    state = conv(embedded[:, :2], conv.initial_state(encoded)).state
    first = conv(embedded[:, 2:], state).hidden
    assert torch.equal(conv(embedded[:, 2:], state).hidden, first)


@pytest.mark.parametrize("preset", ["luong_dot", "none"])
def test_a_hidden_state_depends_on_its_prefix_and_on_no_later_token(preset: str) -> None:
    conv, embedded = decoder(preset), torch.randn(3, 9, INPUT, requires_grad=True)
    hidden = conv(embedded, conv.initial_state(source())).hidden
    (seen,) = gradients(hidden[:, 7].square().sum(), [embedded])
    # Three layers with windows of three reach six positions back.
    assert [bool((seen[:, t] != 0).any()) for t in range(9)] == [False] + [True] * 7 + [False]


@pytest.mark.parametrize("preset", ["luong_dot", "none"])
def test_more_padding_its_content_and_other_sentences_change_nothing(preset: str) -> None:
    conv, encoded, embedded = decoder(preset), source(), torch.randn(3, 5, INPUT)
    together = conv(embedded, conv.initial_state(encoded)).hidden
    alone = Encoded(encoded.keys[:1, :4], encoded.values[:1, :4], MASK[:1, :4], encoded.summary[:1])
    found = conv(embedded[:1], conv.initial_state(alone)).hidden
    torch.testing.assert_close(together[:1], found, rtol=0, atol=1e-12)
    keys, values = (x.masked_fill(~MASK[..., None], 99.0) for x in (encoded.keys, encoded.values))
    other = conv(embedded, conv.initial_state(Encoded(keys, values, MASK, encoded.summary))).hidden
    assert torch.equal(together, other)


def test_a_selected_state_decodes_as_the_selected_sentences() -> None:
    conv, encoded, embedded = decoder(), source(), torch.randn(3, 6, INPUT)
    rows = torch.tensor([2, 0, 0, 1])
    state = conv(embedded[:, :4], conv.initial_state(encoded)).state.select(rows)
    expected = conv(embedded, conv.initial_state(encoded)).hidden[rows, 4:]
    torch.testing.assert_close(conv(embedded[rows, 4:], state).hidden, expected, rtol=0, atol=1e-12)
    assert state.next_position == 4


def test_the_summary_is_not_read() -> None:
    conv, encoded, embedded = decoder(), source(), torch.randn(3, 5, INPUT)
    other = Encoded(encoded.keys, encoded.values, encoded.mask, torch.full_like(encoded.summary, torch.nan))
    found = [conv(embedded, conv.initial_state(each)).hidden for each in (encoded, other)]
    assert torch.equal(*found)


@pytest.mark.parametrize("preset", ["luong_dot", "none"])
def test_every_parameter_gets_a_gradient_also_where_attention_reads_no_query(preset: str) -> None:
    conv = fresh(factory(preset))
    conv(torch.randn(3, 5, INPUT), conv.initial_state(source())).hidden.square().sum().backward()
    assert [name for name, p in conv.named_parameters() if p.grad is None or not p.grad.any()] == []
    assert all((layer.project_query is None) == (preset == "none") for layer in conv.layers)


def test_projected_heads_of_another_width_than_the_values_are_read() -> None:
    attention = factory("scaled_dot")
    attention = partial(attention.func, **attention.keywords | {"num_heads": 5, "project_values": True})
    conv, embedded = randomise(fresh(attention, value_dim=10)), torch.randn(3, 5, INPUT)
    encoded = source()
    encoded = Encoded(encoded.keys, torch.randn(3, 6, 10), MASK, encoded.summary)
    whole = conv(embedded, conv.initial_state(encoded), need_weights=True)
    assert whole.weights["cross/1"].shape == (3, 5, 5, 6)
    steps = step_by_step(conv, embedded, conv.initial_state(encoded))
    torch.testing.assert_close(steps, whole.hidden, rtol=0, atol=1e-12)


def test_each_layer_returns_its_weights_on_request() -> None:
    conv, embedded = decoder(), torch.randn(3, 5, INPUT)
    plain = conv(embedded, conv.initial_state(source()))
    assert (plain.weights, plain.log_prob, plain.entropy) == ({}, None, None)
    weights = conv(embedded, conv.initial_state(source()), need_weights=True).weights
    assert list(weights) == ["cross/0", "cross/1", "cross/2"]
    for shares in weights.values():
        torch.testing.assert_close(shares.sum(-1), torch.ones(3, 1, 5))
        assert (shares.masked_select(~MASK[:, None, None]) == 0).all()
    assert not torch.equal(weights["cross/0"], weights["cross/1"])


class Sampling(Normalizer):
    """A normalizer with a log-probability of -3 and an entropy of 2 for every head and query."""

    def forward(self, scores: Tensor, allowed: Tensor | None) -> Normalized:
        ones = scores.new_ones(scores.shape[:-1])
        return Normalized(masked_softmax(scores, allowed), -3 * ones, 2 * ones)


class PlaceScore(Score):
    """The score sin(t s) of query position t and key position s."""

    reads_query = False

    def prepare_query(self, query: Tensor) -> tuple[Tensor, ...]:
        return ()

    def prepare_keys(self, keys: Tensor) -> tuple[Tensor, ...]:
        return ()

    def forward(self, query: tuple[Tensor, ...], keys: tuple[Tensor, ...], positions: QueryKeyPositions) -> Tensor:
        return torch.outer(positions.query, positions.key).double().sin()[None, None]


def test_attention_receives_the_position_of_each_step() -> None:
    attention = factory("luong_dot")
    attention = partial(attention.func, **attention.keywords | {"score": partial(PlaceScore)})
    conv, encoded, embedded = randomise(fresh(attention)), source(), torch.randn(3, 5, INPUT)
    whole = conv(embedded, conv.initial_state(encoded)).hidden
    steps = step_by_step(conv, embedded, conv.initial_state(encoded))
    torch.testing.assert_close(steps, whole, rtol=0, atol=1e-12)


def test_log_probability_and_entropy_are_summed_over_layers() -> None:
    attention = factory("luong_dot")
    conv = fresh(partial(attention.func, **attention.keywords | {"normalizer": partial(Sampling)}))
    decoded = conv(torch.randn(3, 5, INPUT), conv.initial_state(source()))
    assert torch.equal(decoded.log_prob, torch.full((3, 5), -3.0 * LAYERS))
    assert torch.equal(decoded.entropy, torch.full((3, 5), 2.0 * LAYERS))


def test_attention_is_told_the_number_of_its_layer() -> None:
    kinds = [type(attention.pattern).__name__ for attention in fresh(factory("alternating")).source_attentions]
    assert kinds == ["LocalPattern", "AtrousPattern", "LocalPattern"]


def test_sentences_of_more_tokens_get_a_larger_context_by_the_root_of_their_number() -> None:
    state = decoder().initial_state(source())
    torch.testing.assert_close(state.context_scale.flatten(), torch.tensor([2.0, 6**0.5, 1.0]))
