"""A run folder has one process at work in it, and a second one leaves it as it is."""

from __future__ import annotations

import errno
import fcntl
import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from child import Child, done
from configs import ROOT
from forked import ended, forked
from omegaconf import DictConfig
from small_run import run_here

from seq2seq_attn.distributed import run_lock
from seq2seq_attn.distributed.run_lock import (
    LOCK,
    RunLock,
    check_folder,
    check_hydra,
    check_is_sweep,
    check_log,
    is_locked,
    only_process_in,
    remove_unused,
)
from seq2seq_attn.errors import UserError

WRITTEN = (  # by a run
    "config.yaml", "metrics.csv", "results.json", "provenance.json", "profile.txt", "not_finite.tsv", "mlflow_run_id",
    "translations.tsv", "translations_web.references",
)  # fmt: skip


@contextmanager
def another_at_work(folder: Path) -> Iterator[None]:
    """As another process has the lock: by a file that it has opened itself."""
    with (folder / LOCK).open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def everything(folder: Path) -> dict[str, tuple[int, bytes]]:
    """Every file of a folder, its time and its content."""
    return {
        str(path.relative_to(folder)): (path.stat().st_mtime_ns, path.read_bytes())
        for path in folder.rglob("*")
        if path.is_file()
    }


def test_a_run_in_the_folder_of_a_running_one_is_refused_and_changes_nothing_there(
    tmp_path: Path, pairs: list[str]
) -> None:
    (tmp_path / "results.json").write_text("{}")
    with another_at_work(tmp_path):
        before = everything(tmp_path)
        with pytest.raises(UserError, match=f"^another process is at work in {tmp_path}; wait for it, or end"):
            run_here(tmp_path, *pairs, "resume=auto")
        assert everything(tmp_path) == before


def test_the_command_leaves_before_hydra_writes_into_the_folder_of_a_running_one(tmp_path: Path) -> None:
    folder = tmp_path / "a[b]"
    folder.mkdir()
    with another_at_work(folder):
        before = everything(folder)
        answer = done(ROOT / "train.py", f"hydra.run.dir='{folder}'", "resume=auto", folder=ROOT)
        assert everything(folder) == before
    assert (answer.returncode, answer.stdout) == (2, "")
    assert answer.stderr == f"another process is at work in {folder}; wait for it, or end it, or give another folder\n"


