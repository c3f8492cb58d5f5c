"""A sweep whose jobs are the trials of an Optuna study. Akiba et al. 2019, arXiv:1907.10902."""

from __future__ import annotations

import json
import math
import sqlite3
import sys
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, final

from hydra.core.override_parser.types import IntervalSweep, Override
from omegaconf import DictConfig

from seq2seq_attn.errors import UserError
from seq2seq_attn.files import read_json
from seq2seq_attn.logger.csv_logger import read_rows
from seq2seq_attn.sweep.job import RECORD, Job, holds_sweep
from seq2seq_attn.sweep.sweep import Sweep, values_of
from seq2seq_attn.training.monitor import check_figure, validation_figures

SETTINGS = ("n_jobs", "n_startup_trials", "seed")  # by which the same trials are drawn
STUDY_RECORD, BEST = "study.json", "best.json"
DATABASE = ("study.db", "study.db-journal", "study.db-wal", "study.db-shm")


@final
@dataclass(frozen=True, kw_only=True)
class Study:
    """The options of conf/hydra/sweeper/optuna.yaml.

    What is drawn depends on the seed and on the trials before it only. A study that is repeated therefore draws the
    same trials again, skips those whose jobs are over, and continues with the first that is not.
    """

    optimized_metric: str
    direction: str | None
    n_trials: int
    n_jobs: int
    n_startup_trials: int
    seed: int

    def run(self, sweep: Sweep) -> None:
        """Search the overrides that name several values, as `choice(...)` or `interval(...)`."""
        optuna = import_optuna()
        if self.direction not in ("maximize", "minimize", None):
            raise UserError(f"hydra.sweeper.direction={self.direction} is unknown; use maximize or minimize")
        space = {key: distribution(override) for key, override in sweep.varied.items()}
        if not space:
            raise UserError(
                "sweep=optuna has nothing to search; give hydra.sweeper.params, or a range such as "
                "'model.encoder.dropout=interval(0.0,0.5)'"
            )
        if "seed" in space:
            print(
                "the search draws the seed like any other option, so its best trial may be the one with the luckiest "
                "seed; give one seed here, and train the best trial with several afterwards, without sweep=optuna",
                file=sys.stderr,
                flush=True,
            )
        self._check_files(sweep.folder)
        self._check_settings(sweep.folder)
        self._check_first(sweep, space)
        better = self._better(sweep.composed)
        sweep.make_folder()
        settings = {name: getattr(self, name) for name in SETTINGS}
        (sweep.folder / STUDY_RECORD).write_text(json.dumps(settings) + "\n", "utf-8")
        for name in DATABASE:  # an output: the jobs' folders are the state
            (sweep.folder / name).unlink(missing_ok=True)
        file = sweep.folder.resolve() / DATABASE[0]
        connect = partial(sqlite3.connect, file, check_same_thread=False)  # in a URL, { and ? would have a meaning
        storage = optuna.storages.RDBStorage("sqlite://", engine_kwargs={"creator": connect})
        study = optuna.create_study(study_name="sweep", storage=storage, direction=better)
        complete, n_trials = 0, max(self.n_trials, self._begun(sweep))
        while len(sweep.jobs) < n_trials:
            trials = [self._draw(study, space) for _ in range(min(self.n_jobs, n_trials - len(sweep.jobs)))]
            drawn = [[f"{key}={shown(trial.params[key])}" for key in space] for trial in trials]
            jobs = [sweep.job(t.number, [*sweep.fixed, *values]) for t, values in zip(trials, drawn, strict=True)]
            sweep.run(jobs, repeat_failed=False)
            for job in jobs:
                value = self._objective(job, better) if job.is_complete else math.nan
                outcome = {"values": value} if math.isfinite(value) else {"state": optuna.trial.TrialState.FAIL}
                study.tell(job.number, **outcome)
                complete += math.isfinite(value)
        if complete:
            self._report(study, sweep.folder, complete)
        sweep.end(repeats_failed=False)

    def _check_files(self, folder: Path) -> None:
        """Refuse to replace the files of a study in a folder without a record of one or of a job.

        Raises:
            UserError: if there is one.
        """
        there = [name for name in (*DATABASE, STUDY_RECORD, BEST) if (folder / name).exists()]
        of_study = set(SETTINGS) <= set(read_json(folder / STUDY_RECORD))
        if there and not of_study and not holds_sweep(folder):
            raise UserError(
                f"{folder / there[0]} was not written by a study of this program, and this study would replace it; "
                "give another hydra.sweep.dir"
            )

    def _check_settings(self, folder: Path) -> None:
        """Refuse other settings than those that a study in this folder began with.

        Raises:
            UserError: if its trials would not be drawn again.
        """
        for name, value in read_json(folder / STUDY_RECORD).items():
            if name in SETTINGS and value != getattr(self, name):
                raise UserError(
                    f"the study in {folder} began with hydra.sweeper.{name}={value}, and with "
                    f"{getattr(self, name)} it would draw other trials; give {value}, or another hydra.sweep.dir"
                )

    def _begun(self, sweep: Sweep) -> int:
        """Return the trials that a study which resumes has begun; a smaller `n_trials` leaves none of them out."""
        begun = 0
        while sweep.resumes and (sweep.folder / str(begun) / RECORD).exists():
            begun += 1
        if begun > self.n_trials:
            given = f"hydra.sweeper.n_trials={self.n_trials}"
            print(f"the study has {begun} trials, of which {given} leaves out none", flush=True)
        return begun

    def _check_first(self, sweep: Sweep, space: dict[str, Any]) -> None:
        """Refuse what would be refused of the first trials before anything is written."""
        study = import_optuna().create_study()
        for _ in range(min(self.n_jobs, self.n_trials)):
            trial = self._draw(study, space)
            sweep.job(trial.number, [*sweep.fixed, *(f"{key}={shown(trial.params[key])}" for key in space)])

    def _draw(self, study: Any, space: dict[str, Any]) -> Any:
        optuna = import_optuna()
        study.sampler = optuna.samplers.TPESampler(
            seed=(1_000_003 * self.seed + len(study.get_trials())) % 2**32, n_startup_trials=self.n_startup_trials
        )
        return study.ask(space)

    def _better(self, composed: DictConfig) -> str:
        """Return the direction: that of the figure, where it is one of the validations of a job.

        Raises:
            UserError: if the other direction is given, or the figure is another one and none is given.
        """
        modes = {} if composed.get("model") is None else validation_figures(composed)
        if modes and self.optimized_metric.startswith("val/"):
            check_figure("optimized_metric", self.optimized_metric, modes)
        mode = modes.get(f"val/{self.optimized_metric.rpartition('/')[2]}")
        known = None if mode is None else f"{mode}imize"
        if self.direction is None and known is None:
            raise UserError(
                f"whether more {self.optimized_metric} is better is not known; give hydra.sweeper.direction=maximize "
                "or minimize"
            )
        if known not in (None, self.direction or known):
            raise UserError(
                f"hydra.sweeper.direction={self.direction} would look for the worst {self.optimized_metric}; leave it "
                "out"
            )
        return self.direction or str(known)

    def _objective(self, job: Job, better: str) -> float:
        """Return a figure of results.json, or the best of a column of metrics.csv; NaN if it never was finite.

        Raises:
            UserError: if the run has no such figure.
        """
        results = {name: value for name, value in job.results.items() if isinstance(value, int | float)}
        if self.optimized_metric in results:
            return float(results[self.optimized_metric])
        rows = read_rows(job.folder / "metrics.csv")
        columns = {name for row in rows for name in row}
        if self.optimized_metric not in columns:
            names = ", ".join(sorted({name for name in [*results, *columns] if "/" in name}))
            raise UserError(f"a run has no figure optimized_metric={self.optimized_metric}; choose from: {names}")
        values = [float(row.get(self.optimized_metric, "nan")) for row in rows]
        best = max if better == "maximize" else min
        return best(filter(math.isfinite, values), default=math.nan)

    def _report(self, study: Any, folder: Path, complete: int) -> None:
        """Write and print the best trial."""
        best, metric = study.best_trial, self.optimized_metric
        params = {key: shown(value) for key, value in best.params.items()}
        entries = {"job": best.number, metric: best.value, "params": params, "complete": complete}
        (folder / BEST).write_text(json.dumps(entries, indent=2) + "\n", "utf-8")
        values = " ".join(f"{key}={value}" for key, value in params.items())
        print(f"Best of {complete}: job {best.number}, {metric} {best.value:.2f} with {values}", flush=True)


def distribution(override: Override) -> Any:
    """Return Optuna's distribution of the values that an override names."""
    optuna = import_optuna()
    values = override.value()
    if not isinstance(values, IntervalSweep):
        return optuna.distributions.CategoricalDistribution(values_of(override))
    start, end = values.start, values.end
    assert start is not None
    assert end is not None
    if start > end:
        raise UserError(f"{override.get_key_element()}=interval({start},{end}) begins above its end; swap the two")
    if "log" in values.tags and start <= 0:
        raise UserError(
            f"{override.get_key_element()}=tag(log,interval({start},{end})) begins at or below 0, where there is no "
            "logarithm; begin above it, such as at 1e-5"
        )
    whole = isinstance(start, int) and isinstance(end, int)
    kind = optuna.distributions.IntDistribution if whole else optuna.distributions.FloatDistribution
    return kind(start, end, log="log" in values.tags)


def shown(value: Any) -> Any:
    """Return a number with the four digits that its trial is run with."""
    return float(f"{value:.4g}") if isinstance(value, float) else value


def import_optuna() -> Any:
    try:
        import optuna
    except ImportError as error:
        raise UserError("sweep=optuna needs Optuna; install it with `pip install 'seq2seq_attn[sweep]'`") from error
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna
