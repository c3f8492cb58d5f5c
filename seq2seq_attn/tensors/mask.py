"""Boolean masks: True means "may be seen"."""

import torch
from jaxtyping import Bool, Int
from torch import Tensor


def length_mask(lengths: Int[Tensor, "batch"], length: int) -> Bool[Tensor, "batch length"]:
    """True on the first `lengths[b]` of `length` places."""
    return torch.arange(length, device=lengths.device) < lengths[:, None]
