"""The map of the book: links to chapters, and the table of chapters.

Everything here is read from the table of contents and from the notebooks.
"""

from __future__ import annotations

import json
import re
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import yaml
from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective, SphinxRole

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]


class Chapter(NamedTuple):
    """A page of the book; the number is empty outside the numbered parts."""

    number: str
    docname: str
    modules: tuple[str, ...]
    title: str
    part: str
    builds: str


@lru_cache(maxsize=1)
def chapters() -> tuple[Chapter, ...]:
    """Every page of the contents, in their order; what there is to say of it stands in the page itself."""
    contents = yaml.safe_load((ROOT / "_toc.yml").read_text(encoding="utf-8"))
    found = []
    for part in contents["parts"]:
        for entry in part["chapters"]:
            title, builds, modules = read_page(ROOT / entry["file"])
            key = str(file_number(entry["file"]) or "")
            found.append(
                Chapter(key, entry["file"], modules, title, part["caption"], builds)
            )
    return tuple(found)


def chapter(key: str) -> Chapter:
    """The chapter with this file name ("learning_to_align"), number ("3") or module ("models.recurrent")."""
    for found in chapters():
        if (
            key in (found.number, found.docname.rpartition("/")[2])
            or key in found.modules
        ):
            return found
    raise KeyError(f"no chapter {key!r} in the contents")


def read_page(path: Path) -> tuple[str, str, tuple[str, ...]]:
    """Title, promise and modules of a page: ``# title``, ``> promise``, and what its cells export."""
    notebook, code = path.with_suffix(".ipynb"), ""
    if notebook.exists():
        cells = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
        text = "".join(cells[0]["source"])
        code = "\n".join(
            "".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"
        )
    else:
        text = path.with_suffix(".md").read_text(encoding="utf-8")
    title, promise = (re.search(rf"^{mark} (.+)$", text, re.M) for mark in "#>")
    modules = re.findall(r"^#\| *(?:default_exp|export)[ \t]+(\S+)", code, re.M)
    return (
        title[1].strip() if title else path.stem,
        promise[1].replace("*", "") if promise else "",
        tuple(dict.fromkeys(modules)),
    )


def spoken(found: Chapter) -> str:
    """ "chapter 3", or the title of a page without a number."""
    return f"chapter {found.number}" if found.number else found.title


def link(source: str, found: Chapter, text: str) -> nodes.Node:
    """A link to a chapter of the book."""
    reference = addnodes.pending_xref(
        "",
        refdomain="std",
        reftype="doc",
        refexplicit=True,
        refwarn=True,
        reftarget=f"/{found.docname}",
        refdoc=source,
    )
    reference += nodes.inline(text, text)
    return reference


class ChapterRole(SphinxRole):
    """``{chapter}`decoding``` gives "chapter 16", linked; ``{chapter}`the mask of {number} <masks>``` gives other words."""

    def run(self) -> tuple[list[nodes.Node], list[nodes.system_message]]:
        explicit = re.fullmatch(r"(.+?)\s*<([\w.]+)>", self.text, re.S)
        words, key = (
            (explicit[1], explicit[2]) if explicit else (None, self.text.strip())
        )
        try:
            found = chapter(key)
        except KeyError as error:
            message = self.inliner.reporter.error(str(error), line=self.lineno)
            return [
                self.inliner.problematic(self.rawtext, self.rawtext, message)
            ], [message]
        words = (words or spoken(found)).replace("{number}", found.number)
        if self.name == "Chapter":
            words = words[0].upper() + words[1:]
        return [link(self.env.docname, found, words)], []


def _cell(*children: nodes.Node, classes: tuple[str, ...] = ()) -> nodes.entry:
    return nodes.entry(
        "", nodes.paragraph("", "", *children), classes=list(classes)
    )


