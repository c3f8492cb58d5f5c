"""What the scripts share that draw what a benchmark measured: their argument, and how they show texts."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from seq2seq_attn.errors import UserError, reports_user_errors
from seq2seq_attn.markdown import literal

WAY_OUT = "give the .json that the benchmark wrote beside its page"


@reports_user_errors
def draw_given(description: str | None, key: str, draw: Callable[[Path], Path]) -> None:
    """Draw FIGURES.json of the command line, which has a `key`."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("figures", type=Path, metavar="FIGURES.json", help="what the benchmark wrote")
    file = parser.parse_args().figures
    read_figures(file, key)
    print(f"wrote {draw(file)}")


def read_figures(file: Path, key: str) -> dict[str, Any]:
    """What a benchmark wrote.

    Raises:
        UserError: for what is no such file, with a `key`.
    """
    try:
        results = json.loads(file.read_bytes())
    except OSError as error:
        raise UserError(f"{file}: {error.strerror}; {WAY_OUT}") from error
    except ValueError as error:
        raise UserError(f"{file} is no JSON ({error}); {WAY_OUT}") from error
    if not isinstance(results, dict) or key not in results:
        name = Path(sys.argv[0]).name
        raise UserError(f"{file} holds no '{key}': it is of another benchmark than {name} draws; {WAY_OUT}")
    return results


def shown(values: Mapping[str, Any]) -> dict[str, Any]:
    """Texts as literals of Markdown; numbers as they are, for a format of the page."""
    return {key: literal(value) if isinstance(value, str) else value for key, value in values.items()}
