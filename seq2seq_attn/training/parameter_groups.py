"""Other options of the optimizer for some parameters: `parameter_groups=[{names:[encoder],lr:0.0002}]`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch import nn

from seq2seq_attn.errors import UserError, one_line
from seq2seq_attn.factory import named_arguments
from seq2seq_attn.options import Factory, check, typed
from seq2seq_attn.training.freeze import named_parameters

VECTORS = "vectors"
OF_ALL = {"fused", "foreach", "capturable", "differentiable"}  # options of the optimizer as a whole


def parameter_groups(
    model: nn.Module, entries: Sequence[Mapping[str, Any]], optimizer: partial[Any]
) -> list[dict[str, Any]]:
    """Return the groups of what is trained, first that of the parameters without an entry, if there are any.

    Args:
        entries: each has options of the optimizer and `names` of modules or parameters; `vectors` are all biases,
            and whatever else is no matrix, such as the scales of normalization. Where two entries are about one
            parameter, the options of both hold, and of two values the later one.

    Raises:
        UserError: for an entry that names nothing that is trained, has no option, or one that the optimizer does
            not take, and for an optimizer that makes groups itself.
    """
    if entries and "hidden_matrices" in named_arguments(optimizer):
        raise UserError(
            "optimizer=muon makes groups of its own, so parameter_groups must be empty; use optimizer=adamw"
        )
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    options: dict[int, dict[str, Any]] = {id(parameter): {} for parameter in trained}
    for entry in entries:
        own = own_options(entry, optimizer)
        chosen = {id(parameter) for name in entry["names"] for parameter in chosen_by(name, model)} & options.keys()
        if not chosen:
            raise UserError(f"parameter_groups: {typed(entry)} names only frozen parameters; leave it out")
        for key in chosen:
            options[key] |= own
    groups: list[dict[str, Any]] = [{"params": []}]
    for parameter in trained:
        group = next((one for one in groups if without_parameters(one) == options[id(parameter)]), None)
        if group is None:
            groups.append(group := {"params": [], **options[id(parameter)]})
        group["params"].append(parameter)
    return [group for group in groups if group["params"]]


def chosen_by(name: str, model: nn.Module) -> list[nn.Parameter]:
    if name == VECTORS:
        return [parameter for key, parameter in model.named_parameters() if is_vector(key, parameter)]
    return named_parameters(model, name, f"parameter_groups=[{{names:[{name}]}}]")


def is_vector(name: str, parameter: nn.Parameter) -> bool:
    """Return whether a parameter is a bias, also one for each of several heads, or one row or column."""
    return name.rpartition(".")[2].startswith("bias") or parameter.numel() == max(parameter.shape, default=1)


def own_options(entry: Mapping[str, Any], optimizer: partial[Any]) -> dict[str, Any]:
    """Return the options of an entry, which the optimizer has tried."""
    names, options = entry.get("names"), {name: value for name, value in entry.items() if name != "names"}
    if not isinstance(names, list) or not names or not all(isinstance(name, str) for name in names) or not options:
        raise UserError(
            f"parameter_groups: {typed(entry)} must have a list of names and an option of the optimizer, as in "
            "{names:[encoder],lr:0.0002}"
        )
    parameter, kind = [nn.Parameter(torch.zeros(()))], optimizer.func
    known = optimizer(parameter).defaults.keys() & named_arguments(optimizer) - OF_ALL
    if unknown := sorted(options.keys() - known):
        raise UserError(
            f"parameter_groups: {unknown[0]} is no option of {kind.__name__} that some parameters can have; choose "
            f"from: {', '.join(sorted(known))}"
        )
    whole = {"_target_": f"{kind.__module__}.{kind.__qualname__}", "_partial_": True, **options}
    try:
        check("optimizer", whole, Factory)
        optimizer(parameter, **options)
    except (UserError, TypeError, ValueError, RuntimeError) as error:
        why = str(error).partition(";")[0] if isinstance(error, UserError) else one_line(error)
        raise UserError(f"parameter_groups: {typed(entry)}: {why}; correct the option") from error
    return options


def without_parameters(group: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in group.items() if name != "params"}
