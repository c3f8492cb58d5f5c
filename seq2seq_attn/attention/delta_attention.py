"""Delta rule: S_t = f_t (I - b_t k_t k_t^T) S_(t-1) + b_t k_t v_t^T, c_t = RMSNorm(S_t^T q_t). Yang et al. 2024, 2025.

arXiv:2406.06484 (DeltaNet) and, with a decay f, arXiv:2412.06464 (Gated DeltaNet).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Annotated, Any, Literal, final

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from seq2seq_attn.attention.causal_sums import CHUNK
from seq2seq_attn.attention.decayed_sums import decay_within
from seq2seq_attn.attention.delta_rule import delta_weights, pseudo_values, ut_transform
from seq2seq_attn.attention.head_sizes import head_sizes
from seq2seq_attn.attention.kernel_attention import KernelMemory, decayed_sums_over_keys, sums_over_keys
from seq2seq_attn.attention.key_mask import check_rows
from seq2seq_attn.attention.linear_attention import LinearAttention, check_one_mask, linear_projections
from seq2seq_attn.attention.state import Attended, AttentionMemory
from seq2seq_attn.errors import UserError
from seq2seq_attn.factory import build_part
from seq2seq_attn.nn.cached_property import CachedProperty
from seq2seq_attn.nn.heads import join_heads, split_heads
from seq2seq_attn.nn.precision import at_least_float32
from seq2seq_attn.nn.projections import glorot_projection
from seq2seq_attn.nn.unit_length import unit_length


@final
@dataclass(frozen=True)
class DeltaMemory(AttentionMemory):
    """Keys, values and strengths, and the state that those before them left.

    Attributes:
        keys: L2-normalized.
        values: cut into heads.
        strength: with which each token writes, 0 where the mask of the sentence hides it.
        log_decay: of each token, 0 where the mask of the sentence hides it; None: nothing decays.
        mask: True where a key may be attended to, for each query; None: for all queries the same.
        before: the state after the `num_before` positions before `keys`; None: there are none.
    """

    keys: Float[Tensor, "batch heads source features"]
    values: Float[Tensor, "batch heads source width"]
    strength: Float[Tensor, "batch heads source"]
    log_decay: Float[Tensor, "batch heads source"] | None
    mask: Bool[Tensor, "batch target source"] | None = None
    before: Float[Tensor, "batch heads features width"] | None = None
    num_before: int = 0

    @property
    def source(self) -> int:
        return self.num_before + self.keys.shape[2]

    @CachedProperty
    def written(self) -> KernelMemory:
        """Keys and pseudo-values, whose decayed sum is the state; what is hidden has the pseudo-value 0."""
        with torch.autocast(self.keys.device.type, enabled=False):
            values, state = pseudo_values(
                self.keys, self.values, self.strength, self.log_decay, self.before, chunk=CHUNK
            )
        memory = KernelMemory(self.keys, values, None, self.before, self.num_before, self.log_decay)
        if state is not None:
            vars(memory)["total"] = state
        return memory

    @property
    def total(self) -> Float[Tensor, "batch heads features width"]:
        """The state after all positions, of the same size at every step of decoding."""
        return self.written.total

    @CachedProperty
    def decay(self) -> Float[Tensor, "batch heads queries source source"]:
        """The decay of each pair, 0 for keys after the query; for each query where each has a mask."""
        log_decay = torch.zeros_like(self.strength) if self.log_decay is None else self.log_decay
        return decay_within(self._seen(log_decay), causal=True)

    @CachedProperty
    def transform(self) -> Float[Tensor, "batch heads queries source source"]:
        """The weight of each value in each pseudo-value; for each query where each has a mask."""
        return ut_transform(self.keys, self._seen(self.strength), self.decay)

    def _seen(self, numbers: Float[Tensor, "batch heads source"]) -> Float[Tensor, "batch heads queries source"]:
        """Return a number of each token for each query, 0 where its mask hides the token."""
        numbers = numbers.unsqueeze(2)
        return numbers if self.mask is None else numbers.masked_fill(~self.mask.unsqueeze(1), 0.0)

    def select(self, rows: Int[Tensor, " rows"]) -> DeltaMemory:
        """Return the sentences `rows`, in that order."""
        keys, values, strength = (x.index_select(0, rows) for x in (self.keys, self.values, self.strength))
        log_decay = None if self.log_decay is None else self.log_decay.index_select(0, rows)
        mask = None if self.mask is None else self.mask[rows]
        before = None if self.before is None else self.before.index_select(0, rows)
        selected = DeltaMemory(keys, values, strength, log_decay, mask, before, self.num_before)
        if "written" in vars(self):  # computed already
            vars(selected)["written"] = self.written.select(rows)
        return selected

    def branch(self, rows: Int[Tensor, " rows"]) -> DeltaMemory:
        """Return the sentences `rows` of a memory that will be appended to: their states alone."""
        check_one_mask("DeltaAttention", self.mask)
        keys, values, strength = (x[:, :, :0].index_select(0, rows) for x in (self.keys, self.values, self.strength))
        log_decay = None if self.log_decay is None else self.log_decay[:, :, :0].index_select(0, rows)
        return DeltaMemory(
            keys, values, strength, log_decay, before=self.total.index_select(0, rows), num_before=self.source
        )

    def append(self, new: DeltaMemory) -> DeltaMemory:
        """Append keys and values, for causal self-attention; of those before them the state alone is kept."""
        check_one_mask("DeltaAttention", self.mask, new.mask)
        return replace(new, before=self.total, num_before=self.source)


@final
class DeltaAttention(LinearAttention):
    """Multi-head attention to a state that each token corrects by the delta rule, in O(n). Yang et al. 2024.

    q and k are the silu of a projection, L2-normalized. A token removes the share b_t of what the state holds for its
    key, and writes its own value with that share: b_t is the sigmoid of a projection, in each head. f_t is 1, or that
    of a decay (Yang et al. 2025); b_t takes the place of the decay's factor of the token's own key. Time is O(n d^2),
    by chunks, and a step costs the same at every position.

    The papers are causal; here a non-causal query reads the state after the last token. Deviations: queries, keys and
    values pass no convolution over neighbouring tokens, values no silu, and contexts no output gate; the gate of the
    decay is not that of Mamba-2. Weights, on request, take all pairs of queries and keys; with a mask for each query,
    every query takes all pairs of keys. A row that sees no key gives zeros.

    Attributes:
        knocked_out_heads: heads whose context is 0; the explorer sets them.

    Args:
        query_dim, key_dim, value_dim, num_heads, projection_dropout, qkv_bias, backend, relative: as in Attention or
            KernelAttention.
        layer: its number, on which nothing depends here.
        decay: a partial that takes the sizes its signature names; None: all tokens keep all.

    Raises:
        UserError: for heads that do not divide a width, or a relative position encoding.
    """

    def __init__(
        self,
        *,
        query_dim: int,
        key_dim: int,
        value_dim: int,
        layer: int,
        num_heads: Annotated[int | None, "[1, 1000]"],
        projection_dropout: Annotated[float, "[0, 1)"],
        qkv_bias: bool,
        backend: Literal["auto", "dense"],
        decay: partial[Any] | None = None,
        relative: Callable[..., Any] | None = None,
    ) -> None:
        super().__init__()
        sizes = head_sizes(query_dim=query_dim, value_dim=value_dim, project_values=True, num_heads=num_heads)
        self.num_heads, self.context_dim, self.backend = sizes.num_heads, sizes.joined_width, backend
        self.knocked_out_heads: list[int] = []
        self.project_query, self.project_key, self.project_values, self.project_output = linear_projections(
            query_dim=query_dim,
            key_dim=key_dim,
            value_dim=value_dim,
            project_values=True,
            projection_dropout=projection_dropout,
            qkv_bias=qkv_bias,
        )
        self.project_strength = glorot_projection(key_dim, self.num_heads, bias=False)
        self.decay = None if decay is None else build_part(decay, key_dim=key_dim, num_heads=self.num_heads)
        self.norm = nn.RMSNorm(sizes.value_width, eps=1e-5)
        self.relative = None if relative is None else relative(num_heads=self.num_heads, head_dim=sizes.score_width)
        if self.relative is not None:
            raise UserError(
                f"the delta rule takes no position={self.relative.option}; use position=sinusoidal, learned or none"
            )

    @property
    def sums_to_one(self) -> bool:
        return False

    def _prepare(
        self,
        x: Float[Tensor, "batch source key_dim"],
        keys: Float[Tensor, "batch source query_dim"],
        values: Float[Tensor, "batch source context_dim"],
        mask: Tensor | None,
        start: int,
    ) -> DeltaMemory:
        """Make a memory of projected keys and values, and of the strengths and decays of the tokens `x`."""
        strength = torch.sigmoid(at_least_float32(self.project_strength(x))).mT
        log_decay = None if self.decay is None else self.decay(x)[0]
        if mask is not None and mask.dim() == 2:
            hidden, mask = ~mask[:, None], None
            strength = strength.masked_fill(hidden, 0.0)
            log_decay = None if log_decay is None else log_decay.masked_fill(hidden, 0.0)
        return DeltaMemory(
            self._heads(keys), split_heads(at_least_float32(values), self.num_heads), strength, log_decay, mask
        )

    def _heads(self, projected: Float[Tensor, "batch length query_dim"]) -> Float[Tensor, "batch heads length width"]:
        """Cut projected queries or keys into heads, and L2-normalize their silu."""
        return unit_length(F.silu(split_heads(at_least_float32(projected), self.num_heads)))

    def _attend(
        self,
        query: Float[Tensor, "batch target query_dim"],
        memory: DeltaMemory,
        start: int,
        causal: bool,
        need_weights: bool,
        same_position: bool = False,
    ) -> Attended:
        """Attend with projected queries; with `same_position` all are at position `start`."""
        rows = query.shape[1]
        if memory.mask is not None:
            check_rows(memory.mask, rows)
        if causal and start < memory.num_before - (same_position or rows == 1):
            raise UserError(
                f"the query at position {start} may not see all of the {memory.num_before} positions of which this "
                "memory of DeltaAttention keeps the state; attend from the position after them on"
            )
        weights = None
        with torch.autocast(query.device.type, enabled=False):
            heads = self._heads(query)
            if self.knocked_out_heads:
                heads = heads.index_fill(1, torch.tensor(self.knocked_out_heads, device=heads.device), 0.0)
            if memory.mask is not None or (memory.before is None and (need_weights or self.backend == "dense")):
                weights = all_weights(heads, memory, start, causal, same_position)
                context = weights @ memory.values
            elif causal:
                over_keys = sums_over_keys if memory.log_decay is None else decayed_sums_over_keys
                context = over_keys(heads, memory.written, start, causal, same_position)
            else:
                context = heads @ memory.total
        context = join_heads(self.norm(context.to(self.norm.weight.dtype)).to(query.dtype))
        assert self.project_output is not None
        return Attended(
            self.project_output(context),
            weights.to(query.dtype) if need_weights and weights is not None else None,
            sums_to_one=self.sums_to_one,
        )


def all_weights(
    query: Float[Tensor, "batch heads target features"],
    memory: DeltaMemory,
    start: int,
    causal: bool,
    same_position: bool,
) -> Float[Tensor, "batch heads target source"]:
    """Return the weights of all pairs of a memory without a past."""
    rows = query.shape[2]
    if causal:
        last = torch.arange(start, start + (1 if same_position else rows), device=query.device).expand(rows)
    else:
        last = torch.full((rows,), memory.source, device=query.device)
    return delta_weights(query, memory.keys, memory.transform, memory.decay, last)
