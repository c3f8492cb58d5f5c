"""Transformer encoder: self-attention and a feed-forward part in every layer. Vaswani et al. 2017, arXiv:1706.03762."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Any, Literal, final

from jaxtyping import Bool, Float
from torch import Tensor, nn

from seq2seq_attn.attention.layer import AttentionLayer
from seq2seq_attn.attention.state import Attended, AttendedLayers
from seq2seq_attn.encoder.encoder import Encoded, Encoder
from seq2seq_attn.factory import build_part
from seq2seq_attn.nn.dropout import Dropout
from seq2seq_attn.nn.linear import Linear
from seq2seq_attn.nn.masked import masked_mean
from seq2seq_attn.nn.residual import Residual, closing_norm


@final
class TransformerEncoder(Encoder):
    """The Transformer encoder: keys and values are its output, zero at padding; the summary is its mean.

    Args:
        input_dim: width of the embedded source; a linear layer follows if it differs from `dim`.
        self_attention: factory of the attention of each layer.
        position: factory of the position encoding.
        feed_forward: factory of the feed-forward part of each layer.
        norm: place of the layer normalisation: `pre`, before each part and after the last layer, or `post`, after
            each sum, as in the paper.
        dropout: dropout of the embedded source with its positions, and of the output of each part.
        causal: whether a token attends to itself and to those before it alone, so that its output can be computed
            before the rest is there (Elbayad et al. 2020, section 3, arXiv:2005.08595). The summary, from which
            recurrent decoders start, is of the whole source all the same.
    """

    def __init__(
        self,
        *,
        input_dim: int,
        self_attention: partial[Any],
        position: partial[Any],
        feed_forward: partial[Any],
        num_layers: Annotated[int, "[1, 1000]"],
        dim: Annotated[int, "[1, 16384]"],
        norm: Literal["pre", "post"],
        dropout: Annotated[float, "[0, 1)"],
        causal: bool = False,
    ) -> None:
        super().__init__()
        self.causal = causal
        self.key_dim = self.value_dim = self.summary_dim = dim
        self.project = nn.Identity() if input_dim == dim else Linear(input_dim, dim)
        self.position = build_part(position, dim=dim)
        self.dropout = Dropout(dropout)
        relative = self.position.causal_relative if causal else self.position.relative
        self.layers = nn.ModuleList(
            EncoderLayer(
                attention=self_attention(query_dim=dim, key_dim=dim, value_dim=dim, layer=layer, relative=relative),
                feed_forward=build_part(feed_forward, dim=dim),
                dim=dim,
                norm=norm,
                dropout=dropout,
            )
            for layer in range(num_layers)
        )
        self.norm = closing_norm(norm, dim)

    def forward(
        self,
        embedded: Float[Tensor, "batch source input_dim"],
        mask: Bool[Tensor, "batch source"],
        *,
        need_weights: bool = False,
    ) -> Encoded:
        x, layers = self.dropout(self.position(self.project(embedded))), AttendedLayers()
        for i, layer in enumerate(self.layers):
            x, attended = layer(x, mask, need_weights, causal=self.causal)
            layers.add(f"encoder/{i}", attended)
        output = self.norm(x).masked_fill(~mask.unsqueeze(-1), 0.0)
        return Encoded(
            output,
            output,
            mask,
            masked_mean(output, mask),
            weights=layers.weights,
            log_prob=layers.log_prob,
            entropy=layers.entropy,
        )


@final
class EncoderLayer(nn.Module):
    """Self-attention, then the feed-forward part, each in a residual connection."""

    def __init__(
        self,
        *,
        attention: AttentionLayer,
        feed_forward: nn.Module,
        dim: int,
        norm: Literal["pre", "post"],
        dropout: float,
    ) -> None:
        super().__init__()
        self.attention, self.feed_forward = attention, feed_forward
        self.attention_residual = Residual(dim=dim, norm=norm, dropout=dropout)
        self.feed_forward_residual = Residual(dim=dim, norm=norm, dropout=dropout)

    def forward(
        self,
        x: Float[Tensor, "batch source dim"],
        mask: Bool[Tensor, "batch source"],
        need_weights: bool,
        *,
        causal: bool = False,
    ) -> tuple[Float[Tensor, "batch source dim"], Attended]:
        before = self.attention_residual.before(x)
        attended = self.attention.attend_self(before, mask, causal=causal, need_weights=need_weights)
        x = self.attention_residual(x, attended.context)
        return self.feed_forward_residual(x, self.feed_forward(self.feed_forward_residual.before(x))), attended
