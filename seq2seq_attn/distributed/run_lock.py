"""One process at a time in a run folder: a lock that the system releases however its holder ends."""

from __future__ import annotations

import fcntl
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO, Any, final

from hydra.core.hydra_config import HydraConfig
from hydra.experimental.callback import Callback
from omegaconf import DictConfig

from seq2seq_attn.distributed.rank_overrides import is_first
from seq2seq_attn.errors import EXIT_CODE, UserError

LOCK = "run.lock"
HELD: set[Path] = set()  # by this process
UNTIL_EXIT = ExitStack()


@contextmanager
def locked(folder: Path) -> Iterator[None]:
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
    """A callback of Hydra's that takes the lock before Hydra writes into the folder; rank 0 holds it for all ranks."""

    def on_run_start(self, config: DictConfig, **kwargs: Any) -> None:
        if not is_first():
            return
        HydraConfig.instance().set_config(config)  # the folder's name may refer to it
        try:
            UNTIL_EXIT.enter_context(locked(Path(config.hydra.run.dir)))
        except UserError as error:  # Hydra would turn it into a warning
            print(error, file=sys.stderr)
            sys.exit(EXIT_CODE)
