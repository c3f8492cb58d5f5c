"""Jobs of a sweep through any of Hydra's launchers: what is complete is skipped, a failure is told at the end."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, final

from hydra.core.hydra_config import HydraConfig
from hydra.core.plugins import Plugins
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig, OmegaConf, open_dict

from seq2seq_attn.distributed.rank_overrides import is_first_rank, sweep_together
from seq2seq_attn.distributed.run_lock import is_locked
from seq2seq_attn.errors import UserError
from seq2seq_attn.sweep.job import COMPLETE, RUNNING, WAITING, Job
from seq2seq_attn.sweep.job_task import JobTask
from seq2seq_attn.sweep.progress import POLL_SECONDS, Progress


@final
class Sweep:
    """Args:
    config: of the command, as Hydra gives it to a sweeper.
    total: jobs that it will have.
    """

    def __init__(
        self, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig, total: int
    ) -> None:
        self.context, self.config = hydra_context, config
        self.launcher = Plugins.instance().instantiate_launcher(
            hydra_context=hydra_context, task_function=JobTask(task_function), config=config
        )
        self.folder = Path(str(config.hydra.sweep.dir))
        self.folder.mkdir(parents=True, exist_ok=True)
        OmegaConf.save(config, self.folder / "multirun.yaml")
        self.first = is_first_rank(os.environ)  # of ranks that go through the sweep together, it keeps the records
        self.skips = not sweep_together(os.environ)  # else a rank would wait for one that skips
        self.progress = Progress(total, self.folder, told=self.first)

    def job(self, number: int, overrides: Sequence[str]) -> Job:
        """Composed once before anything is run, which finds its folder and a mistake in its overrides.

        Raises:
            UserError: if it goes on in a folder that is another job's.
        """
        config = self.context.config_loader.load_sweep_config(self.config, list(overrides))
        with open_dict(config):
            config.hydra.job.id = config.hydra.job.num = number
        before = HydraConfig.instance().cfg
        HydraConfig.instance().set_config(config)
        folder = self.folder / str(config.hydra.sweep.subdir)
        HydraConfig.instance().cfg = before
        job = Job(number, tuple(overrides), folder)
        if self.first and goes_on(config):
            job.check()
        return job

    def run(self, jobs: Sequence[Job]) -> None:
        """All of them, at a time as many as the launcher starts."""
        self.progress.add(jobs)
        left = []
        for job in jobs:
            if self.skips and goes_on(self.config) and job.is_complete:
                self.progress.skip(job)
                continue
            if self.first:
                job.put_down()
            left.append(job)
        with self.progress.watching(left):
            while left:
                left = self._launch(left)

    def pass_over(self, jobs: Sequence[Job]) -> None:
        """What is over already, however it ended."""
        self.progress.add(jobs)
        for job in jobs:
            self.progress.skip(job)

    def end(self) -> None:
        """The table of all jobs.

        Raises:
            UserError: if some have failed.
        """
        self.progress.print_table()
        failed = [job for job in self.progress.jobs if job.status != COMPLETE] if self.first else []
        if failed:
            numbers = ", ".join(str(job.number) for job in failed)
            raise UserError(
                f"{len(failed)} of {len(self.progress.jobs)} jobs failed ({numbers}); repeat the command with "
                f"hydra.sweep.dir={self.folder} resume=auto: complete jobs are skipped, the others go on"
            )

    def _launch(self, jobs: list[Job]) -> list[Job]:
        """Gives those that were not begun, since a worker that was killed takes its launcher along."""
        overrides = [[*job.overrides, f"hydra.sweep.subdir={quoted(self._subdir(job))}"] for job in jobs]
        try:
            self.launcher.launch(overrides, initial_job_idx=jobs[0].number)
        except Exception as error:
            if not any(job.status == RUNNING for job in jobs):
                raise
            for job in jobs:
                while job.status == RUNNING and is_locked(job.folder):
                    time.sleep(POLL_SECONDS)
                if job.status == RUNNING:
                    job.write_off(f"its process ended without a word ({type(error).__name__})")
            return [job for job in jobs if job.status == WAITING]
        return []

    def _subdir(self, job: Job) -> str:
        """Given, since launchers number jobs by their position among those that are left."""
        return job.folder.relative_to(self.folder).as_posix()


def goes_on(config: Any) -> bool:
    return bool(OmegaConf.select(config, "resume") == "auto")


def quoted(text: str) -> str:
    """For Hydra's grammar of overrides."""
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"
