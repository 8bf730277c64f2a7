"""Open every page of the built book in a headless browser and look for what a reader would stumble over.

    python tools/pages.py                     check _build/html
    python tools/pages.py --shots FOLDER      also photograph every page, wide and narrow, light and dark
    python tools/pages.py --only api/metrics  only pages whose address contains this

Checked on every page, at 1280 and 390 pixels, light and dark: no error in the console, no failed request, no request to
another host, no formula left as text, nothing wider than the page, no code that scrolls sideways, the menu opens on a
phone, and axe finds nothing. Needs chromium, ``pip install playwright``, and axe-core (``npm install axe-core``).
"""

from __future__ import annotations

import argparse
import functools
import http.server
import shutil
import sys
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
AXE = ROOT / "node_modules" / "axe-core" / "axe.min.js"
SIZES = {1280: {"width": 1280, "height": 900}, 390: {"width": 390, "height": 844}}
NO_BROWSER = 2  # the exit status where there is none

LOOK = """() => {
  const found = [], width = document.documentElement.clientWidth;
  const scrolls = (node) => ["auto", "scroll", "hidden"].includes(getComputedStyle(node).overflowX);
  const inside = (node) => node && node !== document.body && (scrolls(node) || inside(node.parentElement));
  for (const node of document.querySelectorAll("article *"))
    if (node.getBoundingClientRect().right > width + 1 && !inside(node.parentElement))
      found.push("wider than the page: " + node.tagName + " " + node.textContent.slice(0, 60));
  if (width > 1000)
    for (const node of document.querySelectorAll("article div.highlight pre"))
      if (node.scrollWidth > node.clientWidth + 1) found.push("code scrolls: " + node.textContent.slice(0, 60));
  if ([...document.querySelectorAll(".math")].some((node) => !node.querySelector("mjx-container")))
    found.push("a formula is shown as text");
  return found.slice(0, 8);
}"""


@contextmanager
def serve(folder: Path, prefix: str) -> Iterator[str]:
    """Serve a folder below a prefix, as GitHub Pages does; gives the address of its root."""

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def translate_path(self, path: str) -> str:
            return super().translate_path("/" + path.removeprefix(prefix))

        def log_message(self, *arguments: Any) -> None:
            pass

    handler = functools.partial(Quiet, directory=str(folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}{prefix}"
        server.shutdown()


def foreign(url: str, host: str) -> bool:
    """Whether an address is on another host."""
    return urlsplit(url).scheme in ("http", "https") and urlsplit(url).netloc != host


def check(browser: Browser, address: str, width: int, mode: str, shot: Path | None) -> list[str]:
    """Everything wrong with one page in one size and one mode."""
    problems: list[str] = []
    host = urlsplit(address).netloc
    context = browser.new_context(viewport=SIZES[width], color_scheme=mode, reduced_motion="reduce")
    page = context.new_page()
    page.on("console", lambda said: problems.append(said.text) if said.type in ("error", "warning") else None)
    page.on("pageerror", lambda error: problems.append(f"error: {error}"))
    page.on("response", lambda one: problems.append(f"{one.status}: {one.url}") if one.status >= 400 else None)
    page.on("request", lambda one: problems.append(f"asks {one.url}") if foreign(one.url, host) else None)
    page.goto(address, wait_until="networkidle")
    page.evaluate("() => window.MathJax?.startup?.promise")
    problems += page.evaluate(LOOK)
    if AXE.exists():
        page.evaluate(AXE.read_text(encoding="utf-8"))
        rules = page.evaluate("() => axe.run(document, {resultTypes: ['violations']})")["violations"]
        problems += [f"axe: {rule['id']}: {rule['nodes'][0]['html'][:110]}" for rule in rules]
    if shot:
        page.screenshot(path=shot, full_page=True, animations="disabled")
    if width < 1000 and page.locator("button.primary-toggle:visible").count():
        page.locator("button.primary-toggle:visible").first.click()
        page.wait_for_timeout(400)
        if page.locator("nav.bd-links a:visible").count() < 4:
            problems.append("the menu does not open")
    context.close()
    return [f"{width} {mode}: {one}" for one in problems]


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--built", type=Path, default=ROOT / "_build" / "html", help="the built book")
    parser.add_argument("--only", default="", help="only pages whose address contains this")
    parser.add_argument("--shots", type=Path, help="folder for photographs of every page")
    options = parser.parse_args(arguments)
    program = shutil.which("chromium") or shutil.which("google-chrome")
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        program = None
    if program is None:
        print("no browser: the pages were not looked at", file=sys.stderr)
        return NO_BROWSER
    if options.shots:
        options.shots.mkdir(parents=True, exist_ok=True)
    url = yaml.safe_load((ROOT / "_config.yml").read_text(encoding="utf-8"))["repository"]["url"]
    names = [path.relative_to(options.built).as_posix() for path in (options.built / "book").rglob("*.html")]
    failed = 0
    with serve(options.built, f"/{url.rpartition('/')[2]}/") as root, sync_playwright() as player:
        browser = player.chromium.launch(executable_path=program, args=["--no-sandbox"])
        for name in sorted(name for name in names if options.only in name):
            problems = []
            for width in SIZES:
                for mode in ("light", "dark"):
                    shot = f"{name.removesuffix('.html').replace('/', '-')}-{width}-{mode}.png"
                    problems += check(browser, root + name, width, mode, options.shots and options.shots / shot)
            failed += bool(problems)
            print(f"{'fails' if problems else 'ok   '} {name}", *(f"\n      {one}" for one in dict.fromkeys(problems)))
        browser.close()
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
