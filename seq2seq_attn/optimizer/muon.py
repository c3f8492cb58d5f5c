"""Muon: an orthogonal momentum for hidden matrices, AdamW for all else. Liu et al. 2025, arXiv:2502.16982."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Annotated, Any, final

import torch
from torch import nn
from torch.optim import Optimizer

from seq2seq_attn.errors import UserError
from seq2seq_attn.model.encoder_decoder import EncoderDecoder

LAYERS = (nn.Linear, nn.RNNBase)


@final
class Muon(Optimizer):
    """One optimizer of two groups: torch's Muon updates the first, torch's AdamW the second.

    An update of a matrix is scaled to the size of AdamW's (Liu et al. 2025, eq. 4), so both have one learning rate and
    one weight decay, and Adam's learning rate can be kept.

    Args:
        params: all that is trained.
        hidden_matrices: the parameters that Muon updates; those not in `params` are ignored.
        momentum, ns_steps: of Muon: the decay of its momentum, and the steps of its Newton-Schulz iteration.
        betas: of AdamW.
    """

    def __init__(
        self,
        params: Iterable[nn.Parameter],
        *,
        hidden_matrices: Collection[nn.Parameter],
        lr: Annotated[float, "[0, inf)"],
        weight_decay: Annotated[float, "[0, inf)"],
        momentum: Annotated[float, "[0, 1)"],
        ns_steps: Annotated[int, "[1, 99]"],
        betas: Annotated[Sequence[float], "[0, 1)"],
        eps: Annotated[float, "[0, inf)"],
    ) -> None:
        common: dict[str, Any] = {"lr": lr, "weight_decay": weight_decay, "eps": eps}
        scaled: dict[str, Any] = {"momentum": momentum, "ns_steps": ns_steps, "adjust_lr_fn": "match_rms_adamw"}
        # Their parameters and state are those of this optimizer, given in each step.
        self._muon = torch.optim.Muon([{"params": []}], **common, **scaled)
        self._adamw = torch.optim.AdamW([{"params": []}], **common, betas=(betas[0], betas[1]), fused=True)
        matrices, given = {id(matrix) for matrix in hidden_matrices}, list(params)
        groups = [{"params": [p for p in given if (id(p) in matrices) is hidden]} for hidden in (True, False)]
        super().__init__(groups, self._muon.defaults | self._adamw.defaults)

    def __getstate__(self) -> dict[str, Any]:
        return super().__getstate__() | {"_muon": self._muon, "_adamw": self._adamw}

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        if len(self.param_groups) == 2:
            raise UserError("Muon has two groups of parameters, those of Muon and of AdamW; make a new optimizer")
        super().add_param_group(param_group)

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:  # type: ignore[override]
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        parts: tuple[Optimizer, Optimizer] = (self._muon, self._adamw)
        for part, group in zip(parts, self.param_groups, strict=True):
            part.param_groups, part.state = [group], self.state
            part.step()
        return loss


def hidden_matrices(model: EncoderDecoder) -> list[nn.Parameter]:
    """Return the matrices of linear and recurrent layers, except the output layer and whatever is an embedding too."""
    tables = {id(module.weight) for module in model.modules() if isinstance(module, nn.Embedding)}
    tables.add(id(model.output.weight))
    layers = (module for module in model.modules() if isinstance(module, LAYERS))
    weights = (weight for layer in layers for weight in layer.parameters(recurse=False))
    return [weight for weight in weights if weight.ndim == 2 and id(weight) not in tables]
