"""Checkpoints of small untrained models, as a run would write them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from configs import composed
from hydra.utils import instantiate
from omegaconf import OmegaConf

from seq2seq_attn.checkpoint.load import FORMAT
from seq2seq_attn.tokenizer.sentencepiece import SentencePieceTokenizer

SENTENCES = ["the red house", "a dog sees the cat", "she hears water"]
SMALL = ("model.embedding_dim=11", "model.encoder.dim=14", "model.decoder.dim=14", "model.tie_embeddings=target")


def small_tokenizer(sentences: list[str]) -> SentencePieceTokenizer:
    tokenizer = SentencePieceTokenizer("char", 50, joint=True, sampling_alpha=0.0, cache_dir=None)
    tokenizer.train(sentences, sentences)
    return tokenizer


def write_checkpoint(
    file: Path, *overrides: str, seed: int = 0, step: int = 1, sentences: list[str] = SENTENCES
) -> dict[str, Any]:
    """Write it, and return it."""
    tokenizer = small_tokenizer(sentences)
    sizes = [f"model.{side}_vocab_size={tokenizer.target_vocab_size}" for side in ("source", "target")]
    config = composed(*SMALL, *sizes, *overrides)
    parts: dict[str, Any] = {
        name: OmegaConf.to_container(config[name], resolve=True) for name in ("model", "search", "data")
    }
    torch.manual_seed(seed)
    model = instantiate(parts["model"], _convert_="all")
    checkpoint = {
        "format": FORMAT,
        "config": parts,
        "tokenizer": tokenizer.get_state(),
        "global_step": step,
        "state_dict": {f"model.{name}": weight for name, weight in model.state_dict().items()},
    }
    file.parent.mkdir(parents=True, exist_ok=True)
    torch.save(checkpoint, file)
    return checkpoint
