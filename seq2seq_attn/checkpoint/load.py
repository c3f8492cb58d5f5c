"""From a checkpoint file back to a model, a tokenizer and a search, built from admitted classes only."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from seq2seq_attn.checkpoint.admitted import Trust, build, check_targets
from seq2seq_attn.checkpoint.checkpoint_file import is_stored, read_tensors
from seq2seq_attn.checkpoint.published import PREFIX, WEIGHTS, read_published
from seq2seq_attn.data.cleaning import cleaning_options
from seq2seq_attn.distributed.run_lock import BEST, LAST
from seq2seq_attn.errors import UserError
from seq2seq_attn.model.encoder_decoder import EncoderDecoder
from seq2seq_attn.paths import given_path
from seq2seq_attn.tokenizer.sentencepiece import SentencePieceTokenizer

FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
FORMAT = 3
KEYS = {"format": int, "config": dict, "tokenizer": dict, "state_dict": dict}  # what a model is rebuilt from
LANGUAGES: dict[str, Any] = {"data.source_language": str, "data.target_language": str}
PUBLISHED_OPTIONS = LANGUAGES | dict.fromkeys(("model", "search", "data"), dict)
PUBLISHED_OPTIONS |= dict.fromkeys(
    ("choices", "guided_alignment", "metric", "trainer", "objective", "tokenizer"), dict | None
)
OF_CTRANSLATE2 = "seq2seq_attn.json"  # in a folder of `seq2seq-attn export ctranslate2`
LARGEST = 2**24  # whole number among a model's options


class Loaded(NamedTuple):
    """The content of a checkpoint; the model is on the CPU, in evaluation mode."""

    model: EncoderDecoder
    tokenizer: SentencePieceTokenizer
    config: dict[str, Any]


def find_checkpoint(path: str, option: str = "ckpt_path") -> Path:
    """Return the file that `path` means: a .ckpt, the best or else the last of a run folder, or published weights.

    It may be damaged, which is found when it is read; to take another one would be to take another model.
    """
    given = given_path(path, option)
    if os.path.isfile(given):  # Path.is_file raises for a name too long
        return given
    if not os.path.exists(given):
        raise UserError(f"{option}={path} does not exist; give a run folder (runs/train/...) or a .ckpt file")
    for name in (BEST, LAST, WEIGHTS):
        for folder in (given / "checkpoints", given):
            if (folder / name).is_file():
                return folder / name
    if (given / OF_CTRANSLATE2).is_file():
        raise UserError(
            f"{option}={path} is a model for CTranslate2, which translate and serve read with engine=ctranslate2; give "
            "the run itself"
        )
    raise UserError(f"{option}={path} holds no checkpoints/best.ckpt or last.ckpt; give a run folder or a .ckpt file")


def read_checkpoint(path: Path, content: Any = None) -> dict[str, Any]:
    """Return the checkpoint's tensors and plain data.

    Args:
        content: of the file, if it has been read already.

    Raises:
        UserError: if it is damaged, not a checkpoint of ours, or of another format.
    """
    if content is None:
        content = read_published(path) if path.name == WEIGHTS else read_tensors(path)
    whole = isinstance(content, dict) and all(isinstance(content.get(k), t) for k, t in KEYS.items())
    if not whole or not all(is_stored(name, weight) for name, weight in content["state_dict"].items()):
        raise UserError(f"{path} is not a checkpoint of seq2seq-attn; give one that train.py wrote")
    if content["format"] != FORMAT:
        raise UserError(
            f"{path} has format {content['format']}, this version reads {FORMAT}; use the version that wrote it"
        )
    return content


def load(path: str, trust: Trust = ()) -> Loaded:
    """Rebuild the trained model; nothing but the checkpoint is read.

    Args:
        trust: packages of the user's own whose classes are admitted, besides those of this package.

    Raises:
        UserError: for options that a run does not save, or that do not fit its weights or its vocabulary.
    """
    file = find_checkpoint(path)
    return rebuild(read_checkpoint(file), file, trust)


def rebuild(checkpoint: dict[str, Any], file: Path, trust: Trust = ()) -> Loaded:
    """Rebuild the model of a checkpoint that was read from a file."""
    config = checkpoint["config"]
    check_saved_config(config, file, trust)
    weights = {k.removeprefix(PREFIX): v for k, v in checkpoint["state_dict"].items() if k.startswith(PREFIX)}
    model = build_model(config["model"], weights, file, trust)
    tokenizer = read_tokenizer(checkpoint["tokenizer"], file)
    fits_source = tokenizer.source_vocab_size == model.embed_source.num_embeddings or not model.reads_source
    if not fits_source or tokenizer.target_vocab_size != model.embed_target.num_embeddings:
        raise UserError(f"{file} holds a tokenizer of another vocabulary than its model; use an intact file")
    return Loaded(model.eval(), tokenizer, config)


def check_saved_config(config: dict[str, Any], file: Path, trust: Trust = ()) -> None:
    """Refuse options that are missing or of wrong types, and parts that are of no slot."""
    check_saved_options(config, {"model": dict, "search": dict, "data": dict} | LANGUAGES, file)
    cleaning = cleaning_options(config["data"])
    check_saved_options({"data": {"cleaning": cleaning}}, {"data.cleaning": dict}, file)
    optional = {"guided_alignment": dict | None, "choices": dict | None, "choices.attention": str | None}
    check_saved_options(config, optional, file)
    check_targets(config["data"], "data", file, trust)
    check_targets(config.get("metric", {}), "metric", file, trust)
    build(config["search"], "search", file, trust)
    build(cleaning, "cleaning", file, trust)


def check_saved_options(config: dict[str, Any], types: dict[str, Any], file: Path) -> None:
    """Refuse a configuration that lacks one of these options, or has it of another type."""
    for name, kind in types.items():
        value: Any = config
        for key in name.split("."):
            value = value.get(key) if isinstance(value, dict) else None
        if not isinstance(value, kind):
            raise UserError(f"{file} holds no {name} among its options; give a checkpoint that train.py wrote")


def build_model(config: Any, weights: dict[str, Tensor], file: Path, trust: Trust = ()) -> EncoderDecoder:
    """Return the model of these weights; options of other sizes are refused before memory is taken for them."""
    check_sizes(config, len(weights), file)
    with torch.device("meta"):
        outline = build(config, "model", file, trust)
    check_weights(outline.state_dict(), weights, file)
    model: EncoderDecoder = build(config, "model", file, trust)
    model.load_state_dict(weights)
    return model


def check_sizes(node: Any, num_tensors: int, file: Path) -> None:
    """Refuse numbers with which a model would take hours to build; a layer has at least one tensor."""
    for key, value in node.items() if isinstance(node, dict) else enumerate(node):
        most = num_tensors if key == "num_layers" else LARGEST
        if isinstance(value, int) and value > most:
            raise UserError(
                f"{file} has options for another model than its weights: {key} is over {most}; use an intact file"
            )
        if isinstance(value, dict | list):
            check_sizes(value, num_tensors, file)


def check_weights(outline: dict[str, Tensor], weights: dict[str, Tensor], file: Path) -> None:
    """Refuse weights of another model than the options describe, and those of a training that diverged."""
    for name in outline | weights:
        if name not in outline or name not in weights or outline[name].shape != weights[name].shape:
            raise UserError(
                f"{file} holds weights that do not fit its options, {name} first; use an intact file, and the "
                "version that wrote it"
            )
    for name, weight in weights.items():
        if outline[name].is_floating_point() and weight.dtype not in FLOATS:
            raise UserError(
                f"{file} holds {name} as {weight.dtype}; use a file with weights in float32 or half precision"
            )
        if weight.is_floating_point() and not weight.isfinite().all():
            raise UserError(
                f"{file} holds NaN or infinity in {name}: its training diverged; use an earlier checkpoint, or train "
                "with a lower optimizer.lr"
            )


def read_tokenizer(state: dict[str, Any], file: Path) -> SentencePieceTokenizer:
    """Return the tokenizer that a checkpoint holds.

    Raises:
        UserError: for a state that no tokenizer gave.
    """
    try:
        return SentencePieceTokenizer.from_state(state)
    except Exception as error:  # SentencePiece has errors of its own for each kind of damage
        cause = f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"
        raise UserError(f"{file} holds no readable tokenizer ({cause}); use an intact file") from error
