"""scripts/wandb_sweep.yaml: what W&B's agent makes of it is a run of train.py."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from child import done
from configs import ROOT, composed, options
from logger.test_wandb_run import files, read, values
from training.test_run import SMALL

from seq2seq_attn.logger.wandb_logger import end_process
from seq2seq_attn.training.monitor import validation_figures

SWEEP = yaml.safe_load((ROOT / "examples" / "wandb_sweep.yaml").read_text("utf-8"))


def drawn(parameter: dict[str, Any], first: bool) -> Any:
    """A value that W&B may draw: the first or the last, or one in the middle."""
    if "values" in parameter:
        return parameter["values"][0 if first else -1]
    return parameter["value"] if "value" in parameter else (parameter["min"] + parameter["max"]) / 2


def command(run_id: str, first: bool) -> list[str]:
    """As `wandb_agent.Agent._command_run` puts it together."""
    from wandb.sdk.launch.sweeps.utils import create_sweep_command, create_sweep_command_args  # a second to import

    given = {name: {"value": drawn(parameter, first)} for name, parameter in SWEEP["parameters"].items()}
    macros: dict[str, Any] = create_sweep_command_args({"args": given, "run_id": run_id})
    macros |= {"env": ["/usr/bin/env"], "interpreter": ["python"], "program": [SWEEP["program"]]}
    parts = [str(part) for part in create_sweep_command(list(SWEEP["command"]))]
    return [
        word
        for part in parts
        for word in (macros[part[2:-1]] if part.startswith("${") and part.endswith("}") else [part])
    ]


def test_every_parameter_is_an_override_with_values_that_compose() -> None:
    assert set(SWEEP["parameters"]["attention"]["values"]) < set(options("attention"))
    for first in (True, False):
        overrides = [word for word in command("any", first)[3:] if not word.startswith("hydra.")]
        config = composed(*overrides)
        preset = drawn(SWEEP["parameters"]["attention"], first)
        assert config.attention == composed(f"attention={preset}").attention
        assert config.model.dropout == 0.25
        assert 0.0003 < config.optimizer.lr < 0.01


def test_the_metric_is_one_that_a_run_logs_and_its_best_is_kept() -> None:
    config = composed(*(word for word in command("any", first=True)[3:] if not word.startswith("hydra.")))
    better = validation_figures(config)[SWEEP["metric"]["name"]]
    assert better == {"maximize": "max", "minimize": "min"}[SWEEP["metric"]["goal"]]


@pytest.mark.slow
def test_the_agents_command_line_is_a_run_of_the_id_that_it_waits_for(tmp_path: Path, pairs: list[str]) -> None:
    words = command("asked4it", first=True)
    assert words[:3] == ["/usr/bin/env", "python", "train.py"]
    (folder,) = [word.partition("=")[2] for word in words if word.startswith("hydra.run.dir=")]
    here = [f"hydra.run.dir={tmp_path}/{folder}", "debug=fast", *SMALL, "data=parallel", *pairs]
    here += ["tokenizer.vocab_size=40"]
    agent = {"WANDB_MODE": "offline", "WANDB_RUN_ID": "asked4it", "WANDB_SWEEP_ID": "any", "WANDB_PROJECT": "its-own"}
    end_process()  # W&B's process of other tests, which a child would speak to
    answer = done(ROOT / words[2], *words[3:], *here, folder=ROOT, environment=agent)
    assert answer.returncode == 0, answer.stderr
    (file,) = files(tmp_path / "runs" / "wandb" / "asked4it")
    run = read(file)
    assert (run.run.run_id, run.run.project, run.run.sweep_id) == ("asked4it", "its-own", "any")
    assert run.config["optimizer"]["lr"] == drawn(SWEEP["parameters"]["optimizer.lr"], True)
    results = json.loads((run.folder / "results.json").read_text("utf-8"))
    assert list(values(run.history, "test/bleu").values()) == [results["test/bleu"]]
