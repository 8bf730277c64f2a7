"""Execute notebooks in place, keeping outputs and counts, and drop metadata that differs between machines.

    python tools/notebooks.py                 every notebook of the book
    python tools/notebooks.py NOTEBOOK ...    only these
    python tools/notebooks.py --changed ...   of these, only the cells that changed since the last commit
    python tools/notebooks.py --clean ...     tidy the metadata without executing

Each notebook runs alone in an empty folder. One that fails is left as it was.

With --changed, what else runs is found by names: later cells that use what a changed cell defines, and earlier ones
that define, or may alter, what all these use. The other cells keep their outputs. That is quick, but no proof: a cell
may depend on more than names, such as random numbers that an earlier cell draws. CI runs every cell and compares.
"""

from __future__ import annotations

import argparse
import ast
import copy
import os
import re
import subprocess
import symtable
import sys
import tempfile
import time
from dataclasses import dataclass
from difflib import SequenceMatcher
from pathlib import Path
from typing import Any

import nbformat
from chapters import ROOT, colab_cell, fold, notebooks

QUIET = "ignore:This is probably wrong,ignore:Look twice"  # a page says itself what to think of a translation
METADATA = {
    "accelerator": "GPU",
    "colab": {"gpuType": "T4", "provenance": []},
    "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
}
CELL_METADATA = ("tags", "mystnb", "jupyter", "cellView")
FOLDED = {"jupyter": {"source_hidden": True}, "cellView": "form"}  # for Jupyter, and for Colab


def clean(notebook: nbformat.NotebookNode) -> None:
    """Leave only metadata that is the same on every machine; keep outputs, counts, tags and captions.

    What folds on the page folds in Jupyter and on Colab too.
    """
    notebook.metadata = nbformat.from_dict(METADATA)
    notebook.nbformat, notebook.nbformat_minor = 4, 5
    if len(notebook.cells) > 1 and '"google.colab" in sys.modules' in notebook.cells[1].source:
        code = (cell.source for cell in notebook.cells if cell.cell_type == "code")
        notebook.cells[1].source = colab_cell(code)
    for cell in notebook.cells:
        kept = {key: cell.metadata[key] for key in CELL_METADATA if cell.metadata.get(key) and key not in FOLDED}
        if cell.cell_type == "code" and fold(cell.source, kept.get("tags", [])) is not None:
            kept |= FOLDED
        cell.metadata = nbformat.from_dict(kept)
        if cell.cell_type == "code":
            for output in cell.outputs:
                if "metadata" in output:
                    output.metadata = nbformat.from_dict({})


def write(notebook: nbformat.NotebookNode, path: Path) -> None:
    """Write a notebook in one step."""
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    nbformat.write(notebook, draft)
    draft.replace(path)


@dataclass(frozen=True)
class Names:
    """The names of a cell: those it mentions, binds, binds to what no use alters, and probably alters; and its text."""

    mentioned: set[str]
    bound: set[str]
    fixed: set[str]
    altered: set[str]
    source: str

    @property
    def sets_switches(self) -> bool:
        """True if it seeds, or changes a setting of torch or matplotlib."""
        return bool(re.search(r"manual_seed|\.(?:set|use)_\w+\(|rcParams|^[%!]", self.source, re.M))


def names_of(source: str) -> Names:
    """What a cell does with the names of the notebook; magic lines are left out."""
    plain = re.sub(r"^(\s*)[%!].*$", r"\1pass", source, flags=re.M)
    top = symtable.symtable(plain, "cell", "exec")
    symbols, inner, tables = top.get_symbols(), set[str](), top.get_children()
    while tables:  # functions, classes and comprehensions, whose own names nobody else sees
        table = tables.pop()
        inner |= {one.get_name() for one in table.get_symbols() if one.is_global()}
        tables += table.get_children()
    bound = {one.get_name() for one in symbols if one.is_assigned() or one.is_imported()}
    fixed = {one.get_name() for one in symbols if one.is_imported() or one.is_namespace()}
    altered: set[str] = set()
    for node in ast.walk(ast.parse(plain)):
        inside = {one.id for one in ast.walk(node) if isinstance(one, ast.Name)}
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call) and "print" not in inside:
            altered |= inside  # such as model.train(), or train(model)
        elif isinstance(node, ast.Attribute | ast.Subscript) and not isinstance(node.ctx, ast.Load):
            altered |= inside
    mentioned = {one.get_name() for one in symbols} | inner
    return Names(mentioned, bound, fixed, altered & mentioned, source)


