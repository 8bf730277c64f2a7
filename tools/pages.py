"""Open every page of the built book in a headless browser and look for what a reader would stumble over.

    python tools/pages.py                     check _build/html
    python tools/pages.py --shots FOLDER      also photograph every page, wide and narrow, light and dark
    python tools/pages.py --only api/metrics  only pages whose address contains this

Checked on every page: no errors in the console, no failed request, no request to another host, no formula left as text,
nothing that overflows at 1280 or 390 pixels, figures whose labels are at least 9 pixels high on a phone, the menu opens
on a phone, axe finds nothing but what is listed below. Checked on chapters: the link to Colab, the marks of exported
cells, no directive and no hidden cell is shown. Checked once: the search finds something, the 404 page exists and its
links work. How quiet a page is, is measured by tools/measure.py.

Needs chromium, ``pip install playwright``, and axe-core (``npm install axe-core``; say where with ``--axe``).
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from playwright.sync_api import Browser, Page

sys.path.insert(0, str(Path(__file__).resolve().parent))
from browser import NARROW, ROOT, WIDE, launch, pages, repository, serve
from measure import LABELS, label_heights, too_small

# Findings of axe that are let pass: the rule, what the element must hold to be excused, and why.
LET_PASS: dict[str, tuple[str, str]] = {
    "empty-table-header": ("mjx-container", "the head holds a formula, which is read aloud but not counted as text"),
}

OVERFLOW = """() => {
  const width = document.documentElement.clientWidth;
  if (document.documentElement.scrollWidth <= width + 1) return [];
  const scrolls = (node) => {
    for (let up = node.parentElement; up; up = up.parentElement) {
      if (up === document.body) return false;
      if (["auto", "scroll", "hidden"].includes(getComputedStyle(up).overflowX)) return true;
    }
    return false;
  };
  return [...document.querySelectorAll("article *")]
    .filter((node) => node.getBoundingClientRect().right > width + 1 && !scrolls(node))
    .slice(0, 5)
    .map((node) => node.tagName + "." + node.className + ": " + node.textContent.slice(0, 60));
}"""


UNSET = "() => [...document.querySelectorAll('.math')].some((node) => !node.querySelector('mjx-container'))"


class Visit:
    """One page, opened in one size and mode, with everything that went wrong on it."""

    def __init__(self, browser: Browser, address: str, size: dict[str, int], mode: str) -> None:
        self.problems: list[str] = []
        self.host = urlsplit(address).netloc
        context = browser.new_context(viewport=size, color_scheme=mode, reduced_motion="reduce")
        self.page: Page = context.new_page()
        self.page.on("console", self._console)
        self.page.on("pageerror", lambda error: self.problems.append(f"error: {error}"))
        self.page.on("request", self._request)
        self.page.on("response", self._response)
        self.expected = 404 if address.endswith("/no/such/page.html") else 200
        self.page.goto(address, wait_until="load")
        self.page.wait_for_load_state("networkidle")
        self.page.evaluate("() => window.MathJax?.startup?.promise")

    def _console(self, message: Any) -> None:
        if message.type in ("error", "warning") and not (self.expected == 404 and "404" in message.text):
            self.problems.append(f"console: {message.text}")

    def _request(self, request: Any) -> None:
        url = urlsplit(request.url)
        if url.scheme in ("http", "https") and url.netloc != self.host:
            self.problems.append(f"asks another host: {request.url}")

    def _response(self, response: Any) -> None:
        if response.status >= 400 and not (
            response.request.is_navigation_request() and response.status == self.expected
        ):
            self.problems.append(f"{response.status}: {response.url}")

    def close(self) -> None:
        self.page.context.close()


def axe_findings(page: Page, axe: str) -> tuple[list[str], list[str]]:
    """What axe-core says of the page, one line for each rule; and the rules that were let pass."""
    page.evaluate(axe)
    found = page.evaluate("() => axe.run(document, {resultTypes: ['violations']})")["violations"]
    lines, passed = [], []
    for rule in found:
        inside = LET_PASS.get(rule["id"], ("", ""))[0]
        nodes = [
            node for node in rule["nodes"] if not (inside and page.query_selector(f"{node['target'][0]} {inside}"))
        ]
        if nodes:
            where = f"{nodes[0]['target']} {nodes[0]['html'][:110]}"
            lines.append(f"{rule['id']} ({rule['impact']}, {len(nodes)}): {where}")
        else:
            passed.append(rule["id"])
    return lines, passed


def look_at_chapter(page: Page, name: str, url: str, branch: str) -> list[str]:
    """Whether a chapter's page shows what it should of its notebook."""
    source = ROOT / f"{name.removesuffix('.html')}.ipynb"
    if not source.exists():
        return []
    problems = []
    cells = [cell for cell in json.loads(source.read_text(encoding="utf-8"))["cells"] if cell["cell_type"] == "code"]
    sources = ["".join(cell["source"]) for cell in cells]
    colab = f"https://colab.research.google.com/github/{urlsplit(url).path.strip('/')}/blob/{branch}/{source.relative_to(ROOT)}"
    links = page.eval_on_selector_all("a[href*='colab.research']", "nodes => nodes.map(node => node.href)")
    if links != [colab]:
        problems.append(f"Colab link is {links}, expected {colab}")
    exported = sum(1 for text in sources if "#| export" in text)
    shown = page.eval_on_selector_all("div.cell.tag_export[data-module^='transformer_lib.']", "nodes => nodes.length")
    if shown != exported:
        problems.append(f"{shown} cells are marked as exported, the notebook exports {exported}")
    if exported:
        badge = page.eval_on_selector("div.cell.tag_export", "node => getComputedStyle(node, '::before').content")
        if "transformer_lib." not in badge:
            problems.append(f"the mark of an exported cell reads {badge}")
    text = "\n".join(page.eval_on_selector_all("div.cell_input pre", "nodes => nodes.map(node => node.textContent)"))
    for word in ("#|", "default_exp", "google.colab"):
        if word in text:
            problems.append(f"the page shows {word!r}")
    return problems


