"""A real Chromium, driven by Playwright; the browser itself comes from the system's packages."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator
from pathlib import Path

from playwright.sync_api import Browser, Page, ViewportSize, sync_playwright

PROGRAMS = ("chromium", "chromium-browser", "google-chrome-stable", "google-chrome", "chrome")
SCREENSHOTS = Path(__file__).parents[2] / "build" / "console"
DESKTOP = ViewportSize(width=1280, height=800)
PHONE = ViewportSize(width=390, height=844)


class BrowserMissing(Exception):
    """There is no browser to test with: install the package `chromium`."""


def program() -> str:
    for name in PROGRAMS:
        if found := shutil.which(name):
            return found
    raise BrowserMissing(
        "the console is tested with a real browser, and there is none: install the package chromium "
        "(Debian and Ubuntu: apt-get install chromium)"
    )


@contextlib.contextmanager
def running_browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=program(), headless=True, args=["--no-sandbox", "--disable-dev-shm-usage"]
        )
        try:
            yield browser
        finally:
            browser.close()


def keep(page: Page, name: str) -> None:
    """A picture of the page, for a person to look at."""
    SCREENSHOTS.mkdir(parents=True, exist_ok=True)
    page.screenshot(path=SCREENSHOTS / f"{name}.jpg", full_page=True, type="jpeg", quality=80)
