"""Detection of active torch.func transforms, such as vmap, grad, vjp and jvp, and of forward-mode derivatives."""

import torch
from torch.autograd import forward_ad


def inside_transform() -> bool:
    """Return whether a torch.func transform or a level of forward-mode derivatives is active.

    Both are asked by private names of torch, seen in 2.13; there are no public ones.
    """
    return torch._C._are_functorch_transforms_active() or forward_ad._current_level >= 0
