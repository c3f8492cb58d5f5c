"""The folders of the YAML files and of the demo corpus, and paths that a user gives."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterable, Iterator
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any

from seq2seq_attn.errors import UserError


def conf_directory() -> Path:
    """Return `conf` inside the package (an installed wheel), else beside it (a checkout)."""
    package = Path(__file__).parent
    inside = package / "conf"
    return inside if inside.is_dir() else package.parent / "conf"


def demo_directory() -> Path:
    """Return the demo corpus inside the package (an installed wheel), else in `data` (a checkout)."""
    inside = Path(__file__).parent / "demo_corpus"
    return inside if inside.is_dir() else Path(__file__).parents[1] / "data" / "demo"


def own_folders(sources: Iterable[Any]) -> Iterator[Path | Traversable]:
    """Yield the folders of YAML files that the command line names, of those that Hydra searches."""
    for source in sources:
        if "command-line" in source.provider and source.schema in ("file", "pkg"):
            yield Path(source.path) if source.schema == "file" else files(source.path)


def check_file_names(folders: Iterable[Path | Traversable]) -> None:
    """Refuse folders of the user's in which a YAML file has the name of one in `conf`, which Hydra reads in its place.

    Raises:
        UserError: for such a file, unless both are the same.
    """
    conf = conf_directory()
    for folder in folders:
        for file in sorted(conf.rglob("*.yaml")):
            own = folder
            for part in file.relative_to(conf).parts:  # a package without __init__.py takes one at a time
                own = own.joinpath(part)
            if own.is_file() and own.read_bytes() != file.read_bytes():
                raise UserError(f"{own} is not read, since {file} has the same name and comes first; rename yours")


def is_named_by_time(folder: Any) -> bool:
    """Return whether the name of a folder of Hydra's, `hydra.run` or `hydra.sweep`, has the time of the start in it."""
    from omegaconf import OmegaConf  # not with the module: a layer alone needs no Hydra

    options: Any = OmegaConf.to_container(folder, resolve=False)
    return "${now:" in options["dir"]


def search_path(folder: Path) -> str:
    """Return the override that has Hydra read the YAML files of a folder too, after those of `conf`."""
    return f"hydra.searchpath=[{quoted(folder.resolve())}]"


def quoted(path: Path) -> str:
    """Return a path as the value of an override, in quotes: Hydra would parse its commas, brackets and accents."""
    return in_quotes(str(path))


def in_quotes(text: str) -> str:
    """Return a text in double quotes as Hydra reads them: a backslash means itself, except before a quotation mark."""
    return '"' + re.sub(r'(\\*)("|$)', lambda match: 2 * match[1] + ('\\"' if match[2] else ""), text) + '"'


def typed(value: str) -> str:
    """Return a value as it is typed after `option=`: in quotes where a shell or Hydra would read something else."""
    plain = re.fullmatch(r"[\w./:+-]*", value, re.ASCII)
    return value if plain else shlex.quote(in_quotes(value))


def given_path(path: Any, option: str) -> Path:
    """Return the file or folder of an option, with `~` expanded.

    Raises:
        UserError: if there is no such home folder.
    """
    try:
        return Path(str(path)).expanduser()
    except RuntimeError as error:
        raise UserError(f"{option}={path} names a home folder that is not there; write the path out") from error


def given_file(path: str, option: str) -> Path:
    """Return the file of an option, which must exist.

    Raises:
        UserError: if it does not.
    """
    file = given_path(path, option)
    if not os.path.exists(file):  # Path.exists raises for a name too long
        raise UserError(f"{option}={path} does not exist; give the path of a file")
    return file


def given_text(path: str, option: str) -> Path:
    """Return the file of an option, which must be one and have content.

    Raises:
        UserError: if it does not exist, is a folder, is empty or may not be read.
    """
    file = given_file(path, option)
    if file.is_dir():
        raise UserError(f"{option}={path} is a folder; give the path of a file")
    if file.is_file() and not file.stat().st_size:
        raise UserError(f"{option}={path} is empty; give another file")
    if not os.access(file, os.R_OK):
        raise UserError(f"{option}={path} may not be read; change its permissions, or give another file")
    return file


def display_path(path: Path) -> str:
    """Return the path relative to the working directory if it is inside."""
    try:
        return str(path.resolve().relative_to(Path.cwd()))
    except ValueError:
        return str(path)
