"""The map of the book: links to chapters, and the table of chapters.

Everything here is read from the table of contents and from the notebooks.
"""

from __future__ import annotations

import re
import sys
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
sys.path.append(str(ROOT / "tools"))
from chapters import (  # noqa: E402
    PROMISE,
    TITLE,
    Cell,
    Notebook,
    directives,
    fold,
    numbers,
    pages_url,
    shown,
    tag,
)

__all__ = ["Cell", "directives", "fold", "pages_url", "shown", "tag"]


class Chapter(NamedTuple):
    """A page of the book; the number is empty outside the numbered parts."""

    number: str
    docname: str
    modules: tuple[str, ...]
    title: str
    builds: str


@lru_cache(maxsize=1)
def chapters() -> tuple[Chapter, ...]:
    """Every page of the contents, in their order; what there is to say of it stands in the page itself."""
    contents = yaml.safe_load((ROOT / "_toc.yml").read_text(encoding="utf-8"))
    order = numbers(ROOT)
    found = []
    for file in (
        entry["file"] for part in contents["parts"] for entry in part["chapters"]
    ):
        page = Notebook(ROOT / f"{file}.ipynb", ROOT)
        if page.path.exists():
            title, builds, modules = page.title, page.promise, page.modules
        else:
            text = (ROOT / f"{file}.md").read_text(encoding="utf-8")
            title, builds, modules = (
                TITLE.search(text)[1],
                (PROMISE.search(text) or "  ")[1],
                [],
            )
        number = str(order.get(page.name, ""))
        found.append(
            Chapter(
                number, file, tuple(modules), title.strip(), builds.replace("*", "")
            )
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


def spoken(found: Chapter) -> str:
    """ "chapter 3", or the title of a page without a number."""
    return f"chapter {found.number}" if found.number else found.title


def link(source: str, found: Chapter, text: str) -> nodes.Node:
    """A link to a chapter of the book."""
    target = {
        "refdomain": "std",
        "reftype": "doc",
        "reftarget": f"/{found.docname}",
    }
    return addnodes.pending_xref(
        "",
        nodes.inline(text, text),
        refexplicit=True,
        refwarn=True,
        refdoc=source,
        **target,
    )


class ChapterRole(SphinxRole):
    """``{chapter}`decoding``` gives "chapter 14", linked; ``{chapter}`the mask of {number} <masks>``` gives other words."""

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
        # the role's own name is always in lower case
        if self.rawtext.startswith(":Chapter:"):
            words = words[0].upper() + words[1:]
        return [link(self.env.docname, found, words)], []


class ChapterTable(SphinxDirective):
    """``{chapter-table}``: the chapters, and what each builds."""

    def run(self) -> list[nodes.Node]:
        rows = [
            f"| {found.number} | {{chapter}}`{found.title} <{found.docname.rpartition('/')[2]}>` | {found.builds} |"
            for found in chapters()
            if found.number
        ]
        head = ":::{table}\n:class: chapters\n:widths: 4 26 70\n\n| No. | Chapter | What it builds |\n|---|---|---|\n"
        return self.parse_text_to_nodes(head + "\n".join(rows) + "\n:::")


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
            name = nodes.Text(title)
            if key != "-":
                name = link(self.env.docname, chapter(key), title)
            year = nodes.inline(year, year, classes=["road-year"])
            words = nodes.container(classes=["road-words"])
            words += nodes.paragraph("", "", name, year, classes=["road-title"])
            words += nodes.paragraph("", sentence)
            picture = nodes.raw("", path.read_text(encoding="utf-8"), format="html")
            stations += nodes.list_item("", picture, words)
        return [stations]


def setup(app: Sphinx) -> dict[str, Any]:
    app.add_role("chapter", ChapterRole())
    app.add_directive("chapter-table", ChapterTable)
    app.add_directive("road", Road)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
