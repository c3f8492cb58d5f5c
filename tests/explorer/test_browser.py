"""The explorer's page in headless Chromium: every view is clicked through, and its numbers are the Translator's."""

from __future__ import annotations

import json
import re
import time
from base64 import b64encode
from io import BytesIO
from pathlib import Path
from threading import Event
from typing import Any
from urllib.parse import quote, unquote

import numpy as np
import pytest
from explorer.browser import Page, downloaded, executed, requested
from explorer.served import serving
from explorer.three_models import TWO_LAYERS, slot_of, translator_of, weights_of
from selenium.webdriver.common.keys import Keys

from seq2seq_attn.alignment.attention_links import Heads
from seq2seq_attn.alignment.word_alignment import Extraction, to_pharaoh
from seq2seq_attn.explorer.look import Explorer
from seq2seq_attn.explorer.one_file import write_page
from seq2seq_attn.inference.line_answers import best_links
from seq2seq_attn.inference.translator import Translation, Translator

SENTENCE = "the cat sees a red house"
HOSTILE = (
    "<img src=x onerror=run()> the</script><script>run()</script> cat & <svg onload=run()>\u202e{{run()}} ${run()}"
)
BROKEN = [
    None,
    3,
    {"do": "erase"},
    {"do": "uniform", "slot": "cross/0", "head": "1"},
    {"do": "uniform", "slot": "cross/0", "head": 0},
]
SLIDE = """
for (let step = 1; step < 99; step++) {
  arguments[0].value = step % 3;
  arguments[0].dispatchEvent(new Event("input"));
}
arguments[0].value = 2;
arguments[0].dispatchEvent(new Event("input"));
"""
# How many colours a part of a heat map has; a copy of it is read.
COLOURS = """
const colours = (canvas, x, y, width, height) => {
  const context = Object.assign(document.createElement("canvas"), { width, height }).getContext("2d");
  context.drawImage(canvas, x, y, width, height, 0, 0, width, height);
  return new Set(new Uint32Array(context.getImageData(0, 0, width, height).data.buffer)).size;
};
const canvas = document.querySelector("[data-testid=heat-canvas]");
"""
# Within 6 pixels of the cell of the cursor, beside whose middle the tooltip is.
COLOURS_AT_CURSOR = f"""{COLOURS}
const tooltip = document.getElementById("tooltip"), box = canvas.getBoundingClientRect();
const [x, y] = [parseFloat(tooltip.style.left) - 20 - box.left, parseFloat(tooltip.style.top) - 24 - box.top];
return colours(canvas, x * devicePixelRatio, y * devicePixelRatio, 12 * devicePixelRatio, 12 * devicePixelRatio);
"""
# Whether the colour of links is in the map.
LINK_COLOUR = """
const canvas = document.querySelector("[data-testid=heat-canvas]");
const colour = getComputedStyle(document.documentElement).getPropertyValue("--link").trim();
const [red, green, blue] = [1, 3, 5].map((start) => parseInt(colour.slice(start, start + 2), 16));
const data = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data;
for (let at = 0; at < data.length; at += 4)
  if (data[at] === red && data[at + 1] === green && data[at + 2] === blue) return true;
return false;
"""
COLOURS_INSIDE = f"{COLOURS} return colours(canvas, canvas.width / 2, canvas.height / 2, 100, 100);"
# Go forward while an address waits to be written, which its timer would do before the page hears of the new one.
FORWARD_WHILE_BUSY = """
for (const level of ["tokens", "words"]) document.querySelector(`[data-testid=level-${level}]`).click();
history.forward();
for (const begin = performance.now(); performance.now() < begin + 500; );
"""
# Where the first and the last letter of the first line of the tooltip are.
ENDS_OF_TOOLTIP = """
const text = document.querySelector("#tooltip div").firstChild, letters = [...text.data];
return [letters.findIndex((each) => /\\p{L}/u.test(each)), letters.findLastIndex((each) => /\\p{L}/u.test(each))].map(
  (index) => {
    const range = document.createRange();
    range.setStart(text, index);
    range.setEnd(text, index + 1);
    return range.getBoundingClientRect().left;
  });
"""
VISIBLE = "import('/dom.js').then(({ visible }) => arguments[1](arguments[0].map(visible)))"
VIEWS = ("map", "lines", "grid", "search", "tokens", "what_if", "two_models")


