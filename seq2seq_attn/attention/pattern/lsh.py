"""LSH pattern: keys whose hash is the query's in any of several rounds. Kitaev et al. 2020, section 2,
arXiv:2001.04451 (Reformer).
"""

from __future__ import annotations

from typing import Annotated, ClassVar, final

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from seq2seq_attn.attention.pattern.pattern import Pattern, check_count
from seq2seq_attn.errors import UserError


@final
class LshPattern(Pattern):
    """h(x) = arg max [x R; -x R], with one random matrix R per round: vectors of similar direction share a bucket.

    Queries and keys are hashed as the score prepared them, head by head, so the score has to be an inner product. In
    self-attention a query sees its own position, too; in cross-attention a query whose buckets hold no key sees
    nothing and gets zeros.

    The paper has one projection for queries and keys; here they are those of the score, usually two. The paper sorts
    positions by bucket and cuts them into chunks, so that a full bucket loses keys; here a bucket is seen whole,
    because padding and later positions would move the cuts. The paper's buckets are more for a longer sequence; here
    their number is fixed. It discounts its own position and keys that share several buckets; here all weigh alike.

    Attributes:
        seeds: those of the draw, by which fine-tuning tells whether the parent has the same.

    Args:
        head_dim: width of a prepared query.
        layer: number of the layer; each has other rotations.
        num_buckets: an even number.
        num_rounds: number of hashes.
        seed: of the rotations.

    Raises:
        UserError: for an odd number of buckets, or no round.
    """

    reads_query: ClassVar[bool] = True
    selects: ClassVar[bool] = True
    needs_vectors: ClassVar[bool] = True
    rotations: Tensor

    def __init__(
        self,
        *,
        head_dim: int,
        layer: int,
        num_buckets: Annotated[int, "[2, inf)"],
        num_rounds: Annotated[int, "[1, inf)"],
        seed: Annotated[int, "[0, 4294967295]"],
    ) -> None:
        super().__init__()
        check_count("num_buckets", num_buckets, least=2)
        check_count("num_rounds", num_rounds, least=1)
        if num_buckets % 2:
            raise UserError(
                f"attention.pattern.num_buckets={num_buckets} is odd, but buckets are pairs of opposite directions; "
                f"set it to {num_buckets + 1}"
            )
        self.buckets_from = max(512, 1536 * num_rounds // num_buckets)  # measured on one CPU core
        self.seeds = (seed,)
        generator = torch.Generator("cpu").manual_seed(1000 * seed + layer)
        shape = num_rounds, head_dim, num_buckets // 2
        rotations = torch.randn(shape, generator=generator, dtype=torch.float64, device="cpu")
        self.register_buffer("rotations", rotations.to(torch.get_default_device(), torch.get_default_dtype()))

    def select(
        self,
        query: Float[Tensor, "batch heads target width"],
        keys: Float[Tensor, "batch heads source width"],
        visible: Bool[Tensor, "#batch #heads #target #source"] | None,
        own: Int[Tensor, " target"] | None,
    ) -> Bool[Tensor, "batch heads target source"]:
        same = torch.zeros((), dtype=torch.bool, device=query.device)
        for mine, theirs in zip(self.buckets(query), self.buckets(keys), strict=True):
            same = same | (mine[..., :, None] == theirs[..., None, :])
        return same if own is None else same | (torch.arange(keys.shape[2], device=own.device) == own[:, None])

    def buckets(self, x: Float[Tensor, "batch heads length width"]) -> Int[Tensor, "rounds batch heads length"]:
        return torch.stack([bucket(x @ rotation.to(x.dtype)) for rotation in self.rotations])


def bucket(rotated: Float[Tensor, "*rows half"]) -> Int[Tensor, "*rows"]:
    """Return the position of the largest of the numbers and, after them, their opposites: of equal ones the first."""
    (most, first), (least, last) = rotated.max(-1), rotated.min(-1)
    return torch.where(most >= -least, first, rotated.shape[-1] + last)
