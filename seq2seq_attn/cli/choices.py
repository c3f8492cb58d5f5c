"""The groups of options, which are folders of `conf/`, and what each of their choices is."""

from __future__ import annotations

import shutil
import textwrap
from difflib import get_close_matches
from pathlib import Path

from seq2seq_attn.errors import UserError
from seq2seq_attn.paths import conf_directory

WIDEST = 120


def purpose(file: Path) -> str:
    """Return the comment that begins a YAML file and says what the choice is; Hydra's own line may precede it."""
    lines = file.read_text(encoding="utf-8").splitlines()
    return next(line for line in lines if not line.startswith("# @package")).removeprefix("# ")


def groups() -> list[str]:
    """Return the folders of choices, except those that configure Hydra itself."""
    conf = conf_directory()
    folders = {file.parent.relative_to(conf).as_posix() for file in conf.rglob("*.yaml")}
    return sorted(folder for folder in folders if folder.partition("/")[0] not in (".", "hydra"))


def choices(group: str) -> dict[str, Path]:
    """Return the file of each choice of a group, by name."""
    return {file.stem: file for file in sorted((conf_directory() / group).glob("*.yaml"))}


def print_choices(group: str) -> None:
    """Print what each choice of a group is, and where the files are.

    Raises:
        UserError: if there is no such group.
    """
    name, known = group.rstrip("=/"), groups()
    if name not in known:
        close = get_close_matches(name, known, n=1)
        guess = f"did you mean '{close[0]}'?" if close else f"choose from: {', '.join(known)}"
        raise UserError(f"There is no group of options '{name}'; {guess}")
    files = choices(name)
    width, indent = min(shutil.get_terminal_size().columns, WIDEST), 4 + max(map(len, files))
    wrapped = textwrap.TextWrapper(width, subsequent_indent=" " * indent, break_on_hyphens=False)
    for choice, file in files.items():
        wrapped.initial_indent = f"  {choice}".ljust(indent)
        print(wrapped.fill(purpose(file)))
    print(f"\nThe file of each is in {conf_directory() / name}; a value in it is an option of the choice.")
