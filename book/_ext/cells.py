"""What a page makes of a notebook's code cells: what shows, what folds and under which label, and where names are built.

Plain Python, without Sphinx, so that the tools judge a cell as the page does. A cell may begin with directives:

- ``#| fold: LABEL`` folds the code under that line of text;
- ``#| export``, ``#| default_exp`` and ``#| hide`` are the exporter's.
"""

from __future__ import annotations

import ast
import json
import re
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

DIRECTIVE = re.compile(
    r"^#\|[ \t]*([\w-]+)[ \t]*:?[ \t]*([^\n]*?)[ \t]*(?:\n|\Z)", re.M
)
EXPORTED = {"export", "exports", "exporti"}
FOLDING_TAGS = {"hide-input", "hide-cell"}
WORDS_A_MINUTE, LINES_A_MINUTE = 200, 20
PACKAGE = "transformer_lib"


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


def only_imports(code: str) -> bool:
    """Whether a cell does nothing but import."""
    tree = parsed(code)
    return bool(tree and tree.body) and all(
        isinstance(node, ast.Import | ast.ImportFrom) for node in tree.body
    )


def fold(source: str, tags: list[str]) -> str | None:
    """The label under which a cell folds, or None if it stays open, as exported cells do."""
    marks = directives(source)
    if "fold" in marks or FOLDING_TAGS & set(tags):
        return marks.get("fold") or "Code"
    return None


# ---- where names are built ----


class Built(NamedTuple):
    """Where a name of the library is built."""

    module: str
    name: str
    file: str  # the notebook, below the root and without its suffix


def anchor(name: str) -> str:
    """The id of the cell that builds a name, on its page."""
    return f"def-{name}"


@lru_cache(maxsize=256)
def _cells(path: Path, changed: int) -> list[dict[str, Any]]:
    return json.loads(path.read_text(encoding="utf-8"))["cells"]


def cells_of(path: Path) -> list[dict[str, Any]]:
    """The cells of a notebook; the file is read again when it has changed."""
    return _cells(path, path.stat().st_mtime_ns)


def exported(cells: list[dict[str, Any]]) -> list[tuple[str, str]]:
    """The exported cells of a notebook: the module that each goes to, and its code."""
    module, found = "", []
    for cell in cells:
        if cell["cell_type"] != "code":
            continue
        source = "".join(cell["source"])
        marks = directives(source)
        module = marks.get("default_exp", "") or module
        for mark in EXPORTED & marks.keys():
            found.append((marks[mark] or module, shown(source)))
    return found


def notebooks(root: Path) -> list[Path]:
    """The notebooks of the book."""
    return sorted(
        path
        for path in (root / "book").rglob("*.ipynb")
        if ".ipynb_checkpoints" not in path.parts
    )


def built(root: Path) -> list[Built]:
    """Every name that the notebooks export, and where."""
    found = []
    for path in notebooks(root):
        file = path.relative_to(root).with_suffix("").as_posix()
        for module, code in exported(cells_of(path)):
            tree = parsed(code)
            found += [
                Built(module, name, file)
                for node in (tree.body if tree else ())
                for name in targets(node)
            ]
    return found


def imported(code: str) -> list[tuple[str, str]]:
    """What a cell imports from the library: module without the package's name, and name ("" for a module)."""
    found = []
    tree = parsed(code)
    for node in tree.body if tree else ():
        if (
            isinstance(node, ast.ImportFrom)
            and (node.module or "").split(".")[0] == PACKAGE
            and not node.level
        ):
            module = node.module.partition(".")[2]
            found += [(module, alias.name) for alias in node.names]
        elif isinstance(node, ast.Import):
            names = [alias.name.partition(".") for alias in node.names]
            found += [
                (rest, "") for first, _, rest in names if first == PACKAGE and rest
            ]
    return found


def place_of(module: str, name: str, places: list[Built]) -> Built | None:
    """Where an imported name is built, or a whole module if that is what is imported; None if no page builds it."""
    whole = ".".join(part for part in (module, name) if part)
    inside = {
        one.file for one in places if f"{one.module}.".startswith(f"{whole}.")
    }
    if len(inside) == 1:  # a module, or a folder of modules that one page builds
        return Built(whole, "", inside.pop())
    own = [one for one in places if one.name == name and one.module == module]
    passed_on = [
        one
        for one in places
        if one.name == name and (not module or one.module.startswith(f"{module}."))
    ]
    found = own or passed_on
    return found[0] if len({one.file for one in found}) == 1 else None


# ---- how long a page takes ----

NOT_PROSE = re.compile(r"^(`{3,}|~{3,}).*?^\1|\$\$.*?\$\$|\$[^$\n]*\$", re.M | re.S)
SOLUTION = re.compile(r"\{solution-(start|end)\}")


def minutes(path: Path) -> int:
    """How long a page takes to read: its prose, and the code that is open. Solutions are left out."""
    words = lines = 0
    solution = False
    for cell in cells_of(path):
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            for mark in SOLUTION.findall(source):
                solution = mark == "start"
            words += (
                0
                if solution
                else len(re.findall(r"\w[\w'’-]*", NOT_PROSE.sub(" ", source)))
            )
        elif cell["cell_type"] == "code" and not solution:
            marks, tags = directives(source), cell["metadata"].get("tags", [])
            if (
                not {"hide", "default_exp"} & marks.keys()
                and fold(source, tags) is None
            ):
                lines += shown(source).count("\n") + 1
    return max(1, round(words / WORDS_A_MINUTE + lines / LINES_A_MINUTE))
