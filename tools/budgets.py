"""How much code there is, beside what is planned.

    python tools/budgets.py

The plan is not raised to fit: what is over is printed beside it.

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
PARTS = {  # what is counted, and how many lines are planned
    "the library, without student/": (7000, [LIBRARY]),
    "models": (2300, [LIBRARY / "models"]),
    "training and data loading": (950, [LIBRARY / name for name in ("training", "data/batching.py", "data/corpus.py")]),
    "decoding": (320, [LIBRARY / "decoding"]),
    "translation and the command": (1100, [LIBRARY / "translation"]),
    "experiments": (2800, [ROOT / "experiments"]),
    "tools and extensions": (1900, [ROOT / "tools", ROOT / "book" / "_ext"]),
    "tests": (13000, [ROOT / "tests"]),
}
RAISES = 210
FUNCTION = 45  # the longest one of models, decoding and training


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
    """What was counted, how many there are, how many are planned, and a remark."""
    library = [path for path in files([LIBRARY]) if path.parent.name != "student"]
    rows = [
        (name, sum(map(lines, library if places == [LIBRARY] else files(places))), plan, "")
        for name, (plan, places) in PARTS.items()
    ]
    raises = sum(isinstance(node, ast.Raise) for path in files([LIBRARY]) for node in ast.walk(tree(path)))
    rows.append(("statements that raise an error", raises, RAISES, ""))
    longest = max(
        (lines(path, node), f"{path.stem}.{node.name}")
        for path in files([LIBRARY / name for name in ("models", "decoding", "training")])
        for node in ast.walk(tree(path))
        if isinstance(node, ast.FunctionDef)
    )
    return [*rows, ("the longest function", longest[0], FUNCTION, longest[1])]


def main() -> None:
    rows = measure()
    print(f"{'':32}{'stands':>8}{'plan':>8}{'over':>8}")
    for name, count, plan, remark in rows:
        print(f"{name:32}{count:8,}{plan:8,}{f'{count - plan:+,}' if count > plan else '':>8}  {remark}")


if __name__ == "__main__":
    main()
