"""Conversion of half precision to float32, for sums and exponentials."""

import torch
from jaxtyping import Float
from torch import Tensor

NO_FLOAT64 = "lacks float64, in which searches sum log-probabilities"  # of the GPU of a Mac


def at_least_float32(x: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
    """Return float16 and bfloat16 as float32, and wider dtypes unchanged."""
    return x.float() if x.dtype in (torch.float16, torch.bfloat16) else x


def as_autocast(x: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
    """Return a factor of a matrix product as autocast would cast it."""
    kind = x.device.type
    if torch.compiler.is_compiling() or not torch.amp.is_autocast_available(kind) or x.dtype == torch.float64:
        return x
    return x.to(torch.get_autocast_dtype(kind)) if torch.is_autocast_enabled(kind) else x
