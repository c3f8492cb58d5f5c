"""A Weights & Biases logger that sends only what docs/wandb.md lists, each step once, and never delays a run."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, final
from uuid import uuid4

from hydra.core.hydra_config import HydraConfig
from pytorch_lightning.loggers import WandbLogger
from pytorch_lightning.loggers.logger import rank_zero_experiment
from pytorch_lightning.utilities import rank_zero_only

from seq2seq_attn.errors import UserError, one_line
from seq2seq_attn.logger.csv_logger import read_rows
from seq2seq_attn.options import in_sweep

log = logging.getLogger(__name__)

STEP = "trainer/global_step"  # the axis of all curves
START_SECONDS = 4.0  # after which the run is kept offline
END_SECONDS = 30.0  # to send the rest, which also is in the run folder


@final
class WandbRun(WandbLogger):
    """One W&B run for each run folder: scalars, tables and pictures, but no code, host, user name or console output.

    W&B counts rows by a step of its own and takes no step twice. Ours is twice the training step, plus one for a
    validation or a test, so a resumed run logs what W&B does not have yet, and nothing twice. Scalars that were lost
    with a killed process come from metrics.csv. An offline run cannot ask a server: it goes on after metrics.csv.

    Args:
        group: under which W&B shows the run; None: the sweep's folder, and nothing for a run outside a sweep.
        tags: null ones are left out.
        offline: keep everything in `save_dir`/wandb, for `wandb sync`. This also happens, with a warning, where there
            is no key or the server cannot be reached within seconds.
        resume: auto: continue the W&B run of this folder, if there is one.
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
        import wandb  # of the extra [wandb]

        os.environ.setdefault("WANDB_ERROR_REPORTING", "false")  # of W&B's library, about itself
        continues = resume == "auto" and (Path(save_dir) / "wandb_run_id").exists()
        run = run_id(Path(save_dir) / "wandb_run_id", resume)
        super().__init__(project=project, name=name, save_dir=save_dir, id=run)
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
        self._options: dict[str, Any] = {
            "project": project,
            "name": name,
            "dir": save_dir,
            "id": run,
            "resume": "allow",
            "group": group or sweep_name(),
            "tags": [tag for tag in tags if tag],
            "mode": "offline" if offline else None,
            "settings": settings,
        }
        self._run: Any = None
        self._figures: dict[str, str] = {}
        self._table = Path(save_dir) / "metrics.csv" if resume == "auto" else None
        self._continues = continues
        self._first = self._last = 0  # W&B's steps: the first that it lacks, and the last that was logged

    def summarize(self, figures: dict[str, str]) -> None:
        """Have the summary of a run that is not started yet hold the best of each figure, its `max` or `min`."""
        self._figures = figures

    @property
    @rank_zero_experiment
    def experiment(self) -> Any:
        if self._run is None:
            self._run = self._start()
        return self._run

    @rank_zero_only
    def log_metrics(self, metrics: Mapping[str, Any], step: int | None = None) -> None:
        _ = self.experiment
        table, self._table = self._table, None
        for row in read_rows(table) if table else []:
            at = int(row.pop("step"))
            self._log({name: float(value) for name, value in row.items()}, at)
        self._log(metrics, step)

    @rank_zero_only
    def finish(self) -> None:
        """End the run, so that the next one of this process is another; what is not sent then stays in the folder."""
        try:
            self.experiment.finish()
        except Exception as error:
            self._run = disabled(error)

    def _log(self, metrics: Mapping[str, Any], step: int | None) -> None:
        row = self._first if step is None else wandb_step(metrics, step)
        if row < self._first:
            return
        self._last = max(self._last, row)  # a validation between accumulated batches precedes its training step
        try:
            self._run.log(metrics if step is None else {**metrics, STEP: step}, step=self._last)
        except Exception as error:  # W&B raises many kinds, and none may end a run
            self._run = disabled(error)

    def _start(self) -> Any:
        import wandb

        try:
            if wandb.run is not None:  # a run of this process that failed
                wandb.run.finish(exit_code=1)
            if self._options["mode"] is None and not has_key():
                raise UserError("no key is set (WANDB_API_KEY, or `wandb login`)")
            run = wandb.init(**self._options)
        except Exception as error:
            if self._options["mode"] == "offline":
                return disabled(error)
            log.warning(
                f"W&B: {one_line(error)}; this run is kept offline in {self.save_dir}/wandb, send it later with "
                "`wandb sync`"
            )
            self._options["mode"] = "offline"
            end_process()  # it holds the run's id
            return self._start()
        self._first = run.starting_step
        if self._table and self._continues and run.offline:
            for row in read_rows(self._table)[-1:]:
                self._first = wandb_step(row, int(row["step"])) + 1
        run.define_metric(STEP)
        run.define_metric("*", step_metric=STEP, step_sync=True)
        for name, better in self._figures.items():
            run.define_metric(name, step_metric=STEP, summary=better)
        return run


def wandb_step(metrics: Mapping[str, Any], step: int) -> int:
    """Return the row of a training step, or the row after it: of its validation, its test and their pictures."""
    return 2 * step + (not any(name.startswith("train/") for name in metrics))


@rank_zero_only
def run_id(file: Path, resume: str | None) -> str:
    """Return the run's id; it is kept in the run folder, so that a resumed run is the same run at W&B."""
    if resume != "auto" or not file.exists():
        file.parent.mkdir(parents=True, exist_ok=True)
        # W&B's agent waits for a run of its sweep under this id.
        by_agent = os.environ.get("WANDB_RUN_ID") if "WANDB_SWEEP_ID" in os.environ else None
        file.write_text(f"{by_agent or uuid4().hex[:8]}\n", "utf-8")
    return file.read_text("utf-8").strip()


def sweep_name() -> str | None:
    """Return the name of the folder of the sweep that this run belongs to."""
    if in_sweep():
        return Path(HydraConfig.get().sweep.dir).name
    return None


def has_key() -> bool:
    """Return whether there is a key, or the environment's mode needs none; `wandb.init` would ask for one."""
    import wandb

    wandb.setup().settings.silent = True  # or the login asks the server for the user's name
    return os.environ.get("WANDB_MODE", "online") != "online" or wandb.login(prompt=False, verify=False)


def disabled(error: Exception) -> Any:
    """Return a run that takes everything and keeps nothing, after W&B's process or the disk has failed."""
    import wandb

    log.warning(f"W&B: nothing more can be logged ({error}); training continues without it")
    end_process()
    return wandb.init(mode="disabled")


def end_process() -> None:
    """End W&B's process beside this one; the next run starts another."""
    import wandb

    for end in (wandb.finish, wandb.teardown):
        with suppress(Exception):
            end()
