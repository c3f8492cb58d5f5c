"""Runs of seconds on one-sided text, in this process."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from configs import compose_train
from small_run import CALLBACKS, TEXT

from seq2seq_attn.training.run import train

SMALL = [
    "data=text", "recipe=none", "metric=[]", "tokenizer.vocab_size=40", "model.embedding_dim=12",
    "model.decoder.dim=12", "model.decoder.num_layers=2", "attention.num_heads=2", "batch_tokens=300",
    "optimizer.lr=0.01", "label_smoothing=0.0", "trainer.max_epochs=2", "trainer=cpu",
    "trainer.enable_progress_bar=false", "trainer.log_every_n_steps=1", "num_threads=1", CALLBACKS,
]  # fmt: skip


def write_text(folder: Path) -> Path:
    """Write lines of two to ten words."""
    words = TEXT.split()
    lines = [" ".join(words[(7 * i + k * (1 + i % 3)) % len(words)] for k in range(2 + i % 9)) for i in range(120)]
    (folder / "text.txt").write_text("".join(f"{line}\n" for line in dict.fromkeys(lines)), encoding="utf-8")
    return folder / "text.txt"


def run_on_text(folder: Path, text: Path, *overrides: str) -> dict[str, Any]:
    """What train.py does with a text file, without Hydra's application around it."""
    folder.mkdir(exist_ok=True)
    given = [f"paths.run_dir='{folder}'", *(f"choices.{name}=null" for name in ("attention", "model", "data"))]
    given += [f"data.train={text}", f"paths.cache_dir={text.parent / 'cache'}"]
    return train(compose_train(*SMALL, *given, *overrides))
