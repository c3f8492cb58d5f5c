"""A browser of the system, and what the tests do with the explorer's page in it, by its test ids."""

from __future__ import annotations

import json
import re
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, final

from selenium import webdriver
from selenium.common.exceptions import StaleElementReferenceException
from selenium.webdriver.common.by import By
from selenium.webdriver.support.wait import WebDriverWait

ARGUMENTS = (
    "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--window-size=1280,1000",
    "--no-first-run", "--disable-background-networking", "--disable-component-update", "--lang=en",
)  # fmt: skip
RUN = "window.run = () => { window.wasRun = true; };"  # what hostile texts would call


def start_browser(downloads: Path) -> Any:
    """Return headless Chromium; None where there is none."""
    program, driver = shutil.which("chromium") or shutil.which("google-chrome"), shutil.which("chromedriver")
    if program is None or driver is None:
        return None
    options = webdriver.ChromeOptions()
    options.binary_location = program
    for argument in ARGUMENTS:
        options.add_argument(argument)
    several = "profile.default_content_setting_values.automatic_downloads"  # downloads without a question
    options.add_experimental_option("prefs", {"download.default_directory": str(downloads), several: 1})
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    browser: Any = webdriver.Chrome(options, webdriver.ChromeService(driver))
    browser.downloads = downloads
    browser.execute_cdp_cmd("Page.addScriptToEvaluateOnNewDocument", {"source": RUN})
    return browser


def console(browser: Any) -> list[str]:
    """Return what the console has shown since it was last asked."""
    return [f"{entry['level']}: {entry['message']}" for entry in browser.get_log("browser")]


def requested(browser: Any) -> set[str]:
    """Return the addresses that the page has asked for since the last call, without data in the address itself."""
    messages = [json.loads(entry["message"])["message"] for entry in browser.get_log("performance")]
    addresses = {m["params"]["request"]["url"] for m in messages if m["method"] == "Network.requestWillBeSent"}
    return {address for address in addresses if not address.startswith(("data:", "blob:"))}


def downloaded(browser: Any) -> dict[str, bytes]:
    """Return the files that the page has saved, by name, and remove them."""
    files = {file.name: file.read_bytes() for file in browser.downloads.iterdir()}
    for name in files:
        (browser.downloads / name).unlink()
    return files


def executed(browser: Any) -> bool:
    """Return whether a text that calls `run()` was executed."""
    assert browser.execute_script("return typeof window.run") == "function"
    return bool(browser.execute_script("return window.wasRun"))


@final
class Page:
    """The explorer's page, open in a browser.

    Args:
        address: to open; None: the page is open.
    """

    def __init__(self, browser: Any, address: str | None = None) -> None:
        self.browser = browser
        if address is not None:
            browser.get(address)
        self.wait_for_state("ready", "shown")

    def wait_for_state(self, *states: str) -> None:
        """Wait until the page is in one of these states."""
        self.wait(lambda: self.run("return document.documentElement.dataset.state") in states)

    def wait(self, condition: Callable[[], Any]) -> None:
        """Wait for the condition; the page may draw an element anew while it is read."""
        drawn_anew = [StaleElementReferenceException]
        WebDriverWait(self.browser, 60, 0.02, ignored_exceptions=drawn_anew).until(lambda _: condition())

    def all(self, test_id: str) -> list[Any]:
        return self.browser.find_elements(By.CSS_SELECTOR, f'[data-testid="{test_id}"]')

    def one(self, test_id: str) -> Any:
        found = self.all(test_id)
        assert found, f"there is no {test_id}"
        return found[0]

    def text(self, test_id: str) -> str:
        return self.one(test_id).text

    def number(self, test_id: str) -> float:
        """Return the first number of a text."""
        found = re.search(r"[-−]?\d+\.\d+", self.text(test_id))
        assert found, f"{test_id} has no number: {self.text(test_id)}"
        return float(found[0].replace("−", "-"))

    def click(self, test_id: str, number: int = 0) -> None:
        element = self.all(test_id)[number]
        self.run("arguments[0].scrollIntoView({block: 'center'})", element)
        element.click()

    def write(self, test_id: str, text: str) -> None:
        """Set the text of a field at once, which typing would do letter by letter."""
        self.run("arguments[0].value = arguments[1]", self.one(test_id), text)

    def choose(self, test_id: str, value: str) -> None:
        """Choose from a list."""
        change = "arguments[0].value = arguments[1]; arguments[0].dispatchEvent(new Event('change'))"
        self.run(change, self.one(test_id), value)

    def set_step(self, step: int) -> None:
        """Move the slider of decoding steps."""
        change = "arguments[0].value = arguments[1]; arguments[0].dispatchEvent(new Event('input'))"
        self.run(change, self.one("step"), step)

    def reload(self) -> None:
        """Load the page's address again, which the last change reaches after 0.3 seconds."""
        time.sleep(0.4)
        self.browser.refresh()
        self.wait_for_state("shown")

    def view(self, name: str) -> None:
        """Open a view by its tab."""
        self.click(f"tab-{name}")
        self.wait(lambda: self.shown_view() == name)

    def shown_view(self) -> str:
        return self.one("panel").get_attribute("data-view")

    def translate(self, text: str) -> None:
        self.write("source", text)
        self.click("translate")
        self.answered()

    def answered(self) -> None:
        """Wait for the answer to the request that an action has sent at once."""
        self.wait_for_state("shown")
        assert self.text("error") == ""

    def run(self, script: str, *arguments: Any) -> Any:
        return self.browser.execute_script(script, *arguments)
