"""Attention layers by preset name, for any PyTorch model and wherever the package is installed."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from numbers import Integral
from pathlib import Path
from threading import RLock
from typing import Any, overload

from seq2seq_attn.attention.attention import Attention
from seq2seq_attn.attention.cross_attention import CrossAttention
from seq2seq_attn.attention.history import ReadsHistory
from seq2seq_attn.attention.self_attention import SelfAttention
from seq2seq_attn.errors import UserError, class_mistake
from seq2seq_attn.paths import check_file_names, conf_directory, search_path

COMPOSING = RLock()  # Hydra's singletons are those of the whole process
PARTS = ("score", "pattern", "normalizer", "mix", "gate", "feature_map", "decay")


@overload
def build_attention(
    preset: str,
    *overrides: str,
    dim: int,
    num_heads: int | None = None,
    layer: int = 0,
    config_dir: str | Path | None = None,
) -> SelfAttention: ...


@overload
def build_attention(
    preset: str,
    *overrides: str,
    query_dim: int,
    key_dim: int,
    value_dim: int | None = None,
    num_heads: int | None = None,
    layer: int = 0,
    config_dir: str | Path | None = None,
) -> CrossAttention: ...


def build_attention(
    preset: str,
    *overrides: str,
    dim: int | None = None,
    query_dim: int | None = None,
    key_dim: int | None = None,
    value_dim: int | None = None,
    num_heads: int | None = None,
    layer: int = 0,
    config_dir: str | Path | None = None,
) -> SelfAttention | CrossAttention:
    """Build self-attention of width `dim`, or cross-attention of queries to keys and values.

    >>> import torch
    >>> layer = build_attention("sparse", dim=128, num_heads=8)
    >>> layer(torch.randn(2, 7, 128), causal=True).context.shape
    torch.Size([2, 7, 128])
    >>> layer = build_attention("bahdanau", "normalizer=sparsemax", query_dim=32, key_dim=64)
    >>> attended = layer(torch.randn(2, 5, 32), torch.randn(2, 7, 64), need_weights=True)
    >>> attended.context.shape, attended.weights.shape
    (torch.Size([2, 5, 64]), torch.Size([2, 1, 5, 7]))

    Args:
        preset: a file of `conf/attention`, or of the folder `attention` in `config_dir`.
        overrides: as on the command line, where `attention.` and `attention/` may be left out: `pattern.k=3`,
            `score=dot`, `attention.dropout=0.1`.
        value_dim: None: the keys' width.
        num_heads: None: the preset's.
        layer: number of the layer, from 0; `alternating` chooses its pattern by it.
        config_dir: a folder with YAML files of your own, as `--config-dir` takes; their classes are imported and built.

    Raises:
        UserError: for a preset, an override or widths that do not exist or contradict each other, and for a value of
            another type or outside of its range.
    """
    given = {"dim": dim, "query_dim": query_dim, "key_dim": key_dim, "value_dim": value_dim}
    dim, query_dim, key_dim, value_dim = (None if size is None else whole(name, size) for name, size in given.items())
    layer = whole("layer", layer, least=0)
    if num_heads is not None:
        overrides = (f"num_heads={num_heads}", *overrides)
    if dim is not None and query_dim is None and key_dim is None and value_dim is None:
        factory = compose_factory(preset, *overrides, config_dir=config_dir)
        widths = {"query_dim": dim, "key_dim": dim, "value_dim": dim}
        return SelfAttention(instantiated(factory, **widths, layer=layer, relative=no_relative))
    if dim is None and query_dim is not None and key_dim is not None:
        factory = compose_factory(preset, *overrides, config_dir=config_dir)
        value_dim = key_dim if value_dim is None else value_dim
        return CrossAttention(
            instantiated(factory, query_dim=query_dim, key_dim=key_dim, value_dim=value_dim, layer=layer)
        )
    raise UserError(
        f"attention got dim={dim}, query_dim={query_dim}, key_dim={key_dim} and value_dim={value_dim}; give dim alone "
        "for self-attention, or query_dim and key_dim for cross-attention"
    )


def whole(name: str, number: Any, least: int = 1) -> int:
    """Return a size, which may be a number of NumPy.

    Raises:
        UserError: if it is no whole number, or too small.
    """
    if isinstance(number, bool) or not isinstance(number, Integral) or number < least:
        raise UserError(f"{name}={number!r} must be a whole number of at least {least}")
    return int(number)


def instantiated(factory: partial[Any], **sizes: Any) -> Any:
    """Build the layer; what its classes lack is one sentence."""
    try:
        return factory(**sizes)
    except TypeError as error:
        if (sentence := class_mistake(str(error))) is None:
            raise
        raise UserError(sentence) from error


def no_relative(*, num_heads: int, head_dim: int) -> None:
    """Return no relative position encoding; that there is such an argument marks self-attention."""


def compose_factory(preset: str, *overrides: str, config_dir: str | Path | None = None) -> partial[Any]:
    """Compose a preset into a factory that takes the widths."""
    from hydra import compose, initialize_config_dir  # 0.3 s that a mere import of this package does not pay
    from hydra.errors import HydraException
    from hydra.utils import instantiate
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException
    from yaml import YAMLError

    from seq2seq_attn.options import Factory, check

    directory = conf_directory()
    added = [] if config_dir is None else [Path(config_dir)]
    for folder in added:
        if not folder.is_dir():
            raise UserError(
                f"config_dir={folder} is no folder; give one with YAML files, such as attention/score/x.yaml"
            )
    check_file_names(added)
    presets = sorted({path.stem for folder in (directory, *added) for path in (folder / "attention").glob("*.yaml")})
    if preset not in presets:
        raise UserError(f"There is no attention '{preset}'; choose from: {', '.join(presets)}")
    mistakes = (HydraException, OmegaConfBaseException, YAMLError, ValueError)  # ValueError: Hydra's own, of `score=3`
    words = [*map(search_path, added), f"+attention={preset}", *map(in_full, overrides)]
    with COMPOSING, hydra_untouched(), initialize_config_dir(str(directory), version_base="1.3"):
        try:
            node = OmegaConf.to_container(compose(overrides=words).attention, resolve=True)
        except mistakes as error:
            why = " ".join(re.split("Config search path|To append to your default list", str(error))[0].split())
            what = f"does not take {', '.join(overrides)}" if overrides else "cannot be composed"
            raise UserError(f"attention '{preset}' {what}: {why}") from error
    check("attention", node, Factory)
    return instantiate(node, _convert_="all")


def option_reads_history(option: str, folder: str = "attention") -> bool:
    """Return whether a preset, or an option of a part of one, reads the weights of the steps before.

    Such an attention goes step by step: it serves the RNN decoders, and neither self-attention nor other decoders.
    """
    from hydra.utils import get_class
    from omegaconf import OmegaConf

    node = OmegaConf.load(conf_directory() / folder / f"{option}.yaml")
    kind = get_class(node._target_)
    if not issubclass(kind, Attention):
        return issubclass(kind, ReadsHistory)
    chosen = [(part, name) for entry in node.defaults if entry != "_self_" for part, name in entry.items()]
    return any(option_reads_history(name, f"{folder}/{part}") for part, name in chosen if name is not None)


def in_full(override: str) -> str:
    """Return an override as `train.py` takes it: `pattern.k=3` is `attention.pattern.k=3`, `score=dot` is a choice."""
    name = override.lstrip("+~")
    key = name.partition("=")[0]
    if key.startswith(("attention.", "attention/")):
        return override
    sign = override.removesuffix(name)
    return f"{sign}attention{'/' if key in PARTS else '.'}{name}"


@contextmanager
def hydra_untouched() -> Iterator[None]:
    """Restore Hydra's singletons afterwards, so that one may compose inside a running Hydra application.

    They are the same objects afterwards; `Singleton.set_state` would restore copies, which other holders do not see.
    """
    from hydra import version
    from hydra.core.global_hydra import GlobalHydra
    from hydra.core.singleton import Singleton
    from omegaconf.basecontainer import BaseContainer

    instances, resolvers = Singleton._instances, BaseContainer._resolvers
    singletons = (GlobalHydra, version.VersionBase)
    Singleton._instances = {kind: one for kind, one in instances.items() if kind not in singletons}
    BaseContainer._resolvers = dict(resolvers)
    try:
        yield
    finally:
        Singleton._instances, BaseContainer._resolvers = instances, resolvers
