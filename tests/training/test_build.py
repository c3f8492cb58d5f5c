"""What is built of a configuration: metrics that something updates, and loggers that get no names of folders."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from seq2seq_attn.errors import UserError
from seq2seq_attn.training.build import build_metrics, start_loggers


def test_a_metric_that_nothing_would_update_is_refused() -> None:
    options = {"mean": {"_target_": "seq2seq_attn.metric.token_mean.TokenMean"}}
    with pytest.raises(
        UserError, match=r"^metric=mean is a TokenMean, which does not read translations; derive it from T"
    ):
        build_metrics({"metric": options})


def test_loggers_get_no_folder_of_this_machine() -> None:
    told: list[dict[str, Any]] = []
    trainer: Any = SimpleNamespace(loggers=[SimpleNamespace(log_hyperparams=told.append)])
    config = {
        "paths": {"run_dir": "/data/alice/runs/1", "cache_dir": "data/cache"},
        "callback": {"checkpoint": {"dirpath": "/data/alice/runs/1/checkpoints"}},
        "data": {"train": ["/home/alice/a.en", "~/b.fr"], "seed": 1},
    }
    start_loggers(trainer, config)
    (options,) = told
    assert options["paths"] == {"run_dir": "1", "cache_dir": "data/cache"}
    assert options["callback"] == {"checkpoint": {"dirpath": "checkpoints"}}
    assert options["data"] == {"train": ["a.en", "b.fr"], "seed": 1}
    assert config["paths"]["run_dir"] == "/data/alice/runs/1"
