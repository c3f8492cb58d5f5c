"""Every trainer preset is one that Lightning takes, and every command of the page about devices composes."""

from __future__ import annotations

import re
import shlex

import pytest
import pytorch_lightning as pl
from configs import ROOT, built, composed, options
from pytorch_lightning.strategies import DDPStrategy, SingleDeviceStrategy

PAGE = (ROOT / "docs" / "devices.md").read_text("utf-8")
COMMANDS = re.findall(r"train\.py (.+)", "\n".join(re.findall(r"^```\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)))
STRATEGIES = {
    "cpu": (SingleDeviceStrategy, 1), "ddp_cpu": (DDPStrategy, 2),
    "gpu": (SingleDeviceStrategy, 1), "ddp": (DDPStrategy, 3),
}  # fmt: skip


def test_every_preset_is_tried() -> None:
    assert set(STRATEGIES) == set(options("trainer")) - {"default"}


@pytest.mark.parametrize("name", list(STRATEGIES))
def test_lightning_takes_a_preset_with_all_of_its_options(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    kind, devices = STRATEGIES[name]
    preset = composed(f"trainer={name}").trainer
    for library in ("lightning_fabric", "pytorch_lightning"):  # all that Lightning asks before a run
        monkeypatch.setattr(f"{library}.accelerators.cuda.num_cuda_devices", lambda: 3 * (preset.accelerator == "gpu"))
    assert set(preset) == set(composed().trainer)
    trainer: pl.Trainer = built(preset)
    assert type(trainer.strategy) is kind
    assert trainer.world_size == devices
    assert trainer.accelerator.name() == ("cuda" if name in ("gpu", "ddp") else "cpu")


def test_a_preset_leaves_the_length_of_a_run_to_the_recipe() -> None:
    assert composed("trainer=ddp_cpu", "data=multi30k").trainer.max_epochs == (
        composed("data=multi30k").trainer.max_epochs
    )


def test_there_are_commands_to_try() -> None:
    assert len(COMMANDS) >= 11
    assert all(f"`trainer={name}`" in PAGE for name in options("trainer"))


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_of_the_page_composes(command: str) -> None:
    overrides = [word for word in shlex.split(command) if word != "-m" and not word.startswith("hydra.run.dir=")]
    config = composed(*(override.partition(",")[0] if "[" not in override else override for override in overrides))
    assert config.trainer.accelerator in ("cpu", "gpu")
