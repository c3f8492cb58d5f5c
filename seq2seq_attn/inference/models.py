"""The models that `ckpt_path` names, and the device that they run on."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch

from seq2seq_attn.checkpoint.admitted import Trust
from seq2seq_attn.checkpoint.checkpoint_file import corpus_of
from seq2seq_attn.checkpoint.load import Loaded, find_checkpoint, read_checkpoint, rebuild
from seq2seq_attn.checkpoint.published import PREFIX
from seq2seq_attn.checkpoint.same_text import check_cleaning, check_directions, direction_of
from seq2seq_attn.errors import UserError
from seq2seq_attn.model.encoder_decoder import EncoderDecoder
from seq2seq_attn.model.ensemble import Ensemble, members_of
from seq2seq_attn.nn.precision import NO_FLOAT64
from seq2seq_attn.tokenizer.sentencepiece import SentencePieceTokenizer


class Models(NamedTuple):
    """One model or an ensemble.

    Attributes:
        configs: of each model.
        device: where it is to run.
        corpora: fingerprints of the corpora that they were trained on; None: the file of a model does not say.
    """

    files: list[Path]
    model: EncoderDecoder | Ensemble
    tokenizer: SentencePieceTokenizer
    configs: list[dict[str, Any]]
    device: torch.device
    corpora: tuple[str | None, ...] = ()

    @property
    def config(self) -> dict[str, Any]:
        """The configuration of the first model."""
        return self.configs[0]

    @property
    def members(self) -> list[EncoderDecoder]:
        return members_of(self.model)


def load_models(paths: Sequence[str], device: str, trust: Trust = ()) -> Models:
    """Load the checkpoints of some run folders or .ckpt files onto the CPU.

    They must have one tokenizer, one direction and one cleaning of text.

    Args:
        trust: packages of the user's own whose classes are admitted.

    Raises:
        UserError: if two of them differ in one of these, or there is no path.
    """
    if not paths:
        raise UserError("ckpt_path=[] names no checkpoint; give a run folder or a .ckpt file, or several")
    chosen = choose_device(device)
    files = [find_checkpoint(path) for path in paths]
    loaded, corpora = zip(*(load_member(file, trust) for file in files), strict=True)
    first = loaded[0]
    for file, other in zip(files, loaded, strict=True):
        if other.tokenizer.fingerprint != first.tokenizer.fingerprint:
            raise UserError(
                f"{files[0]} and {file} have different tokenizers, and an ensemble needs one; give runs of the same "
                "data and tokenizer options"
            )
        check_cleaning(files[0], first.config, file, other.config, "an ensemble")
    directions = [direction_of(str(file), one.config) for file, one in zip(files, loaded, strict=True)]
    check_directions(directions, "an ensemble needs one direction")
    return as_models(files, loaded, chosen, corpora)


def as_models(
    files: list[Path], loaded: Sequence[Loaded], device: torch.device, corpora: tuple[str | None, ...] = ()
) -> Models:
    """Return one loaded model, or several as an ensemble."""
    first = loaded[0]
    model = first.model if len(loaded) == 1 else Ensemble([member.model for member in loaded]).eval()
    return Models(files, model, first.tokenizer, [member.config for member in loaded], device, corpora)


def pack(models: Models) -> bytes:
    """Return models as bytes from which another process builds them on its CPU."""
    tokenizer = models.tokenizer.get_state()
    checkpoints = [
        {
            "config": config,
            "tokenizer": tokenizer,
            "state_dict": {f"{PREFIX}{name}": weight for name, weight in member.state_dict().items()},
        }
        for member, config in zip(models.members, models.configs, strict=True)
    ]
    stream = io.BytesIO()
    torch.save({"files": list(map(str, models.files)), "checkpoints": checkpoints}, stream)
    return stream.getvalue()


def unpack(packed: bytes, trust: Trust = ()) -> Models:
    """Return the models that were given to `pack`."""
    content = torch.load(io.BytesIO(packed), weights_only=True)
    files = list(map(Path, content["files"]))
    loaded = [rebuild(one, file, trust) for one, file in zip(content["checkpoints"], files, strict=True)]
    return as_models(files, loaded, torch.device("cpu"))


def load_member(file: Path, trust: Trust) -> tuple[Loaded, str | None]:
    """Return the model of a checkpoint, and the fingerprint of the corpus that it was trained on."""
    checkpoint = read_checkpoint(file)
    return rebuild(checkpoint, file, trust), corpus_of(checkpoint)


def choose_device(name: str) -> torch.device:
    """Return the device of this name; `auto` is the CUDA GPU where there is one, else the CPU.

    Raises:
        UserError: if the device cannot be used.
    """
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if name.partition(":")[0] == "mps":
        raise UserError(f"device={name} {NO_FLOAT64}; use device=cpu")
    try:
        probe = torch.zeros((), device=name)
        probe.item()  # a tensor of device meta holds no number
        return probe.device
    except (RuntimeError, AssertionError) as error:
        raise UserError(
            f"device={name} cannot be used here; use auto, which takes a GPU where there is one, or cpu"
        ) from error
