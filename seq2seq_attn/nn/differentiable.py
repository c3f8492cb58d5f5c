"""Gradients of our own that no second derivative goes through."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

import torch


def differentiable_once(backward: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap the backward of an autograd Function: it refuses `create_graph=True`.

    torch's `once_differentiable` refuses only where the gradient that comes in depends on an input, and else leaves out
    the second derivative without a word, as where the output is summed.

    Raises:
        RuntimeError: in a backward pass that builds a graph.
    """

    @wraps(backward)
    def once(ctx: Any, *upstream: Any) -> Any:
        if torch.is_grad_enabled():
            raise RuntimeError(
                "trying to differentiate twice what has one derivative, as create_graph=True asks; among attentions "
                "backend=dense has all"
            )
        return backward(ctx, *upstream)

    return once
