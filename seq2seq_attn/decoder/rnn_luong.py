"""Recurrent decoder with attention after the step. Luong et al. 2015, section 3, arXiv:1508.04025."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Any, Literal, final

import torch
from jaxtyping import Float
from torch import Tensor, nn

from seq2seq_attn.attention.guide import Guide
from seq2seq_attn.attention.layer import AttentionLayer
from seq2seq_attn.decoder.attention_steps import AttentionSteps
from seq2seq_attn.decoder.decoder import Decoded, Decoder
from seq2seq_attn.decoder.rnn_state import RNNState, decoded_of
from seq2seq_attn.decoder.stack import Stack
from seq2seq_attn.encoder.encoder import Encoded, Encoder
from seq2seq_attn.nn.dropout import Dropout
from seq2seq_attn.nn.linear import Linear
from seq2seq_attn.nn.tanh import tanh


@final
class RNNLuongDecoder(Decoder):
    """s_t = f([e_t; h~_{t-1}], s_{t-1}); c_t = attend(s_t); h~_t = tanh(W [c_t; s_t]), eq. 5.

    With `activation=none` h~_t is W [c_t; s_t], whose numbers have no bounds.

    Args:
        input_dim: width of the embedded target.
        key_dim, value_dim, summary_dim: widths of the encoder's outputs.
        attention: factory of the attention to the source.
        cell: gru or lstm.
        dim: width of every layer and of h~.
        residual, layer_norm, start: see `Stack`.
        dropout: dropout between layers and of h~.
        activation: of h~, `tanh` or `none`.
        input_feeding: whether h~_{t-1} is part of the input (section 3.3). Without it, all queries are known in
            advance and attention is called once; an attention that reads the weights of the steps before goes step by
            step in that call.
    """

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
        input_feeding: bool,
        start: Literal["summary", "states"] = "summary",
        activation: Literal["tanh", "none"] = "tanh",
    ) -> None:
        super().__init__()
        self.attention = attention(query_dim=dim, key_dim=key_dim, value_dim=value_dim, layer=0)
        self.stack = Stack(
            token_dim=input_dim,
            step_dim=dim if input_feeding else 0,
            summary_dim=summary_dim,
            cell=cell,
            hidden_dim=dim,
            num_layers=num_layers,
            residual=residual,
            layer_norm=layer_norm,
            dropout=dropout,
            start=start,
        )
        self.input_feeding, self.output_dim = input_feeding, dim
        self.combine = Linear(self.attention.context_dim + dim, dim)
        self.activation = tanh if activation == "tanh" else nn.Identity()
        self.dropout = Dropout(dropout)

    @property
    def source_attentions(self) -> list[AttentionLayer]:
        return [self.attention]

    def check_encoder(self, encoder: Encoder) -> None:
        self.stack.check_encoder(encoder)

    def initial_state(self, encoded: Encoded) -> RNNState:
        memory = self.attention.prepare(encoded.keys, encoded.values, encoded.mask)
        layers = self.stack.start(encoded)
        feed = torch.zeros_like(layers[-1][0]) if self.input_feeding else None
        return RNNState(memory, layers, next_position=0, feed=feed, history=self.attention.first_history(memory))

    def forward(
        self,
        embedded: Float[Tensor, "batch target input_dim"],
        state: RNNState,
        *,
        need_weights: bool = False,
        guide: Guide | None = None,
    ) -> Decoded:
        if self.input_feeding:
            return self._step_by_step(embedded, state, need_weights, guide)
        layers, hidden = state.layers, []
        for token_gates in self.stack.token_gates(embedded):
            output, layers = self.stack(token_gates, None, layers)
            hidden.append(output)
        queries = torch.stack(hidden, 1)
        attended = self.attention(
            queries,
            state.memory,
            start=state.next_position,
            need_weights=need_weights,
            history=state.history,
            guide=guide,
        )
        combined = self._combined(attended.context, queries)
        after = RNNState(state.memory, layers, state.next_position + embedded.shape[1], history=attended.history)
        return decoded_of(combined, after, attended)

    def _step_by_step(
        self,
        embedded: Float[Tensor, "batch target input_dim"],
        state: RNNState,
        need_weights: bool,
        guide: Guide | None,
    ) -> Decoded:
        attend = AttentionSteps(self.attention, state, need_weights=need_weights, guide=guide)
        layers, feed, outputs = state.layers, state.feed, []
        for token_gates in self.stack.token_gates(embedded):
            query, layers = self.stack(token_gates, feed, layers)
            feed = self._combined(attend(query), query)
            outputs.append(feed)
        attended = attend.joined()
        after = RNNState(state.memory, layers, state.next_position + embedded.shape[1], feed, attended.history)
        return decoded_of(torch.stack(outputs, 1), after, attended)

    def _combined(
        self, context: Float[Tensor, "*batch context_dim"], states: Float[Tensor, "*batch dim"]
    ) -> Float[Tensor, "*batch dim"]:
        return self.dropout(self.activation(self.combine(torch.cat([context, states], -1))))