@pytest.mark.parametrize(
    "name", ["transformer", pytest.param("rnn", marks=pytest.mark.slow), pytest.param("conv", marks=pytest.mark.slow)]
)
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
        facts, note = page.text("facts"), page.text("difference-note")
        page.reload()
        page.wait(lambda: page.all("difference-note"))  # asked for again
        assert page.text("difference-note") == note
        assert page.run("return document.documentElement.dataset.theme") == "dark"
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


@pytest.mark.slow
def test_a_text_is_never_markup_and_a_mistake_is_a_line(explorers: dict[str, Explorer], browser: Any) -> None:
    explorer = explorers["rnn"]
    with serving(explorer.models(), explorer.look) as served:
        page = Page(browser, served.address)
        page.click("translate")
        page.wait(lambda: page.text("error") == "The source is empty: type a sentence.")
        page.translate(HOSTILE)
        for name in VIEWS:
            page.view(name)
        page.reload()
        assert HOSTILE.split()[0] in page.text("source-chips")
        assert not executed(browser)
        labels = page.browser.execute_async_script(VISIBLE, ["\u200b\u2060", "\u3164", "", "a\x00", "a\u200db"])
        assert labels == ["\ufffd", "\ufffd", "∅", "a\ufffd", "a\u200db"]
        browser.set_window_size(390, 800)
        page.view("two_models")
        page.reload()
        tabs, tab = page.one("tabs").rect, page.one("tab-two_models").rect
        assert tabs["x"] <= tab["x"] <= tab["x"] + tab["width"] <= tabs["x"] + tabs["width"] + 1
        assert page.run("return document.documentElement.scrollWidth") <= 390
        browser.set_window_size(1280, 1000)
        page.write("source", "the " * 900)
        page.click("translate")
        page.wait(lambda: "tokens, and 512 are the most here" in page.text("error"))


def address_of(page: Page) -> dict[str, Any]:
    """Return what the page's address holds."""
    return json.loads(unquote(page.run("return location.hash")[1:]))


def number_of(text: str) -> float:
    """Return the last number of a text."""
    return float(re.findall(r"[-−+]?\d+\.\d+", text)[-1].replace("−", "-"))


@pytest.mark.slow
def test_words_are_sums_and_means_and_what_is_forbidden_is_hatched(
    explorers: dict[str, Explorer], browser: Any
) -> None:
    explorer, sentence = explorers["transformer"], "the catwoman sees a redhouse"
    look = explorer.look({"source": sentence})
    tokens = weights_of(slot_of(look, "cross/0"))[0]
    rows, columns = ([*look[side]["words"][:-1], len(look[side]["word_texts"])] for side in ("target", "source"))
    assert len(rows) > rows[-1] + 1
    assert len(columns) > columns[-1] + 1
    means = [tokens[np.array(rows) == word].mean(0) for word in range(rows[-1] + 1)]
    expected = [[mean[np.array(columns) == word].sum() for word in range(columns[-1] + 1)] for mean in means]
    with serving(explorer.models(), explorer.look) as served:
        page = Page(browser, served.address)
        page.translate(sentence)
        page.choose("slot", "cross/0")
        for word, weights in enumerate(expected):
            page.set_step(rows.index(word) + 1)
            shown = [float(chip.get_attribute("data-weight")) for chip in page.all("source-chip")]
            assert shown == pytest.approx(weights, abs=1e-3)
        page.set_step(0)
        page.choose("slot", "self/0")
        assert "may not attend" in page.text("legend")
        map_view = page.one("heat-view")
        map_view.send_keys(Keys.HOME)
        assert number_of(page.run("return document.getElementById('live').textContent")) == pytest.approx(1, abs=1e-3)
        assert page.run(COLOURS_AT_CURSOR) == 1
        map_view.send_keys(Keys.END)
        assert page.run("return document.getElementById('live').textContent").endswith("may not attend")
        assert page.run(COLOURS_AT_CURSOR) > 1


