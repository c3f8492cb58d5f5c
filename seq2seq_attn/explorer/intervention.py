"""What-if questions to a model: a head or a layer without effect or with uniform weights, source words hidden.

Each is a context manager; the model is as before after it. Search and teacher forcing see the same change.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any, Literal, NamedTuple, final, get_args

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from seq2seq_attn.attention.attention import Attention
from seq2seq_attn.attention.decay.decay import Decay
from seq2seq_attn.attention.delta_attention import DeltaAttention
from seq2seq_attn.attention.feature_map.feature_map import FeatureMap
from seq2seq_attn.attention.kernel_attention import KernelAttention
from seq2seq_attn.attention.layer import AttentionLayer
from seq2seq_attn.encoder.encoder import Encoded
from seq2seq_attn.encoder.transformer import TransformerEncoder
from seq2seq_attn.errors import UserError
from seq2seq_attn.model.encoder_decoder import EncoderDecoder

Change = Literal["knock_out", "uniform"]


class Intervention(NamedTuple):
    """A change of one head of a slot, such as `cross/0`, or of all of them (None).

    `knock_out`: its context is 0, before the gate and the projection of the output. `uniform`: it gives the same weight
    to every key that a row may attend to.
    """

    do: Change
    slot: str
    head: int | None


def attention_layers(model: EncoderDecoder) -> dict[str, AttentionLayer]:
    """Return the attention layers by slot, as `Decoded.weights` names them."""
    layers: dict[str, AttentionLayer] = {}
    for side, part in (("encoder", model.encoder), ("decoder", model.decoder)):
        for name, module in () if part is None else part.named_modules():
            if isinstance(module, AttentionLayer):
                attribute = name.rpartition(".")[2]
                kind = "encoder" if side == "encoder" else "self" if attribute == "self_attention" else "cross"
                layers[f"{kind}/{sum(slot.startswith(f'{kind}/') for slot in layers)}"] = module
    return layers


def known_changes(layer: AttentionLayer) -> tuple[Change, ...]:
    """Return what `intervened` can do to the heads of a layer."""
    if isinstance(layer, Attention | KernelAttention):
        return get_args(Change)
    return ("knock_out",) if isinstance(layer, DeltaAttention) else ()


@contextmanager
def intervened(model: EncoderDecoder, interventions: Sequence[Intervention]) -> Iterator[None]:
    """Change heads of a model; of two changes of one head the last counts.

    Raises:
        UserError: for a slot or a head that the model does not have, or an attention layer that cannot be changed.
    """
    layers, changes = attention_layers(model), dict[str, dict[int, Change]]()
    for do, slot, head in interventions:
        if slot not in layers:
            raise UserError(f"this model has no attention {slot}; choose from: {', '.join(layers)}")
        heads = range(layers[slot].num_heads)
        if head is not None and head not in heads:
            raise UserError(f"{slot} has {len(heads)} heads, and none is number {head}; count from 0")
        changes.setdefault(slot, {}).update(dict.fromkeys(heads if head is None else [head], do))
    with ExitStack() as stack:
        for slot, by_head in changes.items():
            layer = layers[slot]
            if isinstance(layer, Attention):
                stack.enter_context(changed_weights(layer, by_head))
            elif isinstance(layer, KernelAttention):
                stack.enter_context(changed_features(layer, by_head))
            elif isinstance(layer, DeltaAttention):
                if "uniform" in by_head.values():
                    raise UserError(
                        f"the weights of {slot} come from the delta rule and cannot be made uniform; use knock_out"
                    )
                stack.enter_context(without_heads(layer, by_head))
            else:
                raise UserError(
                    f"the heads of {slot}, {type(layer).__name__}, cannot be changed; choose another slot, or give "
                    "--change none to seq2seq-attn heads"
                )
        yield


def check_changes(model: EncoderDecoder, interventions: Sequence[Intervention]) -> None:
    """Refuse what `intervened` would refuse, before anything is computed."""
    with intervened(model, interventions):
        pass


@contextmanager
def changed_weights(layer: Attention, by_head: Mapping[int, Change]) -> Iterator[None]:
    """Change the weights of some heads before they average the values."""

    def change(weights: Tensor, allowed: Tensor | None) -> Tensor:
        weights = weights.clone()
        even = uniform(weights, allowed)
        for head, do in by_head.items():
            weights[:, head] = even[:, head] if do == "uniform" else 0.0
        return weights

    before, layer.change_weights = layer.change_weights, change
    try:
        yield
    finally:
        layer.change_weights = before


def uniform(
    weights: Float[Tensor, "batch heads target source"],
    allowed: Bool[Tensor, "#batch #score_heads #target #source"] | None,
) -> Float[Tensor, "batch heads target source"]:
    """Return equal weights of all keys that a row may attend to; zeros in a row that may attend to none."""
    if allowed is None:
        return torch.full_like(weights, 1 / max(1, weights.shape[-1]))
    even = by_head_of_values(allowed, weights.shape[1]).expand_as(weights).to(weights.dtype)
    return even / even.sum(-1, keepdim=True).clamp(min=1)


def by_head_of_values(
    allowed: Bool[Tensor, "#batch #score_heads target source"], heads: int
) -> Bool[Tensor, "#batch #heads target source"]:
    """Return where any score head of a head of the values is allowed: a mix may have several sets of them."""
    score_heads = allowed.shape[1]
    return allowed if score_heads in (1, heads) else allowed.unflatten(1, (-1, heads)).any(1)


@contextmanager
def changed_features(layer: KernelAttention, by_head: Mapping[int, Change]) -> Iterator[None]:
    """Change the features of some heads, whose inner products are the weights: zeros, or the same for all keys."""
    before, decay = layer.feature_map, layer.decay
    layer.feature_map = ChangedFeatures(before, by_head)
    layer.decay = None if decay is None else ChangedDecay(decay, by_head)
    try:
        yield
    finally:
        layer.feature_map, layer.decay = before, decay


@contextmanager
def without_heads(layer: DeltaAttention, heads: Iterable[int]) -> Iterator[None]:
    """Set the contexts and weights of some heads to 0."""
    before, layer.knocked_out_heads = layer.knocked_out_heads, sorted(heads)
    try:
        yield
    finally:
        layer.knocked_out_heads = before


@final
class ChangedFeatures(FeatureMap):
    """A feature map with the queries of some heads 0 (`knock_out`), or with queries and keys of 1 (`uniform`)."""

    def __init__(self, feature_map: FeatureMap, by_head: Mapping[int, Change]) -> None:
        super().__init__()
        self.feature_map, self.by_head, self.max_length = feature_map, dict(by_head), feature_map.max_length

    def query_features(
        self, query: Float[Tensor, "batch heads target width"], position: Int[Tensor, " target"]
    ) -> Float[Tensor, "batch heads target features"]:
        features = self.feature_map.query_features(query, position).clone()
        for head, do in self.by_head.items():
            features[:, head] = 1.0 if do == "uniform" else 0.0
        return features

    def key_features(
        self, keys: Float[Tensor, "batch heads source width"], position: Int[Tensor, " source"]
    ) -> Float[Tensor, "batch heads source features"]:
        features = self.feature_map.key_features(keys, position).clone()
        for head, do in self.by_head.items():
            if do == "uniform":
                features[:, head] = 1.0
        return features


@final
class ChangedDecay(Decay):
    """A decay that leaves all keys alike in some heads (`uniform`)."""

    def __init__(self, decay: Decay, by_head: Mapping[int, Change]) -> None:
        super().__init__()
        self.decay, self.by_head = decay, dict(by_head)

    def forward(
        self, keys: Float[Tensor, "batch source key_dim"]
    ) -> tuple[Float[Tensor, "batch heads source"], Float[Tensor, "batch heads source"] | None]:
        log_decay, factor = self.decay(keys)
        log_decay, factor = log_decay.clone(), None if factor is None else factor.clone()
        for head, do in self.by_head.items():
            if do == "uniform":
                log_decay[:, head] = 0.0
                if factor is not None:
                    factor[:, head] = 1.0
        return log_decay, factor


def hides_in_encoder(model: EncoderDecoder) -> bool:
    """Return whether a hidden source token is hidden in the encoder too; a recurrent or convolutional one reads it."""
    return isinstance(model.encoder, TransformerEncoder)


@contextmanager
def hidden(model: EncoderDecoder, visible: Bool[Tensor, " source"]) -> Iterator[None]:
    """Mask source tokens of every sentence as padding is masked: in cross-attention, and in that of an encoder."""

    def hide_before(encoder: nn.Module, given: tuple[Any, ...], options: dict[str, Any]) -> Any:
        embedded, mask = given
        return (embedded, mask & visible), options

    def hide_after(encoder: nn.Module, given: tuple[Any, ...], encoded: Encoded) -> Encoded:
        return replace(encoded, mask=encoded.mask & visible)

    assert model.encoder is not None, "a translator reads a source"
    if hides_in_encoder(model):
        handle = model.encoder.register_forward_pre_hook(hide_before, with_kwargs=True)
    else:
        handle = model.encoder.register_forward_hook(hide_after)
    try:
        yield
    finally:
        handle.remove()


@contextmanager
def recorded_visibility(model: EncoderDecoder) -> Iterator[dict[str, list[Tensor | None]]]:
    """Yield, by slot, where each call of an attention layer may attend: None, everywhere.

    Layers other than `Attention` are not in it.
    """
    calls: dict[str, list[Tensor | None]] = {}
    with ExitStack() as stack:
        for slot, layer in attention_layers(model).items():
            if isinstance(layer, Attention):
                stack.enter_context(recorded_calls(layer, calls.setdefault(slot, [])))
        yield calls


@contextmanager
def recorded_calls(layer: Attention, calls: list[Tensor | None]) -> Iterator[None]:
    before = layer.change_weights

    def record(weights: Tensor, allowed: Tensor | None) -> Tensor:
        heads, rows, columns = weights.shape[1:]
        calls.append(None if allowed is None else by_head_of_values(allowed, heads)[0].expand(-1, rows, columns))
        return weights if before is None else before(weights, allowed)

    layer.change_weights = record
    try:
        yield
    finally:
        layer.change_weights = before
