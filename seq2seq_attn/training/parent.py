"""Fine-tuning: a new run that starts from the model, tokenizer, search and weights of another run, its parent.

The parts of the parent are choices of their groups, by the name `parent`, so that Hydra composes them like any other:
`attention=sparse` replaces one, and `model.dropout=0.3` sets an option of one.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Collection, Sequence
from copy import deepcopy
from pathlib import Path
from typing import Any, NamedTuple

import torch
from hydra.core.config_store import ConfigStore
from hydra.core.hydra_config import HydraConfig
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf
from sentencepiece import SentencePieceProcessor
from torch import Tensor

from seq2seq_attn.checkpoint.admitted import Trust, check_targets
from seq2seq_attn.checkpoint.checkpoint_file import read_latest
from seq2seq_attn.checkpoint.load import (
    Loaded,
    check_saved_config,
    find_checkpoint,
    read_checkpoint,
    read_tokenizer,
    rebuild,
)
from seq2seq_attn.checkpoint.resume import Resumed, changes
from seq2seq_attn.data.corpus import LoadedCorpus
from seq2seq_attn.data.encoded import EncodedSplit, unknown_shares
from seq2seq_attn.errors import UserError
from seq2seq_attn.files import sha256
from seq2seq_attn.paths import given_path
from seq2seq_attn.text import printable
from seq2seq_attn.tokenizer.sentencepiece import SentencePieceTokenizer
from seq2seq_attn.training.checks import NAMED, OF_SHAPES, may_change_shapes
from seq2seq_attn.training.translation_module import TranslationModule

log = logging.getLogger(__name__)

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
    part: (part, f"attention/{part}") for part in ("score", "pattern", "normalizer", "mix", "gate", "feature_map")
}
CHILDREN = {  # parts that a part chooses in its own defaults list: by name, the entry there and the group
    "model": {side: (f"/{side}@{side}", side) for side in ("encoder", "decoder")},
    "attention": ATTENTION_PARTS,
    "encoder_attention": ATTENTION_PARTS,
    "cross_attention": ATTENTION_PARTS,
    "search": {"length_penalty": ("length_penalty", "search/length_penalty")},
}
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
OF_PIECES = ("split_by_unicode_script", "character_coverage", "byte_fallback", "user_defined_symbols", "min_count")
ROWS = {  # tensors with a row for each token, and the side of its vocabulary
    "embed_source.weight": "source",
    "embed_target.weight": "target",
    "output.weight": "target",
    "output.bias": "target",
}
MANY_UNKNOWN = 0.01  # share of a corpus's tokens


class Parent(NamedTuple):
    """The checkpoint of the parent; an average or a published model has no step."""

    file: Path
    loaded: Loaded
    step: int | None


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


def store_parts(checkpoint: dict[str, Any], file: Path, typed: Collection[str], *, trust: Trust) -> None:
    """Store the parts of a checkpoint in Hydra's ConfigStore, and a config that selects them.

    With a model chosen on the command line, all parts of the model are its own.
    """
    config, labels = checkpoint["config"], checkpoint["config"].get("choices", {})
    check_saved_config(config, file, trust)
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
    chosen = {name: labels.get(name) for name in ("attention", "model") if name in parts and name not in typed}
    options = {"defaults": selected, "choices": chosen}
    ConfigStore.instance().store("run", options, group=CHOICE, package="_global_")


def store_part(slot: str, group: str, name: str, node: dict[str, Any]) -> None:
    """Store a part, and the parts that it chooses itself, each in its group."""
    entries: list[Any] = []
    for child, (entry, child_group) in CHILDREN.get(slot, {}).items():
        if isinstance(node.get(child), dict):
            ConfigStore.instance().store(name, node.pop(child), group=child_group)
            entries.append({entry: name})
        elif child_group in ("attention/mix", "attention/gate"):  # which a preset may lack; `null` is its choice
            entries.append({entry: None})
    ConfigStore.instance().store(name, node | {"defaults": [*entries, "_self_"]}, group=group)


def tokenizer_options(checkpoint: dict[str, Any], file: Path) -> dict[str, Any]:
    """Return the options with which a tokenizer like the parent's is trained."""
    state, options = read_tokenizer(checkpoint["tokenizer"], file), checkpoint["config"].get("tokenizer", {})
    defaults = inspect.signature(SentencePieceTokenizer).parameters
    return {
        "_target_": f"{SentencePieceTokenizer.__module__}.{SentencePieceTokenizer.__qualname__}",
        **{name: getattr(state, name) for name in (*SETTINGS, "sampling_alpha")},
        **{name: options.get(name, defaults[name].default) for name in OF_TRAINING},
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


def read_parent(composed: DictConfig, resumed: Resumed | None) -> Parent | None:
    """Read the checkpoint from which a new run starts; None: there is none, or the run resumes."""
    if resumed is not None or composed.init_from.run is None:
        return None
    file = find_checkpoint(composed.init_from.run, OPTION)
    checkpoint = read_checkpoint(file)
    return Parent(file, rebuild(checkpoint, file, composed.trust), checkpoint.get("global_step"))


def kept_tokenizer(composed: DictConfig, resumed: Resumed | None, parent: Parent | None) -> dict[str, Any] | None:
    """Return the state of the tokenizer that comes with a checkpoint; None: a tokenizer is to be trained.

    A resumed run has a tokenizer that was not trained, but given, in its own checkpoint.

    Raises:
        UserError: if options ask for a tokenizer other than the one that is kept.
    """
    keeps = composed.init_from.run is not None and composed.init_from.tokenizer == "keep"
    if resumed is not None:
        return resumed.checkpoint["tokenizer"] if keeps or composed.tokenizer.model else None
    if parent is None or not keeps:
        return None
    state, options = parent.loaded.tokenizer.get_state(), composed.tokenizer
    for name in SETTINGS:
        if options[name] not in (state[name], "auto") or options.model:
            given = f"model={options.model}" if options.model else f"{name}={options[name]}"
            raise UserError(
                f"tokenizer.{given} would change nothing, since the tokenizer of {parent.file} comes along; leave it "
                "out, or train another with init_from.tokenizer=new"
            )
    saved = parent.loaded.config.get("tokenizer") or {}
    defaults = inspect.signature(SentencePieceTokenizer).parameters
    typed: Any = OmegaConf.to_container(options)
    for name in OF_PIECES:
        if typed.get(name) != saved.get(name, defaults[name].default):
            raise UserError(
                f"tokenizer.{name} would change nothing, since the tokenizer of {parent.file} comes along; leave it "
                "out, or train another with init_from.tokenizer=new"
            )
    return state


def provenance_of(parent: Parent | None, resumed: Resumed | None) -> dict[str, Any] | None:
    """Return what identifies the parent; of a resumed run it is in its checkpoint."""
    if resumed is not None:
        return resumed.checkpoint.get("parent")
    if parent is None:
        return None
    return {"path": str(parent.file), "sha256": sha256(parent.file), "step": parent.step}


def copy_weights(parent: Parent, module: TranslationModule, *, strict: bool) -> None:
    """Copy the weights of the parent into the model, and log what is copied and what is not.

    If the vocabularies differ, the rows of the tokens that both have are copied.

    Raises:
        UserError: if `strict` and a weight is missing, left over or of another shape.
    """
    rows = shared_rows(parent.loaded.tokenizer, module.tokenizer)
    theirs, ours = parent.loaded.model.state_dict(), module.model.state_dict()
    drawn: dict[str, str] = {}
    left_out = {name: "is in no part of this model" for name in theirs if name not in ours}
    first_names: dict[tuple[int, torch.Size], str] = {}
    for name, weight in ours.items():
        first = first_names.setdefault((weight.data_ptr(), weight.shape), name)
        reason = misfit(theirs.get(name), weight, by_row=name in ROWS and ROWS[name] in rows)
        if reason is not None:
            drawn[name] = reason
        elif first not in (name, *drawn) and not torch.equal(theirs[first], theirs[name]):
            left_out[name] = f"and {first} are two matrices there and one here"
        elif name in ROWS and ROWS[name] in rows:
            new, old = rows[ROWS[name]]
            weight[new] = theirs[name][old]
        else:
            weight.copy_(theirs[name])
    if strict and (drawn or left_out):
        raise UserError(refusal(parent, module.config, drawn | left_out))
    step = "" if parent.step is None else f", step {parent.step:,}"
    log.info(f"{len(ours) - len(drawn)} of {len(ours)} tensors start from {parent.file}{step}")
    for what, names in (("Drawn anew", drawn), ("Left out", left_out)):
        if names:
            log.info(f"{what}: {', '.join(names)}")
    for side, (new, _) in rows.items():
        size = ours[f"embed_{side}.weight"].shape[0]
        log.info(f"{len(new):,} of {size:,} {side} tokens are in both vocabularies; the others are drawn anew")


def misfit(theirs: Tensor | None, ours: Tensor, *, by_row: bool) -> str | None:
    """Return why a weight cannot be copied, to be put after its name; None: it can."""
    if theirs is None:
        return "is not there"
    start = 1 if by_row else 0
    if theirs.dim() == ours.dim() and theirs.shape[start:] == ours.shape[start:]:
        return None
    return f"is {size_of(theirs)} there and {size_of(ours)} here"


def size_of(tensor: Tensor) -> str:
    return " × ".join(map(str, tensor.shape)) or "one number"


def refusal(parent: Parent, config: dict[str, Any], misfits: dict[str, str]) -> str:
    """Return the sentence that names the options that differ, and the first of the weights that do not fit."""
    changed = [c for c in changes(parent.loaded.config, config) if may_change_shapes(c) and c.key.startswith(OF_SHAPES)]
    changed = [change for change in changed if not change.key.startswith(("data", "tokenizer"))]
    by = f", by {', '.join(map(str, changed[:NAMED]))}" if changed else ""
    (name, reason), more = next(iter(misfits.items())), len(misfits) - 1
    others = f" (and {more} more)" if more else ""
    return (
        f"{parent.file} holds another model{by}: {name} {reason}{others}; leave these options out, or give "
        "init_from.strict=false, which draws such weights anew"
    )


def shared_rows(theirs: SentencePieceTokenizer, ours: SentencePieceTokenizer) -> dict[str, tuple[Tensor, Tensor]]:
    """Return the ids of the tokens of both vocabularies, here and there, by side; empty if they are the same."""
    if theirs.fingerprint == ours.fingerprint:
        return {}
    sides = {"source": (ours.source_model, theirs.source_model), "target": (ours.target_model, theirs.target_model)}
    return {side: shared_ids(*models) for side, models in sides.items()}


def shared_ids(ours: SentencePieceProcessor, theirs: SentencePieceProcessor) -> tuple[Tensor, Tensor]:
    old = {theirs.id_to_piece(i): i for i in range(theirs.get_piece_size())}
    pairs = [(i, old[piece]) for i in range(ours.get_piece_size()) if (piece := ours.id_to_piece(i)) in old]
    new_ids, old_ids = torch.tensor(pairs).T
    return new_ids, old_ids


def warn_of_other_text(parent: Parent, corpus: LoadedCorpus, train: EncodedSplit) -> None:
    """Warn of a corpus in other languages, or with many tokens that the vocabulary does not have."""
    data = parent.loaded.config["data"]
    if parent.loaded.config.get("objective") is not None:
        data = {"source_language": corpus.source_language, "target_language": corpus.target_language}
    languages = f"{data['source_language']} → {data['target_language']}"
    if languages != (corpus_languages := f"{corpus.source_language} → {corpus.target_language}"):
        log.warning(printable(f"{parent.file} translates {languages}, and this corpus is {corpus_languages}"))
    for side, share in unknown_shares(train).items():
        if share > MANY_UNKNOWN:
            log.warning(
                f"{share:.0%} of the {side} tokens of the training set are unknown to the vocabulary; "
                "init_from.tokenizer=new trains a tokenizer on this corpus"
            )
