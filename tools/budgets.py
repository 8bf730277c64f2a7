"""How much code there is, held against the budgets of this project.

    python tools/budgets.py

Code lines are counted after ``ruff format --line-length 100``, without docstrings, comments and blank lines.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
LIBRARY = ROOT / "transformer_lib"
PARTS = {  # what is counted, and the most lines it may have
    "the library": (5200, [LIBRARY]),
    "models": (1900, [LIBRARY / "models"]),
    "training, with batching and corpora": (
        500,
        [LIBRARY / "training", LIBRARY / "data" / "batching.py", LIBRARY / "data" / "corpus.py"],
    ),
    "decoding": (300, [LIBRARY / "decoding"]),
    "translation and the command": (700, [LIBRARY / "translation"]),
    "data, without batching and corpora": (1000, [LIBRARY / "data"]),
    "viz": (600, [LIBRARY / "viz"]),
    "the rest": (200, [*LIBRARY.glob("*.py")]),
    "experiments": (1900, [ROOT / "experiments"]),
    "tools and extensions": (1900, [ROOT / "tools", ROOT / "book" / "_ext"]),
    "tests": (11000, [ROOT / "tests"]),
}
RAISES, HEADS, FUNCTION = 110, 60, 40  # statements that raise, lines of MultiHeadAttention, of the longest function


@cache
def formatted(path: Path) -> str:
    """A file as ruff would write it in lines of 100 characters."""
    command = [sys.executable, "-m", "ruff", "format", "--isolated", "--line-length", "100", "-"]
    text = path.read_text(encoding="utf-8")
    return subprocess.run(command, input=text, capture_output=True, text=True, check=True).stdout


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
