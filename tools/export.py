"""Export the library from the notebooks: one chapter, one module.

    python tools/export.py                 every notebook of the book
    python tools/export.py NOTEBOOK ...    only these

The work is done by nbdev's exporter. This script adds the name of the chapter to the module's docstring, refuses what
would leave half a module behind, replaces each module in one step, and removes modules whose notebook is gone.
"""

from __future__ import annotations

import argparse
import ast
import os
import shutil
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
from chapters import BY_HAND, EXPORT, PACKAGE, ROOT, Notebook, notebooks


def module_of(notebook: Path, root: Path = ROOT) -> str | None:
    """The module a notebook exports to, or None."""
    return Notebook(notebook, root).module


def title_of(notebook: Path, root: Path = ROOT) -> str:
    """The chapter's title: the first heading of level one."""
    title = Notebook(notebook, root).title
    if title is None:
        raise ValueError(f"{notebook.name} has no title: the first cell must begin with '# Title'")
    return title


def check_exportable(chapter: Notebook) -> None:
    """Refuse what nbdev would export wrongly, partly or elsewhere; the error names the cell."""
    where = chapter.name
    if len(chapter.modules) > 1:
        raise ValueError(f"{where}: more than one default_exp ({', '.join(chapter.modules)}); one chapter, one module")
    if not chapter.module.isidentifier() or f"{chapter.module}.py" in BY_HAND:
        raise ValueError(f"{where}: {chapter.module!r} cannot be the name of a chapter's module")
    if not chapter.exported:
        raise ValueError(f"{where}: default_exp {chapter.module}, but no cell begins with '#| export'")
    if not chapter.title or "\\" in chapter.title or '"' in chapter.title:
        raise ValueError(f"{where}: the first cell needs a title '# Title' without backslashes and quotation marks")
    for cell in chapter.exported:
        kind, target = EXPORT.search(cell.source).groups()
        if kind != "export" or target.strip():
            raise ValueError(f"{where}, cell {cell.index}: '#| {kind} {target}'; a chapter only uses '#| export'")
        try:
            ast.parse(cell.source)
        except SyntaxError as error:
            raise ValueError(
                f"{where}, cell {cell.index}: an exported cell must be plain Python, but line {error.lineno} is "
                f"{(error.text or '').strip()!r}"
            ) from error


def render(notebook: Path, root: Path = ROOT) -> str | None:
    """The text of the module that a notebook exports, or None if it exports nothing."""
    from nbdev.export import nb_export  # slow to import

    notebook = notebook.resolve()
    root = root.resolve()
    chapter = Notebook(notebook, root)
    if chapter.module is None:
        return None
    check_exportable(chapter)
    with tempfile.TemporaryDirectory() as folder:  # the exporter marks each cell with the path relative to the module
        copy = Path(folder).resolve() / chapter.name
        copy.parent.mkdir(parents=True)
        shutil.copyfile(notebook, copy)
        package = Path(folder).resolve() / PACKAGE
        nb_export(str(copy), lib_path=str(package), name=chapter.module)
        text = (package / f"{chapter.module}.py").read_text(encoding="utf-8")
    summary, closing, rest = text.partition('"""\n')
    if not summary.lstrip("r").startswith('"""'):
        raise ValueError(f"{chapter.name}: the title cell needs a line '> what the chapter builds'")
    return f"{summary.rstrip()}\n\nChapter: {chapter.title} ({chapter.name}).\n{closing}{rest}"


def export(notebook: Path, root: Path = ROOT) -> Path | None:
    """Write the module of one notebook; the path of the module, or None if the notebook exports nothing."""
    text = render(notebook, root)
    if text is None:
        return None
    path = root / PACKAGE / f"{module_of(notebook, root)}.py"
    path.parent.mkdir(exist_ok=True)
    if not path.exists() or path.read_text(encoding="utf-8") != text:
        draft = path.with_name(f".{path.name}.{os.getpid()}")
        draft.write_text(text, encoding="utf-8")
        draft.replace(path)
    return path


def export_all(root: Path = ROOT) -> list[Path]:
    """Export every notebook below ``root`` and remove modules that no notebook exports."""
    written = [path for notebook in notebooks(root) if (path := export(notebook, root))]
    for path in (root / PACKAGE).glob("*.py"):
        if path not in written and path.name not in BY_HAND:
            print(f"removed {path.name}: no notebook exports it")
            path.unlink()
    return written


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("notebooks", nargs="*", type=Path, help="default: all")
    chosen = parser.parse_args(arguments).notebooks
    try:
        written = [export(path.resolve()) for path in chosen] if chosen else export_all()
    except ValueError as error:
        print(error, file=sys.stderr)
        return 1
    print("exported " + (" ".join(sorted(path.stem for path in written if path)) or "nothing"))
    return 0


if __name__ == "__main__":
    sys.exit(main())
