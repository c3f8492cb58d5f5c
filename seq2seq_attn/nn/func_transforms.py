"""Detection of active torch.func transforms, such as vmap, grad, vjp and jvp."""

import torch


def inside_func_transform() -> bool:
    """Return whether a torch.func transform is active.

    It is a private function of torch, seen in 2.13, which `torch.autograd.Function.apply` calls; there is no public
    one.
    """
    return torch._C._are_functorch_transforms_active()
