"""How works are cited, (Cho et al., 2014), and listed: by author and year, under the words they are cited by."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from pybtex.plugin import register_plugin
from pybtex.style import template
from pybtex.style.formatting.plain import Style as Plain
from pybtex.style.labels import BaseLabelStyle
from sphinx.application import Sphinx
from sphinxcontrib.bibtex.plugin import register_plugin as register_reference_style
from sphinxcontrib.bibtex.style.referencing import BracketStyle
from sphinxcontrib.bibtex.style.referencing.author_year import (
    AuthorYearReferenceStyle,
)


def _round() -> BracketStyle:
    return BracketStyle(left="(", right=")")


@dataclass
class RoundAuthorYear(AuthorYearReferenceStyle):
    """Author and year in round brackets."""

    bracket_parenthetical: BracketStyle = field(default_factory=_round)
    bracket_textual: BracketStyle = field(default_factory=_round)
    bracket_author: BracketStyle = field(default_factory=_round)
    bracket_label: BracketStyle = field(default_factory=_round)
    bracket_year: BracketStyle = field(default_factory=_round)


def short_names(entry: Any) -> str:
    """The authors as they are cited: "Post", "Och and Ney", "Cho et al."."""
    names = [
        " ".join([*person.prelast_names, *person.last_names]).strip("{}")
        for person in entry.persons["author"]
    ]
    return f"{names[0]} et al." if len(names) > 2 else " and ".join(names)


class AuthorYearLabels(BaseLabelStyle):
    """Labels that are the citation itself."""

    def format_labels(self, sorted_entries: list[Any]) -> list[str]:
        labels = [
            f"{short_names(entry)}, {entry.fields['year']}"
            for entry in sorted_entries
        ]
        return [  # the same authors in the same year: 2024a, 2024b
            label + chr(ord("a") + labels[:i].count(label))
            if labels.count(label) > 1
            else label
            for i, label in enumerate(labels)
        ]


class BookStyle(Plain):
    """Pybtex's plain style, sorted by author and year, with those labels."""

    default_label_style = AuthorYearLabels
    default_sorting_style = "author_year_title"

    def format_title(
        self, e: Any, which_field: str, as_sentence: bool = True
    ) -> Any:
        """The title as its authors wrote it, capitals and all."""
        title = template.field(which_field)
        return template.sentence[title] if as_sentence else title


def setup(app: Sphinx) -> dict[str, Any]:
    register_plugin("pybtex.style.formatting", "book", BookStyle)
    register_reference_style(
        "sphinxcontrib.bibtex.style.referencing",
        "author_year_round",
        RoundAuthorYear,
    )
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
