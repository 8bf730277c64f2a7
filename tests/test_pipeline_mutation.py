"""The chain of checks turns red: one altered output, one altered line, one altered assertion, one nulled count.

First on a tiny real notebook, then on a chapter of the book, always in a temporary copy.
"""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

pytest.importorskip("tomllib", reason="the book needs Python 3.11; only the library supports 3.10")
pytest.importorskip("nbdev", reason="the pipeline's tests need the book's environment")

import chapters
import compare
import gate
import guard
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


def test_one_altered_line_turns_the_gate_red(project: TinyProject) -> None:
    assert project.gate() == []
    module = project.module("counting")
    module.write_text(module.read_text().replace("return sum(", "return 1 + sum("))
    assert any("counting.py differs from" in problem for problem in project.gate())
    project.replace("counting", "return sum(", "return 1 + sum(")
    assert project.gate() == [], "after an export of the altered notebook"


# A chapter of the book ------------------------------------------------------------------------------------------------


def real_chapter() -> chapters.Notebook:
    """The first chapter of the book that was executed."""
    for chapter in chapters.book():
        if chapter.part in chapters.CHAPTER_PARTS and chapter.module and all(cell.count for cell in chapter.code):
            return chapter
    pytest.skip("no chapter was executed yet")


@pytest.fixture
def copied(tmp_path: Path) -> tuple[Path, Path]:
    """A copy of the book's notebooks and of the library, and one chapter in it."""
    chapter = real_chapter()
    for path in chapters.notebooks():
        target = tmp_path / path.relative_to(ROOT)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, target)
    shutil.copytree(ROOT / chapters.PACKAGE, tmp_path / chapters.PACKAGE)
    for name in ("pyproject.toml", "_toc.yml"):
        shutil.copy(ROOT / name, tmp_path)
    return tmp_path, tmp_path / chapter.name


@pytest.mark.slow
def test_in_a_chapter_an_altered_line_turns_the_gate_red(copied: tuple[Path, Path]) -> None:
    root, path = copied
    before = gate.check(root)
    module = root / chapters.PACKAGE / f"{chapters.Notebook(path, root).module.replace('.', '/')}.py"
    text = module.read_text(encoding="utf-8")
    changed = re.sub(r"^(    return .+)$", r"\1  # altered", text, count=1, flags=re.M)
    assert changed != text
    module.write_text(changed, encoding="utf-8")
    assert [f"{module.name} differs from" in problem for problem in set(gate.check(root)) - set(before)] == [True]


@pytest.mark.slow
def test_in_a_chapter_a_nulled_count_turns_the_guard_red(copied: tuple[Path, Path]) -> None:
    root, path = copied
    before = guard.check(root)
    notebook = nbformat.read(path, as_version=4)
    index = next(n for n, cell in enumerate(notebook.cells) if cell.cell_type == "code" and n > 3)
    notebook.cells[index].execution_count = None
    nbformat.write(notebook, path)
    new = set(guard.check(root)) - set(before)
    assert len(new) == 1 and f"{path.name}: no execution count" in new.pop()


@pytest.mark.slow
def test_in_a_chapter_an_altered_output_and_an_altered_assertion_turn_it_red(copied: tuple[Path, Path]) -> None:
    root, path = copied
    notebook = nbformat.read(path, as_version=4)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    output = next(n for n, cell in enumerate(code) if any(out.get("name") == "stdout" for out in cell.outputs))
    asserted = re.compile(r"^assert .*==.*$", re.M)
    claim = next(n for n, cell in enumerate(code) if n != output and asserted.search(cell.source))
    shown = next(out for out in code[output].outputs if out.get("name") == "stdout")
    shown.text = f"altered {shown.text}"
    code[claim].source = asserted.sub("assert False", code[claim].source, count=1)
    last = notebook.cells.index(code[max(output, claim)])
    del notebook.cells[last + 1 :]  # what comes later cannot matter
    nbformat.write(notebook, path)
    passed, failed = compared([path], root)
    assert failed == {(path.stem, output), (path.stem, claim)}
    assert passed == max(output, claim) + 1 - 2
