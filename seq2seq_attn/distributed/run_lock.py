"""One process at a time in a run folder, and one run: a lock that the system releases however its holder ends."""

from __future__ import annotations

import fcntl
import os
import shutil
import sys
from collections.abc import Collection, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from itertools import takewhile
from pathlib import Path
from typing import IO, Any, final

from hydra.core.hydra_config import HydraConfig
from hydra.experimental.callback import Callback
from omegaconf import DictConfig, OmegaConf

from seq2seq_attn.distributed.rank_overrides import is_first
from seq2seq_attn.errors import EXIT_CODE, UserError
from seq2seq_attn.files import read_json, regular

LOCK = "run.lock"
PROVENANCE = "provenance.json"
RECORDS = ("config.yaml", "metrics.csv", "results.json", PROVENANCE, "profile.txt", "not_finite.tsv", "mlflow_run_id")
TRANSLATIONS = ("translations*.tsv", "translations*.hypotheses", "translations*.references")
BEST, LAST, PREVIOUS = "best.ckpt", "last.ckpt", "previous.ckpt"  # previous: the one that last has replaced
HELD: set[Path] = set()  # by this process
UNTIL_EXIT = ExitStack()  # of the command


@contextmanager
def only_process_in(folder: Path) -> Iterator[None]:
    """Hold the lock of a folder; a process that holds it already continues.

    A file system without locks stops nothing, nor does a folder that cannot be written, which is reported later.

    Raises:
        UserError: if another process holds it.
    """
    key = folder.resolve()
    if key in HELD:
        yield
        return
    with ExitStack() as stack:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            stack.enter_context(lock(folder))
        except BlockingIOError as error:
            raise UserError(
                f"another process is at work in {folder}; wait for it, or end it, or give another folder"
            ) from error
        except OSError:
            pass
        HELD.add(key)
        stack.callback(HELD.discard, key)
        yield


def is_locked(folder: Path) -> bool:
    """Return whether a process holds the lock of a folder."""
    try:
        lock(folder).close()
    except BlockingIOError:
        return True
    except OSError:  # no folder, or no locks
        pass
    return False


def lock(folder: Path) -> IO[str]:
    """Return the open file, which has the lock until it is closed."""
    file = (folder / LOCK).open("a")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        file.close()
        raise
    return file


@final
class RunLock(Callback):
    """A callback of Hydra's that takes the lock before Hydra writes into the folder; rank 0 holds it for all ranks.

    The folder of a run is refused to all but its continuation, before its .hydra is overwritten. A new folder into
    which the task has written no file, because its start has failed, is removed at the end.
    """

    def on_multirun_start(self, config: DictConfig, **kwargs: Any) -> None:
        if "resume" in config:  # it is of train.py, whose sweepers look at the folders
            return
        try:
            check_job_folders(typed_of_hydra(config), ["hydra.run.dir"])
        except UserError as error:  # Hydra would turn it into a warning
            print(error, file=sys.stderr)
            sys.exit(EXIT_CODE)

    def on_run_start(self, config: DictConfig, **kwargs: Any) -> None:
        if not is_first():
            return
        HydraConfig.instance().set_config(config)  # the folder's name may refer to it
        folder, subfolder = Path(config.hydra.run.dir), Path(config.hydra.output_subdir or ".")
        try:
            new = list(takewhile(lambda path: not path.exists(), (folder, *folder.parents)))
        except OSError:  # as of too long a name: Hydra cannot make the folder, and the command says so
            return
        try:
            check_is_sweep(typed_of_hydra(config))
            UNTIL_EXIT.enter_context(only_process_in(folder))
            check_folder(config, folder)
            if config.hydra.output_subdir is not None:
                check_hydra(folder, subfolder)
            check_log(folder / f"{config.hydra.job.name}.log")
        except UserError as error:  # Hydra would turn it into a warning
            print(error, file=sys.stderr)
            sys.exit(EXIT_CODE)
        made = {subfolder, *(subfolder / f"{name}.yaml" for name in ("config", "hydra", "overrides"))}
        made |= {Path(LOCK), Path(f"{config.hydra.job.name}.log"), Path("checkpoints")}  # without a file in it
        UNTIL_EXIT.callback(remove_unused, new, made)


def typed_of_hydra(config: DictConfig) -> list[str]:
    """Return the overrides of Hydra's own options, as they were typed."""
    return OmegaConf.to_container(config.hydra.overrides.hydra, resolve=False)  # type: ignore[return-value]


def check_is_sweep(overrides: Sequence[str]) -> None:
    """Refuse the folder of a sweep for a single run, which would be in another one.

    Args:
        overrides: those of Hydra's own options, as they were typed.

    Raises:
        UserError: naming both ways out.
    """
    for override in overrides:
        key, _, folder = override.partition("=")
        if key.lstrip("+") == "hydra.sweep.dir":
            raise UserError(
                f"{override} names the folder of a sweep, and this is a single run; add -m, or give "
                f"hydra.run.dir={folder}"
            )


