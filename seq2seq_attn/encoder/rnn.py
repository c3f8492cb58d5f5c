"""Recurrent encoder, one or two directions. Bahdanau et al. 2015, A.2.1, arXiv:1409.0473."""

from __future__ import annotations

from typing import Literal, final

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from seq2seq_attn.encoder.encoder import Encoder
from seq2seq_attn.tensors.encoded import Encoded
from seq2seq_attn.tensors.error import UserError

CELLS: dict[str, type[nn.GRU] | type[nn.LSTM]] = {"gru": nn.GRU, "lstm": nn.LSTM}


@final
class RNNEncoder(Encoder):
    """The outputs of the last layer are keys and values; its last states are the summary.

    Args:
        input_dim: width of the embedded source.
        cell: gru (Cho et al. 2014) or lstm (Hochreiter and Schmidhuber 1997).
        hidden_dim: width of the output, which two directions share.
        dropout: between layers and on the output.
    """

    def __init__(
        self, *, input_dim: int, cell: Literal["gru", "lstm"], hidden_dim: int, num_layers: int,
        bidirectional: bool, dropout: float,
    ) -> None:  # fmt: skip
        super().__init__()
        directions = 2 if bidirectional else 1
        if hidden_dim % directions:
            raise UserError(f"two directions share encoder.hidden_dim={hidden_dim}; make it even")
        self.key_dim = self.value_dim = self.summary_dim = hidden_dim
        self.rnn = CELLS[cell](
            input_dim, hidden_dim // directions, num_layers, batch_first=True, bidirectional=bidirectional,
            dropout=dropout if num_layers > 1 else 0.0,
        )  # fmt: skip
        self.dropout = nn.Dropout(dropout)
        for name, parameter in self.rnn.named_parameters():
            initialise_recurrent(name, parameter)

    def forward(
        self, embedded: Float[Tensor, "batch source input_dim"], mask: Bool[Tensor, "batch source"]
    ) -> Encoded:
        # Packing is what keeps the backward direction from starting in the padding.
        lengths = mask.sum(-1).cpu()
        packed = pack_padded_sequence(embedded, lengths, batch_first=True, enforce_sorted=False)
        packed_output, last = self.rnn(packed)
        output, _ = pad_packed_sequence(packed_output, batch_first=True, total_length=embedded.shape[1])
        hidden = last[0] if isinstance(last, tuple) else last
        final_layer = hidden[-2:] if self.rnn.bidirectional else hidden[-1:]
        summary = final_layer.transpose(0, 1).flatten(1)
        output = self.dropout(output)
        return Encoded(output, output, mask, summary)


def initialise_recurrent(name: str, parameter: Tensor) -> None:
    """Orthogonal recurrent matrices (gate by gate), Glorot input matrices, biases of 0."""
    if "bias" in name:
        nn.init.zeros_(parameter)
    elif "hh" in name:
        with torch.no_grad():
            for gate in parameter.split(parameter.shape[1]):
                nn.init.orthogonal_(gate)
    else:
        nn.init.xavier_uniform_(parameter)