@pytest.mark.parametrize(
    ("command", "way_out"),
    [
        (["train.py"], "holds a run; resume=auto continues it, and another hydra.run.dir starts a new one"),
        (["evaluate.py", "ckpt_path={run}"], "holds a run, whose files would be replaced; give another hydra.run.dir"),
    ],
)
def test_a_run_keeps_its_files_when_its_folder_is_given_to_another_command(
    command: list[str], way_out: str, tmp_path: Path
) -> None:
    """Hydra would overwrite the overrides in .hydra before the command itself begins."""
    for name in ("checkpoints/last.ckpt", ".hydra/overrides.yaml", "translations.tsv"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(name)
    before = everything(tmp_path)
    words = [word.format(run=tmp_path) for word in command[1:]]
    answer = done(ROOT / command[0], *words, f"hydra.run.dir={tmp_path}", folder=ROOT)
    assert {name: it for name, it in everything(tmp_path).items() if name != LOCK} == before
    assert (answer.returncode, answer.stdout) == (2, "")
    assert answer.stderr.startswith(f"{tmp_path} {way_out}")


def test_a_run_may_be_continued_in_its_folder(tmp_path: Path) -> None:
    run = tmp_path / "run"

    def asked(**options: str | list[str] | None) -> None:
        check_folder(DictConfig({"resume": None, "ckpt_path": None} | options), run)

    asked()  # it holds none
    last, other = run / "checkpoints/last.ckpt", tmp_path / "other.ckpt"
    for file in (last, other):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch()
    for options in ({"resume": "auto"}, {"ckpt_path": str(run)}, {"ckpt_path": str(last)}):
        asked(**options)
    for refused in (None, str(other), str(run / "none.ckpt"), "~nobody/x", [str(last), str(other)]):
        with pytest.raises(UserError, match="holds a run"):
            asked(ckpt_path=refused)


def test_links_to_nothing_are_a_run_too_and_a_link_in_a_run_is_of_it(tmp_path: Path) -> None:
    last = tmp_path / "run" / "checkpoints" / "last.ckpt"
    last.parent.mkdir(parents=True)
    last.symlink_to(tmp_path / "kept")
    with pytest.raises(UserError, match="holds a run"):
        check_folder(DictConfig({"resume": None, "ckpt_path": None}), tmp_path / "run")
    (tmp_path / "kept").touch()
    check_folder(DictConfig({"resume": None, "ckpt_path": str(last)}), tmp_path / "run")


@pytest.mark.parametrize("resume", [None, "auto"])
@pytest.mark.parametrize("name", WRITTEN)
def test_a_file_of_the_users_own_is_not_replaced_by_a_run(name: str, resume: str | None, tmp_path: Path) -> None:
    asked = DictConfig({"resume": resume, "ckpt_path": None})
    check_folder(asked, tmp_path)
    (tmp_path / name).write_text('{"bleu": 31.2}')
    with pytest.raises(UserError, match=f"^{tmp_path / name} was not written by a run, since the folder has no prov"):
        check_folder(asked, tmp_path)


@pytest.mark.parametrize("name", WRITTEN)
@pytest.mark.parametrize("mark", ["provenance.json", "checkpoints/last.ckpt"])  # the first is of a run killed early
def test_a_run_goes_on_among_its_own_files(mark: str, name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text("{}")
    (tmp_path / mark).parent.mkdir(exist_ok=True)
    (tmp_path / mark).write_text('{"command": [], "versions": {}}')
    check_folder(DictConfig({"resume": "auto", "ckpt_path": None}), tmp_path)


def test_an_evaluation_may_be_beside_files_of_ones_own(tmp_path: Path) -> None:
    for name in set(WRITTEN) - {"results.json"}:
        (tmp_path / name).write_text("mine")
    check_folder(DictConfig({}), tmp_path)  # evaluate.py checks what it writes


def test_the_folder_of_a_sweep_is_refused_for_a_single_run() -> None:
    check_is_sweep(["hydra.run.dir=mine", "hydra.sweep.subdir=a"])
    with pytest.raises(UserError, match=r"^hydra.sweep.dir=all names .*; add -m, or give hydra.run.dir=all$"):
        check_is_sweep(["hydra.run.dir=mine", "hydra.sweep.dir=all"])


def test_a_folder_that_several_evaluations_do_not_read_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    def start(*typed: str, **options: None) -> None:
        RunLock().on_multirun_start(DictConfig({"hydra": {"overrides": {"hydra": list(typed)}}} | options))

    start("hydra.sweep.dir=all", "hydra.sweep.subdir=${hydra.job.override_dirname}")
    start("hydra.run.dir=mine", resume=None)  # a training's own sweeper looks at it
    assert capsys.readouterr().err == ""
    with pytest.raises(SystemExit) as ended:
        start("hydra.run.dir=mine")
    assert ended.value.code == 2
    assert capsys.readouterr().err.startswith("hydra.run.dir=mine would change nothing in a sweep, which makes a folde")


def test_a_run_in_the_folder_of_ones_own_files_is_refused_before_hydra_writes_there(tmp_path: Path) -> None:
    (tmp_path / "metrics.csv").write_text("mine")
    nowhere = ["data=parallel", "data.train=nowhere.tsv"]
    answer = done(ROOT / "train.py", "hydra.run.dir=.", *nowhere, folder=tmp_path)
    assert (answer.returncode, answer.stdout) == (2, "")
    assert answer.stderr.startswith("metrics.csv was not written by a run, ")
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {"metrics.csv": "mine", LOCK: ""}


def test_a_folder_that_hydra_does_not_write_is_checked_for_ones_own_files_too(tmp_path: Path, pairs: list[str]) -> None:
    (tmp_path / "metrics.csv").write_text("mine")
    for resume in ("null", "auto"):
        with pytest.raises(UserError, match=r"/metrics.csv was not written by a run, .+; give another paths.run_dir, "):
            run_here(tmp_path, *pairs, f"resume={resume}")
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {"metrics.csv": "mine", LOCK: ""}


@pytest.mark.slow
def test_files_that_hydra_has_written_into_its_folder_are_none_of_the_users_own(tmp_path: Path) -> None:
    nowhere = ["data=parallel", "data.train=nowhere.tsv", "hydra.output_subdir=."]
    answer = done(ROOT / "train.py", f"hydra.run.dir={tmp_path / 'new'}", *nowhere, folder=tmp_path)
    assert "nowhere.tsv" in answer.stderr
    (tmp_path / "config.yaml").write_text("mine")
    named = [f"hydra.run.dir={tmp_path / 'new'}", f"paths.run_dir={tmp_path}"]
    answer = done(ROOT / "train.py", *named, *nowhere, folder=tmp_path)
    assert answer.stderr.startswith(f"{tmp_path}/config.yaml was not written by a run, ")


@pytest.mark.parametrize("command", ["train.py", "evaluate.py"])
def test_what_hydra_has_recorded_of_another_program_is_not_replaced(command: str, tmp_path: Path) -> None:
    (tmp_path / ".hydra").mkdir()
    for name in ("config", "hydra", "overrides"):
        (tmp_path / ".hydra" / f"{name}.yaml").write_text("hydra:\n  job:\n    name: other\n")
    before = everything(tmp_path)
    answer = done(ROOT / command, f"hydra.run.dir={tmp_path}", folder=ROOT)
    assert {name: it for name, it in everything(tmp_path).items() if name != LOCK} == before
    assert (answer.returncode, answer.stdout) == (2, "")
    assert answer.stderr.startswith(f"{tmp_path}/.hydra/hydra.yaml was written by another program that uses Hydra, and")


@pytest.mark.slow
def test_the_records_of_ones_own_start_are_replaced(tmp_path: Path) -> None:
    check_hydra(tmp_path, Path(".hydra"))
    (tmp_path / ".hydra").mkdir()
    nowhere = ["data=parallel", "data.train=nowhere.tsv", f"hydra.run.dir={tmp_path}"]
    for _ in range(2):
        assert "nowhere.tsv" in done(ROOT / "train.py", *nowhere, folder=ROOT).stderr
    assert (tmp_path / ".hydra" / "hydra.yaml").exists()
    (tmp_path / ".hydra" / "hydra.yaml").write_text("")  # killed
    check_hydra(tmp_path, Path(".hydra"))
    (tmp_path / ".hydra" / "hydra.yaml").write_text("job: {name: other}")
    with pytest.raises(UserError, match="written by another program"):
        check_hydra(tmp_path, Path(".hydra"))
    (tmp_path / "provenance.json").write_text('{"command": [], "versions": {}}')
    check_hydra(tmp_path, Path(".hydra"))


def test_a_log_that_cannot_be_written_is_one_sentence(tmp_path: Path) -> None:
    check_log(tmp_path / "train.log")  # there is none
    (tmp_path / "train.log").write_text("a")
    check_log(tmp_path / "train.log")
    assert (tmp_path / "train.log").read_text() == "a"
    (tmp_path / "folder").mkdir()
    with pytest.raises(
        UserError, match=r"folder cannot be written \(Is a directory\); make it writable, or give another"
    ):
        check_log(tmp_path / "folder")


def test_a_folder_of_too_long_a_name_is_one_sentence(tmp_path: Path) -> None:
    name = 300 * "a"
    # Hydra would turn another error than ours into a warning, which a forked child does not show
    answer = Child(ROOT / "train.py", [f"hydra.run.dir={name}"], tmp_path, own_python=True).wait()
    assert answer.returncode == 2
    assert answer.stderr == f"{name} cannot be made (File name too long); give another hydra.run.dir\n"


NOWHERE = "data.train=nowhere.tsv"  # refused before anything is made in the folder
UNTRAINED = "optimizer=muon model=conv attention=luong_dot"  # refused by the optimizer, with checkpoints/ there


@pytest.mark.parametrize(
    ("kept", "wrong"),
    [
        (["mine/note.txt"], NOWHERE),
        ([], UNTRAINED),
        *(pytest.param(kept, NOWHERE, marks=pytest.mark.slow) for kept in ([], ["mine/run/"])),
    ],
)
def test_a_start_that_fails_removes_the_folders_that_it_has_made_and_no_other(
    kept: list[str], wrong: str, pairs: list[str], tmp_path: Path
) -> None:
    for name in kept:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).mkdir() if name.endswith("/") else (tmp_path / name).touch()
    folder = tmp_path / "mine" / "run" / "new"
    given = ["data=parallel", *pairs, "tokenizer.vocab_size=40", "trainer=cpu", f"hydra.run.dir={folder}"]
    answer = done(ROOT / "train.py", *given, *wrong.split(), folder=ROOT)
    assert answer.returncode == 2, answer.stderr
    assert ("optimizer=muon finds no matrix" in answer.stderr) == (wrong == UNTRAINED), answer.stderr
    left = {f"{path.relative_to(tmp_path)}{'/' * path.is_dir()}" for path in tmp_path.rglob("*")}
    assert left == {*kept, *(["mine/"] if kept else [])}


def test_a_new_folder_that_holds_what_the_command_did_not_write_stays(tmp_path: Path) -> None:
    folder = tmp_path / "new"
    (folder / ".hydra").mkdir(parents=True)
    (folder / ".hydra" / "note.txt").touch()
    remove_unused([folder, tmp_path], {Path(".hydra"), Path(LOCK)})
    assert (folder / ".hydra" / "note.txt").exists()
    (folder / ".hydra" / "note.txt").unlink()
    remove_unused([folder], {Path(".hydra"), Path(LOCK)})
    assert list(tmp_path.iterdir()) == []


def test_ranks_that_are_not_the_first_need_no_lock(
    tmp_path: Path, pairs: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It comes as far as the corpus, past the lock of its own rank 0."""
    monkeypatch.setenv("LOCAL_RANK", "1")
    with another_at_work(tmp_path), pytest.raises(UserError, match=r"nowhere"):
        run_here(tmp_path, *pairs, "data.train=nowhere.tsv")


def test_a_killed_process_leaves_its_folder_to_the_next(tmp_path: Path) -> None:
    def work() -> None:
        with only_process_in(tmp_path):
            (tmp_path / "ready").touch()
            time.sleep(60)

    child = forked(work)
    while not (tmp_path / "ready").exists():
        time.sleep(0.01)
    assert is_locked(tmp_path)
    os.kill(child, signal.SIGKILL)
    ended(child)
    assert not is_locked(tmp_path)
    with only_process_in(tmp_path), only_process_in(tmp_path / "sub" / ".."):  # a process that has it may ask again
        assert is_locked(tmp_path)
    assert not is_locked(tmp_path)


def test_a_file_system_without_locks_stops_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def unable(*_: object) -> None:
        raise OSError(errno.ENOLCK, "no locks available")

    monkeypatch.setattr(run_lock.fcntl, "flock", unable)
    with only_process_in(tmp_path / "new"):
        assert not is_locked(tmp_path / "new")
