"""Hydra composes the options of conf/ in a part of the time: it reads each file and each override once, and copies,
tabulates and walks less.

Seen in Hydra 1.3.8, whose private functions these are.
"""

from __future__ import annotations

import copy
import pickle
from functools import cache
from typing import Any

import yaml
from configs import CONF
from hydra._internal import defaults_list
from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra._internal.config_repository import CachingConfigRepository, ConfigRepository
from hydra.core.override_parser.overrides_parser import OverridesParser
from omegaconf import OmegaConf, flag_override
from omegaconf.base import Box

load_config, interpolation_map = ConfigRepository.load_config, defaults_list._create_interpolation_map
own_cache, embed_slowly = CachingConfigRepository.__init__, ConfigLoaderImpl._embed_result_config
merge_slowly, re_parent = ConfigLoaderImpl._compose_config_from_defaults_list, Box._re_parent
parse_slowly = OverridesParser.parse_rule
files: dict[tuple[str, ...], bytes] = {}  # pickled: faster than to copy


def compose_faster() -> None:
    yaml.SafeLoader = yaml.CSafeLoader  # type: ignore[misc, assignment]  # from which OmegaConf derives its own
    ConfigRepository.load_config = load_once  # type: ignore[method-assign]
    defaults_list._create_interpolation_map = map_if_read  # type: ignore[assignment]
    CachingConfigRepository.__init__ = cache_of  # type: ignore[method-assign, assignment]
    ConfigLoaderImpl._embed_result_config = staticmethod(embed)  # type: ignore[method-assign, assignment]
    ConfigLoaderImpl._compose_config_from_defaults_list = merge  # type: ignore[method-assign]
    OverridesParser.parse_rule = parse  # type: ignore[method-assign]


def load_once(repository: ConfigRepository, config_path: str) -> Any:
    """Return what a file of conf/ or of Hydra holds; other folders, and the store, may change while the tests run."""
    folders = [source.path for source in repository.sources]
    kept = config_path.startswith("hydra") or (CONF / f"{config_path.removesuffix('.yaml')}.yaml").is_file()
    if not kept or any(folder not in ("", str(CONF)) and not folder.startswith("hydra.") for folder in folders):
        return load_config(repository, config_path)
    if (key := (config_path, *folders)) not in files:
        files[key] = pickle.dumps(load_config(repository, config_path))
    return pickle.loads(files[key])


def map_if_read(overrides: Any, defaults: list[Any], self_added: bool) -> Any:
    """Return the choices by group, if an entry of the defaults list names one, as `recipe: ${data}_${model}` does."""
    if any(entry.is_interpolation() for entry in defaults if not entry.is_self()):
        return interpolation_map(overrides, defaults, self_added)
    return None


def cache_of(repository: CachingConfigRepository, delegate: ConfigRepository) -> None:
    """Initialize a repository whose delegate may be given other sources, in the place of its list of them."""
    repository.delegate, repository.cache = copy.copy(delegate), {}


def embed(found: Any, package: str | None) -> Any:
    """Return what was read, with its config moved to the package's node."""
    package = found.header["package"] if package is None else package
    if not package:
        return found
    moved, config = copy.copy(found), OmegaConf.create()
    with flag_override(config, "no_deepcopy_set_nodes", True):
        OmegaConf.update(config, package, pickle.loads(pickle.dumps(found.config)), merge=False)
    moved.config = config
    return moved


def merge(loader: ConfigLoaderImpl, defaults: Any, repo: Any) -> Any:
    """Return all files merged; each node learns its parent once, and not after each file."""
    Box._re_parent = lambda box: None  # type: ignore[method-assign]
    try:
        config = merge_slowly(loader, defaults=defaults, repo=repo)
    finally:
        Box._re_parent = re_parent  # type: ignore[method-assign]
    config._re_parent()
    return config


def parse(parser: OverridesParser, text: str, rule_name: str) -> Any:
    if rule_name != "override" or parser.config_loader is not None:
        return parse_slowly(parser, text, rule_name)
    return copy.copy(parsed(text))


@cache
def parsed(text: str) -> Any:
    return parse_slowly(OverridesParser.create(), text, "override")
