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
SIDE_NAMES = (("source", "target"), ("src", "tgt"), ("src", "trg"), ("input", "output"))  # whatever the language
TEXT_NAMES = ("text", "sentence", "content")  # of the column of a text without translations
LANGUAGE_NAMES = {  # of columns, by ISO 639-1; the codes of three letters are those of ISO 639-2 and 639-3
    "af": "afrikaans afr", "ar": "arabic ara", "bg": "bulgarian bul", "bn": "bengali ben", "ca": "catalan cat",
    "cs": "czech ces cze", "da": "danish dan", "de": "german deu ger", "el": "greek ell gre", "en": "english eng",
    "es": "spanish spa", "et": "estonian est", "eu": "basque eus baq", "fa": "persian fas per pes", "fi": "finnish fin",
    "fr": "french fra fre", "ga": "irish gle", "gl": "galician glg", "he": "hebrew heb iw", "hi": "hindi hin",
    "hr": "croatian hrv", "hu": "hungarian hun", "id": "indonesian ind", "is": "icelandic isl ice", "it": "italian ita",
    "ja": "japanese jpn", "km": "khmer khm", "ko": "korean kor", "lo": "lao", "lt": "lithuanian lit",
    "lv": "latvian lav", "mk": "macedonian mkd mac", "my": "burmese mya bur", "nl": "dutch nld dut",
    "no": "norwegian nor nb nob nn nno", "pl": "polish pol", "pt": "portuguese por", "ro": "romanian ron rum",
    "ru": "russian rus", "sk": "slovak slk slo", "sl": "slovenian slv", "sq": "albanian sqi alb", "sr": "serbian srp",
    "sv": "swedish swe", "sw": "swahili swa swh", "ta": "tamil tam", "te": "telugu tel", "th": "thai tha",
    "tr": "turkish tur", "uk": "ukrainian ukr", "ur": "urdu urd", "vi": "vietnamese vie", "zh": "chinese zho chi cmn",
}  # fmt: skip
LANGUAGES = {name: code for code, names in LANGUAGE_NAMES.items() for name in (code, *names.split())}
AMBIGUOUS = ("id", "no")  # Indonesian and Norwegian, or the number of a row
SCRIPTS = "latn|cyrl|hans|hant|arab|deva|grek|hebr|beng|thai|jpan|kore|hang|taml|telu|mymr|khmr|laoo"
REGIONS = "[A-Z]{2}|[0-9]{3}|us|gb|uk|ca|au|br|pt|fr|be|ch|de|at|es|mx|cn|tw|hk|jp|kr"  # not every two letters: en_id
NAME = re.compile(
    rf"(?i:translation\.)?(?:(?P<code>[a-z]{{2,3}})[-_](?P<place>(?i:{SCRIPTS})(?:[-_](?:{REGIONS}))?|{REGIONS})|(?P<word>\w+))"
)


class Choice(NamedTuple):
    """What decides the columns of the source and the target; see `pair_file`."""

    columns: tuple[Column, Column]
    languages: tuple[str, str]
    positions: tuple[int, int]
    one_side: bool

    def option(self, side: str = "text") -> str:
        """Return the name of the option that chooses the column of a side, or of the only text."""
        return "data.text_column" if self.one_side else f"data.{side}_column"


def choose_columns(path: Path, names: Sequence[str], choice: Choice, has_names: bool = True) -> tuple[int, int]:
    """Return the positions of the source and the target column, from 0; those of the only text are the same.

    Raises:
        UserError: if a column is not there, is named by another language, or is both sides of pairs.
    """
    if has_names or choice.one_side:
        chosen = choose([name.strip() for name in names], choice)
    else:
        source, target = map(position_of, choice.columns, (names, names), choice.positions)
        chosen = source, target
    listed = readable(", ".join(names)) if has_names else f"1 to {len(names)}"
    for column, at, side in zip(choice.columns, chosen, SIDES, strict=True):
        if 0 <= at < len(names):
            continue
        if column is not None:
            raise UserError(
                f"{path} has no column {column} (columns: {listed}); set {choice.option(side)} to the name or number "
                "of one of them"
            )
        if len(names) > 1:  # a table without a header, after one with it
            raise UserError(
                f"{path} has {len(names)} columns and no header, and a file before it has the {side} in column "
                f"{at + 1}; set {choice.option(side)}, or add a header"
            )
        many = f"one column ({listed})" if names else "no column"
        raise UserError(f"{path} has {many}, and a pair needs two")
    if chosen[0] == chosen[1] and not choice.one_side:
        name = shown_name(names[chosen[0]]) if has_names else str(chosen[0] + 1)
        raise UserError(
            f"{path}: source and target are both column {name} (columns: {listed}); set data.source_column and "
            "data.target_column to two of them"
        )
    if has_names and not choice.one_side and None in choice.columns and named_columns(names, choice) is None:
        check_languages(path, names, chosen, choice)
    return chosen