@pytest.mark.slow
def test_an_arrow_between_words_that_are_written_from_right_to_left_points_at_the_second(
    explorers: dict[str, Explorer], browser: Any
) -> None:
    explorer = explorers["transformer"]
    with serving(explorer.models(), explorer.look) as served:
        page = Page(browser, served.address)
        page.translate("אב גד")
        page.choose("slot", "encoder/0")
        page.one("heat-view").send_keys(Keys.HOME)
        first, last = page.run(ENDS_OF_TOOLTIP)
        assert first < last


@pytest.mark.slow
def test_links_of_words_are_drawn_over_the_sentences_and_the_map(
    explorers: dict[str, Explorer], served_models: dict[str, Translator], browser: Any, tmp_path: Path
) -> None:
    explorer, sentence = explorers["transformer"], "the catwoman sees a redhouse"
    (best,) = served_models["transformer"].translate([sentence], maps=True)
    expected = {heads: best_links(best.maps, heads, Extraction()) for heads in (Heads(1, 1), Heads(1), Heads())}
    assert len(set(map(str, expected.values()))) == 3
    file = tmp_path / "maps.html"
    write_page(file, "english.txt", {1: sentence}, explorer.models(), explorer.look)
    with serving(explorer.models(), explorer.look) as served:
        for address in (served.address, file.as_uri()):
            page = Page(browser, address)
            if address == served.address:
                page.translate(sentence)
            page.choose("slot", "cross/1")
            page.click("head-1")
            assert not page.all("link-line")
            for level in ("tokens", "words"):
                page.click(f"level-{level}")
                for switch, head, heads in (
                    ("shown", "head-1", Heads(1, 1)),
                    ("shown", "head-all", Heads(1)),
                    ("default", "head-0", Heads()),
                ):
                    page.click(head)
                    page.click(f"links-{switch}")
                    assert page.text("links-text").partition(": ")[2] == to_pharaoh(expected[heads])
                    assert not page.text("links-note")
                    lines = page.all("link-line")
                    assert len(lines) == len(expected[heads])
                    page.wait(lambda lines=lines: all(line.get_attribute("d") for line in lines))
            map_view, (source, target) = page.one("heat-view"), expected[Heads()][0]
            map_view.send_keys(Keys.HOME, *[Keys.ARROW_DOWN] * target, *[Keys.ARROW_RIGHT] * source)
            said = page.run("return document.getElementById('live').textContent")
            assert ": linked, " in said
            assert page.run(LINK_COLOUR)
            map_view.send_keys(Keys.ARROW_RIGHT)
            assert "linked" not in page.run("return document.getElementById('live').textContent")
            page.reload()
            assert page.text("links-text").startswith("mean of all heads: ")
            page.choose("slot", "encoder/0")
            assert not page.all("links-off")
            page.choose("slot", "cross/1")
            page.click("links-off")
            assert not page.all("link-line")
            assert not page.text("links-text")


@pytest.mark.slow
def test_a_guided_head_is_shown_first_with_its_links_outlined_where_their_weights_are(
    served_models: dict[str, Translator], browser: Any, tmp_path: Path
) -> None:
    """With guidance of the step that reads a token, these are the rows after those that write it."""
    one, sentence = served_models["transformer"], "the catwoman sees a redhouse"
    guided = {"links": "eflomal", "weight": 1, "layer": 1, "head": 1, "shift": True}
    explorer = Explorer([Translator(one.engine, one.tokenizer, one.config | {"guided_alignment": guided})])
    look = explorer.look({"source": sentence})
    source = look["links"]["default"]["pairs"][-1][0]
    column = look["source"]["words"].index(source)
    read = [
        1 + row
        for row, word in enumerate(look["target"]["words"])
        if word >= 0 and [source, word] in look["links"]["default"]["pairs"]
    ]
    file = tmp_path / "maps.html"
    write_page(file, "english.txt", {1: sentence}, explorer.models(), explorer.look)
    with serving(explorer.models(), explorer.look) as served:
        for address in (served.address, file.as_uri()):
            page = Page(browser, address)
            if address == served.address:
                page.translate(sentence)
            assert page.one("slot").get_attribute("value") == "cross/1"
            assert [page.one(f"head-{head}").get_attribute("aria-pressed") for head in (0, 1)] == ["false", "true"]
            page.click("level-tokens")
            assert not page.text("links-note")
            page.click("links-default")
            assert "row after the word" in page.text("links-note")
            map_view = page.one("heat-view")
            map_view.send_keys(Keys.HOME, *[Keys.ARROW_RIGHT] * column)
            linked = []
            for row in range(len(look["target"]["tokens"])):
                if ": linked, " in page.run("return document.getElementById('live').textContent"):
                    linked.append(row)
                map_view.send_keys(Keys.ARROW_DOWN)
            assert linked == read
            page.choose("slot", "cross/0")
            page.reload()
            assert page.one("slot").get_attribute("value") == "cross/0"


