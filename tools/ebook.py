"""The book as files: an ePub for reading devices and a PDF to print, both made from the built pages.

    python tools/ebook.py            _build/attention-step-by-step.epub and .pdf
    python tools/ebook.py --no-pdf   only the ePub

Chromium opens every page of ``_build/html``, so both files say what the pages say. Formulas become MathML; what moves
on a page (viewers, the translator) becomes a picture of its first state; links to pages that are left out, those of
the library name by name, lead to the web. Folded code unfolds in the ePub; on paper its label stands in its place,
and solutions are open.

Needs Chromium and ``pip install playwright``.
"""

from __future__ import annotations

import argparse
import base64
import html
import posixpath
import re
import sys
import tomllib
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "book" / "_ext"))
sys.path.insert(0, str(Path(__file__).resolve().parent))
import yaml
from book_pages import pages_url
from browser import ROOT, chromium, launch, repository, serve

NAME = "attention-step-by-step"
LEFT_OUT = "book/api/"
VIEW = {"width": 760, "height": 1000}
COLUMN = 665  # pixels between the margins of A4, 176 mm
MOVING = ".tl-viewer, .tl-translator"
KINDS = {".png": "image/png", ".svg": "image/svg+xml", ".jpg": "image/jpeg"}

STYLE = """
body { font-family: Georgia, serif; line-height: 1.45; }
h1, h2, h3, summary, .caption, .caption-number, .admonition-title { font-family: Helvetica, Arial, sans-serif; }
pre, code { font-family: Menlo, Consolas, "DejaVu Sans Mono", monospace; font-size: 0.8em; }
pre { background: #f4f3ef; padding: 0.5em; white-space: pre-wrap; overflow-wrap: anywhere; }
.cell_output pre { background: none; border-left: 3px solid #c9c7c0; }
.k, .kn, .ow { font-weight: bold; } .c1, .sd { color: #5f646a; }
img, svg { max-width: 100%; height: auto; } figure { margin: 1em 0; } figcaption { font-size: 0.85em; }
table { border-collapse: collapse; font-size: 0.85em; }
td p, dd p { margin: 0; }
nav ol { list-style: none; }
td, th { padding: 0.15em 0.5em; border-bottom: 1px solid #c9c7c0; }
.admonition, .exercise, details { border: 1px solid #c9c7c0; padding: 0.3em 0.8em; margin: 1em 0; }
summary, .admonition-title { font-weight: bold; font-size: 0.9em; } .built-in { font-size: 0.8em; color: #5f646a; }
blockquote { font-style: italic; margin: 0 0 1em; }
.fold-size { font-weight: normal; color: #5f646a; }
.visually-hidden { position: absolute; clip-path: inset(50%); }
.eqno { float: right; }
math { font-size: 0.95em; }
math { font-family: "STIX Two Math", "Latin Modern Math", "Cambria Math", "DejaVu Math TeX Gyre", math; }
ul.road { list-style: none; padding: 0; }
ul.road > li { display: flex; gap: 1em; align-items: center; break-inside: avoid; } ul.road p { margin: 0.2em 0; }
.road-year { margin-left: 0.6em; color: #5f646a; }
a { color: #0b5c95; }
"""
PAPER = """
@page { size: A4; margin: 18mm 17mm 20mm; }
body { font-size: 10.2pt; } article { break-before: page; } h1, h2, h3, .admonition-title { break-after: avoid; }
figure, table, .cell_output { break-inside: avoid; } pre { break-inside: auto; }
details.fold { border: 0; padding: 0; margin: 0.4em 0; font-size: 0.9em; color: #5f646a; }
details.fold summary { list-style: none; }
details.fold summary::before { content: "On the page: "; font-weight: normal; }
img { max-height: 170mm; max-width: 85%; } a { text-decoration: none; }
nav.contents { font-size: 0.85em; } nav.contents ol { padding-left: 1.2em; }
"""

