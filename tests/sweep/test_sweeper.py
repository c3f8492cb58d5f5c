"""A sweep: failures stay in their jobs, complete jobs are skipped, whichever launcher runs them."""

from __future__ import annotations

import json
import os
import re
import signal
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace

import pytest
from omegaconf import OmegaConf
from sweep.small_sweep import begun, kill_in_job, start_until, swept, told, wait_until, write_app, write_slurm

from seq2seq_attn.distributed.run_lock import is_locked, only_process_in
from seq2seq_attn.errors import UserError
from seq2seq_attn.files import read_json
from seq2seq_attn.sweep import job_task
from seq2seq_attn.sweep import sweep as sweep_module
from seq2seq_attn.sweep.job import COMPLETE, WAITING, Job, definition
from seq2seq_attn.sweep.job_task import JobTask
from seq2seq_attn.sweep.sweep import Sweep, print_table

JOBLIB = ("hydra/launcher=joblib", "hydra.launcher.n_jobs=2")
LAUNCHERS: dict[str, tuple[str, ...]] = {
    "basic": (),
    "joblib": JOBLIB,
    "submitit_local": ("hydra/launcher=submitit_local",),
}
SLOW = pytest.param("submitit_local", marks=pytest.mark.slow)  # its processes take seconds to start
each_launcher = pytest.mark.parametrize("launcher", ["basic", pytest.param("joblib", marks=pytest.mark.slow), SLOW])


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_app(tmp_path / "app")


@each_launcher
def test_failures_are_on_record_and_the_sweep_goes_on_and_tells_of_them_at_its_end(folder: Path, launcher: str) -> None:
    code, out, error = swept(folder, "do=refuse,bug,work", "seed=7", *LAUNCHERS[launcher])
    assert code == 2
    assert [told(folder, job)["status"] for job in range(3)] == ["failed", "failed", "complete"]
    assert told(folder, 0)["why"] == "this is refused; take another"
    assert told(folder, 1)["why"] == f"OddError: a bug (see {folder}/sweep/1/error.txt)"
    assert "OddError: a bug" in (folder / "sweep" / "1" / "error.txt").read_text()
    assert error[-1] == (
        "2 of 3 jobs failed (0, 1); repeat the command with hydra.sweep.dir=sweep resume=auto: complete jobs are "
        "skipped, the others run again"
    )
    ended = [line for line in out if line.startswith("job ")]
    if launcher != "submitit_local":  # which keeps what its processes print
        assert sorted(line.split(": ")[0] for line in ended) == [
            f"job {job} do={do}" for job, do in enumerate(("refuse", "bug", "work"))
        ]
        assert "job 2 do=work: BLEU 30.0, 0.0 min" in ended
    if launcher != "basic":  # each process prints into a file, and sees the command that was typed
        assert not [line for line in out if line.startswith("at work")]
        assert "at work on 7" in (folder / "sweep" / "2" / "output.txt").read_text().splitlines()
        results = told(folder, 2, "results.json")
        typed = ["-m", "do=refuse,bug,work", "seed=7", *LAUNCHERS[launcher]]
        assert (results["argv"], results["spec"]) == (typed, "None")
    rows = [line for line in out if line.startswith("│")]
    assert [row.split("│")[3].strip() for row in rows] == ["failed", "failed", "complete"]
    assert rows[2].split("│")[4].strip() == "30.0"


@each_launcher
def test_a_repeated_sweep_runs_what_is_missing_alone(folder: Path, launcher: str) -> None:
    overrides = ("seed=1,2,3,5", "resume=auto", *LAUNCHERS[launcher])
    assert swept(folder, *overrides)[0] == 0
    (folder / "sweep" / "1" / "results.json").unlink()
    (folder / "sweep" / "1" / "error.txt").write_text("of an earlier attempt")
    (folder / "sweep" / "1" / "job.json").write_text(json.dumps(told(folder, 1) | {"minutes": 60.0}))
    for file in (folder / "sweep" / "3").iterdir():
        if file.is_file():
            file.unlink()
    code, out, _ = swept(folder, *overrides)
    assert code == 0
    assert begun(folder) == [1, 2, 1, 1]
    assert 60 < told(folder, 1)["minutes"] < 65
    assert not (folder / "sweep" / "1" / "error.txt").exists()
    assert [line for line in out if "skipped" in line] == [f"job {job}: complete, skipped" for job in (0, 2)]
    if launcher != "submitit_local":  # which keeps what its processes print
        ran = {line.split()[1] for line in out if line.startswith("job ") and "skipped" not in line}
        assert ran == {"1", "3"}
    assert [told(folder, job)["overrides"][-1] for job in range(4)] == [f"seed={s}" for s in (1, 2, 3, 5)]


