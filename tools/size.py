"""How many lines of code each part of the house has. No part grows unnoticed, and what was saved stays saved.

    python tools/size.py            fails if a part has more lines than size.json allows
    python tools/size.py --write    records what stands, so that a change of size is a line in the commit

Lines are counted as ruff would write them, 100 letters wide, without docstrings, comments and blank lines.
"""

from __future__ import annotations

import ast
import json
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
MARKS = Path(__file__).with_suffix(".json")
PARTS = {  # the first that fits
    "student": "transformer_lib/student",
    "plain": "transformer_lib/plain",
    "library": "transformer_lib",
    "experiments": "experiments",
    "tools": "tools",
    "site": "book/_ext",
    "tests": "tests",
}


def lines(text: str) -> int:
    """The code lines of a formatted file."""
    docs: set[int] = set()
    for one in ast.walk(ast.parse(text)):
        if isinstance(one, ast.Expr) and isinstance(one.value, ast.Constant) and isinstance(one.value.value, str):
            docs |= set(range(one.lineno, one.end_lineno + 1))  # also those beside fields
    rows = [row.strip() for number, row in enumerate(text.splitlines(), 1) if number not in docs]
    return sum(bool(row) and not row.startswith("#") for row in rows)


def measure(root: Path = ROOT) -> dict[str, int]:
    """The code lines of each part."""
    count = Counter(dict.fromkeys(PARTS, 0))
    with tempfile.TemporaryDirectory() as folder:
        for place in ("transformer_lib", "experiments", "tools", "book/_ext", "tests"):
            for path in (root / place).rglob("*.py"):
                copy = Path(folder, path.relative_to(root))
                copy.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(path, copy)
        options = ["--isolated", "--quiet", "--line-length=100", "--config=format.skip-magic-trailing-comma=true"]
        subprocess.run([sys.executable, "-m", "ruff", "format", *options, folder], check=True)
        for path in Path(folder).rglob("*.py"):
            name = path.relative_to(folder).as_posix()
            part = next(part for part, place in PARTS.items() if name.startswith(f"{place}/"))
            count[part] += lines(path.read_text(encoding="utf-8"))
    return dict(count)


def main(arguments: list[str]) -> int:
    """Compare with the marks, or write them."""
    stands = measure()
    marks = json.loads(MARKS.read_text(encoding="utf-8")) if MARKS.exists() else {}
    for part, count in stands.items():
        change = count - marks.get(part, 0)
        print(f"{part:12}{count:8,}" + (f"  {change:+,}" if change else ""))
    if "--write" in arguments:
        MARKS.write_text(json.dumps(stands, indent=2) + "\n", encoding="utf-8")
    elif grown := [part for part, count in stands.items() if count > marks.get(part, 0)]:
        print(f"size: {', '.join(grown)} grew: make room, or record it with python tools/size.py --write")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
