"""A headless Chromium that looks at the page of a run: for the benchmark of the page and for its tests."""

from __future__ import annotations

import json
import shutil
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self, TypeVar

from selenium import webdriver
from selenium.webdriver.common.by import By
from selenium.webdriver.remote.webelement import WebElement

Found = TypeVar("Found")

PATIENCE_S = 300.0  # for a machine that does other things, too: Spark alone may take minutes to start there
_BROWSERS = ("chromium", "chromium-browser", "google-chrome")
_DRIVER = "chromedriver"
_FLAGS = (
    "--headless",
    "--no-sandbox",  # it may run as root, and only ever sees pages of this machine
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",  # containers often have very little of it
)
_TRACED = "devtools.timeline,disabled-by-default-devtools.timeline"
_TEXT = """
const found = document.querySelector(arguments[0]);
return found?.checkVisibility() ? found.innerText : "";
"""


def missing_browser() -> str | None:
    """What of the browser is not installed, and how to get it; None where it is all there."""
    if _browser() is None:
        return "no Chromium is installed: `make test-tools`, or apt-get install chromium chromium-driver"
    if shutil.which(_DRIVER) is None:
        return "no chromedriver is installed: `make test-tools`, or apt-get install chromium-driver"
    return None


def _browser() -> str | None:
    return next((found for name in _BROWSERS if (found := shutil.which(name))), None)


class Browser:
    """`with Browser(folder) as browser:` one window; whatever it keeps goes into the folder.

    One that is traced tells of every task, which is too much to keep for long.
    """

    def __init__(self, folder: Path, *, width: int = 1280, height: int = 900, traced: bool = False) -> None:
        self._folder = folder
        self._size = (width, height)
        self._traced = traced

    def __enter__(self) -> Self:
        options = webdriver.ChromeOptions()
        options.binary_location = str(_browser())
        for flag in (*_FLAGS, f"--user-data-dir={self._folder}"):
            options.add_argument(flag)
        options.set_capability(
            "goog:loggingPrefs", {"browser": "ALL"} | ({"performance": "ALL"} if self._traced else {})
        )
        if self._traced:
            options.add_experimental_option("perfLoggingPrefs", {"traceCategories": _TRACED})
        # the driver is named, or Selenium would look for one in the network
        self.driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(shutil.which(_DRIVER)))
        self.resize(*self._size)
        return self

    def __exit__(self, *_: object) -> None:
        self.driver.quit()

    # What a reader does

    def open(self, url: str) -> None:
        self.driver.get(url)

    def resize(self, width: int, height: int = 900) -> None:
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)

    def prefer(self, scheme: str) -> None:
        """As the system's setting would: light or dark."""
        wanted = {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", wanted)

    def find(self, selector: str) -> WebElement:
        return self.wait(lambda: next(iter(self.all(selector)), None), f"there is something at {selector}")

    def all(self, selector: str) -> list[WebElement]:
        return self.driver.find_elements(By.CSS_SELECTOR, selector)

    def text(self, selector: str) -> str:
        """As it is written, wherever the page is scrolled to; nothing where it is hidden."""
        return str(self.run(_TEXT, selector))

    def click(self, selector: str) -> None:
        found = self.find(selector)
        self.wait(found.is_displayed, f"what is at {selector} is shown")
        found.click()

    def run(self, script: str, *given: object) -> Any:
        return self.driver.execute_script(script, *given)

    def wait(self, look: Callable[[], Found | None], what: str) -> Found:
        """Until it is there and not false."""
        deadline_s = time.monotonic() + PATIENCE_S
        while not (found := look()):
            assert time.monotonic() < deadline_s, (
                f"not in time: {what}; the page says: {self.text('body')[:2_000]}"
            )
            time.sleep(0.05)
        return found

    # What is measured

    def wait_until_drawn(self) -> float:
        """Milliseconds from the click on the link until everything was drawn."""
        self.wait(lambda: self.run("return document.documentElement.dataset.drawn"), "everything is drawn")
        return float(self.run("return performance.getEntriesByName('drawn')[0].startTime"))

    def leave_and_tell_tasks(self) -> list[float]:
        """The processor time of each task of the page that is left, in milliseconds: what else the machine does is
        not ours. Only of a browser that is traced, which writes it down when a page is left."""
        self.open("about:blank")
        log = self.driver.get_log("performance")  # type: ignore[no-untyped-call]
        told = [json.loads(entry["message"])["message"] for entry in log]
        traced = [message["params"] for message in told if message["method"] == "Tracing.dataCollected"]
        (thread, _), *_ = Counter((t["pid"], t["tid"]) for t in traced if t["name"] == "Layout").most_common(1)
        tasks = (t for t in traced if t["name"] == "RunTask" and (t["pid"], t["tid"]) == thread)
        return [task["tdur"] / 1e3 for task in tasks if "tdur" in task]

    def heap_bytes(self) -> int:
        """What the page keeps, after the garbage was collected."""
        self.driver.execute_cdp_cmd("HeapProfiler.collectGarbage", {})
        return int(self.driver.execute_cdp_cmd("Runtime.getHeapUsage", {})["usedSize"])

    def elements(self) -> int:
        return int(self.driver.execute_cdp_cmd("Memory.getDOMCounters", {})["nodes"])

    def complaints(self) -> list[str]:
        """What the console says of the page since the last call: errors, refused scripts and styles.

        That a server has ended is none of them: tests end theirs while the page is open.
        """
        found = self.driver.get_log("browser")  # type: ignore[no-untyped-call]
        bad = [entry["message"] for entry in found if entry["level"] in ("SEVERE", "WARNING")]
        return [message for message in bad if "net::ERR_" not in message]