TIDY = """({stills, moving}) => {
  const article = document.querySelector("article");
  const drop = (selector) => article.querySelectorAll(selector).forEach((node) => node.remove());
  for (const item of window.MathJax?.startup?.document?.math ?? []) {
    if (!item.typesetRoot?.isConnected) continue;
    const holder = document.createElement("span");
    holder.innerHTML = MathJax.startup.toMML(item.root).replace(/\\s*\\n\\s*/g, "");
    const formula = holder.firstChild;
    formula.setAttribute("alttext", item.math.trim());
    for (const node of formula.querySelectorAll("[data-mjx-texclass]")) node.removeAttribute("data-mjx-texclass");
    item.typesetRoot.replaceWith(formula);
  }
  article.querySelectorAll(moving).forEach((node, i) => {
    const still = document.createElement("img");
    still.alt = node.getAttribute("aria-label") ?? "";
    still.src = stills[i];
    node.replaceWith(still);
  });
  for (const drawing of article.querySelectorAll("svg")) {  // its colours and size come from the page's style sheet
    const box = drawing.getBoundingClientRect();
    for (const node of [drawing, ...drawing.querySelectorAll("*")]) {
      const style = getComputedStyle(node);
      for (const name of ["fill", "stroke", "stroke-width", "opacity"]) {
        if (node !== drawing || name === "fill") node.style.setProperty(name, style.getPropertyValue(name));
      }
    }
    drawing.setAttribute("width", box.width);
    drawing.setAttribute("height", box.height);
  }
  drop("script, style, link, button, input, form, .headerlink, .only-dark, .page-facts, .toctree-wrapper");
  drop(".sd-summary-state-marker");
  for (const part of article.querySelectorAll("pre details")) {  // a docstring unfolds
    part.querySelector("summary").replaceWith(...part.querySelector("summary").childNodes);
    part.replaceWith(...part.childNodes);
  }
  for (const image of article.querySelectorAll("img")) {
    image.src = image.currentSrc || image.src;
    for (const name of ["srcset", "loading", "style", "width", "height"]) image.removeAttribute(name);
  }
  for (const node of article.querySelectorAll("*")) {
    for (const {name} of [...node.attributes]) {
      if (/^(on|data-|aria-controls|tabindex|open$)/.test(name)) node.removeAttribute(name);
    }
  }
  const seen = new Set();
  for (const node of article.querySelectorAll("[id]")) {  // an id stands once
    if (seen.has(node.id)) node.removeAttribute("id");
    seen.add(node.id);
  }
  for (const link of article.querySelectorAll("a[href]")) {  // those of a drawing too
    link.setAttribute("href", new URL(link.getAttribute("href"), location).href);
  }
  const title = article.querySelector("h1")?.textContent.trim() ?? document.title;
  return {title, text: new XMLSerializer().serializeToString(article)};
}"""


@dataclass
class Page:
    """One page of the book, tidied."""

    name: str  # without ending, such as book/transformer/self_attention
    title: str
    text: str  # XHTML
    part: str = ""

    @property
    def file(self) -> str:
        return self.name.removeprefix("book/").replace("/", "-")


def order(toc: Any) -> list[tuple[str, str]]:
    """The pages in the order of the contents, each with the part that it opens."""
    found = [(toc["root"], "")]
    for part in toc["parts"]:
        heading = part["caption"]
        for entry in part["chapters"]:
            if not entry["file"].startswith(LEFT_OUT):
                found.append((entry["file"], heading))
                heading = ""
    return found


def read(built: Path, toc: Any) -> tuple[list[Page], dict[str, bytes]]:
    """Every page, tidied, and the pictures that they show, by their names."""
    found, pictures = [], {}
    with serve(built, repository()[2]) as root, launch() as browser:
        view = browser.new_page(viewport=VIEW, color_scheme="light", reduced_motion="reduce", device_scale_factor=2)
        for name, part in order(toc):
            view.goto(f"{root}{name}.html", wait_until="load")
            view.evaluate("() => Promise.all([document.fonts.ready, window.MathJax?.startup?.promise])")
            stills = []
            for node in view.locator("article").locator(MOVING).all():
                stills.append(f"{root}still-{len(pictures)}.png")
                pictures[f"still-{len(pictures)}.png"] = node.screenshot()
            tidy = view.evaluate(TIDY, {"stills": stills, "moving": MOVING})
            text = tidy["text"].replace("\N{NO-BREAK SPACE}", "&#160;")
            for address in set(re.findall(r'<(?:img|image)[^>]*? (?:src|href)="([^"]+)"', text)):
                picture = posixpath.basename(address.partition("?")[0])
                path = built / address.removeprefix(root).partition("?")[0]
                if picture not in pictures and path.is_file():
                    pictures[picture] = path.read_bytes()
                text = text.replace(f'"{address}"', f'"images/{picture}"')
            found.append(Page(name, tidy["title"], text.replace(root, "BOOK:"), part))
    return found, pictures


RAW = re.compile(
    r"\\[a-zA-Z]{2,}|\$\$|:::|```|\{[a-z]+(?::[a-z]+)?\}`|&(?:amp;)?[a-z]+;|mjx-"
    r"|</?(?:p|div|span|a|b|em|strong|table|tr|td|th|img|svg|code|pre|details)\b"
)


