"""Whether a transform of torch.func is at work: one of vmap, grad, vjp, jvp and what is made of them."""

import torch


def inside_func_transform() -> bool:
    """Seen in torch 2.13, where `torch.autograd.Function.apply` asks the same; there is no public name for it."""
    return torch._C._are_functorch_transforms_active()
