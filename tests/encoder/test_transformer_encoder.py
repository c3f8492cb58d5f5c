"""The Transformer encoder, compared with torch's, and what decoders rely on."""

from __future__ import annotations

import weakref
from functools import partial
from typing import Any

import pytest
import torch
from configs import options
from nn import torch_transformer as by_torch
from nn.sampling_normalizer import SamplingNormalizer
from torch import nn

from seq2seq_attn.encoder.encoder import Encoded
from seq2seq_attn.encoder.transformer import TransformerEncoder
from seq2seq_attn.errors import UserError
from seq2seq_attn.position.sinusoidal import SinusoidalPosition

POSITIONS = options("position")
BATCH, HEADS, DIM, FF_DIM, SOURCE, LAYERS = 3, 3, 18, 13, 7, 2
MASK = torch.arange(SOURCE) < torch.tensor([[4], [7], [1]])


def encoder(**changed: Any) -> TransformerEncoder:
    own = {"input_dim": DIM, "dim": DIM, "num_layers": LAYERS, "norm": "pre", "dropout": 0.0}
    own |= {"self_attention": by_torch.attention_factory(HEADS)}
    own |= {"position": by_torch.position_factory("none")}
    own |= {"feed_forward": by_torch.feed_forward_factory(FF_DIM)}
    return TransformerEncoder(**{**own, **changed})


def torchs(norm: str, activation: str, dtype: torch.dtype) -> nn.TransformerEncoder:
    layer = nn.TransformerEncoderLayer(
        DIM, HEADS, FF_DIM, dropout=0.0, activation=activation, batch_first=True, norm_first=norm == "pre"
    )
    closing = nn.LayerNorm(DIM) if norm == "pre" else None
    return nn.TransformerEncoder(layer, LAYERS, closing, enable_nested_tensor=False).to(dtype)


def pairs(ours: TransformerEncoder, theirs: nn.TransformerEncoder) -> by_torch.Pairs:
    found = by_torch.closing_pairs(ours, theirs)
    for own, other in zip(ours.layers, theirs.layers, strict=True):
        found += by_torch.attention_pairs(own.attention, other.self_attn)
        found += by_torch.rest_pairs(own, other, [own.attention_residual, own.feed_forward_residual])
    return found


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("activation", ["relu", "gelu"])
@pytest.mark.parametrize("norm", ["pre", "post"])
@pytest.mark.parametrize("length", [7, 23])  # with few rows, and with enough to pack the projections
def test_outputs_and_gradients_equal_torchs(length: int, norm: str, activation: str, dtype: torch.dtype) -> None:
    mask = torch.arange(length) < torch.tensor([[4], [length], [1]])
    ours = encoder(norm=norm, feed_forward=by_torch.feed_forward_factory(FF_DIM, activation)).to(dtype)
    by_torch.shaken(ours)
    theirs = torchs(norm, activation, dtype)
    by_torch.copy(pairs(ours, theirs), ours, theirs)
    x = torch.randn(BATCH, length, DIM, dtype=dtype, requires_grad=True)
    same = x.detach().clone().requires_grad_()
    found, expected = ours(x, mask).keys, theirs(same, src_key_padding_mask=~mask)
    # Padding is left out of the comparison: ours is zero.
    expected = expected.masked_fill(~mask[..., None], 0.0)
    by_torch.assert_same(found, expected)
    upstream = torch.randn_like(found)
    (found * upstream).sum().backward()
    (expected * upstream).sum().backward()
    by_torch.assert_same(x.grad, same.grad)
    by_torch.assert_same_gradients(pairs(ours, theirs))


@pytest.mark.usefixtures("double")
@pytest.mark.parametrize("need_weights", [False, True])
@pytest.mark.parametrize("norm", ["pre", "post"])
@pytest.mark.parametrize("position", POSITIONS)
def test_a_batch_equals_its_sentences_one_by_one(position: str, norm: str, need_weights: bool) -> None:
    ours = encoder(input_dim=11, norm=norm, position=by_torch.position_factory(position)).eval()
    by_torch.shaken(ours)
    x = torch.randn(BATCH, SOURCE, 11)
    together = ours(x, MASK, need_weights=need_weights)
    for row, length in enumerate(MASK.sum(1).tolist()):
        alone = ours(x[row : row + 1, :length], MASK[row : row + 1, :length])
        torch.testing.assert_close(together.keys[row, :length], alone.keys[0], rtol=0, atol=1e-12)
        torch.testing.assert_close(together.summary[row], alone.summary[0], rtol=0, atol=1e-12)
        torch.testing.assert_close(together.summary[row], alone.keys[0].mean(0), rtol=0, atol=1e-12)
        assert (together.keys[row, length:] == 0).all()


