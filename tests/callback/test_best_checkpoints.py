"""The checkpoints of the best validations: those and no others, beside the last ones, however the run goes on."""

from __future__ import annotations

import logging
import shutil
import warnings
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from checkpoint.test_resume import stopped_and_resumed
from distributed.ranks import on_ranks
from pytorch_lightning.callbacks import ModelCheckpoint
from small_run import assert_same_run, rows, run_here, weights

from seq2seq_attn.callback.best_checkpoints import BestCheckpoints
from seq2seq_attn.checkpoint.average import chosen
from seq2seq_attn.checkpoint.best import load_best
from seq2seq_attn.checkpoint.exact_resume import adopt_files, forget, later_files
from seq2seq_attn.checkpoint.load import read_checkpoint
from seq2seq_attn.errors import UserError

pytestmark = pytest.mark.usefixtures("quiet")
KEPT = [  # two of each
    "callback=[seeding,checkpoint,best_checkpoints,history,autosave]", "callback.best_checkpoints.save_top_k=2",
    "callback.history.save_top_k=2", "monitor=val/loss", "scheduler=constant", "trainer.limit_train_batches=3",
    "search.limits.max_length=3",
]  # fmt: skip


def kept(folder: Path, prefix: str = "best-step=") -> list[int]:
    """Return the steps of the checkpoints whose names begin so."""
    files = (folder / "checkpoints").glob(f"{prefix}*.ckpt")
    steps = {file: int(file.stem.removeprefix(prefix)) for file in files}
    assert all(read_checkpoint(file)["global_step"] == step for file, step in steps.items())
    return sorted(steps.values())


def losses(folder: Path) -> dict[int, float]:
    """Return the loss of each validation, by its step."""
    return {int(row["step"]) + 1: float(row["val/loss"]) for row in rows(folder) if row["val/loss"]}


def lowest(folder: Path, number: int) -> list[int]:
    found = losses(folder)
    return sorted(sorted(found, key=found.__getitem__)[:number])


def remembered(folder: Path) -> list[dict[str, float]]:
    """Return what each callback keeps, by the names of the files, as `last.ckpt` has it."""
    states = read_checkpoint(folder / "checkpoints" / "last.ckpt")["callbacks"].values()
    kept = [state["best_k_models"] for state in states if "best_k_models" in state]
    return [{Path(file).name: float(score) for file, score in files.items()} for files in kept]


@pytest.mark.parametrize("mode", ["min", pytest.param("max", marks=pytest.mark.slow)])
def test_a_run_keeps_its_best_and_no_others_beside_its_last_and_they_are_averaged(
    mode: str, tmp_path: Path, pairs: list[str]
) -> None:
    options = [f"monitor_mode={mode}", "callback.best_checkpoints.save_top_k=3", "trainer.val_check_interval=1"]
    run_here(tmp_path, *pairs, *KEPT, *options)
    found = losses(tmp_path)
    assert len(set(found.values())) == len(found) == 9
    best = sorted(sorted(found, key=found.__getitem__, reverse=mode == "max")[:3])
    assert (kept(tmp_path), kept(tmp_path, "step=")) == (best, [8, 9])
    others = {file.name for file in (tmp_path / "checkpoints").iterdir() if "step=" not in file.name}
    assert others == {"best.ckpt", "last.ckpt", "previous.ckpt"}
    averaged = [file.name for file in chosen([str(tmp_path)], last=None, best=3)]
    assert averaged == [f"best-step={step}.ckpt" for step in best]


def test_without_the_option_there_are_none(tmp_path: Path, pairs: list[str]) -> None:
    run_here(tmp_path, *pairs, *KEPT, "callback.best_checkpoints.save_top_k=0", "trainer.max_epochs=1")
    assert (kept(tmp_path), kept(tmp_path, "step=")) == ([], [3])


@pytest.mark.slow  # what a callback forgets is tested without a run below
def test_a_run_that_died_after_it_had_saved_them_keeps_those_of_the_run_that_never_died(
    tmp_path: Path, pairs: list[str]
) -> None:
    """At the end of an epoch `last.ckpt` is that of the epoch before."""
    options = [*pairs, *KEPT, "trainer.max_epochs=6"]
    whole, stopped = tmp_path / "whole", tmp_path / "stopped"
    run_here(whole, *options)
    stopped_and_resumed(stopped, options, ("epoch_end", 3), ("epoch_end", 9), ("backward", 13))
    assert kept(stopped) == lowest(whole, 2)
    assert_same_run(stopped, whole)
    assert remembered(stopped) == remembered(whole)


