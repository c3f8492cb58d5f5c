"""Take the pictures of docs/explorer.md and measure the page: `python -m explorer.take_pictures RUN GUIDED` in tests/.

RUN is a Transformer, GUIDED a run with guided alignment on captions.
"""

from __future__ import annotations

import sys
import tempfile
import time
from io import BytesIO
from pathlib import Path
from statistics import median
from threading import Event
from typing import Any

from configs import ROOT
from explorer.browser import Page, start_browser
from explorer.served import serving
from PIL import Image

from seq2seq_attn.explorer.look import Explorer
from seq2seq_attn.inference.translator import Translator

FOLDER = ROOT / "docs" / "images" / "explorer"
SENTENCE = "My brother gives the old book to the girl."
LINKED_SENTENCE = "A black dog is running through the snow."
PAINTED = "return performance.getEntriesByName('first-contentful-paint')[0]?.startTime"
TRANSLATE = """
const done = arguments[1], source = document.querySelector("[data-testid=source]"), started = performance.now();
source.value = arguments[0];
const sentences = document.querySelector("[data-testid=sentences]");
new MutationObserver((_, observer) => {
  if (document.documentElement.dataset.state !== "shown") return;
  observer.disconnect();
  requestAnimationFrame(() => setTimeout(() => done(performance.now() - started)));
}).observe(document.documentElement, { attributes: true, attributeFilter: ["data-state"] });
document.querySelector("[data-testid=translate]").click();
"""


def main(run: str, guided: str) -> None:
    FOLDER.mkdir(parents=True, exist_ok=True)
    browser = start_browser(Path(tempfile.mkdtemp()))
    assert browser is not None, "apt-get install chromium chromium-driver"
    measure_and_take(browser, Explorer([Translator.load(run, device="cpu")], [run]))
    take_links(browser, Explorer([Translator.load(guided, device="cpu")], [guided]))
    browser.quit()


def measure_and_take(browser: Any, explorer: Explorer) -> None:
    seconds: list[float] = []

    def look(request: dict, stopped: Event) -> dict:
        answer = explorer.look(request, stopped)
        seconds.append(answer["seconds"])
        return answer

    with serving(explorer.models(), look) as served:
        page = Page(browser, served.address)
        print(f"first paint: {page.run(PAINTED):.0f} ms after the address is opened")
        page.translate(SENTENCE)
        over = []
        for _ in range(10):
            page.browser.set_script_timeout(30)
            elapsed = page.browser.execute_async_script(TRANSLATE, SENTENCE)
            over.append(elapsed - 1000 * seconds[-1])
            time.sleep(0.2)
        own, extra = 1000 * median(seconds), median(over)
        print(f"a translation is shown {extra:.0f} ms after the {own:.0f} ms that the model takes (medians of 10)")
        page.run("document.documentElement.dataset.theme = 'light'")
        for view, height in (("map", 1000), ("grid", 900), ("search", 820)):
            if view == "search":
                page.run("document.querySelector('[data-testid=search-details]').open = true")
                page.choose("search", "beam")
                page.translate(SENTENCE)
            page.view(view)
            if view == "map":
                page.click("level-tokens")
                page.set_step(4)
            take(page, view, height)


def take_links(browser: Any, explorer: Explorer) -> None:
    with serving(explorer.models(), explorer.look) as served:
        page = Page(browser, served.address)
        page.run("document.documentElement.dataset.theme = 'light'")
        page.translate(LINKED_SENTENCE)
        page.click("links-default")
        take(page, "links", 1140)


def take(page: Page, name: str, height: int) -> None:
    page.browser.set_window_size(1180, height)
    page.run("document.querySelector('[data-testid=sentences]').scrollIntoView()")
    time.sleep(0.3)
    picture = Image.open(BytesIO(page.browser.get_screenshot_as_png())).convert("RGB")
    picture.quantize(96).save(FOLDER / f"{name}.png", optimize=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
