"""docs/optimizers.md: every optimizer and schedule of conf/ is on it, and its commands compose."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
import torch
from configs import CONF, ROOT, built, composed, options
from hydra import compose, initialize_config_dir

from seq2seq_attn.options import TRAIN, check_options
from seq2seq_attn.paths import search_path

PAGE = (ROOT / "docs" / "optimizers.md").read_text("utf-8")
COMMANDS = re.findall(r"^python train\.py (?!--config-dir)(.+)$", PAGE, re.MULTILINE)
CHOSEN = set(re.findall(r"^\| `(\w+)`", PAGE, re.MULTILINE))


def test_every_optimizer_and_every_schedule_is_on_the_page() -> None:
    assert set(options("optimizer")) | set(options("scheduler")) <= CHOSEN
    assert len(COMMANDS) >= 8


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_of_the_page_composes_and_its_options_are_of_the_right_types(command: str) -> None:
    config = composed(*shlex.split(command), "paths.run_dir=run")
    check_options(config, {name: TRAIN[name] for name in ("optimizer", "scheduler")})


def test_the_schedule_of_ones_own_halves_the_rate(tmp_path: Path) -> None:
    (command,) = re.findall(r"^python train\.py --config-dir conf (.+)$", PAGE, re.MULTILINE)
    ((name, text),) = re.findall(r"`(conf/\S+)`\. .+?\n\n```yaml\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    (tmp_path / name).parent.mkdir(parents=True)
    (tmp_path / name).write_text(text, encoding="utf-8")
    with initialize_config_dir(str(CONF), version_base="1.3"):
        config = compose("train", [search_path(tmp_path / "conf"), *shlex.split(command), "scheduler.step_size=2"])
    check_options(config, {"scheduler": TRAIN["scheduler"]})
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=0.8)
    scheduler = built(config.scheduler)(optimizer)
    rates = []
    for _ in range(5):
        rates.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        scheduler.step()
    assert rates == [0.8, 0.8, 0.4, 0.4, 0.2]
