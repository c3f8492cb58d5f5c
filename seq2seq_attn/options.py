"""The type and the range of every option, checked before anything reads one.

Types are those of the constructor that a `_target_` names, or are listed here for options of the first level. The range
of a number is part of its type, `sharpness: Annotated[float, "(0, inf)"]`; `RANGES` adds it to the types of libraries.
"""

from __future__ import annotations

import inspect
import json
import logging
import math
import os
import re
import sys
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from difflib import get_close_matches
from functools import partial
from importlib import import_module
from pathlib import Path
from types import NoneType, SimpleNamespace, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from hydra.core.hydra_config import HydraConfig
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.types import RunMode
from hydra.utils import get_class, get_object
from omegaconf import DictConfig, OmegaConf

from seq2seq_attn.errors import UserError, one_line
from seq2seq_attn.paths import conf_directory, in_quotes
from seq2seq_attn.slots import NO_SLOT, SLOTS

logging.getLogger("hydra.utils").setLevel(logging.CRITICAL)  # get_object logs what it raises

Built, Factory, Group = (object, partial[Any], dict[str, object])  # a `_target_`, one that is `_partial_`, several
COMMON: dict[str, Any] = {
    "task_name": str, "num_threads": Annotated[int | None, "[1, 1000]"],
    "batch_tokens": Annotated[int | None, "[1, 1000000]"], "device": str, "paths": dict[str, str],
    "choices": dict[str, str | None],
}  # fmt: skip
TRAIN: dict[str, Any] = COMMON | {
    "seed": Annotated[int, "[0, 4294967295]"], "batch_tokens": Annotated[int, "[1, 1000000]"],
    "batch_sentences": Annotated[int | None, "[1, 1000000]"],
    "eval_batch_tokens": Annotated[int | None, "[1, 1000000]"], "num_workers": Annotated[int, "[0, 1000]"],
    "val_sentences": Annotated[int | None, "[1, 1000000]"], "log_text": bool,
    "label_smoothing": Annotated[float, "[0, 1)"], "r_drop_alpha": Annotated[float, "[0, inf)"],
    "token_dropout": dict[str, Annotated[float, "[0, 1)"]], "init_from": dict[str, str | bool | None],
    "trust": str | list[str], "freeze": list[str], "parameter_groups": list[dict[str, Any]],
    "resume": Literal["auto"] | None, "ckpt_path": str | None, "optimized_metric": str, "guided_alignment": Built,
    "objective": Built | None, "scheduled_sampling": Built, "monitor": str | None,
    "monitor_mode": Literal["max", "min"] | None, "data": Built, "tokenizer": Built, "attention": Factory,
    "self_attention": Factory, "encoder_attention": Factory, "cross_attention": Factory, "position": Factory,
    "feed_forward": Factory, "model": Built, "search": Built, "metric": Group, "optimizer": Factory,
    "scheduler": Factory, "trainer": Built, "callback": Group, "logger": Group,
}  # fmt: skip
FIRST = {name: TRAIN[name] for name in ("metric", "guided_alignment")}  # read before the others can be checked
DECODING: dict[str, Any] = COMMON | {  # of translate and serve
    "ckpt_path": str | list[str], "engine": Literal["torch", "ctranslate2"], "trust": str | list[str],
    "max_source_tokens": Annotated[int, "[1, 1000000]"], "batch_sentences": Annotated[int, "[1, 1000000]"],
    "precision": Annotated[str | int | None, "[16, 64]"], "compute_type": str | None, "search": Built | None,
}  # fmt: skip
ALIGNMENT: dict[str, Any] = {
    "alignment_layer": Annotated[int | None, "[0, 1000]"], "alignment_head": Annotated[int | None, "[0, 1000]"],
    "alignment_threshold": Annotated[float | None, "[0, 1]"], "alignment_shift": bool | None, "alignment_sink": bool,
}  # fmt: skip
TRANSLATE: dict[str, Any] = DECODING | ALIGNMENT | {
    "interactive": bool, "input": str | None, "output": str | None, "prefixes": str | None, "nbest": str | None,
    "alignments": str | None, "placeholders": bool, "maps": str | None, "read_ahead": Annotated[int, "[1, 1000000]"],
    "num_processes": Annotated[int, "[1, 1000]"],
}  # fmt: skip
SERVE: dict[str, Any] = DECODING | {"host": str, "port": Annotated[int, "[0, 65535]"]}
ALIGN: dict[str, Any] = COMMON | ALIGNMENT | {
    "ckpt_path": str | None, "reverse": str | None, "links": str | list[str] | None, "trust": str | list[str],
    "pairs": str | list[str] | None, "gold": str | None, "gold_start": Literal[0, 1], "target_first": bool,
    "lowercase": bool, "tatoeba": str | None, "symmetrization": str, "output": str | None, "results": str | None,
}  # fmt: skip
EXPLORE: dict[str, Any] = COMMON | {
    "ckpt_path": str | list[str], "compare": str | list[str] | None, "trust": str | list[str],
    "port": Annotated[int | None, "[0, 65535]"], "open": bool, "page": str | None, "input": str | None,
}  # fmt: skip
EVALUATE: dict[str, Any] = COMMON | {
    "ckpt_path": str | list[str], "splits": str | list[str] | None, "score": str | list[str] | None,
    "trust": str | list[str], "bootstrap": Annotated[int, "[0, 1000000]"],
    "precision": Annotated[str | int | None, "[16, 64]"], "data": Built | None, "search": Built | None, "metric": Group,
}  # fmt: skip