def affected(cells: list[Names], changed: set[int]) -> tuple[set[int], set[int]]:
    """Of the cells, by their places, those whose outputs a change may change, and those that must run for it."""
    fixed = set().union(*(cell.fixed for cell in cells)) - set().union(*(cell.bound - cell.fixed for cell in cells))
    stale = set(changed)
    for i in range(len(cells)):
        if any((cells[j].bound | cells[j].altered - fixed) & cells[i].mentioned for j in stale if j < i):
            stale.add(i)
    run, wanted = set(stale), set().union(*(cells[i].mentioned for i in stale))
    for i in reversed(range(max(stale, default=0))):
        if i not in run and (cells[i].sets_switches or (cells[i].bound | cells[i].mentioned - fixed) & wanted):
            run.add(i)
        if i in run:
            wanted |= cells[i].mentioned
    return stale, run


def unlike_the_commit(path: Path, code: list[Any]) -> set[int]:
    """The places of the code cells that are not as they were in the last commit, or were not run."""
    command = ["git", "show", f"HEAD:./{path.name}"]
    done = subprocess.run(command, cwd=path.parent, capture_output=True, text=True, encoding="utf-8")
    old = nbformat.reads(done.stdout, as_version=4).cells if done.returncode == 0 else []
    before, now = ([one.source.strip() for one in cells if one.cell_type == "code"] for cells in (old, code))
    same = SequenceMatcher(None, before, now, autojunk=False).get_matching_blocks()
    kept = {block.b + i for block in same for i in range(block.size)}
    return {i for i, cell in enumerate(code) if i not in kept or cell.execution_count is None}


def execute(path: Path, only_changed: bool = False) -> float:
    """Run one notebook from top to bottom in an empty folder and write it back; the seconds it took."""
    from nbclient import NotebookClient

    notebook = nbformat.read(path, as_version=4)
    clean(notebook)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    stale = run = set(range(len(code)))
    if only_changed:
        stale, run = affected([names_of(cell.source) for cell in code], unlike_the_commit(path, code))
        print(f"{len(run)} of {len(code)} cells run, {len(stale)} of them for their outputs", flush=True)
    ran = copy.deepcopy(notebook)
    ran.cells = [copy.deepcopy(code[i]) for i in sorted(run)]
    started = at = time.perf_counter()

    def tell(cell_index: int, **_: Any) -> None:
        nonlocal at
        before, at = at, time.perf_counter()
        print(f"  cell {cell_index + 1} of {len(ran.cells)}: {at - before:.1f} s", flush=True)

    with tempfile.TemporaryDirectory() as folder:
        options = {"resources": {"metadata": {"path": folder}}, "coalesce_streams": True, "on_cell_executed": tell}
        NotebookClient(ran, timeout=1800, kernel_name="python3", **options).execute()
    for i, cell in zip(sorted(run), ran.cells, strict=True):
        if i in stale:
            code[i].outputs = cell.outputs
    for place, cell in enumerate(code, 1):
        cell.execution_count = place
        for output in cell.outputs:
            if "execution_count" in output:
                output.execution_count = place
    clean(notebook)
    write(notebook, path)
    return time.perf_counter() - started


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("notebooks", nargs="*", type=Path, help="default: all")
    parser.add_argument("--clean", action="store_true", help="tidy the metadata only")
    parser.add_argument("--changed", action="store_true", help="only cells that changed, and what they need")
    options = parser.parse_args(arguments)
    os.environ["PYTHONWARNINGS"] = QUIET
    failed = 0
    for path in options.notebooks or notebooks():
        name = os.path.relpath(path.resolve(), ROOT) if path.resolve().is_relative_to(ROOT) else str(path)
        if options.clean:
            notebook = nbformat.read(path, as_version=4)
            clean(notebook)
            write(notebook, path)
            continue
        from nbclient.exceptions import CellExecutionError, CellTimeoutError

        try:
            print(f"{name}: {execute(path, options.changed):.0f} s", flush=True)
        except (CellExecutionError, CellTimeoutError) as error:
            failed += 1
            print(f"{name}: FAILED, the file is unchanged\n{error}", file=sys.stderr, flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
