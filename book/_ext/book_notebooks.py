"""The notebooks that readers download and that Colab opens: plain Markdown, citations as links, solutions folded.

What MyST's own parser takes for a role or a directive is replaced; everything else stays as its author wrote it. What
we don't know is refused, so none is left over. Code cells are the source's, but those of a solution are in its fold.
"""

from __future__ import annotations

import html
import json
import os
import posixpath
import re
from base64 import b64encode
from collections import Counter
from collections.abc import Iterator
from functools import cache, lru_cache
from pathlib import Path
from textwrap import indent
from types import SimpleNamespace
from typing import Any, NamedTuple

import yaml
from book_cells import installs_on_colab, label_html
from book_chapters import (
    ROOT,
    Cell,
    Notebook,
    chapter,
    fold,
    numbers,
    shown,
    spoken,
    tag,
)
from book_evidence import RECORDS, label, verdict
from book_references import short_names
from markdown_it.renderer import RendererHTML
from markdown_it.token import Token
from myst_parser.config.main import MdParserConfig
from myst_parser.parsers.mdit import create_md_parser
from pybtex.database import parse_file
from sphinx.application import Sphinx
from sphinx.directives.code import LiteralIncludeReader

CONFIG = yaml.safe_load((ROOT / "_config.yml").read_text(encoding="utf-8"))
MARKDOWN = create_md_parser(
    MdParserConfig(
        enable_extensions=set(CONFIG["parse"]["myst_enable_extensions"])
    ),
    RendererHTML,
)
LABEL = {"math": "label", "exercise": "label", "figure": "name"}


class Directive(NamedTuple):
    """``{name} argument``, then ``:option: value`` lines, then a body."""

    name: str
    argument: str
    options: dict[str, str]
    body: str


@cache
def parsed(text: str) -> list[Token]:
    """What a text consists of; many are read more than once."""
    return MARKDOWN.parse(text)


def directive(token: Token) -> Directive | None:
    """What a fence says, if it is a directive."""
    if not (token.type.endswith("fence") and token.info.startswith("{")):
        return None
    name, _, argument = token.info[1:].partition("}")
    lines, options = token.content.splitlines(), {}
    while lines and lines[0].startswith(":") and lines[0][1:2].isalpha():
        key, _, value = lines.pop(0)[1:].partition(":")
        options[key] = value.strip(' "')
    return Directive(name, argument.strip(), options, "\n".join(lines).strip("\n"))


def inside(text: str) -> Iterator[Directive]:
    """The directives of a text, and those inside of them."""
    for one in filter(None, map(directive, parsed(text))):
        yield one
        yield from inside(one.body)


@lru_cache(maxsize=1)
def labels() -> dict[str, tuple[str, str, str]]:
    """What a label of a figure, formula or exercise stands for: its number, its page and its title."""
    found: dict[str, tuple[str, str, str]] = {}
    counted: Counter = Counter()

    def count(kind: str, name: str | None, page: str, title: str = "") -> None:
        if name:
            part = numbers(ROOT).get(f"{page}.ipynb", "")
            counted[kind, part] += 1
            found[name] = (f"{part}.{counted[kind, part]}".strip("."), page, title)

    def walk(entries: list[dict[str, Any]]) -> Iterator[str]:
        for entry in entries:
            yield entry["file"]
            yield from walk(entry.get("sections", []))

    contents = yaml.safe_load((ROOT / "_toc.yml").read_text(encoding="utf-8"))
    for page in walk(
        [one for part in contents["parts"] for one in part["chapters"]]
    ):
        path = ROOT / f"{page}.ipynb"
        cells = Notebook(path, ROOT).cells if path.exists() else []
        text = "" if cells else path.with_suffix(".md").read_text("utf-8")
        for cell in cells or [Cell(0, {"cell_type": "markdown", "source": text})]:
            figure = cell.metadata.get("mystnb", {}).get("figure", {})
            count("figure", figure.get("name"), page)
            for one in inside(cell.source) if cell.kind == "markdown" else ():
                name = one.options.get(LABEL.get(one.name, ""))
                count(one.name, name, page, one.argument)
    return found


