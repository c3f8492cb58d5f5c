"""From a checkpoint file back to a model, a tokenizer and a search, through classes of ours only."""

from __future__ import annotations

import pickle
import zipfile
from pathlib import Path
from typing import Any, NamedTuple

import torch
from hydra.utils import get_class, instantiate

from seq2seq_attn.model.encoder_decoder import EncoderDecoder
from seq2seq_attn.tensors.error import UserError
from seq2seq_attn.tokenizer.sentencepiece import SentencePieceTokenizer

FORMAT = 2


class Loaded(NamedTuple):
    """What a checkpoint holds; the model is on the CPU, in evaluation mode."""

    model: EncoderDecoder
    tokenizer: SentencePieceTokenizer
    config: dict[str, Any]


def find_checkpoint(path: str) -> Path:
    """The file behind `path`, which is a .ckpt or a run folder: its best checkpoint, else its last."""
    given = Path(path)
    if given.is_file():
        return given
    if not given.exists():
        raise UserError(
            f"ckpt_path={path} does not exist; give a run folder (runs/train/...) or a .ckpt file"
        )
    for name in ("best.ckpt", "last.ckpt"):
        for folder in (given / "checkpoints", given):
            if (folder / name).is_file():
                return folder / name
    raise UserError(
        f"ckpt_path={path} holds no checkpoints/best.ckpt or last.ckpt; give a run folder or a .ckpt file"
    )


def read_checkpoint(path: Path) -> dict[str, Any]:
    """The checkpoint's tensors and plain data.

    Raises:
        UserError: if it is truncated, not a checkpoint of ours, or of another format.
    """
    try:
        checkpoint = torch.load(path, map_location="cpu", weights_only=True)
    except (OSError, RuntimeError, EOFError, pickle.UnpicklingError, zipfile.BadZipFile, ValueError) as error:
        raise UserError(
            f"{path} is not a readable checkpoint (truncated, damaged or of another program); use another one, such as "
            "last.ckpt beside it, or train again"
        ) from error
    if not isinstance(checkpoint, dict) or "format" not in checkpoint:
        raise UserError(f"{path} is not a checkpoint of seq2seq-attn; give one that train.py wrote")
    if checkpoint["format"] != FORMAT:
        raise UserError(
            f"{path} has format {checkpoint['format']}, this version reads {FORMAT}; use the version that wrote it"
        )
    return checkpoint


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

    A reference is refused too: `${oc.create:...}` would become a `_target_` after this check. A run saves none.
    """
    if isinstance(node, str) and "${" in node:
        raise UserError(f"{file} holds the reference {node}, which no run saves; it was not resolved")
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