@pytest.mark.slow
def test_jobs_of_a_slurm_array_are_recorded_and_repeated_as_those_of_other_launchers(folder: Path) -> None:
    write_slurm(folder)
    overrides = ("do=work,refuse,bug", "resume=auto", "hydra/launcher=submitit_slurm")
    for times in (1, 2):
        code, out, error = swept(folder, *overrides, "hydra.launcher.partition=fast")
        assert code == 2
        assert "2 of 3 jobs failed (1, 2)" in error[-1]
        assert begun(folder) == [1, times, times]
    assert [line for line in out if "skipped" in line] == ["job 0: complete, skipped"]
    scripts = list((folder / "sweep" / ".submitit").rglob("[0-9]*_submission.sh"))
    assert len(scripts) == 2
    assert all("#SBATCH --partition=fast" in script.read_text() for script in scripts)


def test_without_resume_a_sweep_is_refused_where_there_is_one(folder: Path) -> None:
    assert swept(folder, "seed=1,2")[0] == 0
    before = [told(folder, job) for job in range(2)]
    code, out, error = swept(folder, "seed=1,2")
    assert (code, out) == (2, [])
    assert error == ["sweep holds a sweep; resume=auto continues it, and another hydra.sweep.dir starts a new one"]
    assert begun(folder) == [1, 1]
    assert [told(folder, job) for job in range(2)] == before


def test_a_sweep_that_is_now_another_is_refused_before_any_job(folder: Path) -> None:
    assert swept(folder, "seed=1,2", "resume=auto")[0] == 0
    code, out, error = swept(folder, "seed=1,3", "x=0.25", "resume=auto")
    assert (code, out) == (2, [])
    assert error == [
        "sweep/0 holds a job of another sweep (no more overrides, now x=0.25); repeat the sweep that began there, or "
        "give another hydra.sweep.dir"
    ]
    assert begun(folder) == [1, 1]


def test_a_mistake_in_a_later_job_is_found_before_the_first(folder: Path) -> None:
    code, _, error = swept(folder, "seed=1,2", "+hydra/launcher=basik,basic")
    assert code == 2
    assert len(error) == 1
    assert begun(folder) == []


@each_launcher
def test_a_sweep_that_was_killed_goes_on_where_it_was(folder: Path, launcher: str) -> None:
    overrides = ("seed=1,2,3,5", "resume=auto", *LAUNCHERS[launcher])
    kill_in_job(folder, 2, *overrides)
    records = [read_json(folder / "sweep" / str(job) / "job.json") for job in range(4)]
    complete = [job for job, record in enumerate(records) if record.get("status") == "complete"]
    before = begun(folder)
    code, out, _ = swept(folder, *overrides)
    assert code == 0
    skipped = [f"job {job}: complete, skipped" for job in complete]
    assert [line for line in out if "skipped" in line] == skipped
    assert 2 not in complete
    assert begun(folder)[2] == 2
    assert all(begun(folder)[job] == before[job] == 1 for job in complete)
    assert [told(folder, job)["status"] for job in range(4)] == ["complete"] * 4


@pytest.mark.slow
@pytest.mark.parametrize("launcher", ["joblib", SLOW])
def test_a_job_whose_process_is_killed_does_not_end_the_sweep(folder: Path, launcher: str) -> None:
    """Joblib ends the process of the other job at work too, which then counts as failed."""
    code, _, error = swept(folder, "do=die,work", "seed=1,2", *LAUNCHERS[launcher])
    assert code == 2
    assert "jobs failed (0, 1" in error[-1]
    statuses = [told(folder, job)["status"] for job in range(4)]
    assert statuses[:2] == ["failed"] * 2
    assert statuses[2:].count("complete") >= (2 if launcher == "submitit_local" else 1)
    assert told(folder, 0)["why"].startswith("its process was killed (")