def check_job_folders(overrides: Sequence[str], unread: Collection[str]) -> None:
    """Refuse a folder that no job would be in.

    Args:
        overrides: those of Hydra's own options, as they were typed.
        unread: the options of a folder that a sweep does not read.

    Raises:
        UserError: naming the option of a sweep's folder.
    """
    for override in overrides:
        if override.partition("=")[0].lstrip("+") in unread:
            raise UserError(
                f"{override} would change nothing in a sweep, which makes a folder for each job, named by its number; "
                "leave it out, and give hydra.sweep.dir=FOLDER for the folder of all of them"
            )


def check_folder(config: DictConfig, folder: Path) -> None:
    """Refuse the folder of a run to what does not continue it: another training, or an evaluation.

    Raises:
        UserError: if the folder holds results or checkpoints, or files that a training would replace and did not write.
    """
    if "resume" not in config:  # it is of evaluate.py
        check_holds_no_run(folder, "hydra.run.dir")
        return
    check_records(folder, "hydra.run.dir")
    if config.resume is None:
        given = config.ckpt_path
        named = Path(os.path.expanduser(given)).absolute() if isinstance(given, str) else None
        if named is None or not named.exists() or not (is_in(named, folder) or is_in(named.parent, folder)):
            check_is_new(folder)


def is_in(file: Path, folder: Path) -> bool:
    """Return whether a file or folder, links followed, is a folder or in it."""
    return file.resolve().is_relative_to(folder.resolve())


def check_hydra(folder: Path, subfolder: Path) -> None:
    """Refuse to let Hydra replace its records of another program; those of this one name this package.

    A start that was killed may have left a part of them.

    Raises:
        UserError: naming the file.
    """
    file = folder / subfolder / "hydra.yaml"
    try:
        recorded = regular(file).read_text("utf-8", errors="replace").strip()
    except OSError:  # usually because there is none
        return
    if recorded and "seq2seq_attn" not in recorded and not is_of_run(folder):
        raise UserError(
            f"{file} was written by another program that uses Hydra, and would be replaced; give another hydra.run.dir"
        )


def check_log(file: Path) -> None:
    """Refuse a log that cannot be written, before Hydra tries to.

    Raises:
        UserError: naming it.
    """
    try:
        if file.exists():
            file.open("a").close()
    except OSError as error:
        raise UserError(
            f"{file} cannot be written ({error.strerror}); make it writable, or give another hydra.run.dir"
        ) from error


def check_is_new(folder: Path) -> None:
    """Refuse to start a run where there is one, whose checkpoints would be overwritten.

    Raises:
        UserError: if the folder holds results or checkpoints.
    """
    if holds_run(folder):
        raise UserError(
            f"{folder} holds a run; resume=auto continues it, and another hydra.run.dir starts a new one (or delete "
            "the folder)"
        )


def check_holds_no_run(folder: Path, option: str) -> None:
    """Refuse to evaluate in the folder of a run.

    Args:
        option: that names the folder.

    Raises:
        UserError: if the folder holds results or checkpoints.
    """
    if holds_run(folder):
        raise UserError(f"{folder} holds a run, whose files would be replaced; give another {option}")


def check_records(folder: Path, option: str) -> None:
    """Refuse to replace a file of the user's own that has the name of a record or of translations of a run.

    Args:
        option: that names the folder.

    Raises:
        UserError: naming it.
    """
    own = [folder / name for name in RECORDS if os.path.lexists(folder / name)]
    own += sorted(path for pattern in TRANSLATIONS for path in folder.glob(pattern))
    if own and not is_of_run(folder):
        raise UserError(
            f"{own[0]} was not written by a run, since the folder has no {PROVENANCE} of a run, and this run would "
            f"replace it; give another {option}, or rename the file"
        )


def is_of_run(folder: Path) -> bool:
    """Return whether a training has begun in a folder: it writes provenance.json first."""
    return {"command", "versions"} <= read_json(folder / PROVENANCE).keys() or bool(checkpoints_in(folder))


def is_folder_of_hydra(folder: Path) -> bool:
    """Return whether a folder is Hydra's, which `RunLock` has checked before Hydra wrote there; `paths.run_dir` may
    name another one.
    """
    if not HydraConfig.initialized() or OmegaConf.is_missing(HydraConfig.get().runtime, "output_dir"):
        return False
    return folder.resolve() == Path(HydraConfig.get().runtime.output_dir).resolve()


def holds_run(folder: Path) -> bool:
    """Return whether a folder has results or checkpoints of a training."""
    return os.path.lexists(folder / "results.json") or bool(checkpoints_in(folder))


def checkpoints_in(folder: Path) -> list[Path]:
    """Return the checkpoints of a run folder, and links in their place."""
    checkpoints = folder / "checkpoints"
    named = [file for name in (BEST, LAST, PREVIOUS) if os.path.lexists(file := checkpoints / name)]
    return [*named, *checkpoints.glob("*step=*.ckpt")]


def remove_unused(folders: list[Path], known: set[Path]) -> None:
    """Remove the first of new folders, each in the next, if it holds nothing but what is known, and then empty ones."""
    if folders and {path.relative_to(folders[0]) for path in folders[0].rglob("*")} <= known:
        shutil.rmtree(folders[0], ignore_errors=True)
        with suppress(OSError):
            for folder in folders[1:]:
                folder.rmdir()
