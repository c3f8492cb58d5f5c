"""A published model: a folder of weights in safetensors, options in JSON and SentencePiece models; no pickle."""

from __future__ import annotations

import json
import re
from collections.abc import Collection
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save
from torch import Tensor

from seq2seq_attn.checkpoint.checkpoint_file import corpus_of
from seq2seq_attn.errors import UserError
from seq2seq_attn.files import regular

WEIGHTS, SETTINGS = "model.safetensors", "config.json"
MODEL_FILES = {"source": "source.model", "target": "target.model"}  # SentencePiece's
PREFIX = "model."  # of its weights, among all that training saves
# What translates and evaluates. Files and folders of the machine that trained are not published.
KEPT = (
    "model", "search", "data", "metric", "monitor", "choices", "seed", "batch_tokens", "eval_batch_tokens",
    "label_smoothing", "objective", "tokenizer",
)  # fmt: skip
POSITIONS = ("path", "train", "val", "test", "corpora", "cache_dir", "copy_to")
EMBEDDING_FILES = ("source_embedding_file", "target_embedding_file")
TEXTS = ("user_defined_symbols",)  # options that may look like paths
TOKENIZER_FILES = ("model", "cache_dir")
# Of an absolute path within a text, such as data.train=[/home/me/a.en,~/a.fr] and sqlite:////home/me/a.db
FOLDERS = re.compile(r"""((?<![^=\[({,;:|+'"\s])(?:~\w*)?/(?![/\s]|$)|(?<=://)/+)(?:[^/,\]'"]*/)*""")


def write_published(checkpoint: dict[str, Any], folder: Path) -> None:
    """Write what `read_checkpoint` returns as a folder.

    Raises:
        UserError: if the folder is not empty.
    """
    check_empty(folder)
    weights, tied = untied(checkpoint["state_dict"])
    config = {name: checkpoint["config"][name] for name in KEPT if name in checkpoint["config"]}
    for part, paths in (("data", POSITIONS), ("model", EMBEDDING_FILES), ("tokenizer", TOKENIZER_FILES)):
        if part in config:
            config[part] = without_paths(config[part], paths)
    guided = checkpoint["config"].get("guided_alignment") or {}
    if guided.get("links") is not None:  # its head aligns words
        links = guided["links"] if guided["links"] in ("eflomal", "self") else "FILE"
        kept = {key: guided[key] for key in ("weight", "layer", "head", "shift") if key in guided}
        config["guided_alignment"] = {"links": links} | kept
    if "precision" in (trainer := checkpoint["config"].get("trainer") or {}):
        config["trainer"] = {"precision": trainer["precision"]}
    config = without_folders(config)
    folder.mkdir(parents=True, exist_ok=True)
    # save_file would leave it to its owner alone
    (folder / WEIGHTS).write_bytes(save(weights, metadata={"format": "pt"}))
    tokenizer = write_tokenizer(checkpoint["tokenizer"], folder)
    settings = {"format": checkpoint["format"], "tied": tied, "tokenizer": tokenizer, "config": config}
    settings["corpus"] = corpus_of(checkpoint)
    written = json.dumps(settings, indent=2, ensure_ascii=False)
    (folder / SETTINGS).write_text(written + "\n", encoding="utf-8")


def without_paths(options: dict[str, Any], paths: Collection[str]) -> dict[str, Any]:
    """Return the options, and those of a corpus within a corpus, with None for files and folders."""
    kept = {key: None if key in paths else value for key, value in options.items()}
    within = kept.get("corpus")
    return kept | {"corpus": without_paths(within, paths)} if isinstance(within, dict) else kept


def check_empty(folder: Path) -> None:
    """Refuse a folder with files, and a file."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UserError(f"{folder} is not empty; give a new or an empty folder")


def without_folders(node: Any) -> Any:
    """Return options in which only the file's name is left of an absolute path, and no user of an address."""
    if isinstance(node, dict):
        return {key: value if key in TEXTS else without_folders(value) for key, value in node.items()}
    if isinstance(node, list):
        return [without_folders(value) for value in node]
    if not isinstance(node, str):
        return node
    without_passwords = re.sub(r"(?<=://)[^/@\s]+@", "", node)
    return Path(node).name or node if node.startswith(("/", "~")) else FOLDERS.sub("", without_passwords)


def write_tokenizer(state: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Write the models of a tokenizer for SentencePiece, and return its settings."""
    settings = dict(state)
    for side, name in MODEL_FILES.items():
        (folder / name).write_bytes(settings.pop(f"{side}_model").numpy().tobytes())
    return settings


def tokenizer_state(settings: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Return the state of a tokenizer from its settings and the models in a folder."""
    return settings | {
        f"{side}_model": torch.frombuffer(bytearray(regular(folder / name).read_bytes()), dtype=torch.uint8)
        for side, name in MODEL_FILES.items()
    }


def untied(state: dict[str, Tensor]) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Return the model's tensors, each once, and the name of the tensor that each other name means."""
    weights: dict[str, Tensor] = {}
    tied: dict[str, str] = {}
    names: dict[tuple[int, torch.Size], str] = {}
    for name, tensor in state.items():
        if not name.startswith(PREFIX):
            continue
        name = name.removeprefix(PREFIX)
        first = names.setdefault((tensor.data_ptr(), tensor.shape), name)
        if first == name or tensor.numel() == 0:
            weights[name] = tensor.clone(memory_format=torch.contiguous_format)
        else:
            tied[name] = first
    return weights, tied


def read_published(file: Path) -> dict[str, Any]:
    """Return a checkpoint without a state of training.

    Raises:
        UserError: if the folder is not whole.
    """
    folder = file.parent
    try:
        settings = json.loads(regular(folder / SETTINGS).read_text(encoding="utf-8"))
        weights = load_file(file)
        weights |= {name: weights[first] for name, first in settings["tied"].items()}
        return {
            "format": settings["format"],
            "config": settings["config"],
            "corpus": settings.get("corpus"),
            "tokenizer": tokenizer_state(settings["tokenizer"], folder),
            "state_dict": {PREFIX + name: weight for name, weight in weights.items()},
        }
    except (OSError, KeyError, TypeError, AttributeError, ValueError, RecursionError, SafetensorError) as error:
        raise UserError(
            f"{folder} is not a whole published model (a file is missing or damaged: {error}); give what "
            "seq2seq-attn export safetensors wrote"
        ) from error
