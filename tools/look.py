"""Open every page of the built book in Chromium, at seven widths, light and dark.

    python tools/look.py [--axe AXE.JS] [PAGE ...]

Prints what sticks out, what the console says, what another host is asked for, and which links lead nowhere. With the
file axe.min.js of axe-core, it also prints the violations of its accessibility rules. Needs what picture.py needs.
"""

import argparse
import re
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from urllib.parse import unquote

from chapters import ROOT

sys.path.append(str(ROOT / "tests"))
from browser import launch, serve

BUILT = ROOT / "_build" / "html"
LINK = re.compile(r'\s(?:href|src)="([^":?#]*)(?:\?[^"#]*)?(?:#([^"]*))?"')
WIDTHS = (360, 390, 768, 1024, 1280, 1440, 1920)
STICKS_OUT = """() => {
  const width = document.documentElement.clientWidth;
  const clips = (one) => one && one !== document.body
    && (["auto", "scroll", "hidden", "clip"].includes(getComputedStyle(one).overflowX) || clips(one.parentElement));
  const out = [...document.querySelectorAll("article *")].filter((one) => {
    const box = one.getBoundingClientRect();
    return box.width && box.right > width + 1 && !one.closest("mjx-assistive-mml") && !clips(one.parentElement);
  });
  const more = document.scrollingElement.scrollWidth - width;
  return [...(more > 0 ? [`scrolls by ${more}`] : []),
    ...out.slice(0, 3).map((one) => `${one.tagName}.${one.className} ${one.innerText?.slice(0, 30)}`)];
}"""


@cache
def text_of(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def dead_links(page: Path) -> Iterator[str]:
    """The links of a page to files or places of the book that do not exist."""
    for address, place in set(LINK.findall(text_of(page))):
        target = (page.parent / unquote(address)).resolve() if address else page
        if target.is_file() and not place:
            continue
        if not target.is_file() or not re.search(rf'\s(?:id|name)="{re.escape(unquote(place))}"', text_of(target)):
            yield f"leads nowhere: {address}#{place}"


def look(browser: object, address: str, mode: str, axe: str) -> Iterator[str]:
    """What is wrong with a page in one mode."""
    told: list[str] = []
    page = browser.new_page(color_scheme=mode, reduced_motion="reduce")
    page.set_default_timeout(300_000)
    page.on("console", lambda one: told.append(one.text) if one.type in ("warning", "error") else None)
    page.on("pageerror", lambda error: told.append(str(error)))
    page.on("request", lambda one: None if "127.0.0.1" in one.url or one.url[:5] == "data:" else told.append(one.url))
    page.goto(address, wait_until="networkidle")
    for width in WIDTHS:
        page.set_viewport_size({"width": width, "height": 900})
        page.wait_for_timeout(60)
        yield from (f"at {width}: {one}" for one in page.evaluate(STICKS_OUT))
    if axe:
        page.evaluate(axe)
        for one in page.evaluate("axe.run(document, {resultTypes: ['violations']})")["violations"]:
            yield f"{one['id']} ({one['impact']}), {len(one['nodes'])} times: {one['nodes'][0]['html'][:120]}"
    yield from told
    page.close()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("pages", nargs="*", help="such as book/index.html; default: all")
    parser.add_argument("--axe", type=Path, help="the file axe.min.js")
    options = parser.parse_args()
    axe = options.axe.read_text(encoding="utf-8") if options.axe else ""
    pages = [path for path in sorted(BUILT.rglob("*.html")) if path.name != "404.html"]  # it expects its later address
    built, wrong = [path for path in pages if "</head>" in text_of(path)], 0
    with serve(BUILT) as address, launch() as browser:
        for path in [BUILT / name for name in options.pages] or built:
            name = path.relative_to(BUILT).as_posix()
            problems = [*dead_links(path)]
            for mode in ("light", "dark"):
                problems += (f"{mode}, {one}" for one in look(browser, address + name, mode, axe))
            print(*(f"{name}: {one}" for one in problems or ["ok"]), sep="\n", flush=True)
            wrong += bool(problems)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
