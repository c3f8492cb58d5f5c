"""Dropout: y = m x / (1 - p), where m is 0 with probability p, else 1. Srivastava et al. 2014, JMLR 15."""

from __future__ import annotations

from typing import final

import numpy as np
import torch
from jaxtyping import Float, Int8
from torch import Tensor, nn
from torch.nn import functional as F

from seq2seq_attn.nn.transforms import inside_transform

LEVELS = 2**16  # values of the random bits of a number
MIN_NUMBERS = 2**12  # below, seeding a generator takes longer than the draws of torch


@final
class Dropout(nn.Dropout):
    """torch's module with the masks of `dropout`, which a CPU draws faster."""

    def forward(self, x: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
        return dropout(x, self.p) if self.training else x


def dropout(x: Float[Tensor, "*shape"], p: float) -> Float[Tensor, "*shape"]:
    """Set a share p of the numbers to 0, and divide the others by the share kept.

    torch draws the mask on a CPU number by number from one Mersenne twister. Here SFC64 of numpy, which takes a tenth
    of the time, gives each number 16 bits, so the share is rounded to a multiple of 1 / 65,536. One draw from torch's
    generator seeds it: the mask is a function of torch's seed, and recomputed activations have the same one. Until the
    backward pass a mask takes one byte a number, and torch's four.

    For few numbers, on other devices, in compiled code, in transforms of torch.func, and where the share rounds to 0
    or 1, this is torch's dropout.
    """
    if torch.compiler.is_compiling() or inside_transform():  # first: a size that was asked for is compiled in
        return F.dropout(x, p)
    dropped = round(p * LEVELS)
    plain = x.device.type == "cpu" and type(x) in (Tensor, nn.Parameter) and x.numel() >= MIN_NUMBERS
    if not (plain and 0 < dropped < LEVELS):
        return F.dropout(x, p)
    return (x * draw_kept(x.shape, dropped)).mul_(LEVELS / (LEVELS - dropped))


def draw_kept(shape: torch.Size, dropped: int) -> Int8[Tensor, "*shape"]:
    """Draw 0 with probability `dropped` / LEVELS, else 1; torch multiplies by int8 three times as fast as by bool."""
    size = shape.numel()
    generator = np.random.SFC64(int(torch.randint(2**63 - 1, (), device="cpu")))
    bits = generator.random_raw(-(-size // 4)).view(np.uint16)[:size]  # four numbers for each 64 bits
    return torch.from_numpy((bits >= dropped).view(np.int8)).view(shape)
