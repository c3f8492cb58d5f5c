"""All that Lightning saves, loads and removes goes the way of our files."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
import pytorch_lightning as pl
import torch
from checkpoint.test_checkpoint_file import NAMES, latest, names
from configs import composed
from omegaconf import OmegaConf
from pytorch_lightning.callbacks import ModelCheckpoint
from pytorch_lightning.plugins.environments import LightningEnvironment
from torch import Tensor, nn

from seq2seq_attn.checkpoint.checkpoint_file import AtomicCheckpointIO, damage, read_tensors
from seq2seq_attn.errors import UserError
from seq2seq_attn.training.build import build_trainer


class Steps(pl.LightningModule):
    """One weight that moves; `score` is the best at step 3."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(1, 1)

    def training_step(self, batch: Tensor, batch_idx: int) -> Tensor:
        self.log("score", -abs(3.0 - batch_idx - 1))
        return self.layer(batch).sum()

    def configure_optimizers(self) -> Any:
        return torch.optim.SGD(self.parameters(), lr=0.1)


def trained(folder: Path, steps: int = 5, ckpt_path: Path | None = None, **options: Any) -> pl.Trainer:
    callback = ModelCheckpoint(
        dirpath=folder, monitor="score", mode="max", every_n_train_steps=1, auto_insert_metric_name=False, **options
    )
    trainer = pl.Trainer(
        max_steps=steps,
        max_epochs=1,
        accelerator="cpu",
        callbacks=[callback],
        plugins=[AtomicCheckpointIO(folder)],
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        default_root_dir=folder,
    )
    module: Any = Steps()
    batches: Any = torch.utils.data.DataLoader(torch.ones(7, 1))  # type: ignore[arg-type]
    trainer.fit(module, batches, ckpt_path=ckpt_path, weights_only=False)
    return trainer


pytestmark = pytest.mark.filterwarnings(
    "ignore:.*does not have many workers",
    "ignore:.*logging interval",
    "ignore:.*exists and is not empty",
    "ignore:.*treespec",
    "ignore:You're resuming from a checkpoint that ended before the epoch",
)


def steps_saved(folder: Path) -> dict[str, int]:
    return {file.name: read_tensors(file)["global_step"] for file in folder.glob("*.ckpt")}


def test_best_and_last_are_whole_files_and_what_they_replace_goes(tmp_path: Path) -> None:
    trainer = trained(tmp_path, filename="step={step}", save_top_k=2, save_last=True)
    expected = {"last.ckpt": 5, "previous.ckpt": 4, "step=3.ckpt": 3, "step=2.ckpt": 2}
    assert steps_saved(tmp_path) == expected
    assert names(tmp_path) == NAMES | {"step=2.ckpt", "step=3.ckpt"}
    trainer.save_checkpoint(tmp_path / "own.ckpt")
    assert steps_saved(tmp_path) == expected | {"own.ckpt": 5}


def test_last_may_be_a_link(tmp_path: Path) -> None:
    trainer = trained(tmp_path, filename="best", save_top_k=1, save_last="link", enable_version_counter=False)
    assert (tmp_path / "last.ckpt").is_symlink()
    assert latest(tmp_path) == tmp_path / "last.ckpt"
    assert names(tmp_path) == {"best.ckpt", "last.ckpt"}
    trainer.save_checkpoint(tmp_path / "last.ckpt")
    assert not (tmp_path / "last.ckpt").is_symlink()
    assert steps_saved(tmp_path) == {"best.ckpt": 3, "previous.ckpt": 3, "last.ckpt": 5}
    os.truncate(tmp_path / "last.ckpt", 100)
    assert latest(tmp_path) == tmp_path / "previous.ckpt"


def test_a_run_goes_on_from_a_file_that_is_whole_and_from_no_other(tmp_path: Path) -> None:
    trained(tmp_path, steps=2, save_last=True)
    trainer = trained(tmp_path, steps=5, ckpt_path=tmp_path / "last.ckpt", save_last=True)
    assert trainer.global_step == 5
    assert damage(tmp_path / "last.ckpt") is None
    os.truncate(tmp_path / "last.ckpt", 100)
    with pytest.raises(UserError, match=r"last.ckpt is not a readable checkpoint"):
        trained(tmp_path, ckpt_path=tmp_path / "last.ckpt", save_last=True)


