"""Fixed decay: f = 1 - 2^(-5 - h) in head h = 0, 1, ... Sun et al. 2023 (RetNet), eq. 8, arXiv:2307.08621."""

from __future__ import annotations

from typing import final

import torch
from jaxtyping import Float
from torch import Tensor

from seq2seq_attn.attention.decay.decay import Decay
from seq2seq_attn.nn.precision import at_least_float32


@final
class FixedDecay(Decay):
    """The same constant at each token: 31/32 in the first head, 63/64 in the second. It has no parameters.

    This is RetNet's decay in normalized linear attention, not RetNet's retention, which has no feature map and no
    denominator, rotates queries and keys, and normalizes and gates the output of its heads.
    """

    def __init__(self, *, num_heads: int) -> None:
        super().__init__()
        self.num_heads = num_heads

    def forward(self, keys: Float[Tensor, "batch source key_dim"]) -> tuple[Float[Tensor, "batch heads source"], None]:
        batch, source, _ = keys.shape
        # no buffer, which a model in half precision would round
        head = torch.arange(self.num_heads, dtype=at_least_float32(keys).dtype, device=keys.device)
        return torch.log1p(-torch.exp2(-5 - head))[:, None].expand(batch, -1, source), None
