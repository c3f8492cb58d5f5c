"""FAVOR+: phi(x)_i = exp(w_i . x - |x|^2 / 2). Choromanski et al. 2021, lemma 1 and section 2.4, arXiv:2009.14794."""

from __future__ import annotations

import math
from typing import Annotated, ClassVar, final

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from seq2seq_attn.attention.feature_map.feature_map import FeatureMap
from seq2seq_attn.errors import UserError

MAX_EXPONENT = 60.0  # of a key's feature; sums over keys and features then stay within float32


@final
class PerformerFeatureMap(FeatureMap):
    """Positive orthogonal random features, for w_i of N(0, I): the mean of phi(q)_i phi(k)_i over w is exp(q . k).

    Queries and keys are divided by the fourth root of d_k, so that the weights estimate those of scaled dot attention.
    The w are orthogonal within blocks of d_k, with the norms of Gaussian vectors, and the same for all heads.

    Deviations: the authors subtract the greatest exponent of all keys and add a small number to every feature. That
    maximum differs between one step and the whole, and the addition does not cancel. Here the greatest exponent of each
    query is subtracted, which cancels exactly, as does its |q|^2 / 2; those of a key are clamped to -60 ... 60. They
    redraw the w during training; here a run keeps one draw, because averages of checkpoints would mix several.

    Attributes:
        seeds: those of the draw, by which fine-tuning tells whether the parent has the same.

    Args:
        num_features: m, numbers of w; None: d_k ln d_k, at least d_k.
        seed, redraw: with `layer` they determine the w, which a buffer holds; another `redraw` is another draw.
    """

    inner_product: ClassVar[bool] = True
    directions: Tensor

    def __init__(
        self,
        *,
        head_dim: int,
        layer: int,
        num_features: Annotated[int | None, "[1, 1000000]"],
        seed: Annotated[int, "[0, 4294967295]"],
        redraw: Annotated[int, "[0, 4294967295]"],
    ) -> None:
        super().__init__()
        if num_features is None:
            num_features = max(head_dim, int(head_dim * math.log(head_dim)))
        if num_features < 1:
            raise UserError(f"attention.feature_map.num_features={num_features} must be at least 1; use null")
        if min(seed, redraw) < 0:
            raise UserError(f"attention.feature_map.seed={seed} and redraw={redraw} must not be negative; use 0")
        self.scale, self.seeds = head_dim**-0.25, (seed, redraw)
        directions = orthogonal_directions(num_features, head_dim, (seed, layer, redraw))
        self.register_buffer("directions", directions.to(torch.get_default_device(), torch.get_default_dtype()))

    def query_features(
        self, query: Float[Tensor, "batch heads target width"], position: Int[Tensor, " target"]
    ) -> Float[Tensor, "batch heads target features"]:
        exponent = (query * self.scale) @ self.directions.to(query.dtype).mT
        return (exponent - exponent.detach().amax(-1, keepdim=True)).exp()

    def key_features(
        self, keys: Float[Tensor, "batch heads source width"], position: Int[Tensor, " source"]
    ) -> Float[Tensor, "batch heads source features"]:
        scaled = keys * self.scale
        exponent = scaled @ self.directions.to(keys.dtype).mT - scaled.square().sum(-1, keepdim=True) / 2
        return exponent.clamp(-MAX_EXPONENT, MAX_EXPONENT).exp()


def orthogonal_directions(number: int, width: int, seeds: tuple[int, int, int]) -> Float[Tensor, "{number} {width}"]:
    """Draw vectors with the norms of Gaussian ones, orthogonal within every block of `width` rows.

    They are drawn in float64 on the CPU, whatever the defaults, so that every model of the same seeds has the same. The
    outline of a model, on the device `meta`, has none.
    """
    if torch.get_default_device().type == "meta":
        return torch.empty(number, width, dtype=torch.float64)
    generator = torch.Generator("cpu")
    generator.manual_seed(int(np.random.SeedSequence(seeds).generate_state(1)[0]))

    def normal(rows: int) -> Tensor:
        return torch.randn(rows, width, generator=generator, dtype=torch.float64, device="cpu")

    def rotation() -> Tensor:
        q, r = torch.linalg.qr(normal(width))
        return (q * r.diagonal().sign()).mT  # Q alone prefers some directions: Mezzadri 2007, arXiv:math-ph/0609050

    rotations = torch.cat([rotation() for _ in range(0, number, width)])
    return rotations[:number] * normal(number).norm(dim=1, keepdim=True)
