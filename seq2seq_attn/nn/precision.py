"""Conversion of half precision to float32, for sums and exponentials."""

import torch
from jaxtyping import Float
from torch import Tensor


def at_least_float32(x: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
    """Return float16 and bfloat16 as float32, and wider dtypes unchanged."""
    return x.float() if x.dtype in (torch.float16, torch.bfloat16) else x
