"""Columns of a file of pairs: which two hold the source and the target, by number, name, language or position."""

from __future__ import annotations

import re
from collections.abc import Container, Sequence
from pathlib import Path
from typing import Annotated, NamedTuple

from seq2seq_attn.errors import UserError

# A number from 1, or a name; None: the column that the language or the header names.
Column = Annotated[int | str | None, "[1, 1000]"]
SIDES = ("source", "target")
SIDE_NAMES = (("source", "src", "input"), ("target", "tgt", "trg", "output"))  # of columns, whatever the language
TEXT_NAMES = ("text", "sentence", "content")  # of the column of a text without translations
LANGUAGE_NAMES = {  # by ISO 639-1; the codes of three letters are those of ISO 639-3
    "ar": ("arabic", "ara"), "bn": ("bengali", "ben"), "cs": ("czech", "ces"), "da": ("danish", "dan"),
    "de": ("german", "deu"), "el": ("greek", "ell"), "en": ("english", "eng"), "es": ("spanish", "spa"),
    "fa": ("persian", "fas"), "fi": ("finnish", "fin"), "fr": ("french", "fra"), "he": ("hebrew", "heb"),
    "hi": ("hindi", "hin"), "hu": ("hungarian", "hun"), "id": ("indonesian", "ind"), "it": ("italian", "ita"),
    "ja": ("japanese", "jpn"), "km": ("khmer", "khm"), "ko": ("korean", "kor"), "lo": ("lao",),
    "my": ("burmese", "mya"), "nl": ("dutch", "nld"), "no": ("norwegian", "nor"), "pl": ("polish", "pol"),
    "pt": ("portuguese", "por"), "ro": ("romanian", "ron"), "ru": ("russian", "rus"), "sv": ("swedish", "swe"),
    "sw": ("swahili", "swa"), "th": ("thai", "tha"), "tr": ("turkish", "tur"), "uk": ("ukrainian", "ukr"),
    "vi": ("vietnamese", "vie"), "zh": ("chinese", "zho"),
}  # fmt: skip
LANGUAGES = {name: code for code, names in LANGUAGE_NAMES.items() for name in (code, *names)}
REGION = re.compile(r"[-_](?:[a-z]{4}|(?:[a-z]{4}[-_])?(?:[a-z]{2}|[0-9]{3}))$")  # of fr_FR, zh-Hant-TW, eng_Latn


class Choice(NamedTuple):
    """What decides the columns of the source and the target; see `pair_file`."""

    columns: tuple[Column, Column]
    languages: tuple[str, str]
    positions: tuple[int, int]
    one_side: bool


def choose_columns(path: Path, names: Sequence[str], choice: Choice, has_names: bool = True) -> tuple[int, int]:
    """Return the positions of the source and the target column, from 0; those of the only text are the same.

    Raises:
        UserError: if a column is not there, is named by another language, or is both sides of pairs.
    """
    chosen = choose([name.strip() for name in names], choice)
    listed = readable(", ".join(names)) if has_names else f"1 to {len(names)}"
    for column, at, side in zip(choice.columns, chosen, SIDES, strict=True):
        if 0 <= at < len(names):
            continue
        if column is not None:
            raise UserError(
                f"{path} has no column {column} (columns: {listed}); set data.{side}_column to the name or number of "
                "one of them"
            )
        if len(names) > 1:  # a table without a header, after one with it
            raise UserError(
                f"{path} has {len(names)} columns and no header, and a file before it has the {side} in column "
                f"{at + 1}; set data.{side}_column, or add a header"
            )
        many = f"one column ({listed})" if names else "no column"
        raise UserError(f"{path} has {many}, and a pair needs two")
    if chosen[0] == chosen[1] and not choice.one_side:
        name = shown_name(names[chosen[0]]) if has_names else str(chosen[0] + 1)
        raise UserError(
            f"{path}: source and target are both column {name} (columns: {listed}); set data.source_column and "
            "data.target_column to two of them"
        )
    if has_names and not choice.one_side and named_columns(names, choice) is None:
        check_languages(path, names, chosen, choice)
    return chosen


