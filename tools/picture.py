"""Photograph the translator of the built first page for the README, light and dark: python tools/picture.py.

Needs chromium and ``pip install playwright``.
"""

from __future__ import annotations

import functools
import http.server
import shutil
import threading

from chapters import ROOT
from playwright.sync_api import sync_playwright


def main() -> None:
    """Serve the book, open it in both modes, and keep what the widget looks like."""
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=str(ROOT / "_build" / "html"))
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    with sync_playwright() as player:
        browser = player.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        for mode in ("light", "dark"):
            page = browser.new_page(
                viewport={"width": 1100, "height": 900}, color_scheme=mode, reduced_motion="reduce", device_scale_factor=2  # noqa: E501
            )
            page.goto(f"http://127.0.0.1:{server.server_port}/book/index.html", wait_until="networkidle")
            page.locator(".tl-translator").screenshot(path=ROOT / "book" / "_static" / f"translator-{mode}.png")
        browser.close()
    server.shutdown()


if __name__ == "__main__":
    main()
