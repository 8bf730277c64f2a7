"""Grade a folder of notebooks: python -m transformer_lib.student FOLDER [--chapter masks] [--mine] [--take NAME]."""

from __future__ import annotations

import argparse
import json
import sys
from contextlib import ExitStack
from pathlib import Path

from transformer_lib.student.grading import planted, read, report, source


def cells(notebook: Path) -> list[str]:
    """The code of a notebook, cell by cell."""
    found = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
    return ["".join(cell["source"]) if cell["cell_type"] == "code" else "" for cell in found]


def main(arguments: list[str] | None = None) -> int:
    """Print ticks; 0 if everything passes."""
    parser = argparse.ArgumentParser(prog="python -m transformer_lib.student", description=__doc__)
    parser.add_argument("folder", type=Path, help="what `make student` wrote")
    parser.add_argument("--chapter", help="its name or number; without one, a line for each chapter")
    parser.add_argument("--mine", action="store_true", help="build on your earlier chapters, not on the library")
    parser.add_argument("--take", metavar="NAME", help="show the library's own text of one function")
    options = parser.parse_args(arguments)
    notebooks = {int(path.name[:2]): path for path in sorted(options.folder.glob("[0-9][0-9]_*.ipynb"))}
    if options.folder.suffix == ".ipynb":
        parser.error(f"give the folder, {options.folder.parent}, and the chapter after --chapter")
    if not notebooks:
        parser.error(f"{options.folder} has no chapters; make student writes them")
    keys = {key: number for number, path in notebooks.items() for key in (str(number), path.stem[3:], path.stem)}
    only = None if options.chapter is None else keys.get(options.chapter.removesuffix(".ipynb"))
    if options.chapter and only is None:
        known = ", ".join(f"{number} {path.stem[3:]}" for number, path in notebooks.items())
        parser.error(f"in chapter {options.chapter}, there is nothing to write; there is in {known}")
    if options.take:
        if only is None:
            parser.error("--take shows a part of one chapter: name it after --chapter")
        try:
            print(source(notebooks[only].stem[3:], options.take))
        except ValueError as error:
            parser.error(str(error))
        return 0
    total = wanted = 0
    with ExitStack() as earlier:
        for number, path in notebooks.items():
            chapter = path.stem[3:]
            if only in (None, number):
                passed, n = report(chapter, cells(path), quiet=only is None)
                print(f"{passed} of {n}" + f"  {number:2} {path.name}" * (only is None))
                total, wanted = total + passed, wanted + n
            if options.mine:
                earlier.enter_context(planted(chapter, *read(cells(path))))
    return 0 if total == wanted else 1


if __name__ == "__main__":
    sys.exit(main())
