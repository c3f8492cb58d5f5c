"""Translations of a test set as train.py and evaluate.py write them."""

from __future__ import annotations

import re
from collections.abc import Sequence, Set
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from seq2seq_attn.errors import UserError
from seq2seq_attn.files import read_json, regular
from seq2seq_attn.text import printable


class System(NamedTuple):
    """Translations of a test set, line-aligned.

    Attributes:
        references: all versions of each line.
        signatures: of the metrics with which the folder was evaluated, by name.
        language: of the translations, if it is known.
    """

    name: str
    sources: list[str]
    hypotheses: list[str]
    references: list[list[str]]
    signatures: dict[str, str]
    language: str | None


def read_systems(paths: Sequence[Path], split: str) -> list[System]:
    """Read translations of one test set; the signatures of any folder tell how many references a sentence has in all.

    Raises:
        UserError: as `read_system`.
    """
    counts = {count for path in paths if path.is_dir() for count in counts_of(signatures_of(path, split))}
    return [read_system(path, split, counts) for path in paths]


def read_system(path: Path, split: str, counts: Set[str] = frozenset()) -> System:
    """Read the translations of a split from a folder or a file.

    Args:
        counts: how many references each sentence has, as `counts_of` says it of another system with the same test set;
            unused if the folder has signatures of its own.

    Raises:
        UserError: if a file is missing, or its lines are not what train.py and evaluate.py write.
    """
    known = (signatures_of(path, split), language_of(path)) if path.is_dir() else ({}, None)
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
        return System(str(path), sources, hypotheses, [[reference] for reference in first], *known)
    references, counts = [line.split("\t") for line in read_lines(versions)], counts_of(known[0]) or counts
    if not all(f"nrefs:{len(options)}" in counts for options in references):
        references = list(map(without_fillers, references))
    if [printable(options[0]) for options in references] != [printable(reference) for reference in first]:
        raise UserError(f"{versions} does not belong to {file}; give the folder that both were written to")
    return System(str(path), sources, hypotheses, references, *known)


def counts_of(signatures: dict[str, str]) -> set[str]:
    """Return how many references each sentence had, as signatures say it."""
    return {part for signature in signatures.values() for part in signature.split("|") if part.startswith("nrefs:")}


def without_fillers(versions: list[str]) -> list[str]:
    """Return the versions of a sentence without the copies of the first that fill a line which has fewer."""
    last = max((place for place, version in enumerate(versions) if version != versions[0]), default=0)
    return versions[: last + 1]


def signatures_of(folder: Path, split: str) -> dict[str, str]:
    """Return the signatures of the metrics in what train.py or evaluate.py wrote beside the translations, by metric.

    Args:
        split: with or without `test_`, which the names of the files leave out.
    """
    evaluation, results = read_json(folder / "evaluation.json"), read_json(folder / "results.json")
    for name in (split, f"test_{split}"):
        found: Any = None
        with suppress(KeyError, TypeError):  # it is damaged, or of other splits
            found = evaluation["splits"][name]["signatures"]
        if not isinstance(found, dict):
            pattern = re.compile(rf"{re.escape(name)}/(\w+)_signature")
            found = {match[1]: text for key, text in results.items() if (match := pattern.fullmatch(key))}
        if found:
            return {metric: text for metric, text in found.items() if isinstance(text, str)}
    return {}


def language_of(folder: Path) -> str | None:
    """Return the language of the translations, where the folder says it."""
    languages = read_json(folder / "evaluation.json").get("languages")
    if languages is None and (folder / "config.yaml").is_file():
        with suppress(OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError, yaml.YAMLError):
            languages = [yaml.safe_load((folder / "config.yaml").read_bytes())["data"].get("target_language")]
    return languages[-1] if isinstance(languages, list) and languages and isinstance(languages[-1], str) else None


def read_lines(file: Path) -> list[str]:
    try:
        content = regular(file).read_bytes().decode()
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or ("not UTF-8" if isinstance(error, ValueError) else "no regular file")
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
