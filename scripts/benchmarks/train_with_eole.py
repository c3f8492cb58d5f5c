"""Training with eole 0.6, started by `training.py` in a separate environment.

It runs eole's trainer as its command does; only the step is wrapped, to count tokens. Packages that it imports for its
server are replaced by mocks.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

from scripts.benchmarks.pace_training import Pace, paced_by_optimizer
from seq2seq_attn.errors import reports_user_errors

NOT_USED = ("fastapi", "fastapi.responses", "fastapi.middleware", "fastapi.middleware.cors", "uvicorn")
NEVER = 1_000_000


@reports_user_errors
def main(folder: Path) -> None:
    settings = json.loads((folder / "settings.json").read_text())
    sys.modules |= {name: MagicMock() for name in NOT_USED}
    vocabulary = (folder / "vocabulary.txt").read_text(encoding="utf-8").splitlines()
    (folder / "eole.vocabulary").write_text("".join(f"{token}\n" for token in vocabulary[4:]), "utf-8")

    from eole.bin.run.train import train
    from eole.config.run import TrainConfig
    from eole.trainer import BatchProcessor

    def counted(processor: Any, batch: dict[str, Any], *_: Any) -> tuple[int, int]:
        source, target, pad = batch["src"], batch["tgt"][:, 1:], processor.train_loss.padding_idx
        # the source has no end tokens here; count them as in the other programs
        tokens = int(batch["srclen"].sum()) + int((target != pad).sum()) + len(source)
        return tokens, source.numel() + target.numel() + len(source)

    paced_by_optimizer(Pace.of_benchmark(), BatchProcessor, "process_batch", counted)
    train(TrainConfig(**configuration(settings, folder)))


def configuration(settings: dict[str, Any], folder: Path) -> dict[str, Any]:
    paths = {
        name: f"{folder}/tokens.{settings[side]}" for name, side in (("path_src", "source"), ("path_tgt", "target"))
    }
    return {
        "data": {"corpus": {**paths, "transforms": [], "weight": 1}},
        "seed": settings["seed"],
        "report_every": 20,
        "src_vocab": str(folder / "eole.vocabulary"),
        "share_vocab": True,
        "src_vocab_size": settings["tokens"],
        "tgt_vocab_size": settings["tokens"],
        "vocab_size_multiple": 1,
        "model": SIDES[settings["model"]](settings)
        | {"share_embeddings": True, "share_decoder_embeddings": True, "hidden_size": settings["dim"]},
        "training": {
            "model_path": str(folder / "model"),
            "world_size": 1,
            "gpu_ranks": [],
            "num_workers": 0,
            "dropout": [settings["dropout"]],
            "attention_dropout": [0.0],
            "label_smoothing": settings["smoothing"],
            "max_grad_norm": settings["clip"],
            "optim": "adam",
            "adam_beta2": 0.98,
            "learning_rate": settings["lr"],
            "decay_method": "none",
            "normalization": "tokens",
            "accum_count": [1],
            "compute_dtype": "fp32",
            # counts the longer side with its begin token; both sides then have about batch_tokens; a bucket is an epoch
            "batch_type": "tokens",
            "batch_size": settings["batch_tokens"] * 7 // 12,
            "bucket_size": settings["sentences"],
            "train_steps": NEVER,
            "valid_steps": NEVER,
            "save_checkpoint_steps": NEVER,
        },
    }


def transformer(settings: dict[str, Any]) -> dict[str, Any]:
    return {
        "architecture": "transformer",
        "layers": settings["layers"],
        "heads": settings["heads"],
        "transformer_ff": settings["ff_dim"],
        "add_ffnbias": True,
        "embeddings": {"word_vec_size": settings["dim"], "position_encoding_type": "SinusoidalInterleaved"},
    }


def recurrent(settings: dict[str, Any]) -> dict[str, Any]:
    return {
        "architecture": "custom",
        "layers": 1,
        "input_feed": 1,
        "embeddings": {"word_vec_size": settings["dim"]},
        "encoder": {"encoder_type": "brnn", "rnn_type": "GRU"},  # its bridge supports only one direction
        "decoder": {"decoder_type": "rnn", "rnn_type": "GRU", "global_attention": "mlp"},
    }


SIDES = {"transformer": transformer, "rnn": recurrent}


if __name__ == "__main__":
    main(Path(sys.argv[1]))
