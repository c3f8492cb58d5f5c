"""Training with JoeyNMT 2.3 for a number of minutes, and its test; started by `minutes.py`.

`python -m scripts.benchmarks.learn_with_joeynmt FOLDER MINUTES`, in JoeyNMT's environment. Its trainer is wrapped to
stop after this time with a last validation, and to work with a torch whose schedulers have no `verbose`.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

from scripts.benchmarks.train_with_joeynmt import write_configuration
from seq2seq_attn.errors import reports_user_errors


@reports_user_errors
def main(folder: Path, minutes: float) -> None:
    settings = json.loads((folder / "settings.json").read_text())
    file = write_configuration(
        settings,
        folder,
        data={"test": str(folder / "test")},
        training={
            **SCHEDULES[settings["model"]](settings),
            "early_stopping_metric": "bleu",
            "validation_freq": settings["validation_updates"],
            "logging_freq": max(1, settings["validation_updates"] // 5),
            "keep_best_ckpts": 1,
            "print_valid_sents": [],
        },
        testing={"eval_metrics": ["bleu"], "beam_size": settings["beam_size"], "beam_alpha": 1.0},
    )

    from joeynmt import builders
    from joeynmt.config import load_config
    from joeynmt.training import TrainManager, train
    from torch.optim.lr_scheduler import ReduceLROnPlateau

    def plateau(*given: Any, verbose: bool, **options: Any) -> ReduceLROnPlateau:
        return ReduceLROnPlateau(*given, **options)  # torch has removed `verbose`

    builders.ReduceLROnPlateau = plateau

    stop_at = time.monotonic() + 60 * minutes
    train_step, train_and_validate = TrainManager._train_step, TrainManager.train_and_validate

    def timed_step(self: Any, batch: Any) -> Any:
        if time.monotonic() > stop_at:
            self.stats.is_max_update = True  # makes it stop after this update
        return train_step(self, batch)

    def then_validated(self: Any, train_data: Any, valid_data: Any) -> None:
        train_and_validate(self, train_data, valid_data)
        self._validate(valid_data)

    TrainManager._train_step, TrainManager.train_and_validate = timed_step, then_validated
    train(rank=0, world_size=None, cfg=load_config(file))


def recurrent(_: dict[str, Any]) -> dict[str, Any]:
    return {"scheduling": "plateau", "patience": 5, "decrease_factor": 0.5}


def transformer(settings: dict[str, Any]) -> dict[str, Any]:
    return {
        "scheduling": "noam",
        "learning_rate_factor": settings["lr"],
        "learning_rate_warmup": settings["warmup_steps"],
    }


SCHEDULES = {"rnn": recurrent, "transformer": transformer}  # as in its own recipes


if __name__ == "__main__":
    main(Path(sys.argv[1]), float(sys.argv[2]))
