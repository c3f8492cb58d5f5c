"""The search that a caller names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hydra import compose, initialize_config_dir
from hydra.errors import InstantiationException
from hydra.utils import instantiate
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from seq2seq_attn.errors import UserError
from seq2seq_attn.paths import conf_directory
from seq2seq_attn.search.search import Search

WantedSearch = Search | str | Mapping[str, Any] | None


def choose_search(wanted: WantedSearch, own: dict[str, Any]) -> Search:
    """Builds it.

    Args:
        wanted: a search; the name of an option, as `beam`; options, as `{"name": "beam", "beam_size": 5}`, where
            without a name they are of the run's search; None: the run's search.
        own: the config of the run's search.

    Raises:
        UserError: for a name or an option that is not there, or a value that the search refuses.
    """
    if isinstance(wanted, Search):
        return wanted
    options = {"name": wanted} if isinstance(wanted, str) else dict(wanted or {})
    config = options if "_target_" in options else completed(options, own)
    try:
        search: Search = instantiate(config, _convert_="all")
    except InstantiationException as error:
        if isinstance(error.__cause__, UserError):
            raise error.__cause__ from None
        raise
    return search


def completed(options: dict[str, Any], own: dict[str, Any]) -> dict[str, Any]:
    """The options over those of the search that they name, or of the run's."""
    name = options.pop("name", None)
    base = OmegaConf.create(own if name is None else option(name))
    OmegaConf.set_struct(base, True)
    try:
        merged = OmegaConf.to_container(OmegaConf.merge(base, options), resolve=True)
    except OmegaConfBaseException as error:
        said = ", ".join(str(key) for key in base if key != "_target_")
        raise UserError(f"search has no option '{error.full_key}'; it has: {said}") from error
    assert isinstance(merged, dict)
    return {str(key): value for key, value in merged.items()}


def option(name: str) -> dict[str, Any]:
    """The config of `conf/search/NAME.yaml`."""
    directory = conf_directory().resolve()
    names = sorted(path.stem for path in (directory / "search").glob("*.yaml"))
    if name not in names:
        raise UserError(f"search={name} is not there; choose from: {', '.join(names)}")
    with initialize_config_dir(version_base="1.3", config_dir=str(directory)):
        found = OmegaConf.to_container(compose("translate", overrides=[f"search={name}"]).search, resolve=True)
    assert isinstance(found, dict)
    return {str(key): value for key, value in found.items()}
