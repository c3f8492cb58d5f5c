"""Letters that DejaVu Sans lacks are drawn with a font of the system, where one has them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from fontTools.fontBuilder import FontBuilder
from fontTools.pens.ttGlyphPen import TTGlyphPen
from matplotlib.backends.backend_agg import FigureCanvasAgg

from seq2seq_attn.alignment import fonts
from seq2seq_attn.alignment.fonts import FONTS
from seq2seq_attn.alignment.heat_map import draw_attention, readable, widest, without_glyph
from seq2seq_attn.comparison.curves import draw

CAT, DOG, KOREAN = "\u732b", "\u72ac", "\uace0"


def font_file(path: Path, family: str, letters: str, style: str = "Regular", drawn: bool = True) -> str:
    """Write a font whose letters are squares of one em, or nothing."""
    builder = FontBuilder(1000, isTTF=True)
    names = {letter: f"u{ord(letter):04X}" for letter in letters}
    builder.setupGlyphOrder([".notdef", *names.values()])
    builder.setupCharacterMap({ord(letter): name for letter, name in names.items()})
    pen = TTGlyphPen(None)
    corners = [(0, 0), (0, 1000), (1000, 1000), (1000, 0)]
    if drawn:
        pen.moveTo(corners[0])
        for corner in corners[1:]:
            pen.lineTo(corner)
        pen.closePath()
    square = pen.glyph()
    builder.setupGlyf(dict.fromkeys((".notdef", *names.values()), square))
    builder.setupHorizontalMetrics(dict.fromkeys((".notdef", *names.values()), (1000, 0)))
    builder.setupHorizontalHeader(ascent=1000, descent=0)
    builder.setupNameTable({"familyName": family, "styleName": style, "psName": family.replace(" ", "")})
    builder.setupOS2()
    builder.setupPost()
    builder.save(path)
    return str(path)


@pytest.fixture
def system(no_further_fonts: list[str], tmp_path: Path) -> list[str]:
    """A system with a file that is no font, and fonts for Chinese of which one has a regular style without serifs."""
    broken = tmp_path / "a.ttf"
    broken.write_bytes(b"no font")
    no_further_fonts += [
        str(broken),
        font_file(tmp_path / "b.ttf", "Last Resort", CAT + DOG + KOREAN),
        font_file(tmp_path / "c.ttf", "Han Bold", CAT + DOG, style="Bold"),
        font_file(tmp_path / "d.ttf", "Han Serif", CAT + DOG),
        font_file(tmp_path / "e.ttf", "Han Sans", CAT + DOG),
    ]
    return no_further_fonts


def test_the_regular_font_without_serifs_is_taken_and_drawn(system: list[str]) -> None:
    assert without_glyph(f"\u2581{CAT}\u00e9{KOREAN}") == {KOREAN}
    assert FONTS.families() == ["DejaVu Sans", system[-1]]
    assert readable(f"\u2581{CAT}{DOG}") == f"\u00b7{CAT}{DOG}"
    assert widest([CAT * 3], 72.0) == pytest.approx(3, abs=0.01)
    figure = draw_attention(np.eye(2), [CAT, "a"], [DOG, KOREAN])
    labels = [label for axes in figure.axes[:1] for label in (*axes.get_xticklabels(), *axes.get_yticklabels())]
    assert [label.get_text() for label in labels] == [CAT, "a", DOG, "\u25a1"]
    assert {tuple(label.get_fontfamily()) for label in labels} == {("DejaVu Sans", system[-1])}
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    box = labels[0].get_window_extent()
    pixels = np.asarray(canvas.buffer_rgba())[:, :, 0]
    top, bottom = (round(pixels.shape[0] - y) for y in (box.y1, box.y0))
    # the black square of this font, and not DejaVu's empty one
    assert (pixels[top:bottom, round(box.x0) : round(box.x1)] < 128).mean() > 0.6


def test_the_system_is_searched_once_and_a_letter_says_nothing_of_its_script(
    system: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    searches: list[str] = []
    monkeypatch.setattr(fonts, "findSystemFonts", lambda: searches.append("one") or system)
    assert without_glyph(f"{KOREAN}\u4e00{CAT}{DOG}") == {KOREAN, "\u4e00"}  # 4e00 is Chinese, as the cat
    assert len(searches) == 1
    assert FONTS.families() == ["DejaVu Sans", system[-1]]


def test_fonts_of_one_name_are_two_and_a_damaged_or_empty_glyph_is_none(
    no_further_fonts: list[str], tmp_path: Path
) -> None:
    whole = font_file(tmp_path / "whole.ttf", "Cut", CAT + DOG + KOREAN)
    content = Path(whole).read_bytes()
    (tmp_path / "cut.ttf").write_bytes(content[: len(content) * 7 // 10])
    no_further_fonts += [
        str(tmp_path / "cut.ttf"),
        font_file(tmp_path / "empty.ttf", "Empty", KOREAN, drawn=False),
        font_file(tmp_path / "one.ttf", "Sans", CAT),
        font_file(tmp_path / "two.ttf", "Sans", DOG),
    ]
    assert without_glyph(CAT + DOG + KOREAN) == {KOREAN}
    assert FONTS.families() == ["DejaVu Sans", *no_further_fonts[2:]]
    FigureCanvasAgg(draw_attention(np.eye(2), [CAT, "a"], [DOG, KOREAN])).draw()  # a missing letter would be a warning


def test_the_name_of_a_curve_is_drawn_with_a_font_of_the_system(system: list[str], tmp_path: Path) -> None:
    draw({CAT + DOG: [(1, 2.0), (2, 3.0)]}, "val/bleu", None, tmp_path / "curves.png")  # or it would warn
    assert FONTS.families() == ["DejaVu Sans", system[-1]]
