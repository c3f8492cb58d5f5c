"""Lightning's way to checkpoint files, for all that saves one: the Trainer, its callbacks, its strategies."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any, final

from pytorch_lightning.plugins.io import CheckpointIO

from seq2seq_attn.tensors.error import UserError
from seq2seq_attn.training.checkpoint import read_tensors
from seq2seq_attn.training.checkpoint_file import LAST, PREVIOUS, remove_checkpoint, write_checkpoint
from seq2seq_attn.training.digest import damage


@final
class AtomicCheckpointIO(CheckpointIO):
    """Whole files or none, read without running code; `last.ckpt` leaves the one before it as `previous.ckpt`."""

    def __init__(self) -> None:
        self._written: set[Path] = set()

    def save_checkpoint(
        self, checkpoint: dict[str, Any], path: str | Path, storage_options: Any | None = None
    ) -> None:
        if "://" in str(path):
            raise UserError(f"{path} is not a local file, and checkpoints are kept on local disks only")
        file = Path(path).absolute()
        kept = file.name == LAST and self._is_whole(file)
        write_checkpoint(checkpoint, file, before=file.with_name(PREVIOUS) if kept else None)
        self._written.add(file)

    def load_checkpoint(
        self, path: str | Path, map_location: Any | None = None, weights_only: bool | None = None
    ) -> dict[str, Any]:
        """On the CPU, and tensors and plain data only, whatever is asked for."""
        return read_tensors(Path(path))

    def remove_checkpoint(self, path: str | Path) -> None:
        if Path(path).is_dir():  # of a strategy that writes one for each device
            shutil.rmtree(path)
        else:
            remove_checkpoint(Path(path))

    def _is_whole(self, file: Path) -> bool:
        """A damaged file must not replace the good one before it; our own are not read again."""
        return file.is_file() and (file in self._written or damage(file) is None)
