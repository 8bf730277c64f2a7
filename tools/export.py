"""Export the library from the notebooks: one chapter, one module.

    python tools/export.py                 every notebook of the book
    python tools/export.py NOTEBOOK ...    only these

The work is done by nbdev's exporter. This script adds the name of the chapter to the module's docstring, and
removes modules whose notebook is gone.
"""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path

import nbformat
from nbdev.export import nb_export

ROOT = Path(__file__).resolve().parents[1]
BY_HAND = {"__init__.py", "py.typed"}
DEFAULT_EXP = re.compile(r"^#\|\s*default_exp\s+(\w+)\s*$", re.M)


def notebooks(root: Path = ROOT) -> list[Path]:
    """Every notebook of the book, in reading order: the appendix is the ground floor and comes first."""
    found = (root / "book").rglob("*.ipynb")
    order = {"history": 0, "transformer": 1, "translation": 2, "descendants": 3, "appendix": -1}
    kept = [path for path in found if ".ipynb_checkpoints" not in path.parts and "_build" not in path.parts]
    return sorted(kept, key=lambda path: (order.get(path.parent.name, 9), path.name))


def module_of(notebook: Path) -> str | None:
    """The module a notebook exports to, or None."""
    for cell in nbformat.read(notebook, as_version=4).cells:
        if cell.cell_type == "code" and (found := DEFAULT_EXP.search(cell.source)):
            return found[1]
    return None


def title_of(notebook: Path) -> str:
    """The chapter's title: the first heading of level one."""
    for cell in nbformat.read(notebook, as_version=4).cells:
        if cell.cell_type == "markdown" and (found := re.search(r"^# (.+)$", cell.source, re.M)):
            return found[1].strip()
    raise ValueError(f"{notebook.name} has no title: the first cell must begin with '# Title'")


def export(notebook: Path, root: Path = ROOT) -> Path | None:
    """Write the module of one notebook; the path of the module, or None if the notebook exports nothing."""
    module = module_of(notebook)
    if module is None:
        return None
    package = root / "transformer_lib"
    path = package / f"{module}.py"
    nb_export(str(notebook), lib_path=str(package), name=module)
    text = path.read_text(encoding="utf-8")
    summary, closing, rest = text.partition('"""\n')
    if not summary.lstrip("r").startswith('"""'):
        raise ValueError(f"{notebook.name}: the title cell needs a line '> what the chapter builds'")
    summary = f"{summary.rstrip()}\n\nChapter: {title_of(notebook)} ({notebook.relative_to(root).as_posix()}).\n"
    path.write_text(summary + closing + rest, encoding="utf-8")
    return path


def export_all(root: Path = ROOT) -> list[Path]:
    """Export every notebook below ``root`` and remove modules that no notebook exports."""
    written = [path for notebook in notebooks(root) if (path := export(notebook, root))]
    for path in (root / "transformer_lib").glob("*.py"):
        if path not in written and path.name not in BY_HAND:
            print(f"removed {path.name}: no notebook exports it")
            path.unlink()
    return written


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("notebooks", nargs="*", type=Path, help="default: all")
    chosen = parser.parse_args(arguments).notebooks
    written = [export(path.resolve()) for path in chosen] if chosen else export_all()
    print("exported " + " ".join(sorted(path.stem for path in written if path)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
