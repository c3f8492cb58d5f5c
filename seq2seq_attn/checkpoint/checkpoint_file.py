"""Checkpoint files: written whole or not at all, read without running code, and Lightning's way to both.

At every moment of a write its name holds a whole file, the old one or the new one. A file is whole if the CRC-32 of
every record of its zip archive is right.
"""

from __future__ import annotations

import errno
import io
import logging
import os
import re
import shutil
import warnings
import zipfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, final

import torch
from pytorch_lightning.plugins.io import CheckpointIO
from pytorch_lightning.utilities.rank_zero import rank_zero_only
from torch import Tensor

from seq2seq_attn.distributed.run_lock import LAST, PREVIOUS
from seq2seq_attn.errors import UserError, one_line
from seq2seq_attn.files import sync

log = logging.getLogger(__name__)

UNREADABLE = "is not a readable checkpoint (truncated, damaged or of another program)"


def write_checkpoint(
    checkpoint: dict[str, Any], file: Path, *, previous: Path | None = None, way_out: str | None = None
) -> None:
    """Replace `file`, or leave it as it was.

    Args:
        previous: where the file that is replaced is kept; None: nowhere.
        way_out: from an error, for its sentence; None: to resume the run.

    Raises:
        UserError: if the disk is full, the folder cannot be written, or the checkpoint could not be read again.
    """
    parts = {part_of(file): file}
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with part_of(file).open("wb") as stream:
            torch.save(checkpoint, stream)
            stream.flush()
            os.fsync(stream.fileno())
        if foreign_class(str(part_of(file))) is not None:
            for name, state in checkpoint.items():
                check_plain(state, f"the checkpoint's {name}")
        if previous is not None and file.exists():
            parts[part_of(previous)] = previous
            link_or_copy(file.resolve(), part_of(previous))  # the file itself, for Lightning's save_last=link
        for part, final_name in parts.items():
            part.replace(final_name)
        sync(file.parent)
    except BaseException as error:
        with suppress(OSError):  # a read-only folder
            for part in parts:
                part.unlink(missing_ok=True)
        cause = error.__context__ if isinstance(error, RuntimeError) else error  # torch's own, after that of the disk
        if not isinstance(cause, OSError):
            raise
        raise unwritable(file, cause, way_out) from error


def link_or_copy(file: Path, other: Path) -> None:
    other.unlink(missing_ok=True)
    try:
        os.link(file, other)
    except OSError:  # not every file system has links
        shutil.copyfile(file, other)
        sync(other)


def read_tensors(path: Path) -> Any:
    """Return what torch wrote into a file, without running any of it.

    Raises:
        UserError: if it is damaged, or holds more than tensors and plain data.
    """
    content, reason = read_or_reason(path)
    if reason is not None:
        beside = PREVIOUS if path.name == LAST else LAST
        raise UserError(f"{path} {reason}; use another one, such as {beside} beside it, or train again")
    return content


def read_or_reason(file: Path) -> tuple[Any, str | None]:
    """Return the content of a file, or else why it cannot be read, to be put after the file's name."""
    reason = damage(file)
    if reason is not None:
        return None, reason
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch announces a TorchScript file before it refuses it
            return torch.load(file, map_location="cpu", weights_only=True), None
    except Exception as error:  # what others pickle fails in many ways
        asked = re.search(r"GLOBAL (\S+)", str(error))
        return None, f"asks for {asked[1]}, which is no plain data; it was not run" if asked else UNREADABLE


def foreign_class(file: str | io.BytesIO) -> str | None:
    """Return the class that torch asks for to read what it has just written and refuses; None: it reads it."""
    try:
        torch.load(file, map_location="cpu", mmap=isinstance(file, str), weights_only=True)
    except Exception as error:  # what others pickle fails in many ways
        asked = re.search(r"GLOBAL (\S+)", str(error))
        return asked[1] if asked else type(error).__name__
    return None


