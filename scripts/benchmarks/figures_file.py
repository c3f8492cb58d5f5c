"""Shared code of the scripts that make a page of a benchmark's figures: the argument, reading, escaping, commits."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from seq2seq_attn.errors import UserError, reports_user_errors
from seq2seq_attn.markdown import code, literal

WAY_OUT = "use the .json file that the benchmark wrote next to its page"


@reports_user_errors
def draw_given(description: str | None, key: str, draw: Callable[[Path], Path]) -> None:
    """Draw the FIGURES.json given on the command line, which must have this key."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("figures", type=Path, metavar="FIGURES.json", help="the figures that the benchmark wrote")
    file = parser.parse_args().figures
    read_figures(file, key)
    print(f"wrote {draw(file)}")


def read_figures(file: Path, key: str) -> dict[str, Any]:
    """Return the figures that a benchmark wrote.

    Raises:
        UserError: if it is not a JSON file with this key.
    """
    try:
        results = json.loads(file.read_bytes())
    except OSError as error:
        raise UserError(f"{file}: {error.strerror}; {WAY_OUT}") from error
    except ValueError as error:
        raise UserError(f"{file} is not a JSON file ({error}); {WAY_OUT}") from error
    if not isinstance(results, dict) or key not in results:
        name = Path(sys.argv[0]).name
        raise UserError(f"{file} has no '{key}', so it is from another benchmark than {name} draws; {WAY_OUT}")
    return results


def shown(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values for a page's format string: strings escaped for Markdown, others unchanged."""
    return {key: literal(value) if isinstance(value, str) else value for key, value in values.items()}


def commit_text(commits: Sequence[str | None]) -> str:
    """Return the commits of figures, None where it is not recorded; one of changed files keeps the word for it."""
    known = sorted({commit for commit in commits if commit})
    if not known:
        return "commit not recorded"
    text = f"commit{'s' * (len(known) > 1)} {', '.join(code(commit[:8] + commit[40:]) for commit in known)}"
    return text if all(commits) else f"{text}, of some figures not recorded"
