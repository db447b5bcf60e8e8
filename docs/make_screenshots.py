"""Take screenshots of the page: `python docs/make_screenshots.py [--model DIR] [--output DIR]`; needs Chromium.

Desktop and phone, light and dark, with the first example played, an alternative being chosen, and the insertion tree.
"""

from __future__ import annotations

import argparse
import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from playwright.sync_api import Page, sync_playwright

from kermit import Kermit
from kermit.serving.app import create_app
from kermit.serving.server import Server, listen

SIZES = {"desktop": {"width": 1100, "height": 900}, "phone": {"width": 390, "height": 844}}
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]


@contextmanager
def served(model: Path | None) -> Iterator[str]:
    """Serve a model until the block ends; yields the address."""
    server, door = Server(create_app(Kermit.from_pretrained(model))), listen("127.0.0.1", 0)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [door]})
    thread.start()
    try:
        yield f"http://127.0.0.1:{door.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join()


def open_words(page: Page) -> None:
    """Open the alternatives to the word in the middle."""
    words = page.locator("#text-y .inserted")
    words.nth(words.count() // 2).click()
    page.locator("#choices li button").first.wait_for()


def main() -> None:
    """Take the screenshots."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, help="a model's folder; the bundled one by default")
    parser.add_argument("--output", type=Path, default=Path(__file__).parent / "pictures")
    options = parser.parse_args()
    options.output.mkdir(parents=True, exist_ok=True)
    with served(options.model) as url, sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=shutil.which("chromium"), args=FLAGS)
        for device, size in SIZES.items():
            for scheme in ("light", "dark"):
                page = browser.new_page(viewport=size, color_scheme=scheme, reduced_motion="reduce")
                page.goto(url)
                page.locator("#status", has_text="Done").wait_for()
                page.screenshot(path=options.output / f"page_{device}_{scheme}.png")
                if scheme == "light":
                    open_words(page)
                    page.screenshot(path=options.output / f"page_{device}_alternatives.png")
                    page.keyboard.press("Escape")
                if device == "desktop":
                    page.get_by_role("button", name="Tree").click()
                    page.screenshot(path=options.output / f"page_{device}_{scheme}_tree.png", full_page=True)
                page.close()
        browser.close()


if __name__ == "__main__":
    main()
