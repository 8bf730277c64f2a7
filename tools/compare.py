"""Run notebooks again and compare every output with the committed one, strictly (nbval).

    python tools/compare.py                 those that changed, or that need something that changed
    python tools/compare.py NOTEBOOK ...    these
    CI=true python tools/compare.py         every notebook of the book

What a notebook needs are the modules that it imports, directly or not, and the records that it names. One is left out
if it agreed before with all of that as it is now (.cache/compared.json remembers), or if all of that is as on
origin/main, where every notebook is compared at every push.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from chapters import PACKAGE, ROOT, notebooks

SANITIZE = Path(__file__).resolve().with_name("nbval_sanitize.cfg")
MEMORY = ROOT / ".cache" / "compared.json"
IMPORT = re.compile(rf"(?:from|import) +{PACKAGE}\b([.\w]*)")
WHOLE = re.compile(rf"(?:from {PACKAGE} import +(\w+)|import {PACKAGE}(?![.\w]))")
RELATIVE = re.compile(r"from +(\.[.\w]*) +import")


def files_of(name: str, root: Path) -> list[Path]:
    """The files behind the name of a module; those of a package are all that it imports at once."""
    if not name.strip("."):
        return []
    place = root / PACKAGE / name.strip(".").replace(".", "/")
    found = [place.with_suffix(".py"), place / "__init__.py", *place.parent.glob("__init__.py")]
    return [path for path in found if path.is_file()]


def imported(path: Path, root: Path) -> Iterator[Path]:
    """The files of the package that one file imports."""
    text = path.read_text(encoding="utf-8")
    for name in IMPORT.findall(text):
        yield from files_of(name, root)
    if path.suffix == ".py" and path.parent != root / PACKAGE:  # the package itself is imported by every notebook
        for name in RELATIVE.findall(text):
            yield from files_of(".".join([*path.relative_to(root / PACKAGE).parent.parts, name.strip(".")]), root)


def needs(notebook: Path, root: Path = ROOT) -> set[Path]:
    """Everything whose change may change what a notebook shows."""
    text = notebook.read_text(encoding="utf-8")
    found, waiting = set(), [notebook]
    for name in WHOLE.findall(text):
        waiting += files_of(name, root) or (root / PACKAGE).rglob("*.py")
    while waiting:
        path = waiting.pop()
        if path not in found:
            found.add(path)
            waiting += imported(path, root)
    for folder in (f"{PACKAGE}/results", f"{PACKAGE}/pretrained", f"{PACKAGE}/data", f"{PACKAGE}/viz"):
        for path in (root / folder).rglob("*"):
            named = folder.startswith(PACKAGE) or path.stem in text
            if path.is_file() and path.suffix not in (".py", ".pyc") and named:
                found.add(path)
    return found


def fingerprint(notebook: Path, root: Path = ROOT) -> str:
    """One number for a notebook with all it needs, and for the versions that run it."""
    digest = hashlib.sha256(sys.version.encode())
    pins = root / "requirements.txt"
    for path in [*sorted(needs(notebook, root)), *([pins] if pins.exists() else [])]:
        digest.update(hashlib.sha256(path.read_bytes()).digest() + path.relative_to(root).as_posix().encode())
    return digest.hexdigest()


def changed(root: Path = ROOT) -> set[Path] | None:
    """What differs here from origin/main, or None where there is no such thing."""

    def git(*words: str) -> list[str]:
        done = subprocess.run(["git", *words], cwd=root, capture_output=True, text=True, check=True)
        return done.stdout.split("\0")[:-1]

    try:
        base = subprocess.run(["git", "merge-base", "HEAD", "origin/main"], cwd=root, capture_output=True, text=True,
                              check=True).stdout.strip()  # fmt: skip
        names = git("diff", "--name-only", "-z", base) + git("ls-files", "-z", "-o", "--exclude-standard")
    except (subprocess.CalledProcessError, OSError):
        return None
    return {root / name for name in names}


def compare(paths: list[Path], root: Path = ROOT, capture: bool = False) -> subprocess.CompletedProcess:
    """Run the comparison, two notebooks at a time; the exit status is 0 only if every cell agrees.

    It runs on copies in an empty folder, so that what a notebook writes is gone afterwards.
    """
    workers = min(2, os.cpu_count() or 1, len(paths))
    environment = {key: value for key, value in os.environ.items() if key != "MPLBACKEND"}  # the kernel's own is right
    environment.setdefault("OMP_NUM_THREADS", str(max(1, (os.cpu_count() or 1) // max(1, workers))))
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, [str(root), environment.get("PYTHONPATH")]))
    with tempfile.TemporaryDirectory() as folder:
        copies = [Path(folder, path.relative_to(root)) for path in paths]
        for path, copy in zip(paths, copies, strict=True):
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, copy)
        command = [
            *(sys.executable, "-m", "pytest", "--nbval", "--nbval-current-env", "--nbval-cell-timeout=600"),
            *(f"--nbval-sanitize-with={SANITIZE}", f"--rootdir={folder}", f"--confcutdir={folder}"),
            *("-o", "addopts=", "-o", "filterwarnings=default", "-p", "no:cacheprovider", "-q", "--color=no"),
            *("--durations=15", *(("-n", str(workers), "--dist", "loadscope") if workers > 1 else ())),
            *map(str, copies),
        ]
        return subprocess.run(command, cwd=folder, env=environment, capture_output=capture, text=True, check=False)


def main(arguments: list[str]) -> int:
    memory = json.loads(MEMORY.read_text()) if MEMORY.exists() else {}
    marks = {path: fingerprint(path) for path in ([Path(word).resolve() for word in arguments] or notebooks())}
    due = list(marks)
    if not arguments and not os.environ.get("CI"):
        differs = changed()
        due = [path for path in due if memory.get(path.name) != marks[path]]
        if differs is not None and ROOT / "requirements.txt" not in differs:
            due = [path for path in due if needs(path) & differs]
        print(f"{len(due)} of {len(marks)} notebooks changed, or need what changed (CI=true compares all)", flush=True)
    status = compare(due).returncode if due else 0
    if status == 0:
        MEMORY.parent.mkdir(exist_ok=True)
        MEMORY.write_text(json.dumps(memory | {path.name: marks[path] for path in due}, indent=1))
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