def check_languages(path: Path, names: Sequence[str], chosen: tuple[int, int], choice: Choice) -> None:
    """Refuse a column that has been taken by its position, and that is named by another language."""
    for column, at, language in zip(choice.columns, chosen, choice.languages, strict=True):
        if column is None and language_of(names[at]) not in (None, language_of(language)):
            source, target = choice.languages
            raise UserError(
                f"{path} has the columns {readable(', '.join(names))}, and data.source_language={source} "
                f"data.target_language={target}; set these to the languages of two of them, or data.source_column and "
                "data.target_column to their names"
            )


def language_of(name: str) -> str | None:
    """Return the code of the language, as in `LANGUAGE_NAMES`, that names a column, with or without a region."""
    plain = name.strip().casefold().removeprefix("translation.")
    return LANGUAGES.get(REGION.sub("", plain))


def choose(names: Sequence[str], choice: Choice, texts: Container[int] | None = None) -> tuple[int, int]:
    """Return the positions of the source and the target, from 0, which may be beyond the last.

    Each is the chosen column, else the one that is named by its language or side, else that of `choice.positions`.

    Args:
        texts: positions of the columns that may be the only text; None: all.
    """
    source, target = named_columns(names, choice, texts) or choice.positions
    return position_of(choice.columns[0], names, source), position_of(choice.columns[1], names, target)


def position_of(column: Column, names: Sequence[str], usual: int) -> int:
    """Return the position of a column, from 0: `usual` for None, and `len(names)` for a name that is not there."""
    if column is None:
        return usual
    return column - 1 if isinstance(column, int) else [*names, column].index(column)


def named_columns(names: Sequence[str], choice: Choice, texts: Container[int] | None = None) -> tuple[int, int] | None:
    """Return the positions of the only text, twice, or of a source and a target, by their names; None: of neither.

    Args:
        texts: see `choose`.
    """
    only = text_column(names) if choice.one_side else None
    if only is not None and (texts is None or only in texts):
        return only, only
    return guess_columns(names, choice.languages)


def guess_columns(names: Sequence[str], languages: tuple[str, str]) -> tuple[int, int] | None:
    """Return the positions of the names of a source and a target; None if one of the two is missing."""
    plain = [name.strip().casefold() for name in names]
    positions = []
    for language, side in zip(languages, SIDE_NAMES, strict=True):
        code = language.casefold()
        words = [code, re.split(r"[-_]", code)[0]]
        words += [name for word in words for name in LANGUAGE_NAMES.get(word, ())]
        same = [name for name in plain if language_of(name) is not None and language_of(name) == language_of(language)]
        candidates = [*words, *(f"translation.{word}" for word in words), *same, *side]
        positions.append(next((plain.index(word) for word in candidates if word in plain), None))
    source, target = positions
    return None if source is None or target is None or source == target else (source, target)


def text_column(names: Sequence[str]) -> int | None:
    """Return the position of the only text of a file without pairs: the column named so, or the only one; or None."""
    plain = [name.strip().casefold() for name in names]
    named = next((plain.index(name) for name in TEXT_NAMES if name in plain), None)
    return 0 if named is None and len(names) == 1 else named


def is_header(row: Sequence[str], choice: Choice) -> bool:
    """Return whether the first row of a table names its columns."""
    if guess_columns(row, choice.languages) is not None or any(isinstance(column, str) for column in choice.columns):
        return True
    if len({language_of(name) for name in row} - {None}) > 1:
        return True
    return choice.one_side and any(name.strip().casefold() in TEXT_NAMES for name in row)


def shown_name(name: str) -> str:
    return readable(name.strip(), 30)


def readable(text: str, most: int = 100) -> str:
    """Return the first `most` characters of `text`, with unprintable ones replaced, for a one-line message."""
    shown = "".join(letter if letter.isprintable() else "�" for letter in text[:most])
    return shown + "…" * (len(text) > most)