def check_plain(state: Any, name: str) -> None:
    """Refuse a state that no checkpoint may hold, since it would not be read again.

    Raises:
        UserError: naming the state, or the entry of it.
    """
    content = io.BytesIO()
    try:
        torch.save(without_tensors(state), content)
    except Exception as error:  # an open file or a lambda fails in many ways
        raise UserError(f"{name} cannot be saved ({one_line(error)}); leave it out of the state_dict()") from error
    content.seek(0)
    found = foreign_class(content)
    if found is None:
        return
    for key, child in state.items() if isinstance(state, dict) else ():
        check_plain(child, f"{name} at {key}")
    raise UserError(
        f"{name} holds {found}, and a checkpoint holds tensors and plain data alone, so it could not be read again; "
        "return numbers of Python, lists or tensors in the state_dict()"
    )


def without_tensors(node: Any) -> Any:
    """Return plain data with None for tensors, which may be as large as the model."""
    if type(node) is dict:
        return {key: without_tensors(value) for key, value in node.items()}
    if type(node) in (list, tuple):
        return [without_tensors(value) for value in node]
    return None if isinstance(node, Tensor) else node


def damage(file: Path) -> str | None:
    """Return why a file is not whole, to be put after its name; None: it is. torch.load checks no CRC."""
    try:
        with zipfile.ZipFile(file) as records:
            # torch sets no attribute; of a record that is marked as a folder it would read nothing. Nor does it
            # compress: a small file could then fill the memory
            if any(r.external_attr or r.compress_type != zipfile.ZIP_STORED for r in records.infolist()):
                return UNREADABLE
            return None if records.testzip() is None else UNREADABLE
    except PermissionError as error:
        return f"cannot be read ({error.strerror})"
    except Exception:  # a broken archive fails in many ways
        return UNREADABLE


def corpus_of(checkpoint: dict[str, Any]) -> str | None:
    """Return the fingerprint of the corpus that a run was trained on; None where its checkpoint does not say.

    An average or a published model has it beside its weights.
    """
    state = checkpoint.get("TranslationDataModule")  # that of `TranslationDataModule.state_dict`, as Lightning names it
    found = (state if isinstance(state, dict) else checkpoint).get("corpus")
    return found if isinstance(found, str) else None


def is_stored(name: Any, weight: Any) -> bool:
    """Whether a file holds every number of a named tensor, and not, say, one that represents a million."""
    if not isinstance(name, str) or not isinstance(weight, Tensor):
        return False
    plain = weight.device.type == "cpu" and weight.layout == torch.strided and not weight.is_quantized
    return plain and weight.untyped_storage().nbytes() >= weight.numel() * weight.element_size()


def read_latest(folder: Path) -> tuple[Path, Any] | None:
    """Return the latest whole checkpoint of a folder and its content; None where there is no checkpoint.

    Without `last.ckpt` and `previous.ckpt`, which someone may have deleted, that is the one after the most updates, and
    not the newest file: a copy of a folder has the times of the copying. A damaged one is named in a warning, and the
    one before it is taken.

    Raises:
        UserError: if all of them are damaged, or the latest is a link to nothing: its disk may not be mounted.
    """
    damaged: dict[str, str] = {}
    for file in in_order(folder):
        if not file.exists():
            raise UserError(
                f"{file} is a link to {os.readlink(file)}, which is not there; mount or fetch it, or give another "
                "hydra.run.dir"
            )
        content, reason = read_or_reason(file)
        if reason is None:
            for name, why in damaged.items():
                warn(f"{folder / name} {why}; {file.name} is taken instead")
            return file, content
        damaged[file.name] = reason
    if damaged:
        raise UserError(
            f"{folder} holds no whole checkpoint ({', '.join(damaged)}: all damaged); give a new hydra.run.dir to "
            "start again"
        )
    return None


