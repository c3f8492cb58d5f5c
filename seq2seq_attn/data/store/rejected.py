"""Lines of a corpus that are rejected: the first of them in a file, and how many are too many."""

from __future__ import annotations

import logging
from pathlib import Path

from seq2seq_attn.errors import UserError
from seq2seq_attn.files import replacing
from seq2seq_attn.text import printable

log = logging.getLogger(__name__)
MOST_REJECTED_LINES = 1_000  # of rejected_SPLIT.tsv


def reject(folder: Path, split: str, rejected: list[tuple[str, int, str]], counts: dict[str, int], most: float) -> None:
    """Write the first rejected lines to a file, or drop their count if there are none.

    Raises:
        UserError: if more than the share `most` of the lines is rejected.
    """
    if not rejected:
        del counts["lines rejected"]
        return
    list_file = folder / f"rejected_{split}.tsv"
    with replacing(list_file) as stream:
        for file, number, reason in rejected:
            stream.write(f"{printable(file)}\t{number}\t{reason}\n".encode())
    check_rejected(folder, split, counts, most)


def check_rejected(folder: Path, split: str, counts: dict[str, int], most: float) -> None:
    """Warn of rejected lines, which a file lists.

    Raises:
        UserError: if they are more than the share `most` of all lines.
    """
    list_file = folder / f"rejected_{split}.tsv"
    bad, lines = counts["lines rejected"], counts["lines rejected"] + counts["pairs read"]
    listed = f"{f'the first {MOST_REJECTED_LINES:,} ' if bad > MOST_REJECTED_LINES else ''}listed in {list_file}"
    first, example = "", ""
    try:
        file, number, reason = list_file.read_text("utf-8").partition("\n")[0].split("\t", 2)
    except (OSError, ValueError):
        listed = f"the list of them, {list_file}, is gone"
    else:
        where = f"{file}, line {number}: {reason}"
        first, example = f"{where}; ", f", such as {where}"
    if bad > most * lines:
        raise UserError(
            f"{first}{bad:,} of {lines:,} lines of {split} are rejected, more than data.max_rejected={most:g} "
            f"({listed}): fix or remove them"
        )
    log.warning(f"{bad:,} lines of {split} are rejected{example} ({listed})")
