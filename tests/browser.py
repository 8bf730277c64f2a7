"""Chromium without a window, and a server for a folder."""

import functools
import http.server
import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

NARROW = {"width": 390, "height": 844}


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *arguments: Any) -> None:
        pass


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


@contextmanager
def launch() -> Iterator[Any]:
    """A browser; the test is skipped where there is none."""
    api = pytest.importorskip("playwright.sync_api")
    program = shutil.which("chromium") or shutil.which("google-chrome")
    if program is None:
        pytest.skip("there is no Chromium")
    with api.sync_playwright() as player:
        browser = player.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield browser
        browser.close()