@pytest.mark.slow
def test_what_if_shows_the_result_of_its_changes_alone(explorers: dict[str, Explorer], browser: Any) -> None:
    explorer = explorers["transformer"]
    before = explorer.look({"source": SENTENCE})["target"]
    changes: dict[str, Any] = {"interventions": [{"do": "knock_out", "slot": "cross/1", "head": 0}], "hide": [1]}
    after = explorer.look({"source": SENTENCE} | changes)
    same = explorer.look({"source": SENTENCE, "target_tokens": before["token_ids"]} | changes)
    with serving(explorer.models(), explorer.look) as served:
        page = Page(browser, served.address)
        page.translate(SENTENCE)
        page.view("what_if")
        page.click("add-intervention")
        page.click("hide-word", 1)
        page.click("run-what-if")
        page.wait(lambda: page.all("after"))
        assert page.number("change") == pytest.approx(after["target"]["log_prob"] - before["log_prob"], abs=2e-3)
        assert page.number("same-tokens") == pytest.approx(same["target"]["log_prob"], abs=1e-3)
        assert [note.text for note in page.all("after-note")] == after["notes"]
        page.click("save-json")
        page.wait(lambda: list(browser.downloads.glob("*.json")))
        (saved,) = downloaded(browser).values()
        asked = json.loads(saved)["after"]["request"]
        assert {key: asked[key] for key in changes} == changes
        page.click("hide-word", 2)
        assert not page.all("after")
        page.click("run-what-if")
        page.click("hide-word", 2)  # while it runs: its result is of other changes
        page.wait_for_state("shown")
        assert not page.all("after")
        page.click("run-what-if")
        page.wait(lambda: page.all("after"))
        page.reload()
        page.wait(lambda: page.all("after"))
        assert page.number("same-tokens") == pytest.approx(same["target"]["log_prob"], abs=1e-3)


@pytest.mark.slow
def test_the_difference_of_two_models_is_of_the_same_tokens_under_the_chosen_search(
    explorers: dict[str, Explorer], browser: Any
) -> None:
    explorer, search = explorers["conv"], {"name": "greedy", "limits.max_length": 4}
    asked: list[dict[str, Any]] = []

    def look(request: dict[str, Any], stopped: Event) -> dict[str, Any]:
        asked.append(request)
        return explorer.look(request, stopped)

    first = explorer.look({"source": SENTENCE, "search": search})
    second = explorer.look({"model": 1, "source": SENTENCE, "target_tokens": first["target"]["token_ids"]})
    one, other = (weights_of(slot_of(look, slot))[0] for look, slot in ((first, "cross/1"), (second, "cross/0")))
    with serving(explorer.models(), look) as served:
        page = Page(browser, served.address)
        page.run("document.querySelector('[data-testid=search-details]').open = true")
        page.choose("search", "greedy")
        page.write("option-limits.max_length", "4")
        page.translate(SENTENCE)
        page.click("level-tokens")
        page.view("two_models")
        page.click("compare")
        page.wait(lambda: page.all("difference-note"))
        assert [request["search"]["limits.max_length"] for request in asked] == [4, 4, 4]
        assert page.number("difference-note") == pytest.approx(second["target"]["log_prob"], abs=1e-3)
        difference = page.all("heat-view")[2]
        difference.send_keys(Keys.ARROW_DOWN, Keys.HOME)
        for column in range(3):
            text = page.run("return document.getElementById('live').textContent")
            assert number_of(text) == pytest.approx(one[1, column] - other[1, column], abs=1e-3)
            difference.send_keys(Keys.ARROW_RIGHT)