@lru_cache(maxsize=1)
def works() -> dict[str, tuple[str, str, str]]:
    """Authors, year and address of every work that the book cites."""
    found = {}
    path = ROOT / CONFIG["bibtex_bibfiles"][0]
    for key, entry in parse_file(str(path), bib_format="bibtex").entries.items():
        links = {
            "doi": "https://doi.org/",
            "url": "",
            "eprint": "https://arxiv.org/abs/",
        }
        given = entry.fields
        urls = [links[one] + given[one] for one in links if one in given] + [""]
        found[key] = (short_names(entry), given["year"], urls[0])
    return found


class Renderer:
    """One page, and where the book is published: without an address, links lead to files beside it, with None nowhere."""

    def __init__(self, page: Notebook, base: str | None) -> None:
        self.page, self.base, self.open = page, base, False
        self.doc = page.name.removesuffix(".ipynb")

    def link(self, words: str, doc: str, name: str = "") -> str:
        """A link to another page; what is on this one needs none."""
        if doc == self.doc or self.base is None:
            return words
        if self.base:
            return f"[{words}]({self.base}{doc}.html{'#' * bool(name)}{name})"
        path = ROOT / f"{doc}.ipynb"
        path = path if path.exists() else path.with_suffix(".md")
        return f"[{words}]({Path(os.path.relpath(path, self.page.path.parent)).as_posix()})"

    def cite(self, keys: str, textual: bool) -> str:
        """(Cho et al., 2014), or Cho et al. (2014), each linked to the work."""
        cited = []
        for key in keys.split(","):
            who, year, url = works()[key.strip()]
            words = f"{who} ({year})" if textual else f"{who}, {year}"
            cited.append(f"[{words}]({url})" if url else words)
        return ", ".join(cited) if textual else f"({'; '.join(cited)})"

    def fold(self, summary: str, body: str, end: str = "</details>") -> str:
        """What opens with a click."""
        head = f"<details>\n<summary>{label_html(summary)}</summary>"
        parts = [head, self.markdown(body), end]
        return "\n\n".join(filter(None, parts))

    def role(self, name: str, text: str) -> str:
        """The Markdown of a role."""
        words, _, key = (
            text.rpartition("<") if text.endswith(">") else ("", "", f"{text}>")
        )
        words, key = words.strip(), key[:-1].strip()
        if name in ("cite", "cite:t"):
            return self.cite(key, name == "cite:t")
        if name.lower() == "chapter":
            found = chapter(key)
            words = (words or spoken(found)).replace("{number}", found.number)
            start = words[0].upper() if name == "Chapter" else words[0]
            return self.link(start + words[1:], found.docname)
        if name in ("numref", "eq", "ref") and key in labels():
            number, doc, _ = labels()[key]
            kind = {"numref": "Fig. {}", "eq": "({})", "ref": "Exercise {}"}[name]
            return self.link(words or kind.format(number), doc, key)
        if name == "ref" and words and key.startswith("claims"):
            return self.link(words, "book/appendix/claims", key)
        if name == "doc":
            doc = posixpath.normpath(
                posixpath.join("/", posixpath.dirname(self.doc), key)
            )[1:]
            return self.link(words or chapter(doc.rpartition("/")[2]).title, doc)
        if name == "download":
            file = f"{self.base}_static/{posixpath.basename(key)}"
            link = file if self.base else key
            return words if self.base is None else f"[{words}]({link})"
        if name == "term":
            return words or key
        raise ValueError(
            f"{self.page.name}: no notebook can show {{{name}}}`{text}`"
        )

    def directive(self, one: Directive) -> str:
        """The Markdown of a directive."""
        name, argument, options, body = one
        if name in ("solution", "solution-start"):
            number, _, title = labels()[argument]
            words = f"Solution to Exercise {number} ({title})"
            if name == "solution":
                return self.fold(words, body)
            self.open = True  # it goes on in other cells
            return self.fold(words, body, end="")
        if name == "solution-end":
            self.open = False
            return "</details>"
        if name == "exercise":
            return f"**Exercise {labels()[options['label']][0]} ({argument})**\n\n{self.markdown(body)}"
        if name == "dropdown":
            return self.fold(argument, body)
        if name == "admonition":
            return indent(
                f"**{argument}**\n\n{self.markdown(body)}", "> ", lambda line: True
            )
        if name == "math":
            tag = (
                f"\n\\tag{{{labels()[options['label']][0]}}}"
                if "label" in options
                else ""
            )
            return f"$$\n{body}{tag}\n$$"
        if name == "literalinclude":
            given = {k: int(v) if v.isdigit() else v for k, v in options.items()}
            path = self.page.path.parent / argument
            reader = LiteralIncludeReader(
                str(path), given, SimpleNamespace(source_encoding="utf-8")
            )
            return (
                f"```{options['language']}\n{reader.read()[0].strip(chr(10))}\n```"
            )
        if name == "museum":
            words = f"On [the page of this chapter]({self.base}{self.doc}.html), you can type into this translator."
            return words * bool(self.base)  # its introduction needs the widget
        if name == "circuit":
            words = f"[The page of this chapter]({self.base}{self.doc}.html)"
            return self.markdown(body) + f"\n\n{words}" * bool(self.base)
        if name == "raw":
            return body
        if name == "sure":
            return self.sure(argument)
        raise ValueError(
            f"{self.page.name}: no notebook can show the directive {{{name}}}"
        )

    def sure(self, argument: str) -> str:
        """The box *How sure are we?*, in words."""
        name, _, key = argument.partition("/")
        path = ROOT / RECORDS / f"{name}.json"
        record = json.loads(path.read_text(encoding="utf-8"))
        found, page = record["findings"][key], "book/appendix/claims"
        name = label(name, key) if found.get("line") else ""
        where = self.link("claims page", page, name)
        words = f"{found['text']}\n\nHow we know it is on the {where}."
        return self.fold(f"How sure are we? {verdict(record, key)}", words)

    def markdown(self, text: str) -> str:
        """A text without roles and directives."""
        places = [0]
        for line in text.splitlines(keepends=True):
            places.append(places[-1] + len(line))
        edits, at = [], 0

        def replace(start: str, end: str, new: str) -> None:
            nonlocal at
            first = text.index(start, at)
            at = text.index(end, first + len(start)) + len(end)
            edits.append((first, at, new))

        for token in parsed(text):
            if token.map is None:
                continue
            first, last = (places[line] for line in token.map)
            if (one := directive(token)) and not token.level:
                edits.append((first, last, f"{self.directive(one)}\n"))
            elif token.type == "myst_target":
                anchor = f'<a id="{text[first:last].strip()[1:-2]}"></a>'
                edits.append((first, last, f"{anchor}\n\n"))
            at = max(at, first)
            for child in token.children or []:
                if child.type == "myst_role":
                    name = child.meta["name"]
                    replace(f"{{{name}}}`", "`", self.role(name, child.content))
                elif child.type == "span_open":  # [words]{.class}
                    replace("[", "", "")
                elif child.type == "span_close":
                    replace("]{", "}", "")
        for first, last, new in reversed(edits):
            text = text[:first] + new + text[last:]
        return text.strip("\n")

    def in_words(self, cell: dict[str, Any]) -> str:
        """A solution's code and what it gave, as Markdown."""
        parts = [f"```python\n{shown(''.join(cell['source']))}\n```"]
        for one in cell["outputs"]:
            if "text" in one:
                parts.append(f"```text\n{''.join(one['text']).rstrip()}\n```")
            elif svg := "".join(one.get("data", {}).get("image/svg+xml", "")):
                about = html.escape(cell["metadata"]["mystnb"]["image"]["alt"])
                data = b64encode(svg.encode()).decode()
                parts.append(
                    f'<img alt="{about}" src="data:image/svg+xml;base64,{data}">'
                )
        return "\n\n".join(parts)

    def cells(self) -> Iterator[dict[str, Any]]:
        """The cells of the rendered notebook."""
        for cell in self.page.data["cells"]:
            source, goes_on = "".join(cell["source"]), self.open
            figure = cell["metadata"].get("mystnb", {}).get("figure")
            if cell["cell_type"] == "markdown":
                words = self.markdown(source)
            elif goes_on:
                words = self.in_words(cell)
            elif "github.com/OWNER/" in source:
                continue  # without an address, there is nothing to install from
            else:
                yield cell
                words = ""
            if figure:
                caption = self.markdown(figure["caption"])
                words += f"\n\n**Fig. {labels()[figure['name']][0]}.** {caption}"
                words = words.strip()
            if goes_on:
                told["source"] += f"\n\n{words}"
            else:
                name = f"{cell['id']}{'-caption' * bool(figure)}"
                told = {"cell_type": "markdown", "id": name, "metadata": {}}
                told["source"] = words
            if words and not self.open:
                yield told