def leftovers(page: Page) -> list[str]:
    """Markup that a reader would see: TeX, directives or tags in the text, and controls that do nothing in a file."""
    tree = ElementTree.fromstring(document(page.title, page.text, ""))
    found = []

    def walk(node: ElementTree.Element) -> None:
        name = node.tag.rpartition("}")[2]
        if name in ("button", "input", "select", "fieldset", "script", "style") or name.startswith("mjx-"):
            found.append(f"<{name}>")
        if name not in ("pre", "code", "annotation"):
            for text in (node.text, *(child.tail for child in node)):
                found.extend(mark[0] for mark in RAW.finditer(text or ""))
            for child in node:
                walk(child)

    walk(tree)
    return found


def linked(page: Page, pages: list[Page], address: str, one_file: bool) -> str:
    """A page's text, its links leading to the other pages of the same book or to the web."""
    files = {other.name: other for other in pages}

    def lead(found: re.Match[str]) -> str:
        name, _, place = found[1].partition("#")
        other = files.get(name.removesuffix(".html"))
        if other is None:
            return f'href="{address}{found[1]}"'
        if one_file:
            return f'href="#{other.file}--{place}"' if place else f'href="#{other.file}"'
        return f'href="{other.file}.xhtml{"#" + place if place else ""}"'

    text = re.sub(r'href="BOOK:([^"]*)"', lead, page.text)
    if one_file:
        text = re.sub(r'(\s)id="([^"]*)"', rf'\1id="{page.file}--\2"', text)
        text = text.replace("<article ", f'<article id="{page.file}" ', 1)
    return text


def document(title: str, body: str, style: str) -> str:
    """A whole XHTML file."""
    return (
        '<?xml version="1.0" encoding="utf-8"?>\n<!DOCTYPE html>\n'
        '<html xmlns="http://www.w3.org/1999/xhtml" xmlns:epub="http://www.idpf.org/2007/ops" lang="en" xml:lang="en">'
        f"<head><meta charset='utf-8'/><title>{html.escape(title)}</title>{style}</head>\n<body>{body}</body></html>\n"
    )


def contents(pages: list[Page], target: str) -> str:
    """The table of contents; ``target`` turns the name of a file into an address."""
    text, inside = "", False
    for page in pages:
        if page.part:
            text += "</ol></li>" * inside + f"\n<li><span>{html.escape(page.part)}</span><ol>"
            inside = True
        text += f'\n<li><a href="{target.format(page.file)}">{html.escape(page.title)}</a></li>'
    return f"<ol>{text}{'</ol></li>' * inside}</ol>"


def write_epub(path: Path, pages: list[Page], pictures: dict[str, bytes], about: dict[str, str]) -> None:
    """An ePub 3 with one file a page."""
    style = '<link rel="stylesheet" type="text/css" href="book.css"/>'
    files: dict[str, bytes] = {"book.css": STYLE.encode()}
    items = ['<item id="css" href="book.css" media-type="text/css"/>']
    spine = []
    for page in pages:
        text = linked(page, pages, about["address"], one_file=False)
        has = [name for name, mark in (("mathml", "<math"), ("svg", "<svg")) if mark in text]
        properties = f' properties="{" ".join(has)}"' if has else ""
        files[f"{page.file}.xhtml"] = document(page.title, text, style).encode()
        items.append(
            f'<item id="{page.file}" href="{page.file}.xhtml" media-type="application/xhtml+xml"{properties}/>'.replace(
                'id="0', 'id="c0'
            )
        )
        spine.append(f'<itemref idref="{page.file}"/>')
    nav = f'<nav epub:type="toc" id="toc"><h1>Contents</h1>{contents(pages, "{}.xhtml")}</nav>'
    files["nav.xhtml"] = document("Contents", nav, style).encode()
    items.append('<item id="nav" href="nav.xhtml" media-type="application/xhtml+xml" properties="nav"/>')
    for i, (name, data) in enumerate(sorted(pictures.items())):
        files[f"images/{name}"] = data
        items.append(f'<item id="image-{i}" href="images/{name}" media-type="{KINDS[Path(name).suffix]}"/>')
    package = (
        '<?xml version="1.0" encoding="utf-8"?>\n'
        '<package xmlns="http://www.idpf.org/2007/opf" version="3.0" unique-identifier="id" xml:lang="en">\n'
        '<metadata xmlns:dc="http://purl.org/dc/elements/1.1/">'
        f'<dc:identifier id="id">{about["address"]}{about["version"]}</dc:identifier>'
        f"<dc:title>{html.escape(about['title'])}</dc:title><dc:language>en</dc:language>"
        f"<dc:creator>{html.escape(about['author'])}</dc:creator>"
        "<dc:rights>Prose and pictures CC BY 4.0, code MIT</dc:rights>"
        f'<meta property="dcterms:modified">{about["year"]}-01-01T00:00:00Z</meta></metadata>\n'
        f"<manifest>{''.join(items)}</manifest>\n<spine>{''.join(spine)}</spine></package>\n"
    )
    container = (
        '<?xml version="1.0"?><container version="1.0" xmlns="urn:oasis:names:tc:opendocument:xmlns:container">'
        '<rootfiles><rootfile full-path="book/book.opf" media-type="application/oebps-package+xml"/></rootfiles>'
        "</container>"
    )
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as book:
        book.writestr("mimetype", "application/epub+zip", zipfile.ZIP_STORED)
        book.writestr("META-INF/container.xml", container)
        book.writestr("book/book.opf", package)
        for name, data in files.items():
            book.writestr(f"book/{name}", data)


