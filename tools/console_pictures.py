"""The pictures of the console in docs/: taken by a real browser of a real console, and made small.

python -m tools.console_pictures
"""

from __future__ import annotations

import io
import tempfile
import threading
import time
from pathlib import Path

from PIL import Image
from playwright.sync_api import Page, ViewportSize

import kourou
from tests.console.browser import running_browser
from tests.console.cluster import PASSWORD, Running, fill, first_login, running_console

FOLDER = Path("docs/pictures")
COLOURS = 96
WIDE = ViewportSize(width=1120, height=700)
PHONE = ViewportSize(width=390, height=760)
TRAFFIC_SECONDS = 45


def main() -> None:
    FOLDER.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder, running_console(Path(folder) / "console") as console:
        fill(console.name_server)
        first_login(console)
        stop = threading.Event()
        sender = threading.Thread(target=some_traffic, args=(console.name_server, stop))
        sender.start()
        try:
            with running_browser() as browser:
                wide = browser.new_page(
                    viewport=WIDE, base_url=console.url, locale="en-GB", color_scheme="light"
                )
                log_in(wide)
                deadline = time.monotonic() + TRAFFIC_SECONDS
                while time.monotonic() < deadline:
                    wide.goto("/")
                    wide.wait_for_timeout(5000)
                take(wide, "console-overview")
                take_all(wide, console)
                phone = browser.new_page(
                    viewport=PHONE, base_url=console.url, locale="en-GB", color_scheme="dark"
                )
                log_in(phone)
                take(phone, "console-phone")
        finally:
            stop.set()
            sender.join()


def some_traffic(name_server: str, stop: threading.Event) -> None:
    with kourou.Producer("shop", name_server) as producer:
        number = 0
        while not stop.wait(0.02 if number % 400 < 200 else 0.005):
            number += 1
            producer.send(kourou.Message("orders", b'{"order": %d}' % number, tags="new"))


def log_in(page: Page) -> None:
    page.goto("/login")
    page.get_by_label("User").fill("admin")
    page.get_by_label("Password").fill(PASSWORD)
    page.get_by_role("button", name="Log in").click()
    page.wait_for_selector("h1:has-text('Overview')")


def take_all(page: Page, console: Running) -> None:
    page.goto("/groups/billing/reset?topic=orders&where=earliest")
    take(page, "console-reset")
    page.goto("/messages?by=key&topic=orders&key=order-3")
    page.locator("tbody a").first.click()
    take(page, "console-message")
    page.goto("/dead-letters/mailing")
    take(page, "console-dead-letters")


def take(page: Page, name: str) -> None:
    picture = Image.open(io.BytesIO(page.screenshot()))
    picture.convert("RGB").quantize(COLOURS).save(FOLDER / f"{name}.png", optimize=True)


if __name__ == "__main__":
    main()