def rendered(page: Notebook, base: str | None) -> dict[str, Any]:
    """A notebook as readers get it."""
    cells = list(Renderer(page, base).cells())
    if base:
        number = f"chapter {page.number}" if page.number else "a page"
        link = (
            f"[*{CONFIG['title']}*]({base}{page.name.removesuffix('.ipynb')}.html)"
        )
        edition = f", edition {tag()}" if tag() else ""
        cells[0]["source"] += f"\n\nThis is {number} of {link}{edition}."
    elif needed := re.search(r"step-by-step(\[[\w,]+\])", str(page.data["cells"])):
        run = f'`pip install ".{needed[1]}"`'
        cells[0]["source"] += (
            f"\n\nTo run this page, first install the library: {run}, in the project's folder."
        )
    return {**page.data, "cells": cells}


def for_readers(cell: dict[str, Any]) -> str:
    """A cell's source without what our own tools read; it installs the library wherever that is missing."""
    source = "".join(cell["source"])
    if cell["cell_type"] == "markdown":
        return source
    title, code = fold(source, cell["metadata"].get("tags", [])), shown(source)
    if installs_on_colab(source):
        start = 'if not find_spec("transformer_lib"):'
        code = code.replace('if "google.colab" in sys.modules:', start)
        return code.replace("import sys", "from importlib.util import find_spec")
    return f"# @title {title}\n{code}" if title and code else code


