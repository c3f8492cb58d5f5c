"""Text for a terminal, a message or a row of a table: on one line, without control characters."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table


LINE_END = re.compile(r"[\t-\r\x1c-\x1e\x85\u2028\u2029]")  # and what else separates rows or columns
# C0, DEL, C1, the overrides and isolates of bidirectional text, and half surrogate pairs, which UTF-8 cannot hold
CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")

# Scripts without spaces between words, by how many characters a word has on average, rounded: Han and kana; Thai, Lao,
# Tibetan, Burmese and Khmer. Korean has spaces.
UNSPACED = {
    2: re.compile(
        "[\u3005-\u3007\u3040-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]"
    ),
    5: re.compile("[\u0e00-\u0fff\u1000-\u109f\u1780-\u17ff\ua9e0-\ua9ff\uaa60-\uaa7f]"),
}
# The same scripts by the ISO 639-1 code of a language that is written in them: Han and kana, then one script each.
HAN, KANA = re.compile("[\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]"), re.compile("[\u3041-\u30fa]")
BY_LANGUAGE = {
    "th": re.compile("[\u0e00-\u0e7f]"), "lo": re.compile("[\u0e80-\u0eff]"), "bo": re.compile("[\u0f00-\u0fff]"),
    "my": re.compile("[\u1000-\u109f\ua9e0-\ua9ff\uaa60-\uaa7f]"), "km": re.compile("[\u1780-\u17ff]"),
}  # fmt: skip
WORD = re.compile(r"[^\W_]+")


def has_spaces(text: str) -> bool:
    """Return whether no character of the text belongs to a script without spaces; all of them come after U+0E00."""
    return text.isascii() or max(text, default="") < "\u0e00" or not any(s.search(text) for s in UNSPACED.values())


def num_words(text: str) -> int:
    """Return the number of words between blanks, where scripts without spaces count by their characters.

    Two characters of Chinese or Japanese count as a word, and five of Thai, Lao, Tibetan, Burmese or Khmer.
    """
    if has_spaces(text):
        return len(text.split())
    words = 0
    for characters_per_word, script in UNSPACED.items():
        text, count = script.subn(" ", text)
        words += -(-count // characters_per_word)
    return words + len(text.split())


def unspaced_language(texts: Iterable[str]) -> str | None:
    """Return the ISO 639-1 code of the language of texts, if they are mostly in a script without spaces; else None.

    More than half of their words must be in such a script, counted as by `num_words` but without punctuation. The
    script decides: `ja` if a tenth of the characters of Han and kana is kana, else `zh`; `th`, `lo`, `bo`, `my`, `km`.
    """
    spaced = unspaced = 0
    counts: Counter[str] = Counter()
    for text in texts:
        if not has_spaces(text):
            han, kana = len(HAN.findall(text)), len(KANA.findall(text))
            counts.update({"zh": han + kana, "kana": kana})
            counts.update({code: len(script.findall(text)) for code, script in BY_LANGUAGE.items()})
            for characters_per_word, script in UNSPACED.items():
                text, count = script.subn(" ", text)
                unspaced += -(-count // characters_per_word)
        spaced += len(WORD.findall(text))
    if unspaced <= spaced:
        return None
    kana = counts.pop("kana")
    code = max(counts, key=counts.__getitem__)
    return "ja" if code == "zh" and 10 * kana >= counts["zh"] else code


def split_words(text: str) -> list[str]:
    """Return the words between blanks; a character of a script without spaces is one of its own."""
    if not has_spaces(text):
        for script in UNSPACED.values():
            text = script.sub(r" \g<0> ", text)
    return text.split()


def printable(text: str) -> str:
    """Return the text with a blank for each tab and line end, and U+FFFD for each other control character."""
    return text if text.isprintable() else CONTROL.sub("\ufffd", LINE_END.sub(" ", text))


def plain_console(**options: Any) -> Console:
    """Return Rich's console for text that is not ours: it reads no markup and no emoji code."""
    from rich.console import Console  # 0.1 s that an import of an attention layer does not pay

    return Console(markup=False, emoji=False, **options)


def new_table(columns: Sequence[str], rows: Iterable[Sequence[str]], title: str | None = None) -> Table:
    """Return Rich's table; all columns but the first are right-aligned, as numbers are."""
    from rich.table import Table

    table = Table(title=title, title_justify="left")
    for column in columns:
        table.add_column(printable(column), justify="right" if table.columns else "left")
    for row in rows:
        table.add_row(*map(printable, row))
    return table
