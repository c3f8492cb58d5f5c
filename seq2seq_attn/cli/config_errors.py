"""A user's mistake on the command line, said in one sentence with the way out."""

import re
from argparse import Namespace
from difflib import get_close_matches
from pathlib import Path
from typing import Any, NoReturn

from hydra import compose, initialize_config_dir
from hydra._internal.utils import get_args_parser
from hydra.errors import HydraException, MissingConfigException, OverrideParseException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException
from yaml import YAMLError

from seq2seq_attn.errors import UserError, causes, command, one_line, sentence_of


def parse(arguments: list[str]) -> Namespace:
    """What Hydra will read, read once before it: its parser would answer a mistake with a page of usage."""
    parser = get_args_parser()
    flags = [flag for action in parser._actions for flag in action.option_strings]

    def refuse(message: str) -> NoReturn:
        stray = (found(r"unrecognized arguments: (\S+)", message) or "").split("=")[0]
        if stray.startswith("-"):
            raise UserError(f"There is no flag {stray!r}{did_you_mean(stray, flags)}")
        if stray:
            raise UserError("A flag stands between the overrides; write all overrides side by side")
        raise UserError(f"{one_line(message)}; `{command()} --help` lists the choices")

    parser.error = refuse  # type: ignore[method-assign]
    return parser.parse_args(arguments)


def sentence_of_composition(error: Exception, directory: Path, config_name: str, overrides: list[str]) -> str | None:
    """The sentence for an error from before the job: what Hydra, OmegaConf or YAML say, made shorter."""
    if sentence := sentence_of(error):
        return sentence
    if isinstance(error, OverrideParseException):
        why = found(r"^\s*(.+)", error.message.removeprefix(f"Error parsing override '{error.override}'"))
        return f"Cannot read '{error.override}' ({why}); write key=value, and quote odd letters: \"key='a, b'\""
    if isinstance(error, MissingConfigException):
        return no_choice(error, directory, config_name, overrides)
    if isinstance(error, YAMLError):
        return f"A config is not YAML: {' '.join(str(error).split())}"
    message = str(error)
    if key := found(r"Could not override '(.+?)'", message):
        return no_option(key, message, directory, config_name, overrides)
    if several := found(r"(?:Ambiguous value for argument|Sweep parameters) '(.+?)'(?:$|\n| requires)", message):
        return f"'{several}' names several values; add -m to run a job for each, or write [a,b] for a list"
    if key := found(r"An item is already at '(.+?)'", message):
        return f"There is an option '{key}' already; leave out the '+'"
    if key := found(r"You must specify '(.+?)'", message):
        choices = ", ".join(message.partition("Available options:")[2].split())
        return f"No {key} is chosen; choose from: {choices}"
    if isinstance(error, OSError) and error.filename:  # what Hydra makes before the job: its folder
        return f"{error.filename} cannot be made ({error.strerror}); give another hydra.run.dir"
    if isinstance(error, TypeError) and raised_by_hydra(error):
        lists = " ".join(override for override in overrides if "[" in override)
        return f"A choice in {lists} is no name; `{command()} --help` lists the choices"
    if isinstance(error, HydraException | OmegaConfBaseException) or raised_by_hydra(error):
        words = [one_line(str(cause)) for cause in causes(error)]
        return f"{': '.join(filter(None, words))}; `{command()} --cfg job` lists the options"
    return None


def no_choice(error: MissingConfigException, directory: Path, config_name: str, overrides: list[str]) -> str:
    """A file of a group, or the whole config, that is not there."""
    group, _, name = (error.missing_cfg_file or "").rpartition("/")
    choices = error.options or sorted(path.stem for path in (directory / group).glob("*.yaml"))
    parent = found(r"^In '(.+?)'", str(error))
    typed = parent == config_name or any(override.lstrip("+").startswith(group) for override in overrides)
    asked_by = f", which {parent} asks for" if parent and not typed else ""
    return f"There is no {group or 'config'} '{name}'{asked_by}; choose from: {', '.join(choices)}"


