"""No text becomes markup, whatever it holds."""

from __future__ import annotations

import re
from html import unescape

import markdown
import pytest
from markdown_it import MarkdownIt

from seq2seq_attn.markdown import code, literal, table

HOSTILE = [
    "<script>alert(1)</script>", "<img src=x onerror=alert(1)>", "a|b", r"a\|b", "a `b` c", "``",
    "[x](javascript:alert(1))", "![x](y.png)",
    "**bold** *it* _it_ __bold__ ~~gone~~", "# head", "#", "- item", "1. item", "+ item", "<https://a.b>",
    "two\nlines\n\n# head", "a & b &lt;b&gt;", "local_p", "<!-- hidden -->", "\\", "[x]: y", "3) item", "tail\\",
    "---", "- - -", "## head", "#", "-", "+", "2.13.0+cpu", "4+4", "5-gram", "2. item", "===",
]  # fmt: skip


def shown(html: str) -> str:
    """What a reader sees; only a paragraph, a table or a span of code may be around it."""
    assert set(re.findall(r"</?(\w+)", html)) <= {"p", "table", "thead", "tbody", "tr", "th", "td", "code"}, html
    return unescape(re.sub(r"<[^>]*>|\n", "", html))


@pytest.mark.parametrize("text", HOSTILE)
def test_a_text_is_shown_and_nothing_else_in_a_line_a_cell_and_a_span(text: str) -> None:
    line = " ".join(text.split())
    renderer = MarkdownIt("commonmark").enable(["table", "strikethrough"])
    assert shown(renderer.render(literal(text))) == line
    assert shown(renderer.render(table(["a", "b"], [[text, "end"]]))) == f"ab{line}end"
    assert shown(renderer.render(f"| a | b |\n|--|--|\n| {literal(text)} | end |")) == f"ab{line}end"
    assert shown(renderer.render(f"x {code(text)}")) == f"x {line}"
    assert "<" not in literal(text)


@pytest.mark.parametrize("text", HOSTILE)
def test_tensorboards_renderer_makes_nothing_of_it_either(text: str) -> None:
    html = markdown.markdown(table(["a", "b"], [[text, "end"]]), extensions=["markdown.extensions.tables"])
    assert shown(html) == f"ab{' '.join(text.split())}end"


def test_addresses_formulas_and_control_characters_are_broken_up() -> None:
    assert literal("https://a.b www.a.b $x$") == r"https&#58;//a.b www\.a.b &#36;x&#36;"
    assert literal("a\x1b[2J") == "a\N{REPLACEMENT CHARACTER}\\[2J"
    assert literal("local_p 0.1 ± 2.5, p < 0.05") == "local_p 0.1 ± 2.5, p &lt; 0.05"
