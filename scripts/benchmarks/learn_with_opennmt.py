"""Training with OpenNMT-py 3.5.1 for a number of minutes, and its translations; started by `minutes.py`.

`python -m scripts.benchmarks.learn_with_opennmt FOLDER MINUTES`, in OpenNMT's environment, trains; its trainer is
wrapped to save and stop after this time. Without MINUTES each checkpoint translates the validation set, greedily, and
the one with the best BLEU translates the test set, by beam search.
"""

from __future__ import annotations

import json
import os
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from sacrebleu import corpus_bleu
from sentencepiece import SentencePieceProcessor

from scripts.benchmarks.peer_data import lines_of
from scripts.benchmarks.train_with_opennmt import NEVER, mock_unused, write_configuration
from seq2seq_attn.errors import reports_user_errors
from seq2seq_attn.files import replacing

SPACE = "▁"  # of SentencePiece's pieces


@reports_user_errors
def main(folder: Path, minutes: float | None = None) -> None:
    settings = json.loads((folder / "settings.json").read_text())
    mock_unused()
    if minutes is None:
        translate_all(settings, folder)
    else:
        train(settings, folder, minutes)


def train(settings: dict[str, Any], folder: Path, minutes: float) -> None:
    """Train with OpenNMT's command, whose checkpoints are model_step_N.pt; the last one is made when the time is up."""
    file = write_configuration(
        settings,
        folder,
        save_checkpoint_steps=settings["validation_updates"],
        keep_checkpoint=NEVER,
        report_every=settings["validation_updates"],
        average_decay=settings["average_decay"],
        **SCHEDULES[settings["model"]](settings),
    )

    from onmt.bin.train import _get_parser, train
    from onmt.trainer import Trainer

    stop_at = time.monotonic() + 60 * minutes
    update = Trainer._gradient_accumulation

    def timed(trainer: Any, *given: Any) -> None:
        if time.monotonic() > stop_at:
            trainer.model_saver.save(trainer.optim.training_step - 1, moving_average=trainer.moving_average)
            raise TimeIsUpError
        update(trainer, *given)

    Trainer._gradient_accumulation = timed
    options, _ = _get_parser().parse_known_args(["-config", str(file)])
    with suppress(TimeIsUpError):
        train(options)


class TimeIsUpError(Exception):
    """Ends OpenNMT's training."""


def recurrent(settings: dict[str, Any]) -> dict[str, Any]:
    """Halve the rate again and again, as OpenNMT does by default, but after so few updates as there is time for."""
    decay = {"start_decay_steps": settings["decay_after"], "decay_steps": settings["decay_every"]}
    return decay | {"learning_rate_decay": 0.5}


def transformer(settings: dict[str, Any]) -> dict[str, Any]:
    return {"decay_method": "noam", "warmup_steps": settings["warmup_steps"]}


SCHEDULES = {"rnn": recurrent, "transformer": transformer}


def translate_all(settings: dict[str, Any], folder: Path) -> None:
    """Write the translations of all checkpoints into model/, and those of the best one of the test set."""
    os.environ["TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD"] = "1"  # its checkpoints have options that it pickles
    pieces = {split: write_pieces(settings, folder, split) for split in ("val", "test")}
    references = lines_of(folder / f"val.{settings['target']}")
    scores = {}
    for checkpoint in sorted(folder.glob("model_step_*.pt"), key=updates_of):
        translations = translated(checkpoint, pieces["val"], beam_size=1)
        write_lines(translations, folder / "model" / f"{updates_of(checkpoint)}.hyps")
        scores[checkpoint] = corpus_bleu(translations, [references]).score
    best = max(scores, key=lambda checkpoint: scores[checkpoint])
    tests = translated(best, pieces["test"], beam_size=settings["beam_size"])
    write_lines(tests, folder / "model" / "best.hyps.test")


def write_pieces(settings: dict[str, Any], folder: Path, split: str) -> Path:
    tokenizer = SentencePieceProcessor(model_file=str(folder / "joint.model"))
    lines = lines_of(folder / f"{split}.{settings['source']}")
    pieces = folder / f"{split}.pieces"
    write_lines([" ".join(tokenizer.encode(line, out_type=str)) for line in lines], pieces)
    return pieces


def translated(checkpoint: Path, source: Path, *, beam_size: int) -> list[str]:
    from onmt.bin.translate import _get_parser, translate

    output = checkpoint.with_suffix(".pieces")
    given = {"model": checkpoint, "src": source, "output": output, "beam_size": beam_size, "batch_size": 64}
    words = [word for key, value in given.items() for word in (f"-{key}", str(value))]
    translate(_get_parser().parse_args(words))
    return [line.replace(" ", "").replace(SPACE, " ").strip() for line in lines_of(output)]


def updates_of(checkpoint: Path) -> int:
    return int(checkpoint.stem.rpartition("_")[2])


def write_lines(lines: list[str], file: Path) -> None:
    with replacing(file) as stream:
        stream.write("".join(f"{line}\n" for line in lines).encode())


if __name__ == "__main__":
    main(Path(sys.argv[1]), *map(float, sys.argv[2:]))
