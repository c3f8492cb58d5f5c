"""Recurrent decoder with attention before the step. Bahdanau et al. 2015, A.2.2, arXiv:1409.0473."""

from __future__ import annotations

from functools import partial
from typing import Any, Literal, final

import torch
from jaxtyping import Float
from torch import Tensor, nn

from seq2seq_attn.attention.guide import Guide
from seq2seq_attn.attention.layer import AttentionLayer
from seq2seq_attn.decoder.decoder import Decoded, Decoder
from seq2seq_attn.decoder.rnn_state import RNNState, StepOutputs
from seq2seq_attn.decoder.stack import Stack
from seq2seq_attn.encoder.encoder import Encoded
from seq2seq_attn.nn.linear import Linear


@final
class RNNDecoder(Decoder):
    """c_t = attend(s_{t-1}); s_t = f([e_t; c_t], s_{t-1}); output tanh(W [s_t; c_t; e_t]), a maxout in the paper.

    Args:
        input_dim: width of the embedded target.
        key_dim, value_dim, summary_dim: widths of the encoder's outputs.
        attention: factory of the attention to the source.
        cell: gru or lstm.
        dim: width of every layer.
        residual, layer_norm: see `Stack`.
        dropout: dropout between layers and of the output.
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
        dim: int,
        num_layers: int,
        residual: bool,
        layer_norm: bool,
        dropout: float,
    ) -> None:
        super().__init__()
        self.attention = attention(query_dim=dim, key_dim=key_dim, value_dim=value_dim, layer=0)
        context_dim = self.attention.context_dim
        self.stack = Stack(
            known_dim=input_dim,
            found_dim=context_dim,
            summary_dim=summary_dim,
            cell=cell,
            hidden_dim=dim,
            num_layers=num_layers,
            residual=residual,
            layer_norm=layer_norm,
            dropout=dropout,
        )
        self.output_dim = input_dim
        self.readout = Linear(dim + context_dim + input_dim, input_dim)
        self.dropout = nn.Dropout(dropout)

    @property
    def source_attentions(self) -> list[AttentionLayer]:
        return [self.attention]

    def initial_state(self, encoded: Encoded) -> RNNState:
        memory = self.attention.prepare(encoded.keys, encoded.values, encoded.mask)
        history = self.attention.first_history(memory)
        return RNNState(memory, self.stack.start(encoded.summary), next_position=0, history=history)

    def forward(
        self,
        embedded: Float[Tensor, "batch target input_dim"],
        state: RNNState,
        *,
        need_weights: bool = False,
        guide: Guide | None = None,
    ) -> Decoded:
        layers, history, hidden, contexts, step_outputs = state.layers, state.history, [], [], StepOutputs()
        for step, known in enumerate(self.stack.known(embedded)):
            attended = self.attention(
                layers[-1][0].unsqueeze(1),
                state.memory,
                start=state.next_position + step,
                need_weights=need_weights,
                history=history,
                guide=None if guide is None else guide.at(step),
            )
            history = attended.history
            context = attended.context.squeeze(1)
            output, layers = self.stack(known, context, layers)
            hidden.append(output)
            contexts.append(context)
            step_outputs.add(attended)
        features = torch.cat([torch.stack(hidden, 1), torch.stack(contexts, 1), embedded], -1)
        output = self.dropout(torch.tanh(self.readout(features)))
        after = RNNState(state.memory, layers, state.next_position + embedded.shape[1], history=history)
        return Decoded(output, after, *step_outputs.join("cross/0"))
