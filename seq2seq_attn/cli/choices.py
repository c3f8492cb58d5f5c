"""The groups of options, which are folders of `conf/`, and what each of their choices is."""

from __future__ import annotations

import shutil
import textwrap
from collections.abc import Sequence
from difflib import get_close_matches
from itertools import pairwise
from pathlib import Path

from seq2seq_attn.errors import UserError
from seq2seq_attn.paths import conf_directory, given_path

FLAGS = ("--config-dir", "-cd")
WIDEST = 120


def config_dir(words: Sequence[str]) -> str | None:
    """Return the folder that a command line gives by `--config-dir`; None: it gives none."""
    given = [following for word, following in pairwise(words) if word in FLAGS]
    given += [word.partition("=")[2] for word in words if word.startswith("--config-dir=")]
    return given[-1] if given else None


def purpose(file: Path) -> str:
    """Return the comment that begins a YAML file and says what the choice is; Hydra's own line may precede it.

    A file of the user's may have none: empty.
    """
    lines = file.read_text(encoding="utf-8", errors="replace").splitlines()
    first = next((line for line in lines if not line.startswith("# @package")), "")
    return first.removeprefix("# ") if first.startswith("# ") else ""


def groups(*own: Path) -> list[str]:
    """Return the folders of choices, also in folders of the user's, except those that configure Hydra itself."""
    folders = {
        file.parent.relative_to(conf).as_posix() for conf in (conf_directory(), *own) for file in conf.rglob("*.yaml")
    }
    return sorted(folder for folder in folders if folder.partition("/")[0] not in (".", "hydra"))


def choices(group: str, *own: Path) -> dict[str, Path]:
    """Return the file of each choice of a group, also in folders of the user's, by name."""
    files = [file for conf in (*own, conf_directory()) for file in (conf / group).glob("*.yaml")]
    return {file.stem: file for file in sorted(files, key=lambda file: file.stem)}


def print_choices(group: str, folder: str | None) -> None:
    """Print what each choice of a group is, and where the files are.

    Args:
        folder: of the user's YAML files, as `--config-dir` takes it; None: there is none.

    Raises:
        UserError: if there is no such group, or no such folder.
    """
    own = [] if folder is None else [given_path(folder, "--config-dir")]
    if not all(path.is_dir() for path in own):
        raise UserError(f"--config-dir={folder} is no folder; give one with YAML files")
    name, known = group.rstrip("=/"), groups(*own)
    if name not in known:
        close = get_close_matches(name, known, n=1)
        guess = f"did you mean '{close[0]}'?" if close else f"choose from: {', '.join(known)}"
        raise UserError(f"There is no group of options '{name}'; {guess}")
    files = choices(name, *own)
    width, indent = min(shutil.get_terminal_size().columns, WIDEST), 4 + max(map(len, files))
    wrapped = textwrap.TextWrapper(width, subsequent_indent=" " * indent, break_on_hyphens=False)
    for choice, file in files.items():
        wrapped.initial_indent = f"  {choice}".ljust(indent)
        print(wrapped.fill(purpose(file)) or wrapped.initial_indent)
    places = " or ".join(map(str, sorted({file.parent for file in files.values()})))
    print(f"\nThe file of each is in {places}; a value in it is an option of the choice.")
