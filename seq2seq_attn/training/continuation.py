"""What a run can go on from: a checkpoint of training, of the same vocabulary and of a model of the same weights."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from torch import Tensor

from seq2seq_attn.checkpoint.load import read_checkpoint, read_tokenizer
from seq2seq_attn.errors import UserError
from seq2seq_attn.tokenizer.sentencepiece import SentencePieceTokenizer
from seq2seq_attn.training.translation_module import TranslationModule

TRAINING = (
    "pytorch-lightning_version",
    "epoch",
    "global_step",
    "loops",
    "callbacks",
    "optimizer_states",
    "lr_schedulers",
)
NAMED = 4  # differences, at most


def check_continuation(file: Path, module: TranslationModule) -> None:
    """Refuse to continue what the run's module is not.

    Raises:
        UserError: naming what differs.
    """
    checkpoint = read_checkpoint(file)
    if not checkpoint.keys() >= set(TRAINING):
        raise UserError(
            f"{file} holds no state of training, as an average or a published model does not, so no run continues from "
            "it; give a checkpoint that train.py wrote"
        )
    check_vocabulary(file, read_tokenizer(checkpoint["tokenizer"], file), module.tokenizer)
    if shapes(checkpoint["state_dict"]) != shapes(module.state_dict()):
        there, here = (dict(choices(config)) for config in (checkpoint["config"], module.config))
        differences = [
            f"{name} is {there.get(name)} there and {here.get(name)} here"
            for name in there | here
            if there.get(name) != here.get(name)
        ]
        named = ", ".join(differences[:NAMED]) or "its weights differ"
        raise UserError(
            f"{file} holds another model than the one to train: {named}; give the options of its run, or leave out "
            "ckpt_path and resume"
        )


def check_vocabulary(file: Path, other: SentencePieceTokenizer, tokenizer: SentencePieceTokenizer) -> None:
    """Refuse to continue a run whose tokens are others: its embeddings would mean other words."""
    if other.fingerprint != tokenizer.fingerprint:
        raise UserError(
            f"{file} was trained with another vocabulary ({other.source_vocab_size} and {other.target_vocab_size} "
            f"tokens, here {tokenizer.source_vocab_size} and {tokenizer.target_vocab_size}); give that run's data and "
            "tokenizer options, or leave out ckpt_path"
        )


def shapes(state: dict[str, Tensor]) -> dict[str, tuple[int, ...]]:
    return {name: tuple(tensor.shape) for name, tensor in state.items()}


def choices(node: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """The choices and the model's options by name; those with a fraction, as dropout, change no shape."""
    if not name:
        for key in ("choices", "model"):
            yield from choices(node.get(key), key)
    elif isinstance(node, dict):
        for key, value in node.items():
            yield from choices(value, name if key == "_target_" else f"{name}.{key}")
    elif not isinstance(node, float):
        option = name.removeprefix("choices.")
        yield option, node.rpartition(".")[2] if isinstance(node, str) else node
