"""Training with OpenNMT-py 3.5.1, started by `training.py` in a separate environment.

It runs OpenNMT's trainer as its command does; only the step is wrapped, to count tokens. Packages that it imports for
unused transforms are replaced by mocks.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import yaml

from scripts.benchmarks.pace_training import Pace, paced_by_optimizer
from seq2seq_attn.errors import reports_user_errors

NOT_USED = ("ahocorasick", "fasttext", "rapidfuzz", "spacy")
NEVER = 1_000_000


@reports_user_errors
def main(folder: Path) -> None:
    settings = json.loads((folder / "settings.json").read_text())
    mock_unused()
    file = write_configuration(settings, folder)

    from onmt.bin.train import _get_parser, train
    from onmt.trainer import Trainer

    pad = 1  # after the unknown token, in its order of specials

    def counted(manager: Any, batches: list[Any], *_: Any) -> tuple[int, int]:
        (batch,) = batches
        source, target = batch["src"], batch["tgt"][:, 1:]
        # the source has no end tokens here; count them as in the other programs
        tokens = int(batch["srclen"].sum()) + int((target != pad).sum()) + len(source)
        return tokens, source.numel() + target.numel() + len(source)

    paced_by_optimizer(Pace.of_benchmark(), Trainer, "_gradient_accumulation", counted)
    options, _ = _get_parser().parse_known_args(["-config", str(file)])
    train(options)


def mock_unused() -> None:
    sys.modules |= {name: MagicMock() for name in NOT_USED}


def write_configuration(settings: dict[str, Any], folder: Path, **changed: Any) -> Path:
    """Write the configuration for the data in the folder, and the vocabulary without OpenNMT's own tokens.

    Args:
        changed: options that replace those of the benchmark.
    """
    vocabulary = (folder / "vocabulary.txt").read_text(encoding="utf-8").splitlines()
    (folder / "opennmt.vocabulary").write_text("".join(f"{token}\n" for token in vocabulary[4:]), "utf-8")
    file = folder / "config.yaml"
    file.write_text(yaml.safe_dump(configuration(settings, folder) | SIDES[settings["model"]](settings) | changed))
    return file


def configuration(settings: dict[str, Any], folder: Path) -> dict[str, Any]:
    paths = {
        name: f"{folder}/tokens.{settings[side]}" for name, side in (("path_src", "source"), ("path_tgt", "target"))
    }
    return {
        "data": {"corpus": {**paths, "transforms": [], "weight": 1}},
        "save_model": str(folder / "model"),
        "src_vocab": str(folder / "opennmt.vocabulary"),
        "share_vocab": True,
        "src_vocab_size": settings["tokens"],
        "tgt_vocab_size": settings["tokens"],
        "share_embeddings": True,
        "share_decoder_embeddings": True,
        "word_vec_size": settings["dim"],
        "hidden_size": settings["dim"],
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
        "world_size": 1,
        "gpu_ranks": [],
        "num_workers": 0,
        # counts the longer side with its begin token; both sides then have about batch_tokens; a bucket is an epoch
        "batch_type": "tokens",
        "batch_size": settings["batch_tokens"] * 7 // 12,
        "bucket_size": settings["sentences"],
        "train_steps": NEVER,
        "valid_steps": NEVER,
        "save_checkpoint_steps": NEVER,
        "report_every": 20,
        "seed": settings["seed"],
    }


def transformer(settings: dict[str, Any]) -> dict[str, Any]:
    return {
        "encoder_type": "transformer",
        "decoder_type": "transformer",
        "layers": settings["layers"],
        "heads": settings["heads"],
        "transformer_ff": settings["ff_dim"],
        "position_encoding": True,
        "param_init": 0.0,  # and thus its layer normalizations begin as such
        "param_init_glorot": True,
    }


def recurrent(settings: dict[str, Any]) -> dict[str, Any]:
    return {
        "encoder_type": "brnn",
        "decoder_type": "rnn",
        "rnn_type": "GRU",
        "layers": 1,
        "global_attention": "mlp",
        "input_feed": 1,
        "bridge": True,
    }


SIDES = {"transformer": transformer, "rnn": recurrent}


if __name__ == "__main__":
    main(Path(sys.argv[1]))
