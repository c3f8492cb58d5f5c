"""One file with the explorer's views: what is in it, what it may load, and which files it may replace."""

from __future__ import annotations

import gzip
import json
import re
from base64 import b64decode, b64encode
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from seq2seq_attn.alignment.page import halved_slot, self_contained
from seq2seq_attn.errors import UserError
from seq2seq_attn.explorer.one_file import MOST_SENTENCES, check_page, read_sentences, write_page

HOSTILE = "</script><script>alert(1)</script><!-- & \u2028 \ud800"


def slot(weights: np.ndarray) -> dict[str, Any]:
    return {"name": "cross/0", "weights": b64encode(weights.astype("<f4").tobytes()).decode(), "dtype": "float32"}


def weights_of(one: dict[str, Any]) -> np.ndarray:
    return np.frombuffer(b64decode(one["weights"]), {"float32": "<f4", "float16": "<f2"}[one["dtype"]])


def data_of(page: str) -> Any:
    (packed,) = re.findall(r'<script type="application/json" id="data">([\w+/=]*)</script>', page)
    text = gzip.decompress(b64decode(packed)).decode()
    assert "<" not in text
    return json.loads(text)


def test_the_data_comes_back_and_no_text_becomes_markup() -> None:
    looks = [{"source": {"text": HOSTILE}}]
    page = self_contained({"models": [{"run": HOSTILE}]}, looks)
    assert data_of(page) == {"models": {"models": [{"run": HOSTILE}]}, "looks": looks}
    assert "alert(1)" not in page


def test_the_policy_admits_the_script_and_the_style_of_the_page_alone() -> None:
    page = self_contained({}, [])
    (policy,) = re.findall(r'<meta http-equiv="Content-Security-Policy" content="([^"]*)"', page)
    directives = dict(directive.split(" ", 1) for directive in policy.split("; "))
    assert directives["default-src"] == "'none'"
    assert "connect-src" not in directives
    for name, element in (
        ("script-src", r'<script type="module">(.*?)</script>'),
        ("style-src", "<style>(.*?)</style>"),
    ):
        (content,) = re.findall(element, page, re.DOTALL)
        assert directives[name] == f"'sha256-{b64encode(sha256(content.encode()).digest()).decode()}'"
    assert not re.search(r'(?:src|href)="(?!data:)', page)
    assert not re.search(r"^(?:import|export)\b", page, re.MULTILINE)


def test_weights_have_16_bits_unless_they_are_too_large() -> None:
    weights = np.random.default_rng(0).random(37)
    found = halved_slot(slot(weights))
    assert found["dtype"] == "float16"
    assert np.abs(weights_of(found) - weights).max() < 1e-3
    assert halved_slot(found) is found
    large = slot(weights * 1e6)
    assert halved_slot(large) is large


def test_sentences_are_the_lines_that_are_not_blank(tmp_path: Path) -> None:
    file = tmp_path / "english.txt"
    file.write_text("one\n\n  \ntwo\n")
    assert read_sentences(str(file)) == {1: "one", 4: "two"}
    file.write_text("\n")
    with pytest.raises(UserError, match=r"english.txt has no sentence; write one a line$"):
        read_sentences(str(file))
    file.write_text("one\n" * (MOST_SENTENCES + 1))
    with pytest.raises(UserError, match=r"english.txt has more than 100 sentences; give fewer for one page$"):
        read_sentences(str(file))
    with pytest.raises(UserError, match=r"^input=.*none.txt cannot be read \(No such file or directory\)$"):
        read_sentences(str(tmp_path / "none.txt"))


def answer(request: dict[str, Any]) -> dict[str, Any]:
    if request["source"] == "long":
        raise UserError("the sentence has 900 tokens, and 512 are the most here; shorten it")
    return {"model": request["model"], "text": request["source"], "slots": [slot(np.ones(3))]}


def test_a_page_replaces_only_a_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page, models = tmp_path / "maps.html", {"models": ["a", "b"]}
    check_page(page)
    write_page(page, "english.txt", {3: "one", 5: "two"}, models, answer)
    assert re.fullmatch(r"wrote .*maps\.html: 2 sentences, \d\.\d MB\n", capsys.readouterr().out)
    looks = data_of(page.read_text())["looks"]
    assert [(look["model"], look["text"]) for look in looks] == [(0, "one"), (1, "one"), (0, "two"), (1, "two")]
    check_page(page)
    page.write_text("<!doctype html>\n<title>Mine</title>\n")
    with pytest.raises(
        UserError, match=r"maps.html is there, and not a page that the explorer wrote; give another name"
    ):
        check_page(page)
    with pytest.raises(UserError, match=r"does not end in \.html; give page=maps\.html$"):
        check_page(tmp_path / "maps.txt")
    with pytest.raises(UserError, match=r"is in a folder that is not there; make "):
        check_page(tmp_path / "none" / "maps.html")


def test_a_sentence_that_cannot_be_shown_is_named_and_nothing_is_written(tmp_path: Path) -> None:
    page = tmp_path / "maps.html"
    with pytest.raises(UserError, match=r"^english.txt, line 7: the sentence has 900 tokens"):
        write_page(page, "english.txt", {3: "one", 7: "long"}, {"models": ["a"]}, answer)
    assert list(tmp_path.iterdir()) == []
