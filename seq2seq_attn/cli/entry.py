"""What every command does around its task: find the config, run Hydra, answer a mistake with one sentence."""

import functools
import os
import select
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

import hydra
from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from omegaconf import DictConfig

from seq2seq_attn.cli.config_errors import parse, sentence_of_composition
from seq2seq_attn.distributed.rank_overrides import overrides_of_rank
from seq2seq_attn.errors import EXIT_CODE, causes, sentence_of
from seq2seq_attn.paths import conf_directory
from seq2seq_attn.process import drop_unwritten, keep_freed_memory, leave_on_signals, open_closed_streams
from seq2seq_attn.text import printable

INTERRUPTED, PIPE_CLOSED = 130, 141


def main(task: Callable[[DictConfig], None], config_name: str, config_dir: Path | str | None = None) -> None:
    """Runs `task` on the config of the command line; a user's mistake exits 2, a bug has its traceback."""
    open_closed_streams()
    os.environ["HYDRA_FULL_ERROR"] = "1"  # Hydra then raises what it would have printed
    keep_freed_memory()
    leave_on_signals()
    directory = Path(config_dir or conf_directory()).resolve()
    composed = False
    overrides: list[str] = []

    @functools.wraps(task)
    def job(config: DictConfig) -> None:
        nonlocal composed
        composed = True
        run_job(task, config)

    try:
        command_line = parse(sys.argv[1:])
        config_name, typed = command_line.config_name or config_name, command_line.overrides
        overrides = [from_home(override) for override in typed]
        # Lightning adds overrides when it starts other processes, so no flag may stand behind those typed.
        flags = [argument for argument in sys.argv[1:] if argument not in typed]
        sys.argv[1:] = [*flags, *overrides, *overrides_of_rank(os.environ, sys.argv[1:])]
        hydra.main(config_path=str(directory), config_name=config_name, version_base="1.3")(job)()
        sys.stdout.flush()
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
    except Exception as error:
        leave_if_pipe_is_closed(error)
        sentence = sentence_of(error) if composed else sentence_of_composition(error, directory, config_name, overrides)
        if sentence is None:
            raise
        refuse(sentence)


def from_home(override: str) -> str:
    """`hydra.run.dir=~/run` as a shell would have it, were the `~` in front: Hydra makes a folder of that name."""
    key, _, value = override.partition("=")
    return f"{key}={os.path.expanduser(value)}" if key in ("hydra.run.dir", "hydra.sweep.dir") else override


def run_job(task: Callable[[DictConfig], None], config: DictConfig) -> None:
    """One job: alone it leaves at once, or Hydra would add a line; in a sweep it raises and others go on."""
    try:
        task(config)
    except Exception as error:
        leave_if_pipe_is_closed(error)
        sentence = sentence_of(error)
        if sentence is None:
            raise
        if HydraConfig.get().mode == RunMode.MULTIRUN:
            job = Path(HydraConfig.get().runtime.output_dir).name
            print(printable(f"job {job}: {sentence}"), file=sys.stderr)
            raise
        refuse(sentence)


def refuse(sentence: str) -> NoReturn:
    print(printable(sentence), file=sys.stderr)
    drop_unwritten()
    sys.exit(EXIT_CODE)


def leave_if_pipe_is_closed(error: Exception) -> None:
    """`... | head` closes the pipe when it has enough: no mistake, and no news."""
    if not any(isinstance(cause, BrokenPipeError) for cause in causes(error)):
        return
    poll = select.poll()
    poll.register(sys.stdout, 0)
    if any(event & (select.POLLERR | select.POLLHUP) for _, event in poll.poll(0)):
        # the interpreter flushes once more on its way out, which must not fail again
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(PIPE_CLOSED)
