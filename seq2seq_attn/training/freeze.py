"""Parameters that a run does not train: `freeze=[encoder,embed_source]`."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from difflib import get_close_matches

from torch import nn

from seq2seq_attn.errors import UserError

log = logging.getLogger(__name__)


def freeze(model: nn.Module, names: Sequence[str]) -> None:
    """Take modules and parameters out of the training; a matrix of several names is frozen under all of them.

    Frozen parameters get no gradient and no state of the optimizer. Dropout within them stays active in training.

    Args:
        names: each is a parameter, or a module of which all parameters are meant.

    Raises:
        UserError: if there is none of that name, or nothing is left to train.
    """
    parameters = dict(model.named_parameters(remove_duplicate=False))
    for name in names:
        for parameter in named_parameters(model, name, f"freeze=[{name}]"):
            parameter.requires_grad_(False)
    if names and not any(parameter.requires_grad for parameter in parameters.values()):
        raise UserError(f"freeze=[{','.join(names)}] leaves nothing to train; leave out one of them")
    tied = [key for key, parameter in parameters.items() if not parameter.requires_grad and not within(key, names)]
    if tied:
        log.info(f"{', '.join(tied)} is frozen too, since it is one matrix with a frozen parameter")


def named_parameters(model: nn.Module, name: str, option: str) -> list[nn.Parameter]:
    """Return the parameter of a name, or those of the module of this name.

    Args:
        option: as it was typed, for an error.
    """
    parameters = dict(model.named_parameters(remove_duplicate=False))
    if chosen := [parameter for key, parameter in parameters.items() if f"{key}.".startswith(f"{name}.")]:
        return chosen
    raise UserError(f"{option} names no module or parameter of this model; {closest(name, parameters)}")


def within(key: str, names: Sequence[str]) -> bool:
    return any(f"{key}.".startswith(f"{name}.") for name in names)


def closest(name: str, parameters: dict[str, nn.Parameter]) -> str:
    """Return a question with the closest names, or else the parts of the model."""
    names = {".".join(key.split(".")[:depth]) for key in parameters for depth in range(1, key.count(".") + 2)}
    close = get_close_matches(name, sorted(names), n=3, cutoff=0.7)
    if close:
        return f"did you mean {' or '.join(close)}?"
    return f"choose from {', '.join(dict.fromkeys(key.partition('.')[0] for key in parameters))}, or what is in them"
