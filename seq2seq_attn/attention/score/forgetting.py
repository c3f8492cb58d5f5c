"""Forgetting score: scaled dot, and what the gates of the tokens between have forgotten. Lin et al. 2025, eq. 4-5."""

from __future__ import annotations

from typing import Annotated, final

from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional as F

from seq2seq_attn.attention.score.scaled_dot import ScaledDotScore
from seq2seq_attn.attention.score.score import Score
from seq2seq_attn.attention.state import QueryKeyPositions
from seq2seq_attn.nn.heads import split_heads
from seq2seq_attn.nn.precision import at_least_float32
from seq2seq_attn.nn.projections import forget_gate


@final
class ForgettingScore(Score):
    """(W q_i) . (U k_j) / sqrt(d_k) + the sum of log f_l over the tokens l from j + 1 to i, f_l = sigmoid(w . x_l + b).

    Each token computes a gate for each head; a gate near 0 removes the weight of all earlier tokens. The sum is a
    difference of two running sums of log f, c_i - c_j, which a memory holds with the keys. A token that the mask hides
    forgets nothing; where each query has a mask of its own, that is one which no query sees.

    The paper is causal (arXiv:2503.02130); here a key that follows its query is forgotten by the gates from i + 1 to j,
    so the term is -|c_i - c_j|. In attention to another sequence i is the query's own position in it, or the last.

    Args:
        num_kv_heads, head_dim, bias, scale: see `ScaledDotScore`.
        initial_gate: f before training, if w . x is 0.

    Raises:
        UserError: for an `initial_gate` that is not between 0.000001 and 0.999999.
    """

    wide_pairs: bool = False
    running_sums: int = 1

    def __init__(
        self,
        *,
        query_dim: int,
        key_dim: int,
        num_heads: int,
        num_kv_heads: int | None,
        head_dim: int | None,
        bias: bool,
        scale: float | None,
        initial_gate: Annotated[float, "[0.000001, 0.999999]"],
    ) -> None:
        super().__init__()
        sizes = {"query_dim": query_dim, "key_dim": key_dim, "num_heads": num_heads, "num_kv_heads": num_kv_heads}
        self.scaled_dot = ScaledDotScore(**sizes, head_dim=head_dim, bias=bias, scale=scale)  # type: ignore[arg-type]
        self.query_parts = self.key_parts = 2
        self.num_heads = num_heads
        self.gate = forget_gate(key_dim, num_heads, initial_gate, "attention.score.initial_gate")

    def prepare_query(
        self, query: Float[Tensor, "batch target query_dim"]
    ) -> tuple[Float[Tensor, "batch heads target _"], ...]:
        """Return the projected queries, and zeros where `query_at` puts running sums."""
        (heads,) = self.scaled_dot.prepare_query(query)
        return heads, at_least_float32(heads).new_zeros(*heads.shape[:3], 1)

    def prepare_keys(
        self, keys: Float[Tensor, "batch source key_dim"]
    ) -> tuple[Float[Tensor, "batch _ source _"], ...]:
        """Return the projected keys, and log f in each head, at least in float32, of which a memory holds the sums."""
        log_gates = F.logsigmoid(at_least_float32(self.gate(keys)))
        return (*self.scaled_dot.prepare_keys(keys), split_heads(log_gates, self.num_heads))

    def query_at(
        self, query: tuple[Tensor, ...], keys: tuple[Tensor, ...], position: Int[Tensor, "batch target"]
    ) -> tuple[Tensor, ...]:
        """Return the queries with the running sums at their positions."""
        index = position[:, None, :, None].expand(-1, self.num_heads, -1, 1)
        return query[0], keys[1].gather(2, index)

    def forward(
        self, query: tuple[Tensor, ...], keys: tuple[Tensor, ...], positions: QueryKeyPositions
    ) -> Float[Tensor, "*batch heads target source"]:
        return self.scaled_dot(query[:1], keys[:1], positions) - (query[1] - keys[1].mT).abs()
