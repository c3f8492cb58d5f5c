"""Whatever happens to a run or a disk while it saves: a whole checkpoint stands, and a broken one is named."""

from __future__ import annotations

import errno
import hashlib
import io
import os
import random
import re
import resource
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from configs import ROOT
from training.forked import READ_ONLY, REMOUNT, ended, forked, in_small_tmpfs, mount
from training.test_run import SMALL

from seq2seq_attn.tensors.error import UserError
from seq2seq_attn.training import checkpoint_file
from seq2seq_attn.training.checkpoint import read_tensors
from seq2seq_attn.training.checkpoint_file import (
    Sink,
    latest_checkpoint,
    prepare_folder,
    tensor_bytes,
    write_checkpoint,
)
from seq2seq_attn.training.checkpoint_io import AtomicCheckpointIO
from seq2seq_attn.training.digest import damage

NUMBERS = 4099
PAGE = resource.getpagesize()  # what a file of a tmpfs is made of
NAMES = {"last.ckpt", "last.ckpt.sha256", "previous.ckpt", "previous.ckpt.sha256"}
pytestmark = pytest.mark.filterwarnings("ignore:.*use of fork:DeprecationWarning")


def save(folder: Path, *steps: int, name: str = "last.ckpt", numbers: int = NUMBERS, text: str = "") -> Path:
    """As one process does, a checkpoint after the other."""
    files = AtomicCheckpointIO()
    for step in steps:
        weights = torch.full((numbers,), float(step))
        files.save_checkpoint({"step": step, "weights": weights, "text": text}, folder / name)
    return folder / name


def step_of(file: Path) -> int:
    """Of a checkpoint that is whole."""
    checkpoint = read_tensors(file)
    assert (checkpoint["weights"] == checkpoint["step"]).all()
    return checkpoint["step"]


def names(folder: Path) -> set[str]:
    return {file.name for file in folder.iterdir()}


def check_sums(folder: Path) -> None:
    """As `sha256sum -c` does."""
    files = list(folder.glob("*.ckpt"))
    assert files
    for file in files:
        digest = hashlib.sha256(file.read_bytes()).hexdigest()
        assert (folder / f"{file.name}.sha256").read_text() == f"{digest}  {file.name}\n"


@pytest.mark.skipif(shutil.which("sha256sum") is None, reason="no sha256sum here")
def test_sha256sum_itself_agrees_and_sees_a_change(tmp_path: Path) -> None:
    file = save(tmp_path, 1)
    command = ["sha256sum", "-c", "last.ckpt.sha256"]
    assert subprocess.run(command, cwd=tmp_path, capture_output=True, text=True).stdout == "last.ckpt: OK\n"
    flip_bit(file)
    assert subprocess.run(command, cwd=tmp_path, capture_output=True).returncode == 1


def test_last_leaves_the_one_before_it_and_no_other_name_does(tmp_path: Path) -> None:
    save(tmp_path, 1)
    assert names(tmp_path) == {"last.ckpt", "last.ckpt.sha256"}
    save(tmp_path, 2, 3)
    save(tmp_path, 5, 7, name="best.ckpt")
    assert names(tmp_path) == NAMES | {"best.ckpt", "best.ckpt.sha256"}
    assert [step_of(tmp_path / f"{name}.ckpt") for name in ("last", "previous", "best")] == [3, 2, 7]
    check_sums(tmp_path)


def test_the_one_before_is_kept_without_links_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_links(source: Path, target: Path) -> None:
        raise OSError(1, "Operation not permitted")

    monkeypatch.setattr(os, "link", no_links)
    save(tmp_path, 1, 2)
    assert (step_of(tmp_path / "last.ckpt"), step_of(tmp_path / "previous.ckpt")) == (2, 1)
    check_sums(tmp_path)


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
    Sink.finish = counted(Sink.finish)  # type: ignore[method-assign]


