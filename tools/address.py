"""Give the project its address on GitHub, in every file that needs it: python tools/address.py ME/NAME."""

from __future__ import annotations

import re
import subprocess
import sys

from chapters import ROOT, repository


def main(argument: str) -> int:
    """Replace the address that pyproject.toml declares, which begins as a placeholder."""
    if not re.fullmatch(r"[\w.-]+/[\w.-]+", argument):
        print(f"{argument!r} is not the name of a repository, such as me/attention-step-by-step")
        return 2
    old, new = repository()[0].removeprefix("https://github.com/"), argument
    listed = subprocess.run(
        ["git", "grep", "-lIF", f"github.com/{old}"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    for name in listed.stdout.split():
        path = ROOT / name
        text = path.read_text(encoding="utf-8")
        path.write_text(text.replace(f"github.com/{old}", f"github.com/{new}"), encoding="utf-8")
    subprocess.run([sys.executable, ROOT / "tools/export.py"], check=True)  # the README's links, too
    print(f"{len(listed.stdout.split())} files say https://github.com/{new}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1] if len(sys.argv) == 2 else ""))
