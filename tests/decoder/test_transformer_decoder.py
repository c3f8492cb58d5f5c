"""The Transformer decoder, compared with torch's, and its properties for a whole target."""

from __future__ import annotations

import weakref
from functools import partial
from typing import Any

import pytest
import torch
from configs import model_of, options
from decoder.transformer_decoders import (
    BATCH,
    DIM,
    FF_DIM,
    HEADS,
    LAYERS,
    MASK,
    SOURCE,
    TARGET,
    decoder,
    encoded,
    ready,
)
from hydra.errors import InstantiationException
from nn import torch_transformer as by_torch
from nn.sampling_normalizer import SamplingNormalizer
from torch import nn

from seq2seq_attn.attention.score.uniform import UniformScore
from seq2seq_attn.decoder.transformer import TransformerDecoder
from seq2seq_attn.encoder.encoder import Encoded

POSITIONS = options("position")
NORMS = ["pre", "post"]


def torchs(norm: str, activation: str, dtype: torch.dtype) -> nn.TransformerDecoder:
    layer = nn.TransformerDecoderLayer(
        DIM, HEADS, FF_DIM, dropout=0.0, activation=activation, batch_first=True, norm_first=norm == "pre"
    )
    return nn.TransformerDecoder(layer, LAYERS, nn.LayerNorm(DIM) if norm == "pre" else None).to(dtype)


def pairs(ours: TransformerDecoder, theirs: nn.TransformerDecoder) -> by_torch.Pairs:
    found = by_torch.closing_pairs(ours, theirs)
    for own, other in zip(ours.layers, theirs.layers, strict=True):
        found += by_torch.attention_pairs(own.self_attention, other.self_attn)
        found += by_torch.attention_pairs(own.cross_attention, other.multihead_attn)
        residuals = [own.self_residual, own.cross_residual, own.feed_forward_residual]
        found += by_torch.rest_pairs(own, other, residuals)
    return found


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("activation", ["relu", "gelu"])
@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("target", [11, 23])  # with few rows, and with enough to pack the projections
def test_outputs_and_gradients_equal_torchs(target: int, norm: str, activation: str, dtype: torch.dtype) -> None:
    ours = decoder(norm=norm, feed_forward=by_torch.feed_forward_factory(FF_DIM, activation)).to(dtype)
    by_torch.shaken(ours)
    theirs = torchs(norm, activation, dtype)
    by_torch.copy(pairs(ours, theirs), ours, theirs)
    x, source = torch.randn(BATCH, target, DIM, dtype=dtype), torch.randn(BATCH, SOURCE, DIM, dtype=dtype)
    inputs, same = ([t.clone().requires_grad_() for t in (x, source)] for _ in range(2))
    state = ours.initial_state(Encoded(inputs[1], inputs[1], MASK, torch.zeros(BATCH, 5, dtype=dtype)))
    found = ours(inputs[0], state).hidden
    later = torch.ones(target, target, dtype=torch.bool).triu(1)
    expected = theirs(*same, tgt_mask=later, memory_key_padding_mask=~MASK)
    by_torch.assert_same(found, expected)
    upstream = torch.randn_like(found)
    (found * upstream).sum().backward()
    (expected * upstream).sum().backward()
    for own, other in zip(inputs, same, strict=True):
        by_torch.assert_same(own.grad, other.grad)
    by_torch.assert_same_gradients(pairs(ours, theirs))


@pytest.mark.usefixtures("double")
@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("position", POSITIONS)
def test_a_hidden_state_depends_on_its_own_and_earlier_tokens_only(position: str, norm: str) -> None:
    ours = ready(norm=norm, position=by_torch.position_factory(position))
    x = torch.randn(BATCH, TARGET, DIM, requires_grad=True)
    (ours(x, ours.initial_state(encoded())).hidden[:, 5] * torch.randn(DIM)).sum().backward()
    assert (x.grad[:, 6:] == 0).all()
    assert (x.grad[:, :6] != 0).any(-1).all()


@pytest.mark.usefixtures("double")
@pytest.mark.parametrize("position", POSITIONS)
def test_more_padding_and_other_batch_mates_change_nothing(position: str) -> None:
    ours, x = ready(position=by_torch.position_factory(position)), torch.randn(BATCH, TARGET, DIM)
    source = encoded()
    together = ours(x, ours.initial_state(source)).hidden
    for row, length in enumerate(MASK.sum(1).tolist()):
        rows = slice(row, row + 1)
        keys, values = source.keys[rows, :length], source.values[rows, :length]
        alone = Encoded(keys, values, MASK[rows, :length], source.summary[rows])
        found = ours(x[rows, :5], ours.initial_state(alone)).hidden
        torch.testing.assert_close(found, together[rows, :5], rtol=0, atol=1e-12)


def test_weights_are_named_by_slot_and_layer_and_change_nothing() -> None:
    ours, x = decoder().eval(), torch.randn(BATCH, TARGET, DIM)
    state = ours.initial_state(encoded())
    plain, asked = ours(x, state), ours(x, state, need_weights=True)
    torch.testing.assert_close(plain.hidden, asked.hidden)
    assert plain.weights == {}
    shapes = {slot: tuple(weights.shape[1:]) for slot, weights in asked.weights.items()}
    assert shapes == {
        "self/0": (HEADS, TARGET, TARGET),
        "cross/0": (HEADS, TARGET, SOURCE),
        "self/1": (HEADS, TARGET, TARGET),
        "cross/1": (HEADS, TARGET, SOURCE),
    }
    assert (asked.weights["self/1"].triu(1) == 0).all()
    assert (asked.weights["cross/1"].masked_select(~MASK[:, None, None]) == 0).all()
    for weights in asked.weights.values():
        torch.testing.assert_close(weights.sum(-1), torch.ones(BATCH, HEADS, TARGET))


