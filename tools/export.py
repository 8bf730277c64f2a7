"""Export the library from the notebooks. A page may fill several modules, and a module may grow over several pages.

    python tools/export.py

The work is done by nbdev's exporter. This script writes the module's docstring, refuses what would leave half a module
behind, replaces each module in one step, and removes exported modules whose notebook is gone. Modules written by hand
are left alone.
"""

from __future__ import annotations

import ast
import json
import os
import re
import sys
import tempfile
from pathlib import Path

import readme
from chapters import PACKAGE, ROOT, Notebook, book, by_hand, shown

MODULE = re.compile(r"[a-z]\w*(\.[a-z]\w*)?")
RELATIVE = re.compile(r"^(\s*from )(\.+)(\S* import )", re.M)


def check_exportable(page: Notebook) -> None:
    """Refuse what nbdev would export wrongly, partly or elsewhere; the error names the cell."""
    where = page.name
    if len(page.defaults) > 1:
        raise ValueError(f"{where}: more than one default_exp ({', '.join(page.defaults)})")
    if not page.exported:
        raise ValueError(f"{where}: default_exp {page.module}, but no cell begins with '#| export'")
    if not page.title or "\\" in page.title or '"' in page.title:
        raise ValueError(f"{where}: the first cell needs a title '# Title' without backslashes and quotation marks")
    for cell in page.exported:
        if "export" not in cell.marks:
            raise ValueError(f"{where}, cell {cell.index}: a page only uses '#| export' and '#| export module'")
        name = page.target(cell)
        if not MODULE.fullmatch(name or "") or name.split(".")[-1] in ("__init__", "__main__"):
            raise ValueError(f"{where}, cell {cell.index}: {name!r} cannot be the name of a module")
        try:
            ast.parse(cell.source)
        except SyntaxError as error:
            raise ValueError(
                f"{where}, cell {cell.index}: an exported cell must be plain Python, but line {error.lineno} is "
                f"{(error.text or '').strip()!r}"
            ) from error


def one_module(pages: list[Notebook], module: str) -> dict:
    """One notebook for the exporter: the cells of this module, from every page that adds to it."""
    title = pages[0].cells[0].data | {"source": f"# {module}\n\n> {docstring(pages, module)}"}
    start = pages[0].code[0].data | {"id": "exported-to", "source": f"#| default_exp {module}"}
    cells = [
        {**cell.data, "source": f"#| export\n{shown(cell.source)}"}
        for page in pages
        for cell in page.exported
        if page.target(cell) == module
    ]
    return {**pages[0].data, "cells": [title, start, *cells]}


def docstring(pages: list[Notebook], module: str) -> str:
    """What a module is: its ``#| doc``, or the promise of its page."""
    found = [page.docs[module] for page in pages if module in page.docs]
    return found[0] if found else pages[0].promise


def absolute(text: str, module: str) -> str:
    """The text with its imports written in full: the exporter makes some of them relative, and some not."""
    packages = f"{PACKAGE}.{module}".split(".")

    def in_full(found: re.Match[str]) -> str:
        above = ".".join(packages[: -len(found[2])])
        name = found[3]
        return f"{found[1]}{above}{'' if name.startswith(' ') else '.'}{name}"

    return RELATIVE.sub(in_full, text)


def render(module: str, pages: list[Notebook], root: Path = ROOT) -> str:
    """The text of a module, from the pages that export it."""
    from nbdev.export import nb_export  # slow to import

    with tempfile.TemporaryDirectory() as folder:  # the exporter marks cells with a path relative to the module
        copy = Path(folder).resolve() / pages[0].name
        copy.parent.mkdir(parents=True)
        copy.write_text(json.dumps(one_module(pages, module)), encoding="utf-8")
        package = Path(folder).resolve() / PACKAGE
        nb_export(str(copy), lib_path=str(package), name=module)
        text = (package / f"{module.replace('.', '/')}.py").read_text(encoding="utf-8")
    summary, closing, rest = text.partition('"""\n')
    where = ", ".join(f"{page.title} ({page.name})" for page in pages)
    label = "Chapter" if len(pages) == 1 else "Chapters"
    return absolute(f"{summary.rstrip()}\n\n{label}: {where}.\n{closing}{rest}", module)


def exporters(pages: list[Notebook]) -> dict[str, list[Notebook]]:
    """Every exported module, with the pages that add to it, in the order of the book."""
    found: dict[str, list[Notebook]] = {}
    for page in pages:
        if page.module is not None:
            check_exportable(page)
        for module in page.modules:
            found.setdefault(module, []).append(page)
    return found


def path_of(module: str, root: Path = ROOT) -> Path:
    """The file of a module."""
    return root / PACKAGE / f"{module.replace('.', '/')}.py"


def export(root: Path = ROOT) -> list[Path]:
    """Write every exported module, and remove those that no notebook exports any more."""
    root = root.resolve()
    written = []
    for module, pages in exporters(book(root)).items():
        path, text = path_of(module, root), render(module, pages, root)
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            draft = path.with_name(f".{path.name}.{os.getpid()}")
            draft.write_text(text, encoding="utf-8")
            draft.replace(path)
        written.append(path)
    for path in (root / PACKAGE).rglob("*.py"):
        if path not in written and not by_hand(path):
            print(f"removed {path.relative_to(root)}: no notebook exports it")
            path.unlink()
    return written


def main() -> int:
    try:
        written = export()
        readme.write()
    except ValueError as error:
        print(error, file=sys.stderr)
        return 1
    print("exported " + (" ".join(sorted(path.stem for path in written)) or "nothing"))
    return 0


if __name__ == "__main__":
    sys.exit(main())
