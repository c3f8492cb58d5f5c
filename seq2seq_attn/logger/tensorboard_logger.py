"""TensorBoard's event files, with pictures and tables."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, final

from matplotlib.image import imread
from pytorch_lightning.loggers import TensorBoardLogger
from pytorch_lightning.utilities import rank_zero_only

from seq2seq_attn.logger.csv_logger import read_rows
from seq2seq_attn.markdown import table


@final
class TensorBoardRun(TensorBoardLogger):
    """Writes into `tensorboard` in the run folder.

    A resumed run hides the events from its first step on, which it logs again; a new run hides all earlier events.

    Args:
        resume: auto: continue the curves in this folder, if there are any.
    """

    def __init__(self, *, save_dir: str, resume: str | None) -> None:
        self._resumes = resume == "auto"
        # Files of one second are read in the order of their names, in which the tenth file of a process comes before
        # the ninth: an event that hides all before it is written only where there is something to hide.
        earlier = any((Path(save_dir) / "tensorboard").glob("events.out.tfevents.*"))
        purge = 0 if earlier and not self._resumes else None
        super().__init__(save_dir, name="tensorboard", version="", default_hp_metric=False, purge_step=purge)

    @rank_zero_only
    def log_metrics(self, metrics: Mapping[str, Any], step: int | None = None) -> None:
        if self._resumes:
            self._resumes = False
            self.experiment.close()  # the next event opens a new file, which begins with the step to purge from
            self.experiment.purge_step = step
            # The training figures of a step that is validated again were logged before the checkpoint.
            rows = [row for row in read_rows(Path(self.save_dir) / "metrics.csv") if row.pop("step") == str(step)]
            metrics = {name: float(value) for row in rows for name, value in row.items()} | dict(metrics)
        super().log_metrics(metrics, step)

    @rank_zero_only
    def log_image(self, key: str, images: list[str], step: int, caption: list[str]) -> None:
        """Log image files, with the arguments of W&B's logger; TensorBoard shows no captions."""
        for number, image in enumerate(images):
            tag = key if len(images) == 1 else f"{key}/{number}"
            self.experiment.add_image(tag, imread(image), step, dataformats="HWC")

    @rank_zero_only
    def log_table(self, key: str, columns: list[str], data: list[list[Any]], step: int | None = None) -> None:
        """Log a table as Markdown."""
        self.experiment.add_text(key, table(columns, (map(str, row) for row in data)), step)