@pytest.mark.slow  # one job that is told to end is tested below
@pytest.mark.parametrize("to", ["command", "group"])
@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_lets_the_jobs_of_workers_save_and_begins_no_other(
    folder: Path, signum: signal.Signals, to: str
) -> None:
    """A terminal sends its signals to the whole group of processes."""
    overrides = ("seed=1,2,3,5,7", "resume=auto", *JOBLIB)
    child = start_until(folder, [0, 1], *overrides)
    (os.kill if to == "command" else os.killpg)(child.pid, signum)
    done = child.wait()
    assert done.returncode == 128 + signum
    for job in (0, 1):
        assert (folder / f"sweep/{job}/saved.txt").read_text() == "SystemExit"
        assert f"job {job} is told to save and to end; resume=auto continues it" in done.stderr
        (folder / f"hold{job}").unlink()
    assert [told(folder, job)["status"] for job in (2, 3, 4)] == ["stopped"] * 3
    assert begun(folder) == [1, 1]
    assert swept(folder, *overrides)[0] == 0
    assert begun(folder) == [2, 2, 1, 1, 1]
    assert [told(folder, job)["status"] for job in range(5)] == ["complete"] * 5


@pytest.mark.slow
def test_the_jobs_of_workers_end_with_a_command_that_is_killed(folder: Path) -> None:
    child = start_until(folder, [0, 1], "seed=1,2,3", *JOBLIB)
    os.kill(child.pid, signal.SIGKILL)
    child.wait()
    wait_until(lambda: not any(is_locked(folder / "sweep" / str(job)) for job in (0, 1)))
    assert begun(folder) == [1, 1]


def test_a_job_that_another_process_is_at_work_in_is_left_alone(tmp_path: Path) -> None:
    job = Job(0, ("seed=1",), tmp_path / "0")
    job.write("waiting")
    with only_process_in(job.folder), pytest.raises(UserError, match=r"works in .*0; wait for it, or end it"):
        job.check()
    job.check()


def test_how_a_job_is_started_is_no_part_of_what_it_is() -> None:
    assert definition(["seed=1", "resume=auto", "seed=2"]) == definition(["+resume=null", "seed=2"])
    assert definition(["seed=1", "hydra.job.chdir=true"]) == definition(["seed=1", "hydra/launcher=joblib"])
    assert definition(["seed=1"]) != definition(["seed=2"])
    assert len(definition(["hydrated=1", "resumed=1", "+hydra.x=1", "~resume"])) == 2


