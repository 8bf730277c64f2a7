"""How quiet is each page? Measured on the built book, in a headless browser, as a reader sees it.

    python tools/measure.py                 every page that a notebook makes, one line each
    python tools/measure.py --only 04       only pages whose address contains this
    python tools/measure.py --check         fail on a visible `raise`, on what scrolls sideways, on a missing link

Columns: height in screens of 900 px at 1280 px; words of prose; lines of code that show without unfolding anything;
words for each of them; the longest open block; where the first output or figure stands, in screens; visible `raise`
lines; blocks, outputs and formulas wider than their box at 1280 px; mentions of chapters that are no links; and the
height of the smallest label of a figure at 390 px.

Needs chromium and ``pip install playwright``; without them it says so and exits with 2.
"""

from __future__ import annotations

import argparse
import re
import struct
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "book" / "_ext"))
sys.path.insert(0, str(Path(__file__).resolve().parent))
from book_chapters import label_of
from book_mentions import pieces
from browser import NARROW, ROOT, WIDE, chromium, launch, pages, repository, serve

if TYPE_CHECKING:
    from playwright.sync_api import Browser

RAISES_ARE_THE_SUBJECT = "appendix/refusing_bad_input"
FONT = 11  # points: the smallest size of viz.use_style
SMALLEST_LABEL = 9  # pixels, at 390
SCREEN = WIDE["height"]
NOTHING_MEASURED = 2  # the exit status where there is no browser

LOOK = """() => {
  const seen = (node) => node.checkVisibility({visibilityProperty: true, contentVisibilityAuto: true})
    && node.getBoundingClientRect().height > 2;
  const all = (selector) => [...document.querySelectorAll(selector)].filter(seen);
  const top = (node) => node.getBoundingClientRect().top + scrollY;
  const blocks = all("article div.highlight pre").filter((node) => !node.closest(".cell_output"));
  const height = (node) => {
    const style = getComputedStyle(node), line = parseFloat(style.lineHeight);
    const box = node.clientHeight - parseFloat(style.paddingTop) - parseFloat(style.paddingBottom);
    return Math.round(box / line);
  };
  const lines = (node) => {  // the lines that show: text inside what is folded is left out
    const walker = document.createTreeWalker(node, NodeFilter.SHOW_TEXT);
    let text = "";
    while (walker.nextNode()) {
      const folded = walker.currentNode.parentElement.closest("details:not([open])");
      const head = walker.currentNode.parentElement.closest("summary");
      if (!folded || head || !node.contains(folded)) text += walker.currentNode.data;
    }
    return text.split("\\n");
  };
  const prose = all("article :is(p, li, figcaption, td, dd)")
    .filter((node) => !node.querySelector("p"))
    .filter((node) => !node.closest("pre, .page-facts, .built-in, nav, .cell_output p"));
  const wide = all("article :is(div.highlight pre, .cell_output pre, .cell_output .text_html, mjx-container[display])")
    .filter((node) => node.scrollWidth > node.clientWidth + 1)
    .map((node) => (node.textContent.trim() || node.parentElement.id || "a formula").split("\\n")
      .reduce((one, other) => (other.length > one.length ? other : one)).slice(0, 90));
  const first = all("article .cell_output, article figure")[0];
  const loose = [];
  // Sphinx's own pages, such as the search, may have no article.
  const article = document.querySelector("article") ?? document.createElement("article");
  const walker = document.createTreeWalker(article, NodeFilter.SHOW_TEXT);
  const excused = "a, :is(h1, h2, h3, h4), dt, summary, .admonition-title, code, pre, svg, .text_html, .plain";
  while (walker.nextNode()) {
    if (!walker.currentNode.parentElement.closest(excused)) loose.push(walker.currentNode.data);
  }
  return {
    tall: document.documentElement.scrollHeight,
    words: prose.reduce((sum, node) => sum + node.innerText.split(/\\s+/).filter(Boolean).length, 0),
    lines: blocks.reduce((sum, node) => sum + height(node), 0),
    longest: Math.max(0, ...blocks.map(height)),
    first: first ? top(first) : null,
    raises: blocks.flatMap(lines).filter((line) => /^\\s*raise\\b/.test(line)).map((line) => line.trim()),
    wide, loose,
  };
}"""

LABELS = """() => {
  const found = [];
  for (const text of document.querySelectorAll("article svg text")) {
    const scale = text.getScreenCTM();
    if (scale && text.getBoundingClientRect().height) {
      const pixels = parseFloat(getComputedStyle(text).fontSize) * Math.hypot(scale.a, scale.b);
      found.push({pixels, what: text.textContent});
    }
  }
  for (const image of document.querySelectorAll("article .cell_output img")) {
    const style = getComputedStyle(image);
    const width = image.clientWidth - parseFloat(style.paddingLeft) - parseFloat(style.paddingRight);
    const code = image.closest(".cell")?.querySelector(".cell_input")?.textContent ?? "";
    const caption = image.closest("figure")?.querySelector(".caption-number")?.textContent ?? "a picture";
    found.push({source: image.currentSrc, width, natural: image.naturalWidth, code, what: caption.trim()});
  }
  return found;
}"""