def in_order(folder: Path) -> Iterator[Path]:
    """Yield the checkpoints of a folder, the latest first."""
    named = [folder / LAST, folder / PREVIOUS]
    yield from filter(is_there, named)
    others = [file for file in folder.glob("*.ckpt") if file not in named and is_there(file)]
    yield from sorted(others, key=lambda file: (updates_of(file), file.lstat().st_mtime_ns), reverse=True)


def is_there(file: Path) -> bool:
    """Return whether there is a file or a dangling link."""
    return file.is_file() or (file.is_symlink() and not file.exists())


def updates_of(file: Path) -> int:
    """Return the number of updates before a checkpoint, which a damaged one may have in its name; -1: unknown."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return int(torch.load(file, map_location="cpu", mmap=True, weights_only=True)["global_step"])
    except Exception:
        in_name = re.search(r"step=(\d+)", file.name)
        return int(in_name[1]) if in_name else -1


@rank_zero_only
def warn(sentence: str) -> None:
    log.warning(sentence)


@rank_zero_only
def prepare_run_folder(run_dir: Path) -> None:
    """Make `checkpoints/`, and remove what a killed run left half-written.

    Raises:
        UserError: if the folder cannot be written: better now than after the first epoch.
    """
    folder = run_dir / "checkpoints"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        part_of(folder / LAST).touch()
        for file in folder.glob("*.ckpt.part"):
            file.unlink(missing_ok=True)
    except OSError as error:
        raise unwritable(folder, error) from error


def part_of(file: Path) -> Path:
    """Return the name of a file that is being written; in the same folder, or the renaming would be a copy."""
    return file.with_name(f"{file.name}.part")


def unwritable(path: Path, error: OSError, way_out: str | None = None) -> UserError:
    """Return the sentence for a file that cannot be written; the way out of a run is to be resumed."""
    if way_out is None:
        first = "make room" if error.errno in (errno.ENOSPC, errno.EDQUOT) else "make it writable"
        way_out = f"the checkpoints there are unchanged, so {first} and continue with resume=auto, or give another "
        way_out += "hydra.run.dir"
    return UserError(f"{path} cannot be written ({error.strerror}); {way_out}")


@final
class AtomicCheckpointIO(CheckpointIO):
    """Lightning's adapter to these files; `last.ckpt` leaves the one before it as `previous.ckpt`.

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
        # a damaged file must not replace the whole one before it; our own are not read again
        keeps = file.name == LAST and file.is_file() and (resolved(file) in self._written or damage(file) is None)
        write_checkpoint(checkpoint, file, previous=file.with_name(PREVIOUS) if keeps else None)
        self._written.add(resolved(file))

    def load_checkpoint(
        self, path: str | Path, map_location: Any | None = None, weights_only: bool | None = None
    ) -> dict[str, Any]:
        """Return tensors and plain data only, on the CPU, whatever is asked for."""
        return read_tensors(Path(path))

    def remove_checkpoint(self, path: str | Path) -> None:
        """Delete a file that this run wrote; whatever else the state of a callback names is left alone."""
        file = resolved(Path(path))
        is_run_checkpoint = file.suffix == ".ckpt" and file.is_relative_to(self._folder)
        if file.is_dir() or not (is_run_checkpoint or file in self._written):
            log.warning(f"{path} was not written by this run; it is not deleted")
            return
        file.unlink(missing_ok=True)


def is_checkpoint_of(file: Path, run_dir: Path) -> bool:
    """Return whether a file is one of a run's checkpoints, even if it or their folder is a link."""
    return resolved(file.absolute()).is_relative_to((run_dir / "checkpoints").resolve())


def is_latest_of(file: Path, run_dir: Path) -> bool:
    """Return whether a file is the latest of a run's checkpoints, so that no step of it is repeated."""
    latest = next(iter(in_order(run_dir / "checkpoints")), None)
    return latest is not None and file.exists() and latest.exists() and file.samefile(latest)


def resolved(file: Path) -> Path:
    """Return the same name in its real folder; a link stays a link, since it is the link that is deleted."""
    return file.parent.resolve() / file.name