def table(
    heads: list[str],
    rows: list[list[list[nodes.Node]]],
    widths: list[int],
    classes: list[str],
) -> nodes.table:
    """A docutils table; each cell is a list of inline nodes."""
    group = nodes.tgroup(
        "", *(nodes.colspec(colwidth=width) for width in widths), cols=len(heads)
    )
    head = nodes.row("", *(_cell(nodes.Text(text)) for text in heads))
    group += nodes.thead("", head)
    group += nodes.tbody(
        "", *(nodes.row("", *(_cell(*cell) for cell in row)) for row in rows)
    )
    return nodes.table("", group, classes=classes)


class ChapterTable(SphinxDirective):
    """``{chapter-table}``: the chapters, and what each builds."""

    def run(self) -> list[nodes.Node]:
        rows = [
            [
                [nodes.Text(found.number)],
                [link(self.env.docname, found, found.title)],
                [nodes.Text(found.builds)],
            ]
            for found in chapters()
            if found.number
        ]
        return [
            table(
                ["No.", "Chapter", "What it builds"],
                rows,
                [4, 26, 70],
                ["chapters"],
            )
        ]


class Road(SphinxDirective):
    """``{road}``: the stations of the book's picture, one a line: drawing, title, year, chapter, one sentence."""

    has_content = True

    def run(self) -> list[nodes.Node]:
        stations = nodes.bullet_list(classes=["road"])
        for text in self.content:
            drawing, title, year, key, sentence = (
                part.strip() for part in text.split("|")
            )
            path = HERE / "glyphs" / f"{drawing}.svg"
            self.env.note_dependency(str(path))
            name = nodes.paragraph(classes=["road-title"])
            found = chapter(key) if key != "-" else None
            name += (
                link(self.env.docname, found, title) if found else nodes.Text(title)
            )
            name += nodes.inline(year, year, classes=["road-year"])
            words = nodes.container(
                "", name, nodes.paragraph("", sentence), classes=["road-words"]
            )
            stations += nodes.list_item(
                "",
                nodes.raw("", path.read_text(encoding="utf-8"), format="html"),
                words,
            )
        return [stations]


class Slip(SphinxDirective):
    """``{slip} Title``: a mistake, why it matters (the content), its check, and the chapters that meet it, if any."""

    required_arguments = 1
    final_argument_whitespace = True
    has_content = True
    option_spec = {"chapter": str, "check": str}  # noqa: RUF012

    def run(self) -> list[nodes.Node]:
        title_nodes, messages = self.parse_inline(self.arguments[0])
        plain = nodes.paragraph("", "", *title_nodes).astext()
        box = nodes.container(
            classes=["slip"], ids=[nodes.make_id(f"slip {plain}")]
        )
        box += nodes.paragraph("", "", *title_nodes, classes=["slip-title"])
        box += self.parse_content_to_nodes()
        check_nodes, more = self.parse_inline(self.options["check"])
        check = nodes.paragraph(
            "",
            "",
            nodes.strong("", "The check: "),
            *check_nodes,
            classes=["slip-check"],
        )
        where = nodes.paragraph(
            "", "", nodes.Text("Met in "), classes=["slip-where"]
        )
        met = self.options.get("chapter")
        for i, key in enumerate(met.split(",") if met else ()):
            found = chapter(key.strip())
            where += nodes.Text(", " if i else "")
            where += link(self.env.docname, found, spoken(found))
        where += nodes.Text("." if met else "the project's own tests.")
        box += check
        box += where
        return [box, *messages, *more]


@lru_cache(maxsize=1)
def numbered() -> dict[str, int]:
    """The numbered chapters, in the order of the table of contents."""
    contents = yaml.safe_load((ROOT / "_toc.yml").read_text(encoding="utf-8"))
    files = [
        entry["file"]
        for part in contents["parts"]
        if part.get("numbered")
        for entry in part["chapters"]
    ]
    return {file: number for number, file in enumerate(files, start=1)}


def file_number(docname: str) -> int | None:
    """The number of a chapter in the table of contents; None for other pages."""
    return numbered().get(docname)


def setup(app: Sphinx) -> dict[str, Any]:
    app.add_role("chapter", ChapterRole())
    app.add_role("Chapter", ChapterRole())
    app.add_directive("chapter-table", ChapterTable)
    app.add_directive("road", Road)
    app.add_directive("slip", Slip)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
