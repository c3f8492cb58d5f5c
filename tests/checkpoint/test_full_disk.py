"""A disk that is full or may not be written: one sentence, and the last good checkpoint remains."""

from __future__ import annotations

import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from checkpoint.test_checkpoint_file import NAMES, latest, names, save, step_of
from configs import ROOT
from forked import READ_ONLY, REMOUNT, in_small_tmpfs, mount
from training.test_run import SMALL

from seq2seq_attn.checkpoint.checkpoint_file import prepare_run_folder, read_tensors
from seq2seq_attn.errors import UserError

pytestmark = pytest.mark.filterwarnings("ignore:.*use of fork:DeprecationWarning")


@pytest.mark.parametrize("name", ["last.ckpt", "best.ckpt"])
@pytest.mark.parametrize(("numbers", "text"), [(600_000, ""), (3, "x" * 2_400_000)], ids=["tensors", "text"])
def test_a_full_disk_is_one_sentence_and_the_last_good_ones_stand(
    name: str, numbers: int, text: str, tmp_path: Path
) -> None:
    def claim(folder: Path) -> None:
        save(folder, 1, 2, numbers=20_011)
        before = shutil.disk_usage(folder).free
        says = (
            rf"{name} cannot be written \(No space left on device\); the checkpoints there are unchanged, so make room"
        )
        with pytest.raises(UserError, match=says):
            save(folder, 3, name=name, numbers=numbers, text=text)
        assert shutil.disk_usage(folder).free == before
        assert names(folder) == NAMES
        assert (step_of(folder / "last.ckpt"), step_of(folder / "previous.ckpt")) == (2, 1)
        save(folder, 4, numbers=20_011)
        assert latest(folder) == folder / "last.ckpt"
        assert step_of(folder / "previous.ckpt") == 2

    in_small_tmpfs(claim, tmp_path)


def test_a_read_only_folder_is_one_sentence_and_the_last_good_one_stands(tmp_path: Path) -> None:
    def claim(folder: Path) -> None:
        save(folder, 1)
        mount(b"tmpfs", folder, REMOUNT | READ_ONLY)
        with pytest.raises(UserError, match=r"last.ckpt cannot be written \(Read-only file system\); the check"):
            save(folder, 2)
        with pytest.raises(UserError, match=r"checkpoints cannot be written \(Read-only file system\); the che"):
            prepare_run_folder(folder)
        assert names(folder) == {"last.ckpt"}
        assert latest(folder) == folder / "last.ckpt"
        assert step_of(folder / "last.ckpt") == 1

    in_small_tmpfs(claim, tmp_path)


def on_own_disk(disk: Path, copy: Path, *commands: str) -> subprocess.CompletedProcess[str]:
    """As `in_small_tmpfs`, for commands; 1.5 MB, which two checkpoints fill. What is left in it is copied."""
    if subprocess.run(["unshare", "-rm", "true"], capture_output=True).returncode != 0:
        pytest.skip("neither a user nor a mount namespace may be made here")
    disk.mkdir()
    script = " && ".join([f"mount -t tmpfs -o size=1500k tmpfs {disk}", *commands])
    script = f"({script}); code=$?; cp -r {disk} {copy}; exit $code"
    return subprocess.run(["unshare", "-rm", "sh", "-c", script], cwd=ROOT, capture_output=True, text=True, timeout=300)


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("unshare") is None, reason="no unshare here")
def test_a_run_on_a_disk_that_is_too_small_ends_in_one_sentence_and_can_go_on_from_its_last(tmp_path: Path) -> None:
    disk, copy = tmp_path / "disk", tmp_path / "copy"
    options = [option for option in SMALL if not option.startswith("callback=")]
    options += ["debug=fast", "trainer.max_steps=5", "callback=[seeding,checkpoint,autosave]"]
    run = [sys.executable, "train.py", *options, "callback.autosave.every_steps=1", f"hydra.run.dir={disk}"]
    done = on_own_disk(disk, copy, shlex.join(run))
    assert done.returncode == 2, done.stderr
    (sentence,) = done.stderr.splitlines()
    assert ".ckpt cannot be written (No space left on device); the checkpoints there are unchanged" in sentence
    folder = copy / "checkpoints"
    assert latest(folder) == folder / "last.ckpt"
    assert not list(folder.glob("*.part"))
    assert read_tensors(folder / "last.ckpt")["global_step"] > read_tensors(folder / "previous.ckpt")["global_step"]
