"""Count the library's lines, module by module: all, code, and those that check input.

    python tools/measure_code.py

Code is what is left without docstrings, blank lines, comments and imports. It is counted at 120 columns, like the
rest of the project: the notebooks' 84 columns are for phones. Lines that check are ``if`` statements that only raise
an error (a dead end of the caption grammar and Ctrl-C are none), calls of ``check_...`` functions, those functions, and
all of the module checks.
"""

from __future__ import annotations

import ast
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
from chapters import PACKAGE, ROOT

WIDE = ("format", "--line-length=120", "--isolated", "--config=format.skip-magic-trailing-comma=true")


def lines_of(node: ast.AST) -> set[int]:
    """The numbers of the lines that a node spans."""
    return set(range(node.lineno, node.end_lineno + 1))


def refuses(node: ast.AST) -> bool:
    """Whether a statement raises an error of its own: ``raise SomeError(...)``."""
    return isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call)


def checks(node: ast.AST) -> bool:
    """Whether a node is there to refuse input."""
    if isinstance(node, ast.If):
        return not node.orelse and all(map(refuses, node.body))
    if isinstance(node, ast.FunctionDef):
        return node.name.lstrip("_").startswith("check_")
    call = node.value if isinstance(node, ast.Expr) else None
    name = call.func if isinstance(call, ast.Call) else None
    return getattr(name, "id", getattr(name, "attr", "")).lstrip("_").startswith("check_")


def count(held: str, wide: str, everything: bool) -> tuple[int, int, int]:
    """Lines, lines of code, and lines of checks of one file, as it is and as it is at 120 columns."""
    lines, tree = wide.splitlines(), ast.parse(wide)
    code = {number for number, line in enumerate(lines, 1) if line.strip() and not line.strip().startswith("#")}
    for node in ast.walk(tree):
        words = (
            isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
        )
        if words or isinstance(node, ast.Import | ast.ImportFrom):
            code -= lines_of(node)
    refusing = code if everything else {n for node in ast.walk(tree) if checks(node) for n in lines_of(node)}
    return len(held.splitlines()), len(code), len(refusing & code)


def measure(root: Path = ROOT) -> dict[str, tuple[int, int, int]]:
    """The counts of every module."""
    with tempfile.TemporaryDirectory() as folder:
        copy = shutil.copytree(root / PACKAGE, Path(folder) / PACKAGE, ignore=shutil.ignore_patterns("pretrained"))
        subprocess.run([sys.executable, "-m", "ruff", *WIDE, copy], capture_output=True, check=True)
        found = {}
        for path in sorted(copy.rglob("*.py")):
            name = path.relative_to(copy).as_posix()
            held = (root / PACKAGE / name).read_text(encoding="utf-8")
            found[name] = count(held, path.read_text(encoding="utf-8"), everything=name == "checks.py")
    return found


def main() -> int:
    found = measure()
    print(f"{'module':<34}{'lines':>7}{'code':>7}{'checks':>8}")
    for name, counts in sorted(found.items(), key=lambda item: -item[1][1]):
        print(f"{name:<34}{counts[0]:>7}{counts[1]:>7}{counts[2]:>8}")
    print(f"{'all':<34}{''.join(f'{sum(column):>7}' for column in zip(*found.values(), strict=True))}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