FIT = """() => {  // what is too wide would make Chromium print every page smaller
  const column = document.body.getBoundingClientRect().right;
  const wide = (node) => node.getBoundingClientRect().right > column + 1;
  for (const node of document.querySelectorAll("table, math[display=block]")) {
    if (!wide(node)) continue;
    const {left, right} = node.getBoundingClientRect();
    node.style.zoom = (column - left) / (right - left);
  }
  return [...document.querySelectorAll("body *")].filter(wide).map((node) => node.outerHTML.slice(0, 80));
}"""


def printable(pages: list[Page], pictures: dict[str, bytes], about: dict[str, str]) -> str:
    """Everything in one file, to be printed: folded code is named, solutions are open."""
    title = html.escape(about["title"])
    text = f'<h1>{title}</h1><nav class="contents">{contents(pages, "#{}")}</nav>'
    text += "\n".join(linked(page, pages, about["address"], one_file=True) for page in pages)
    text = re.sub(r'(<details class="fold">\s*<summary>.*?</summary>).*?</details>', r"\1</details>", text, flags=re.S)
    text = text.replace("<details", '<details open="open"')

    def picture(found: re.Match[str]) -> str:
        data = base64.b64encode(pictures[found[1]]).decode()
        return f'"data:{KINDS[Path(found[1]).suffix]};base64,{data}"'

    text = re.sub(r'"images/([^"]+)"', lambda found: picture(found) if found[1] in pictures else found[0], text)
    return document(about["title"], text, f"<style>{STYLE}{PAPER}</style>")


def write_pdf(path: Path, text: str) -> None:
    """Print what ``printable`` wrote."""
    source = path.with_suffix(".xhtml")
    source.write_text(text, encoding="utf-8")
    number = '<div style="width:100%;font-size:8px;text-align:center"><span class="pageNumber"></span></div>'
    try:
        with launch() as browser:
            view = browser.new_page(viewport={"width": COLUMN, "height": 1000})
            view.emulate_media(media="print")
            view.goto(source.as_uri(), wait_until="load")
            for wide in view.evaluate(FIT):
                print(f"ebook: wider than the paper: {wide}", file=sys.stderr)
            view.pdf(
                path=path,
                prefer_css_page_size=True,
                print_background=True,
                outline=True,
                tagged=True,
                display_header_footer=True,
                header_template="<span></span>",
                footer_template=number,
            )
    finally:
        source.unlink()


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--built", type=Path, default=ROOT / "_build" / "html", help="the built book")
    parser.add_argument("--toc", type=Path, default=ROOT / "_toc.yml", help="its contents")
    parser.add_argument("--output", type=Path, default=ROOT / "_build", help="where the files go")
    parser.add_argument("--no-pdf", action="store_true", help="write the ePub only")
    options = parser.parse_args(arguments)
    if not chromium():
        print("ebook: Chromium and Playwright are needed (pip install playwright)", file=sys.stderr)
        return 2
    config = yaml.safe_load((ROOT / "_config.yml").read_text(encoding="utf-8"))
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    about = {
        "title": config["title"],
        "author": config["author"],
        "year": config["copyright"],
        "version": project["version"],
        "address": pages_url(config["repository"]["url"]),
    }
    toc = yaml.safe_load(options.toc.read_text(encoding="utf-8"))
    missing = [name for name, _ in order(toc) if not (options.built / f"{name}.html").is_file()]
    if missing:
        print(f"ebook: build the book first; {options.built} has no {', '.join(missing)}", file=sys.stderr)
        return 1
    pages, pictures = read(options.built, toc)
    write_epub(options.output / f"{NAME}.epub", pages, pictures, about)
    print(f"{len(pages)} pages: {options.output / NAME}.epub")
    if not options.no_pdf:
        write_pdf(options.output / f"{NAME}.pdf", printable(pages, pictures, about))
        print(f"and {options.output / NAME}.pdf")
    raw = {page.name: found for page in pages if (found := leftovers(page))}
    for name, found in raw.items():
        print(f"ebook: {name} shows markup: {', '.join(sorted(set(found)))}", file=sys.stderr)
    return 1 if raw else 0


if __name__ == "__main__":
    sys.exit(main())