@pytest.mark.parametrize("position", POSITIONS)
def test_the_content_of_padding_changes_nothing(position: str) -> None:
    ours = encoder(position=by_torch.position_factory(position)).eval()
    x = torch.randn(BATCH, SOURCE, DIM, requires_grad=True)
    other = x.detach().masked_fill(~MASK[..., None], 99.0)
    found = ours(x, MASK)
    assert torch.equal(found.keys, ours(other, MASK).keys)
    found.keys.square().sum().backward()
    assert (x.grad[~MASK] == 0).all()
    assert (x.grad[MASK] != 0).any(-1).all()


def test_keys_and_values_are_one_tensor_of_the_widths_it_says() -> None:
    ours = encoder(input_dim=11)
    found = ours(torch.randn(BATCH, SOURCE, 11), MASK)
    assert found.keys is found.values
    assert found.keys.shape == (BATCH, SOURCE, ours.key_dim)
    assert found.summary.shape == (BATCH, ours.summary_dim)
    assert ours.key_dim == ours.value_dim == ours.summary_dim == DIM


def test_an_embedding_of_the_encoders_width_is_not_projected() -> None:
    assert isinstance(encoder(input_dim=DIM).project, nn.Identity)
    assert encoder(input_dim=11).project.weight.shape == (DIM, 11)


@pytest.mark.usefixtures("double")
@pytest.mark.parametrize("position", POSITIONS)
def test_without_positions_a_sentence_is_a_bag_of_words(position: str) -> None:
    ours = encoder(position=by_torch.position_factory(position)).eval()
    x, order = torch.randn(1, SOURCE, DIM), torch.randperm(SOURCE)
    assert (order != torch.arange(SOURCE)).any()
    everywhere = torch.ones(1, SOURCE, dtype=torch.bool)
    change = (ours(x[:, order], everywhere).keys - ours(x, everywhere).keys[:, order]).abs().max()
    assert change < 1e-12 if position == "none" else change > 1e-3


def test_weights_of_every_layer_are_returned_on_request_and_change_nothing() -> None:
    ours = encoder().eval()
    x = torch.randn(BATCH, SOURCE, DIM)
    plain, asked = ours(x, MASK), ours(x, MASK, need_weights=True)
    torch.testing.assert_close(plain.keys, asked.keys)
    assert plain.weights == {}
    assert list(asked.weights) == ["encoder/0", "encoder/1"]
    for weights in asked.weights.values():
        assert weights.shape == (BATCH, HEADS, SOURCE, SOURCE)
        torch.testing.assert_close(weights.sum(-1), torch.ones(BATCH, HEADS, SOURCE))
        assert (weights.masked_select(~MASK[:, None, None]) == 0).all()
    assert not torch.equal(asked.weights["encoder/0"], asked.weights["encoder/1"])


def test_log_prob_and_entropy_are_summed_over_layers_and_heads() -> None:
    ours = encoder(
        num_layers=5, self_attention=by_torch.attention_factory(HEADS, normalizer=partial(SamplingNormalizer))
    )
    found: Encoded = ours(torch.randn(BATCH, SOURCE, DIM), MASK)
    expected = 5 * HEADS * torch.arange(7.0).expand(BATCH, -1)
    torch.testing.assert_close(found.log_prob, expected)
    torch.testing.assert_close(found.entropy, 2 * expected)
    plain = encoder()(torch.randn(BATCH, SOURCE, DIM), MASK)
    assert plain.log_prob is None
    assert plain.entropy is None


def test_every_layer_has_its_own_parts_and_knows_its_number() -> None:
    asked: list[dict[str, Any]] = []

    def attention(**sizes: Any) -> Any:
        asked.append(sizes)
        return by_torch.attention_factory(HEADS)(**sizes)

    ours = encoder(self_attention=partial(attention), position=by_torch.position_factory("relative"))
    assert [sizes["layer"] for sizes in asked] == [0, 1]
    first, second = ours.layers
    for part in ("attention", "feed_forward", "attention_residual", "feed_forward_residual"):
        assert getattr(first, part) is not getattr(second, part)
    assert first.attention.relative is not second.attention.relative
    assert first.attention.relative is not None


