"""Half precision is widened where sums and exponentials need it."""

import torch
from jaxtyping import Float
from torch import Tensor


def at_least_float32(x: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
    """float16 and bfloat16 as float32; wider ones as they are."""
    return x.float() if x.dtype in (torch.float16, torch.bfloat16) else x
