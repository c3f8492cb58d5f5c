"""What the tests read from `conf/`: option names, and parts composed and built as a run would."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

from hydra import compose, initialize_config_dir
from hydra.utils import instantiate
from omegaconf import DictConfig, OmegaConf

ROOT = Path(__file__).parents[1]
CONF = ROOT / "conf"


def options(group: str) -> list[str]:
    """Names of a config group's options; never none, or a parametrised test would test nothing."""
    names = sorted(path.stem for path in (CONF / group).glob("*.yaml"))
    assert names, f"conf/{group} has no options"
    return names


@cache
def composed(*overrides: str) -> DictConfig:
    """`train.yaml` with overrides; read it, do not write into it."""
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
