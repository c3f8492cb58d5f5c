"""Convolutional encoder. Gehring et al. 2017, sections 3.1 to 3.4, arXiv:1705.03122."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Any, final

from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn import functional as F

from seq2seq_attn.encoder.encoder import Encoded, Encoder
from seq2seq_attn.errors import UserError
from seq2seq_attn.factory import build_part
from seq2seq_attn.nn.dropout import Dropout
from seq2seq_attn.nn.gated_convolution import HALVE_VARIANCE, GatedConvolution, normed_linear
from seq2seq_attn.nn.masked import masked_mean


@final
class ConvEncoder(Encoder):
    """Keys are the outputs z, values are z + e with e the embedding and its position; the summary is the mean of z.

    The paper writes z + e. As in its code (fairseq), the sum is scaled by sqrt(0.5), which keeps the variance.
    Deviation: the paper divides the gradient of the encoder by the number of attentions that read it; this encoder
    does not, because it does not know its decoder.

    Args:
        input_dim: width of the embedded source, the keys, the values and the summary.
        position: factory of the position encoding. A relative one has no effect, as there is no self-attention.
        dim: width of the convolutions.
        kernel_size: number of positions in a window, an odd number.
        dropout: dropout of the embedding and of the input of each convolution.

    Raises:
        UserError: if `kernel_size` is even.
    """

    def __init__(
        self,
        *,
        input_dim: int,
        position: partial[Any],
        dim: Annotated[int, "[1, 16384]"],
        num_layers: Annotated[int, "[1, 1000]"],
        kernel_size: Annotated[int, "[1, 16384]"],
        dropout: Annotated[float, "[0, 1)"],
    ) -> None:
        super().__init__()
        if kernel_size % 2 == 0:
            raise UserError(
                f"model.encoder.kernel_size={kernel_size} is even, but a window has equally many positions on both "
                "sides; use an odd number"
            )
        self.key_dim = self.value_dim = self.summary_dim = input_dim
        self.reach = kernel_size // 2
        self.position = build_part(position, dim=input_dim)
        self.dropout = Dropout(dropout)
        self.widen = normed_linear(input_dim, dim, variance=1 - dropout)
        self.layers = nn.ModuleList(
            GatedConvolution(dim=dim, kernel_size=kernel_size, dropout=dropout) for _ in range(num_layers)
        )
        self.narrow = normed_linear(dim, input_dim, variance=1.0)

    def forward(
        self,
        embedded: Float[Tensor, "batch source input_dim"],
        mask: Bool[Tensor, "batch source"],
        *,
        need_weights: bool = False,
    ) -> Encoded:
        padding = ~mask.unsqueeze(-1)
        embedding = self.dropout(self.position(embedded)).masked_fill(padding, 0.0)
        hidden = self.widen(embedding)
        for layer in self.layers:
            # A window that extends into the padding must read zeros, as it does beyond the ends of the batch.
            hidden = hidden.masked_fill(padding, 0.0)
            output = layer(F.pad(hidden, (0, 0, self.reach, self.reach)))
            hidden = (output + hidden) * HALVE_VARIANCE
        output = self.narrow(hidden).masked_fill(padding, 0.0)
        return Encoded(output, (output + embedding) * HALVE_VARIANCE, mask, masked_mean(output, mask))
