"""A sweep whose jobs are trials of an Optuna study, kept in its folder. Akiba et al. 2019, arXiv:1907.10902."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, final

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import IntervalSweep, Override, Transformer
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig

from seq2seq_attn.errors import UserError
from seq2seq_attn.sweep.job import Job, definition
from seq2seq_attn.sweep.objective import objective
from seq2seq_attn.sweep.sweep import Sweep, goes_on

DATABASE, RESULTS = "study.db", "best.json"
DIRECTIONS = ("maximize", "minimize")


@final
class Study:
    """Args:
    overrides: those that name several values, as `choice(...)` or `interval(...)`, are searched.
    first: values of the first trial; empty: drawn as the others.
    max_failure_rate: share of the trials that may fail.
    """

    def __init__(
        self,
        overrides: list[str],
        *,
        first: dict[str, Any],
        optimized_metric: str,
        direction: str,
        n_trials: int,
        n_jobs: int,
        n_startup_trials: int,
        max_failure_rate: float,
        seed: int,
    ) -> None:
        if direction not in DIRECTIONS:
            raise UserError(f"hydra.sweeper.direction={direction} is unknown; use maximize or minimize")
        self.overrides, self.first = overrides, first
        self.metric, self.direction = optimized_metric, direction
        self.n_trials, self.n_jobs, self.n_startup_trials = n_trials, n_jobs, n_startup_trials
        self.max_failure_rate, self.seed = max_failure_rate, seed

    def sweep(self, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig) -> None:
        """Trials that are over stay as they are, those that were running go on, then new ones are drawn."""
        import_optuna()
        parser = OverridesParser.create(config_loader=hydra_context.config_loader)
        self._read_space(parser.parse_overrides(self.overrides))
        sweep = Sweep(hydra_context, task_function, config, total=self.n_trials)
        study = self._open(sweep.folder, goes_on(config))
        over = [trial for trial in self._trials(study) if trial.state.is_finished()]
        sweep.pass_over([sweep.job(trial.number, self._overrides(trial)) for trial in over])
        while trials := self._next(study):
            jobs = [sweep.job(trial.number, self._overrides(trial)) for trial in trials]
            sweep.run(jobs)
            for trial, job in zip(trials, jobs, strict=True):
                self._tell(study, trial.number, job)
            self._check_failures(study)
        self._report(study, sweep.folder)
        sweep.end()

    def _read_space(self, overrides: Sequence[Override]) -> None:
        """What is typed last stands: a plain value takes an option out of the search."""
        last = {override.get_key_element(): override for override in overrides}
        self.space = {key: distribution(o) for key, o in last.items() if o.is_sweep_override()}
        self.fixed = [f"{key}={o.get_value_element_as_str()}" for key, o in last.items() if not o.is_sweep_override()]
        if not self.space:
            raise UserError(
                "sweep=optuna has nothing to search; give hydra.sweeper.params, or a range such as "
                "'model.encoder.dropout=interval(0.0,0.5)'"
            )
        if stray := sorted(set(self.first) - set(self.space)):
            raise UserError(
                f"hydra.sweeper.first has {', '.join(stray)}, which is not searched; choose from: "
                f"{', '.join(self.space)}"
            )

    def _open(self, folder: Path, resumed: bool) -> Any:
        """The study in the folder, made if there is none.

        Raises:
            UserError: if there is one, and it is not to go on or searches something else.
        """
        optuna = import_optuna()
        file = folder / DATABASE
        if file.exists() and not resumed:
            raise UserError(f"{folder} holds a study; go on with resume=auto, or give another hydra.sweep.dir")
        study = optuna.create_study(
            study_name="sweep", storage=f"sqlite:///{file.resolve()}", direction=self.direction, load_if_exists=True
        )
        ours = {
            "search space": {key: repr(space) for key, space in self.space.items()},
            "set of fixed options": definition(self.fixed),
            "metric": self.metric,
        }
        theirs = study.user_attrs.get("definition")
        if theirs is None:
            study.set_user_attr("definition", ours)
            if self.first:
                study.enqueue_trial(self.first)
        elif theirs != ours:
            other = ", ".join(name for name in ours if ours[name] != theirs[name])
            raise UserError(
                f"{folder} holds a study with another {other}; repeat the sweep that began there, or give another "
                "hydra.sweep.dir"
            )
        return study

    def _trials(self, study: Any) -> list[Any]:
        """A process that is killed while it draws leaves a trial without all of its values: it does not count."""
        return [trial for trial in study.get_trials() if set(trial.params) == set(self.space)]

    def _next(self, study: Any) -> list[Any]:
        """As many as run at once. What is drawn depends on the seed and the trials before it alone."""
        optuna = import_optuna()
        trials = self._trials(study)
        running = [trial for trial in trials if trial.state == optuna.trial.TrialState.RUNNING]
        if running:
            return running[: self.n_jobs]
        drawn = []
        for _ in range(min(self.n_jobs, self.n_trials - len(trials))):
            study.sampler = optuna.samplers.TPESampler(
                seed=1_000_003 * self.seed + len(study.get_trials()), n_startup_trials=self.n_startup_trials
            )
            drawn.append(study.ask(self.space))
        return drawn

    def _overrides(self, trial: Any) -> list[str]:
        return [*self.fixed, *(f"{key}={shown(trial.params[key])}" for key in self.space)]

    def _tell(self, study: Any, number: int, job: Job) -> None:
        optuna = import_optuna()
        value = math.nan
        if job.is_complete:
            value = objective(job.folder, self.metric, maximize=self.direction == "maximize")
        if math.isfinite(value):
            study.tell(number, value)
        else:
            study.tell(number, state=optuna.trial.TrialState.FAIL)

    def _check_failures(self, study: Any) -> None:
        optuna = import_optuna()
        failed = [t.number for t in self._trials(study) if t.state == optuna.trial.TrialState.FAIL]
        if len(failed) > self.max_failure_rate * self.n_trials:
            raise UserError(
                f"{len(failed)} of {self.n_trials} trials failed ({', '.join(map(str, failed))}), more than "
                f"hydra.sweeper.max_failure_rate={self.max_failure_rate:g} lets; mend what they say"
            )

    def _report(self, study: Any, folder: Path) -> None:
        optuna = import_optuna()
        complete = [t for t in self._trials(study) if t.state == optuna.trial.TrialState.COMPLETE]
        if not complete:
            return
        best = study.best_trial
        params = {key: shown(value) for key, value in best.params.items()}
        found = {"job": best.number, self.metric: best.value, "params": params, "complete": len(complete)}
        (folder / RESULTS).write_text(json.dumps(found, indent=2) + "\n", "utf-8")
        values = " ".join(f"{key}={value}" for key, value in params.items())
        where = f"job {best.number}, {self.metric} {best.value:.2f}"
        print(f"Best of {len(complete)}: {where} with {values}", flush=True)


def distribution(override: Override) -> Any:
    """The values that an override names, in Optuna's words."""
    optuna = import_optuna()
    values = override.value()
    if not isinstance(values, IntervalSweep):
        return optuna.distributions.CategoricalDistribution(
            list(override.sweep_iterator(transformer=Transformer.encode))
        )
    whole = isinstance(values.start, int) and isinstance(values.end, int)
    kind = optuna.distributions.IntDistribution if whole else optuna.distributions.FloatDistribution
    return kind(values.start, values.end, log="log" in values.tags)


def shown(value: Any) -> Any:
    """Four digits, which is what a trial is run with: more would say nothing."""
    return float(f"{value:.4g}") if isinstance(value, float) else value


def import_optuna() -> Any:
    try:
        import optuna
    except ImportError as error:
        raise UserError("sweep=optuna needs Optuna; install it with `pip install 'seq2seq_attn[sweep]'`") from error
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna
