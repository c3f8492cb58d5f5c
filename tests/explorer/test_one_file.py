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
from seq2seq_attn.explorer import one_file
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
    assert data_of(page) == {"models": {"models": [{"run": HOSTILE}]}, "looks": looks, "forced": []}
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
    (tmp_path / "utf16.txt").write_bytes("one\n".encode("utf-16"))
    with pytest.raises(UserError, match=r"utf16.txt, line 1: UTF-16, not UTF-8; convert the text$"):
        read_sentences(str(tmp_path / "utf16.txt"))
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
    read = [name for name in ("target", "target_tokens") if name in request]
    shown = f"{request['source']} of {request['model']}"
    sizes = {"heads": 1, "rows": 1, "columns": 3}
    return {
        "model": request["model"],
        "read": [f"{name} {request[name]}" for name in read],
        "target": {"text": shown, "token_ids": [request["model"]]},
        "slots": [slot(np.ones(3)) | sizes],
    }


MODELS = {"models": [{"tokenizer": name} for name in ("x", "x", "y")]}


def test_a_page_replaces_only_a_page(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    page = tmp_path / "maps.html"
    check_page(page)
    write_page(page, "english.txt", {3: "one", 5: "two"}, MODELS, answer)
    assert re.fullmatch(r"wrote .*maps\.html: 2 sentences, \d\.\d MB\n", capsys.readouterr().out)
    looks = data_of(page.read_text())["looks"]
    assert [look["target"]["text"] for look in looks] == [f"{text} of {m}" for text in ("one", "two") for m in range(3)]
    assert looks[1]["request"] == {"model": 1, "source": "one", "tree": True}
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
    monkeypatch.setattr("os.access", lambda *_: False)
    with pytest.raises(UserError, match=r"new.html cannot be written, since nothing can be written in .*another page="):
        check_page(tmp_path / "new.html")


def test_a_sentence_that_cannot_be_shown_is_named_and_nothing_is_written(tmp_path: Path) -> None:
    page = tmp_path / "maps.html"
    with pytest.raises(UserError, match=r"^english.txt, line 7: the sentence has 900 tokens"):
        write_page(page, "english.txt", {3: "one", 7: "long"}, MODELS, answer)
    assert list(tmp_path.iterdir()) == []


def test_each_model_reads_the_translations_of_the_others(tmp_path: Path) -> None:
    page = tmp_path / "maps.html"
    write_page(page, "english.txt", {1: "one", 2: "two"}, MODELS, answer)
    forced = data_of(page.read_text())["forced"]
    assert [(each["of"], each["look"]["model"], *each["look"]["read"]) for each in forced[6:]] == [
        (3, 1, "target_tokens [0]"), (3, 2, "target two of 0"), (4, 0, "target_tokens [1]"), (4, 2, "target two of 1"),
        (5, 0, "target two of 2"), (5, 1, "target two of 2"),
    ]  # fmt: skip


def test_a_translation_that_another_model_cannot_read_has_no_comparison(tmp_path: Path) -> None:
    def short(request: dict[str, Any]) -> dict[str, Any]:
        if "target_tokens" in request:
            raise UserError("the target_tokens has 900 tokens, and 512 are the most here; shorten it")
        return answer(request)

    page = tmp_path / "maps.html"
    write_page(page, "english.txt", {1: "one"}, MODELS, short)
    forced = data_of(page.read_text())["forced"]
    assert [(each["of"], each["look"]["model"]) for each in forced] == [(0, 2), (1, 2), (2, 0), (2, 1)]


def test_a_page_of_too_many_weights_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(one_file, "MOST_WEIGHTS", 40)
    page = tmp_path / "maps.html"
    write_page(page, "english.txt", {1: "one"}, MODELS, answer)
    page.unlink()
    with pytest.raises(
        UserError, match="line 2: the maps up to here have 54 weights, and 40 are the most of a page; give fewer or sho"
    ):
        write_page(page, "english.txt", {1: "one", 2: "two", 3: "three"}, MODELS, answer)
    assert list(tmp_path.iterdir()) == []


def test_ten_sentences_of_forty_tokens_are_at_most_8_mb(tmp_path: Path) -> None:
    """Of 6 + 6 layers of 8 heads."""
    random = np.random.default_rng(0)
    tokens = [f"\u2581token{number}" for number in range(40)]

    def look(request: dict[str, Any]) -> dict[str, Any]:
        sizes = {"heads": 8, "rows": 41, "columns": 41}
        of_side = {"text": " ".join(tokens), "tokens": [*tokens, "</s>"], "token_ids": list(range(40))}
        slots = [slot(random.dirichlet(np.ones(41), (8, 41))) | sizes for _ in range(18)]
        top = [[{"id": n, "token": tokens[n], "log_prob": -random.random()} for n in range(10)] for _ in range(41)]
        node = {"id": 1, "parent": 0, "token_id": 1, "token": tokens[0], "state": "kept", "score": None, "rank": 1}
        steps = [{"nodes": [node | {"log_prob": random.random(), "total": random.random()}] * 10} for _ in range(41)]
        sides = {"source": of_side, "target": of_side, "top": top, "tree": {"steps": steps, "best": 1}}
        return {"model": 0, "slots": slots, **sides}

    page = tmp_path / "maps.html"
    write_page(page, "english.txt", dict.fromkeys(range(10), "a sentence"), {"models": [{"tokenizer": "x"}]}, look)
    assert 4e6 < page.stat().st_size < 8e6
