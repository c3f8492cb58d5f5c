"""Lightning's way to checkpoint files, for all that saves one: the Trainer, its callbacks, its strategies."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any, final

from pytorch_lightning.plugins.io import CheckpointIO

from seq2seq_attn.checkpoint.checkpoint_file import LAST, PREVIOUS, remove_checkpoint, write_checkpoint
from seq2seq_attn.checkpoint.load import read_tensors
from seq2seq_attn.errors import UserError
from seq2seq_attn.files import damage

log = logging.getLogger(__name__)


@final
class AtomicCheckpointIO(CheckpointIO):
    """Whole files or none, read without running code; `last.ckpt` leaves the one before it as `previous.ckpt`.

    Args:
        folder: of the run's checkpoints, which holds those that it wrote before it was resumed.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder.resolve()
        self._written: set[Path] = set()

    def save_checkpoint(self, checkpoint: dict[str, Any], path: str | Path, storage_options: Any | None = None) -> None:
        if "://" in str(path):
            raise UserError(f"{path} is not a local file, and checkpoints are kept on local disks only")
        file = Path(path).absolute()
        kept = file.name == LAST and self._is_whole(file)
        write_checkpoint(checkpoint, file, before=file.with_name(PREVIOUS) if kept else None)
        self._written.add(resolved(file))

    def load_checkpoint(
        self, path: str | Path, map_location: Any | None = None, weights_only: bool | None = None
    ) -> dict[str, Any]:
        """On the CPU, and tensors and plain data only, whatever is asked for."""
        return read_tensors(Path(path))

    def remove_checkpoint(self, path: str | Path) -> None:
        """Delete a file that this run wrote; whatever else the state of a callback names is left alone."""
        file = resolved(Path(path))
        before = file.suffix == ".ckpt" and file.is_relative_to(self._folder)
        if file.is_dir() or not (before or file in self._written):
            log.warning(f"{path} was not written by this run; it is not deleted")
            return
        remove_checkpoint(file)

    def _is_whole(self, file: Path) -> bool:
        """A damaged file must not replace the good one before it; our own are not read again."""
        return file.is_file() and (resolved(file) in self._written or damage(file) is None)


def resolved(file: Path) -> Path:
    """The same name in the folder where it really is; a link stays itself, since it is the link that is deleted."""
    return file.parent.resolve() / file.name
