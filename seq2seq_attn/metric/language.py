"""The language whose words a metric counts, by the name that the data gives it and by the script of its references."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from seq2seq_attn.text import unspaced_language

NAMES = {  # ISO 639-1 code: ISO 639-2 and 639-3 codes, English names, and codes of countries that are used for it
    "zh": "zh zho chi cmn yue wuu lzh cn chinese mandarin cantonese",
    "ja": "ja jpn jp japanese",
    "ko": "ko kor korean",
    "th": "th tha thai",
    "lo": "lo lao laotian",
    "km": "km khm khmer",
    "my": "my mya bur burmese myanmar",
    "bo": "bo bod tib tibetan",
}
CODES = {name: code for code, names in NAMES.items() for name in names.split()}
UNSPACED = frozenset(NAMES) - {"ko"}  # written without spaces between words


def language_code(name: str | None) -> str | None:
    """Return the ISO 639-1 code of a name such as `zh`, `zho_Hant`, `zh-TW` or `Chinese`; None if NAMES lacks it."""
    return CODES.get((name or "").casefold().replace("_", "-").partition("-")[0])


def is_unspaced(name: str | None) -> bool:
    """Return whether the language of this name is written without spaces between words."""
    return language_code(name) in UNSPACED


def metric_language(name: str | None, references: Iterable[str]) -> str | None:
    """Return the language by which metrics choose how to count words.

    It is `name`, unless that is of no language without spaces and the references are mostly in a script without them,
    as Chinese ones are in a corpus whose target language is left at `fr`: then it is the code of their language.
    """
    return name if is_unspaced(name) else unspaced_language(references) or name


def with_language(options: Any, references: Iterable[str]) -> Any:
    """Return the options of a metric, with its `language` as `metric_language` says where another option is `auto`.

    Options of a stranger's run, which may be anything, are left for `checkpoint.admitted.build` to refuse.
    """
    if not isinstance(options, dict) or "language" not in options or "auto" not in options.values():
        return options
    name = options["language"]
    if not isinstance(name, str | None):
        return options
    return options | {"language": metric_language(name, references)}
