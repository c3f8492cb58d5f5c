"""Linear feature map: phi(x) = elu(x) + 1. Katharopoulos et al. 2020, eq. 7, arXiv:2006.16236."""

from __future__ import annotations

from typing import final

import torch
from jaxtyping import Float, Int
from torch import Tensor

from seq2seq_attn.attention.feature_map.feature_map import FeatureMap


@final
class LinearFeatureMap(FeatureMap):
    """x + 1 above 0 and exp(x) below, for queries and keys."""

    def query_features(
        self, query: Float[Tensor, "batch heads target width"], position: Int[Tensor, "target"]
    ) -> Float[Tensor, "batch heads target features"]:
        # F.elu(x) + 1 would be 0 below -17 in float32
        return torch.where(query > 0, query + 1, query.clamp(max=0).exp())

    def key_features(
        self, keys: Float[Tensor, "batch heads source width"], position: Int[Tensor, "source"]
    ) -> Float[Tensor, "batch heads source features"]:
        return self.query_features(keys, position)
