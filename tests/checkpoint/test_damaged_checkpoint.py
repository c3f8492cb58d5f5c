"""A broken checkpoint is named, and the one before it is taken; a good one is never taken for broken."""

from __future__ import annotations

import os
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from checkpoint.test_checkpoint_file import NAMES, flip_bit, latest, names, save, step_of

from seq2seq_attn.checkpoint.checkpoint_file import is_checkpoint_of, prepare_run_folder, read_or_reason, read_tensors
from seq2seq_attn.distributed.run_lock import check_is_new
from seq2seq_attn.errors import UserError
from seq2seq_attn.training.results import forget_results


def truncate(file: Path) -> None:
    os.truncate(file, file.stat().st_size // 2)


def empty(file: Path) -> None:
    os.truncate(file, 0)


@pytest.mark.parametrize("spoil", [truncate, empty, flip_bit])
def test_a_broken_newest_one_is_named_and_the_one_before_is_taken(
    spoil: Callable[[Path], None], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = save(tmp_path, 1, 2)
    spoil(file)
    found = latest(tmp_path)
    assert found == tmp_path / "previous.ckpt"
    assert step_of(found) == 1
    (record,) = caplog.records
    reason = "is not a readable checkpoint (truncated, damaged or of another program)"
    assert record.getMessage() == f"{file} {reason}; previous.ckpt is taken instead"
    with pytest.raises(UserError, match=r"last.ckpt is .+; use another one, such as previous.ckpt beside it"):
        read_tensors(file)


@pytest.mark.parametrize("stride", [5, pytest.param(1, marks=pytest.mark.slow)])
def test_a_flipped_bit_is_seen_anywhere_or_changes_nothing_that_is_read(stride: int, tmp_path: Path) -> None:
    file = save(tmp_path, 2, numbers=11)
    whole = file.read_bytes()
    seen = 0
    flips = range(0, 8 * len(whole), 8 * stride + 1 if stride > 1 else 1)  # of every position, or so, another bit
    for flip in flips:
        flipped = bytearray(whole)
        flipped[flip // 8] ^= 1 << flip % 8
        file.write_bytes(flipped)
        content, reason = read_or_reason(file)
        if reason is None:  # in the padding, or in a header that nobody reads
            assert content["global_step"] == 2, flip
            assert torch.equal(content["weights"], torch.full((11,), 2.0)), flip
        seen += reason is not None
    assert seen > len(flips) // 4


def test_a_record_that_is_marked_as_a_folder_which_torch_would_not_read_is_damage(tmp_path: Path) -> None:
    file = save(tmp_path, 1, 2)
    content = bytearray(file.read_bytes())
    name = content.rindex(b"/data/0")  # in the directory at the end
    header = content.rindex(b"PK\x01\x02", 0, name)
    content[header + 38] |= 0x10  # external attributes
    file.unlink()
    file.write_bytes(content)
    assert latest(tmp_path) == tmp_path / "previous.ckpt"


def test_a_compressed_record_which_could_fill_the_memory_is_damage(tmp_path: Path) -> None:
    file = save(tmp_path, 1, 2)
    with zipfile.ZipFile(file) as records:
        content = {record.filename: records.read(record) for record in records.infolist()}
    file.unlink()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as records:
        for name, data in content.items():
            records.writestr(zipfile.ZipInfo(name), data, zipfile.ZIP_DEFLATED)
    with zipfile.ZipFile(file, "a") as records:
        for record in records.infolist():
            record.external_attr = 0
        records._didModify = True  # type: ignore[attr-defined]
    assert latest(tmp_path) == tmp_path / "previous.ckpt"


def test_where_all_before_it_is_broken_the_best_is_taken_and_then_none(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    assert latest(tmp_path) is None
    assert latest(tmp_path / "nowhere") is None
    save(tmp_path, 1, name="best.ckpt")
    save(tmp_path, 2, 3)
    for name in ("last.ckpt", "previous.ckpt"):
        empty(tmp_path / name)
    assert latest(tmp_path) == tmp_path / "best.ckpt"
    assert [record.getMessage().partition(" is ")[0] for record in caplog.records] == [
        str(tmp_path / name) for name in ("last.ckpt", "previous.ckpt")
    ]
    empty(tmp_path / "best.ckpt")
    with pytest.raises(
        UserError, match=r"holds no whole checkpoint \(last.ckpt, previous.ckpt, best.ckpt: all damaged\); give a new h"
    ):
        latest(tmp_path)


def test_a_broken_last_never_takes_the_place_of_the_good_one_before_it(tmp_path: Path) -> None:
    file = save(tmp_path, 1, 2)
    flip_bit(file)
    save(tmp_path, 3)
    assert (step_of(tmp_path / "last.ckpt"), step_of(tmp_path / "previous.ckpt")) == (3, 1)


def test_the_latest_is_the_one_after_the_most_updates_whatever_the_times_of_a_copy(tmp_path: Path) -> None:
    for step in (100, 9, 10):
        save(tmp_path, step, name=f"step={step}.ckpt")
    save(tmp_path, 11, name="best.ckpt")
    assert latest(tmp_path) == tmp_path / "step=100.ckpt"
    (tmp_path / "step=100.ckpt").unlink()
    assert latest(tmp_path) == tmp_path / "best.ckpt"


def test_a_damaged_one_has_the_place_that_its_name_gives_it(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    for step in (100, 9):
        save(tmp_path, step, name=f"step={step}.ckpt")
    (tmp_path / "step=100.ckpt").write_bytes(b"cut")
    (tmp_path / "mine.ckpt").write_bytes(b"mine")
    assert latest(tmp_path) == tmp_path / "step=9.ckpt"
    (warning,) = caplog.messages
    assert "step=100.ckpt is not a readable checkpoint" in warning
    assert warning.endswith("step=9.ckpt is taken instead")


def test_a_link_to_nothing_is_named_and_nothing_else_is_taken(tmp_path: Path) -> None:
    save(tmp_path, 1, 2)
    (tmp_path / "last.ckpt").rename(tmp_path / "elsewhere")
    (tmp_path / "last.ckpt").symlink_to(tmp_path / "elsewhere")
    assert latest(tmp_path) == tmp_path / "last.ckpt"
    (tmp_path / "elsewhere").unlink()
    with pytest.raises(UserError, match=rf"last.ckpt is a link to {tmp_path}/elsewhere, which is not there; mount or"):
        latest(tmp_path)
    for name in NAMES:
        (tmp_path / name).unlink()
    (tmp_path / "best.ckpt").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(UserError, match=r"best.ckpt is a link to"):
        latest(tmp_path)


def test_a_checkpoint_is_of_the_run_in_whose_folder_it_stands_and_not_of_where_it_is_kept(tmp_path: Path) -> None:
    run, store = tmp_path / "run", tmp_path / "store"
    save(store, 1)
    run.mkdir()
    (run / "checkpoints").symlink_to(store)
    (tmp_path / "kept").write_bytes(b"")
    (store / "best.ckpt").symlink_to(tmp_path / "kept")
    for name in ("last.ckpt", "best.ckpt"):
        assert is_checkpoint_of(run / "checkpoints" / name, run)
        assert is_checkpoint_of(store / name, run)
    assert not is_checkpoint_of(tmp_path / "kept", run)
    assert not is_checkpoint_of(run / "other.ckpt", run)


def test_the_start_sweeps_what_a_killed_run_left_and_nothing_of_the_users(tmp_path: Path) -> None:
    folder = tmp_path / "checkpoints"
    save(folder, 1, 2)
    save(folder, 3, name="best.ckpt")
    for file in (folder / "last.ckpt.part", tmp_path / "results.json"):
        file.write_text("stale")
    mine = {"broken.ckpt", "notes.txt", "corpus.tar.part"}
    for name in mine:
        (folder / name).write_text("mine")
    prepare_run_folder(tmp_path)
    assert names(folder) == mine | {"best.ckpt"} | NAMES
    assert names(tmp_path) == {"checkpoints", "results.json"}
    forget_results(tmp_path)
    assert names(tmp_path) == {"checkpoints"}


def test_results_go_with_the_translations_that_they_are_of(tmp_path: Path) -> None:
    kept = {"translations_val.tsv", "translations.txt", "mine.hypotheses"}
    gone = {f"translations{of}.{kind}" for of in ("", "_2017") for kind in ("tsv", "hypotheses", "references")}
    for name in kept | gone:
        (tmp_path / name).write_text("a")
    (tmp_path / "results.json").write_text('{"seed": 1, "test/bleu": 2.0, "test_2017/bleu": 1.0}')
    forget_results(tmp_path)
    assert names(tmp_path) == kept
    forget_results(tmp_path)
    assert names(tmp_path) == kept


def test_results_of_a_stranger_name_no_file_outside_their_folder(tmp_path: Path) -> None:
    run = tmp_path / "run"
    (run / "translations_..").mkdir(parents=True)
    (tmp_path / "precious.tsv").write_text("mine")
    (run / "results.json").write_text('{"../../../precious/bleu": 1.0, "test/bleu": 2.0}')
    forget_results(run)
    assert (tmp_path / "precious.tsv").read_text() == "mine"
    assert names(run) == {"translations_.."}


@pytest.mark.parametrize(
    "name",
    ["results.json", *(f"checkpoints/{name}.ckpt" for name in ("best", "last", "previous", "step=7", "best-step=7"))],
)
def test_a_run_that_starts_overwrites_no_other(name: str, tmp_path: Path) -> None:
    folder = tmp_path / "checkpoints"
    folder.mkdir()
    for file in (folder / "broken.ckpt", folder / "last.ckpt.part", tmp_path / "config.yaml"):
        file.touch()
    check_is_new(tmp_path)
    (tmp_path / name).touch()
    with pytest.raises(UserError, match=f"^{tmp_path} holds a run; resume=auto continues it"):
        check_is_new(tmp_path)
