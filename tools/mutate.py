"""Change single lines of the library at random, and see which changes the fast tests miss.

    python tools/mutate.py [--count 30] [--seed 0]

Each change is made in a copy of the package, in models/ or decoding/; the tests that import the module run on the copy.
Survivors are printed: a test is missing, or the change makes no difference.
"""

from __future__ import annotations

import argparse
import ast
import functools
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
from chapters import PACKAGE, ROOT

CHANGES = [
    (r" \+ ", " - "), (r" - ", " + "), (r" \* ", " / "), (r" / ", " * "), (r" == ", " != "), (r" < ", " <= "),
    (r" >= ", " > "), (r" and ", " or "), (r"\bTrue\b", "False"), (r"\bFalse\b", "True"), (r"\b1\b", "2"),
    (r"\b0\b", "1"), (r"dim=-1", "dim=0"), (r"\.transpose\(1, 2\)", ""), (r"~", ""), (r"not ", ""), (r" @ ", " * "),
    (r"\bis None\b", "is not None"), (r"\.contiguous\(\)", ""), (r"\bmin\b", "max"), (r"\.amax\b", ".amin"),
]  # fmt: skip


def candidates(path: Path) -> list[tuple[int, str]]:
    """Every line of code that a change can be made to, and what it becomes; messages and annotations are left alone."""
    text = path.read_text(encoding="utf-8")
    skipped: set[int] = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Raise | ast.Import | ast.ImportFrom | ast.AnnAssign) or (
            isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        ):
            skipped |= set(range(node.lineno, node.end_lineno + 1))
    found = []
    for number, line in enumerate(text.splitlines(), 1):
        if number in skipped or line.lstrip().startswith(("#", "def ", "@", "class ", '"', "f'", 'f"')):
            continue
        if re.search(r"(Float|Int|Bool)\[|check_|__all__", line):
            continue
        code = line.split("  # ")[0]  # a change in a comment changes nothing
        found += [(number, re.sub(old, new, code, count=1)) for old, new in CHANGES if re.search(old, code)]
    return found


def tests_of(module: str) -> list[Path]:
    """The test files that import a module, and the laws of all translators."""
    found = [path for path in (ROOT / "tests").glob("test_*.py") if re.search(rf"\b{module}\b", path.read_text())]
    found.append(ROOT / "tests" / "test_protocol.py")
    return sorted(path for path in set(found) if not re.search(r"test_(book|pipeline|errors)", path.name))


@functools.cache
def passes(copy: Path, tests: Path) -> bool:
    """Whether the fast tests of one file pass on the copy as it is now."""
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-m", "not slow", "--hypothesis-profile", "quick"]
    command += ["-p", "no:nbval", "-p", "no:cacheprovider", f"--rootdir={ROOT}", "-c", str(ROOT / "pyproject.toml")]
    environment = {**os.environ, "PYTHONPATH": str(copy), "OMP_NUM_THREADS": "1"}
    try:
        done = subprocess.run([*command, str(tests)], cwd=copy, env=environment, capture_output=True, timeout=600)
    except subprocess.TimeoutExpired:
        return False
    return done.returncode in (0, 5)


def survives(copy: Path, path: Path, number: int, line: str, sound: list[Path]) -> bool:
    """Whether the fast tests pass with one line changed."""
    target = copy / path.relative_to(ROOT)
    before = target.read_text(encoding="utf-8")
    lines = before.splitlines(keepends=True)
    lines[number - 1] = line + "\n"
    target.write_text("".join(lines), encoding="utf-8")
    try:
        return all(passes.__wrapped__(copy, tests) for tests in sound)
    finally:
        target.write_text(before, encoding="utf-8")


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=30)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(arguments)
    files = [path for folder in ("models", "decoding") for path in sorted((ROOT / PACKAGE / folder).glob("[a-z]*.py"))]
    every = [(path, *change) for path in files for change in candidates(path)]
    survivors = 0
    with tempfile.TemporaryDirectory() as folder:
        shutil.copytree(ROOT / PACKAGE, Path(folder) / PACKAGE)
        for path, number, line in random.Random(options.seed).sample(every, options.count):
            module = ".".join(path.relative_to(ROOT).with_suffix("").parts)
            sound = [tests for tests in tests_of(module) if passes(Path(folder), tests)]  # others would catch anything
            lives = survives(Path(folder), path, number, line, sound)
            survivors += lives
            where = f"{path.relative_to(ROOT / PACKAGE)}:{number}"
            print(f"{'SURVIVED' if lives else 'caught  '} {where}: {line.strip()}", flush=True)
    print(f"{survivors} of {options.count} changes survived")
    return 0


if __name__ == "__main__":
    sys.exit(main())
