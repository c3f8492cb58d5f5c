"""A broken checkpoint is named, and the one before it is taken; a good one is never taken for broken."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from checkpoint.test_checkpoint_file import NAMES, check_sums, flip_bit, names, save, step_of

from seq2seq_attn.checkpoint.checkpoint_file import latest_checkpoint, prepare_folder
from seq2seq_attn.checkpoint.load import read_tensors
from seq2seq_attn.errors import UserError
from seq2seq_attn.files import damage


def truncate(file: Path) -> None:
    os.truncate(file, file.stat().st_size // 2)


def empty(file: Path) -> None:
    os.truncate(file, 0)


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
    assert record.getMessage() == f"{file} {reason}; previous.ckpt is taken instead"
    with pytest.raises(UserError, match=r"last.ckpt is .+; use another one, such as previous.ckpt beside it"):
        read_tensors(file)


@pytest.mark.parametrize("name", ["last.ckpt", "last.ckpt.sha256"])
def test_a_flipped_bit_is_seen_anywhere_in_the_file_and_in_its_sum(name: str, tmp_path: Path) -> None:
    file = save(tmp_path, 1, 2, numbers=11)
    spoilt = tmp_path / name
    whole = spoilt.read_bytes()
    positions = range(len(whole) if name == file.name else 64)  # behind the sum stands the file's name
    assert len(positions) > 60
    for position in positions:
        flip_bit(spoilt, position)
        assert damage(file) is not None, position
        spoilt.write_bytes(whole)
    assert damage(file) is None
    flip_bit(spoilt, 3)
    assert latest_checkpoint(tmp_path) == tmp_path / "previous.ckpt"


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
        UserError, match=r"holds no whole checkpoint \(last.ckpt, previous.ckpt, best.ckpt: all damaged\); give a new h"
    ):
        latest_checkpoint(tmp_path)


def test_a_broken_last_never_takes_the_position_of_the_good_one_before_it(tmp_path: Path) -> None:
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
