"""The explorer's page in headless Chromium: every view is clicked through, and its numbers are the Translator's."""

from __future__ import annotations

import json
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from explorer.browser import Page, downloaded, executed, requested
from explorer.served import serving
from selenium.webdriver.common.keys import Keys

from seq2seq_attn.explorer.look import Explorer
from seq2seq_attn.explorer.one_file import write_page
from seq2seq_attn.inference.translator import Translation, Translator

SENTENCE = "the cat sees a red house"
HOSTILE = (
    "<img src=x onerror=run()> the</script><script>run()</script> cat & <svg onload=run()>\u202e{{run()}} ${run()}"
)
VIEWS = ("map", "lines", "grid", "search", "tokens", "what_if", "two_models")


@pytest.mark.parametrize("name", ["rnn", "conv", "transformer"])
def test_every_view_is_clicked_through(
    name: str, explorers: dict[str, Explorer], served_models: dict[str, Translator], browser: Any
) -> None:
    (expected,) = served_models[name].translate([SENTENCE], maps=True)
    maps = {one.slot: one for one in expected.maps}
    with serving(explorers[name].models(), explorers[name].look) as served:
        page = Page(browser, served.address)
        page.translate(SENTENCE)
        assert page.number("facts") == pytest.approx(expected.log_prob, abs=1e-3)
        page.choose("slot", "cross/0")
        page.click("level-tokens")
        page.set_step(1)
        weights = [float(chip.get_attribute("data-weight")) for chip in page.all("source-chip")]
        assert weights == pytest.approx(maps["cross/0"].weights[0, 0].tolist(), abs=1e-3)
        page.one("heat-view").send_keys(Keys.ARROW_DOWN, Keys.ARROW_RIGHT)
        for kind in ("svg", "png", "json", "npz"):
            page.click(f"save-{kind}")
        page.view("lines")
        page.click("line-row")
        page.view("grid")
        assert len(page.all("thumbnail")) == sum(len(one.weights) for one in expected.maps)
        page.click("thumbnail", -1)
        page.wait(lambda: page.shown_view() == "map")
        page.view("search")
        assert len(page.all("tree-node")) >= len(expected.tokens)
        page.click("tree-node")
        page.click("force-path")
        page.answered()
        page.view("tokens")
        page.click("next-token", 1)
        page.answered()
        page.run("document.querySelector('[data-testid=own-details]').open = true")
        page.write("own", expected.text)
        page.click("score-own")
        page.answered()
        (own,) = served_models[name].tokenizer.encode_target([expected.text])  # fewer tokens than the search has found
        assert len(page.all("scored-row")) == len(own) + 1
        page.view("what_if")
        page.click("add-intervention")
        page.click("hide-word", 1)
        page.click("run-what-if")
        page.wait(lambda: page.all("after"))
        page.view("two_models")
        page.click("compare")
        page.wait(lambda: page.all("second-translation"))
        page.click("theme")
        facts = page.text("facts")
        browser.refresh()
        page.wait_for_state("shown")
        assert (page.text("facts"), page.shown_view()) == (facts, "two_models")
        assert page.text("error") == ""
        assert {address for address in requested(browser) if not address.startswith(served.address)} == set()
    page.wait(lambda: len(list(browser.downloads.glob("attention_map.???*"))) == 4)
    check_files(downloaded(browser), expected)


def check_files(files: dict[str, bytes], expected: Translation) -> None:
    assert files["attention_map.png"].startswith(b"\x89PNG")
    assert files["attention_map.svg"].startswith(b"<svg ")
    saved, arrays = json.loads(files["attention_map.json"]), np.load(BytesIO(files["attention_map.npz"]))
    slots = {slot["name"]: slot for slot in saved["look"]["slots"]}
    assert len(slots) == len(expected.maps)
    for one in expected.maps:
        assert np.abs(np.array(slots[one.slot]["weights"]) - one.weights).max() < 1e-3
        assert np.abs(arrays[one.slot] - one.weights).max() < 1e-3


def test_a_text_is_never_markup_and_a_mistake_is_a_line(explorers: dict[str, Explorer], browser: Any) -> None:
    explorer = explorers["rnn"]
    with serving(explorer.models(), explorer.look) as served:
        page = Page(browser, served.address)
        page.click("translate")
        page.wait(lambda: page.text("error") == "The source is empty: type a sentence.")
        page.translate(HOSTILE)
        for name in VIEWS:
            page.view(name)
        browser.refresh()
        page.wait_for_state("shown")
        assert HOSTILE.split()[0] in page.text("source-chips")
        assert not executed(browser)
        browser.set_window_size(390, 800)
        assert page.run("return document.documentElement.scrollWidth") <= 390
        browser.set_window_size(1280, 1000)
        page.write("source", "the " * 900)
        page.click("translate")
        page.wait(lambda: "tokens, and 512 are the most here" in page.text("error"))
        browser.get_log("browser")  # Chromium notes the status 400 of the answer


def test_one_file_shows_the_same_without_a_server(
    explorers: dict[str, Explorer], served_models: dict[str, Translator], browser: Any, tmp_path: Path
) -> None:
    explorer, file = explorers["transformer"], tmp_path / "maps.html"
    write_page(file, "english.txt", {1: SENTENCE, 2: HOSTILE}, explorer.models(), explorer.look)
    (expected,) = served_models["transformer"].translate([SENTENCE])
    page = Page(browser, file.as_uri())
    page.wait_for_state("shown")
    assert page.number("facts") == pytest.approx(expected.log_prob, abs=1e-3)
    for sentence in (0, 3):  # that of the other model is 1
        page.choose("sentence", str(sentence))
        for name in VIEWS:
            if page.all(f"tab-{name}"):
                page.view(name)
    assert not page.all("tab-what_if")
    assert not page.one("ask").is_displayed()
    assert not executed(browser)
    assert requested(browser) == {file.as_uri()}


def test_a_notebook_shows_the_page_of_a_translation(
    served_models: dict[str, Translator], browser: Any, tmp_path: Path
) -> None:
    best, plain = (
        served_models["transformer"].translate([SENTENCE], maps=maps)[0]._repr_html_() for maps in (True, False)
    )
    assert plain.startswith("<table>")
    assert "<iframe" not in plain
    file = tmp_path / "notebook.html"
    file.write_text(f"<!doctype html><meta charset='utf-8'><body>{best}</body>", encoding="utf-8")
    browser.get(file.as_uri())
    browser.switch_to.frame(0)
    page = Page(browser)
    page.wait_for_state("shown")
    for name in VIEWS:
        if page.all(f"tab-{name}"):
            page.view(name)
    assert requested(browser) == {file.as_uri()}
    browser.switch_to.default_content()
