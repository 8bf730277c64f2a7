"""Export the library from the notebooks. A page may fill several modules, and a module may grow over several pages.

    python tools/export.py

A module is the cells that pages export to it, in the order of the book: their imports at the top, every part under the
name of its page. Then ruff sorts and formats it. Each module is replaced in one step, and removed when its notebook is
gone. Modules written by hand are left alone.
"""

from __future__ import annotations

import ast
import os
import re
import subprocess
import symtable
import sys
import textwrap
from pathlib import Path

import readme
from chapters import GENERATED, PACKAGE, ROOT, Notebook, book, by_hand, shown

MODULE = re.compile(r"[a-z]\w*(\.[a-z]\w*)?")


def check_exportable(page: Notebook) -> None:
    """Refuse what would be exported wrongly, partly or elsewhere; the error names the cell."""
    where = page.name
    if len(page.defaults) > 1:
        raise ValueError(f"{where}: more than one default_exp ({', '.join(page.defaults)})")
    if not page.exported:
        raise ValueError(f"{where}: default_exp {page.module}, but no cell begins with '#| export'")
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


# ---- the joiner ----


def join(module: str, parts: list[tuple[str, str]]) -> str:
    """The code of a module, from the names of its pages and the cells that they export to it."""
    imports: dict[str, None] = {}
    bodies: list[str] = []
    last = ""
    for page, source in parts:
        lines, gone = source.splitlines(), set()
        for node in ast.parse(source).body:
            if isinstance(node, (ast.Import, ast.ImportFrom)):
                if getattr(node, "module", None) != f"{PACKAGE}.{module}":
                    imports[ast.unparse(node)] = None
                gone |= set(range(node.lineno, node.end_lineno + 1))
        text = "\n".join(line for n, line in enumerate(lines, 1) if n not in gone).strip("\n")
        if text:
            bodies.append(text if page == last else f"# page: {page}\n\n{text}")
            last = page
    return "\n\n\n".join([*imports, *bodies])


def public(text: str) -> list[str]:
    """The names that a module defines, in the order of the book."""
    names = symtable.symtable(text, "module", "exec").get_symbols()
    return [one.get_name() for one in names if one.is_assigned() and not one.get_name().startswith("_")]


def render(module: str, pages: list[Notebook], root: Path = ROOT) -> str:
    """The text of a module, from the pages that export it."""
    docs = [page.docs[module] for page in pages if module in page.docs] or [pages[0].promise]
    parts = [(page.path.stem, shown(c.source)) for page in pages for c in page.exported if page.target(c) == module]
    code = join(module, parts)
    doc = f"{textwrap.fill(docs[0], 117)}\n\nPages: {', '.join(page.path.stem for page in pages)}."
    text = f'"""{doc}\n"""\n\n{GENERATED} Edit the pages.\n\n__all__ = {public(code)}\n\n{code}\n'
    for command in (["check", "--fix", "--exit-zero", "--select=I"], ["format"]):
        ruff = [sys.executable, "-m", "ruff", *command, "--quiet", "--stdin-filename", path_of(module, root), "-"]
        text = subprocess.run(ruff, input=text, cwd=root, capture_output=True, text=True, check=True).stdout
    return text


# ---- the package ----


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
