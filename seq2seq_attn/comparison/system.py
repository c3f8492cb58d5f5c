"""Translations of a test set as train.py and evaluate.py write them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from seq2seq_attn.errors import UserError
from seq2seq_attn.text import printable


class System(NamedTuple):
    """Translations of a test set, line-aligned.

    Attributes:
        references: all versions of each line.
        signature: of the BLEU with which the folder was evaluated, if it was.
    """

    name: str
    sources: list[str]
    hypotheses: list[str]
    references: list[list[str]]
    signature: str | None = None


def read_system(path: Path, split: str) -> System:
    """Read the translations of a split from a folder or a file.

    Raises:
        UserError: if a file is missing, or its lines are not what train.py and evaluate.py write.
    """
    signature = signature_of(path, split) if path.is_dir() else None
    suffix = "" if split == "test" else f"_{split.removeprefix('test_')}"
    file = path / f"translations{suffix}.tsv" if path.is_dir() else path
    rows = [line.split("\t") for line in read_lines(file)]
    for number, row in enumerate(rows, 1):
        if len(row) != 3:
            raise UserError(
                f"{file}, line {number}: {len(row)} tab-separated columns instead of source, reference and "
                "translation; give a translations.tsv of train.py or evaluate.py"
            )
    sources, first, hypotheses = (list(column) for column in zip(*rows, strict=True))
    versions = file.with_suffix(".references")
    if not versions.is_file():
        return System(str(path), sources, hypotheses, [[reference] for reference in first], signature)
    # The first version is repeated in lines that have fewer; it counts once.
    references = [list(dict.fromkeys(line.split("\t"))) for line in read_lines(versions)]
    if [printable(options[0]) for options in references] != [printable(reference) for reference in first]:
        raise UserError(f"{versions} does not belong to {file}; give the folder that both were written to")
    return System(str(path), sources, hypotheses, references, signature)


def signature_of(folder: Path, split: str) -> str | None:
    """Return the signature of BLEU in what train.py or evaluate.py wrote beside the translations."""
    for name in ("evaluation.json", "results.json"):
        with suppress(OSError, ValueError, KeyError, TypeError, AttributeError):
            written = json.loads((folder / name).read_text(encoding="utf-8"))
            signature = (
                written["splits"][split]["signatures"]["bleu"]
                if "splits" in written
                else written[f"{split}/bleu_signature"]
            )
            return signature if isinstance(signature, str) else None
    return None


def read_lines(file: Path) -> list[str]:
    try:
        content = file.read_bytes().decode()
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or "not UTF-8"
        raise UserError(
            f"{file} cannot be read ({why}); give a folder of train.py or evaluate.py, or its translations.tsv"
        ) from error
    if not content:
        raise UserError(f"{file} is empty; give translations of a test set")
    return content.removesuffix("\n").split("\n")


def check_same_test_set(systems: Sequence[System]) -> None:
    """Refuse different test sets, naming the first line that differs."""
    first = systems[0]
    for other in systems[1:]:
        sizes = len(first.sources), len(other.sources)
        why = f"{sizes[0]} and {sizes[1]} lines" if sizes[0] != sizes[1] else None
        for what in ("sources", "references"):
            pairs = zip(getattr(first, what), getattr(other, what), strict=False)
            line = next((number for number, (a, b) in enumerate(pairs, 1) if a != b), None)
            if why is None and line is not None:
                why = f"other {what} in line {line}"
        if why:
            raise UserError(
                f"{first.name} and {other.name} have translated different test sets ({why}); compare systems on the "
                "same data and split"
            )