class Hostile:
    """What a pickle can hold: a call."""

    def __init__(self, folder: Path) -> None:
        self.folder = str(folder)

    def __reduce__(self) -> tuple[Any, tuple[str]]:
        return os.mkdir, (self.folder,)


def test_lightning_cannot_be_made_to_run_a_pickle(tmp_path: Path) -> None:
    torch.save({"state_dict": Hostile(tmp_path / "ran")}, tmp_path / "hostile.ckpt")
    with pytest.raises(UserError, match=r"hostile.ckpt asks for posix.mkdir, which is no plain data; it was not"):
        trained(tmp_path, ckpt_path=tmp_path / "hostile.ckpt")
    assert not (tmp_path / "ran").exists()


def hostile_names(folder: Path) -> list[str]:
    """Names of a victim outside the folder, each in another way; each victim holds one file."""
    for victim in ("victim", "victim::a", "linked"):
        (folder.parent / victim).mkdir()
        (folder.parent / victim / "kept.ckpt").write_text("mine")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "out").symlink_to(folder.parent / "linked", target_is_directory=True)
    (folder / "leads-out.ckpt").symlink_to(folder.parent / "linked", target_is_directory=True)
    (folder / "shards.ckpt").mkdir()
    (folder / "shards.ckpt" / "kept.ckpt").write_text("mine")
    named = ["../victim", "../victim/kept.ckpt", "out", "out/kept.ckpt", "leads-out.ckpt", "shards.ckpt", ".."]
    absolute = [folder.parent / "victim", folder.parent / "victim::a", folder.parent / "victim/kept.ckpt", folder]
    return [*(f"{folder}/{name}" for name in named), *map(str, absolute)]


def every_file(folder: Path) -> list[str]:
    return sorted(str(file.relative_to(folder)) for file in folder.rglob("*.ckpt"))


def test_no_folder_is_removed_and_no_file_outside_that_the_run_did_not_write(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = tmp_path / "checkpoints"
    victims = hostile_names(folder)
    before = every_file(tmp_path)
    for victim in victims:
        caplog.clear()
        AtomicCheckpointIO(folder).remove_checkpoint(victim)
        assert caplog.messages == [f"{victim} was not written by this run; it is not deleted"]
    assert every_file(tmp_path) == before


def test_a_run_removes_its_files_of_before_it_was_resumed_and_those_it_writes_elsewhere(tmp_path: Path) -> None:
    folder, elsewhere = tmp_path / "checkpoints", tmp_path / "elsewhere"
    AtomicCheckpointIO(folder).save_checkpoint({}, folder / "step=3.ckpt")
    (tmp_path / "linked").symlink_to(tmp_path)
    resumed = AtomicCheckpointIO(tmp_path / "linked" / "checkpoints")
    resumed.save_checkpoint({}, elsewhere / "step=4.ckpt")
    for file in (folder / "step=3.ckpt", elsewhere / "step=4.ckpt"):
        resumed.remove_checkpoint(file)
    assert names(folder) == names(elsewhere) == set()


def test_a_position_on_the_network_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match=r"^s3://bucket/last.ckpt is not a local file, and checkpoints are kept o"):
        AtomicCheckpointIO(tmp_path).save_checkpoint({}, "s3://bucket/last.ckpt")
    assert names(tmp_path) == set()


@pytest.mark.parametrize("given", ["null", "[{_target_: pytorch_lightning.plugins.environments.LightningEnvironment}]"])
def test_a_run_saves_by_it_beside_plugins_of_the_users(given: str, tmp_path: Path) -> None:
    chosen = composed("trainer=cpu", f"trainer.plugins={given}", "trainer.enable_progress_bar=false")
    trainer = build_trainer({"trainer": OmegaConf.to_container(chosen.trainer)}, tmp_path)
    assert isinstance(trainer.strategy.checkpoint_io, AtomicCheckpointIO)
    connector: Any = trainer._accelerator_connector
    assert isinstance(connector._cluster_environment_flag, LightningEnvironment) == (given != "null")
