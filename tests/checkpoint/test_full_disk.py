"""A disk that is full or may not be written: one sentence, and the last good checkpoint stands."""

from __future__ import annotations

import re
import resource
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from checkpoint.test_checkpoint_file import NAMES, NUMBERS, check_sums, names, save, step_of
from configs import ROOT
from forked import READ_ONLY, REMOUNT, in_small_tmpfs, mount
from training.test_run import SMALL

from seq2seq_attn.checkpoint.checkpoint_file import latest_checkpoint, prepare_folder
from seq2seq_attn.checkpoint.load import read_tensors
from seq2seq_attn.errors import UserError

pytestmark = pytest.mark.filterwarnings("ignore:.*use of fork:DeprecationWarning")
PAGE = resource.getpagesize()  # what a file of a tmpfs is made of


@pytest.mark.parametrize(
    ("numbers", "text", "needed"),
    # the first is seen to be too large before it is written, the second only when the disk is full
    [(500_000, "", "2.00"), (3, "x" * 2_000_000, "2.00")],
    ids=["tensors", "text"],
)
def test_a_full_disk_says_how_much_was_needed_and_the_last_good_one_stands(
    numbers: int, text: str, needed: str, tmp_path: Path
) -> None:
    def claim(folder: Path) -> None:
        save(folder, 1, numbers=20_011)
        before = shutil.disk_usage(folder).free
        says = rf"last.ckpt needs {needed} MB and {before / 1e6:.2f} MB are free; the checkpoints there stand as"
        with pytest.raises(UserError, match=says):
            save(folder, 2, numbers=numbers, text=text)
        assert shutil.disk_usage(folder).free == before
        assert names(folder) == {"last.ckpt", "last.ckpt.sha256"}
        assert step_of(folder / "last.ckpt") == 1
        save(folder, 3, numbers=20_011)
        assert latest_checkpoint(folder) == folder / "last.ckpt"
        assert step_of(folder / "previous.ckpt") == 1

    in_small_tmpfs(claim, tmp_path)


@pytest.mark.parametrize(
    ("total", "free", "fits"), [(10**9, 4 * NUMBERS - 1, False), (10**9, 4 * NUMBERS, True), (0, 0, True)]
)
def test_what_is_too_large_is_refused_before_it_takes_the_room_of_logs(
    total: int, free: int, fits: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: SimpleNamespace(total=total, free=free))
    if fits:  # or the file system does not tell
        assert step_of(save(tmp_path, 1)) == 1
    else:
        with pytest.raises(UserError, match=r"last.ckpt needs 0.02 MB and 0.02 MB are free"):
            save(tmp_path, 1)
        assert names(tmp_path) == set()


def test_a_disk_with_room_for_the_file_but_not_for_its_sum_is_full_before_anything_is_replaced(tmp_path: Path) -> None:
    def claim(folder: Path) -> None:
        pages = -(-save(folder, 1, 2).stat().st_size // PAGE)
        log = folder / "log.txt"
        for name, spare in (("last.ckpt", 0), ("last.ckpt", 1), ("best.ckpt", 0)):  # last writes two sums
            log.write_bytes(b"")
            log.write_bytes(bytes(shutil.disk_usage(folder).free - (pages + spare) * PAGE))
            with pytest.raises(UserError, match=rf"{name} needs 0.02 MB and 0.02 MB are free; the checkpoints"):
                save(folder, 3, name=name)
            assert names(folder) == NAMES | {"log.txt"}
            assert (step_of(folder / "last.ckpt"), step_of(folder / "previous.ckpt")) == (2, 1)
            check_sums(folder)

    in_small_tmpfs(claim, tmp_path)


def test_a_read_only_folder_is_one_sentence_and_the_last_good_one_stands(tmp_path: Path) -> None:
    def claim(folder: Path) -> None:
        save(folder, 1)
        mount(b"tmpfs", folder, REMOUNT | READ_ONLY)
        with pytest.raises(UserError, match=r"last.ckpt cannot be written \(Read-only file system\); the check"):
            save(folder, 2)
        with pytest.raises(UserError, match=rf"^{folder} cannot be written \(Read-only file system\); the che"):
            prepare_folder(folder)
        assert names(folder) == {"last.ckpt", "last.ckpt.sha256"}
        assert latest_checkpoint(folder) == folder / "last.ckpt"
        assert step_of(folder / "last.ckpt") == 1

    in_small_tmpfs(claim, tmp_path)


def on_own_disk(disk: Path, copy: Path, *commands: str) -> subprocess.CompletedProcess[str]:
    """As `in_small_tmpfs`, for commands, of 2 MiB; skips alike. What is left in it is copied."""
    if subprocess.run(["unshare", "-rm", "true"], capture_output=True).returncode != 0:
        pytest.skip("neither a user nor a mount namespace may be made here")
    disk.mkdir()
    script = " && ".join([f"mount -t tmpfs -o size=2m tmpfs {disk}", *commands])
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
    assert re.search(r"\.ckpt needs 0\.\d\d MB and 0\.\d\d MB are free; the checkpoints there stand", sentence)
    folder = copy / "checkpoints"
    assert latest_checkpoint(folder) == folder / "last.ckpt"
    assert not list(folder.glob("*.part"))
    check_sums(folder)
    assert read_tensors(folder / "last.ckpt")["global_step"] > read_tensors(folder / "previous.ckpt")["global_step"]
