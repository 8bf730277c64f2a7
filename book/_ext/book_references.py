"""The style of the references page: sorted by author and year, labelled the way the text cites them."""

from __future__ import annotations

from typing import Any

from pybtex.plugin import register_plugin
from pybtex.style.formatting.plain import Style as Plain
from pybtex.style.labels import BaseLabelStyle
from sphinx.application import Sphinx


def short_names(entry: Any) -> str:
    """ "Post", "Och and Ney", "Cho et al."."""
    names = [" ".join([*person.prelast_names, *person.last_names]) for person in entry.persons["author"]]
    if len(names) > 2:
        return f"{names[0]} et al."
    return " and ".join(names)


class AuthorYearLabels(BaseLabelStyle):
    """Labels that are the citation itself."""

    def format_labels(self, sorted_entries: list[Any]) -> list[str]:
        return [f"{short_names(entry)}, {entry.fields['year']}" for entry in sorted_entries]


class BookStyle(Plain):
    """Pybtex's plain style, sorted by author and year, with those labels."""

    default_label_style = AuthorYearLabels
    default_sorting_style = "author_year_title"


def setup(app: Sphinx) -> dict[str, Any]:
    register_plugin("pybtex.style.formatting", "book", BookStyle)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
