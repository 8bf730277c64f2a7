"""Every "chapter 4" in the text is a link.

Plain words are enough: "chapter 4", "Chapters 8 and 9", "chapters 4, 5 and 11", "chapters 2 to 4", "appendix C". A
chapter's mention of itself stays plain, and so do titles, code and what is a link already. A number that the book
does not have is a warning, and a warning ends the build. The chapter of somebody else's book is written
``[chapter 6]{.plain}``.
"""

from __future__ import annotations

import re
from typing import Any

from book_chapters import Chapter, chapters, label_of, link
from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.transforms import SphinxTransform
from sphinx.util import logging

logger = logging.getLogger(__name__)

ONE = r"(?:\d{1,2}(?![\d.]*\d)|[A-Z])\b"
MENTION = re.compile(
    rf"\b(?:(?P<kind>chapter|appendix)\s+(?P<one>{ONE})"
    rf"|(?:chapters|appendices)\s+(?P<many>{ONE}(?:(?:,\s+{ONE})*,?\s+(?:and|or|to)\s+|\s*[–-]\s*){ONE}))",
    re.I,
)
UNTOUCHED = (
    nodes.reference, nodes.title, nodes.rubric, nodes.literal, nodes.literal_block, nodes.math, nodes.math_block,
    nodes.raw, nodes.comment, nodes.citation, nodes.term, addnodes.pending_xref, addnodes.desc_signature,
)  # fmt: skip


def pieces(text: str) -> list[tuple[str, str | None]]:
    """The text cut into pieces, each with the chapter it is to lead to, or None.

    >>> pieces("See chapters 4 and 5.")
    [('See ', None), ('chapters 4', '4'), (' and ', None), ('5', '5'), ('.', None)]
    """
    found: list[tuple[str, str | None]] = []
    done = 0
    for mention in MENTION.finditer(text):
        start = mention.start()
        for number in re.finditer(
            ONE,
            text[: mention.end()][mention.start("one" if mention["one"] else "many") :],
        ):
            if number[0].isdigit() != mention[0].lower().startswith("chapter"):
                break
            first = mention.start("one" if mention["one"] else "many") + number.start()
            begin = start if done <= start else first
            found += [
                (text[done:begin], None),
                (text[begin : first + len(number[0])], number[0]),
            ]
            done = first + len(number[0])
    return [piece for piece in [*found, (text[done:], None)] if piece[0]]


def stays_plain(node: nodes.Node) -> bool:
    """Whether a text is in a link, a title, code, or marked as plain."""
    while node := node.parent:
        if isinstance(node, UNTOUCHED) or type(node).__name__.endswith("_title"):
            return True
        if "plain" in node.get("classes", ()):
            return True
    return False


class LinkMentions(SphinxTransform):
    """Turn the mentions of chapters into links."""

    default_priority = 700

    def apply(self, **kwargs: Any) -> None:
        known = {found.number: found for found in chapters()}
        own = label_of(self.env.docname)
        for text in list(self.document.findall(nodes.Text)):
            if not MENTION.search(text) or stays_plain(text):
                continue
            new: list[nodes.Node] = []
            for words, number in pieces(text.astext()):
                if number is None or number == own:
                    new.append(nodes.Text(words))
                elif number in known:
                    new.append(self.link(known[number], words))
                else:
                    message = "%r is not in the book; of another book, write [%s]{.plain}"
                    logger.warning(message, words, words, location=text.parent)
                    new.append(nodes.Text(words))
            text.parent.replace(text, new)

    def link(self, found: Chapter, words: str) -> nodes.Node:
        return link(self.env.docname, found, words)


def setup(app: Sphinx) -> dict[str, Any]:
    app.add_transform(LinkMentions)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
