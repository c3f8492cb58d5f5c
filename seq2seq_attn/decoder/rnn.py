"""Recurrent decoder with attention before the step. Bahdanau et al. 2015, A.2.2, arXiv:1409.0473."""

from __future__ import annotations

from functools import partial
from typing import Any, Literal, final

import torch
from jaxtyping import Float
from torch import Tensor, nn

from seq2seq_attn.decoder.decoder import Decoded, Decoder
from seq2seq_attn.decoder.gather import Gathered
from seq2seq_attn.decoder.rnn_state import RNNState
from seq2seq_attn.decoder.stack import Stack
from seq2seq_attn.tensors.encoded import Encoded


@final
class RNNDecoder(Decoder):
    """c_t = attend(s_{t-1}); s_t = f([e_t; c_t], s_{t-1}); output tanh(W [s_t; c_t; e_t]), a maxout in the paper.

    Args:
        input_dim: width of the embedded target. key_dim, value_dim, summary_dim: what the encoder gives.
        attention: factory of the attention that reads the source.
        hidden_dim: width of every layer. dropout: between layers and on the output.
    """

    def __init__(
        self, *, input_dim: int, key_dim: int, value_dim: int, summary_dim: int,
        attention: partial[Any], cell: Literal["gru", "lstm"], hidden_dim: int, num_layers: int, dropout: float,
    ) -> None:  # fmt: skip
        super().__init__()
        self.attention = attention(query_dim=hidden_dim, key_dim=key_dim, value_dim=value_dim, layer=0)
        context_dim = self.attention.context_dim
        self.stack = Stack(
            known_dim=input_dim, found_dim=context_dim, summary_dim=summary_dim, cell=cell,
            hidden_dim=hidden_dim, num_layers=num_layers, dropout=dropout,
        )  # fmt: skip
        self.output_dim = input_dim
        self.readout = nn.Linear(hidden_dim + context_dim + input_dim, input_dim)
        self.dropout = nn.Dropout(dropout)

    def initial_state(self, encoded: Encoded) -> RNNState:
        memory = self.attention.prepare(encoded.keys, encoded.values, encoded.mask)
        return RNNState(memory, self.stack.start(encoded.summary), place=0)

    def forward(
        self,
        embedded: Float[Tensor, "batch target input_dim"],
        state: RNNState,
        *,
        need_weights: bool = False,
    ) -> Decoded:
        layers, hidden, contexts, gathered = state.layers, [], [], Gathered()
        for step, known in enumerate(self.stack.known(embedded)):
            attended = self.attention(
                layers[-1][0].unsqueeze(1), state.memory, start=state.place + step, need_weights=need_weights
            )
            context = attended.context.squeeze(1)
            layers = self.stack(known, context, layers)
            hidden.append(layers[-1][0])
            contexts.append(context)
            gathered.add(attended)
        joined = torch.cat([torch.stack(hidden, 1), torch.stack(contexts, 1), embedded], -1)
        output = self.dropout(torch.tanh(self.readout(joined)))
        after = RNNState(state.memory, layers, state.place + embedded.shape[1])
        return Decoded(output, after, *gathered.joined("cross/0"))
