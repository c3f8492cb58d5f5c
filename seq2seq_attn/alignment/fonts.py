"""The fonts of pictures: DejaVu Sans, and fonts of the system for letters that it lacks."""

from __future__ import annotations

import unicodedata
from typing import Any, final

import numpy as np
from jaxtyping import UInt32
from matplotlib.font_manager import FontEntry, findfont, findSystemFonts, fontManager, get_font
from matplotlib.ft2font import FT2Font

FONT = "DejaVu Sans"  # comes with Matplotlib and has the accents
PLACEHOLDER = "lastresort"  # a family that draws one sign for all letters of a script
INVISIBLE = ("M", "Cf", "Z")  # categories of characters that may be drawn as nothing
REGULAR: dict[str, Any] = {
    "style": "normal", "variant": "normal", "stretch": "normal", "size": "scalable",
    "weight": 400,  # whatever it is: Matplotlib warns of a weight that a family lacks
}  # fmt: skip


@final
class Fonts:
    """DejaVu Sans and, by their paths, the fonts of the system that letters have needed so far."""

    def __init__(self) -> None:
        self._supplements: list[str] = []
        self._known: dict[str, bool] = {}  # by letter
        self._letters: dict[str, UInt32[np.ndarray, " letters"]] | None = None  # of each font of the system

    def families(self, letters: str = "") -> list[str]:
        """Return the families of a text: each letter is drawn with the first that has it.

        Args:
            letters: what the text may hold beside the letters that `has_glyph` was asked for.
        """
        for letter in letters:
            self.has_glyph(letter)
        return [FONT, *self._supplements]

    def ruler(self) -> FT2Font:
        """Return the font that measures texts."""
        return get_font([findfont(FONT), *self._supplements])

    def has_glyph(self, letter: str) -> bool:
        """Return whether pictures can show a letter, for which a font of the system may become a supplement."""
        if letter not in self._known:
            files = (findfont(FONT), *self._supplements)
            is_there = any(get_font(file).get_char_index(ord(letter)) for file in files)
            self._known[letter] = is_there or self._supply(letter)
        return self._known[letter]

    def _supply(self, letter: str) -> bool:
        """Add the most suitable font that has a letter; return whether there is one."""
        if self._letters is None:
            self._letters = {file: letters_of(file) for file in findSystemFonts()}
        having = [file for file, letters in self._letters.items() if np.isin(ord(letter), letters)]
        suitable = [(rank, file) for file in having if (rank := suitability(file, letter)) is not None]
        if suitable:
            _, file = min(suitable)
            fontManager.ttflist.append(FontEntry(fname=file, name=file, **REGULAR))  # families of one name stay apart
            self._supplements.append(file)
        return bool(suitable)


FONTS = Fonts()


def letters_of(file: str) -> UInt32[np.ndarray, " letters"]:
    """Return the code points that a font has; none for a file that FreeType cannot read, or a font of bitmaps."""
    try:
        font = get_font(file)
        return np.fromiter(font.get_charmap() if font.scalable else (), np.uint32)
    except (OSError, RuntimeError):
        return np.zeros(0, np.uint32)


def suitability(file: str, letter: str) -> tuple[bool, bool] | None:
    """Return a rank, the lowest for regular sans-serif fonts, or None for a font that cannot draw the letter."""
    font = get_font(file)
    family = font.family_name.lower().replace(" ", "").replace("sansserif", "sans")
    try:
        font.set_size(10, 72)
        index = font.get_char_index(ord(letter))
        is_drawn = index > 0 and font.load_glyph(index).width > 0
    except RuntimeError:  # the file is damaged here
        return None
    if PLACEHOLDER in family or not (is_drawn or unicodedata.category(letter).startswith(INVISIBLE)):
        return None
    return font.style_name not in ("Regular", "Book", "Normal"), "serif" in family or "mono" in family
