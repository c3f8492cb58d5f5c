"""Full pattern: every query may see every key. Bahdanau et al. 2015; Luong et al. 2015 call it global."""

from __future__ import annotations

from typing import ClassVar, final

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn import functional as F

from seq2seq_attn.attention.backend.kernel.masked_product import masked_product
from seq2seq_attn.attention.pattern.pattern import Pattern


@final
class FullPattern(Pattern):
    """No restriction but the mask and causality."""

    sees_all: ClassVar[bool] = True

    def allowed(self, centre: Tensor, key_position: Int[Tensor, "source"]) -> Bool[Tensor, "#batch target source"]:
        return torch.ones(*centre.shape, key_position.shape[0], dtype=torch.bool, device=key_position.device)

    def fused_attention(
        self,
        query: Float[Tensor, "batch heads target width"],
        keys: Float[Tensor, "batch heads source width"],
        values: Float[Tensor, "batch heads source value_width"],
        mask: Bool[Tensor, "batch source"] | None,
        causal: bool,
        rows_match_keys: bool = False,
    ) -> Float[Tensor, "batch heads target value_width"] | None:
        if mask is None:
            return F.scaled_dot_product_attention(query, keys, values, is_causal=causal, scale=1.0)
        allowed = mask.unsqueeze(1).unsqueeze(2)
        if causal:
            length = keys.shape[2]
            allowed = allowed & torch.ones(length, length, dtype=torch.bool, device=mask.device).tril()
        return masked_product(query, keys, values, allowed)
