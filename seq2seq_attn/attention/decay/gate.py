"""Forget gate: f_t = sigmoid(w . x_t + b) of the past, 1 - f_t of the own key. Peng et al. 2021, RFA-Gate, eq. 7."""

from __future__ import annotations

from typing import Annotated, final

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from seq2seq_attn.attention.decay.decay import Decay
from seq2seq_attn.nn.precision import at_least_float32
from seq2seq_attn.nn.projections import forget_gate

MAX_LOGIT = 15.0  # f and 1 - f are then at least 3e-7, and denominators and their gradients stay within float32


@final
class GateDecay(Decay):
    """S_t = f_t S_(t-1) + (1 - f_t) phi(k_t) v_t^T, and z_t likewise, arXiv:2103.02143; each head has its own gates.

    A gate near 0 removes the earlier tokens, and one near 1 keeps them and leaves out its own. Deviation: w . x + b is
    clamped to -15 ... 15.

    Args:
        initial_gate: f before training, if w . x is 0.

    Raises:
        UserError: for an `initial_gate` that is not between 0.000001 and 0.999999.
    """

    def __init__(self, *, key_dim: int, num_heads: int, initial_gate: Annotated[float, "[0.000001, 0.999999]"]) -> None:
        super().__init__()
        self.project = forget_gate(key_dim, num_heads, initial_gate, "attention.decay.initial_gate")

    def forward(
        self, keys: Float[Tensor, "batch source key_dim"]
    ) -> tuple[Float[Tensor, "batch heads source"], Float[Tensor, "batch heads source"]]:
        logits = at_least_float32(self.project(keys)).clamp(-MAX_LOGIT, MAX_LOGIT).mT
        return F.logsigmoid(logits), torch.sigmoid(-logits)
