"""Transformer decoder with self-attention and cross-attention in every layer. Vaswani et al. 2017, arXiv:1706.03762."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from functools import partial
from typing import Annotated, Any, Literal, cast, final

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from seq2seq_attn.attention.guide import Guide
from seq2seq_attn.attention.history import check_no_history
from seq2seq_attn.attention.layer import AttentionLayer
from seq2seq_attn.attention.packed_projection import PackedProjection
from seq2seq_attn.attention.state import Attended, AttendedLayers, AttentionMemory
from seq2seq_attn.decoder.decoder import Decoded, Decoder, DecoderState
from seq2seq_attn.encoder.encoder import Encoded
from seq2seq_attn.errors import UserError
from seq2seq_attn.factory import build_part
from seq2seq_attn.nn.dropout import Dropout
from seq2seq_attn.nn.linear import Linear
from seq2seq_attn.nn.residual import Residual, closing_norm


@final
class TransformerDecoder(Decoder):
    """The Transformer decoder with a key-value cache. The encoder's summary is not used.

    Args:
        input_dim: width of the embedded target; a linear layer follows if it differs from `dim`.
        key_dim, value_dim, summary_dim: widths of the encoder's outputs.
        self_attention, cross_attention: factories of the attentions of each layer, to the prefix and to the source; no
            attention to the source: the decoder is a language model.
        position: factory of the position encoding.
        feed_forward: factory of the feed-forward part of each layer.
        norm: place of the layer normalisation: `pre`, before each part and after the last layer, or `post`, after
            each sum, as in the paper.
        dropout: dropout of the embedded target with its positions, and of the output of each part.
    """

    def __init__(
        self,
        *,
        input_dim: int,
        key_dim: int,
        value_dim: int,
        summary_dim: int,
        self_attention: partial[Any],
        cross_attention: partial[Any] | None,
        position: partial[Any],
        feed_forward: partial[Any],
        num_layers: Annotated[int, "[1, 1000]"],
        dim: Annotated[int, "[1, 16384]"],
        norm: Literal["pre", "post"],
        dropout: Annotated[float, "[0, 1)"],
    ) -> None:
        super().__init__()
        self.output_dim = dim
        self.project = nn.Identity() if input_dim == dim else Linear(input_dim, dim)
        self.position = build_part(position, dim=dim)
        self.dropout = Dropout(dropout)
        self.layers = nn.ModuleList(
            DecoderLayer(
                self_attention=self_attention(
                    query_dim=dim, key_dim=dim, value_dim=dim, layer=layer, relative=self.position.causal_relative
                ),
                cross_attention=None
                if cross_attention is None
                else of_slot(cross_attention, query_dim=dim, key_dim=key_dim, value_dim=value_dim, layer=layer),
                feed_forward=build_part(feed_forward, dim=dim),
                dim=dim,
                norm=norm,
                dropout=dropout,
            )
            for layer in range(num_layers)
        )
        self.norm = closing_norm(norm, dim)

    @property
    def source_attentions(self) -> list[AttentionLayer]:
        attentions = [cast(DecoderLayer, layer).cross_attention for layer in self.layers]
        return [attention for attention in attentions if attention is not None]

    def initial_state(self, encoded: Encoded) -> TransformerState:
        layers = [cast(DecoderLayer, layer) for layer in self.layers]
        source = tuple(
            None if attention is None else attention.prepare(encoded.keys, encoded.values, encoded.mask)
            for attention in (layer.cross_attention for layer in layers)
        )
        training = torch.is_grad_enabled()
        packed = tuple(None if training else layer.self_attention.packed() for layer in layers)
        return TransformerState(source, past=(None,) * len(source), packed=packed, next_position=0)

    def forward(
        self,
        embedded: Float[Tensor, "batch target input_dim"],
        state: TransformerState,
        *,
        need_weights: bool = False,
        guide: Guide | None = None,
    ) -> Decoded:
        x = self.dropout(self.position(self.project(embedded), start=state.next_position))
        layers = AttendedLayers()
        past: list[AttentionMemory | None] = []
        for i, layer in enumerate(self.layers):
            x, to_self, to_source = layer(
                x,
                state.past[i],
                state.packed[i],
                state.source[i],
                state.next_position,
                need_weights,
                None if guide is None or guide.layer != i else guide,
            )
            past.append(to_self.memory)
            layers.add(f"self/{i}", to_self)
            if to_source is not None:
                layers.add(f"cross/{i}", to_source)
        return Decoded(
            self.norm(x),
            TransformerState(state.source, tuple(past), state.packed, state.next_position + embedded.shape[1]),
            layers.weights,
            layers.log_prob,
            layers.entropy,
            layers.alignment_loss,
        )


@final
@dataclass(frozen=True)
class TransformerState(DecoderState):
    """The keys and values of the source and of the tokens so far.

    Attributes:
        source: memory of the source, by layer; None: the layer attends to no source.
        past: memory of the tokens so far, by layer; None before the first.
        packed: packed projections of the self-attention, by layer, computed once for all steps; None in training,
            which has one step.
        next_position: position of the next token.
    """

    source: tuple[AttentionMemory | None, ...]
    past: tuple[AttentionMemory | None, ...]
    packed: tuple[PackedProjection | None, ...]
    next_position: int

    def branch(self, rows: Int[Tensor, " rows"]) -> TransformerState:
        return replace(self, past=tuple(None if memory is None else memory.branch(rows) for memory in self.past))

    def keep(self, sentences: Int[Tensor, " sentences"]) -> TransformerState:
        return replace(
            self, source=tuple(None if memory is None else memory.select(sentences) for memory in self.source)
        )


@final
class DecoderLayer(nn.Module):
    """Causal self-attention, cross-attention if there is a source, and the feed-forward part, each with a residual."""

    def __init__(
        self,
        *,
        self_attention: AttentionLayer,
        cross_attention: AttentionLayer | None,
        feed_forward: nn.Module,
        dim: int,
        norm: Literal["pre", "post"],
        dropout: float,
    ) -> None:
        super().__init__()
        if cross_attention is not None:
            check_no_history(cross_attention)
        self.self_attention, self.cross_attention = self_attention, cross_attention
        self.feed_forward = feed_forward
        width = dim if cross_attention is None else cross_attention.context_dim  # of the values if not projected
        self.project_context = None if width == dim else Linear(width, dim)
        self.self_residual = Residual(dim=dim, norm=norm, dropout=dropout)
        self.cross_residual = None if cross_attention is None else Residual(dim=dim, norm=norm, dropout=dropout)
        self.feed_forward_residual = Residual(dim=dim, norm=norm, dropout=dropout)
        if cross_attention is not None and self.cross_residual is not None and not cross_attention.reads_query:
            self.cross_residual.before = nn.Identity()  # no gradient would reach the norm

    def forward(
        self,
        x: Float[Tensor, "batch target dim"],
        past: AttentionMemory | None,
        packed: PackedProjection | None,
        source: AttentionMemory | None,
        position: int,
        need_weights: bool,
        guide: Guide | None,
    ) -> tuple[Float[Tensor, "batch target dim"], Attended, Attended | None]:
        to_self = self.self_attention.attend_self(
            self.self_residual.before(x), past=past, packed=packed, causal=True, need_weights=need_weights
        )
        x = self.self_residual(x, to_self.context)
        to_source = None
        if self.cross_attention is not None:
            assert source is not None
            assert self.cross_residual is not None
            to_source = self.cross_attention(
                self.cross_residual.before(x), source, start=position, need_weights=need_weights, guide=guide
            )
            context = to_source.context
            x = self.cross_residual(x, context if self.project_context is None else self.project_context(context))
        x = self.feed_forward_residual(x, self.feed_forward(self.feed_forward_residual.before(x)))
        return x, to_self, to_source


def of_slot(cross_attention: partial[Any], **sizes: int) -> AttentionLayer:
    """Build the attention to the source, whose options are those of `cross_attention`, also in what refuses them."""
    try:
        layer: AttentionLayer = cross_attention(**sizes)
    except UserError as error:
        message = re.sub(r"\battention=", "attention@cross_attention=", str(error))
        message = re.sub(r"\battention/(\w+)=", r"attention/\1@cross_attention.\1=", message)
        raise UserError(re.sub(r"\battention\.(?=\w)", "cross_attention.", message)) from error
    return layer
