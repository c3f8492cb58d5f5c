"""Aim's runs, with pictures and tables, in a repository on this machine."""

from __future__ import annotations

from pathlib import Path
from typing import Any, final

from pytorch_lightning.loggers import Logger
from pytorch_lightning.utilities import rank_zero_only

from seq2seq_attn.errors import UserError
from seq2seq_attn.markdown import table


@final
class AimRun(Logger):
    """Aim's own logger for Lightning, with one Aim run for each run folder, in one repository for all of them.

    Figures have their names without `train/`, `val/` or `test/`, which is Aim's context `subset`. A resumed run
    continues its Aim run, whose hash is in `aim_run_hash` in the run folder. Nothing of the machine is recorded.

    Args:
        save_dir: the run folder.
        repo: folder in which `.aim` is made, or aim://HOST:PORT of a server.
        resume: auto: continue the Aim run of this folder, if there is one.

    Raises:
        UserError: if Aim is not installed.
    """

    def __init__(self, *, save_dir: str, repo: str, experiment: str, name: str, resume: str | None) -> None:
        super().__init__()
        try:
            from aim.pytorch_lightning import AimLogger
        except ModuleNotFoundError as error:
            raise UserError(
                f"logger=aim needs {error.name}; install it with: pip install 'seq2seq-attn[aim]'"
            ) from error
        self._hash_file = Path(save_dir) / "aim_run_hash"
        resumes = resume == "auto" and self._hash_file.exists()
        folder = repo if "://" in repo else str(Path(repo).expanduser().resolve())
        if "://" not in repo:
            Path(folder).mkdir(parents=True, exist_ok=True)
        self._aim = AimLogger(
            repo=folder,
            experiment=experiment,
            run_name=name,
            run_hash=self._hash_file.read_text("utf-8").strip() if resumes else None,
            context_prefixes={"subset": {"train": "train/", "val": "val/", "test": "test/"}},
            system_tracking_interval=None,
            log_system_params=False,
            capture_terminal_logs=False,
        )

    @property
    def name(self) -> str:
        return str(self._aim.name)

    @property
    def version(self) -> str:
        return str(self._aim.version)

    @rank_zero_only
    def log_hyperparams(self, params: Any, *args: Any, **kwargs: Any) -> None:
        self._aim.log_hyperparams(params)
        self._hash_file.parent.mkdir(parents=True, exist_ok=True)
        self._hash_file.write_text(f"{self.version}\n", "utf-8")

    @rank_zero_only
    def log_metrics(self, metrics: dict[str, float], step: int | None = None) -> None:
        self._aim.log_metrics(metrics, step)

    @rank_zero_only
    def log_image(self, key: str, images: list[str], step: int, caption: list[str]) -> None:
        """Log image files, with the arguments of W&B's logger."""
        from aim import Image

        for file, text in zip(images, caption, strict=True):
            self._aim.experiment.track(Image(file, caption=text), name=key, step=step)

    @rank_zero_only
    def log_table(self, key: str, columns: list[str], data: list[list[Any]], step: int | None = None) -> None:
        """Log a table as Markdown."""
        from aim import Text

        self._aim.experiment.track(Text(table(columns, (map(str, row) for row in data))), name=key, step=step)

    @rank_zero_only
    def finalize(self, status: str) -> None:
        self._aim.finalize(status)