def downloaded(page: Notebook, base: str | None) -> dict[str, Any]:
    """The file that a reader gets, in Jupyter or on Colab."""
    made = rendered(page, base)
    cells = [cell | {"source": for_readers(cell)} for cell in made["cells"]]
    return made | {"cells": [cell for cell in cells if cell["source"]]}


def _write(app: Sphinx, exception: Exception | None) -> None:
    """Put them where the download button takes them from, in place of the sources."""
    if exception is None and app.builder.name == "html":
        for path in (Path(app.outdir) / "_sources").rglob("*.ipynb"):
            page = Notebook(
                ROOT / path.relative_to(Path(app.outdir) / "_sources"), ROOT
            )
            text = json.dumps(
                downloaded(page, app.config.html_baseurl),
                ensure_ascii=False,
                indent=1,
            )
            path.write_text(text + "\n", encoding="utf-8")


def _open_on_colab(
    app: Sphinx, name: str, template: str, context: dict[str, Any], doctree: Any
) -> None:
    """Colab opens the rendered notebook, from the branch on which the workflow puts them."""
    for group in context.get("header_buttons", []):
        for button in group.get("buttons", []):
            if "colab." in button.get("url", ""):
                branch = (
                    f"/blob/{app.config.html_theme_options['repository_branch']}/"
                )
                button["url"] = button["url"].replace(branch, "/blob/notebooks/", 1)


def setup(app: Sphinx) -> dict[str, Any]:
    app.connect("build-finished", _write)
    app.connect("html-page-context", _open_on_colab, priority=900)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
