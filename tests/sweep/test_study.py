"""A study: what it draws depends on the seed and the trials before, so a kill changes nothing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import optuna
import pytest
from sweep.small_sweep import begun, kill_in_job, swept, told, write_app

from seq2seq_attn.errors import UserError
from seq2seq_attn.sweep.objective import objective

STUDY = ("hydra/sweeper=optuna", "x=interval(0.0,1.0)")
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


def test_ten_trials_find_a_better_value_than_the_first(folder: Path) -> None:
    code, out, _ = swept(folder, *STUDY, TEN, "+hydra.sweeper.first.x=0.9")
    assert code == 0
    assert trials(folder)[0] == ("COMPLETE", pytest.approx(-10), 0.9)
    found = best(folder)
    assert found["complete"] == len(trials(folder)) == 10
    assert found["val/bleu"] == max(value for _, value, _ in trials(folder) if value is not None) > 40
    assert told(folder, found["job"], "results.json")["test/bleu"] == found["val/bleu"]
    assert found["params"] == {"x": float(f"{trials(folder)[found['job']][2]:.4g}")}
    where = f"job {found['job']}, val/bleu {found['val/bleu']:.2f}"
    assert f"Best of 10: {where} with x={found['params']['x']}" in out
    assert begun(folder) == [1] * 10


def test_a_study_that_was_killed_goes_on_and_draws_what_it_would_have_drawn(folder: Path, tmp_path: Path) -> None:
    whole = write_app(tmp_path / "whole")
    overrides = (*STUDY, "hydra.sweeper.n_trials=7", "hydra.sweeper.n_startup_trials=3", "resume=auto")
    assert swept(whole, *overrides)[0] == 0
    for job in (0, 4):
        kill_in_job(folder, job, *overrides)
    code, out, _ = swept(folder, *overrides)
    assert code == 0
    assert trials(folder) == trials(whole)
    assert len(trials(folder)) == best(folder)["complete"] == 7
    assert [told(folder, job)["overrides"] for job in range(7)] == [told(whole, job)["overrides"] for job in range(7)]
    assert "job 0: complete, skipped" in out


def test_more_trials_go_on_from_those_that_are_there(folder: Path) -> None:
    assert swept(folder, *STUDY, "hydra.sweeper.n_trials=2", "resume=auto")[0] == 0
    assert swept(folder, *STUDY, "hydra.sweeper.n_trials=3", "resume=auto")[0] == 0
    assert begun(folder) == [1, 1, 1]


def test_a_trial_that_fails_is_told_as_failed_and_the_study_goes_on_up_to_its_share(folder: Path) -> None:
    study = (*STUDY, "do=choice(work,bug)", "hydra.sweeper.n_startup_trials=10")
    code, _, error = swept(folder, *study, "hydra.sweeper.n_trials=6", "hydra.sweeper.max_failure_rate=0.9")
    states = [state for state, _, _ in trials(folder)]
    assert code == 2
    assert {"FAIL", "COMPLETE"} == set(states)
    assert best(folder)["complete"] == states.count("COMPLETE")
    assert f"{states.count('FAIL')} of 6 jobs failed" in error[-1]


def test_a_study_of_failures_ends(folder: Path) -> None:
    rate = ("hydra.sweeper.n_trials=8", "hydra.sweeper.max_failure_rate=0.25")
    code, _, error = swept(folder, *STUDY, "do=refuse", *rate)
    assert code == 2
    assert error[-1] == (
        "3 of 8 trials failed (0, 1, 2), more than hydra.sweeper.max_failure_rate=0.25 lets; mend what they say"
    )
    assert begun(folder) == [1, 1, 1]


OTHERS = {
    "x=interval(0.0,0.5)": "sweep holds a study with another search space; repeat the sweep that began there",
    "seed=3": "sweep holds a study with another set of fixed options; repeat the sweep that began there",
    "hydra.sweeper.optimized_metric=test/bleu": "sweep holds a study with another metric; repeat the sweep that",
    "resume=null": "sweep holds a study; go on with resume=auto, or give another hydra.sweep.dir",
}


def test_a_study_of_something_else_is_refused(folder: Path) -> None:
    command = (*STUDY, "hydra.sweeper.n_trials=1", "resume=auto")
    assert swept(folder, *command)[0] == 0
    for other, sentence in OTHERS.items():
        code, _, error = swept(folder, *command, other)
        assert code == 2
        assert error[-1].startswith(sentence)
    assert begun(folder) == [1]


@pytest.mark.parametrize(
    ("overrides", "sentence"),
    [
        (("x=0.5",), "sweep=optuna has nothing to search; give hydra.sweeper.params, or a range"),
        (("hydra.sweeper.direction=up",), "hydra.sweeper.direction=up is unknown; use maximize or minimize"),
        (("+hydra.sweeper.first.seed=3",), "hydra.sweeper.first has seed, which is not searched; choose from: x"),
        (
            ("hydra.sweeper.optimized_metric=val/blue", "hydra.sweeper.n_trials=1"),
            "optimized_metric=val/blue is no figure of a run; choose from: test/bleu, val/bleu",
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
    assert objective(tmp_path, "test/bleu", maximize=True) == 3.5
    assert objective(tmp_path, "val/bleu", maximize=True) == 2.0
    assert objective(tmp_path, "val/loss", maximize=False) == 7.0
    assert str(objective(tmp_path, "val/nan", maximize=True)) == "nan"
    with pytest.raises(UserError, match="val/chrf is no figure of a run; choose from: test/bleu, val/bleu"):
        objective(tmp_path, "val/chrf", maximize=True)