def test_killed_before_any_of_its_calls_a_save_leaves_whole_files(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    outcomes = set()
    for moment in count(1):
        folder = tmp_path / str(moment)
        file = save(folder, 1, 2)

        def work(folder: Path = folder, moment: int = moment) -> None:
            kill_at(moment)
            save(folder, 3)

        status = ended(forked(work))
        assert latest_checkpoint(folder) == file
        assert not caplog.records
        outcomes.add((step_of(folder / "previous.ckpt"), step_of(file)))
        prepare_folder(folder)
        assert names(folder) == NAMES
        check_sums(folder)
        if status == 0:
            break
        assert status == -signal.SIGKILL
        assert moment < 50
    assert outcomes == {(1, 2), (1, 3), (2, 3)}
    assert moment > 10


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
                files = AtomicCheckpointIO()
                for step in count(before + 1):
                    weights = torch.full((1_000_003,), float(step))
                    files.save_checkpoint({"step": step, "weights": weights}, folder / "best.ckpt")
                    files.save_checkpoint({"step": step, "weights": weights}, last)

            child = forked(work)
            while not last.exists() or last.stat().st_ino == inode:
                time.sleep(0.001)
            time.sleep(drawn.uniform(0.0, 0.2))
            os.kill(child, signal.SIGKILL)
            assert ended(child) == -signal.SIGKILL
            assert latest_checkpoint(folder) == last
            assert step_of(last) > before
            for file in folder.glob("*.ckpt"):
                assert damage(file) is None
            prepare_folder(folder)
            assert not names(folder) - NAMES - {"best.ckpt", "best.ckpt.sha256"}
            check_sums(folder)
        assert names(elsewhere) == set()
    finally:
        shutil.rmtree(elsewhere)


on_two_file_systems = pytest.mark.skipif(
    not os.access("/dev/shm", os.W_OK), reason="no second file system here"
)


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


def truncate(file: Path) -> None:
    os.truncate(file, file.stat().st_size // 2)


def empty(file: Path) -> None:
    os.truncate(file, 0)


def flip_bit(file: Path, place: int | None = None) -> None:
    """Of the tensor, in the middle, if no place is given."""
    content = bytearray(file.read_bytes())
    content[len(content) // 2 if place is None else place] ^= 0x10
    file.unlink()  # its other name, if it has one, stays as it is
    file.write_bytes(content)


@pytest.mark.parametrize("summed", [True, False])
@pytest.mark.parametrize("spoil", [truncate, empty, flip_bit])
def test_a_broken_newest_one_is_named_and_the_one_before_is_taken(
    spoil: Callable[[Path], None], summed: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = save(tmp_path, 1, 2)
    if not summed:
        (tmp_path / "last.ckpt.sha256").unlink()
    spoil(file)
    latest = latest_checkpoint(tmp_path)
    assert latest == tmp_path / "previous.ckpt"
    assert step_of(latest) == 1
    (record,) = caplog.records
    reason = (
        "is damaged: its SHA-256 is not the one in last.ckpt.sha256"
        if summed
        else "is not a readable checkpoint (truncated, damaged or of another program)"
    )
    assert record.getMessage() == f"{file} {reason}; previous.ckpt is taken in its place"
    with pytest.raises(UserError, match=r"last.ckpt is .+; use another one, such as previous.ckpt beside it"):
        read_tensors(file)


def test_a_flipped_bit_is_seen_anywhere(tmp_path: Path) -> None:
    file = save(tmp_path, 1, numbers=11)
    whole = file.read_bytes()
    for place in range(0, len(whole), len(whole) // 23):
        flip_bit(file, place)
        assert damage(file) is not None
        file.write_bytes(whole)
    assert damage(file) is None


def test_where_all_before_it_is_broken_the_best_is_taken_and_then_none(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    assert latest_checkpoint(tmp_path) is None
    assert latest_checkpoint(tmp_path / "nowhere") is None
    save(tmp_path, 1, name="best.ckpt")
    save(tmp_path, 2, 3)
    for name in ("last.ckpt", "previous.ckpt"):
        empty(tmp_path / name)
    assert latest_checkpoint(tmp_path) == tmp_path / "best.ckpt"
    assert [record.getMessage().partition(" is ")[0] for record in caplog.records] == [
        str(tmp_path / name) for name in ("last.ckpt", "previous.ckpt")
    ]
    empty(tmp_path / "best.ckpt")
    with pytest.raises(
        UserError,
        match=r"holds no whole checkpoint \(last.ckpt, previous.ckpt, best.ckpt: all damaged\); give a new h",
    ):
        latest_checkpoint(tmp_path)


def test_a_broken_last_never_takes_the_place_of_the_good_one_before_it(tmp_path: Path) -> None:
    file = save(tmp_path, 1, 2)
    flip_bit(file)
    save(tmp_path, 3)
    assert (step_of(tmp_path / "last.ckpt"), step_of(tmp_path / "previous.ckpt")) == (3, 1)


def test_a_checkpoint_of_names_by_step_is_found_by_its_age(tmp_path: Path) -> None:
    for step in (11, 9, 10):
        save(tmp_path, step, name=f"step={step}.ckpt")
        os.utime(tmp_path / f"step={step}.ckpt", (1000 + step, 1000 + step))
    assert latest_checkpoint(tmp_path) == tmp_path / "step=11.ckpt"


def test_the_start_sweeps_what_a_killed_run_left_and_nothing_else(tmp_path: Path) -> None:
    save(tmp_path, 1, 2)
    (tmp_path / "last.ckpt.sha256").unlink()  # killed before it was written
    for name in ("last.ckpt.part", "best.ckpt.sha256.part", "gone.ckpt.sha256"):
        (tmp_path / name).write_text("stale")
    (tmp_path / "broken.ckpt").write_text("not whole, so it gets no sum")
    (tmp_path / "notes.txt").write_text("mine")
    prepare_folder(tmp_path)
    assert names(tmp_path) == NAMES | {"broken.ckpt", "notes.txt"}
    (tmp_path / "broken.ckpt").unlink()
    check_sums(tmp_path)


def test_the_size_counts_what_tensors_share_once(tmp_path: Path) -> None:
    weights = torch.zeros(7, 1009)
    checkpoint = {"a": weights, "b": [weights.T, {"c": (weights[3:], torch.zeros(11, dtype=torch.uint8))}]}
    assert tensor_bytes(checkpoint) == 7 * 1009 * 4 + 11
    write_checkpoint(checkpoint, tmp_path / "a.ckpt")
    assert (tmp_path / "a.ckpt").stat().st_size == pytest.approx(tensor_bytes(checkpoint), abs=3000)


def test_a_fault_of_the_disk_is_told_at_the_end_however_well_the_rest_went() -> None:
    class Faulty(io.BytesIO):
        def write(self, data: Any) -> int:
            if data == b"cde":
                raise OSError(errno.EIO, "Input/output error")
            return super().write(data)

    sink = Sink(Faulty())
    for data in (b"ab", b"cde", b"f"):
        sink.write(data)
    assert sink.size == 6
    with pytest.raises(OSError, match="Input/output error"):
        sink.finish()


def test_an_interrupted_save_leaves_no_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save(tmp_path, 1)

    def interrupt(*arguments: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(checkpoint_file, "install", interrupt)
    with pytest.raises(KeyboardInterrupt):
        save(tmp_path, 2, name="best.ckpt")
    assert names(tmp_path) == {"last.ckpt", "last.ckpt.sha256"}


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
        says = (
            rf"last.ckpt needs {needed} MB and {before / 1e6:.2f} MB are free; the checkpoints there stand as"
        )
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


def test_a_disk_with_room_for_the_file_but_not_for_its_sum_is_full_before_anything_is_replaced(
    tmp_path: Path,
) -> None:
    def claim(folder: Path) -> None:
        pages = -(-save(folder, 1, 2).stat().st_size // PAGE)
        log = folder / "log.txt"
        for name, spare in (("last.ckpt", 0), ("last.ckpt", 1), ("best.ckpt", 0)):  # last writes two sums
            log.write_bytes(b"")
            log.write_bytes(bytes(shutil.disk_usage(folder).free - (pages + spare) * PAGE))
            with pytest.raises(
                UserError, match=rf"{name} needs 0.02 MB and 0.02 MB are free; the checkpoints"
            ):
                save(folder, 3, name=name)
            assert names(folder) == NAMES | {"log.txt"}
            assert (step_of(folder / "last.ckpt"), step_of(folder / "previous.ckpt")) == (2, 1)
            check_sums(folder)

    in_small_tmpfs(claim, tmp_path)


def test_a_read_only_folder_is_one_sentence_and_the_last_good_one_stands(tmp_path: Path) -> None:
    def claim(folder: Path) -> None:
        save(folder, 1)
        mount(b"tmpfs", folder, REMOUNT | READ_ONLY)
        with pytest.raises(
            UserError, match=r"last.ckpt cannot be written \(Read-only file system\); the check"
        ):
            save(folder, 2)
        with pytest.raises(
            UserError, match=rf"^{folder} cannot be written \(Read-only file system\); the che"
        ):
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
    return subprocess.run(
        ["unshare", "-rm", "sh", "-c", script], cwd=ROOT, capture_output=True, text=True, timeout=300
    )


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("unshare") is None, reason="no unshare here")
def test_a_run_on_a_disk_that_is_too_small_ends_in_one_sentence_and_can_go_on_from_its_last(
    tmp_path: Path,
) -> None:
    disk, copy = tmp_path / "disk", tmp_path / "copy"
    options = [option for option in SMALL if not option.startswith("callback=")]
    options += ["debug=fast", "trainer.max_steps=5", "callback=[seeding,checkpoint,autosave]"]
    run = [sys.executable, "train.py", *options, "callback.autosave.every_steps=1", f"hydra.run.dir={disk}"]
    done = on_own_disk(disk, copy, shlex.join(run))
    assert done.returncode == 2, done.stderr
    (sentence,) = done.stderr.splitlines()
    assert re.search(
        r"\.ckpt needs 0\.\d\d MB and 0\.\d\d MB are free; the checkpoints there stand", sentence
    )
    folder = copy / "checkpoints"
    assert latest_checkpoint(folder) == folder / "last.ckpt"
    assert not list(folder.glob("*.part"))
    check_sums(folder)
    assert (
        read_tensors(folder / "last.ckpt")["global_step"]
        > read_tensors(folder / "previous.ckpt")["global_step"]
    )
