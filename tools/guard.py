"""The notebook guard: every committed notebook was really executed, and holds only what is the same everywhere.

    python tools/guard.py [NOTEBOOK ...]

nbval passes a cell without execution count unseen, and obeys comments that switch it off. So this guard fails, naming
the cell, on anything that would let a check pass vacuously, on outputs that belong to one machine, and on a chapter
that lacks its title line, its Colab cell or the standard metadata.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import nbformat
from chapters import ROOT, Cell, Notebook, book, colab_cell
from notebooks import CELL_METADATA, METADATA

IGNORED_OUTPUTS = 2
IGNORE = "nbval-ignore-output"
REASON = re.compile(r"^\s*# output ignored: (\S.*)$", re.M)
SWITCHES = re.compile(r"^\s*#+\s*(NBVAL_\w+|PYTEST_VALIDATE_\w+)\s*$", re.M)
FORBIDDEN_TAGS = {"nbval-skip", "nbval-check-output", "nbval-raises-exception", "skip-execution"}
OPENING = re.compile(r"# \S[^\n]*\n\n> \S[^\n]*")
BINARY = {"image/png", "image/jpeg", "image/gif", "application/pdf"}
MACHINE = {
    "a path": re.compile(r"(?<![\w.])/(?:home|work|tmp|root|Users|content|private|var/folders)(?=[/\s'\"<:),]|$)\S*"),
    "a Windows path": re.compile(r"\b[A-Za-z]:\\+Users\S*"),
    "an address": re.compile(r"\b0x[0-9a-fA-F]{7,}\b|\bat 0x[0-9a-fA-F]+"),
    "a warning": re.compile(r"\b[A-Za-z]*Warning\b|\bWARNING\b"),
}


def texts(output: dict) -> Iterator[tuple[str, str]]:
    """Every text of an output: (kind, text). Pictures are left out."""
    if output["output_type"] == "stream":
        yield "stream", "".join(output["text"])
    elif output["output_type"] == "error":
        yield "error", "\n".join([output["ename"], output["evalue"], *output["traceback"]])
    for kind, value in output.get("data", {}).items():
        if kind not in BINARY:
            yield kind, "".join(value) if isinstance(value, list) else str(value)


def numbers(cells: list[Cell]) -> str:
    """The places of some cells, for a message."""
    return f"cell{'s' if len(cells) > 1 else ''} {', '.join(str(cell.index) for cell in cells)}"


def executed(chapter: Notebook) -> Iterator[str]:
    """Every code cell has code, and was run, in order, without an error."""
    unrun = [cell for cell in chapter.code if cell.count is None and cell.source.strip()]
    counts = [cell.count for cell in chapter.code if cell.source.strip()]
    if unrun:
        yield (
            f"{chapter.name}: no execution count, so nothing would be compared, in {numbers(unrun)}: "
            f"make notebooks NB={chapter.name} CHANGED=1"
        )
    elif counts != [*range(1, len(counts) + 1)]:
        place = next(i for i, count in enumerate(counts, 1) if count != i)
        yield f"{chapter.name}: execution count {counts[place - 1]}, expected {place}: make notebooks NB={chapter.name}"
    for cell in chapter.code:
        where = f"{chapter.name}, cell {cell.index}"
        if not cell.source.strip():
            yield f"{where}: an empty code cell"
        errors = [output for output in cell.outputs if output["output_type"] == "error"]
        if errors and "raises-exception" not in cell.tags:
            yield f"{where}: the committed output is an error, {errors[0]['ename']}"
        if not errors and "raises-exception" in cell.tags:
            yield f"{where}: tagged raises-exception, but its committed output holds no error"


def switches(chapter: Notebook) -> Iterator[str]:
    """Nothing is skipped; what is ignored is rare and says why."""
    ignored = [cell for cell in chapter.code if IGNORE in cell.tags]
    if len(ignored) > IGNORED_OUTPUTS:
        yield f"{chapter.name}: {len(ignored)} ignored outputs, at most {IGNORED_OUTPUTS} allowed: {numbers(ignored)}"
    for cell in ignored:
        if not REASON.search(cell.source):
            yield f"{chapter.name}, cell {cell.index}: {IGNORE} without a comment '# output ignored: <reason>'"
    for cell in chapter.cells:
        for tag in sorted(FORBIDDEN_TAGS & set(cell.tags)):
            yield f"{chapter.name}, cell {cell.index}: tagged {tag}"
        if cell.kind == "code":
            for comment in SWITCHES.findall(cell.source):
                yield f"{chapter.name}, cell {cell.index}: the comment {comment} changes what is checked"


def portable(chapter: Notebook) -> Iterator[str]:
    """Outputs hold nothing that belongs to one machine."""
    for cell in chapter.code:
        where = f"{chapter.name}, cell {cell.index}"
        for output in cell.outputs:
            if output["output_type"] == "stream" and output["name"] == "stderr":
                yield f"{where}: writes to stderr: {''.join(output['text']).strip()[:80]!r}"
                continue
            for _, text in texts(output):
                for what, pattern in MACHINE.items():
                    if found := pattern.search(text):
                        yield f"{where}: the output holds {what}: {found[0][:80]!r}"


def furniture(chapter: Notebook, install: str) -> Iterator[str]:
    """Title, Colab cell and metadata are the standard ones."""
    if not chapter.cells or chapter.cells[0].kind != "markdown":
        yield f"{chapter.name}: the first cell must be the title"
    elif not OPENING.fullmatch(chapter.cells[0].source.rstrip()):
        yield f"{chapter.name}, cell 0: must be '# Title', a blank line and '> what the chapter builds', nothing else"
    for cell in chapter.cells[1:]:
        if cell.kind == "markdown" and (found := re.search(r"^# \S.*$", fenced_out(cell.source), re.M)):
            yield f"{chapter.name}, cell {cell.index}: a second title, {found[0]!r}"
    if len(chapter.cells) < 2 or chapter.cells[1].kind != "code" or chapter.cells[1].source != install:
        yield f"{chapter.name}, cell 1: must be the standard Colab cell (copy one, tools/notebooks.py --clean)"
    held = chapter.data["metadata"]
    odd = [key for key in sorted(METADATA.keys() | held.keys()) if held.get(key) != METADATA.get(key)]
    odd += sorted({f"{key} of a cell" for cell in chapter.cells for key in cell.metadata.keys() - set(CELL_METADATA)})
    if odd:
        yield f"{chapter.name}: metadata is not the standard one: {', '.join(odd)} (python tools/notebooks.py --clean)"


def fenced_out(source: str) -> str:
    """Markdown without what stands between fences."""
    return re.sub(r"^(`{3,}|~{3,}|:{3,}).*?^\1", "", source, flags=re.M | re.S)


def check_notebook(chapter: Notebook, root: Path = ROOT) -> list[str]:
    """Every problem of one notebook."""
    try:
        nbformat.validate(nbformat.from_dict(chapter.data))
    except (nbformat.ValidationError, KeyError) as error:
        return [f"{chapter.name}: not a valid notebook: {str(error).splitlines()[0]}"]
    return [
        *executed(chapter),
        *switches(chapter),
        *portable(chapter),
        *furniture(chapter, colab_cell((cell.source for cell in chapter.cells if cell.kind == "code"), root)),
    ]


def check(root: Path = ROOT) -> list[str]:
    """Every problem of every notebook of the book."""
    return [problem for chapter in book(root.resolve()) for problem in check_notebook(chapter, root)]


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("notebooks", nargs="*", type=Path, help="default: all")
    chosen = parser.parse_args(arguments).notebooks
    chapters = [Notebook(path.resolve(), ROOT) for path in chosen] or book()
    problems = [problem for chapter in chapters for problem in check_notebook(chapter)]
    for problem in problems:
        print(f"guard: {problem}")
    if not problems:
        print(f"guard: {len(chapters)} notebooks were executed and hold nothing of one machine")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