def no_option(key: str, message: str, directory: Path, config_name: str, overrides: list[str]) -> str:
    """A key that the config lacks, or a folder of choices of which the config uses none."""
    if "No match in the defaults list" in message:
        return f"This config uses no {key}, so there is none to replace; to add one: '+{key}=...'"
    if slots := found(r"Did you mean to override (?:one of )?(.+)\?", message):
        either = " or ".join(f"'{slot}'" for slot in slots.split(", "))
        return f"There is no option '{key}'; did you mean {either}?"
    groups = [path.relative_to(directory).as_posix() for path in directory.rglob("*") if path.is_dir()]
    others = [override for override in overrides if not override.startswith(f"{key}=")]
    config = first_config(directory, config_name, [others, []])
    dotted = key.replace("/", ".")
    if there := referenced(config, dotted.split(".")):
        return f"'{key}' is '{there}', to which it refers; write {there}=..."
    if OmegaConf.select(config, dotted, throw_on_resolution_failure=False) is not None:
        return f"There is no option '{key}'{did_you_mean(dotted, [dotted])}"
    node, parts = config, key.split(".")
    for position, part in enumerate(parts):
        if not isinstance(node, DictConfig):
            break
        if part not in node:
            if parts[:position] in ([], ["callback"]) and is_unchosen_callback(part, config, directory):
                return f"'{part}' is a callback that is not chosen; add it with callback=[default,{part}]"
            if position == 0 and len(parts) > 1 and part in groups:
                choices = ", ".join(sorted(path.stem for path in (directory / part).glob("*.yaml")))
                return f"'{key}' is an option of a {part}, and none is chosen; add {part}=..., one of: {choices}"
            names = [*map(str, node), *(groups if position == 0 else [])]
            whole = {name: ".".join([*parts[:position], name, *parts[position + 1 :]]) for name in names}
            return f"There is no option '{key}'{did_you_mean(part, whole)}"
        node = OmegaConf.select(node, part, throw_on_resolution_failure=False)
    return f"There is no option '{key}'{did_you_mean(key, [])}"


def is_unchosen_callback(name: str, config: DictConfig, directory: Path) -> bool:
    """Return whether it is a choice of `callback`, which a config with callbacks lacks."""
    return "callback" in config and name not in config.callback and (directory / "callback" / f"{name}.yaml").is_file()


def referenced(config: DictConfig, path: list[str]) -> str | None:
    """Where an option is that one reads through a reference: only there can it be set."""
    node: Any = config
    for position, name in enumerate(path[:-1]):
        if not isinstance(node, DictConfig) or name not in node:
            return None
        if OmegaConf.is_interpolation(node, name):
            plain: Any = OmegaConf.to_container(node)
            to = re.findall(r"\$\{([\w.]+)\}", str(plain[name]))
            return ".".join([to[-1], *path[position + 1 :]]) if to else None
        node = node[name] if not OmegaConf.is_missing(node, name) else None
    return None


def first_config(directory: Path, config_name: str, trials: list[list[str]]) -> DictConfig:
    """The config with the other overrides, or else without any: only its keys matter."""
    for overrides in trials:
        try:
            with initialize_config_dir(version_base="1.3", config_dir=str(directory)):
                return compose(config_name, overrides=overrides, return_hydra_config=True)
        except (HydraException, OmegaConfBaseException, ValueError):
            continue
    return OmegaConf.create({})


def did_you_mean(word: str, names: dict[str, str] | list[str]) -> str:
    """The end of a sentence; with a dict, its values are what the close names are called in full."""
    close = get_close_matches(word, list(names), n=1)
    guess = names[close[0]] if close and isinstance(names, dict) else "".join(close)
    return (
        f"; did you mean '{guess}'? `{command()} --cfg job` lists them."
        if guess
        else (f"; `{command()} --cfg job` lists them.")
    )


def raised_by_hydra(error: Exception) -> bool:
    """Hydra says some mistakes, as `attention=3`, with a bare ValueError, and `metric=[1]` with a TypeError."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    module = trace.tb_frame.f_globals.get("__name__", "") if trace is not None else ""
    return isinstance(error, ValueError | TypeError) and module.partition(".")[0] == "hydra"


def found(pattern: str, text: str) -> str | None:
    match = re.search(pattern, text)
    return match[1] if match else None
