"""Full pattern: every query may attend to every key. Bahdanau et al. 2015; Luong et al. 2015 call it global."""

from __future__ import annotations

from typing import ClassVar, final

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from seq2seq_attn.attention.pattern.pattern import Pattern


@final
class FullPattern(Pattern):
    """No restriction except the mask and causality."""

    sees_all: ClassVar[bool] = True

    def allowed(self, centre: Tensor, key_position: Int[Tensor, " source"]) -> Bool[Tensor, "#batch target source"]:
        return torch.ones(*centre.shape, key_position.shape[0], dtype=torch.bool, device=key_position.device)
