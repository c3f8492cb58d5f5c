"""What the folder of an evaluation holds before it: results of the same model are replaced, and nothing else is."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from seq2seq_attn.errors import UserError
from seq2seq_attn.files import sha256
from seq2seq_attn.training.results import is_file_name, translation_files

EVALUATION = "evaluation.json"


def model_record(checkpoints: Sequence[Path]) -> dict[str, Any]:
    """Return the checkpoint and its SHA-256, which are lists for an ensemble."""
    files, digests = [str(file) for file in checkpoints], [sha256(file) for file in checkpoints]
    alone = len(files) == 1
    return {"checkpoint": files[0] if alone else files, "sha256": digests[0] if alone else digests}


def earlier_translations(run_dir: Path, checkpoints: Sequence[Path]) -> list[Path]:
    """Return the files of translations of an evaluation of the same model in this folder.

    Raises:
        UserError: if the evaluation there is of another model.
    """
    file = run_dir / EVALUATION
    record = earlier_record(file, checkpoints, "evaluation")
    splits = record.get("splits") if record else {}
    if not isinstance(splits, dict) or not all(map(is_file_name, splits)):
        raise damaged(file)
    return [translated for name in splits for translated in translation_files(run_dir, name)]


def earlier_record(file: Path, checkpoints: Sequence[Path], results: str) -> dict[str, Any]:
    """Return the record of results of the same model; nothing if there is none.

    Args:
        results: what it records, in a word.

    Raises:
        UserError: if it is of another model, or not known of which.
    """
    if not os.path.lexists(file):
        return {}
    try:
        record: dict[str, Any] = json.loads(file.read_text("utf-8"))
        known, digests = (
            [one] if isinstance(one, str) else sorted(one) for one in (record["checkpoint"], record["sha256"])
        )
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise damaged(file) from error
    if digests != sorted(map(sha256, checkpoints)):
        named = ", ".join(map(str, known))
        raise UserError(f"{file.parent} holds the {results} of {named}; give another hydra.run.dir")
    return record


def damaged(file: Path) -> UserError:
    return UserError(f"{file} is damaged; delete it, or give another hydra.run.dir")


def check_unrecorded(files: Iterable[Path], record: Path) -> None:
    """Refuse to replace files of the user's own that have the names of results.

    Args:
        files: to be written, but for those that the record is of.

    Raises:
        UserError: naming the first of them that is there.
    """
    own = next(filter(os.path.lexists, files), None)
    if own is not None:
        raise UserError(
            f"{own} was not written by an evaluation, since no {record.name} beside it names it, and this one would "
            "replace it; give another hydra.run.dir, or rename the file"
        )
