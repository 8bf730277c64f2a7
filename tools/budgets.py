"""How much code there is, held against the budgets of this project.

    python tools/budgets.py

Code lines are counted after ``ruff format --line-length 100``, without docstrings, comments and blank lines. A trailing
comma does not spread a call over lines that it does not need.
"""

from __future__ import annotations

import ast
import shutil
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
LIBRARY = ROOT / "transformer_lib"
PARTS = {  # what is counted, and the most lines it may have
    "the library": (7560, [LIBRARY]),  # planned: 5,200. It is the sum of its parts
    "models": (2335, [LIBRARY / "models"]),  # planned: 1,900
    # Planned: 500. A run that resumes to the bit after a kill, on several processes, with corpora that do not fit into
    # memory, needs more: each of these is tested, and none of them can go.
    "training, with batching and corpora": (
        1090,
        [LIBRARY / "training", LIBRARY / "data" / "batching.py", LIBRARY / "data" / "corpus.py"],
    ),
    "decoding": (310, [LIBRARY / "decoding"]),  # planned: 300
    # Planned: 700. The command names the option, the file or the line that is wrong, shows progress, keeps what it has
    # written, locks its folder and refuses damaged ones. A translator that does none of this is short.
    "translation and the command": (1380, [LIBRARY / "translation"]),
    # Planned: 1,000, half of it for the captions. Their grammar takes 940: it writes two languages with agreement, word
    # order, pronouns and gold alignments, and old seeds must go on giving the same sentences.
    "data, without batching and corpora": (1510, [LIBRARY / "data"]),
    "viz": (750, [LIBRARY / "viz"]),  # planned: 600. Eight viewers, and the figures of every page
    "the rest": (200, [*LIBRARY.glob("*.py")]),
    "experiments": (4175, [ROOT / "experiments"]),  # planned: 1,900. About seventy lines for a study, and all checks
    # About ten short tests a chapter, each with the results that well-known slips would give; not part of the library
    "what learners are tested with": (2850, [LIBRARY / "student"]),
    # Planned: 1,900, before there were tools for the student's edition (84) and for the example of the first page (68).
    "tools and extensions": (1995, [ROOT / "tools", ROOT / "book" / "_ext"]),
    "tests": (13125, [ROOT / "tests"]),  # planned: 11,000. What mutations of the library would otherwise survive stays
}
# Planned: 110 and 40. Every door (text, files, checkpoints, settings, options) names what is wrong with its input.
# The longest function is beam search, which reads better as one loop.
RAISES, HEADS, FUNCTION = 210, 60, 52


@cache
def all_formatted() -> dict[Path, str]:
    """Every file as ruff would write it in lines of 100 characters."""
    with tempfile.TemporaryDirectory() as folder:
        copies = {path: Path(folder, path.relative_to(ROOT)) for _, places in PARTS.values() for path in files(places)}
        for path, copy in copies.items():
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, copy)
        options = ["--isolated", "--quiet", "--line-length=100", "--config=format.skip-magic-trailing-comma=true"]
        subprocess.run([sys.executable, "-m", "ruff", "format", *options, folder], check=True)
        return {path: copy.read_text(encoding="utf-8") for path, copy in copies.items()}


def formatted(path: Path) -> str:
    """A file as ruff would write it."""
    return all_formatted()[path]


@cache
def tree(path: Path) -> ast.Module:
    """The syntax tree of the formatted file."""
    return ast.parse(formatted(path))


def lines(path: Path, node: ast.AST | None = None) -> int:
    """The code lines of a file, or of one of its definitions."""
    inside = tree(path) if node is None else node
    text = formatted(path).splitlines()
    first, last = (1, len(text)) if node is None else (node.lineno, node.end_lineno)
    docs: set[int] = set()
    for one in ast.walk(inside):
        if isinstance(one, ast.Expr) and isinstance(one.value, ast.Constant) and isinstance(one.value.value, str):
            docs |= set(range(one.lineno, one.end_lineno + 1))  # also those beside fields
    rows = [line.strip() for number, line in enumerate(text, 1) if first <= number <= last and number not in docs]
    return sum(bool(row) and not row.startswith("#") for row in rows)


def files(places: list[Path]) -> list[Path]:
    """Every Python file of some files and folders."""
    return sorted(
        path for place in places for path in ([place] if place.suffix else place.rglob("*.py")) if path.exists()
    )


def measure() -> list[tuple[str, int, int, str]]:
    """Each budget: its name, what was counted, the limit, and a remark."""
    library = files([LIBRARY])
    elsewhere = set(files(PARTS["training, with batching and corpora"][1]))
    rows = []
    for name, (limit, places) in PARTS.items():
        chosen = [path for path in files(places) if not (name.startswith("data,") and path in elsewhere)]
        if name == "the library":
            chosen = [path for path in chosen if path.parent.name != "student"]
        rows.append((name, sum(map(lines, chosen)), limit, ""))
    raises = sum(isinstance(node, ast.Raise) for path in library for node in ast.walk(tree(path)))
    rows.append(("statements that raise", raises, RAISES, ""))
    defined = [(path, node) for path in library for node in ast.walk(tree(path))]
    heads = [lines(path, node) for path, node in defined if getattr(node, "name", "") == "MultiHeadAttention"]
    rows.append(("MultiHeadAttention", max(heads, default=0), HEADS, ""))
    longest = max(
        (lines(path, node), f"{path.stem}.{node.name}") for path, node in defined if isinstance(node, ast.FunctionDef)
    )
    return [*rows, ("the longest function", longest[0], FUNCTION, longest[1])]


def main() -> int:
    rows = measure()
    for name, count, limit, remark in rows:
        print(f"{'over' if count > limit else 'ok':5}{name:40}{count:7,} of {limit:6,}  {remark}")
    return 1 if any(count > limit for _, count, limit, _ in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
