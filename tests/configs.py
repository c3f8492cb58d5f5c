"""What the tests read from `conf/`: option names, and parts composed and built as a run would."""

from __future__ import annotations

from copy import deepcopy
from functools import cache
from pathlib import Path
from typing import Any

from hydra import compose, initialize_config_dir
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException
from hydra.utils import instantiate
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

ROOT = Path(__file__).parents[1]
CONF = ROOT / "conf"
NODES = {"attention": "attention", "encoder@model.encoder": "model.encoder", "decoder@model.decoder": "model.decoder"}


def options(group: str) -> list[str]:
    """Names of a config group's options; never none, or a parametrised test would test nothing."""
    names = sorted(path.stem for path in (CONF / group).glob("*.yaml"))
    assert names, f"conf/{group} has no options"
    return names


@cache
def composed(*overrides: str) -> DictConfig:
    """`train.yaml` with overrides; read it, do not write into it."""
    return compose_train(*overrides)


def compose_train(*overrides: str) -> DictConfig:
    """Return `train.yaml` with overrides, as Hydra composes it: a config of the caller's own.

    Files are read once for each choice of options (0.2 s); then single values are set in a copy of it (0.01 s).
    """
    values = [override for override in overrides if sets_a_value(override)]
    config = deepcopy(with_options(*(override for override in overrides if override not in values)))
    try:
        for value in OverridesParser.create().parse_overrides(values):
            OmegaConf.update(config, value.key_or_group, value.value())
    except (HydraException, OmegaConfBaseException):  # Hydra has its own sentence for it
        return compose_here(*overrides)
    return config


def sets_a_value(override: str) -> bool:
    """Whether the override is `a.b=value`: no option of a group, nothing added, deleted or of Hydra."""
    key = override.partition("=")[0]
    return key.replace(".", "").isidentifier() and not key.startswith("hydra") and not (CONF / key).is_dir()


@cache
def with_options(*overrides: str) -> DictConfig:
    """Return the composed options. What is one node beside every other option is composed once for all of them."""
    groups = [override.partition("=")[0] for override in overrides]
    if "attention" in groups and any(group.startswith(("attention/", "attention@")) for group in groups):
        return compose_here(*overrides)
    if any(group.startswith(("+", "~", "recipe", "debug", "hydra")) for group in groups):  # which may change any node
        return compose_here(*overrides)
    for group, node in NODES.items():
        others = tuple(override for override in overrides if not override.startswith(f"{group}="))
        if "@" in group and "model" in groups:  # a model sets values of its encoder and decoder
            continue
        if others and groups.count(group) == 1:
            (chosen,) = set(overrides) - set(others)
            config = deepcopy(with_options(*others))
            OmegaConf.update(config, node, OmegaConf.select(with_options(chosen), node), merge=False)
            return config
    return compose_here(*overrides)


def compose_here(*overrides: str) -> DictConfig:
    with initialize_config_dir(str(CONF), version_base="1.3"):
        return compose("train", overrides=list(overrides))


def built(node: DictConfig) -> Any:
    """A node resolved to plain data and built, as a run builds it."""
    return instantiate(OmegaConf.to_container(node, resolve=True), _convert_="all")


def attention_of(preset: str, *overrides: str, **sizes: int) -> Any:
    """One attention layer from its preset."""
    return built(composed("callback=[]", f"attention={preset}", *overrides).attention)(layer=0, **sizes)


def model_of(*overrides: str, source_vocab_size: int = 17, target_vocab_size: int = 19) -> Any:
    """A small model; every width another prime, but those that a contract ties. Two layers, but of the RNNs."""
    small = [
        "callback=[]",
        f"model.source_vocab_size={source_vocab_size}",
        f"model.target_vocab_size={target_vocab_size}",
        "model.embedding_dim=11",
        "model.tie_embeddings=none",
        "model.encoder.dim=14",
        "model.decoder.dim=14",
    ]
    for side in ("encoder", "decoder"):
        chosen = next((o for o in overrides if o.startswith(f"{side}@model.{side}=")), "=rnn")
        if not chosen.partition("=")[2].startswith("rnn"):
            small.append(f"model.{side}.num_layers=2")
    return built(composed(*small, *overrides).model)