def check_page(
    browser: Browser, root: str, built: Path, name: str, axe: str, shots: Path | None
) -> tuple[list[str], set[str]]:
    """Everything about one page: its problems, and the rules of axe that were let pass."""
    url, branch, _ = repository()
    problems: list[str] = []
    excused: set[str] = set()
    for size, width in ((WIDE, 1280), (NARROW, 390)):
        for mode in ("light", "dark"):
            visit = Visit(browser, root + name, size, mode)
            if visit.page.evaluate("() => document.documentElement.dataset.theme") != mode:
                visit.problems.append(f"the page is not {mode}")
            if axe:
                lines, passed = axe_findings(visit.page, axe)
                visit.problems += [f"axe: {line}" for line in lines]
                excused.update(passed)
            visit.problems += [f"overflows: {one}" for one in visit.page.evaluate(OVERFLOW)]
            if visit.page.evaluate(UNSET):
                visit.problems.append("a formula is shown as text")
            if width == 1280 and mode == "light":
                visit.problems += look_at_chapter(visit.page, name, url, branch)
            if shots:
                file = shots / f"{name.removesuffix('.html').replace('/', '-')}-{width}-{mode}.png"
                visit.page.wait_for_timeout(400)
                visit.page.screenshot(path=file, full_page=True, animations="disabled")
            if width == 390 and mode == "light":
                heights = label_heights(visit.page.evaluate(LABELS), built)
                visit.problems += [f"a label of {one}" for one in too_small(heights)]
                visit.problems += open_menu(visit.page)
            problems += [f"{width} {mode}: {one}" for one in visit.problems]
            visit.close()
    return list(dict.fromkeys(problems)), excused


def open_menu(page: Page) -> list[str]:
    """Open the contents on a phone and follow nothing; a problem if they do not appear."""
    button = page.locator("button.primary-toggle:visible").first
    if button.count() == 0:
        return ["there is no button for the menu"]
    button.click()
    page.wait_for_timeout(400)
    if page.locator("nav.bd-links a:visible").count() < 4:
        return ["the menu does not open"]
    ground = page.evaluate("() => getComputedStyle(document.querySelector('dialog[open]')).backgroundColor")
    return [f"the page shines through the menu ({ground})"] if ground in ("transparent", "rgba(0, 0, 0, 0)") else []


def check_once(browser: Browser, root: str) -> list[str]:
    """The search, and the page for addresses that do not exist."""
    problems = []
    visit = Visit(browser, root + "search.html?q=attention", WIDE, "light")
    visit.page.wait_for_timeout(1500)
    if visit.page.locator("#search-results li").count() == 0:
        problems.append("the search finds nothing for 'attention'")
    problems += visit.problems
    visit.close()
    visit = Visit(browser, root + "no/such/page.html", WIDE, "light")
    if "nothing to attend to" not in visit.page.inner_text("body"):
        problems.append("an unknown address does not show the 404 page")
    target = visit.page.locator("nav.bd-links a").first.get_attribute("href") or ""
    status = visit.page.request.get(f"http://{visit.host}{target}" if target.startswith("/") else root + target).status
    if status != 200:
        problems.append(f"a link of the 404 page, {target}, answers {status}")
    problems += [f"404 page: {one}" for one in visit.problems]
    visit.close()
    return problems


def find_axe(given: Path | None) -> str:
    """The text of axe.min.js, from where it was said to be or from a node_modules folder; empty if there is none."""
    places = (
        [given, ROOT / "node_modules/axe-core/axe.min.js"] if given else [ROOT / "node_modules/axe-core/axe.min.js"]
    )
    for place in places:
        if place and place.is_dir():
            place = place / "axe.min.js"
        if place and place.exists():
            return place.read_text(encoding="utf-8")
    return ""


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--built", type=Path, default=ROOT / "_build" / "html", help="the built book")
    parser.add_argument("--only", default="", help="only pages whose address contains this")
    parser.add_argument("--shots", type=Path, help="folder for photographs of every page")
    parser.add_argument("--axe", type=Path, default=os.environ.get("AXE"), help="axe.min.js, or the folder it is in")
    options = parser.parse_args(arguments)
    axe = find_axe(Path(options.axe) if options.axe else None)
    if not axe:
        print("axe-core was not found: accessibility is not checked", file=sys.stderr)
    if options.shots:
        options.shots.mkdir(parents=True, exist_ok=True)
    failed = 0
    excused: dict[str, int] = {}
    with serve(options.built, repository()[2]) as root, launch() as browser:
        for name in pages(options.built, options.only):
            problems, passed = check_page(browser, root, options.built, name, axe, options.shots)
            for rule in passed:
                excused[rule] = excused.get(rule, 0) + 1
            failed += bool(problems)
            print(f"{'fails' if problems else 'ok   '} {name}", *(f"\n      {one}" for one in problems))
        if not options.only:
            problems = check_once(browser, root)
            failed += bool(problems)
            print(f"{'fails' if problems else 'ok   '} search and 404", *(f"\n      {one}" for one in problems))
    for rule, count in sorted(excused.items()):
        print(f"let pass on {count} pages: {rule}: {LET_PASS[rule][1]}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
