"""Recurrent decoder with attention before the step. Bahdanau et al. 2015, A.2.2, arXiv:1409.0473."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Any, Literal, final

import torch
from jaxtyping import Float
from torch import Tensor

from seq2seq_attn.attention.guide import Guide
from seq2seq_attn.attention.layer import AttentionLayer
from seq2seq_attn.decoder.attention_steps import AttentionSteps
from seq2seq_attn.decoder.decoder import Decoded, Decoder
from seq2seq_attn.decoder.readout import build_readout
from seq2seq_attn.decoder.rnn_state import RNNState, decoded_of
from seq2seq_attn.decoder.stack import Stack
from seq2seq_attn.encoder.encoder import Encoded, Encoder
from seq2seq_attn.errors import UserError
from seq2seq_attn.nn.dropout import Dropout


@final
class RNNDecoder(Decoder):
    """c_t = attend(s_{t-1}); s_t = f([e_t; c_t], s_{t-1}); output tanh(W [s_t; c_t; e_t]).

    With `readout=maxout` the output is the paper's, the maxout of W [s_{t-1}; c_t; e_t].

    Args:
        input_dim: width of the embedded target.
        key_dim, value_dim, summary_dim: widths of the encoder's outputs.
        attention: factory of the attention to the source.
        cell: gru or lstm.
        dim: width of every layer.
        residual, layer_norm, start: see `Stack`.
        dropout: dropout between layers and of the output, except that of a linear readout.
        readout: see `build_readout`.
    """

    query_knows_token = False

    def __init__(
        self,
        *,
        input_dim: int,
        key_dim: int,
        value_dim: int,
        summary_dim: int,
        attention: partial[Any],
        cell: Literal["gru", "lstm"],
        dim: Annotated[int, "[1, 16384]"],
        num_layers: Annotated[int, "[1, 1000]"],
        residual: bool,
        layer_norm: bool,
        dropout: Annotated[float, "[0, 1)"],
        start: Literal["summary", "states"] = "summary",
        readout: Literal["tanh", "maxout", "linear"] = "tanh",
    ) -> None:
        super().__init__()
        self.attention = attention(query_dim=dim, key_dim=key_dim, value_dim=value_dim, layer=0)
        context_dim = self.attention.context_dim
        self.stack = Stack(
            token_dim=input_dim,
            step_dim=context_dim,
            summary_dim=summary_dim,
            cell=cell,
            hidden_dim=dim,
            num_layers=num_layers,
            residual=residual,
            layer_norm=layer_norm,
            dropout=dropout,
            start=start,
        )
        self.readout = build_readout(readout, dim + context_dim + input_dim, input_dim)
        self.reads_before = readout == "maxout"
        if self.reads_before and (layer_norm or (residual and num_layers > 1)):
            option = "layer_norm" if layer_norm else "residual"
            raise UserError(
                f"model.decoder.readout=maxout reads the last layer's state before the step, which has no {option}; "
                f"use model.decoder.{option}=false, or readout=tanh"
            )
        self.output_dim = dim if self.readout is None else input_dim
        self.dropout = Dropout(dropout)

    @property
    def source_attentions(self) -> list[AttentionLayer]:
        return [self.attention]

    def check_encoder(self, encoder: Encoder) -> None:
        self.stack.check_encoder(encoder)

    def initial_state(self, encoded: Encoded) -> RNNState:
        memory = self.attention.prepare(encoded.keys, encoded.values, encoded.mask)
        history = self.attention.first_history(memory)
        return RNNState(memory, self.stack.start(encoded), next_position=0, history=history)

    def forward(
        self,
        embedded: Float[Tensor, "batch target input_dim"],
        state: RNNState,
        *,
        need_weights: bool = False,
        guide: Guide | None = None,
    ) -> Decoded:
        attend = AttentionSteps(self.attention, state, need_weights=need_weights, guide=guide)
        layers, hidden = state.layers, []
        for token_gates in self.stack.token_gates(embedded):
            before = layers[-1][0]
            output, layers = self.stack(token_gates, attend(before), layers)
            hidden.append(before if self.reads_before else output)
        output, attended = torch.stack(hidden, 1), attend.joined()
        if self.readout is not None:
            output = self.dropout(self.readout(torch.cat([output, attended.context, embedded], -1)))
        after = RNNState(state.memory, layers, state.next_position + embedded.shape[1], history=attended.history)
        return decoded_of(output, after, attended)
