"""Checkpoints of small untrained models, whose choices are no near-ties."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import torch
from configs import built, composed
from omegaconf import OmegaConf

from seq2seq_attn.checkpoint.load import FORMAT
from seq2seq_attn.tokenizer.sentencepiece import SentencePieceTokenizer

TEXT = "the cat sees a red house and small dogs hear some birds where is my old book we like water very much"
WORDS = TEXT.split()
SENTENCES = [" ".join(WORDS[(7 * i + 3 * k) % len(WORDS)] for k in range(2 + i % 9)) for i in range(60)]


@cache
def tokenizer() -> SentencePieceTokenizer:
    made = SentencePieceTokenizer("unigram", 45, True, 0.0, None)
    made.train(SENTENCES, SENTENCES[::-1])
    return made


def of_text(notes: list[str]) -> list[str]:
    """Return the notes but that of a limit of length, to which an untrained model writes."""
    return [note for note in notes if " may be cut at " not in note]


def write_checkpoint(file: Path, *overrides: str, seed: int = 3, scale: float = 3.0) -> Path:
    """As a run writes one, but for training."""
    size = tokenizer().source_vocab_size
    config: Any = composed(
        f"model.source_vocab_size={size}",
        f"model.target_vocab_size={size}",
        "model.embedding_dim=16",
        "model.tie_embeddings=none",
        *(["model.encoder.dim=16"] if "model=lm" not in overrides else []),
        "model.decoder.dim=16",
        *overrides,
    )
    torch.manual_seed(seed)
    model = built(config.model)
    for parameter in model.parameters():
        parameter.data *= scale
    torch.save(
        {
            "format": FORMAT,
            "config": {
                name: OmegaConf.to_container(config[name], resolve=True) for name in ("model", "search", "data")
            },
            "state_dict": {f"model.{name}": weight for name, weight in model.state_dict().items()},
            "tokenizer": tokenizer().get_state(),
        },
        file,
    )
    return file
