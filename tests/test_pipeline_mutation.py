"""The chain of checks turns red: one altered output, one altered line, one altered assertion, one nulled count.

First on a tiny real notebook, then on a chapter of the book, always in a temporary copy.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

pytest.importorskip("tomllib", reason="the book needs Python 3.11; only the library supports 3.10")
pytest.importorskip("nbdev", reason="the pipeline's tests need the book's environment")

import chapters
import compare
import nbformat
import notebooks
from tiny_project import TinyProject

ROOT = chapters.ROOT


def compared(paths: list[Path], root: Path) -> tuple[int, set[tuple[str, int]]]:
    """Compare notebooks anew: how many cells agreed, and those that did not, as (notebook, number among code cells)."""
    done = compare.compare(paths, root, capture=True)
    passed = re.search(r"(\d+) passed", done.stdout)
    failed = re.findall(r"^FAILED .*?(\w+)\.ipynb::Cell (\d+)", done.stdout, re.M)
    assert done.returncode == bool(failed), done.stdout + done.stderr
    return int(passed[1]) if passed else 0, {(name, int(number)) for name, number in failed}


def alter_output(cell: nbformat.NotebookNode) -> None:
    cell.outputs[0].text = "3\n"


def delete_output(cell: nbformat.NotebookNode) -> None:
    cell.outputs = []


def alter_assertion(cell: nbformat.NotebookNode) -> None:
    cell.source += " + 1"


def null_count(cell: nbformat.NotebookNode) -> None:
    cell.execution_count = None
    cell.outputs = []


MUTATIONS = {
    "altered_output": alter_output,
    "deleted_output": delete_output,
    "altered_assertion": alter_assertion,
    "nulled_count": null_count,
}


@pytest.mark.slow
def test_each_mutation_of_an_executed_notebook_turns_it_red(project: TinyProject) -> None:
    def plain(notebook: nbformat.NotebookNode) -> None:
        notebook.cells[3].source = "#| export\nfrom collections import Counter"
        notebook.cells[4].source = notebook.cells[4].source.replace("Word", "str").replace("word.length", "len(word)")
        notebook.cells[5].source = "print(count(['a', 'dog']))\nassert count(['a', 'dog'], least=2) == 1"

    project.edit("counting", plain)
    path = project.path("counting")
    notebooks.execute(path)
    paths = [path]
    for name, mutate in MUTATIONS.items():
        paths.append(path.with_name(f"{name}.ipynb"))
        notebook = nbformat.read(path, as_version=4)
        mutate(notebook.cells[5])
        nbformat.write(notebook, paths[-1])
    cells = 5 * len(paths)
    red = {("altered_output", 4), ("deleted_output", 4), ("altered_assertion", 4)}
    assert compared(paths, project.root) == (cells - len(red), red)
    # The comparison does not see a nulled count; so the guard must.
    guarded = project.guard()
    assert [problem.split(":")[0] for problem in guarded] == ["book/history/nulled_count.ipynb"], guarded


# A chapter of the book ------------------------------------------------------------------------------------------------
