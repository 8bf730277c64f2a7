"""The built book in a headless browser: served as GitHub Pages serves it, and opened in Chromium."""

from __future__ import annotations

import functools
import http.server
import importlib.util
import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import yaml

if TYPE_CHECKING:
    from playwright.sync_api import Browser

ROOT = Path(__file__).resolve().parents[1]
WIDE, NARROW = {"width": 1280, "height": 900}, {"width": 390, "height": 844}


def chromium() -> str | None:
    """The path of a browser, if there is one and Playwright can drive it."""
    if importlib.util.find_spec("playwright") is None:
        return None
    return shutil.which("chromium") or shutil.which("google-chrome")


class Quiet(http.server.SimpleHTTPRequestHandler):
    """Serves the book below its prefix, and 404.html for what is not there, as GitHub Pages does."""

    prefix = "/"

    def translate_path(self, path: str) -> str:
        return super().translate_path("/" + path.removeprefix(self.prefix))

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        page = Path(self.directory) / "404.html"
        if code != 404 or not page.exists():
            super().send_error(code, message, explain)
            return
        body = page.read_bytes()
        self.send_response(404)
        self.send_header("Content-Type", "text/html; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *arguments: Any) -> None:
        pass


@contextmanager
def serve(folder: Path, prefix: str) -> Iterator[str]:
    """Serve ``folder`` on a free port; gives the address of its root."""
    handler = type("Handler", (Quiet,), {"prefix": prefix})
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(handler, directory=str(folder)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}{prefix}"
    finally:
        server.shutdown()
        server.server_close()


def repository() -> tuple[str, str, str]:
    """The repository's address and branch, and the prefix below which its pages are served."""
    config = yaml.safe_load((ROOT / "_config.yml").read_text(encoding="utf-8"))["repository"]
    return config["url"], config["branch"], f"/{urlsplit(config['url']).path.strip('/').split('/')[1]}/"


def pages(built: Path, only: str) -> list[str]:
    """Every page of the book, relative to its root."""
    found = [path.relative_to(built).as_posix() for path in (built / "book").rglob("*.html")]
    found += [
        name for name in ("404.html", "genindex.html", "py-modindex.html", "search.html") if (built / name).exists()
    ]
    return sorted(name for name in found if only in name)


@contextmanager
def launch() -> Iterator[Browser]:
    """A headless browser."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as player:
        browser = player.chromium.launch(executable_path=chromium(), args=["--no-sandbox"])
        yield browser
        browser.close()
