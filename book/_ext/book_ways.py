"""How long a page takes, and three ways through the book.

``{ways}`` on the first page lists the ways. Below the promise of each chapter stands how many minutes it takes, and
its neighbours on the ways that skip chapters.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import cells
from book_chapters import (
    ROOT,
    Chapter,
    chapters,
    label_of,
    link,
)
from docutils import nodes
from sphinx.application import Sphinx
from sphinx.transforms import SphinxTransform
from sphinx.util.docutils import SphinxDirective


class Way(NamedTuple):
    """A way through the book; no numbers stand for every numbered chapter."""

    name: str
    says: str
    numbers: tuple[int, ...] = ()


WAYS = (
    Way("The hurried", "The idea and its evidence, from one vector to a Transformer that translates.",
        (3, 4, 8, 11, 14, 17)),
    Way("The historian", "Every chapter in its order: who was stuck on what, what was tried, what was found."),
    Way("The implementer", "The parts one by one, from the scaled dot product to beam search.", tuple(range(9, 17))),
)  # fmt: skip


def stations(way: Way) -> list[Chapter]:
    """The chapters of a way that the book has, in order."""
    numbered = [found for found in chapters() if found.number.isdigit()]
    return [
        found
        for found in numbered
        if not way.numbers or int(found.number) in way.numbers
    ]


def minutes(found: Chapter) -> int:
    """How long a chapter takes to read."""
    return cells.minutes(ROOT / f"{found.docname}.ipynb")


def spell(count: int) -> str:
    """ "40 min", "2 h 5 min"."""
    hours, rest = divmod(count, 60)
    return " ".join(
        part
        for part in (
            f"{hours} h" if hours else "",
            f"{rest} min" if rest or not hours else "",
        )
        if part
    )


class Ways(SphinxDirective):
    """``{ways}``: the three ways, each with its time and its chapters."""

    def run(self) -> list[nodes.Node]:
        box = nodes.container(classes=["ways"])
        for way in WAYS:
            found = stations(way)
            time = spell(sum(minutes(one) for one in found))
            head = nodes.paragraph(
                "", "", nodes.strong(way.name, way.name), nodes.Text(f" {time}")
            )
            path = nodes.paragraph(classes=["way-path"])
            for i, one in enumerate(found):
                path += nodes.Text(" · " if i else "")
                path += link(self.env.docname, one, one.number)
            box += nodes.container(
                "", head, nodes.paragraph("", way.says), path, classes=["way"]
            )
        return [box]


class SayHowLong(SphinxTransform):
    """Below the line under a chapter's title: its minutes, and what comes before and after it on each way."""

    default_priority = 320

    def apply(self, **kwargs: Any) -> None:
        docname = self.env.docname
        path = ROOT / f"{docname}.ipynb"
        promise = next(iter(self.document.findall(nodes.block_quote)), None)
        if label_of(docname) is None or not path.exists() or promise is None:
            return
        facts = nodes.container(classes=["page-facts"])
        facts += nodes.paragraph("", f"{spell(cells.minutes(path))} to read")
        for way in WAYS:
            found = stations(way)
            here = next(
                (i for i, one in enumerate(found) if one.docname == docname), None
            )
            if not way.numbers or here is None or len(found) == 1:
                continue
            line = nodes.paragraph("", f"For {way.name.lower()}: ")
            if here:
                line += self.neighbour(found[here - 1], "← ", "")
            if here and here + 1 < len(found):
                line += nodes.Text(" · ")
            if here + 1 < len(found):
                line += self.neighbour(found[here + 1], "", " →")
            facts += line
        promise.parent.insert(promise.parent.index(promise) + 1, facts)

    def neighbour(self, found: Chapter, before: str, after: str) -> nodes.Node:
        words = f"{before}{found.number} {found.title}{after}"
        return link(self.env.docname, found, words)


def setup(app: Sphinx) -> dict[str, Any]:
    app.add_directive("ways", Ways)
    app.add_transform(SayHowLong)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
