"""The fonts of pictures: DejaVu Sans, and fonts of the system for letters that it lacks."""

from __future__ import annotations

import unicodedata
from functools import cache
from typing import Any

from matplotlib.font_manager import FontEntry, findfont, findSystemFonts, fontManager, get_font
from matplotlib.ft2font import FT2Font

FONT = "DejaVu Sans"  # comes with Matplotlib and has the accents
PLACEHOLDERS = ("lastresort", "adobeblank")  # fonts that draw one sign for all letters

supplements: dict[str, str] = {}  # the file of each further family, in the order of their use
scripts_without_font: set[str] = set()


def families() -> list[str]:
    """Return the families of a text: each letter is drawn with the first that has it."""
    return [FONT, *supplements]


def font() -> FT2Font:
    """Return the font that measures texts."""
    return get_font([findfont(FONT), *supplements.values()])


@cache
def has_glyph(letter: str) -> bool:
    """Return whether pictures can show a letter; the first of a script looks for a font on the system."""
    if any(get_font(path).get_char_index(ord(letter)) for path in (findfont(FONT), *supplements.values())):
        return True
    script = unicodedata.name(letter, "?").split()[0]  # CJK, HANGUL, THAI
    if script in scripts_without_font:
        return False
    found = [(rank, path) for path in findSystemFonts() if (rank := suitability(path, letter)) is not None]
    if not found:
        scripts_without_font.add(script)
        return False
    _, path = min(found)
    family = get_font(path).family_name
    # as regular, whatever its weight: Matplotlib warns of a weight that it has not
    style: dict[str, Any] = {"style": "normal", "variant": "normal", "stretch": "normal", "weight": 400}
    fontManager.ttflist.append(FontEntry(fname=path, name=family, size="scalable", **style))
    supplements[family] = path
    return True


def suitability(path: str, letter: str) -> tuple[bool, bool] | None:
    """Return a rank, the lowest for regular sans-serif fonts, or None for a font that cannot draw the letter."""
    try:
        candidate = get_font(path)
        can_draw = candidate.scalable and candidate.get_char_index(ord(letter)) != 0
    except (OSError, RuntimeError):  # FreeType cannot read it
        return None
    family = candidate.family_name.lower().replace(" ", "")
    if not can_draw or any(name in family for name in PLACEHOLDERS):
        return None
    return candidate.style_name not in ("Regular", "Book", "Normal"), "serif" in family or "mono" in family