def job_of_hydra(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Job:
    """The job that Hydra runs in this process."""
    job = Job(0, ("seed=1",), folder)
    runtime, overrides = SimpleNamespace(output_dir=str(job.folder)), SimpleNamespace(task=["seed=1"])
    hydra = SimpleNamespace(runtime=runtime, overrides=overrides)
    monkeypatch.setattr(job_task.HydraConfig, "get", lambda: hydra)
    return job


def test_a_complete_job_that_a_cluster_begins_twice_stays_complete(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job, ran = job_of_hydra(tmp_path / "0", monkeypatch), []
    job.write(COMPLETE)
    JobTask(ran.append)(OmegaConf.create())
    assert (ran, job.status) == ([], COMPLETE)


def test_a_failure_is_recorded_by_the_first_task_of_a_job_and_ends_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = job_of_hydra(tmp_path / "0", monkeypatch)

    def refuse(config: object) -> None:
        raise UserError("too hot")

    monkeypatch.setenv("SLURM_PROCID", "1")
    with pytest.raises(UserError, match=r"^too hot$"):
        JobTask(refuse)(OmegaConf.create())
    assert job.status == WAITING
    monkeypatch.setenv("SLURM_PROCID", "0")
    JobTask(refuse)(OmegaConf.create())
    assert job.record["why"] == "too hot"


def test_a_sweep_within_an_interactive_allocation_is_no_job_of_srun(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLURM_NTASKS", "2")
    monkeypatch.setenv("SLURM_JOB_NAME", "interactive")
    assert swept(folder, "seed=1,2")[0] == 0


@pytest.mark.parametrize("name", ["WORLD_SIZE", "SLURM_NTASKS"])
def test_a_sweep_that_torchrun_or_srun_has_started_is_refused(
    name: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, "2")
    code, _, error = swept(folder, "seed=1,2")
    sentence = "each job of a sweep starts its own processes; start the sweep without torchrun and srun"
    assert (code, error, begun(folder)) == (2, [sentence], [])


@pytest.mark.parametrize("override", ["hydra.run.dir=mine", "hydra.sweep.subdir=${hydra.job.num}/run"])
def test_a_folder_that_a_sweep_does_not_read_is_refused(override: str, folder: Path) -> None:
    code, out, error = swept(folder, "seed=1,2", override, "hydra.sweep.dir=sweep")
    assert (code, out, begun(folder), (folder / "sweep").exists()) == (2, [], [], False)
    assert error == [
        f"{override} would change nothing in a sweep, which makes a folder for each job, named by its number; leave it "
        "out, and give hydra.sweep.dir=FOLDER for the folder of all of them"
    ]


def test_a_file_that_would_not_be_read_is_refused_before_any_job(folder: Path) -> None:
    own = folder / "mine" / "search" / "beam.yaml"
    own.parent.mkdir(parents=True)
    own.write_text("beam_size: 3\n")
    code, out, error = swept(folder, "seed=1,2", f"hydra.searchpath=[{folder / 'mine'}]", "hydra.sweep.dir=sweep")
    assert (code, out, begun(folder), (folder / "sweep").exists()) == (2, [], [], False)
    (sentence,) = error
    assert sentence.startswith(f"{own} is not read, since ")


def test_an_interval_is_no_grid(folder: Path) -> None:
    code, _, error = swept(folder, "x=interval(0,1)")
    assert (code, len(error), begun(folder)) == (2, 1, [])
    assert error == [
        "x=interval(0,1) names no values to try; sweep=optuna searches it, or give values, such as range(1,6) or "
        "0.1,0.2"
    ]


@pytest.mark.parametrize("override", ["seed=range(3,1)", "attention=glob(synthesiser_*)"])
@pytest.mark.parametrize("sweeper", ["grid", "optuna"])
def test_an_override_without_a_value_is_refused_before_a_folder_is_made(
    sweeper: str, override: str, folder: Path
) -> None:
    code, _, error = swept(folder, f"hydra/sweeper={sweeper}", "x=0.1,0.2", override)
    assert (code, error[-1]) == (2, f"{override} names no value to try; give a range or a pattern that has one")
    assert not (folder / "sweep").exists()


@pytest.mark.parametrize("size", ["-1", "0", "abc"])
def test_a_batch_that_holds_no_job_is_refused(size: str, folder: Path) -> None:
    code, _, error = swept(folder, "seed=1,2", f"hydra.sweeper.max_batch_size={size}")
    assert (code, error[-1]) == (2, f"hydra.sweeper.max_batch_size={size} must be a whole number of at least 1")


def test_scores_of_one_metric_have_it_in_the_head_and_others_in_their_cells(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "150")
    jobs = []
    for number, results in enumerate(({"test/chrf": 43.21}, {"test/ter": 66.7}, {})):
        jobs.append(Job(number, (f"metric=[{number}]",), tmp_path / str(number)))
        jobs[-1].write("complete")
        (jobs[-1].folder / "results.json").write_text(json.dumps(results))
    print_table(tmp_path, jobs)
    said = capsys.readouterr().out
    assert "test score" in said
    assert "chrF 43.2" in said
    assert "TER 66.7" in said
    print_table(tmp_path, jobs[:1])
    said = capsys.readouterr().out
    assert "test chrF" in said
    assert "chrF 43.2" not in said


def test_the_score_of_a_job_is_of_the_metric_that_it_monitors(tmp_path: Path) -> None:
    job = Job(0, ("metric=[bleu,rouge]",), tmp_path)
    results = {"test/bleu": 1.0, "test/rougeL": 2.0, "test/mine": 3.0, "test/mine_signature": "v1", "val/loss": 4.0}
    (tmp_path / "results.json").write_text(json.dumps(results))
    assert job.score == ("BLEU", 1.0)
    for monitor, score in (("val/rougeL", ("ROUGE-L", 2.0)), ("val/mine", ("mine", 3.0)), ("val/loss", ("BLEU", 1.0))):
        (tmp_path / "config.yaml").write_text(f"monitor: {monitor}\n")
        assert job.score == score
    (tmp_path / "results.json").write_text('{"test/mine": 3.0, "test/mine_signature": "v1", "test/loss": 5.0}')
    assert job.score == ("mine", 3.0)


def test_a_run_without_the_record_of_its_job_is_no_job_of_any_sweep(tmp_path: Path) -> None:
    job = Job(0, ("a=1",), tmp_path / "0")
    job.check()
    (tmp_path / "0" / "checkpoints").mkdir(parents=True)
    (tmp_path / "0" / "checkpoints" / "last.ckpt").touch()
    with pytest.raises(
        UserError, match=r"0 holds a run without its job.json, so it cannot be known whether it is this"
    ):
        job.check()
    job.write("complete")
    job.check()


@pytest.mark.parametrize("more", [pytest.param((), marks=pytest.mark.slow), ("resume=auto",)])
def test_what_no_job_has_written_is_left_as_it_is(folder: Path, more: tuple[str, ...]) -> None:
    first = folder / "sweep" / "0"
    (first / "checkpoints").mkdir(parents=True)
    for name, sentence in (
        ("metrics.csv", r"sweep/0/metrics.csv was not written by a run, .*; give another hydra.sweep.dir, or rename"),
        ("checkpoints/best.ckpt", "sweep/0 holds a run without its job.json, so it cannot be known whether it is"),
    ):
        (first / name).write_text("mine")
        for _ in range(2):
            code, _, error = swept(folder, "seed=1,2", *more)
            assert code == 2
            assert re.match(sentence, error[-1])
        assert (first / name).read_text() == "mine"
        assert not (first / "job.json").exists()
        (first / name).unlink()
    assert swept(folder, "seed=1,2", *more)[0] == 0


def test_a_multirun_file_of_something_else_is_not_replaced(folder: Path) -> None:
    mine = folder / "sweep" / "multirun.yaml"
    mine.parent.mkdir()
    mine.write_text("my: own")
    code, _, error = swept(folder, "seed=1,2")
    assert code == 2
    assert error[-1].startswith("sweep/multirun.yaml was not written by a sweep, since no job is beside it, and this")
    assert mine.read_text() == "my: own"
    (folder / "sweep" / "1").mkdir()  # a sweep from which a job was deleted, to be run again
    (folder / "sweep" / "1" / "job.json").write_text('{"overrides": ["seed=2"]}')
    assert swept(folder, "seed=1,2", "resume=auto")[0] == 0


@pytest.mark.parametrize(
    ("resume", "dir", "warned"), [("auto", "${now:%Y}", True), ("auto", "mine", False), (None, "${now:%Y}", False)]
)
def test_a_sweep_whose_jobs_were_deleted_begins_again_and_warns_of_a_folder_that_no_command_finds_again(
    resume: str | None, dir: str, warned: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    (tmp_path / "multirun.yaml").write_text(
        "hydra:\n  sweeper:\n    _target_: hydra_plugins.seq2seq_attn.GridSweeper\n"
    )
    sweep = Sweep.__new__(Sweep)
    sweep.folder, sweep.resumes = tmp_path, resume == "auto"
    sweep.config = OmegaConf.create({"resume": resume, "hydra": {"sweep": {"dir": dir}}})
    with ExitStack() as until_exit:
        monkeypatch.setattr(sweep_module, "UNTIL_EXIT", until_exit)
        sweep.make_folder()
    assert "resume" in (tmp_path / "multirun.yaml").read_text()
    assert ("named by the time" in capsys.readouterr().err) == warned


@pytest.mark.slow
def test_a_shuffled_sweep_has_the_same_order_when_it_is_repeated(folder: Path) -> None:
    overrides = ("seed=shuffle(1,2,3,4,5,6)", "resume=auto")
    assert swept(folder, *overrides)[0] == 0
    code, out, _ = swept(folder, *overrides)
    assert code == 0
    assert [line for line in out if "skipped" in line] == [f"job {job}: complete, skipped" for job in range(6)]
    seeds = [told(folder, job)["overrides"][-1] for job in range(6)]
    assert sorted(seeds) == [f"seed={seed}" for seed in range(1, 7)] != seeds


@pytest.mark.slow
def test_the_minutes_of_a_job_that_was_told_to_end_count(folder: Path) -> None:
    child = start_until(folder, [0], "seed=1", "resume=auto")
    os.kill(child.pid, signal.SIGTERM)
    child.wait()
    stopped = told(folder, 0)
    assert stopped["status"] == "running"
    assert stopped["minutes"] > 0.4 / 60  # the job takes half a second to save
    (folder / "hold0").unlink()
    assert swept(folder, "seed=1", "resume=auto")[0] == 0
    assert told(folder, 0)["minutes"] > stopped["minutes"]


def test_the_folder_of_a_sweep_with_failed_jobs_is_named_as_it_is_typed(tmp_path: Path) -> None:
    sweep = Sweep.__new__(Sweep)
    sweep.folder, sweep.jobs = Path("my sweep"), [Job(0, (), tmp_path)]
    with pytest.raises(UserError, match=re.escape("""repeat the command with hydra.sweep.dir='"my sweep"' resume""")):
        sweep.end()