@pytest.mark.slow
def test_a_run_that_goes_back_keeps_the_best_from_there_on(
    tmp_path: Path, pairs: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    run_here(tmp_path, *pairs, *KEPT, "trainer.max_epochs=1")
    folder = tmp_path / "checkpoints"
    earlier = shutil.copy(folder / "last.ckpt", folder / "earlier.ckpt")
    run_here(tmp_path, *pairs, *KEPT, "trainer.max_epochs=5", "resume=auto")
    assert (kept(tmp_path), kept(tmp_path, "step=")) == (lowest(tmp_path, 2), [12, 15])
    (folder / "best-step=3.ckpt").unlink(missing_ok=True)
    later = [f"best-step={step}.ckpt" for step in kept(tmp_path)] + ["step=12.ckpt", "step=15.ckpt"]
    caplog.clear()
    still = ["optimizer.lr=0.0", "trainer.max_epochs=3", f"ckpt_path={earlier}"]
    with caplog.at_level(logging.INFO, "seq2seq_attn"):
        run_here(tmp_path, *pairs, *KEPT, *still)
    (said,) = [line for line in caplog.messages if line.startswith("Deleted")]
    assert said == f"Deleted, since the run, from step 3 on, does not keep them: {', '.join(later)}"
    assert (kept(tmp_path), kept(tmp_path, "step=")) == ([6, 9], [6, 9])
    before = weights(tmp_path, "earlier.ckpt")
    for name in ("best-step=6.ckpt", "best-step=9.ckpt", "step=6.ckpt", "step=9.ckpt"):
        after = weights(tmp_path, name)
        assert all(torch.equal(before[key], after[key]) for key in before if key.startswith("model."))


@pytest.mark.slow
def test_a_run_that_has_no_more_than_it_now_keeps_goes_on(tmp_path: Path, pairs: list[str]) -> None:
    """Lightning names the worst file only once it has as many as it keeps."""
    run_here(tmp_path, *pairs, *KEPT, "trainer.max_epochs=1", "callback.best_checkpoints.save_top_k=3")
    run_here(tmp_path, *pairs, *KEPT, "trainer.max_epochs=3", "callback.best_checkpoints.save_top_k=1", "resume=auto")
    assert kept(tmp_path) == lowest(tmp_path, 1)


@pytest.mark.slow
def test_the_file_that_a_run_goes_on_from_is_not_deleted(tmp_path: Path, pairs: list[str]) -> None:
    options = [*pairs, *KEPT, "monitor_mode=max"]  # so that the earlier is the better one
    run_here(tmp_path, *options, "trainer.max_epochs=2", "callback.best_checkpoints.save_top_k=2")
    assert kept(tmp_path) == [3, 6]
    file = tmp_path / "checkpoints" / "best-step=6.ckpt"
    fewer = ["callback.best_checkpoints.save_top_k=1", "trainer.max_epochs=3", f"ckpt_path='{file}'"]
    run_here(tmp_path, *options, *fewer)
    assert file.exists()


@pytest.mark.slow
def test_a_start_that_is_refused_deletes_no_checkpoint(
    tmp_path: Path, pairs: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(trainer: Any) -> None:
        raise UserError("refused")

    options = [*pairs, *KEPT, "trainer.limit_test_batches=0"]
    run_here(tmp_path, *options, "trainer.max_epochs=2")
    fewer = ["trainer.max_epochs=3", "callback.history.save_top_k=1", "resume=auto"]
    with monkeypatch.context() as patched:
        patched.setattr("seq2seq_attn.checkpoint.exact_resume.check_states", refuse)
        with pytest.raises(UserError, match="refused"):
            run_here(tmp_path, *options, *fewer)
    assert kept(tmp_path, "step=") == [3, 6]
    assert (tmp_path / "results.json").exists()
    run_here(tmp_path, *options, *fewer)
    assert kept(tmp_path, "step=") == [9]


@pytest.mark.slow
def test_a_validation_after_the_last_update_is_one_of_those_that_are_kept(tmp_path: Path, pairs: list[str]) -> None:
    run_here(tmp_path, *pairs, *KEPT, "trainer.max_steps=5")
    assert (kept(tmp_path), kept(tmp_path, "step=")) == ([3, 5], [3, 5])
    assert [set(files) for files in remembered(tmp_path)] == [
        {"best.ckpt"},
        {"best-step=3.ckpt", "best-step=5.ckpt"},
        {"step=3.ckpt", "step=5.ckpt"},
    ]
    run_here(tmp_path, *pairs, *KEPT, "trainer.max_steps=9", "resume=auto")
    assert list(losses(tmp_path)) == [3, 5, 6, 9]
    assert (kept(tmp_path), kept(tmp_path, "step=")) == (lowest(tmp_path, 2), [6, 9])


@pytest.mark.slow
def test_the_same_validation_once_more_changes_nothing_that_is_kept(tmp_path: Path, pairs: list[str]) -> None:
    options = [*pairs, *KEPT, "callback=[seeding,best_checkpoints,history,autosave]"]
    run_here(tmp_path, *options)
    before = remembered(tmp_path)
    for name in ("results.json", "checkpoints/best.ckpt"):
        (tmp_path / name).unlink()
    run_here(tmp_path, *options, "resume=auto")
    assert remembered(tmp_path) == before
    assert (kept(tmp_path), kept(tmp_path, "step=")) == (lowest(tmp_path, 2), [6, 9])


def on_a_rank(folder: Path, *options: str) -> list[int]:
    warnings.simplefilter("ignore")
    run_here(folder, *options)
    return kept(folder)


@pytest.mark.slow
def test_ranks_keep_the_same_also_when_they_go_back(tmp_path: Path, pairs: list[str]) -> None:
    two = ["trainer.strategy=ddp", "trainer.devices=2", "batch_tokens=200", "callback.history.save_top_k=-1"]
    run, options = tmp_path / "run", [*pairs, *KEPT, *two]
    assert on_ranks(2, on_a_rank, tmp_path, run, *options, "trainer.max_epochs=4") == [lowest(run, 2)] * 2
    assert kept(run, "step=") == [3, 6, 9, 12]
    (run / "checkpoints" / "best-step=3.ckpt").unlink(missing_ok=True)
    still = ["optimizer.lr=0.0", "trainer.max_epochs=3", f"ckpt_path='{run}/checkpoints/step=3.ckpt'"]
    assert on_ranks(2, on_a_rank, tmp_path, run, *options, *still) == [[6, 9]] * 2
    assert kept(run, "step=") == [3, 6, 9, 12]  # all are kept


@pytest.mark.parametrize(
    ("mode", "save_top_k", "gone", "left", "surplus"),
    [
        ("max", 4, [], ["7", "3", "5", "2"], []),
        ("max", 3, [], ["7", "3", "5"], ["2"]),
        ("max", 3, ["5"], ["7", "3", "2"], []),
        ("max", 1, ["7"], ["5"], ["3", "2"]),
        ("min", 2, ["2"], ["3", "5"], ["7"]),
        ("min", -1, ["2", "7"], ["3", "5"], []),
    ],
)
def test_a_callback_forgets_what_is_gone_and_what_is_too_many(
    mode: str, save_top_k: int, gone: list[str], left: list[str], surplus: list[str]
) -> None:
    """A file is named by its score."""
    callback = SimpleNamespace(dirpath="/run", save_top_k=save_top_k, mode=mode)
    state: dict[str, Any] = {"best_k_models": {f"/run/{name}": torch.tensor(float(name)) for name in "7352"}}
    state["best_model_path"] = f"/run/{7 if mode == 'max' else 2}"
    state["kth_best_model_path"] = ""  # as long as there are fewer than are kept
    assert forget(state, callback, [f"/run/{name}" for name in gone]) == [Path("/run", name) for name in surplus]
    assert [Path(file).name for file in state["best_k_models"]] == left
    if len(left) < 4:
        best, worst = (max(left), min(left)) if mode == "max" else (min(left), max(left))
        paths, scores = ["best_model_path", "kth_best_model_path"], ["best_model_score", "kth_value"]
        assert [state[name] for name in paths] == [f"/run/{best}", f"/run/{worst}"]
        assert [float(state[name]) for name in scores] == [float(best), float(worst)]


def test_files_of_later_steps_are_those_that_a_callback_names_itself(tmp_path: Path) -> None:
    folder = tmp_path / "checkpoints"
    folder.mkdir()
    for name in ("step=9", "step=9-v1", "step=7", "best-step=9", "best-step=10", "my-step=9", "epoch=1-step=9", "best"):
        step = 9 if name == "best" else int(name.partition("step=")[2].removesuffix("-v1"))
        torch.save({"global_step": step}, folder / f"{name}.ckpt")
    (folder / "step=11.ckpt").write_bytes(b"cut")

    def later(
        kind: type[ModelCheckpoint], filename: str, save_top_k: int, run_dir: Path = tmp_path, **options: Any
    ) -> list[str]:
        callback = kind(folder, filename, "val/bleu", save_top_k=save_top_k, **options)
        return [file.name for file in later_files(callback, 7, run_dir)]

    assert later(BestCheckpoints, "best-{step}", 2) == ["best-step=9.ckpt", "best-step=10.ckpt"]
    assert later(ModelCheckpoint, "{step}", 1) == ["step=9.ckpt", "step=11.ckpt"]
    assert later(ModelCheckpoint, "{step}", 1, tmp_path / "other") == []  # the folder may have files of several runs
    assert later(ModelCheckpoint, "best", 1, enable_version_counter=False) == []
    assert [later(BestCheckpoints, "best-{step}", number) for number in (0, -1)] == [[], []]


@pytest.mark.parametrize(("mode", "after"), [("max", 5), ("max", 3), ("min", 5)])
def test_the_file_of_the_validation_that_made_best_ckpt_is_kept(mode: str, after: int, tmp_path: Path) -> None:
    """It is saved after best.ckpt, from which the run is resumed."""
    folder = tmp_path / "checkpoints"
    folder.mkdir()
    for step in (3, 5):
        (folder / f"best-step={step}.ckpt").touch()
    callback = BestCheckpoints(folder, "best-{step}", "val/bleu", mode=mode, save_top_k=2, enable_version_counter=False)
    first, second = (str(folder / f"best-step={step}.ckpt") for step in (3, 5))
    callback.best_k_models, callback.best_model_path = {first: torch.tensor(7.0)}, first
    resume = {"validated_step": after, "metrics": {"val/bleu": torch.tensor(9.0)}}
    checkpoint = {"callbacks": {callback.state_key: callback.state_dict()}, "global_step": 5, "resume": resume}
    trainer = SimpleNamespace(
        default_root_dir=str(tmp_path), is_global_zero=True, strategy=SimpleNamespace(broadcast=lambda own: own)
    )
    assert adopt_files(callback, checkpoint, trainer) == []
    state = checkpoint["callbacks"][callback.state_key]
    assert state["best_k_models"] == {first: 7.0} | ({second: 9.0} if after == 5 else {})
    assert state["best_model_path"] == (second if (mode, after) == ("max", 5) else first)


@pytest.mark.parametrize("is_gone", [False, True])
def test_the_first_process_says_whether_the_best_checkpoint_is_gone(is_gone: bool, tmp_path: Path) -> None:
    """This one does not see the file, as may happen on a shared disk."""
    best = str(tmp_path / "checkpoints" / "best.ckpt")
    state = {"dirpath": None, "best_model_path": best, "kth_best_model_path": best, "monitor": "val/bleu"}
    state |= {"best_model_score": torch.tensor(7.0), "best_k_models": {best: torch.tensor(7.0)}}
    checkpoint = {"callbacks": {"kept": state}, "global_step": 3}
    answers = [[], is_gone]
    strategy = SimpleNamespace(broadcast=lambda own: answers.pop(0))
    trainer = SimpleNamespace(default_root_dir=str(tmp_path), is_global_zero=False, strategy=strategy)
    callback = SimpleNamespace(
        state_key="kept", dirpath=str(tmp_path / "checkpoints"), save_top_k=1, mode="max", filename="best"
    )
    assert adopt_files(callback, checkpoint, trainer) == []
    assert (checkpoint["callbacks"] == {}) == is_gone


def test_the_first_process_says_whether_the_last_validation_is_the_best(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All processes save together, or none does."""
    for name in ("best.ckpt", "last.ckpt"):
        (tmp_path / name).touch()
    monkeypatch.setattr("seq2seq_attn.checkpoint.best.read_checkpoint", lambda file: {"state_dict": {}})
    kept = SimpleNamespace(filename="best", best_model_score=3.0, monitor="val/bleu", mode="max", save_top_k=1)
    saved: list[Path] = []
    trainer = SimpleNamespace(
        checkpoint_callbacks=[kept],
        global_step=7,
        callback_metrics={},
        state=SimpleNamespace(fn=None),
        strategy=SimpleNamespace(broadcast=lambda own: own if isinstance(own, tuple) else False),
        validate=lambda *_, **__: [{"val/bleu": 5.0}],
        save_checkpoint=saved.append,
        fit_loop=SimpleNamespace(epoch_loop=SimpleNamespace(_batches_that_stepped=7)),
    )
    load_best(trainer, SimpleNamespace(validated_step=-1, load_state_dict=lambda state: None), None, tmp_path)
    assert set(saved) == {tmp_path / "last.ckpt"}