def test_the_embedding_with_its_positions_is_dropped_out() -> None:
    ours = encoder(num_layers=0, norm="post", dropout=0.75, position=by_torch.position_factory("sinusoidal"))
    x, everywhere = torch.zeros(1, 31, DIM), torch.ones(1, 31, dtype=torch.bool)
    joined = ours.eval()(x, everywhere).keys
    ratio = ours.train()(x, everywhere).keys[joined != 0] / joined[joined != 0]
    torch.testing.assert_close(ratio.unique(), torch.tensor([0.0, 4.0]))
    assert 0.15 < (ratio > 0).float().mean() < 0.35


@pytest.mark.parametrize("norm", ["pre", "post"])
def test_what_each_part_adds_is_dropped_out(norm: str) -> None:
    ours = encoder(dropout=0.25, norm=norm)
    residuals = [r for layer in ours.layers for r in (layer.attention_residual, layer.feed_forward_residual)]
    assert [residual.dropout.p for residual in residuals] == [0.25] * 4


@pytest.mark.usefixtures("double")
@pytest.mark.parametrize("norm", ["pre", "post"])
@pytest.mark.parametrize("position", POSITIONS)
def test_every_parameter_gets_a_gradient(position: str, norm: str) -> None:
    ours = encoder(input_dim=11, norm=norm, position=by_torch.position_factory(position))
    ours(torch.randn(BATCH, SOURCE, 11), MASK).keys[..., ::2].square().sum().backward()
    for name, parameter in ours.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.isfinite().all(), name
        # These add the same to all scores of a row, which leaves the softmax as it is; rotated, a bias does not.
        is_shift = name.endswith(("score.project_key.bias", "relative.reduce.bias")) and position != "rotary"
        assert (parameter.grad.abs() > 1e-9).any() != is_shift, name


@pytest.mark.parametrize("position", POSITIONS)
def test_a_causal_encoder_reads_from_left_to_right(position: str) -> None:
    ours = encoder(position=by_torch.position_factory(position), causal=True).double()
    by_torch.shaken(ours)
    x = torch.randn(BATCH, SOURCE, DIM, dtype=torch.float64)
    mask = torch.ones(BATCH, SOURCE, dtype=torch.bool)
    found = ours(x, mask, need_weights=True)
    for weights in found.weights.values():
        assert (weights.triu(1) == 0).all()
    for length in range(1, SOURCE):
        read = ours(x[:, :length], mask[:, :length]).keys
        torch.testing.assert_close(read, found.keys[:, :length], rtol=0, atol=1e-12)
    ours.causal = False
    assert not torch.allclose(ours(x, mask).keys[:, :1], found.keys[:, :1])


def test_a_sentence_without_a_real_token_gives_zeros_and_finite_gradients() -> None:
    ours, x = encoder(), torch.randn(BATCH, SOURCE, DIM, requires_grad=True)
    found = ours(x, MASK & torch.tensor([[True], [False], [True]]))
    assert (found.keys[1] == 0).all()
    assert (found.summary[1] == 0).all()
    (found.keys.square().sum() + found.summary.sum()).backward()
    assert all(tensor.grad.isfinite().all() for tensor in (x, *ours.parameters()))


def test_a_layer_of_inference_frees_its_context_keys_and_values() -> None:
    ours, made, alive = encoder(num_layers=3), [], []

    def note(layer: Any, inputs: Any, output: Any) -> None:
        attended = output[1]
        made.append([weakref.ref(x) for x in (attended.context, attended.memory.values, *attended.memory.keys)])

    for layer in ours.layers:
        layer.register_forward_hook(note)
    ours.norm.register_forward_pre_hook(  # when all layers are computed
        lambda *_: alive.extend(any(x() is not None for x in layer) for layer in made)
    )
    with torch.no_grad():
        ours(torch.randn(BATCH, SOURCE, DIM), MASK)
    assert alive == [False, False, True]  # the last one's until the end of the call


@pytest.mark.parametrize(
    ("part", "name"),
    [
        ({"position": partial(SinusoidalPosition, dim=0, base=1e4)}, "SinusoidalPosition"),
        ({"feed_forward": partial(by_torch.feed_forward_factory(FF_DIM), dim=DIM)}, "FeedForward"),
    ],
)
def test_a_part_with_a_width_of_its_own_is_refused(part: dict[str, Any], name: str) -> None:
    with pytest.raises(UserError, match=rf"^{name} gets dim from the module around it; remove 'dim' from its options$"):
        encoder(**part)