@dataclass
class Measured:
    """What was found on one page."""

    name: str
    screens: float = 0.0
    words: int = 0
    lines: int = 0
    longest: int = 0
    first: float | None = None
    raises: list[str] = field(default_factory=list)
    wide: list[str] = field(default_factory=list)
    unlinked: list[str] = field(default_factory=list)
    label: float | None = None

    @property
    def ratio(self) -> float:
        """Words for each visible line of code."""
        return self.words / max(1, self.lines)

    @property
    def faults(self) -> list[str]:
        """What `--check` fails on."""
        return [
            *(f"a visible raise: {line}" for line in self.raises),
            *(f"wider than its box at {WIDE['width']} px: {line}" for line in self.wide),
            *(f"no link: {words!r}" for words in self.unlinked),
        ]

    def row(self) -> str:
        first = "-" if self.first is None else f"{self.first:.1f}"
        label = "-" if self.label is None else f"{self.label:.1f}"
        return (
            f"{self.name:40.40}{self.screens:8.1f}{self.words:7}{self.lines:7}{self.ratio:8.1f}{self.longest:9}"
            f"{first:>7}{len(self.raises):7}{len(self.wide):6}{len(self.unlinked):9}{label:>7}"
        )


HEAD = (
    f"{'page':40}{'screens':>8}{'words':>7}{'lines':>7}{'w/line':>8}{'longest':>9}"
    f"{'first':>7}{'raise':>7}{'wide':>6}{'unlinked':>9}{'label':>7}"
)


def resolution(png: Path) -> float:
    """The dots per inch that a PNG says it has; 144, as the book's figures, if it says nothing."""
    data = png.read_bytes()
    place = data.find(b"pHYs")
    return struct.unpack(">I", data[place + 4 : place + 8])[0] * 0.0254 if place > 0 else 144.0


def points(code: str) -> float:
    """The smallest font size that a figure's cell declares, in points, or that of the book's style."""
    declared = [float(size) for size in re.findall(r"\b(?:fontsize|labelsize|size)=(\d+(?:\.\d+)?)\b", code)]
    return min([FONT, *declared])


def label_heights(found: list[dict[str, Any]], built: Path) -> list[tuple[float, str]]:
    """The height in pixels of the labels of a page's figures, as far as it can be computed."""
    heights = []
    for one in found:
        if "pixels" in one:
            heights.append((one["pixels"], one["what"]))
            continue
        path = built / "_images" / one["source"].rpartition("/")[2]
        if path.suffix == ".png" and path.exists() and one["natural"]:
            inches = one["natural"] / resolution(path)
            heights.append((points(one["code"]) / 72 * one["width"] / inches, one["what"]))
    return heights


def too_small(heights: list[tuple[float, str]]) -> list[str]:
    """The labels that cannot be read on a phone."""
    return [f"{what}: {height:.1f} px" for height, what in heights if height < SMALLEST_LABEL]


def unlinked(texts: list[str], own: str | None) -> list[str]:
    """The mentions of other chapters in texts that are not links."""
    found = [words for text in texts for words, number in pieces(text) if number and number != own]
    return [" ".join(words.split()) for words in found]


def measure(browser: Browser, root: str, name: str, built: Path) -> Measured:
    """One page, at 1280 and at 390 pixels."""
    file = name.removesuffix(".html")
    page = browser.new_page(viewport=WIDE, reduced_motion="reduce")
    page.goto(root + name, wait_until="load")
    page.evaluate("() => Promise.all([document.fonts.ready, window.MathJax?.startup?.promise])")
    found = page.evaluate(LOOK)
    page.set_viewport_size(NARROW)
    page.wait_for_timeout(100)
    heights = label_heights(page.evaluate(LABELS), built)
    page.close()
    return Measured(
        name=file.removeprefix("book/"),
        screens=found["tall"] / SCREEN,
        words=found["words"],
        lines=found["lines"],
        longest=found["longest"],
        first=None if found["first"] is None else found["first"] / SCREEN,
        raises=[] if file.endswith(RAISES_ARE_THE_SUBJECT) else found["raises"],
        wide=found["wide"],
        unlinked=unlinked(found["loose"], label_of(file)),
        label=min((height for height, _ in heights), default=None),
    )


@contextmanager
def opened(built: Path) -> Iterator[tuple[Browser, str]]:
    """A browser, and the address at which the built book is served to it."""
    with serve(built, repository()[2]) as root, launch() as browser:
        yield browser, root


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--built", type=Path, default=ROOT / "_build" / "html", help="the built book")
    parser.add_argument("--only", default="", help="only pages whose address contains this")
    parser.add_argument("--check", action="store_true", help="name every fault and fail if there is one")
    options = parser.parse_args(arguments)
    if not chromium():
        print("measure: Chromium or Playwright was not found, so no page was measured", file=sys.stderr)
        return NOTHING_MEASURED
    wanted = [name for name in pages(options.built, options.only) if options.check or label_of(name[: -len(".html")])]
    found = []
    print(HEAD)
    with opened(options.built) as (browser, root):
        for name in wanted:
            found.append(measure(browser, root, name, options.built))
            print(found[-1].row(), flush=True)
            for fault in found[-1].faults if options.check else ():
                print(f"    {fault}")
    return 1 if options.check and any(one.faults for one in found) else 0


if __name__ == "__main__":
    sys.exit(main())
