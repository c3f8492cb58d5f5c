"""Recurrent encoder, one or two directions. Bahdanau et al. 2015, A.2.1, arXiv:1409.0473."""

from __future__ import annotations

from typing import Annotated, Literal, final

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from seq2seq_attn.encoder.encoder import Encoded, Encoder
from seq2seq_attn.errors import UserError
from seq2seq_attn.nn.dropout import Dropout

CELLS: dict[str, type[nn.GRU] | type[nn.LSTM]] = {"gru": nn.GRU, "lstm": nn.LSTM}


@final
class RNNEncoder(Encoder):
    """A recurrent encoder: keys and values are the outputs of the last layer, the summary is its last state.

    Args:
        input_dim: width of the embedded source.
        cell: gru (Cho et al. 2014) or lstm (Hochreiter and Schmidhuber 1997).
        dim: width of the output; two directions have half of it each.
        residual: add the input of each layer but the first to its output (Wu et al. 2016, section 3.1).
        layer_norm: normalise the output of each layer (Ba et al. 2016).
        dropout: dropout between layers and of the output.

    Raises:
        UserError: if `dim` is odd for two directions.
    """

    def __init__(
        self,
        *,
        input_dim: int,
        cell: Literal["gru", "lstm"],
        dim: Annotated[int, "[1, 16384]"],
        num_layers: Annotated[int, "[1, 1000]"],
        bidirectional: bool,
        residual: bool,
        layer_norm: bool,
        dropout: Annotated[float, "[0, 1)"],
    ) -> None:
        super().__init__()
        directions = 2 if bidirectional else 1
        if dim % directions:
            raise UserError(f"model.encoder.dim={dim} is odd, but two directions share it; use an even number")
        self.key_dim = self.value_dim = self.summary_dim = dim
        self.layers = nn.ModuleList(
            CELLS[cell](width, dim // directions, batch_first=True, bidirectional=bidirectional)
            for width in [input_dim, *[dim] * (num_layers - 1)]
        )
        self.norms = nn.ModuleList(nn.LayerNorm(dim) if layer_norm else nn.Identity() for _ in range(num_layers))
        self.state_dims = ((dim,) * (2 if cell == "lstm" else 1),) * num_layers
        self.residual = residual
        self.dropout = Dropout(dropout)
        for name, parameter in self.layers.named_parameters():
            initialise_recurrent(name, parameter)

    @torch.compiler.disable  # it loses the batch sizes of packed sequences, and a layer is one kernel anyway
    def forward(
        self,
        embedded: Float[Tensor, "batch source input_dim"],
        mask: Bool[Tensor, "batch source"],
        *,
        need_weights: bool = False,
    ) -> Encoded:
        # Without packing, the backward direction would start in the padding.
        positions = torch.arange(1, mask.shape[1] + 1, device=mask.device)
        lengths, ends = torch.stack([mask.sum(-1), (mask * positions).amax(-1)]).cpu()
        if not torch.equal(lengths, ends):
            raise UserError(
                "an RNN encoder reads a sentence from its beginning: give a mask that is True for its tokens, and then "
                "False for padding"
            )
        packed = pack_padded_sequence(embedded, lengths.clamp(min=1), batch_first=True, enforce_sorted=False)
        states = []
        for depth, (layer, norm) in enumerate(zip(self.layers, self.norms, strict=True)):
            below = packed.data
            packed, last = layer(packed)
            last = last if isinstance(last, tuple) else (last,)
            states.append(tuple(state.transpose(0, 1).flatten(1) for state in last))  # the directions side by side
            risen = packed.data + below if self.residual and depth > 0 else packed.data
            packed = packed._replace(data=self.dropout(norm(risen)))
        output, _ = pad_packed_sequence(packed, batch_first=True, total_length=embedded.shape[1])
        if not lengths.all():  # of nothing, nothing is known
            output = output * mask.unsqueeze(-1)
            some = mask.any(-1, keepdim=True)
            states = [tuple(state * some for state in layer) for layer in states]
        return Encoded(output, output, mask, states[-1][0], states=tuple(states))


def initialise_recurrent(name: str, parameter: Tensor) -> None:
    """Initialise a parameter: recurrent matrices orthogonal gate by gate, input matrices Glorot, biases 0."""
    if "bias" in name:
        nn.init.zeros_(parameter)
    elif "hh" in name:
        with torch.no_grad():
            for gate in parameter.split(parameter.shape[1]):
                nn.init.orthogonal_(gate)
    else:
        nn.init.xavier_uniform_(parameter)