RANGES: dict[str, dict[str, str]] = {  # of the numbers that the constructors of libraries take, by their module
    "torch.optim": {
        "[-1, 0]": "beta2_decay",
        "[0, 1)": "momentum betas",
        "[0, 1]": "factor",
        "[0, inf)": "lr eps weight_decay alpha",
        "[1, 1000]": "d",
        "[0, 1000000000]": "total_iters patience",
    },
    "pytorch_lightning": {
        "[0, 1)": "decay",
        "[0, inf)": """gradient_clip_val limit_train_batches limit_val_batches limit_test_batches limit_predict_batches
            overfit_batches""",
        "(0, inf)": "val_check_interval",
        "[1, 1000]": "num_nodes",
        "[0, 1000]": "refresh_rate",
        "[-1, 1000]": "devices save_top_k",
        "[1, 1000000]": "accumulate_grad_batches check_val_every_n_epoch",
        "[0, 65535]": "port",
        "[1, 1000000000]": "log_every_n_steps",
        "[0, 1000000000]": "patience fast_dev_run reload_dataloaders_every_n_epochs min_epochs min_steps",
        "[-1, 1000000000]": "max_epochs max_steps num_sanity_val_steps",
    },
}
KINDS = {"callback": "pytorch_lightning.Callback", "optimizer": "torch.optim.Optimizer"}  # no checkpoint rebuilds them
LONGEST = 255  # bytes of the name of a file


def check_options(config: DictConfig, types: dict[str, Any]) -> None:
    """Check the options of the first level that `types` names, and those inside of them.

    Raises:
        UserError: for a value of another type, outside of its range or none of the choices, for an option that the
            constructor does not take, for a class that is not of the kind of its slot, and for an option that has been
            added on the command line and that nothing reads, or deleted there and is read.
    """
    if HydraConfig.initialized():
        overrides, groups = list(HydraConfig.get().overrides.task), HydraConfig.get().runtime.choices
        check_deleted(overrides, types.keys() - groups_of_parts(types, groups))
        if types.keys() >= COMMON.keys():
            check_added(config, overrides, {*types, *groups})
    for name, kind in types.items():
        if name in config and not OmegaConf.is_missing(config, name):
            value = config[name]
            if OmegaConf.is_config(value):  # choices refer to what a config composed outside of Hydra lacks
                value = OmegaConf.to_container(value, resolve=name != "choices")
            check(name, value, kind, hint="; `--cfg job` shows the default")
            check_kinds(name, value, name)


def given_overrides() -> list[str]:
    """Return the overrides of the command line, such as `metric=bleu`; none where Hydra did not start the command."""
    return list(HydraConfig.get().overrides.task) if HydraConfig.initialized() else []


def in_sweep() -> bool:
    """Return whether this is a job of a sweep (`-m`), whose jobs run in one process, one after the other."""
    return HydraConfig.initialized() and HydraConfig.get().mode == RunMode.MULTIRUN


def check_added(config: DictConfig, overrides: list[str], known: Collection[str]) -> None:
    """Refuse `+name=value` of the first level unless it has a known name, or another option refers to it."""
    for override in overrides:
        name = key_of(override).partition(".")[0]
        if not override.startswith("+") or name in known or not name.isidentifier():
            continue
        if f"${{{name}" not in OmegaConf.to_yaml(config, resolve=False):
            close = get_close_matches(name, known, n=1)
            guess = f"did you mean '{close[0]}'?" if close else "leave it out, or let another option refer to it"
            raise UserError(f"{override} would change nothing, since there is no option '{name}'; {guess}")


