"""Whatever happens to a run or a disk while it saves: a whole checkpoint stands, and a broken one is named."""

from __future__ import annotations

import errno
import io
import os
import random
import shutil
import signal
import tempfile
import time
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from forked import ended, forked

from seq2seq_attn.checkpoint.checkpoint_file import (
    AtomicCheckpointIO,
    damage,
    prepare_run_folder,
    read_latest,
    read_tensors,
    write_checkpoint,
)
from seq2seq_attn.errors import UserError

NUMBERS = 4099
NAMES = {"last.ckpt", "previous.ckpt"}
pytestmark = pytest.mark.filterwarnings("ignore:.*use of fork:DeprecationWarning")


def save(folder: Path, *steps: int, name: str = "last.ckpt", numbers: int = NUMBERS, text: str = "") -> Path:
    """As one process does, a checkpoint after the other."""
    files = AtomicCheckpointIO(folder)
    for step in steps:
        weights = torch.full((numbers,), float(step))
        files.save_checkpoint({"global_step": step, "weights": weights, "text": text}, folder / name)
    return folder / name


def step_of(file: Path) -> int:
    """Of a checkpoint that is whole."""
    checkpoint = read_tensors(file)
    assert (checkpoint["weights"] == checkpoint["global_step"]).all()
    return checkpoint["global_step"]


def names(folder: Path) -> set[str]:
    return {file.name for file in folder.iterdir()}


def latest(folder: Path) -> Path | None:
    """The file alone of the newest whole checkpoint."""
    found = read_latest(folder)
    return None if found is None else found[0]


def test_what_could_not_be_read_again_is_not_written_over_what_can(tmp_path: Path) -> None:
    save(tmp_path, 1)
    checkpoint = {"global_step": 2, "callbacks": {"Mine": {"best": np.float64(1.5)}}}
    with pytest.raises(UserError, match=r"^the checkpoint's callbacks at Mine at best holds numpy\S+, and a "):
        write_checkpoint(checkpoint, tmp_path / "last.ckpt")
    assert (names(tmp_path), step_of(tmp_path / "last.ckpt")) == ({"last.ckpt"}, 1)


