"""What an attention layer is, in words: the preset that has its options, and the formulas of its parts."""

from __future__ import annotations

import inspect
from functools import cache
from pathlib import Path
from typing import Any

import yaml
from torch import nn

from seq2seq_attn.attention.build import PARTS
from seq2seq_attn.attention.layer import AttentionLayer
from seq2seq_attn.attention.score.score import Score
from seq2seq_attn.explorer.intervention import known_changes
from seq2seq_attn.paths import conf_directory


def describe(layer: AttentionLayer, config: dict[str, Any] | None, chosen: str | None) -> dict[str, Any]:
    """Return preset, title, formula and parts of a layer, and what can be changed of it.

    Args:
        config: of its slot; None: not known.
        chosen: the preset that the run names, which counts where several fit as well.
    """
    preset = None if config is None else closest_preset(config, chosen)
    modules = {part: getattr(layer, part, None) for part in PARTS}
    parts = {part: None if module is None else text_of(module) for part, module in modules.items()}
    layer_formula = [] if modules["score"] is not None or modules["feature_map"] is not None else [first_line(layer)]
    names = {part: option_name(module) for part, module in modules.items() if module is not None}
    title = " × ".join(names.values()) if preset is None else title_of(preset)
    return {
        "preset": preset,
        "title": title or type(layer).__name__,
        "formula": "\n".join([*layer_formula, *(line for line in parts.values() if line is not None)]),
        # `additive: v . tanh(W q + U k)`: the option takes the place of the name
        "parts": {
            part: None if line is None else f"{names[part]}: {line.partition(': ')[2] or line}"
            for part, line in parts.items()
        },
        "sums_to_one": layer.sums_to_one,
        "changes": list(known_changes(layer)),
    }


def option_name(module: nn.Module) -> str:
    """Return the name of the file of a part, which is that of its option."""
    return type(module).__module__.rpartition(".")[2]


def first_line(module: nn.Module) -> str:
    """Return the first sentences of a part's file: its name, formula and paper."""
    text = inspect.getdoc(inspect.getmodule(type(module))) or inspect.getdoc(type(module)) or type(module).__name__
    return " ".join(text.partition("\n\n")[0].split())


def text_of(module: nn.Module) -> str:
    """Return the first sentences of a part, and of the scores that it is made of."""
    inside = [one for one in module.modules() if isinstance(one, Score) and one is not module]
    return " ".join(map(first_line, [module, *inside]))


def slot_configs(model: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the configuration of the attention of each kind of slot: `encoder`, `self` and `cross`."""
    encoder, decoder = model.get("encoder") or {}, model.get("decoder") or {}
    kinds = {
        "encoder": encoder.get("self_attention"),
        "self": decoder.get("self_attention"),
        "cross": decoder.get("cross_attention") or decoder.get("attention"),
    }
    return {kind: config for kind, config in kinds.items() if isinstance(config, dict)}


def closest_preset(config: dict[str, Any], chosen: str | None) -> str | None:
    """Return the preset with the classes of the configuration and most of its options; None: no preset has them."""
    mine = leaves(config)
    differing = {
        name: sum(mine.get(key) != other.get(key) for key in mine | other)
        for name, preset in presets().items()
        if targets(preset) == targets(config)
        for other in [leaves(preset)]
    }
    if chosen in differing and differing[chosen] == min(differing.values()):
        return chosen
    return min(differing, key=lambda name: (differing[name], name), default=None)


def targets(config: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in leaves(config).items() if key.endswith("_target_")}


def leaves(config: dict[str, Any], before: str = "") -> dict[str, Any]:
    """Return the options by their dotted names; a part that is null has none."""
    options: dict[str, Any] = {}
    for key, value in config.items():
        if isinstance(value, dict):
            options |= leaves(value, f"{before}{key}.")
        elif value is not None:
            options[f"{before}{key}"] = value
    return options


@cache
def presets() -> dict[str, dict[str, Any]]:
    """Return the configuration of every preset of `conf/attention/`."""
    folder = conf_directory() / "attention"
    return {file.stem: read_with_defaults(file) for file in sorted(folder.glob("*.yaml"))}


def read_with_defaults(file: Path) -> dict[str, Any]:
    """Read a file of `conf/` with the files that its defaults name, each at its place."""
    config: dict[str, Any] = yaml.safe_load(file.read_text(encoding="utf-8"))
    whole: dict[str, Any] = {}
    for entry in config.pop("defaults", []):
        for group, name in entry.items() if isinstance(entry, dict) else ():
            folder, _, place = group.partition("@")
            root = conf_directory() if folder.startswith("/") else file.parent
            if name is not None:
                node = whole
                *parents, last = (place or folder).split(".")
                for parent in parents:
                    node = node.setdefault(parent, {})
                node[last] = read_with_defaults(root / folder.strip("/") / f"{name}.yaml")
    return whole | {key: value for key, value in config.items() if value != {}}


def title_of(preset: str) -> str:
    """Return the first comment of a preset."""
    text = (conf_directory() / "attention" / f"{preset}.yaml").read_text(encoding="utf-8")
    return text.partition("\n")[0].removeprefix("#").strip()