@pytest.mark.parametrize("slots", [["cross_attention"], ["self_attention"], ["self_attention", "cross_attention"]])
def test_log_prob_and_entropy_are_summed_over_the_layers_and_slots_that_sample(slots: list[str]) -> None:
    sampling = by_torch.attention_factory(HEADS, normalizer=partial(SamplingNormalizer))
    ours = decoder(num_layers=5, **dict.fromkeys(slots, sampling))
    found = ours(torch.randn(BATCH, TARGET, DIM), ours.initial_state(encoded()))
    expected = 5 * HEADS * len(slots) * torch.arange(11.0).expand(BATCH, -1)
    torch.testing.assert_close(found.log_prob, expected)
    torch.testing.assert_close(found.entropy, 2 * expected)


def test_attention_that_does_not_sample_has_no_log_prob() -> None:
    ours = decoder()
    found = ours(torch.randn(BATCH, TARGET, DIM), ours.initial_state(encoded()))
    assert found.log_prob is None
    assert found.entropy is None


def test_a_context_of_the_decoders_width_is_not_projected() -> None:
    ours = decoder(key_dim=13, value_dim=21)
    assert all(layer.project_context is None for layer in ours.layers)


@pytest.mark.usefixtures("double")
@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("project_values", [False, True])
@pytest.mark.parametrize("score", [None, UniformScore])
def test_every_parameter_gets_a_gradient(score: type | None, project_values: bool, norm: str) -> None:
    blind = {} if score is None else {"score": partial(score), "qkv_bias": project_values}
    attention = by_torch.attention_factory(HEADS, project_values=project_values, **blind)
    ours = decoder(input_dim=5, key_dim=13, value_dim=21, norm=norm, cross_attention=attention)
    hidden = ours(torch.randn(BATCH, TARGET, 5), ours.initial_state(encoded(13, 21))).hidden
    (hidden * torch.randn_like(hidden)).sum().backward()
    for name, parameter in ours.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.isfinite().all(), name
        is_shift = name.endswith("score.project_key.bias")  # adds the same to all scores of a row: the softmax stays
        assert (parameter.grad.abs() > 1e-9).any() != is_shift, name


def test_relative_positions_reach_self_attention_only() -> None:
    asked: dict[str, list[dict[str, Any]]] = {"self_attention": [], "cross_attention": []}

    def factory(slot: str, **sizes: Any) -> Any:
        asked[slot].append(sizes)
        return by_torch.attention_factory(HEADS)(**sizes)

    slots = {slot: partial(factory, slot) for slot in asked}
    ours = decoder(**slots, position=by_torch.position_factory("relative"))
    assert [sizes["layer"] for found in asked.values() for sizes in found] == [0, 1, 0, 1]
    assert all("relative" not in sizes for sizes in asked["cross_attention"])
    first, second = (layer.self_attention.relative for layer in ours.layers)
    assert first is not None
    assert first is not second


def test_each_sum_and_the_embedding_with_its_positions_are_dropped_out() -> None:
    ours = decoder(num_layers=1, dropout=0.25)
    (layer,) = ours.layers
    residuals = (layer.self_residual, layer.cross_residual, layer.feed_forward_residual)
    assert [residual.dropout.p for residual in residuals] == [0.25] * 3
    ours = decoder(num_layers=0, norm="post", dropout=0.75, position=by_torch.position_factory("sinusoidal"))
    x, state = torch.zeros(BATCH, TARGET, DIM), ours.initial_state(encoded())
    joined = ours.eval()(x, state).hidden
    ratio = ours.train()(x, state).hidden[joined != 0] / joined[joined != 0]
    torch.testing.assert_close(ratio.unique(), torch.tensor([0.0, 4.0]))
    assert 0.15 < (ratio > 0).float().mean() < 0.35


def test_a_layer_of_inference_frees_its_contexts() -> None:
    ours, made, alive = ready(num_layers=3), [], []

    def note(layer: Any, inputs: Any, output: Any) -> None:
        _, to_self, to_source = output
        made.append([weakref.ref(x) for x in (to_self.context, to_source.context)])

    for layer in ours.layers:
        layer.register_forward_hook(note)
    ours.norm.register_forward_pre_hook(  # when all layers are computed
        lambda *_: alive.extend(any(x() is not None for x in layer) for layer in made)
    )
    with torch.no_grad():
        ours(torch.randn(BATCH, TARGET, DIM), ours.initial_state(encoded()))
    assert alive == [False, False, True]  # those of the last layer until the end of the call


@pytest.mark.parametrize(
    ("overrides", "sentence"),
    [
        (["cross_attention.num_heads=7"], "cross_attention.num_heads=7 does not divide query_dim=64, in a model the"),
        (["attention.num_heads=7"], "attention.num_heads=7 does not divide query_dim=64, in a model the"),
        (
            ["attention@cross_attention=bahdanau", "cross_attention.head_dim=4"],
            "AdditiveScore takes no cross_attention.head_dim=4; leave it null, or use "
            "attention/score@cross_attention.score=scaled_dot",
        ),
    ],
)
def test_a_refusal_names_the_slot_of_the_option(overrides: list[str], sentence: str) -> None:
    sizes = [f"model.{width}=64" for width in ("embedding_dim", "encoder.dim", "decoder.dim")]
    with pytest.raises(InstantiationException) as raised:
        model_of("model=transformer", *sizes, *overrides)
    assert str(raised.value.__cause__).startswith(sentence)
