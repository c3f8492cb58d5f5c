"""The search that a caller names or describes."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from functools import cache
from threading import Lock
from typing import Any

from hydra import compose, initialize_config_dir
from hydra.errors import InstantiationException
from hydra.utils import get_class, instantiate
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from seq2seq_attn.attention.build import hydra_untouched
from seq2seq_attn.checkpoint.admitted import PLAIN
from seq2seq_attn.errors import UserError
from seq2seq_attn.options import check
from seq2seq_attn.paths import conf_directory
from seq2seq_attn.search.search import Search

COMPOSING = Lock()
WantedSearch = Search | str | Mapping[str, Any] | None


def choose_search(wanted: WantedSearch, default: dict[str, Any]) -> Search:
    """Build a search.

    Args:
        wanted: a search; the name of a file in `conf/search`, such as `beam`; options, such as
            `{"name": "beam", "beam_size": 5}`, which without a name change the default; None: the default. A part
            with a `_target_`, such as a length penalty, or the name of one, such as `mean`, replaces that of the
            search. So do candidates with a name: `{"name": "mbr", "candidates": {"name": "beam", "num_best": 5}}`.
        default: the configuration of the run's search.

    Raises:
        UserError: for a name or an option that does not exist, or a value that the search refuses.
    """
    if isinstance(wanted, Search):
        return wanted
    options = {"name": wanted} if isinstance(wanted, str) else dict(wanted or {})
    if "_target_" in options:  # a whole search, whose parts may be built already
        config: Any = options
    else:
        config = complete(options, default)
        check("search", config, object)
    try:
        search: Search = instantiate(config, _convert_="all")
    except InstantiationException as error:
        if isinstance(error.__cause__, UserError):
            raise error.__cause__ from None
        raise
    return search


def complete(options: dict[str, Any], default: dict[str, Any]) -> Any:
    """Merge the options into those of the search that they name, or into the default's."""
    name = options.pop("name", None)
    base = OmegaConf.create(default) if name is None else compose_search(name)
    OmegaConf.set_struct(base, True)
    try:
        options = {key: named_part(key, value) for key, value in options.items()}
        for part in [key for key, value in options.items() if isinstance(value, Mapping) and "_target_" in value]:
            base[part] = options.pop(part)
        return OmegaConf.to_container(OmegaConf.merge(base, options), resolve=True)
    except OmegaConfBaseException as error:
        part, _, _ = str(error.full_key).rpartition(".")
        known = ", ".join(str(key) for key in (OmegaConf.select(base, part) if part else base) if key != "_target_")
        raise UserError(f"search has no option '{error.full_key}'; {part or 'it'} has: {known}") from error


def with_defaults(config: Any) -> Any:
    """Return a run's search with the options that its classes have gained since, at their defaults.

    An option that is not there could not be changed.
    """
    if not isinstance(config, dict):
        return config
    config = {key: with_defaults(value) for key, value in config.items()}
    if "_target_" not in config:
        return config
    arguments = inspect.signature(get_class(config["_target_"])).parameters
    return {name: one.default for name, one in arguments.items() if isinstance(one.default, PLAIN)} | config


def named_part(key: str, value: Any) -> Any:
    """Return the configuration of `conf/search/KEY/VALUE.yaml` where the value is such a name, else the value.

    Candidates are a search of their own, which a name, or options that include one, replace.
    """
    if key == "candidates" and (isinstance(value, str) or (isinstance(value, Mapping) and "name" in value)):
        return complete({"name": value} if isinstance(value, str) else dict(value), {})
    folder = conf_directory() / "search" / key
    file = next((file for file in folder.glob("*.yaml") if file.stem == value), None)
    return value if file is None else OmegaConf.to_container(OmegaConf.load(file))


def compose_search(name: str) -> Any:
    """Return the configuration of `conf/search/NAME.yaml`."""
    directory = conf_directory().resolve()
    names = sorted(path.stem for path in (directory / "search").glob("*.yaml"))
    if name not in names:
        raise UserError(f"search={name} does not exist; choose from: {', '.join(names)}")
    return OmegaConf.create(composed_search(name, str(directory)))


@cache
def composed_search(name: str, directory: str) -> Any:
    """Return the configuration as plain data; threads and programs of Hydra may call this."""
    with COMPOSING, hydra_untouched(), initialize_config_dir(version_base="1.3", config_dir=directory):
        return OmegaConf.to_container(compose("translate", [f"search={name}"]).search, resolve=True)
