"""The device that an option names."""

from __future__ import annotations

import torch

from seq2seq_attn.tensors.error import UserError


def choose_device(name: str) -> torch.device:
    """`auto` is a GPU of CUDA where there is one, else the CPU.

    Raises:
        UserError: if there is no such device.
    """
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        return torch.zeros((), device=name).device
    except (RuntimeError, AssertionError) as error:
        raise UserError(f"device={name} cannot be used here; use auto, cpu, cuda or cuda:1") from error
