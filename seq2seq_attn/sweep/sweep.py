"""The jobs of a sweep through any of Hydra's launchers: complete ones are skipped, failures reported at the end."""

from __future__ import annotations

import os
import random
import sys
import time
from collections.abc import Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any, final

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from hydra.core.plugins import Plugins
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig, OmegaConf

from seq2seq_attn.distributed.run_lock import UNTIL_EXIT, check_job_folders, is_locked, only_process_in, typed_of_hydra
from seq2seq_attn.errors import UserError
from seq2seq_attn.paths import check_file_names, is_named_by_time, own_folders, typed
from seq2seq_attn.sweep.job import COMPLETE, FAILED, RECORD, RUNNING, WAITING, Job, holds_sweep
from seq2seq_attn.sweep.job_task import JobTask
from seq2seq_attn.sweep.stopping import stopping_jobs
from seq2seq_attn.text import plain_console

POLL_SECONDS = 0.5
MULTIRUN = "multirun.yaml"
SWEEPERS = "hydra_plugins.seq2seq_attn."  # which the multirun.yaml of a sweep names, also once its jobs are deleted
UNREAD = ("hydra.run.dir", "hydra.sweep.subdir")  # by a sweep
LEAST = {"max_batch_size": 1, "n_trials": 1, "n_jobs": 1, "n_startup_trials": 0, "seed": 0}


def values_of(override: Override) -> list[str]:
    """Return the values that an override names; `shuffle(...)` has the same order whenever the sweep is repeated.

    Raises:
        UserError: if it names none, as `range(3,1)` or a pattern that fits no option does.
    """
    state = random.getstate()
    random.seed(str(override.input_line))
    try:
        values = list(override.sweep_string_iterator())
    finally:
        random.setstate(state)
    if not values:
        raise UserError(f"{override.input_line} names no value to try; give a range or a pattern that has one")
    return values


