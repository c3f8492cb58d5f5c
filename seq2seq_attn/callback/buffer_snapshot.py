"""A module's buffer and what it was before the step, for a step that turns out to be void."""

from __future__ import annotations

from typing import final

import torch
from jaxtyping import Float
from torch import Tensor


@final
class BufferSnapshot:
    """One that no step writes, such as a table, is copied once and then costs nothing."""

    def __init__(self, buffer: Tensor) -> None:
        self._buffer, self._before, self._version = buffer, buffer.clone(), buffer._version

    def restore_where(self, void: Float[Tensor, ""]) -> None:
        """Put back what was before the step if it is void (1.0), else keep what is now; decided on the device."""
        if self._buffer._version == self._version:
            return
        self._buffer.copy_(torch.where(void.bool(), self._before, self._buffer))
        self._before.copy_(self._buffer)
        self._version = self._buffer._version
