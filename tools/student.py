"""Write the student's edition: each chapter's notebook without the bodies of the functions that its tests grade.

python tools/student.py [FOLDER]     the default is _build/student; a notebook that is there already stays as it is
"""

from __future__ import annotations

import argparse
import ast
import json
import re
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parent))
from chapters import ROOT, Cell, Notebook, address, book, pages_url, shown

sys.path.append(str(ROOT / "book" / "_ext"))

from transformer_lib.student.grading import checks, functions

INTRODUCTION = """# Write it yourself: {title}

> {promise}

This is the chapter's notebook, but `raise NotImplementedError` stands where your code goes. Functions to write, from top to bottom: {count}.

- Before each cell, a list says what its tests expect. After it, `grade` tests what you have written so far: ✓ passes, ✗ does not, · is not written yet, and ! can't be read. A failure shows both numbers, and names the section that explains it. If it names a famous slip, {slips} has the wrong line and the right one.
- Each function is tested alone, inside the library: everything else is taken from there. So you can begin anywhere, and one mistake fails one function.
- If you are stuck, `take("{name}", "{example}")` shows the library's own text of one function, and uses it from then on.
- Constructors and settings are complete. They name the parts, so read them first: `self.` tells you what you have.
{look}- A cell that uses your function fails until it is written. That is all right."""  # noqa: E501

LOOK = """- `{0}??` shows the text of whatever the chapter imports, here of `{0}`: complete, also if an earlier chapter leaves it to you. Run the cell that imports it first.
"""  # noqa: E501

START = "from transformer_lib.student import grade, take"


def stubs(source: str, targets: set[str]) -> tuple[str, list[str]]:
    """A cell without the bodies of the functions to write, and the names of these."""
    lines, missing = source.splitlines(), []
    for node in ast.parse(source).body:
        missing += [(one, key) for key, one in functions(node) if key in targets]
    for one, _ in reversed(missing):
        first = one.body[0].end_lineno if ast.get_docstring(one) else one.body[0].lineno - 1
        lines[first : one.end_lineno] = [" " * one.body[0].col_offset + "raise NotImplementedError"]
    return "\n".join(lines), [name for _, name in missing]


def known(page: Notebook, targets: set[str]) -> str | None:
    """A function or class of the library that the chapter imports, and that nobody writes here."""
    cells = "\n".join(cell.source for cell in page.cells if cell.kind == "code")
    own = {one.split(".")[0] for one in targets}
    for floor in ("models", "decoding", "training", "translation", "data", "metrics"):
        for line in re.findall(rf"(?m)^from transformer_lib\.{floor}\S* import (\([^)]*\)|.*)", cells):
            if names := [name for name in re.findall(r"\w+", line) if name not in own and not name.isupper()]:
                return names[0]
    return None


def expected(chapter: str, names: list[str]) -> str:
    """What the tests of some functions expect, as a list."""
    lines = [f"- `{one.target}`: {one.expects}" for one in checks(chapter) if one.target in names]
    return "\n".join(["**What the tests expect:**", "", *lines])


def edition(page: Notebook) -> dict:
    """The student's notebook of a chapter."""
    from book_notebooks import rendered  # needs what the book is built with

    name, title, base = page.path.stem, page.title, address(page.root)
    targets = {one.target for one in checks(name)}
    words = {"title": title, "promise": page.promise, "count": len(targets), "name": name}
    slips = f"[the page of slips]({pages_url(base)}book/appendix/slips.html)" if base else "`book/appendix/slips.md`"
    words |= {"look": LOOK.format(found) if (found := known(page, targets)) else "", "slips": slips}
    code = {"cell_type": "code", "execution_count": None, "metadata": {}, "outputs": []}

    def added(key: str, source: str) -> dict:
        return {**code, "id": f"student-{key}", "source": source}

    def told(key: str, source: str) -> dict:
        return {"cell_type": "markdown", "id": f"student-{key}", "metadata": {}, "source": source}

    opening = INTRODUCTION.format(**words, example=checks(name)[0].target)
    cells, start = [{**page.cells[0].data, "source": opening}], added("start", START)
    data = rendered(page, pages_url(base) if base else None)["cells"][1:]
    for cell in (Cell(index, one) for index, one in enumerate(data, 1)):
        if cell.kind != "code":
            cells.append(cell.data)
            continue
        source, owners = stubs(cell.source, targets) if "export" in cell.marks else (cell.source, [])
        if owners:
            cells.append(told(f"tests-{cell.index}", expected(name, owners)))
        if source := shown(source):
            cells.append({**cell.data, "execution_count": None, "outputs": [], "source": source})
        if start not in cells:
            cells.append(start)
        if owners:
            names = ", ".join(f'"{one}"' for one in (name, *owners))
            cells.append(added(f"grade-{cell.index}", f"grade({names})"))
    cells.append(added("grade-all", f'grade("{name}")'))
    return {**page.data, "cells": cells}


def pages(root: Path = ROOT) -> dict[str, Notebook]:
    """The chapters that export something, by the name that their file has in the student's edition."""
    return {f"{page.number:02}_{page.path.stem}.ipynb": page for page in book(root) if page.number and page.exported}


def main(folder: Path) -> int:
    folder.mkdir(parents=True, exist_ok=True)
    for name, page in pages().items():
        if (folder / name).exists():
            print(f"{folder / name} is there already and stays as it is")
            continue
        text = json.dumps(edition(page), ensure_ascii=False, indent=1)
        (folder / name).write_text(text + "\n", encoding="utf-8")
    print(f"the student's edition is in {folder}; make grade CHAPTER=masks grades a chapter of it")
    return 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", nargs="?", type=Path, default=ROOT / "_build" / "student")
    sys.exit(main(parser.parse_args().folder))