def groups_of_parts(types: dict[str, Any], choices: Collection[str]) -> set[str]:
    """Return the options of the first level that are groups, whose parts may be deleted.

    Args:
        choices: Hydra's record of them. It lacks a group of which several are chosen, as by `callback=[default,ema]`,
            and names the slot of a group with the group, as `attention@cross_attention`.
    """
    several = {name for name, kind in types.items() if kind is Group}
    return several | {name for choice in choices for name in choice.split("@")}


def check_deleted(overrides: list[str], needed: Collection[str]) -> None:
    """Refuse `~name` of the first level that is no group, and `~name.part` of it: such an option is always read."""
    for override in overrides:
        key = key_of(override)
        if override.startswith("~") and key.partition(".")[0] in needed:
            raise UserError(f"{override} takes away an option that is read; give {key}=VALUE, or leave it as it is")


def key_of(override: str) -> str:
    """Return what an override sets: `attention@self_attention` of `+attention@self_attention=sparse`."""
    return override.partition("=")[0].lstrip("+~")


def check(key: str, value: Any, kind: Any, *, hint: str = "") -> None:
    """Check an option and those inside of it.

    Args:
        hint: where to look, for the sentence that refuses a value.

    Raises:
        UserError: as `check_options`.
    """
    kind, interval = type_and_interval(kind)
    if value == "???":
        if key.endswith("_vocab_size"):
            return  # the tokenizer knows it
        raise UserError(f"The option '{key}' has no value; give {key}=...")
    if not fits(value, kind, interval):
        raise UserError(f"{key}={shown(value)} must be {described(kind, interval)}{as_group(key, value, kind) or hint}")
    if isinstance(value, str) and ("\0" in value or max(map(len, os.fsencode(value).split(b"/"))) > LONGEST):
        raise UserError(f"{key}={shown(value)} holds a NUL, or more than {LONGEST} bytes between slashes; shorten it")
    if isinstance(value, dict):
        child_kind = get_args(kind)[1] if get_origin(kind) is dict else Any
        kinds = argument_types(key, value) if "_target_" in value else dict.fromkeys(value, child_kind)
        for name, child in value.items():
            if not str(name).startswith("_"):
                check(f"{key}.{name}", child, kinds.get(name, Any), hint=hint)


def as_group(key: str, value: Any, kind: Any) -> str:
    """Return the way out where a part is given by the name of a file of a group, as in `search.length_penalty=mean`."""
    parts = {"_target_": ""}, {"_target_": "", "_partial_": True}
    if not (isinstance(value, str) and re.fullmatch(r"\w+", value) and any(fits(part, kind, None) for part in parts)):
        return ""
    first, last = key.partition(".")[0], key.rpartition(".")[2]
    for group, place in ((key.replace(".", "/"), ""), (last, f"@{key}"), (first, f"@{key}")):
        if (conf_directory() / group / f"{value}.yaml").is_file():
            return f"; give {group}{place}={value}"
    return ""


def type_and_interval(kind: Any) -> tuple[Any, str | None]:
    """Return a type and the interval beside it, as in `Annotated[float, "[0, 1)"]`; other words there say nothing."""
    if get_origin(kind) is not Annotated:
        return kind, None
    kind, *words = get_args(kind)
    return kind, next((word for word in words if is_interval(word)), None)


def is_interval(word: Any) -> bool:
    """Return whether a text is an interval of numbers, such as `[0, 1)`."""
    match = re.fullmatch(r"[\[(]([^,]+),([^,]+)[\])]", word) if isinstance(word, str) else None
    with suppress(ValueError):
        return match is not None and all(not math.isnan(float(end)) for end in match.groups())
    return False


def fits(value: Any, kind: Any, interval: str | None) -> bool:
    """Return whether a plain value may be given for an argument of this type."""
    if get_origin(kind) is Annotated:  # within another type
        return fits(value, *type_and_interval(kind))
    origin, inner = get_origin(kind), get_args(kind)
    if kind is Any:
        return True
    if kind in (list, tuple, dict):
        return isinstance(value, dict if kind is dict else list)
    if Callable in (kind, origin):  # a class, a function, or an object that can be called
        return isinstance(value, dict) and "_target_" in value
    if kind is partial:
        return isinstance(value, dict) and "_target_" in value and value.get("_partial_") is True
    if origin in (Union, UnionType):
        return any(fits(value, one, interval) for one in inner)
    if origin is Literal:
        return any(type(value) is type(choice) and value == choice for choice in inner)
    if kind in (int, float):
        return type(value) in (int, kind) and is_inside(value, interval or "(-inf, inf)")
    if kind in (bool, NoneType):
        return type(value) is kind
    if kind in (str, Path):
        return isinstance(value, str)
    if isinstance(value, dict) and is_mapping(origin):
        return all(fits(name, inner[0], None) for name in value)
    if isinstance(value, dict):
        return "_target_" in value and value.get("_partial_", False) is (origin is partial)
    if isinstance(value, list) and origin is tuple and ... not in inner:
        return len(value) == len(inner) and all(map(partial(fits, interval=interval), value, inner))
    if isinstance(value, list) and origin is not None and not is_mapping(origin):
        return all(fits(child, inner[0], interval) for child in value)
    return False


