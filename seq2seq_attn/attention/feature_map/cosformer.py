"""cosFormer: phi(x_i) = relu(x_i) [cos(pi i / 2M), sin(pi i / 2M)]. Qin et al. 2022, section 3.3, arXiv:2202.08791."""

from __future__ import annotations

import math
from typing import Annotated, final

import torch
from jaxtyping import Float, Int
from torch import Tensor

from seq2seq_attn.attention.feature_map.feature_map import FeatureMap
from seq2seq_attn.errors import UserError


@final
class CosformerFeatureMap(FeatureMap):
    """phi(q_i) . phi(k_j) = relu(q_i) . relu(k_j) cos(pi (i - j) / 2M), eq. 10: near keys weigh more than distant ones.

    A query or a row of keys whose projections are all negative has no features, and gets zeros.

    Args:
        max_length: M, in positions. The authors take the length of the batch, with which padding would change the
            weights, and the steps of decoding would differ from the whole.
    """

    def __init__(self, *, max_length: Annotated[int, "[1, 1000000]"]) -> None:
        super().__init__()
        if max_length < 1:
            raise UserError(f"attention.feature_map.max_length={max_length} must be at least 1; use 256")
        self.max_length = max_length

    def query_features(
        self, query: Float[Tensor, "batch heads target width"], position: Int[Tensor, " target"]
    ) -> Float[Tensor, "batch heads target features"]:
        assert self.max_length is not None
        angle = (position.to(query.dtype) * (math.pi / 2 / self.max_length)).unsqueeze(-1)
        positive = query.relu()
        return torch.cat([positive * angle.cos(), positive * angle.sin()], -1)

    def key_features(
        self, keys: Float[Tensor, "batch heads source width"], position: Int[Tensor, " source"]
    ) -> Float[Tensor, "batch heads source features"]:
        return self.query_features(keys, position)
