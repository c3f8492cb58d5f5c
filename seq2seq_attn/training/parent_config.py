"""The parts of a parent as choices of their groups, by the name `parent`, so that Hydra composes them like any other.

`attention=sparse` replaces one, and `model.dropout=0.3` sets an option of one.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from copy import deepcopy
from pathlib import Path
from typing import Any

from hydra.core.config_store import ConfigStore
from hydra.core.hydra_config import HydraConfig
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf

from seq2seq_attn.checkpoint.admitted import Trust, check_targets
from seq2seq_attn.checkpoint.checkpoint_file import read_latest
from seq2seq_attn.checkpoint.load import (
    check_saved_config,
    check_saved_options,
    find_checkpoint,
    read_checkpoint,
    read_tokenizer,
)
from seq2seq_attn.data.cleaning import OF_TEXT, cleaning_options
from seq2seq_attn.errors import UserError
from seq2seq_attn.paths import conf_directory, given_path
from seq2seq_attn.tokenizer.sentencepiece import SentencePieceTokenizer

OPTION, CHOICE, RECIPE = "init_from.run", "parent", "fine_tuning"
# How an encoder or decoder of conf/ refers to the parts that are chosen apart from it
REFERENCES = {
    "attention": "${attention}",
    "cross_attention": "${cross_attention}",
    "position": "${position}",
    "feed_forward": "${feed_forward}",
    "self_attention": "${oc.select:self_attention,${attention}}",
}
OF_ENCODER = {"self_attention": "${oc.select:encoder_attention,${oc.select:self_attention,${attention}}}"}
ATTENTION_PARTS = {
    part: (part, f"attention/{part}")
    for part in ("score", "pattern", "normalizer", "mix", "gate", "feature_map", "decay")
}
CHILDREN = {  # parts that a part chooses in its own defaults list: by name, the entry there and the group
    "model": {side: (f"/{side}@{side}", side) for side in ("encoder", "decoder")},
    "attention": ATTENTION_PARTS,
    "encoder_attention": ATTENTION_PARTS,
    "cross_attention": ATTENTION_PARTS,
    "search": {"length_penalty": ("length_penalty", "search/length_penalty")},
}
OF_FILES = ("parallel", "huggingface", "mixture")  # corpora of the user's files, which do not name their languages
CLEANINGS = ("standard", "long")  # of conf/, which leave texts alike
OF_PARENT = f"{CHOICE}_encoder_attention_"  # before the name of that attention
FRESH = {  # options of the model that a new run does not take over
    "source_vocab_size": "???",
    "target_vocab_size": "???",
    "source_embedding_file": None,
    "target_embedding_file": None,
}
SETTINGS = ("model_type", "vocab_size", "joint")  # of a tokenizer, which its checkpoint determines
OF_TRAINING = (  # of a tokenizer, for a new one
    "split_by_unicode_script", "character_coverage", "byte_fallback", "user_defined_symbols", "input_sentence_size",
    "min_count",
)  # fmt: skip


def choose_parent(overrides: Sequence[str]) -> list[str]:
    """Make choices of the parent's parts, and return the override that selects them.

    A run that resumes takes them from its own checkpoint, so its parent may be deleted.

    Args:
        overrides: those of the command line. Without `init_from.run` nothing is done.

    Raises:
        UserError: if there is no such run, or it holds parts that no run saves.
    """
    try:
        typed = {
            override.get_key_element().lstrip("+~"): override
            for override in OverridesParser.create().parse_overrides(list(overrides))
        }
    except HydraException:
        return []  # Hydra will refuse them
    if "init_from" in typed:
        raise UserError("init_from is a group of options; name the run to start from with init_from.run=RUN")
    if OPTION not in typed or typed[OPTION].value() is None:
        return []
    if typed[OPTION].is_sweep_override():
        raise UserError(f"{OPTION} takes one run, of which the model is composed; start one sweep for each run")
    needed = ("resume", "hydra.run.dir", "trust", OPTION)
    values: dict[str, Any] = {key: override.value() for key, override in typed.items() if key in needed}
    latest = None
    if values.get("resume") == "auto" and "hydra.run.dir" in values:
        latest = read_latest(given_path(values["hydra.run.dir"], "hydra.run.dir") / "checkpoints")
    file, content = latest or (find_checkpoint(str(values[OPTION]), OPTION), None)
    trusted = values.get("trust") or []
    trust = list(map(str, trusted if isinstance(trusted, list) else [trusted]))
    store_parts(read_checkpoint(file, content), file, typed, trust=trust)
    return [] if CHOICE in typed else [f"{CHOICE}=run"]


def store_parts(checkpoint: dict[str, Any], file: Path, typed: Mapping[str, Override], *, trust: Trust) -> None:
    """Store the parts of a checkpoint in Hydra's ConfigStore, and a config that selects them.

    With a model chosen on the command line, all parts of the model are its own.

    Args:
        typed: the overrides of the command line by key.
    """
    config, labels = checkpoint["config"], checkpoint["config"].get("choices") or {}
    check_saved_config(config, file, trust)
    check_saved_options({"choices": labels}, {"choices": dict}, file)
    for slot, node in (("model", config["model"]), ("choices", labels)):
        check_targets(node, slot, file, trust)
    parts = {"search": config["search"], "tokenizer": tokenizer_options(checkpoint, file)}
    if "model" not in typed:
        parts |= model_parts(config["model"])
    selected: list[Any] = [{"override /recipe": RECIPE}]
    for slot, node in parts.items():
        group = "attention" if slot.endswith("attention") else slot
        name = CHOICE if slot == group else f"{CHOICE}_{slot}"
        if slot == "encoder_attention" and (encoder := str(labels.get("attention")).rpartition("+")[0]).isidentifier():
            name = OF_PARENT + encoder
        store_part(slot, group, name, deepcopy(node))
        selected.append({f"override /{group}" if slot == group else f"override /{group}@{slot}": name})
    store_data_options(config, typed.get("data/cleaning"))
    chosen = {name: labels.get(name) for name in ("attention", "model") if name in parts and name not in typed}
    options = {"defaults": selected, "choices": chosen}
    ConfigStore.instance().store("run", options, group=CHOICE, package="_global_")


def store_data_options(config: dict[str, Any], chosen_cleaning: Override | None) -> None:
    """Store the options of the parent's data that belong to its model, for each corpus of conf/.

    They are the options of the cleaning that change a text, and the languages where the corpus is of the user's files.
    `train.yaml` composes them after the corpus, so an experiment and the command line override them. A corpus of the
    user's own, and a cleaning that the command line chooses from files of the user's own, are as their files say.

    Args:
        chosen_cleaning: `data/cleaning=NAME` of the command line.
    """
    data, objective = config["data"], config.get("objective")
    languages = {name: data[name] for name in ("source_language", "target_language")}
    is_one_sided = objective is not None or config["model"].get("encoder") is None
    names_pairs = objective is None and not (is_one_sided and len(set(languages.values())) == 1)
    is_own = chosen_cleaning is not None and chosen_cleaning.value() not in CLEANINGS
    saved = cleaning_options(data)
    if is_own or not isinstance(saved, dict):  # a corpus of the user's own may have none, or one of another kind
        saved = {}
    cleaning = {name: saved[name] for name in OF_TEXT if isinstance(saved.get(name), bool)}
    for corpus in sorted(path.stem for path in (conf_directory() / "data").glob("*.yaml")):
        options: dict[str, Any] = {"cleaning": cleaning}
        if corpus == "documents":
            options = {"corpus": options}  # of whose sentences they are made
        if corpus in OF_FILES and names_pairs:
            options |= languages
        if corpus == "text" and is_one_sided:
            options["target_language"] = languages["target_language"]
        ConfigStore.instance().store(f"run_{corpus}", {"data": options}, group=f"{CHOICE}/data", package="_global_")


def store_part(slot: str, group: str, name: str, node: dict[str, Any]) -> None:
    """Store a part, and the parts that it chooses itself, each in its group.

    Each has a defaults list of ours, so that Hydra composes none that the checkpoint may hold.
    """
    entries: list[Any] = []
    for child, (entry, child_group) in CHILDREN.get(slot, {}).items():
        if isinstance(node.get(child), dict):
            ConfigStore.instance().store(name, node.pop(child) | {"defaults": ["_self_"]}, group=child_group)
            entries.append({entry: name})
        elif child_group in ("attention/mix", "attention/gate"):  # which a preset may lack; `null` is its choice
            entries.append({entry: None})
    ConfigStore.instance().store(name, node | {"defaults": [*entries, "_self_"]}, group=group)


def tokenizer_options(checkpoint: dict[str, Any], file: Path) -> dict[str, Any]:
    """Return the options with which a tokenizer like the parent's is trained.

    Raises:
        UserError: for a tokenizer, or options of one, that no run saves.
    """
    state, options = read_tokenizer(checkpoint["tokenizer"], file), checkpoint["config"].get("tokenizer") or {}
    check_saved_options({"tokenizer": options}, {"tokenizer": dict}, file)
    defaults = inspect.signature(SentencePieceTokenizer).parameters
    saved = {name: getattr(state, name) for name in (*SETTINGS, "sampling_alpha")}
    saved |= {name: options.get(name, defaults[name].default) for name in OF_TRAINING}
    check_targets(saved, "tokenizer", file)
    return {
        "_target_": f"{SentencePieceTokenizer.__module__}.{SentencePieceTokenizer.__qualname__}",
        **saved,
        "model": None,
        "cache_dir": "${paths.cache_dir}",
    }


def model_parts(model: dict[str, Any]) -> dict[str, Any]:
    """Return the model, and the parts of its encoder and decoder that conf/ chooses apart from them.

    Where a part stood in the model, there is now the reference of conf/, unless encoder and decoder differ in it.
    """
    model = deepcopy(model) | FRESH
    parts: dict[str, Any] = {}
    for side in ("decoder", "encoder"):
        for slot, reference in (REFERENCES | (OF_ENCODER if side == "encoder" else {})).items():
            part = (model[side] or {}).get(slot)
            if not isinstance(part, dict):
                continue
            home = slot
            if slot == "self_attention" and parts.get("attention", part) == part:
                home = "attention"  # the group, unless the decoder has another attention
            elif slot == "self_attention" and slot in model["decoder"]:
                home = "encoder_attention"  # beside that of the decoder
            if parts.setdefault(home, part) == part:
                model[side][slot] = reference
    return {"model": model} | parts


def name_attention(composed: DictConfig) -> None:
    """Let `choices.attention` name a Transformer's self-attention where its slots are chosen: `local+multihead`.

    The first is that of the encoder alone, where it differs.
    """
    decoder = composed.model.get("decoder") or {}
    if not HydraConfig.initialized() or composed.choices.attention is None or "self_attention" not in decoder:
        return
    chosen = HydraConfig.get().runtime.choices
    of_slots = {slot: chosen.get(f"attention@{slot}") for slot in ("encoder_attention", "self_attention")}
    # a part of the parent's is in the parent's own name
    named = {slot: name for slot, name in of_slots.items() if name and not name.startswith(CHOICE)}
    encoder, _, both = str(composed.choices.attention).rpartition("+")
    of_parent = of_slots["encoder_attention"] or ""
    if not encoder and of_parent.startswith(OF_PARENT):
        encoder = of_parent.removeprefix(OF_PARENT)
    both = named.get("self_attention", both)
    encoder = named.get("encoder_attention", encoder)
    OmegaConf.set_readonly(composed, False)
    composed.choices.attention = both if encoder in ("", both) else f"{encoder}+{both}"
