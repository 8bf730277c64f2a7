"""Chromium without a window, and a server for a folder."""

import functools
import http.server
import shutil
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

NARROW = {"width": 390, "height": 844}
PATIENCE = 120_000  # milliseconds for a page with every figure of the book, on a busy machine

DARK = ":root { --pst-color-background: #14181e; --pst-color-text-base: #ced6dd; } body { background: #14181e }"


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *arguments: Any) -> None:
        pass


def write_pages(folder: Path, body: str) -> Path:
    """Pages that hold a figure, light.html and dark.html."""
    for mode, style in (("light", ""), ("dark", DARK)):
        head = f'<!doctype html><html lang="en" data-theme="{mode}"><meta charset="utf-8"><title>t</title>'
        head += f'<meta name="viewport" content="width=device-width"><style>{style}</style>'
        (folder / f"{mode}.html").write_text(f"{head}<body>{body}</body></html>", encoding="utf-8")
    return folder


@contextmanager
def serve(folder: Path) -> Iterator[str]:
    """The address of a folder on a free port."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(folder)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/"
    finally:
        server.shutdown()
        server.server_close()


def chromium(player: Any) -> str | None:
    """The machine's own Chromium, or else the one that playwright has installed."""
    found = [*filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome")))]
    own = player.chromium.executable_path
    return found[0] if found else own if Path(own).exists() else None


@contextmanager
def launch() -> Iterator[Any]:
    """A browser; the test is skipped where there is none."""
    with pytest.importorskip("playwright.sync_api").sync_playwright() as player:
        program = chromium(player)
        if program is None:
            pytest.skip("there is no Chromium: python -m playwright install chromium")
        browser = player.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield browser
        browser.close()


@contextmanager
def visitor(browser: Any) -> Iterator[Callable[..., Any]]:
    """A function that opens an address for a new reader, without motion; in the end, nothing may have gone wrong.

    ``problems`` of a page are its errors, what the console says, and what it asks of other hosts; ``asked`` is what it
    has asked for since it was there.
    """
    pages = []

    def visit(address: str, **options: Any) -> Any:
        page = browser.new_context(**{"reduced_motion": "reduce", **options}).new_page()
        page.set_default_timeout(PATIENCE)
        page.problems, page.asked = [], []
        here = address.partition("#")[0].rsplit("/", 1)[0]

        def note(request: Any) -> None:
            page.asked.append(request.url)
            if not request.url.startswith((here, "data:", "about:", "blob:")):
                page.problems.append(request.url)

        page.on("console", lambda message: page.problems.append(message.text))
        page.on("pageerror", lambda error: page.problems.append(str(error)))
        page.on("request", note)
        page.goto(address)
        page.asked.clear()
        pages.append(page)
        return page

    yield visit
    for page in pages:
        page.context.close()
    problems = [problem for page in pages for problem in page.problems]
    assert problems == [], problems


if __name__ == "__main__":  # where the browser is; an error where there is none
    from playwright.sync_api import sync_playwright

    with sync_playwright() as player:
        sys.exit(print(place) if (place := chromium(player)) else 1)
