"""From a checkpoint file back to a model, a tokenizer and a search, through classes of ours only."""

from __future__ import annotations

import os
import re
import warnings
from pathlib import Path
from typing import Any, NamedTuple

import torch
from hydra.utils import get_class, instantiate

from seq2seq_attn.model.encoder_decoder import EncoderDecoder
from seq2seq_attn.tensors.error import UserError
from seq2seq_attn.tensors.given_path import given_path
from seq2seq_attn.tokenizer.sentencepiece import SentencePieceTokenizer
from seq2seq_attn.training.checkpoint_file import BEST, LAST, PREVIOUS
from seq2seq_attn.training.digest import UNREADABLE, damage
from seq2seq_attn.training.published import WEIGHTS, read_published

FORMAT = 2
KEYS = {"format", "config", "tokenizer", "state_dict"}  # what a model is rebuilt from
PLAIN = (str, int, float, bool, type(None))


class Loaded(NamedTuple):
    """What a checkpoint holds; the model is on the CPU, in evaluation mode."""

    model: EncoderDecoder
    tokenizer: SentencePieceTokenizer
    config: dict[str, Any]


def find_checkpoint(path: str) -> Path:
    """The file behind `path`: a .ckpt, a run folder's best checkpoint, else its last, or a published folder's weights.

    It may be damaged, which whoever reads it says: another one would be another model.
    """
    given = given_path(path, "ckpt_path")
    if os.path.isfile(given):  # Path.is_file raises for a name too long
        return given
    if not os.path.exists(given):
        raise UserError(
            f"ckpt_path={path} does not exist; give a run folder (runs/train/...) or a .ckpt file"
        )
    for name in (BEST, LAST, WEIGHTS):
        for folder in (given / "checkpoints", given):
            if (folder / name).is_file():
                return folder / name
    raise UserError(
        f"ckpt_path={path} holds no checkpoints/best.ckpt or last.ckpt; give a run folder or a .ckpt file"
    )


def read_checkpoint(path: Path) -> dict[str, Any]:
    """The checkpoint's tensors and plain data.

    Raises:
        UserError: if it is damaged, not a checkpoint of ours, or of another format.
    """
    checkpoint = read_published(path) if path.name == WEIGHTS else read_tensors(path)
    if not isinstance(checkpoint, dict) or not checkpoint.keys() >= KEYS:
        raise UserError(f"{path} is not a checkpoint of seq2seq-attn; give one that train.py wrote")
    if checkpoint["format"] != FORMAT:
        raise UserError(
            f"{path} has format {checkpoint['format']}, this version reads {FORMAT}; use the version that wrote it"
        )
    return checkpoint


def read_tensors(path: Path) -> Any:
    """What torch wrote into a file, without running any of it.

    Raises:
        UserError: if it is damaged, or holds more than tensors and plain data.
    """
    beside = PREVIOUS if path.name == LAST else LAST
    advice = f"use another one, such as {beside} beside it, or train again"
    found = damage(path)
    if found is not None:
        raise UserError(f"{path} {found}; {advice}")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # it announces a TorchScript file before it refuses it
            return torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # what others pickle fails in many ways
        asked = re.search(r"GLOBAL (\S+)", str(error))
        if asked:
            raise UserError(f"{path} asks for {asked[1]}, which is no plain data; it was not run") from error
        raise UserError(f"{path} {UNREADABLE}; {advice}") from error


def load(path: str) -> Loaded:
    """Rebuild the trained model; nothing but the checkpoint is read."""
    file = find_checkpoint(path)
    checkpoint = read_checkpoint(file)
    config = checkpoint["config"]
    for part in (config["model"], config["search"], config["data"]):
        check_targets(part, file)
    model: EncoderDecoder = instantiate(config["model"], _convert_="all")
    prefix = "model."
    weights = {k.removeprefix(prefix): v for k, v in checkpoint["state_dict"].items() if k.startswith(prefix)}
    model.load_state_dict(weights)
    return Loaded(model.eval(), SentencePieceTokenizer.from_state(checkpoint["tokenizer"]), config)


def check_targets(node: Any, file: Path) -> None:
    """Refuse a `_target_` that is not a class defined in seq2seq_attn, at any depth.

    A reference is refused too: `${oc.create:...}` would become a `_target_` after this check. A run saves none, and
    no other containers than these: Hydra looks into a tuple as it does into a list.
    """
    if isinstance(node, str) and "${" in node:
        raise UserError(f"{file} holds the reference {node}, which no run saves; it was not resolved")
    if type(node) not in (dict, list, *PLAIN):
        raise UserError(f"{file} holds a {type(node).__name__} among its options, which no run saves")
    if isinstance(node, list):
        for child in node:
            check_targets(child, file)
    if not isinstance(node, dict):
        return
    for key, value in node.items():
        if key == "_target_" and not is_ours(value):
            raise UserError(f"{file} asks for {value}, which is not a class of seq2seq_attn; it was not run")
        check_targets(value, file)


def is_ours(target: Any) -> bool:
    if not isinstance(target, str) or not target.startswith("seq2seq_attn."):
        return False
    try:
        found = get_class(target)
    except Exception:
        return False
    return found.__module__.startswith("seq2seq_attn.")
