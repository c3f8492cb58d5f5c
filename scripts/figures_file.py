"""The argument of the scripts that draw what a benchmark measured."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from seq2seq_attn.tensors.markdown import literal


def figures_file(description: str | None, key: str) -> Path:
    """FIGURES.json of the command line; what is no such file, with a `key`, is answered in a sentence."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("figures", type=Path, metavar="FIGURES.json", help="what the benchmark wrote")
    file = parser.parse_args().figures
    try:
        results = json.loads(file.read_bytes())
    except OSError as error:
        sys.exit(f"{file}: {error.strerror}; give the .json that the benchmark wrote beside its page")
    except ValueError as error:
        sys.exit(f"{file} is no JSON ({error}); give the .json that the benchmark wrote beside its page")
    if not isinstance(results, dict) or key not in results:
        sys.exit(f"{file} holds no '{key}': it is of another benchmark than {Path(sys.argv[0]).name} draws")
    return file


def shown(values: Mapping[str, Any]) -> dict[str, Any]:
    """Texts as literals of Markdown; numbers as they are, for a format of the page."""
    return {key: literal(value) if isinstance(value, str) else value for key, value in values.items()}
