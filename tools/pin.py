"""Write requirements.txt: the exact versions, in this environment, of all that the book and its tests need.

    python tools/pin.py

What pyproject.toml asks for comes first, then what that brings along. Run it after an upgrade; the pinned versions are
the ones that the committed outputs were made with.
"""

from __future__ import annotations

import sys
import tomllib
from collections.abc import Iterable
from importlib.metadata import distribution
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

sys.path.insert(0, str(Path(__file__).resolve().parent))
from chapters import ROOT

NOT_PINNED = {"pip", "setuptools", "wheel"}  # they belong to each Python, not to the book
DRIVERS = ("cuda-", "nvidia-", "triton")  # torch brings those of its own build


def declared(root: Path = ROOT) -> list[Requirement]:
    """What pyproject.toml asks for, extras included, without the package itself."""
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    lines = list(project["dependencies"])
    for extra in project["optional-dependencies"].values():
        lines += extra
    return [asked for line in lines if (asked := Requirement(line)).name != project["name"]]


def closure(asked: Iterable[Requirement]) -> dict[str, str]:
    """The installed version of every requirement and of all that it needs here: {name: version}."""
    versions, waiting, seen = {}, list(asked), set()
    while waiting:
        requirement = waiting.pop()
        name = canonicalize_name(requirement.name)
        extras = {"", *requirement.extras}
        if name in NOT_PINNED or name.startswith(DRIVERS) or (name, frozenset(extras)) in seen:
            continue
        seen.add((name, frozenset(extras)))
        found = distribution(name)
        versions[name] = found.version.partition("+")[0]  # no local label such as +cpu
        for line in found.requires or []:
            needed = Requirement(line)
            if needed.marker is None or any(needed.marker.evaluate({"extra": extra}) for extra in extras):
                waiting.append(needed)
    return versions


def main() -> int:
    asked = declared()
    versions = closure(asked)
    direct = list(dict.fromkeys(canonicalize_name(requirement.name) for requirement in asked))
    lines = [
        "# The exact environment of the book: its committed outputs were made with these versions.",
        "# Written by tools/pin.py; the Makefile installs torch first, so that nothing else chooses its build.",
        "",
        "# What pyproject.toml asks for.",
        *(f"{name}=={versions[name]}" for name in direct),
        "",
        "# What that brings along.",
        *(f"{name}=={versions[name]}" for name in sorted(versions.keys() - set(direct))),
    ]
    (ROOT / "requirements.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    print(f"pinned {len(versions)} packages, {len(direct)} of them asked for")
    return 0


if __name__ == "__main__":
    sys.exit(main())
