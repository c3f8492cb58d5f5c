"""What is built of a configuration: metrics that something updates, and loggers that get no names of folders."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from seq2seq_attn.errors import UserError
from seq2seq_attn.training.build import build_metrics, start_loggers


def test_a_metric_that_nothing_would_update_is_refused() -> None:
    options = {"mean": {"_target_": "seq2seq_attn.metric.token_mean.TokenMean"}}
    with pytest.raises(UserError, match=r"^metric=mean is a TokenMean, which reads no translations; derive it from T"):
        build_metrics({"metric": options})


@pytest.fixture
def told() -> list[dict[str, Any]]:
    return []


def start(told: list[dict[str, Any]], config: dict[str, Any]) -> dict[str, Any]:
    trainer: Any = SimpleNamespace(loggers=[SimpleNamespace(log_hyperparams=told.append)])
    start_loggers(trainer, config)
    return told[-1]


def test_loggers_get_no_folder_of_the_user(told: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/alice")
    config = {
        "paths": {"run_dir": "/data/alice/runs/1", "cache_dir": "data/cache"},
        "callback": {"checkpoint": {"dirpath": "/data/alice/runs/1/checkpoints"}},
        "init_from": {"run": "/data/bob/runs/10", "other": "/data/alice/runs/10"},
        "data": {"train": ["/home/alice/a.en", "data/cache.fr"], "command": "cp --to=/home/alice/b", "seed": 1},
        "mount": "/mnt/home/alice/x",
    }
    options = start(told, config)
    assert options["callback"] == {"checkpoint": {"dirpath": "${paths.run_dir}/checkpoints"}}
    assert options["init_from"] == {"run": "/data/bob/runs/10", "other": "/data/alice/runs/10"}
    assert options["data"] == {"train": ["~/a.en", "data/cache.fr"], "command": "cp --to=~/b", "seed": 1}
    assert options["paths"]["run_dir"] == "${paths.run_dir}"
    assert options["mount"] == "/mnt/home/alice/x"
    assert config["paths"]["run_dir"] == "/data/alice/runs/1"


def test_a_machine_without_a_home_has_loggers_too(told: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HOME")
    monkeypatch.setattr("os.path.expanduser", lambda path: path)
    assert start(told, {"paths": {}, "data": "/a/b"})["data"] == "/a/b"
