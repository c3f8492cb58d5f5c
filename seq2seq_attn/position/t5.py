"""T5 bias: a learned number for each bucket of distances. Raffel et al. 2020, section 2.1, arXiv:1910.10683."""

from __future__ import annotations

import math
from typing import Annotated, ClassVar, final

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from seq2seq_attn.errors import UserError
from seq2seq_attn.position.position_encoding import PositionEncoding
from seq2seq_attn.position.relative_encoding import RelativeEncoding

MOST_DISTANCE = 1_000_000  # a table of all distances, which no checkpoint holds, is in the memory of each layer


@final
class T5Position(PositionEncoding):
    """Learned biases of distances, which grow coarser with the distance.

    In T5 all layers of an encoder or of a decoder share one table; here each layer has its own, as with every relative
    encoding of this package. T5 does not scale its inner products; here the score decides.

    Args:
        num_buckets: number of buckets, of both directions together where a query sees later keys.
        max_distance: in tokens; from it on, all distances are in the last bucket.

    Raises:
        UserError: for an odd number of buckets or fewer than 4, or a `max_distance` that leaves no distance to the
            logarithmic buckets, or above a million.
    """

    def __init__(
        self, *, dim: int, num_buckets: Annotated[int, "[4, 1000000]"], max_distance: Annotated[int, "[1, 1000000]"]
    ) -> None:
        super().__init__(dim=dim)
        if num_buckets < 4 or num_buckets % 2:
            raise UserError(f"position.num_buckets={num_buckets} must be even and at least 4; use 32")
        if max_distance <= num_buckets // 2:
            raise UserError(
                f"position.max_distance={max_distance} must be above half of position.num_buckets={num_buckets}, the "
                "distances that have a bucket of their own; use 128 and 32"
            )
        if max_distance > MOST_DISTANCE:
            raise UserError(f"position.max_distance={max_distance} must be at most {MOST_DISTANCE}; use 128")
        self.dim, self.num_buckets, self.max_distance = dim, num_buckets, max_distance

    def relative(self, *, num_heads: int, head_dim: int) -> RelativeEncoding:
        return self._bias(num_heads, causal=False)

    def causal_relative(self, *, num_heads: int, head_dim: int) -> RelativeEncoding:
        """Return a relative encoding whose buckets are all for the keys that a query sees: its own and earlier ones."""
        return self._bias(num_heads, causal=True)

    def _bias(self, num_heads: int, *, causal: bool) -> BucketBias:
        return BucketBias(
            num_heads=num_heads,
            num_buckets=self.num_buckets,
            max_distance=self.max_distance,
            causal=causal,
            std=self.dim**-0.5,  # like the embeddings
        )


@final
class BucketBias(RelativeEncoding):
    """A number for each bucket of the distance key - query, and each head.

    Where no key follows its query, all buckets are for distances of 0 and less. Otherwise the first half of them is for
    these, and the second half for keys that follow.

    Args:
        causal: whether no key follows its query.
        std: standard deviation of the numbers before training.
    """

    option: ClassVar[str] = "t5"
    needs_inner_product: ClassVar[bool] = False
    biases: ClassVar[bool] = True
    buckets: Tensor

    def __init__(self, *, num_heads: int, num_buckets: int, max_distance: int, causal: bool, std: float) -> None:
        super().__init__()
        self.causal = causal
        of_a_direction = num_buckets if causal else num_buckets // 2
        buckets = bucket_of(torch.arange(max_distance + 1), of_a_direction, max_distance)
        self.register_buffer("buckets", buckets, persistent=False)
        self.table = nn.Parameter(torch.empty(num_buckets, num_heads))
        nn.init.normal_(self.table, std=std)

    def bias(
        self,
        query: Float[Tensor, "*batch heads target width"] | None,
        query_position: Int[Tensor, "*blocks target"],
        key_position: Int[Tensor, "*blocks source"],
    ) -> Float[Tensor, "1 *blocks heads target source"]:
        ahead = key_position[..., None, :] - query_position[..., :, None]
        distance = (-ahead).clamp(min=0) if self.causal else ahead.abs()
        bucket = self.buckets[distance.clamp(max=len(self.buckets) - 1)]
        if not self.causal:
            bucket = bucket + (ahead > 0) * (len(self.table) // 2)
        return F.embedding(bucket, self.table).movedim(-1, -3)[None]


def bucket_of(distance: Int[Tensor, "..."], num_buckets: int, max_distance: int) -> Int[Tensor, "..."]:
    """Return the buckets of distances: their own in the first half of the buckets, then logarithmic ones.

    From half = num_buckets / 2 on it is half + (num_buckets - half) log(distance / half) / log(max_distance / half),
    rounded down, and at most the last bucket.
    """
    half = num_buckets // 2
    share = (distance.clamp(min=half).double() / half).log() / math.log(max_distance / half)
    # a whole number must not be rounded to the one below
    logarithmic = half + ((num_buckets - half) * share + 1e-9).floor().long()
    return torch.where(distance < half, distance, logarithmic.clamp(max=num_buckets - 1))
