"""A study: what it draws depends on the seed and the trials before, so a kill changes nothing."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import optuna
import pytest
from configs import CONF, ROOT, composed
from sweep.small_sweep import begun, kill_in_job, swept, told, write_app

from seq2seq_attn.distributed.run_lock import lock
from seq2seq_attn.errors import UserError
from seq2seq_attn.sweep.job import Job
from seq2seq_attn.sweep.study import Study

STUDY = ("hydra/sweeper=optuna", "x=interval(0.0,1.0)", "hydra.sweeper.direction=maximize")
TEN = "hydra.sweeper.n_trials=10"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_app(tmp_path / "app")


def trials(folder: Path) -> list[tuple[str, float | None, Any]]:
    """State, value and drawn x of each, from the database."""
    storage = f"sqlite:///{folder / 'sweep' / 'study.db'}"
    found = optuna.load_study(study_name="sweep", storage=storage).get_trials()
    return [(trial.state.name, trial.value, trial.params.get("x")) for trial in found]


def best(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "sweep" / "best.json").read_text("utf-8"))


@pytest.mark.slow
def test_ten_trials_find_a_better_value_than_the_first(folder: Path) -> None:
    code, out, _ = swept(folder, *STUDY, TEN)
    assert code == 0
    values = [value for _, value, _ in trials(folder) if value is not None]
    found = best(folder)
    assert found["complete"] == len(values) == 10
    assert found["val/bleu"] == max(values) > max(40, values[0])
    assert told(folder, found["job"], "results.json")["test/bleu"] == found["val/bleu"]
    assert found["params"] == {"x": float(f"{trials(folder)[found['job']][2]:.4g}")}
    where = f"job {found['job']}, val/bleu {found['val/bleu']:.2f}"
    assert f"Best of 10: {where} with x={found['params']['x']}" in out
    assert begun(folder) == [1] * 10


@pytest.mark.slow  # the next test goes on without a kill
def test_a_study_that_was_killed_goes_on_and_draws_what_it_would_have_drawn(folder: Path, tmp_path: Path) -> None:
    whole = write_app(tmp_path / "whole")
    overrides = (*STUDY, "hydra.sweeper.n_trials=4", "hydra.sweeper.n_startup_trials=2", "resume=auto")
    assert swept(whole, *overrides)[0] == 0
    kill_in_job(folder, 2, *overrides)
    code, out, _ = swept(folder, *overrides)
    assert code == 0
    assert trials(folder) == trials(whole)
    assert len(trials(folder)) == best(folder)["complete"] == 4
    assert [told(folder, job)["overrides"] for job in range(4)] == [told(whole, job)["overrides"] for job in range(4)]
    assert "job 0: complete, skipped" in out


def test_a_study_is_in_its_folder_whatever_the_folder_is_called(folder: Path) -> None:
    named = "sweep {x}? 100%"  # of which Optuna and SQLAlchemy would read parts
    assert swept(folder, *STUDY, "hydra.sweeper.n_trials=1", f"hydra.sweep.dir='{named}'")[0] == 0
    assert (folder / named / "study.db").stat().st_size
    assert {path.name for path in folder.iterdir()} == {"app.py", "conf", named}


def test_more_trials_go_on_from_those_that_are_there(folder: Path) -> None:
    assert swept(folder, *STUDY, "hydra.sweeper.n_trials=1", "resume=auto")[0] == 0
    assert swept(folder, *STUDY, "hydra.sweeper.n_trials=2", "resume=auto")[0] == 0
    assert begun(folder) == [1, 1]


@pytest.mark.slow
def test_a_trial_that_fails_counts_as_failed_and_is_not_repeated(folder: Path) -> None:
    study = (*STUDY, "do=choice(work,bug)", "hydra.sweeper.n_startup_trials=10", "resume=auto")
    code, _, error = swept(folder, *study, "hydra.sweeper.n_trials=4")
    states = [state for state, _, _ in trials(folder)]
    assert code == 2
    assert {"FAIL", "COMPLETE"} == set(states)
    assert best(folder)["complete"] == states.count("COMPLETE")
    assert f"{states.count('FAIL')} of 4 jobs failed" in error[-1]
    assert error[-1].endswith("continues the search; failed trials count, since others build on them")
    assert swept(folder, *study, "hydra.sweeper.n_trials=5")[0] == 2
    assert [state for state, _, _ in trials(folder)][:4] == states
    assert begun(folder) == [1] * 5


@pytest.mark.slow
def test_a_study_of_something_else_is_refused(folder: Path) -> None:
    command = (*STUDY, "hydra.sweeper.n_trials=1", "resume=auto")
    assert swept(folder, *command)[0] == 0
    for other in ("x=interval(0.0,0.5)", "seed=3"):
        code, _, error = swept(folder, *command, other)
        assert code == 2
        assert error[-1].startswith("sweep/0 holds a job of another sweep (")
    assert begun(folder) == [1]


@pytest.mark.parametrize(
    ("overrides", "sentence"),
    [
        (("x=0.5",), "sweep=optuna has nothing to search; give hydra.sweeper.params, or a range"),
        (("hydra.sweeper.direction=up",), "hydra.sweeper.direction=up is unknown; use maximize or minimize"),
        (
            ("hydra.sweeper.optimized_metric=val/blue", "hydra.sweeper.n_trials=1"),
            "a run has no figure optimized_metric=val/blue; choose from: test/bleu, val/bleu",
        ),
    ],
)
def test_a_mistake_is_one_sentence(folder: Path, overrides: tuple[str, ...], sentence: str) -> None:
    code, _, error = swept(folder, *STUDY, *overrides)
    assert code == 2
    assert error[-1].startswith(sentence)


def test_the_objective_is_a_result_or_the_best_of_a_column(tmp_path: Path) -> None:
    (tmp_path / "results.json").write_text('{"test/bleu": 3.5, "model": "rnn"}')
    (tmp_path / "metrics.csv").write_text("step,val/bleu,val/loss,val/nan\n1,2.0,,\n2,,7.0,nan\n3,1.0,9.0,\n")
    assert objective(tmp_path, "test/bleu", "maximize") == 3.5
    assert objective(tmp_path, "val/bleu", "maximize") == 2.0
    assert objective(tmp_path, "val/loss", "minimize") == 7.0
    assert str(objective(tmp_path, "val/nan", "maximize")) == "nan"
    with pytest.raises(UserError, match="no figure optimized_metric=val/chrf; choose from: test/bleu, val/bleu"):
        objective(tmp_path, "val/chrf", "maximize")


def objective(folder: Path, metric: str, direction: str) -> float:
    return study_of(metric, direction)._objective(Job(0, (), folder), direction)


def study_of(metric: str, direction: str | None) -> Study:
    return Study(optimized_metric=metric, direction=direction, n_trials=1, n_jobs=1, n_startup_trials=1, seed=1)


@pytest.mark.parametrize(
    ("metric", "direction", "better"),
    [
        ("val/loss", None, "minimize"),
        ("val/ter", None, "minimize"),
        ("val/bleu", None, "maximize"),
        ("test/ter", None, "minimize"),
        ("test/bleu", "maximize", "maximize"),
        ("peak_memory_bytes", "minimize", "minimize"),
    ],
)
def test_the_direction_is_that_of_the_figure(metric: str, direction: str | None, better: str) -> None:
    assert study_of(metric, direction)._better(composed("metric=[bleu,ter]")) == better


def test_the_figures_of_a_language_model_have_directions_too() -> None:
    config = composed("model=lm")
    assert study_of("val/bits_per_token", None)._better(config) == "minimize"
    with pytest.raises(UserError, match="worst val/loss; leave it out"):
        study_of("val/loss", "maximize")._better(config)
    with pytest.raises(UserError, match=r"optimized_metric=val/bleu must be one of val/loss, "):
        study_of("val/bleu", None)._better(config)


@pytest.mark.parametrize(
    ("metric", "direction", "said"),
    [
        ("val/loss", "maximize", "worst val/loss; leave it out"),
        ("test/ter", "maximize", "direction=maximize would look for the worst test/ter; leave it out"),
        ("steps", None, "whether more steps is better is not known; give hydra.sweeper.direction=max"),
        ("val/blue", None, r"optimized_metric=val/blue must be one of val/bleu, val/ter, val/loss, "),
    ],
)
def test_a_direction_that_is_wrong_or_not_known_is_refused(metric: str, direction: str | None, said: str) -> None:
    with pytest.raises(UserError, match=said):
        study_of(metric, direction)._better(composed("metric=[bleu,ter]"))


@pytest.mark.slow
def test_a_study_that_is_refused_changes_nothing_of_the_one_that_is_there(folder: Path) -> None:
    command = (*STUDY, "hydra.sweeper.n_trials=2")
    assert swept(folder, *command)[0] == 0
    (folder / "sweep" / "study.db.backup").write_text("mine")
    before = {file: file.read_bytes() for file in (folder / "sweep").iterdir() if file.is_file()}
    code, _, error = swept(folder, *command)
    assert (code, error[-1].startswith("sweep holds a sweep; resume=auto continues it")) == (2, True)
    assert {file: file.read_bytes() for file in (folder / "sweep").iterdir() if file.is_file()} == before
    with lock(folder / "sweep"):  # as the command holds it while it runs
        code, _, error = swept(folder, *command, "resume=auto")
        assert (code, error[-1].startswith("another process is at work in sweep")) == (2, True)
        assert {file: file.read_bytes() for file in before} == before
    assert swept(folder, *command, "resume=auto")[0] == 0
    assert (folder / "sweep" / "study.db.backup").read_text() == "mine"


@pytest.mark.parametrize("name", ["study.db", "study.json", "best.json"])
def test_a_file_of_something_else_is_not_replaced(name: str, folder: Path) -> None:
    mine = folder / "sweep" / name
    mine.parent.mkdir()
    mine.write_text('{"study": "mine"}')
    code, _, error = swept(folder, *STUDY, "hydra.sweeper.n_trials=1", "resume=auto")
    assert code == 2
    assert error[-1] == (
        f"sweep/{name} was not written by a study of this program, and this study would replace it; "
        "give another hydra.sweep.dir"
    )
    assert [file.name for file in mine.parent.iterdir()] == [name]
    assert mine.read_text() == '{"study": "mine"}'


@pytest.mark.slow
def test_choices_are_run_as_they_are_written(folder: Path) -> None:
    one_of = ("hydra/sweeper=optuna", "x=choice(0.99995,0.99999)", 'do=choice("wo,rk")', "hydra.sweeper.n_trials=1")
    assert swept(folder, *one_of, "hydra.sweeper.direction=maximize")[0] == 0
    x, do = told(folder, 0)["overrides"][-2:]
    assert x in ("x=0.99995", "x=0.99999")
    assert do == "do=wo\\,rk"  # one value, whose comma is escaped
    assert best(folder)["params"]["x"] == x.removeprefix("x=")


@pytest.mark.parametrize(
    ("option", "sentence"),
    [
        ("hydra.sweeper.n_jobs=0", "hydra.sweeper.n_jobs=0 must be a whole number of at least 1"),
        ("hydra.sweeper.n_trials=abc", "hydra.sweeper.n_trials=abc must be a whole number of at least 1"),
        ("hydra.sweeper.n_startup_trials=-1", "hydra.sweeper.n_startup_trials=-1 must be a whole number of at least 0"),
        ("hydra.sweeper.seed=-1", "hydra.sweeper.seed=-1 must be a whole number of at least 0"),
        ("x=interval(0.5,0.1)", "x=interval(0.5,0.1) begins above its end; swap the two"),
        (
            "x=tag(log,interval(0,0.1))",
            "x=tag(log,interval(0.0,0.1)) begins at or below 0, where there is no logarithm; begin above it, such as "
            "at 1e-5",
        ),
    ],
)
def test_options_that_make_no_study_are_refused(folder: Path, option: str, sentence: str) -> None:
    code, _, error = swept(folder, *STUDY, option)
    assert (code, error[-1]) == (2, sentence)
    assert not (folder / "sweep").exists()


@pytest.mark.slow
def test_any_seed_draws(folder: Path) -> None:
    assert swept(folder, *STUDY, "hydra.sweeper.seed=12345", "hydra.sweeper.n_trials=1")[0] == 0


@pytest.mark.slow
def test_an_interval_of_whole_numbers_is_drawn_from_as_the_documentation_says(folder: Path) -> None:
    study = ("hydra/sweeper=optuna", "seed=int(interval(2,6))", "hydra.sweeper.direction=maximize")
    code, _, error = swept(folder, *study, "hydra.sweeper.n_trials=3")
    assert code == 0
    assert sum("its best trial may be the one with the luckiest seed" in line for line in error) == 1
    drawn = [told(folder, job)["overrides"][-1] for job in range(3)]
    assert set(drawn) <= {f"seed={number}" for number in range(2, 7)}
    assert re.search(r"\bint\(interval\(\d, ?\d\)\)", (ROOT / "docs" / "sweeps.md").read_text("utf-8"))
    assert re.search(r"\bint\(interval\(\d, ?\d\)\)", (CONF / "hydra" / "sweeper" / "optuna.yaml").read_text("utf-8"))


@pytest.mark.slow
def test_fewer_trials_leave_out_none_that_are_there(folder: Path) -> None:
    assert swept(folder, *STUDY, "hydra.sweeper.n_trials=3", "resume=auto")[0] == 0
    found = best(folder)
    code, out, _ = swept(folder, *STUDY, "hydra.sweeper.n_trials=1", "resume=auto")
    assert code == 0
    assert "the study has 3 trials, of which hydra.sweeper.n_trials=1 leaves out none" in out
    assert best(folder) == found
    assert begun(folder) == [1, 1, 1]


@pytest.mark.slow
def test_settings_that_would_draw_other_trials_are_refused_before_the_study_changes(folder: Path) -> None:
    study = (*STUDY, "hydra.sweeper.n_trials=3", "resume=auto")
    assert swept(folder, *study)[0] == 0
    drawn = trials(folder)
    for name, began, other in (("n_jobs", 1, 2), ("n_startup_trials", 5, 1), ("seed", 1, 5)):
        code, _, error = swept(folder, *study, f"hydra.sweeper.{name}={other}")
        assert code == 2
        expected = f"the study in sweep began with hydra.sweeper.{name}={began}, and with {other} it would draw other"
        assert error[-1].startswith(expected)
    assert trials(folder) == drawn