def is_mapping(origin: Any) -> bool:
    return isinstance(origin, type) and issubclass(origin, Mapping)


def is_inside(number: int | float, interval: str) -> bool:
    """Return whether `interval`, as `[0, 1)`, holds a number; none holds a NaN or an infinity."""
    low, high = map(float, interval[1:-1].split(","))
    return (low < number or (number == low and interval[0] == "[")) and (
        number < min(high, sys.float_info.max) or (number == high and interval[-1] == "]")
    )


def described(kind: Any, interval: str | None) -> str:
    """Return a type as Python writes it, with its interval; an object is given by its `_target_`."""
    if Callable in (kind, get_origin(kind)):
        return "a group with _target_"
    if kind is object or partial in (kind, get_origin(kind)):
        return f"a group with _target_ and _partial_={str(kind is not object).lower()}"
    if get_origin(kind) is Annotated:
        return described(*type_and_interval(kind))
    text = "null" if kind is NoneType else inspect.formatannotation(kind).replace("typing.", "")
    if choices := choices_of(kind):
        *most, last = choices
        return f"{', '.join(most)} or {last}" if most else last
    if get_origin(kind) in (Union, UnionType):
        # sorted: Python caches a union, so its order is that of the first equal one
        inner = sorted(get_args(kind), key=lambda one: (one is NoneType, str(one)))
        text = " | ".join(described(one, None) for one in inner)
    elif get_origin(kind) is dict:
        text = f"dict[{', '.join(described(one, None) for one in get_args(kind))}]"
    return f"{text} in {interval}" if interval else text


def choices_of(kind: Any) -> list[str]:
    """Return the values of a type that is a choice, the numbers first; empty for any other type."""
    if get_origin(kind) is Literal:
        return [str(choice) for choice in sorted(get_args(kind), key=lambda choice: isinstance(choice, str))]
    if get_origin(kind) not in (Union, UnionType):
        return []
    inner = [one for one in get_args(kind) if one is not NoneType]
    found = [choices_of(one) for one in inner]
    if not all(found):
        return []
    names = sorted({name for names in found for name in names}, key=lambda name: (not name.isdigit(), name))
    return names + ["null"] * (NoneType in get_args(kind))


def argument_types(key: str, node: dict[str, Any]) -> dict[str, Any]:
    """Return the types of the arguments that the `_target_` of a node takes.

    Raises:
        UserError: if there is no such class or function, it does not take an option, or it lacks one.
    """
    try:
        target = get_object(node["_target_"])
    except Exception as error:  # whatever the import of a module raises
        raise UserError(f"{key}._target_={shown(node['_target_'])} {why_not_found(node['_target_'], error)}") from error
    if not callable(target):
        raise UserError(f"{key}._target_={shown(node['_target_'])} is no class or function; correct the name")
    try:
        arguments = {} if inherits_constructor(target) else inspect.signature(target).parameters
    except ValueError:  # a class in C
        return {}
    types = ranged_types(target.__init__ if inspect.isclass(target) else target)
    if any(argument.kind is argument.VAR_KEYWORD for argument in arguments.values()):
        return types
    for name in node:
        if name not in arguments and not name.startswith("_"):
            known = f"it takes: {', '.join(arguments)}" if arguments else "it takes none"
            raise UserError(f"{key}.{name} is no option of {node['_target_']}; {known}; ~{key}.{name} leaves it out")
    for name, argument in arguments.items():
        if name not in node and argument.default is argument.empty and not node.get("_partial_"):
            raise UserError(f"{key} lacks the option {name} of {node['_target_']}; give {key}.{name}=...")
    return types


def why_not_found(name: Any, error: Exception) -> str:
    """Return why there is no object of this name, to be put after the name, and the way out."""
    module, _, last = str(name).rpartition(".")
    try:
        names = vars(import_module(module))
    except Exception:  # whatever the import of a module raises
        cause = error.__cause__ or error
        return (
            f"cannot be imported ({type(cause).__name__}: {one_line(cause)}); install its package, run the command in "
            "the folder that contains it, or name that folder in PYTHONPATH"
        )
    close = get_close_matches(last, names, n=1)
    return f"is not in the module {module}; {f'did you mean {close[0]}?' if close else 'correct the name'}"


