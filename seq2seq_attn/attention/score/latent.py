"""Latent score: (W q) . (U c) / sqrt(d), c being a token's latent. DeepSeek-AI 2024, eq. 9-19, arXiv:2405.04434."""

from __future__ import annotations

from typing import Annotated, ClassVar, final

import torch
from jaxtyping import Float
from torch import Tensor, nn

from seq2seq_attn.attention.score.qk_norm import rms_norm
from seq2seq_attn.attention.score.score import Score
from seq2seq_attn.attention.state import QueryKeyPositions
from seq2seq_attn.errors import UserError
from seq2seq_attn.nn.heads import check_heads, matmul_groups, project_heads, split_heads
from seq2seq_attn.nn.projections import glorot_projection


@final
class LatentScore(Score):
    """The score of multi-head latent attention: the keys of all heads are made of one latent of each token.

    A latent is c = RMSNorm(W_DKV x). Its keys are W_UK c and its values W_UV c (eq. 9-11); `Attention` owns W_UV, its
    projection of the values. Queries are W_UQ x, or W_UQ RMSNorm(W_DQ x) of a latent of their own (eq. 12-13). The
    norms, which section 3.1.2 adds after the latents, have gains, as in the released model.

    A prepared key is the latent itself, in one head that all heads of queries share. Because q . W_UK c equals
    W_UK^T q . c, W_UK is absorbed into a prepared query, which meets the latent in an inner product. `query_heads` and
    `expand_keys` return the queries and keys of each head, which have the same inner products.

    With a rotary position encoding, queries and keys end in a part that alone is rotated (eq. 14-17): W_QR in place of
    W_UQ for each head of queries, and W_KR x for the keys of all heads. It is prepared after the latent.

    Args:
        head_dim: d_h (`attention.head_dim`); None: query_dim / num_heads.
        bias: whether the projections of the layer's inputs have a bias (`attention.qkv_bias`); those of latents have
            none.
        scale: factor of the inner product (`attention.qk_scale`); None: 1 / sqrt(d), where d is d_h, plus d_h^R if
            there is a rotated part (eq. 18).
        kv_rank: d_c, width of the latent; None: 4 d_h as in the paper, and at most half the width of all heads.
        query_rank: d_c', width of the latent of a query; None: queries are not compressed.
        rotary_dim: d_h^R, width of the rotated part, even; None: d_h / 2 as in the paper, made even.

    Raises:
        UserError: for widths out of their range.
    """

    inner_product: ClassVar[bool] = True

    def __init__(
        self,
        *,
        query_dim: int,
        key_dim: int,
        num_heads: int,
        head_dim: int | None,
        bias: bool,
        scale: float | None,
        kv_rank: Annotated[int | None, "[1, inf)"],
        query_rank: Annotated[int | None, "[1, inf)"],
        rotary_dim: Annotated[int | None, "[2, inf)"],
    ) -> None:
        super().__init__()
        if head_dim is None:
            check_heads("query_dim", query_dim, num_heads)
            head_dim = query_dim // num_heads
        for option, width in (("kv_rank", kv_rank), ("query_rank", query_rank)):
            if width is not None and width < 1:
                raise UserError(f"attention.score.{option}={width} leaves no latent; use 1 or more, or null")
        if rotary_dim is not None and (rotary_dim < 2 or rotary_dim % 2):
            raise UserError(
                f"attention.score.rotary_dim={rotary_dim} must be an even number of at least 2, because numbers are "
                "rotated in pairs; null takes half of a head"
            )
        self.num_heads, self.head_dim, self.given_scale, self.bias = num_heads, head_dim, scale, bias
        self.kv_rank = kv_rank if kv_rank is not None else max(1, min(4 * head_dim, num_heads * head_dim // 2))
        self.rotary_dim = rotary_dim if rotary_dim is not None else max(2, head_dim // 4 * 2)
        self.compress_keys = glorot_projection(key_dim, self.kv_rank, bias=bias)
        self.key_gain = nn.Parameter(torch.ones(self.kv_rank))
        self.compress_query = self.query_gain = None
        if query_rank is not None:
            self.compress_query = glorot_projection(query_dim, query_rank, bias=bias)
            self.query_gain = nn.Parameter(torch.ones(query_rank))
        self.project_query = self._from_query(query_dim if query_rank is None else query_rank, head_dim)
        self.project_key = glorot_projection(self.kv_rank, num_heads * head_dim, bias=False)
        self.rotary_query: nn.Linear | None = None
        self.rotary_key: nn.Linear | None = None

    def _from_query(self, dim: int, width: int) -> nn.Linear:
        return glorot_projection(dim, self.num_heads * width, bias=self.bias and self.compress_query is None)

    def add_rotary_part(self) -> None:
        """Add W_QR and W_KR; the last `rotary_dim` numbers of queries and keys are theirs."""
        self.rotary_query = self._from_query(self.project_query.in_features, self.rotary_dim)
        self.rotary_key = glorot_projection(self.compress_keys.in_features, self.rotary_dim, bias=self.bias)

    @property
    def rotatable(self) -> bool:
        """False: what is prepared is not rotated as a whole, and has not the width of a head."""
        return False

    @property
    def scale(self) -> float:
        """Factor of the inner product."""
        if self.given_scale is not None:
            return self.given_scale
        return (self.head_dim + (0 if self.rotary_key is None else self.rotary_dim)) ** -0.5

    def latents(self, x: Float[Tensor, "batch source key_dim"]) -> Float[Tensor, "batch source kv_rank"]:
        """Return the latent of each token."""
        return rms_norm(self.compress_keys(x), self.key_gain)

    def query_heads(
        self, query: Float[Tensor, "batch target query_dim"]
    ) -> tuple[Float[Tensor, "batch heads target width"]]:
        """Return the scaled queries of all heads, with the part to be rotated last (eq. 12-14 and 16)."""
        if self.compress_query is not None and self.query_gain is not None:
            query = rms_norm(self.compress_query(query), self.query_gain)
        heads = split_heads(self.project_query(query), self.num_heads)
        if self.rotary_query is not None:
            heads = torch.cat([heads, split_heads(self.rotary_query(query), self.num_heads)], -1)
        return (heads * self.scale,)

    def absorb(
        self, heads: Float[Tensor, "batch heads target width"]
    ) -> tuple[Float[Tensor, "batch heads target prepared_width"]]:
        """Return prepared queries, made of `query_heads`."""
        content, rotary = heads.split([self.head_dim, heads.shape[-1] - self.head_dim], -1)
        by_head = self.project_key.weight.unflatten(0, (self.num_heads, self.head_dim))
        absorbed = project_heads(content, by_head.mT)
        return (absorbed if self.rotary_query is None else torch.cat([absorbed, rotary], -1),)

    def prepare_query(
        self, query: Float[Tensor, "batch target query_dim"]
    ) -> tuple[Float[Tensor, "batch heads target prepared_width"]]:
        return self.absorb(*self.query_heads(query))

    def prepare_keys(
        self, keys: Float[Tensor, "batch source key_dim"]
    ) -> tuple[Float[Tensor, "batch 1 source prepared_width"]]:
        """Return the latents with the part to be rotated last (eq. 9 and 15)."""
        latents = self.latents(keys)
        if self.rotary_key is not None:
            latents = torch.cat([latents, self.rotary_key(keys)], -1)
        return (latents.unsqueeze(1),)

    def expand_keys(
        self, prepared: Float[Tensor, "batch 1 source prepared_width"]
    ) -> tuple[Float[Tensor, "batch heads source width"]]:
        """Return the keys of all heads, with the rotated part last (eq. 10 and 17)."""
        latents, rotary = prepared.split([self.kv_rank, prepared.shape[-1] - self.kv_rank], -1)
        heads = split_heads(self.project_key(latents.squeeze(1)), self.num_heads)
        if self.rotary_key is not None:
            heads = torch.cat([heads, rotary.expand(-1, self.num_heads, -1, -1)], -1)
        return (heads,)

    def expanding_is_cheaper(self, target: int, source: int) -> bool:
        """Return whether it takes fewer multiplications to make keys and values of all heads than to absorb.

        Expanded, each key costs d_h * d_c in a head, and each pair d_h; absorbed, each query costs d_h * d_c, and each
        pair d_c. Keys and values double both alike.
        """
        width, rank = self.head_dim, self.kv_rank
        return source * width * (rank + target) < target * rank * (width + source)

    def forward(
        self, query: tuple[Tensor, ...], keys: tuple[Tensor, ...], positions: QueryKeyPositions
    ) -> Float[Tensor, "*batch heads target source"]:
        return matmul_groups(query[0], keys[0].mT)
