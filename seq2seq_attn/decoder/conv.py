"""Convolutional decoder with attention in every layer. Gehring et al. 2017, sections 3.1 to 3.4, arXiv:1705.03122."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Annotated, Any, cast, final

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from seq2seq_attn.attention.guide import Guide
from seq2seq_attn.attention.history import check_no_history
from seq2seq_attn.attention.layer import AttentionLayer
from seq2seq_attn.attention.state import Attended, AttendedLayers, AttentionMemory
from seq2seq_attn.decoder.decoder import Decoded, Decoder, DecoderState
from seq2seq_attn.encoder.encoder import Encoded
from seq2seq_attn.factory import build_part
from seq2seq_attn.nn.dropout import Dropout
from seq2seq_attn.nn.gated_convolution import HALVE_VARIANCE, GatedConvolution, normed_linear


@final
class ConvDecoder(Decoder):
    """h = GLU(conv(x)); d = W h + b + g; c = attend(d); the next x is x + h + V c, each sum scaled by sqrt(0.5).

    g is the embedded token with its position. The context of a source of m tokens is scaled by m sqrt(1 / m), as for
    uniform weights (section 3.4). An attention that ignores its query gets g, since no gradient would reach W.
    The encoder's summary is not used: the first window reads zeros.

    Args:
        input_dim: width of the embedded target, the queries and the output.
        key_dim, value_dim, summary_dim: widths of the encoder's outputs.
        attention: factory of the attention to the source, called once per layer.
        position: factory of the position encoding. A relative one has no effect, as there is no self-attention.
        dim: width of the convolutions.
        kernel_size: number of positions in a window, which ends at the current one.
        dropout: dropout of the embedding, of the input of each convolution and of the output.
    """

    def __init__(
        self,
        *,
        input_dim: int,
        key_dim: int,
        value_dim: int,
        summary_dim: int,
        attention: partial[Any],
        position: partial[Any],
        dim: Annotated[int, "[1, 16384]"],
        num_layers: Annotated[int, "[1, 1000]"],
        kernel_size: Annotated[int, "[1, 16384]"],
        dropout: Annotated[float, "[0, 1)"],
    ) -> None:
        super().__init__()
        self.output_dim, self.before_shape = input_dim, (kernel_size - 1, dim)
        self.position = build_part(position, dim=input_dim)
        self.dropout = Dropout(dropout)
        self.widen = normed_linear(input_dim, dim, variance=1 - dropout)
        self.layers = nn.ModuleList(
            DecoderLayer(
                attention=attention(query_dim=input_dim, key_dim=key_dim, value_dim=value_dim, layer=layer),
                input_dim=input_dim,
                dim=dim,
                kernel_size=kernel_size,
                dropout=dropout,
            )
            for layer in range(num_layers)
        )
        self.narrow = normed_linear(dim, input_dim, variance=1.0)

    @property
    def source_attentions(self) -> list[AttentionLayer]:
        return [cast(DecoderLayer, layer).attention for layer in self.layers]

    def initial_state(self, encoded: Encoded) -> ConvState:
        keys, values, mask = encoded.keys, encoded.values, encoded.mask
        memories = tuple(attention.prepare(keys, values, mask) for attention in self.source_attentions)
        nothing = keys.new_zeros(len(keys), *self.before_shape)
        context_scale = mask.sum(-1).to(values.dtype).sqrt()[:, None, None]
        return ConvState(memories, (nothing,) * len(memories), context_scale, next_position=0)

    def forward(
        self,
        embedded: Float[Tensor, "batch target input_dim"],
        state: ConvState,
        *,
        need_weights: bool = False,
        guide: Guide | None = None,
    ) -> Decoded:
        embedding = self.dropout(self.position(embedded, start=state.next_position))
        hidden, target = self.widen(embedding), embedded.shape[1]
        inputs: list[Tensor] = []
        layers = AttendedLayers()
        for i, layer in enumerate(self.layers):
            window = torch.cat([state.inputs[i], hidden], 1)
            inputs.append(window[:, target:])
            hidden, attended = layer(
                window,
                embedding,
                state.memories[i],
                state.context_scale,
                state.next_position,
                need_weights,
                None if guide is None or guide.layer != i else guide,
            )
            layers.add(f"cross/{i}", attended)
        return Decoded(
            self.dropout(self.narrow(hidden)),
            ConvState(state.memories, tuple(inputs), state.context_scale, state.next_position + target),
            layers.weights,
            layers.log_prob,
            layers.entropy,
            layers.alignment_loss,
        )


@final
@dataclass(frozen=True)
class ConvState(DecoderState):
    """The state between steps: the source memory of each layer, and the inputs that the next window reads.

    Attributes:
        inputs: the last `kernel_size - 1` inputs of each convolution, zeros before the first token.
        context_scale: sqrt(m) of each hypothesis, for m real source tokens.
        next_position: position of the next token.
    """

    memories: tuple[AttentionMemory, ...]
    inputs: tuple[Float[Tensor, "batch before dim"], ...]
    context_scale: Float[Tensor, "batch 1 1"]
    next_position: int

    def branch(self, rows: Int[Tensor, " rows"]) -> ConvState:
        inputs = tuple(before[rows] for before in self.inputs)
        return replace(self, inputs=inputs, context_scale=self.context_scale[rows])

    def keep(self, sentences: Int[Tensor, " sentences"]) -> ConvState:
        return replace(self, memories=tuple(memory.select(sentences) for memory in self.memories))


@final
class DecoderLayer(nn.Module):
    """A causal convolution and attention to the source in a residual connection, each sum scaled by sqrt(0.5)."""

    def __init__(
        self, *, attention: AttentionLayer, input_dim: int, dim: int, kernel_size: int, dropout: float
    ) -> None:
        super().__init__()
        self.convolution = GatedConvolution(dim=dim, kernel_size=kernel_size, dropout=dropout)
        check_no_history(attention)
        self.attention = attention
        self.project_query = None
        if attention.reads_query:
            self.project_query = normed_linear(dim, input_dim, variance=1.0)
        self.project_context = normed_linear(attention.context_dim, dim, variance=1.0)

    def forward(
        self,
        window: Float[Tensor, "batch window dim"],
        embedding: Float[Tensor, "batch target input_dim"],
        memory: AttentionMemory,
        context_scale: Float[Tensor, "batch 1 1"],
        position: int,
        need_weights: bool,
        guide: Guide | None,
    ) -> tuple[Float[Tensor, "batch target dim"], Attended]:
        output = self.convolution(window)
        query = embedding
        if self.project_query is not None:
            query = (self.project_query(output) + embedding) * HALVE_VARIANCE
        attended = self.attention(query, memory, start=position, need_weights=need_weights, guide=guide)
        output = (output + self.project_context(attended.context * context_scale)) * HALVE_VARIANCE
        return (output + window[:, -output.shape[1] :]) * HALVE_VARIANCE, attended
