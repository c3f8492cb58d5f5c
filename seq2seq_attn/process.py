"""The process of a command: its allocator, signals, standard streams and what libraries print."""

from __future__ import annotations

import ctypes
import logging
import os
import resource
import signal
import sys
import warnings
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn, final

# of <malloc.h>
TRIM_THRESHOLD, MMAP_MAX = -1, -4


def keep_freed_memory() -> bool:
    """Have glibc's malloc keep freed memory; return whether it does. Another C library, or MALLOC_… set, is left alone.

    By default malloc returns a large tensor to the system as soon as it is freed, and the next one costs a page fault
    for every 4 KiB, in one thread at a time. See mallopt(3).
    """
    if any(name.startswith("MALLOC_") for name in os.environ) or "GLIBC_TUNABLES" in os.environ:
        return False
    try:
        mallopt = ctypes.CDLL("libc.so.6").mallopt
    except (OSError, AttributeError):
        return False
    return bool(mallopt(MMAP_MAX, 0)) and bool(mallopt(TRIM_THRESHOLD, -1))


def peak_resident_bytes() -> int:
    """Return the most resident memory that this process has had.

    On Linux /proc has it. getrusage(2) starts with that of the process that started this one, however large.
    """
    status = Path("/proc/self/status")
    for line in status.read_text().splitlines() if status.exists() else ():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def let_idle_threads_sleep() -> None:
    """Have a thread of libgomp that waits for work sleep after 10,000 checks; call it before torch is imported.

    By default it checks 300,000 times, which keeps a core busy after an operation, and takes it from other programs. On
    an EPYC (Zen 5), an addition by two threads, with a pause of 30 ms after it, takes 10.6 ms of processor time by
    default, 0.8 with this setting, and 0.25 if threads sleep at once.
    """
    if "OMP_WAIT_POLICY" not in os.environ:
        os.environ.setdefault("GOMP_SPINCOUNT", "10000")


def import_from_current_folder() -> None:
    """Let modules of the current folder be imported, after all that are installed.

    A console script has its own folder on the path instead, and a script that of its file.
    """
    if "" not in sys.path and not sys.flags.safe_path:
        sys.path.append("")


def find_own_plugins() -> None:
    """Let Hydra find the sweepers of a checkout that is installed in place, from any folder."""
    checkout = Path(__file__).parents[1]
    if (checkout / "hydra_plugins").is_dir() and str(checkout) not in sys.path:
        sys.path.append(str(checkout))


ENDING = (signal.SIGTERM, signal.SIGHUP)


def leave_on_signals() -> None:
    """Turn signals into SystemExit, so that a task ends in order; one that is ignored, as by nohup, stays so."""
    for signum in ENDING:
        if signal.getsignal(signum) is signal.SIG_DFL:
            signal.signal(signum, leave)


def leave(signum: int, frame: FrameType | None) -> NoReturn:
    """Handle a signal by leaving with the exit code that a shell reports for it."""
    drop_closed_terminal()
    raise SystemExit(128 + signum)


def drop_closed_terminal() -> None:
    """Send to /dev/null what is yet to be printed on a terminal that was closed: it would fail."""
    for descriptor in (1, 2):
        try:
            os.write(descriptor, b"")
        except OSError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), descriptor)


def open_closed_streams() -> None:
    """Open streams that the shell closed on the null device, or the next file gets their number and their output."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode))  # noqa: SIM115


def is_closed(stream: Any) -> bool:
    """Whether the shell closed a standard stream."""
    return stream is None or getattr(stream, "name", None) == os.devnull


def drop_unwritten() -> None:
    """Discard what standard output refuses: the interpreter writes it once more on its way out, which must not fail."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


@final
class StandardOutput(logging.StreamHandler[Any]):
    """Writes to what `sys.stdout` is at each line: a progress bar replaces it, and puts lines above itself."""

    def __init__(self) -> None:
        logging.Handler.__init__(self)

    @property
    def stream(self) -> Any:
        return sys.stdout


def quieten() -> None:
    """Hide messages of Lightning about itself, and warnings that a user cannot act on."""
    for library in ("pytorch_lightning", "lightning_fabric"):
        logging.getLogger(library).setLevel(logging.WARNING)
    # which rank has ended, before Lightning kills the others; the name is that of Lightning 2.6
    logging.getLogger("lightning_fabric.strategies.launchers.subprocess_script").setLevel(logging.INFO)
    for message in (
        ".*Experiment logs directory.*",  # Hydra has written into the run folder before
        "Checkpoint directory .* exists and is not empty.*",
        "You're resuming from a checkpoint that ended before the epoch ended.*",  # ours continue where they stopped
        ".*treespec.*deprecated.*",
        ".*weights_only.*",
        ".*`tensorboardX` has been removed.*",
        ".*find_unused_parameters=True was specified.*",  # `fix_order_of_sums` of training/devices.py says why
        ".*sync_dist=True.*",  # what is logged at the end of an epoch is the same in every process
        ".*called before the ``update`` method.*",  # a process without a sentence of a small test set
    ):
        warnings.filterwarnings("ignore", message)
