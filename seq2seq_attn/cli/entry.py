"""What every command does around its task: find the config, run Hydra, print one sentence for a user error."""

import functools
import gc
import json
import os
import select
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from difflib import get_close_matches
from pathlib import Path
from typing import Any, NoReturn

import hydra
from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig

from seq2seq_attn import __version__
from seq2seq_attn.cli.choices import config_dir as config_dir_of
from seq2seq_attn.cli.completion import query_flags
from seq2seq_attn.cli.config_errors import sentence_of_composition
from seq2seq_attn.distributed.rank_overrides import is_override, overrides_of_rank
from seq2seq_attn.distributed.run_lock import UNTIL_EXIT
from seq2seq_attn.errors import EXIT_CODE, INTERRUPTED, UserError, causes, command, sentence_of
from seq2seq_attn.options import in_sweep
from seq2seq_attn.paths import check_file_names, conf_directory, own_folders
from seq2seq_attn.process import (
    drop_unwritten,
    find_own_plugins,
    import_from_current_folder,
    keep_freed_memory,
    leave_on_signals,
    let_idle_threads_sleep,
    open_closed_streams,
)
from seq2seq_attn.text import printable

PIPE_CLOSED = 141
FLAGS = (  # of Hydra
    "--help", "--hydra-help", "--version", "--cfg", "--resolve", "--package", "--run", "--multirun",
    "--shell-completion", "--config-path", "--config-name", "--config-dir", "--experimental-rerun", "--info",
)  # fmt: skip
FOLDERS = ("hydra.run.dir", "hydra.sweep.dir", "--config-dir")


def main(
    task: Callable[[DictConfig], None],
    config_name: str,
    config_dir: Path | str | None = None,
    *,
    implied: Callable[[Sequence[str]], list[str]] | None = None,
) -> None:
    """Run `task` on the config of the command line; a user error exits with 2, a bug has its traceback.

    Args:
        implied: returns the overrides that those of the command line imply.
    """
    open_closed_streams()
    import_from_current_folder()
    find_own_plugins()
    os.environ["HYDRA_FULL_ERROR"] = "1"  # Hydra then raises what it would have printed
    keep_freed_memory()
    let_idle_threads_sleep()
    leave_on_signals()
    directory = Path(config_dir or conf_directory()).resolve()
    composed = False
    flags: list[str] = []
    overrides: list[str] = []

    @functools.wraps(task)
    def job(config: DictConfig) -> None:
        nonlocal composed
        composed = True
        run_job(task, config)

    try:
        words = [from_home(word) for word in sys.argv[1:]]
        if "-sc" in words or "--shell-completion" in words:
            completion_flags = query_flags()
            if completion_flags is None:
                return
            words = [*completion_flags, *words]
        overrides = [word for word in words if is_override(word)]
        flags = [word for word in words if not is_override(word)]
        if "--version" in flags:
            print(f"seq2seq-attn {__version__}")
            return
        check_flags(flags)
        if "--help" in flags or "-h" in flags:
            overrides.append(f"hydra.help.app_name={json.dumps(command())}")
        overrides += implied(overrides) if implied else []
        # Lightning appends overrides when it starts other processes, and Hydra reads no flag after them.
        sys.argv[1:] = [*flags, *overrides, *overrides_of_rank(overrides)]
        hydra.main(config_path=str(directory), config_name=config_name, version_base="1.3")(job)()
        sys.stdout.flush()
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
    except Exception as error:
        leave_if_pipe_is_closed(error)
        sentence = sentence_of(error)
        if not composed:
            sentence = sentence_of_composition(error, directory, config_name, overrides, config_dir_of(flags))
        if sentence is None:
            raise
        refuse(sentence)
    finally:
        UNTIL_EXIT.close()


def check_flags(flags: Sequence[str]) -> None:
    """Refuse a flag that Hydra does not have; it would print all of them, under the name of a file."""
    for word in flags:
        name = word.partition("=")[0]
        if name.startswith("--") and not any(known.startswith(name) for known in FLAGS):
            close = get_close_matches(name, FLAGS, n=1)
            guess = f"did you mean '{close[0]}'?" if close else f"an option is written {name.lstrip('-')}=VALUE"
            raise UserError(f"There is no flag '{name}'; {guess}")


def from_home(word: str) -> str:
    """Expand `hydra.run.dir=~/run`, which a shell does not, and of which Hydra would make a folder named `~`."""
    key, _, value = word.partition("=")
    return f"{key}={os.path.expanduser(value)}" if value and key in FOLDERS else word


def run_job(task: Callable[[DictConfig], None], config: DictConfig) -> None:
    """Run one job. A single one exits at once, or Hydra would add a line; in a sweep it raises and others continue."""
    try:
        check_file_names(own_folders(HydraConfig.get().runtime.config_sources))
        task(config)
    except Exception as error:
        leave_if_pipe_is_closed(error)
        sentence = sentence_of(error)
        if sentence is None:
            raise
        if in_sweep():
            job = Path(HydraConfig.get().runtime.output_dir).name
            print(printable(f"job {job}: {sentence}"), file=sys.stderr)
            raise
        refuse(sentence)


def refuse(sentence: str) -> NoReturn:
    print(printable(sentence), file=sys.stderr)
    drop_unwritten()
    sys.exit(EXIT_CODE)


def leave_if_pipe_is_closed(error: Exception) -> None:
    """Exit without a message when the reader of a pipe has closed it, as `... | head` does."""
    if not any(isinstance(cause, BrokenPipeError) for cause in causes(error)):
        return
    poll = select.poll()
    poll.register(sys.stdout, 0)
    if any(event & (select.POLLERR | select.POLLHUP) for _, event in poll.poll(0)):
        # the interpreter flushes once more on its way out, which must not fail again
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(PIPE_CLOSED)


@contextmanager
def importing() -> Iterator[None]:
    """Surround a task's imports: no garbage is collected in them, and what they make is never looked at again.

    torch and Lightning make 400,000 objects that stay until the end: a second of the six that imports take, and a third
    of a second of every later collection. A second job of the process, whose imports are done, is left alone.
    """
    if gc.get_freeze_count() or not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        with metrics_without_plots():
            yield
        gc.freeze()
    finally:
        gc.enable()


@contextmanager
def metrics_without_plots() -> Iterator[None]:
    """Let torchmetrics find no matplotlib, which the plots of its metrics alone need: 0.35 s and 30 MB of a start.

    The method is private, as of lightning_utilities 0.15.3; where it is absent, matplotlib is imported.
    """
    from lightning_utilities.core import imports

    requirement: Any = imports.RequirementCache
    check = getattr(requirement, "_check_available", None)
    if check is None:
        yield
        return

    def check_others(asked: Any) -> None:
        if asked.requirement == "matplotlib":
            asked.available, asked.message = False, "seq2seq-attn draws without torchmetrics"
        else:
            check(asked)

    requirement._check_available = check_others
    try:
        yield
    finally:
        requirement._check_available = check
