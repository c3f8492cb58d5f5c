"""What is built of a configuration: metrics that something updates, and loggers that get no names of folders."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from configs import composed
from omegaconf import OmegaConf
from pytorch_lightning.accelerators import CPUAccelerator

from seq2seq_attn.errors import UserError
from seq2seq_attn.training.build import build_metrics, build_trainer, start_loggers


def test_a_metric_that_nothing_would_update_is_refused() -> None:
    options = {"mean": {"_target_": "seq2seq_attn.metric.token_mean.TokenMean"}}
    with pytest.raises(
        UserError, match=r"^metric=mean is a TokenMean, which does not read translations; derive it from T"
    ):
        build_metrics({"metric": options})


def test_a_mac_trains_on_its_cpu_and_the_log_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)
    config: Any = OmegaConf.to_container(composed("trainer.accelerator=auto").trainer)
    with caplog.at_level("INFO"):
        trainer = build_trainer({"trainer": config}, tmp_path)
    assert isinstance(trainer.accelerator, CPUAccelerator)
    sentence = "The GPU of this machine (mps) lacks float64, in which searches sum log-probabilities; the CPU is used"
    assert caplog.messages.count(sentence) == 1
    for asked in ("mps", "gpu"):
        sentence = rf"^trainer.accelerator={asked} is the GPU of a Mac, which lacks float64, .*; use trainer=cpu$"
        with pytest.raises(UserError, match=sentence):
            build_trainer({"trainer": config | {"accelerator": asked}}, tmp_path)


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