@pytest.mark.slow
def test_the_address_follows_a_quick_slider_and_the_back_key(explorers: dict[str, Explorer], browser: Any) -> None:
    explorer = explorers["rnn"]
    with serving(explorer.models(), explorer.look) as served:
        page = Page(browser, served.address)
        assert page.run("return performance.getEntriesByName('first-contentful-paint').length") == 1
        page.translate(SENTENCE)
        facts = page.text("facts")
        for _ in range(5):
            page.run(SLIDE, page.one("step"))
        page.wait(lambda: address_of(page)["step"] == 1)
        page.run(SLIDE.replace("value = 2", "value = 1"), page.one("step"))
        page.translate("a house")  # at once: the step of the address before is still to be written
        browser.back()
        page.wait(lambda: page.text("facts") == facts)
        page.wait_for_state("shown")
        page.wait(lambda: address_of(page)["step"] == 0)
        page.all("show-head")[0].send_keys(Keys.ENTER)
        page.wait(lambda: page.run("return document.activeElement.dataset.testid") == "show-head")
        page.view("lines")
        page.click("line-row", 1)
        assert page.text("step-text") != "all steps"
        page.all("line-row")[1].send_keys(" ")
        assert page.text("step-text") == "all steps"
        broken = {"request": {"source": SENTENCE}, "view": "what_if", "heads": [0], "interventions": BROKEN}
        browser.get("about:blank")
        page = Page(browser, f"{served.address}#{quote(json.dumps(broken))}")
        page.wait(lambda: page.all("run-what-if"))
        assert [each.text for each in page.all("intervention")] == ["Make uniform cross/0, head 0 ×"]


@pytest.mark.slow
def test_what_if_offers_what_the_attention_can_do(tmp_path: Path, browser: Any) -> None:
    delta = ("attention=delta", "attention.num_heads=2", "attention@cross_attention=multihead")
    explorer = Explorer([translator_of(tmp_path, "model=transformer", *delta, *TWO_LAYERS)])
    with serving(explorer.models(), explorer.look) as served:
        page = Page(browser, served.address)
        page.translate(SENTENCE)
        page.view("what_if")
        for slot, offered in (("cross/1", ["Knock out", "Make uniform"]), ("self/1", ["Knock out"])):
            page.choose("what-slot", slot)
            assert page.run("return [...arguments[0].options].map(each => each.text)", page.one("do")) == offered


@pytest.mark.slow
def test_back_and_forward_lead_to_what_was_run(explorers: dict[str, Explorer], browser: Any) -> None:
    explorer = explorers["rnn"]
    asked: list[str] = []

    def look(request: dict[str, Any], *given: Any) -> dict[str, Any]:
        asked.append(request["source"])
        return explorer.look(request, *given)

    with serving(explorer.models(), look) as served:
        page = Page(browser, served.address)
        page.translate(SENTENCE)
        facts = page.text("facts")
        page.view("what_if")
        page.click("add-intervention")
        page.click("run-what-if")
        page.wait(lambda: page.all("after"))
        page.translate("a house")
        other = page.text("facts")
        browser.back()
        page.wait(lambda: page.text("facts") == facts)
        page.wait(lambda: page.all("after"))  # run again
        page.run(FORWARD_WHILE_BUSY)
        page.wait(lambda: page.text("facts") == other)
        assert page.text("error") == ""
        page.wait_for_state("shown")
        before = len(asked)
        page.run("location.hash = location.hash.replace('what_if', 'lines')")  # another view of what is shown
        page.wait(lambda: page.shown_view() == "lines")
        assert len(asked) == before


