"""What the tests read from `conf/`: option names, and parts composed and built as a run would."""

from __future__ import annotations

import pickle
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
NODES = {"encoder@model.encoder": "model.encoder", "decoder@model.decoder": "model.decoder"}
# Groups whose node is composed without the rest of train.yaml, which neither changes it nor is changed by it.
ALONE = {
    "attention": "attention",
    "attention@self_attention": "self_attention",
    "attention@encoder_attention": "encoder_attention",
    "attention@cross_attention": "cross_attention",
    "position": "position",
    "search": "search",
}
ANY_NODE = ("+", "~", "recipe", "experiment", "debug", "hydra")  # overrides that may change any node


def options(group: str) -> list[str]:
    """Names of a config group's options; never none, or a parametrised test would test nothing."""
    names = sorted(path.stem for path in (CONF / group).glob("*.yaml"))
    assert names, f"conf/{group} has no options"
    return names


@cache
def attentions_at_once() -> list[str]:
    """Names of the attentions that serve a whole sentence at once, and so self-attention and every decoder."""
    from seq2seq_attn.attention.build import (
        option_reads_history,
    )  # once conftest.py has chosen how its types are checked

    return [preset for preset in options("attention") if not option_reads_history(preset)]


@cache
def composed(*overrides: str) -> DictConfig:
    """`train.yaml` with overrides; read it, do not write into it."""
    return compose_train(*overrides)


def compose_train(*overrides: str) -> DictConfig:
    """Return `train.yaml` with overrides, as Hydra composes it: a config of the caller's own.

    Files are read once for each choice of options (0.2 s); then single values are set in a copy of it (0.01 s).
    """
    values = [override for override in overrides if sets_a_value(override)]
    config = copied(with_options(*(override for override in overrides if override not in values)))
    try:
        set_values(config, values)
    except (HydraException, OmegaConfBaseException):  # Hydra has its own sentence for it
        return compose_here(*overrides)
    return config


def copied(config: DictConfig) -> DictConfig:
    """Return a copy of a config, in a third of the time of `deepcopy`."""
    copy: DictConfig = pickle.loads(pickle.dumps(config))
    return copy


def set_values(config: DictConfig, overrides: list[str]) -> None:
    for value in OverridesParser.create().parse_overrides(overrides) if overrides else []:
        OmegaConf.update(config, value.key_or_group, value.value())


def sets_a_value(override: str) -> bool:
    """Whether the override is `a.b=value`: no option of a group, nothing added, deleted or of Hydra."""
    key = override.partition("=")[0]
    return key.replace(".", "").isidentifier() and not key.startswith("hydra") and not (CONF / key).is_dir()


@cache
def with_options(*overrides: str) -> DictConfig:
    """Return the composed options. What is one node beside every other option is composed once for all of them."""
    groups = [override.partition("=")[0] for override in overrides]
    if any(group.startswith(ANY_NODE) or ("@" in group and group not in ALONE | NODES) for group in groups):
        return compose_here(*overrides)
    for group, node in ALONE.items():
        own = [override for override in overrides if override.startswith((f"{group}=", f"{group}/"))]
        if groups.count(group) == 1:  # and the parts that replace its own
            config = copied(with_options(*(override for override in overrides if override not in own)))
            chosen = OmegaConf.select(compose_alone(group, *own), node)
            OmegaConf.update(
                config, node, chosen, merge=False, force_add=True
            )  # self_attention is not there by default
            return config
    for group, node in NODES.items():
        others = tuple(override for override in overrides if not override.startswith(f"{group}="))
        if "model" in groups:  # which sets values of its encoder and decoder
            continue
        if others and groups.count(group) == 1:
            (chosen,) = set(overrides) - set(others)
            config = copied(with_options(*others))
            OmegaConf.update(config, node, OmegaConf.select(with_options(chosen), node), merge=False)
            return config
    return compose_here(*overrides)


@cache
def compose_alone(group: str, *overrides: str) -> DictConfig:
    """Return the choice of a group, with its parts, and nothing else of `train.yaml`, which takes a quarter as long."""
    with initialize_config_dir(str(CONF), version_base="1.3"):
        return compose(overrides=[f"+{o}" if o.startswith(f"{group}=") else o for o in overrides])


def compose_here(*overrides: str) -> DictConfig:
    with initialize_config_dir(str(CONF), version_base="1.3"):
        return compose("train", overrides=list(overrides))


def built(node: DictConfig) -> Any:
    """A node resolved to plain data and built, as a run builds it."""
    return instantiate(OmegaConf.to_container(node, resolve=True), _convert_="all")


def attention_of(preset: str, *overrides: str, **sizes: Any) -> Any:
    """One attention layer from its preset."""
    return attention_factory(preset, *overrides)(layer=0, **sizes)


@cache
def attention_factory(preset: str, *overrides: str) -> Any:
    """Return what makes layers of the preset with overrides of attention alone; their parts are new in each layer."""
    values = [override for override in overrides if sets_a_value(override)]
    parts = [override for override in overrides if override not in values]
    config = copied(compose_alone("attention", f"attention={preset}", *parts))
    set_values(config, values)
    return built(config.attention)


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
