"""Export the library from the notebooks: one module, one page.

    python tools/export.py                 every notebook of the book
    python tools/export.py NOTEBOOK ...    only these

The work is done by nbdev's exporter. This script adds the name of the chapter to the module's docstring, refuses what
would leave half a module behind, replaces each module in one step, and removes modules whose notebook is gone.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import re
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
from chapters import BY_HAND, EXPORT, PACKAGE, ROOT, TITLE, Notebook, notebooks

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
        if EXPORT.search(cell.source)[1] != "export":
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


def one_module(page: Notebook, module: str) -> dict:
    """The notebook as the exporter is to see it for one of its modules: the title, and the cells of this module."""
    cells = []
    for cell in page.cells:
        if cell.exports and page.target(cell) == module:
            cells.append({**cell.data, "source": EXPORT.sub("#| export", cell.source, count=1)})
        elif cell.kind == "markdown" and TITLE.search(cell.source) and not cells:
            cells.append(cell.data)
            cells.append({**page.code[0].data, "id": "exported-to", "source": f"#| default_exp {module}"})
    return {**page.data, "cells": cells}


def absolute(text: str, module: str) -> str:
    """The text with its imports written in full: the exporter makes some of them relative, and some not."""
    packages = f"{PACKAGE}.{module}".split(".")

    def in_full(found: re.Match[str]) -> str:
        above = ".".join(packages[: -len(found[2])])
        name = found[3]
        return f"{found[1]}{above}{'' if name.startswith(' ') else '.'}{name}"

    return RELATIVE.sub(in_full, text)


def render(notebook: Path, root: Path = ROOT) -> dict[str, str]:
    """The text of every module that a notebook exports, by the module's name."""
    from nbdev.export import nb_export  # slow to import

    root = root.resolve()
    page = Notebook(notebook.resolve(), root)
    if page.module is None:
        return {}
    check_exportable(page)
    found = {}
    for module in page.modules:
        file = f"{module.replace('.', '/')}.py"
        with tempfile.TemporaryDirectory() as folder:  # the exporter marks cells with a path relative to the module
            copy = Path(folder).resolve() / page.name
            copy.parent.mkdir(parents=True)
            copy.write_text(json.dumps(one_module(page, module)), encoding="utf-8")
            package = Path(folder).resolve() / PACKAGE
            nb_export(str(copy), lib_path=str(package), name=module)
            text = (package / file).read_text(encoding="utf-8")
        summary, closing, rest = text.partition('"""\n')
        if not summary.lstrip("r").startswith('"""'):
            raise ValueError(f"{page.name}: the title cell needs a line '> what the chapter builds'")
        text = f"{summary.rstrip()}\n\nChapter: {page.title} ({page.name}).\n{closing}{rest}"
        found[module] = absolute(text, module)
    return found


def path_of(module: str, root: Path = ROOT) -> Path:
    """The file of a module."""
    return root / PACKAGE / f"{module.replace('.', '/')}.py"


def export(notebook: Path, root: Path = ROOT) -> list[Path]:
    """Write the modules of one notebook; their paths."""
    written = []
    for module, text in render(notebook, root).items():
        path = path_of(module, root)
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            draft = path.with_name(f".{path.name}.{os.getpid()}")
            draft.write_text(text, encoding="utf-8")
            draft.replace(path)
        written.append(path)
    return written


def export_all(root: Path = ROOT) -> list[Path]:
    """Export every notebook below ``root`` and remove modules that no notebook exports."""
    written = [path for notebook in notebooks(root) for path in export(notebook, root)]
    for path in (root / PACKAGE).rglob("*.py"):
        if path not in written and path.name not in BY_HAND:
            print(f"removed {path.relative_to(root)}: no notebook exports it")
            path.unlink()
    return written


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("notebooks", nargs="*", type=Path, help="default: all")
    chosen = parser.parse_args(arguments).notebooks
    try:
        written = [one for path in chosen for one in export(path.resolve())] if chosen else export_all()
    except ValueError as error:
        print(error, file=sys.stderr)
        return 1
    print("exported " + (" ".join(sorted(path.stem for path in written)) or "nothing"))
    return 0


if __name__ == "__main__":
    sys.exit(main())
