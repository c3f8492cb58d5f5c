"""TensorBoard's event files, each step once."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, final

from matplotlib.image import imread
from pytorch_lightning.loggers import TensorBoardLogger
from pytorch_lightning.utilities import rank_zero_only
from tensorboard.backend.event_processing.event_file_loader import LegacyEventFileLoader

from seq2seq_attn.markdown import table


@final
class TensorBoardRun(TensorBoardLogger):
    """Writes into `tensorboard` in the run folder.

    A run that goes on writes no event again that stands there; one that starts anew hides those of an earlier one.

    Args:
        resume: auto: write on after the events of this folder, if it has some.
    """

    def __init__(self, *, save_dir: str, resume: str | None) -> None:
        goes_on = resume == "auto"
        super().__init__(
            save_dir, name="tensorboard", version="", default_hp_metric=False, purge_step=None if goes_on else 0
        )
        self._written = written(Path(self.log_dir)) if goes_on else set()

    @rank_zero_only
    def log_metrics(self, metrics: Mapping[str, Any], step: int | None = None) -> None:
        super().log_metrics({name: x for name, x in metrics.items() if (name, step) not in self._written}, step)

    @rank_zero_only
    def log_image(self, key: str, images: list[str], step: int, caption: list[str]) -> None:
        """Pictures by their files, as W&B's logger takes them; TensorBoard shows no captions."""
        for number, image in enumerate(images):
            tag = key if len(images) == 1 else f"{key}/{number}"
            if (tag, step) not in self._written:
                self.experiment.add_image(tag, imread(image), step, dataformats="HWC")

    @rank_zero_only
    def log_table(self, key: str, columns: list[str], data: list[list[Any]], step: int) -> None:
        """As Markdown."""
        if (f"{key}/text_summary", step) not in self._written:
            self.experiment.add_text(key, table(columns, (map(str, row) for row in data)), step)


def written(folder: Path) -> set[tuple[str, int]]:
    """Tag and step of every event in the folder's files, as far as they are whole."""
    files = sorted(folder.glob("events.out.tfevents.*"))
    events = (event for file in files for event in LegacyEventFileLoader(str(file)).Load())
    return {(value.tag, event.step) for event in events for value in event.summary.value}
