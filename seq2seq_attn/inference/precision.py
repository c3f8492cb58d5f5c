"""The precision in which a model translates, by Lightning's plugins, as in training and evaluation."""

from __future__ import annotations

from typing import Any

import torch
from pytorch_lightning.plugins.precision import DoublePrecision, HalfPrecision, MixedPrecision, Precision

from seq2seq_attn.errors import UserError

NAMES = ("32-true", "bf16-mixed", "bf16-true", "16-mixed", "16-true", "64-true")
SHORT_NAMES = {"32": "32-true", "bf16": "bf16-mixed", "16": "16-mixed", "64": "64-true"}  # which Lightning takes, too


def precision_plugin(precision: str | int | None, device: torch.device) -> Precision:
    """Return the plugin that converts a model and sets what it computes in; None: float32.

    Raises:
        UserError: for a name that does not exist, and for float16 on a CPU.
    """
    name: Any = "32-true" if precision is None else SHORT_NAMES.get(str(precision), str(precision))
    if name not in NAMES:
        raise UserError(f"precision={precision} does not exist; choose from: {', '.join(NAMES)}")
    if name.startswith("16") and device.type == "cpu":
        raise UserError(f"precision={precision} needs a GPU; on a CPU use precision=bf16-mixed, bf16-true or 32-true")
    if name.endswith("-mixed"):
        return MixedPrecision(name, device.type)
    if name in ("bf16-true", "16-true"):
        return HalfPrecision(name)
    return DoublePrecision() if name == "64-true" else Precision()
