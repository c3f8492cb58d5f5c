"""The models that `ckpt_path` names, and the device that they run on."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch

from seq2seq_attn.checkpoint.ensemble import load_ensemble
from seq2seq_attn.checkpoint.load import find_checkpoint
from seq2seq_attn.errors import UserError
from seq2seq_attn.model.encoder_decoder import EncoderDecoder
from seq2seq_attn.model.ensemble import Ensemble
from seq2seq_attn.tokenizer.sentencepiece import SentencePieceTokenizer


class Models(NamedTuple):
    """One model or an ensemble, with the configuration of the first; `device` is where it is to run."""

    files: list[Path]
    model: EncoderDecoder | Ensemble
    tokenizer: SentencePieceTokenizer
    config: dict[str, Any]
    device: torch.device

    @property
    def members(self) -> list[EncoderDecoder]:
        if isinstance(self.model, EncoderDecoder):
            return [self.model]
        return list(self.model.members)  # type: ignore[arg-type]


def load_models(paths: Sequence[str], device: str) -> Models:
    """Load checkpoints onto the CPU."""
    chosen = choose_device(device)
    files = [find_checkpoint(path) for path in paths]
    return Models(files, *load_ensemble([str(file) for file in files]), chosen)


def choose_device(name: str) -> torch.device:
    """Return the device of this name; `auto` is the CUDA GPU where there is one, else the CPU.

    Raises:
        UserError: if the device cannot be used.
    """
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        return torch.zeros((), device=name).device
    except (RuntimeError, AssertionError) as error:
        raise UserError(f"device={name} cannot be used here; use auto, cpu, cuda or cuda:1") from error