def flip_bit(file: Path, position: int | None = None) -> None:
    """Of the tensor, in the middle, if no place is given."""
    content = bytearray(file.read_bytes())
    content[len(content) // 2 if position is None else position] ^= 0x10
    file.unlink()  # its other name, if it has one, stays as it is
    file.write_bytes(content)


def test_last_leaves_the_one_before_it_and_no_other_name_does(tmp_path: Path) -> None:
    save(tmp_path, 1)
    assert names(tmp_path) == {"last.ckpt"}
    save(tmp_path, 2, 3)
    save(tmp_path, 5, 7, name="best.ckpt")
    assert names(tmp_path) == NAMES | {"best.ckpt"}
    assert [step_of(tmp_path / f"{name}.ckpt") for name in ("last", "previous", "best")] == [3, 2, 7]


def test_the_one_before_is_kept_without_links_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_links(source: Path, target: Path) -> None:
        raise OSError(1, "Operation not permitted")

    monkeypatch.setattr(os, "link", no_links)
    save(tmp_path, 1, 2)
    assert (step_of(tmp_path / "last.ckpt"), step_of(tmp_path / "previous.ckpt")) == (2, 1)


def kill_at(moment: int) -> None:
    """This process dies before the n-th of the calls that change the disk, as if by `kill -9`."""
    left = moment

    def counted(call: Callable[..., object]) -> Callable[..., object]:
        def wrapper(*arguments: object, **options: object) -> object:
            nonlocal left
            left -= 1
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            return call(*arguments, **options)

        return wrapper

    for name in ("link", "unlink", "replace", "fsync"):
        setattr(os, name, counted(getattr(os, name)))
    torch.save = counted(torch.save)


def test_killed_before_any_of_its_calls_a_save_leaves_whole_files(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    outcomes = set()
    for moment in count(1):
        folder = tmp_path / str(moment) / "checkpoints"
        file = save(folder, 1, 2)

        def work(folder: Path = folder, moment: int = moment) -> None:
            kill_at(moment)
            save(folder, 3)

        status = ended(forked(work))
        assert latest(folder) == file
        assert not caplog.records
        outcomes.add((step_of(folder / "previous.ckpt"), step_of(file)))
        prepare_run_folder(folder.parent)
        assert names(folder) == NAMES
        if status == 0:
            break
        assert status == -signal.SIGKILL
        assert moment < 50
    assert outcomes == {(1, 2), (1, 3), (2, 3)}
    assert moment > 5


def killed_while_saving(times: int, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With temporary files elsewhere: what is moved across file systems is half there for a while."""
    elsewhere = Path(tempfile.mkdtemp(dir="/dev/shm"))
    monkeypatch.setenv("TMPDIR", str(elsewhere))
    monkeypatch.setattr(tempfile, "tempdir", None)
    folder.mkdir()
    last = folder / "last.ckpt"
    assert elsewhere.stat().st_dev != folder.stat().st_dev
    drawn = random.Random(0)
    try:
        for _ in range(times):
            before = step_of(last) if last.exists() else 0
            inode = last.stat().st_ino if last.exists() else None

            def work(before: int = before) -> None:
                files = AtomicCheckpointIO(folder)
                for step in count(before + 1):
                    weights = torch.full((1_000_003,), float(step))
                    files.save_checkpoint({"global_step": step, "weights": weights}, folder / "best.ckpt")
                    files.save_checkpoint({"global_step": step, "weights": weights}, last)

            child = forked(work)
            while not last.exists() or last.stat().st_ino == inode:
                time.sleep(0.001)
            time.sleep(drawn.uniform(0.0, 0.2))
            os.kill(child, signal.SIGKILL)
            assert ended(child) == -signal.SIGKILL
            assert latest(folder) == last
            assert step_of(last) > before
            for file in folder.glob("*.ckpt"):
                assert damage(file) is None
            prepare_run_folder(folder.parent)
            assert not names(folder) - NAMES - {"best.ckpt"}
        assert names(elsewhere) == set()
    finally:
        shutil.rmtree(elsewhere)


on_two_file_systems = pytest.mark.skipif(not os.access("/dev/shm", os.W_OK), reason="no second file system here")


@on_two_file_systems
def test_killed_while_saving_last_always_loads_and_nothing_stale_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    killed_while_saving(3, tmp_path / "checkpoints", monkeypatch)


@pytest.mark.slow
@on_two_file_systems
def test_killed_thirty_times_while_saving_last_always_loads_and_nothing_stale_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    killed_while_saving(30, tmp_path / "checkpoints", monkeypatch)


@pytest.mark.parametrize("content", [{"a": torch.zeros(4000)}, {"a": "x" * 9000}], ids=["tensor", "text"])
def test_a_fault_of_the_disk_is_one_sentence_although_torch_raises_an_error_of_its_own(
    content: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = save(tmp_path, 1)

    class Faulty(io.BytesIO):
        def write(self, data: Any) -> int:
            if self.tell() > 4000:
                raise OSError(errno.EIO, "Input/output error")
            return super().write(data)

    monkeypatch.setattr(Path, "open", lambda path, mode: Faulty())
    with pytest.raises(
        UserError, match=rf"^{file} cannot be written \(Input/output error\); the checkpoints there are"
    ):
        write_checkpoint(content, file)
    monkeypatch.undo()
    assert step_of(file) == 1


def test_an_interrupted_save_leaves_no_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save(tmp_path, 1)

    def interrupt(*arguments: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", interrupt)
    with pytest.raises(KeyboardInterrupt):
        save(tmp_path, 2, name="best.ckpt")
    assert names(tmp_path) == {"last.ckpt"}