def check_languages(path: Path, names: Sequence[str], chosen: tuple[int, int], choice: Choice) -> None:
    """Refuse columns by position if one is named by another language, or if there are more than two."""
    known = any(language_of(language) is not None for language in choice.languages)
    others = [
        names[at]
        for column, at, language in zip(choice.columns, chosen, choice.languages, strict=True)
        if column is None and known and language_of(names[at]) not in (None, language_of(language))
    ]
    if others or len(names) > 2:
        source, target = choice.languages
        raise UserError(
            f"{path} has the columns {readable(', '.join(names))}, and data.source_language={source} "
            f"data.target_language={target}; set these to the languages of two of them, or data.source_column and "
            "data.target_column to their names"
        )


class ColumnName(NamedTuple):
    """The name of a column, as that of a language.

    Attributes:
        form: "translation" for `translation.fr`, else "2" or "3" for a code of so many letters, "4" for a longer word.
        language: its code in `LANGUAGE_NAMES`, or the word if it is not there.
        place: script and region in small letters, as `hant_tw` of zh-Hant-TW.
    """

    form: str
    language: str
    place: str

    @classmethod
    def of(cls, name: str) -> ColumnName:
        match = NAME.fullmatch(name.strip())
        if match is None:
            return cls("4", name.strip().casefold(), "")
        word = (match["code"] or match["word"]).casefold()
        nested = match[0].casefold().startswith("translation.")
        place = (match["place"] or "").casefold().replace("-", "_")
        return cls("translation" if nested else str(min(4, len(word))), LANGUAGES.get(word, word), place)

    def fits(self, wanted: ColumnName) -> bool:
        """Return whether it is the wanted language, of the same place if both name one."""
        return self.language == wanted.language and (not self.place or not wanted.place or self.place == wanted.place)


def language_of(name: str) -> str | None:
    """Return the code of the language that names a column, as in `LANGUAGE_NAMES`; None for another or unclear name."""
    language = None if name.strip().casefold() in AMBIGUOUS else ColumnName.of(name).language
    return language if language in LANGUAGE_NAMES else None


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
    """Return the positions of the names of a source and a target; None if one of the two is missing or not clear.

    Names of one form come first, so that of `id`, `translation.en` and `translation.id` the last two are taken.
    """
    plain = [name.strip().casefold() for name in names]
    columns, wanted = [ColumnName.of(name) for name in names], [ColumnName.of(language) for language in languages]

    def find(language: ColumnName, candidates: Sequence[int]) -> int | None:
        fit = [at for at in candidates if columns[at].fits(language)]
        same = [at for at in fit if columns[at].place == language.place]
        return same[0] if same else fit[0] if len(fit) == 1 else None

    places = range(len(names))
    forms = [[at for at in places if columns[at].form == form] for form in ("translation", "2", "3", "4")]
    found = [tuple(find(language, candidates) for language in wanted) for candidates in forms]
    found += [tuple(plain.index(name) if name in plain else None for name in sides) for sides in SIDE_NAMES]
    clear = [at for at in places if plain[at] not in AMBIGUOUS]
    sides = zip(*SIDE_NAMES, strict=True)
    named = [next((plain.index(name) for name in side if name in plain), None) for side in sides]
    either = [find(language, clear) for language in wanted]
    found.append(tuple(side if at is None else at for at, side in zip(either, named, strict=True)))
    return next(((s, t) for s, t in found if s is not None and t is not None and s != t), None)


def text_column(names: Sequence[str]) -> int | None:
    """Return the position of the only text of a file without pairs: the column named so, or the only one; or None."""
    plain = [name.strip().casefold() for name in names]
    named = next((plain.index(name) for name in TEXT_NAMES if name in plain), None)
    return 0 if named is None and len(names) == 1 else named


def is_header(row: Sequence[str], choice: Choice, second: Sequence[str] = ()) -> bool:
    """Return whether the first row of a table names its columns.

    Args:
        second: the row after it; languages in both are a part of the data.
    """

    def repeats(at: int) -> bool:
        return at < len(second) and language_of(second[at]) is not None

    if any(isinstance(column, str) for column in choice.columns):
        return True
    if (found := guess_columns(row, choice.languages)) is not None:
        return not all(map(repeats, found))
    if choice.one_side and any(name.strip().casefold() in TEXT_NAMES for name in row):
        return True
    languages = {at: language_of(name) for at, name in enumerate(row) if language_of(name) is not None}
    # by number: then a row of other languages may be a pair of a dictionary
    given = None not in choice.columns and not choice.one_side
    return len(set(languages.values())) > 1 and not given and not any(map(repeats, languages))


def shown_name(name: str) -> str:
    return readable(name.strip(), 30)


def readable(text: str, most: int = 100) -> str:
    """Return the first `most` characters of `text`, with unprintable ones replaced, for a one-line message."""
    shown = "".join(letter if letter.isprintable() else "�" for letter in text[:most])
    return shown + "…" * (len(text) > most)
