"""What a page makes of a notebook's code cells: what shows, and what folds and under which label.

Plain Python, without Sphinx, so that the tools judge a cell as the page does. A cell may begin with directives:

- ``#| fold: LABEL`` folds the code under that line of text;
- ``#| export``, ``#| default_exp`` and ``#| hide`` are the exporter's.
"""

from __future__ import annotations

import ast
import re

DIRECTIVE = re.compile(
    r"^#\|[ \t]*([\w-]+)[ \t]*:?[ \t]*([^\n]*?)[ \t]*(?:\n|\Z)", re.M
)
EXPORTED = {"export", "exports", "exporti"}
FOLDING_TAGS = {"hide-input", "hide-cell"}


def directives(source: str) -> dict[str, str]:
    """The directives of a cell, each with what follows its name: ``{"default_exp": "metrics"}``."""
    return {found[1]: found[2] for found in DIRECTIVE.finditer(source)}


def shown(source: str) -> str:
    """The code without its directives."""
    return DIRECTIVE.sub("", source).strip("\n")


def parsed(code: str) -> ast.Module | None:
    """The syntax tree of a cell, whose magics are left out; None if it is not Python."""
    plain = "\n".join(
        "" if line.lstrip().startswith(("%", "!")) else line
        for line in code.split("\n")
    )
    try:
        return ast.parse(plain)
    except SyntaxError:
        return None


def targets(node: ast.stmt) -> list[str]:
    """The names that a statement at the top of a cell defines."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return [node.name]
    places = (
        node.targets
        if isinstance(node, ast.Assign)
        else [node.target]
        if isinstance(node, ast.AnnAssign)
        else []
    )
    return [
        name.id
        for place in places
        for name in ast.walk(place)
        if isinstance(name, ast.Name)
    ]


def fold(source: str, tags: list[str]) -> str | None:
    """The label under which a cell folds, or None if it stays open, as exported cells do."""
    marks = directives(source)
    if "fold" in marks or FOLDING_TAGS & set(tags):
        return marks.get("fold") or "Code"
    return None


def anchor(name: str) -> str:
    """The id of the cell that builds a name, on its page."""
    return f"def-{name}"