def inherits_constructor(target: Any) -> bool:
    """Return whether this is a torch module without a constructor of its own, which takes no options."""
    return inspect.isclass(target) and getattr(target.__init__, "__module__", "") == "torch.nn.modules.module"


def check_kinds(key: str, node: Any, slot: str, within: bool = False) -> None:
    """Refuse a class that is not of the kind of its slot, at any depth, and a function where a class is needed.

    As in a checkpoint, the slot of a part is its key, and parts that have names of their own are in the slot of all.

    Args:
        within: the node is inside of a part that a checkpoint rebuilds.
    """
    if not isinstance(node, dict):
        return
    rebuilt = within or slot in SLOTS
    kind = SLOTS.get(slot, NO_SLOT)[1] if rebuilt else KINDS.get(slot)
    if "_target_" in node and kind is not None:
        check_kind(f"{key}._target_={shown(node['_target_'])}", str(node["_target_"]), kind, rebuilt)
    for name, child in node.items():
        inner = "_target_" in node
        check_kinds(f"{key}.{name}", child, str(name) if inner else slot, rebuilt if inner else within)


def check_kind(given: str, target: str, kind: str, rebuilt: bool) -> None:
    """Refuse a class that is not of a kind and, where checkpoints rebuild the part, a function."""
    found = class_named(target)
    if found is None and rebuilt and has_object(target):
        raise UserError(f"{given} is not a class, and a checkpoint rebuilds nothing else; give a class")
    if found is not None and not issubclass(found, get_class(kind)):
        name = kind.rpartition(".")[2]
        raise UserError(f"{given} is not {'an' if name[0] in 'AEIO' else 'a'} {name}; give a class of that kind")


def ranged_types(function: Callable[..., Any]) -> dict[str, Any]:
    """Return the types of the arguments of a constructor or a function, with their ranges."""
    types, module = known_types(function), f"{getattr(function, '__module__', None)}."
    for library, ranges in RANGES.items():
        if module.startswith(f"{library}."):
            intervals = {name: interval for interval, names in ranges.items() for name in names.split()}
            types |= {name: Annotated[types[name], intervals[name]] for name in types.keys() & intervals.keys()}
    return types


def known_types(function: Callable[..., Any]) -> dict[str, Any]:
    """Return the types of the arguments whose annotations are types, and not imported for type checkers alone."""
    with suppress(Exception):  # of an annotation of the user's
        return get_type_hints(function, include_extras=True)
    types: dict[str, Any] = {}
    names = getattr(inspect.unwrap(function), "__globals__", {})
    for name, annotation in getattr(function, "__annotations__", {}).items():
        with suppress(Exception):
            alone: Any = SimpleNamespace(__annotations__={name: annotation})
            types |= get_type_hints(alone, names, include_extras=True)
    return types


def has_object(name: str) -> bool:
    """Return whether there is a class, a function or another object of this name."""
    try:
        return get_object(name) is not None
    except Exception:  # whatever the import of a module raises
        return False


def class_named(name: str) -> type | None:
    """Return the class of this name; None: there is none, or it cannot be imported."""
    try:
        return get_class(name)
    except Exception:  # whatever the import of a module raises
        return None


def hydra_literal(value: Any) -> str:
    """Return a value, also a list or a mapping, so that Hydra reads it as it is; `typed` shortens it for a message."""
    if isinstance(value, Mapping):
        return f"{{{','.join(f'{name}:{hydra_literal(one)}' for name, one in value.items())}}}"
    if isinstance(value, list):
        return f"[{','.join(map(hydra_literal, value))}]"
    if not isinstance(value, str):
        return json.dumps(value)
    plain = re.fullmatch(r"[\w./:+-]+", value, re.ASCII)
    bare = plain and OverridesParser.create().parse_override(f"key={value}").value() == value
    return value if bare else in_quotes(value)


def typed(value: Any) -> str:
    """Return a value, also a list or a mapping, as it is typed on the command line, shortened."""
    if isinstance(value, Mapping):
        return f"{{{','.join(f'{name}:{typed(one)}' for name, one in value.items())}}}"
    return f"[{','.join(map(typed, value))}]" if isinstance(value, list) else shown(value)


def shown(value: Any) -> str:
    """Return a value as it is typed on the command line, on one line and shortened."""
    text = str(value).lower() if isinstance(value, bool) else "null" if value is None else repr(str(value))[1:-1]
    return text if len(text) < 80 else f"{text[:76]}..."
