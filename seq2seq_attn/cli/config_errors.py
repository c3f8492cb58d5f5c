"""User errors in a command line: Hydra's message as one sentence, with the closest name that there is."""

import re
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from hydra import compose, initialize_config_dir
from hydra.errors import HydraException, MissingConfigException
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException
from yaml import YAMLError

from seq2seq_attn.errors import causes, command, sentence_of


def sentence_of_composition(error: Exception, directory: Path, config_name: str, overrides: list[str]) -> str | None:
    """Return the sentence for an error from before the job; None for a bug."""
    if sentence := sentence_of(error):
        return sentence
    if isinstance(error, MissingConfigException):
        group, _, name = (error.missing_cfg_file or "").rpartition("/")
        choices = error.options or sorted(path.stem for path in (directory / group).glob("*.yaml"))
        return f"There is no {group or 'config'} '{name}'; choose from: {', '.join(choices)}"
    if isinstance(error, OSError) and error.filename:  # Hydra makes the run folder before the job
        return f"{error.filename} cannot be made ({error.strerror}); give another hydra.run.dir"
    if not (isinstance(error, HydraException | OmegaConfBaseException | YAMLError) or raised_by_hydra(error)):
        return None
    lines = (str(cause).partition("\n    full_key:")[0].split() for cause in causes(error))
    message = ": ".join(" ".join(words) for words in lines if words)
    if (found := re.search(r"Could not override '(.+?)'", message)) and "Did you mean" not in message:
        groups = [path.relative_to(directory).as_posix() for path in directory.rglob("*") if path.is_dir()]
        if found[1] not in groups:
            names = dict.fromkeys(groups) | option_names(directory, config_name, overrides)
            callback = found[1].removeprefix("callback.").partition(".")[0]
            if f"callback.{callback}" not in names and (directory / "callback" / f"{callback}.yaml").is_file():
                return f"'{callback}' is a callback that is not chosen; add it with callback=[default,{callback}]"
            close = get_close_matches(found[1], names, n=1)
            guess = f"did you mean '{names[close[0]] or close[0]}'? " if close else ""
            return f"There is no option '{found[1]}'; {guess}`{command()} --cfg job` lists them."
    where = "" if isinstance(error, HydraException) else f"Hydra cannot read {' '.join(overrides) or config_name}: "
    return f"{where}{message.rstrip('.')}; `{command()} --help` lists the choices, `{command()} --cfg job` the options"


def option_names(directory: Path, config_name: str, overrides: list[str]) -> dict[str, str]:
    """Return how each option of a config is written, by its path: one below a reference, `${...}`, has another name."""
    names: dict[str, str] = {}
    plain: Any = {}
    for trial in (overrides, [o for o in overrides if "." not in o.partition("=")[0]], []):  # as many as compose
        try:
            with initialize_config_dir(version_base="1.3", config_dir=str(directory)):
                plain = OmegaConf.to_container(compose(config_name, trial, return_hydra_config=True))
            break
        except (HydraException, OmegaConfBaseException, ValueError):
            continue

    def visit(node: Any, path: str, name: str) -> None:
        names[path] = name
        if isinstance(node, str) and (references := re.findall(r"\$\{([\w.]+)\}", node)):
            node, name = plain, references[-1]
            for key in name.split("."):
                node = node.get(key) if isinstance(node, dict) else None
        for key, child in node.items() if isinstance(node, dict) else ():
            visit(child, f"{path}.{key}".lstrip("."), f"{name}.{key}".lstrip("."))

    visit(plain, "", "")
    return names


def raised_by_hydra(error: Exception) -> bool:
    """Return whether Hydra raised a plain ValueError or TypeError, as for `attention=3` and `metric=[1]`."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    module = trace.tb_frame.f_globals.get("__name__", "") if trace is not None else ""
    return isinstance(error, ValueError | TypeError) and module.partition(".")[0] == "hydra"