@final
class Sweep:
    """The jobs of a sweep, from the overrides of its command.

    Args:
        config: of the command, as Hydra gives it to a sweeper.
        arguments: the overrides typed, which replace those of `hydra.sweeper.params`.

    Attributes:
        varied: overrides that name several values, by key.
        fixed: all others, which the jobs share.
    """

    def __init__(
        self, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig, arguments: Sequence[str]
    ) -> None:
        interactive = os.environ.get("SLURM_JOB_NAME") in ("bash", "interactive")  # whose tasks do not start it
        names = ("WORLD_SIZE",) if interactive else ("WORLD_SIZE", "SLURM_NTASKS")
        if any(int(os.environ.get(name, "1")) > 1 for name in names):
            raise UserError("each job of a sweep starts its own processes; start the sweep without torchrun and srun")
        check_job_folders(typed_of_hydra(config), UNREAD)
        check_file_names(own_folders(config.hydra.runtime.config_sources))
        params: Any = OmegaConf.to_container(config.hydra.sweeper.params or OmegaConf.create())
        given = [*(f"{key}={value}" for key, value in params.items()), *arguments]
        parser = OverridesParser.create(config_loader=hydra_context.config_loader)
        last = {override.get_key_element(): override for override in parser.parse_overrides(given)}
        self.varied = {key: override for key, override in last.items() if override.is_sweep_override()}
        self.fixed = [f"{key}={o.get_value_element_as_str()}" for key, o in last.items() if key not in self.varied]
        self.config, self.loader = config, hydra_context.config_loader
        self.launcher = Plugins.instance().instantiate_launcher(
            hydra_context=hydra_context, task_function=JobTask(task_function, self.fixed), config=config
        )
        self.resumes = OmegaConf.select(config, "resume") == "auto"
        self.folder = Path(str(config.hydra.sweep.dir))
        self.jobs: list[Job] = []
        self.composed = config  # of the job checked last

    def run_grid(self, max_batch_size: int | None) -> None:
        """Run a job for each combination of values; all of them are checked before the first is run."""
        values = [[f"{key}={value}" for value in values_of(override)] for key, override in self.varied.items()]
        jobs = [self.job(number, [*self.fixed, *drawn]) for number, drawn in enumerate(product(*values))]
        self.make_folder()
        size = max_batch_size or len(jobs)
        for start in range(0, len(jobs), size):
            self.run(jobs[start : start + size])
        self.end()

    def make_folder(self) -> None:
        """Make the sweep's folder, and hold its lock until the command ends; refused overrides leave no folder.

        Raises:
            UserError: if another sweep is at work there, or a file of the user's own would be replaced.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        UNTIL_EXIT.enter_context(only_process_in(self.folder))
        file = self.folder / MULTIRUN
        if file.exists() and not holds_sweep(self.folder) and SWEEPERS not in file.read_text("utf-8", "replace"):
            raise UserError(
                f"{file} was not written by a sweep, since no job is beside it, and this sweep would replace it; give "
                "another hydra.sweep.dir, or rename the file"
            )
        OmegaConf.save(self.config, file)
        if self.resumes and is_named_by_time(self.config.hydra.sweep):
            print(
                "resume=auto starts a sweep in a folder that is named by the time, so the same command will not find "
                "it; give hydra.sweep.dir=FOLDER as well",
                file=sys.stderr,
                flush=True,
            )

    def job(self, number: int, overrides: Sequence[str]) -> Job:
        """Compose a job, which finds a mistake in its overrides.

        Raises:
            UserError: if the sweep resumes in a folder that holds another job, or starts in one that holds a job.
        """
        self.composed = self.loader.load_sweep_config(self.config, list(overrides))
        job = Job(number, tuple(overrides), self.folder / str(number))
        if self.resumes:
            job.check()
        elif (job.folder / RECORD).exists():
            raise UserError(
                f"{self.folder} holds a sweep; resume=auto continues it, and another hydra.sweep.dir starts a new one"
            )
        else:
            job.check_folder()
        return job

    def run(self, jobs: Sequence[Job], repeat_failed: bool = True) -> None:
        """Run those that are not complete, as many at once as the launcher starts."""
        self.jobs += jobs
        left = []
        for job in jobs:
            if self.resumes and (job.is_complete or (job.status == FAILED and not repeat_failed)):
                print(f"job {job.number}: {job.status}, skipped", flush=True)
            else:
                job.write(WAITING)
                left.append(job)
        while left:
            left = self._launch(left)

    def _launch(self, jobs: Sequence[Job]) -> list[Job]:
        """Return the jobs that were not begun: a worker that is killed ends its launcher."""
        overrides = [[*job.overrides, f"hydra.sweep.subdir={job.number}"] for job in jobs]  # launchers count from 0
        try:
            with stopping_jobs(jobs):
                self.launcher.launch(overrides, initial_job_idx=jobs[0].number)
        except Exception as error:
            if not any(job.status == RUNNING for job in jobs):
                raise
            for job in jobs:
                while job.status == RUNNING and is_locked(job.folder):
                    time.sleep(POLL_SECONDS)
                if job.status == RUNNING:
                    job.write(FAILED, why=f"its process was killed ({type(error).__name__})")
        return [job for job in jobs if job.status == WAITING]

    def end(self, repeats_failed: bool = True) -> None:
        """Print the table of all jobs.

        Args:
            repeats_failed: whether a sweep that is repeated runs those that have failed again.

        Raises:
            UserError: if some have failed.
        """
        print_table(self.folder, self.jobs)
        if failed := [str(job.number) for job in self.jobs if job.status != COMPLETE]:
            repeated = "complete jobs are skipped, the others run again"
            kept = (
                "a higher hydra.sweeper.n_trials continues the search; failed trials count, since others build on them"
            )
            raise UserError(
                f"{len(failed)} of {len(self.jobs)} jobs failed ({', '.join(failed)}); repeat the command with "
                f"hydra.sweep.dir={typed(str(self.folder))} resume=auto: {repeated if repeats_failed else kept}"
            )


def check_numbers(options: Mapping[str, Any]) -> None:
    """Check the options of a sweeper that are numbers; `max_batch_size` may be None.

    Raises:
        UserError: for one that is not a whole number, or is too small.
    """
    for name, least in LEAST.items():
        value = options.get(name, least)
        if (type(value) is not int or value < least) and not (name == "max_batch_size" and value is None):
            raise UserError(f"hydra.sweeper.{name}={value} must be a whole number of at least {least}")


def print_table(folder: Path, jobs: Sequence[Job]) -> None:
    """Print one row for each job, with the overrides in which it differs from the others."""
    from rich.table import Table

    common = set.intersection(*(set(job.overrides) for job in jobs)) if len(jobs) > 1 else set()
    table = Table(title=f"Sweep: {folder}", title_justify="left")
    scores = [job.score for job in jobs]
    titles = {title for title, _ in filter(None, scores)}
    title = titles.pop() if len(titles) == 1 else "score"  # else each cell has its own
    for name in ("job", "overrides", "status", f"test {title}", "minutes"):
        table.add_column(name, justify="left" if name in ("overrides", "status") else "right", overflow="fold")
    for job, score in zip(jobs, scores, strict=True):
        differing = " ".join(override for override in job.overrides if override not in common)
        named = f"{score[0]} " if score and score[0] != title else ""
        cells = ("" if x is None else f"{x:.1f}" for x in (score and score[1], job.record.get("minutes")))
        table.add_row(str(job.number), differing, job.status, f"{named}{next(cells)}", *cells)
    plain_console().print(table)
