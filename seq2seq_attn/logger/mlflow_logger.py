"""MLflow's runs, with pictures and tables, in a database on this machine unless a server is named."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any, final

from filelock import FileLock
from pytorch_lightning.loggers import MLFlowLogger
from pytorch_lightning.utilities import rank_zero_only

from seq2seq_attn.errors import UserError, one_line
from seq2seq_attn.markdown import table

log = logging.getLogger(__name__)
GIVEN_URI = os.environ.get("MLFLOW_TRACKING_URI")  # by the user: MLflow sets the variable to the store of its last run


@final
class WhileAnswered:
    """The methods of a client, which do nothing after one has failed: a training must not end with its server."""

    def __init__(self, client: Any) -> None:
        self._client, self._is_lost = client, False

    def __getattr__(self, name: str) -> Any:
        return partial(self._call, getattr(self._client, name))

    def _call(self, method: Callable[..., Any], *args: Any, **named: Any) -> Any:
        if self._is_lost:
            return None
        try:
            return method(*args, **named)
        except Exception as error:  # of MLflow, of the network, of whatever stores the pictures
            self._is_lost = True
            log.warning(
                f"MLflow does not answer any more ({one_line(error)}), and is sent nothing more; the run goes on, and "
                "its figures are in metrics.csv"
            )
            return None


@final
class MlflowRun(MLFlowLogger):
    """One MLflow run for each run folder, in one store for all of them.

    A resumed run continues its MLflow run, whose id is in `mlflow_run_id` in the run folder. Steps that it repeats are
    there twice, with equal values. Options are recorded when it starts, as MLflow takes none twice. If the store is
    lost after that, a warning says so, and the run goes on.

    Args:
        save_dir: the run folder.
        store: folder of the database and the pictures of all runs, unless there is a server.
        tracking_uri: of a server or another database; None: the variable MLFLOW_TRACKING_URI, else the database.
        resume: auto: continue the MLflow run of this folder, if there is one.
    """

    def __init__(
        self, *, save_dir: str, store: str, tracking_uri: str | None, experiment: str, name: str, resume: str | None
    ) -> None:
        os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")  # of MLflow, about itself
        uri = tracking_uri or GIVEN_URI
        self._id_file = Path(save_dir) / "mlflow_run_id"
        self._resumes = resume == "auto" and self._id_file.exists()
        folder = Path(store).expanduser().resolve()
        if not uri:
            folder.mkdir(parents=True, exist_ok=True)
        artifacts = None if uri else (folder / "artifacts").as_uri()
        with nullcontext() if uri else FileLock(folder / "mlflow.lock"):  # two jobs of a sweep may make the database
            super().__init__(
                experiment_name=experiment,
                run_name=name,
                tracking_uri=uri or f"sqlite:///{folder / 'mlflow.db'}",
                artifact_location=artifacts,
                run_id=self._id_file.read_text("utf-8").strip() if self._resumes else None,
            )
            if not uri and self._mlflow_client.get_experiment_by_name(experiment) is None:
                self._mlflow_client.create_experiment(experiment, artifacts)
        if self._resumes:
            self._check_run()

    @rank_zero_only
    def _check_run(self) -> None:
        """Refuse to continue an MLflow run that is not there any more, or that no server answers for."""
        from mlflow.exceptions import MlflowException

        try:
            stage = self.experiment.get_run(self.run_id).info.lifecycle_stage
            why = None if stage == "active" else f"it is {stage}"
        except MlflowException as error:
            why = one_line(error)
        if why is not None:
            raise UserError(
                f"MLflow cannot continue the run that {self._id_file} names ({why}); restore it, or delete this file, "
                "and the resumed run starts a new one"
            )

    @rank_zero_only
    def log_hyperparams(self, params: Any) -> None:
        from mlflow.exceptions import MlflowException

        if not self._resumes:
            try:
                super().log_hyperparams(params)
            except MlflowException as error:
                raise UserError(
                    f"MLflow cannot start a run ({one_line(error)}); start its server, restore the experiment or give "
                    "another logger.mlflow.experiment, or leave logger=mlflow out"
                ) from error
            self._id_file.parent.mkdir(parents=True, exist_ok=True)
            self._id_file.write_text(f"{self.run_id}\n", "utf-8")
        if not isinstance(self._mlflow_client, WhileAnswered):
            self._mlflow_client = WhileAnswered(self._mlflow_client)

    @rank_zero_only
    def log_image(self, key: str, images: list[str], step: int, caption: list[str]) -> None:
        """Log image files, with the arguments of W&B's logger; MLflow shows no captions."""
        from PIL import Image

        for number, file in enumerate(images):
            name = key if len(images) == 1 else f"{key}/{number}"
            with Image.open(file) as image:
                self.experiment.log_image(self.run_id, image, key=name, step=step)

    @rank_zero_only
    def log_table(self, key: str, columns: list[str], data: list[list[Any]], step: int | None = None) -> None:
        """Write a table as Markdown; a later one of its name replaces it."""
        self.experiment.log_text(self.run_id, table(columns, (map(str, row) for row in data)), f"{key}.md")
