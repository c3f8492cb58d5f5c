"""A Weights & Biases logger that sends what was asked for, each step once, and never keeps a run waiting."""

from __future__ import annotations

import csv
import logging
import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, final
from uuid import uuid4

import wandb
from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from pytorch_lightning.loggers import WandbLogger
from pytorch_lightning.loggers.logger import rank_zero_experiment
from pytorch_lightning.utilities import rank_zero_only

from seq2seq_attn.logger.wandb_file import read_rows
from seq2seq_attn.logger.wandb_server import unreachable

log = logging.getLogger(__name__)

STEP = "trainer/global_step"  # the axis that all is drawn over
SUMMARIES = {"val/loss": "min", "val/ppl": "min", "val/ter": "min", "val/accuracy": "max", "val/chrf": "max"}
SUMMARIES |= {"val/bleu": "max", "val/detokenized_bleu": "max", "val/tokenized_bleu": "max"}
START_SECONDS = 4.0  # then the run is kept offline
END_SECONDS = 30.0  # for what is still to be sent; it stays in the run folder


@final
class WandbRun(WandbLogger):
    """A run of its own: scalars and our own tables and pictures, but no code, host, user name or console.

    One that goes on is the same run at W&B. What W&B has it is not sent again, and scalars that were lost on their way
    come from metrics.csv, so each step stands in its history once, and once in the files of a run kept offline.

    Args:
        group: what its runs are shown under; None: the sweep's folder, and nothing for a run that is in none.
        tags: those that are null are left out.
        offline: keep everything in `save_dir`/wandb, for `wandb sync`. It is also what happens, with a warning,
            where there is no key or the server cannot be reached within seconds.
        resume: auto: write on into the W&B run of this folder, if it has one.
    """

    def __init__(
        self,
        *,
        save_dir: str,
        project: str,
        name: str,
        group: str | None,
        tags: list[str | None],
        offline: bool,
        resume: str | None,
    ) -> None:
        os.environ.setdefault("WANDB_ERROR_REPORTING", "false")  # or W&B's library reports on itself
        settings = wandb.Settings(
            save_code=False,
            disable_git=True,
            disable_job_creation=True,
            console="off",
            silent=True,
            x_disable_meta=True,
            x_disable_machine_info=True,
            x_disable_stats=True,
            login_timeout=START_SECONDS,
            init_timeout=START_SECONDS,
            finish_timeout=END_SECONDS,
        )
        super().__init__(
            project=project,
            name=name,
            save_dir=save_dir,
            group=group or sweep(),
            tags=[tag for tag in tags if tag],
            mode="offline" if offline or is_away(save_dir) else None,
            settings=settings,
            id=run_id(Path(save_dir) / "wandb_run_id", resume),
        )
        self._wandb_init.pop("anonymous", None)  # Lightning passes it, and W&B warns of it
        self._goes_on = resume == "auto"
        self._sent: set[tuple[str, int]] = set()
        self._next = 0

    @property
    @rank_zero_experiment
    def experiment(self) -> Any:
        if self._experiment is None:
            self._experiment = self._start()
            if self._goes_on:
                self._find_sent()
                self._catch_up()
        return self._experiment

    @rank_zero_only
    def log_metrics(self, metrics: Mapping[str, Any], step: int | None = None) -> None:
        run: Any = self.experiment
        new = {name: value for name, value in metrics.items() if (name, step) not in self._sent}
        if not new.keys() - {"epoch"}:
            return
        try:
            run.log(new if step is None else {**new, STEP: step}, step=self._next, commit=True)
            self._next += 1
        except Exception as error:  # W&B's are of many kinds, and none may end a run
            self._experiment = lost(error)

    @rank_zero_only
    def finish(self) -> None:
        """The run is over: the next one of this process is another. What was not sent by then stays in the folder."""
        try:
            self.experiment.finish()
        except Exception as error:
            self._experiment = lost(error)

    def _start(self) -> Any:
        try:
            end_open_run()
            run = wandb.init(**self._wandb_init)
        except Exception as error:
            if self._wandb_init["mode"] == "offline":
                return lost(error)
            warn_offline(str(error), str(self.save_dir))
            self._wandb_init["mode"] = "offline"
            end_process()  # it holds the run's id
            return self._start()
        self._next = run.starting_step
        run.define_metric(STEP)
        run.define_metric("*", step_metric=STEP, step_sync=True)
        for name, summary in SUMMARIES.items():
            run.define_metric(name, step_metric=STEP, summary=summary)
        return run

    def _find_sent(self) -> None:
        """Read the files that the run has written before; of those sent at once, a server may lack the end."""
        run: Any = self._experiment
        for file in Path(str(self.save_dir)).glob(f"wandb/*run-*-{run.id}/run-{run.id}.wandb"):
            kept = file.parent.name.startswith("offline-")
            for row in read_rows(file, STEP):
                if row.position is not None and (kept or row.number < run.starting_step):
                    self._sent |= {(name, row.position) for name in row.names}
                    self._next = max(self._next, row.number + 1)

    def _catch_up(self) -> None:
        file = Path(str(self.save_dir)) / "metrics.csv"
        lines = file.read_text("utf-8").splitlines(keepends=True) if file.exists() else []
        for row in csv.DictReader(line for line in lines if line.endswith("\n")):
            step = int(row.pop("step"))
            metrics = {name: float(value) for name, value in row.items() if value}
            self.log_metrics(metrics, step)
            self._sent |= {(name, step) for name in metrics}


@rank_zero_only
def run_id(file: Path, resume: str | None) -> str:
    """Kept in the run folder from the start, so that a run that goes on is the same one there too."""
    if resume != "auto" or not file.exists():
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"{chosen_by_agent() or uuid4().hex[:8]}\n", "utf-8")
    return file.read_text("utf-8").strip()


def chosen_by_agent() -> str | None:
    """The id under which W&B's agent waits for a run of its sweep."""
    return os.environ.get("WANDB_RUN_ID") if "WANDB_SWEEP_ID" in os.environ else None


def sweep() -> str | None:
    """The name of the folder of the sweep that this run is a job of."""
    if HydraConfig.initialized() and HydraConfig.get().mode == RunMode.MULTIRUN:
        return Path(HydraConfig.get().sweep.dir).name
    return None


@rank_zero_only
def is_away(save_dir: str) -> bool:
    if os.environ.get("WANDB_MODE", "online") != "online":
        return False  # as chosen there
    reason = unreachable()
    if reason is not None:
        warn_offline(reason, save_dir)
    return reason is not None


def warn_offline(reason: str, save_dir: str) -> None:
    log.warning(f"W&B: {reason}; this run is kept offline in {save_dir}/wandb, send it later with `wandb sync`")


def lost(error: Exception) -> Any:
    """What takes the place of a run that W&B's process, or the disk, takes no more of."""
    log.warning(f"W&B: nothing more can be logged ({error}); training goes on without it")
    end_process()
    return wandb.init(mode="disabled")


def end_open_run() -> None:
    """Of a run of this process that failed; or the next one would be written into it."""
    if wandb.run is not None:
        wandb.run.finish(exit_code=1)


def end_process() -> None:
    """That of W&B beside this one; the next run starts another."""
    for end in (wandb.finish, wandb.teardown):
        with suppress(Exception):
            end()
