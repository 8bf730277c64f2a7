"""Grade a folder of notebooks: python -m transformer_lib.student FOLDER [--chapter 10] [--mine] [--take NAME]."""

from __future__ import annotations

import argparse
import json
import sys
from contextlib import ExitStack
from pathlib import Path

from transformer_lib.student.grading import planted, read, report, source


def cells(notebook: Path) -> list[str]:
    """The code of a notebook, cell by cell, numbered as in the file."""
    found = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
    return ["".join(cell["source"]) if cell["cell_type"] == "code" else "" for cell in found]


def main(arguments: list[str] | None = None) -> int:
    """Print ticks; 0 if everything passes."""
    parser = argparse.ArgumentParser(prog="python -m transformer_lib.student", description=__doc__)
    parser.add_argument("folder", type=Path, help="what `make student` wrote")
    parser.add_argument("--chapter", type=int, help="its number; without one, a line for each chapter")
    parser.add_argument("--mine", action="store_true", help="build on your earlier chapters, not on the library")
    parser.add_argument("--take", metavar="NAME", help="show the library's own text of one function")
    options = parser.parse_args(arguments)
    notebooks = {int(path.name[:2]): path for path in sorted(options.folder.glob("[0-9][0-9]_*.ipynb"))}
    if not notebooks:
        parser.error(f"{options.folder} has no chapters; make student writes them")
    if options.chapter not in (None, *notebooks):
        parser.error(
            f"in chapter {options.chapter}, there is nothing to write; in {', '.join(map(str, notebooks))} there is"
        )
    total = wanted = 0
    with ExitStack() as earlier:
        for number, path in notebooks.items():
            chapter = path.stem[3:]
            if options.take and number == options.chapter:
                print(source(chapter, options.take))
                return 0
            if options.chapter in (None, number):
                passed, n = report(chapter, cells(path), quiet=options.chapter is None)
                print(f"{passed} of {n}" + f"  {number:2} {path.name}" * (options.chapter is None))
                total, wanted = total + passed, wanted + n
            if options.mine:
                earlier.enter_context(planted(chapter, *read(cells(path))))
    return 0 if total == wanted else 1


if __name__ == "__main__":
    sys.exit(main())