@pytest.mark.slow  # an explorer that is stopped is tested without a browser
def test_stop_after_back_computes_nothing_else(explorers: dict[str, Explorer], browser: Any) -> None:
    explorer = explorers["conv"]
    asked: list[str] = []
    held = Event()

    def look(request: dict[str, Any], stopped: Event) -> dict[str, Any]:
        asked.append(request["source"])
        if held.is_set():
            stopped.wait(60)
        return explorer.look(request, stopped)

    with serving(explorer.models(), look) as served:
        page = Page(browser, served.address)
        page.translate(SENTENCE)
        page.view("two_models")
        page.click("compare")
        page.wait(lambda: page.all("difference-note") and address_of(page)["ran"])
        page.translate("a house")
        facts, before = page.text("facts"), len(asked)
        held.set()
        browser.back()
        page.wait(lambda: len(asked) > before)
        page.click("stop")
        time.sleep(0.5)  # in which the two models would be compared on "a house"
        page.wait_for_state("shown")
        assert (page.text("status"), page.text("facts")) == ("Stopped", facts)
        assert asked[before:] == [SENTENCE]


@pytest.mark.slow
def test_512_tokens_are_drawn(explorers: dict[str, Explorer], browser: Any) -> None:
    """A look as the server would send it; how long it takes is no matter of a test on a busy machine."""
    tokens = [f"\u2581t{number}" for number in range(511)]
    of_side = {"text": " ".join(tokens), "tokens": [*tokens, "</s>"], "words": [*range(511), -1], "word_texts": tokens}
    weights = np.random.default_rng(0).dirichlet(np.ones(512), 512).astype("<f4")
    slot = {
        "name": "cross/0", "kind": "cross", "layer": 0, "heads": 1, "rows": 512, "columns": 512, "row_tokens": "target",
        "column_tokens": "source", "weights": b64encode(weights.tobytes()).decode(), "dtype": "float32", "hidden": None,
        "hidden_heads": None, "minimum": 0.0, "maximum": float(weights.max()), "heads_summary": [],
    }  # fmt: skip
    figures = {"token_ids": [], "log_prob": -1.0, "score": None, "token_log_probs": [], "forced": 0}
    look = {"model": 0, "notes": [], "source": of_side, "target": of_side | figures, "alternatives": [], "top": []}
    look |= {"slots": [slot], "tree": None, "seconds": 0.1}
    with serving(explorers["rnn"].models(), lambda request, stopped: look) as served:
        page = Page(browser, served.address)
        page.translate("a")
        assert float(page.run("return document.documentElement.dataset.drawMs")) > 0
        page.run("arguments[0].scrollTo(4000, 4000)", page.one("heat-view"))
        page.wait(lambda: page.run(COLOURS_INSIDE) > 20)


@pytest.mark.slow  # what the file holds is tested in test_one_file.py
def test_one_file_shows_the_same_without_a_server(
    explorers: dict[str, Explorer], served_models: dict[str, Translator], browser: Any, tmp_path: Path
) -> None:
    explorer, file = explorers["transformer"], tmp_path / "maps.html"
    write_page(file, "english.txt", {1: SENTENCE, 2: HOSTILE}, explorer.models(), explorer.look)
    (expected,) = served_models["transformer"].translate([SENTENCE])
    page = Page(browser, file.as_uri())
    page.wait_for_state("shown")
    assert page.number("facts") == pytest.approx(expected.log_prob, abs=1e-3)
    ids = [explorer.look({"model": model, "source": SENTENCE})["target"]["token_ids"] for model in (0, 1)]
    for sentence, other in ((0, 1), (1, 0), (3, 0)):  # the first sentence of either model, and the second
        page.choose("sentence", str(sentence))
        for name in VIEWS:
            if page.all(f"tab-{name}"):
                page.view(name)
        if sentence < 2:
            read = explorer.look({"model": other, "source": SENTENCE, "target_tokens": ids[sentence]})
            assert page.number("difference-note") == pytest.approx(read["target"]["log_prob"], abs=1e-3)
            assert len(page.all("heat-canvas")) == 3
    assert not page.all("tab-what_if")
    assert not page.one("ask").is_displayed()
    assert not executed(browser)
    assert requested(browser) == {file.as_uri()}


@pytest.mark.slow
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
    assert not page.one("copy-address").is_displayed()  # a frame has no address of its own
    assert requested(browser) == {file.as_uri()}
    browser.switch_to.default_content()
