"""Location-sensitive score: v . tanh(W q + V k_j + U f_j + b), f = F * a_(t-1). Chorowski et al. 2015, eq. 8-9."""

from __future__ import annotations

from typing import Annotated, final

from jaxtyping import Float
from torch import Tensor, nn

from seq2seq_attn.attention.history import ReadsHistory
from seq2seq_attn.attention.score.additive import AdditiveScore, vector_of_tanh
from seq2seq_attn.attention.score.score import Score
from seq2seq_attn.attention.state import QueryKeyPositions
from seq2seq_attn.errors import UserError
from seq2seq_attn.nn.heads import HeadLinear


@final
class LocationSensitiveScore(ReadsHistory, Score):
    """The additive score with features of the weights of the step before, arXiv:1506.07503.

    f_j is a convolution of those weights, zero at both ends and before the first step. Each head has its own F, U, b.

    Args:
        hidden_dim: width of the hidden layer over all heads; None: `query_dim`.
        num_filters: width of f_j, the rows of F.
        kernel_size: number of neighbouring weights that a filter reads; odd, so that it is centred.

    Raises:
        UserError: for no filter, or a kernel that has no centre.
    """

    def __init__(
        self,
        *,
        query_dim: int,
        key_dim: int,
        num_heads: int,
        hidden_dim: Annotated[int | None, "[1, 16384]"],
        num_filters: Annotated[int, "[1, 1000]"],
        kernel_size: Annotated[int, "[1, 16384]"],
    ) -> None:
        super().__init__()
        if num_filters < 1 or kernel_size < 1 or kernel_size % 2 == 0:
            raise UserError(
                f"attention.score.num_filters={num_filters} and attention.score.kernel_size={kernel_size} must be at "
                "least 1, and the kernel odd, so that it has a centre; take 10 and 5"
            )
        self.additive = AdditiveScore(query_dim=query_dim, key_dim=key_dim, num_heads=num_heads, hidden_dim=hidden_dim)
        self.num_filters, width = num_filters, self.additive.vector.shape[1]
        self.convolution = nn.Conv1d(
            num_heads, num_heads * num_filters, kernel_size, padding=kernel_size // 2, groups=num_heads, bias=False
        )
        self.from_features = HeadLinear(num_heads=num_heads, input_dim=num_filters, output_dim=width, bias=True)

    def prepare_query(
        self, query: Float[Tensor, "batch target query_dim"]
    ) -> tuple[Float[Tensor, "batch heads target width"]]:
        return self.additive.prepare_query(query)

    def prepare_keys(
        self, keys: Float[Tensor, "batch source key_dim"]
    ) -> tuple[Float[Tensor, "batch heads source width"]]:
        return self.additive.prepare_keys(keys)

    def forward(
        self,
        query: tuple[Tensor, ...],
        keys: tuple[Tensor, ...],
        positions: QueryKeyPositions,
        history: Float[Tensor, "batch heads target source"] | None = None,
    ) -> Float[Tensor, "*batch heads target source"]:
        if history is None:  # features of 0
            assert self.from_features.bias is not None
            return vector_of_tanh(self.additive.vector, query[0] + self.from_features.bias.unsqueeze(-2), keys[0])
        features = self.features(history.to(keys[0].dtype))
        return vector_of_tanh(self.additive.vector, query[0], keys[0], features)

    def features(
        self, weights: Float[Tensor, "batch heads target source"]
    ) -> Float[Tensor, "batch heads target source width"]:
        """Return U f + b of every key."""
        batch, heads, target, source = weights.shape
        if source == 0:  # a convolution refuses it
            return weights.new_zeros(batch, heads, target, 0, self.additive.vector.shape[1])
        convolved = self.convolution(weights.transpose(1, 2).flatten(0, 1))  # (batch * target, heads * filters, source)
        convolved = convolved.view(batch, target, heads, self.num_filters, source).permute(0, 2, 1, 4, 3)
        return self.from_features(convolved.flatten(2, 3)).unflatten(2, (target, source))
