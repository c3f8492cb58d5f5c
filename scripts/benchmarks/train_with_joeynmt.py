"""Training with JoeyNMT 2.3, started by `training.py` in a separate environment.

It runs JoeyNMT's trainer as its command does; only the step is wrapped, to count tokens.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import yaml

from scripts.benchmarks.pace_training import Pace, paced_by_optimizer
from seq2seq_attn.errors import reports_user_errors

SPECIALS = [1, 0, 2, 3]  # JoeyNMT's order is unk, pad, begin, end; ours is pad, unk, begin, end
EMBED_INIT_WEIGHT = 0.1  # of its recurrent example


@reports_user_errors
def main(folder: Path) -> None:
    settings = json.loads((folder / "settings.json").read_text())
    file = write_configuration(settings, folder)

    from joeynmt.config import load_config
    from joeynmt.training import TrainManager, train

    def counted(_: Any, batch: Any) -> tuple[int, int]:
        return int(batch.src_length.sum()) + int(batch.ntokens), batch.src.numel() + batch.trg.numel()

    paced_by_optimizer(Pace.of_benchmark(), TrainManager, "_train_step", counted)
    train(rank=0, world_size=None, cfg=load_config(file), skip_test=True)


def write_configuration(settings: dict[str, Any], folder: Path, **changed: dict[str, Any]) -> Path:
    """Write the configuration for the data in the folder, with the vocabulary in JoeyNMT's order.

    Args:
        changed: options that replace those of the benchmark, by section.
    """
    tokens = (folder / "vocabulary.txt").read_text(encoding="utf-8").splitlines()
    ordered = [tokens[i] for i in SPECIALS] + tokens[len(SPECIALS) :]
    (folder / "joeynmt.vocabulary").write_text("".join(f"{token}\n" for token in ordered), encoding="utf-8")
    (folder / "model").mkdir(exist_ok=True)
    config = configuration(settings, folder)
    for section, options in changed.items():
        config[section] |= options
    (folder / "config.yaml").write_text(yaml.safe_dump(config))
    return folder / "config.yaml"


def configuration(settings: dict[str, Any], folder: Path) -> dict[str, Any]:
    data = {
        short: {
            "lang": settings[side],
            "level": "bpe",
            "voc_file": str(folder / "joeynmt.vocabulary"),
            "tokenizer_type": "sentencepiece",
            "tokenizer_cfg": {"model_file": str(folder / "joint.model")},
        }
        for short, side in (("src", "source"), ("trg", "target"))
    }
    never = 1_000_000
    return {
        "name": "benchmark",
        "model_dir": str(folder / "model"),
        "use_cuda": False,
        "random_seed": settings["seed"],
        "data": {"train": str(folder / "train"), "dev": str(folder / "val"), "dataset_type": "plain", **data},
        "training": {
            "optimizer": "adam",
            "adam_betas": [0.9, 0.98],
            "learning_rate": settings["lr"],
            "clip_grad_norm": settings["clip"],
            "label_smoothing": settings["smoothing"],
            "loss": "crossentropy",
            "normalization": "tokens",
            "scheduling": "exponential",
            "epochs": 1000,
            "validation_freq": never,
            "logging_freq": 20,
            # counts the longer side, so padded tokens of both sides are about twice as many
            "batch_type": "token",
            "batch_size": settings["batch_tokens"] // 2,
        },
        "testing": {"batch_size": 64, "batch_type": "sentence"},
        "model": {"tied_embeddings": True, "tied_softmax": True, **SIDES[settings["model"]](settings)},
    }


def transformer(settings: dict[str, Any]) -> dict[str, Any]:
    embeddings = {"embedding_dim": settings["dim"], "scale": True, "dropout": settings["dropout"]}
    side = {
        "type": "transformer",
        "num_layers": settings["layers"],
        "num_heads": settings["heads"],
        "embeddings": embeddings,
        "hidden_size": settings["dim"],
        "ff_size": settings["ff_dim"],
        "dropout": settings["dropout"],
        "layer_norm": "pre",
    }
    return {"encoder": side, "decoder": side}


def recurrent(settings: dict[str, Any]) -> dict[str, Any]:
    embeddings = {"embedding_dim": settings["dim"], "scale": False, "dropout": settings["dropout"]}
    common = {"rnn_type": "gru", "num_layers": 1, "embeddings": embeddings, "dropout": settings["dropout"]}
    return {
        "embed_initializer": "normal",  # as in its configs/rnn_small.yaml; its default is xavier_uniform
        "embed_init_weight": settings.get("embed_init_weight", EMBED_INIT_WEIGHT),
        "encoder": common | {"type": "recurrent", "hidden_size": settings["dim"] // 2, "bidirectional": True},
        "decoder": common
        | {
            "type": "recurrent",
            "hidden_size": settings["dim"],
            "attention": "bahdanau",
            "init_hidden": "bridge",
            "input_feeding": True,
            "hidden_dropout": settings["dropout"],
        },
    }


SIDES = {"transformer": transformer, "rnn": recurrent}


if __name__ == "__main__":
    main(Path(sys.argv[1]))
