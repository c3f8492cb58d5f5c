"""Linear feature map: phi(x) = elu(x) + 1. Katharopoulos et al. 2020, eq. 7, arXiv:2006.16236."""

from __future__ import annotations

from typing import final

import torch
from jaxtyping import Float, Int
from torch import Tensor

from seq2seq_attn.attention.feature_map.feature_map import FeatureMap

MIN_EXPONENT = -60.0  # below 0; denominators and their gradients then stay within float32


@final
class LinearFeatureMap(FeatureMap):
    """x + 1 above 0 and exp(x) below, for queries and keys; x below -60 counts as -60.

    Those of a query are divided by the greatest of them, which cancels exactly.
    """

    def query_features(
        self, query: Float[Tensor, "batch heads target width"], position: Int[Tensor, " target"]
    ) -> Float[Tensor, "batch heads target features"]:
        features = self.key_features(query, position)
        return features / features.detach().amax(-1, keepdim=True)

    def key_features(
        self, keys: Float[Tensor, "batch heads source width"], position: Int[Tensor, " source"]
    ) -> Float[Tensor, "batch heads source features"]:
        # F.elu(x) + 1 would be 0 below -17 in float32
        return torch.where(keys > 0, keys + 1, keys.clamp(MIN_EXPONENT, 0.0).exp())
