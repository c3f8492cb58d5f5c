"""What `ckpt_path` names, ready on the device that is asked for."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import torch
from omegaconf import DictConfig, OmegaConf

from seq2seq_attn.checkpoint.ensemble import load_ensemble
from seq2seq_attn.checkpoint.load import find_checkpoint
from seq2seq_attn.errors import UserError
from seq2seq_attn.model.encoder_decoder import EncoderDecoder
from seq2seq_attn.model.ensemble import Ensemble
from seq2seq_attn.process import quieten
from seq2seq_attn.tokenizer.sentencepiece import SentencePieceTokenizer

READ = {  # of the run's options
    "metric": dict, "choices": dict, "trainer.precision": (str, int), "seed": int, "batch_tokens": int,
    "label_smoothing": (int, float),
}  # fmt: skip


class Models(NamedTuple):
    """One model or several that decide together; the configuration is that of the first."""

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


def load_models(config: DictConfig) -> Models:
    """By the options ckpt_path, device and num_threads."""
    if OmegaConf.is_missing(config, "ckpt_path"):
        raise UserError("evaluate.py needs ckpt_path=RUN, a run folder or a .ckpt file")
    quieten()
    if config.num_threads:
        torch.set_num_threads(config.num_threads)
    device = choose_device(config.device)
    given = config.ckpt_path
    files = [find_checkpoint(path) for path in ([given] if isinstance(given, str) else given)]
    loaded = load_ensemble([str(file) for file in files])
    return Models(files, *loaded, device)


def choose_device(name: str) -> torch.device:
    """`auto` is a GPU of CUDA where there is one, else the CPU.

    Raises:
        UserError: if there is no such device.
    """
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        return torch.zeros((), device=name).device
    except (RuntimeError, AssertionError) as error:
        raise UserError(f"device={name} cannot be used here; use auto, cpu, cuda or cuda:1") from error
