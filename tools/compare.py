"""Run notebooks again and compare every output with the committed one, strictly (nbval); pictures by what they say.

python tools/compare.py                 those that differ from origin/main
python tools/compare.py NOTEBOOK ...    these
CI=true python tools/compare.py         every notebook of the book, as at every push
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from chapters import ROOT, notebooks

QUIET = "ignore:This is probably wrong,ignore:Look twice"  # as in notebooks.py
PICTURES = Path(__file__).resolve().with_name("nbval_conftest.py")
SANITIZE = Path(__file__).resolve().with_name("nbval_sanitize.cfg")


def changed(root: Path = ROOT) -> list[Path]:
    """The notebooks that differ from origin/main, or all where there is no such thing."""
    command = ["git", "diff", "--name-only", "--relative", "--merge-base", "origin/main"]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True)
    differs = {root / name for name in done.stdout.splitlines()}
    return [path for path in notebooks(root) if done.returncode or path in differs]


def compare(paths: list[Path], root: Path = ROOT, capture: bool = False) -> subprocess.CompletedProcess:
    """Run the comparison, two notebooks at a time; the exit status is 0 only if every cell agrees.

    It runs on copies in an empty folder, so that what a notebook writes is gone afterwards.
    """
    workers = min(2, os.cpu_count() or 1, len(paths))
    environment = {key: value for key, value in os.environ.items() if key != "MPLBACKEND"}  # the kernel's own is right
    environment.setdefault("OMP_NUM_THREADS", str(max(1, (os.cpu_count() or 1) // max(1, workers))))
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, [str(root), environment.get("PYTHONPATH")]))
    environment["PYTHONWARNINGS"] = QUIET
    with tempfile.TemporaryDirectory() as folder:
        copies = [Path(folder, path.relative_to(root)) for path in paths]
        for path, copy in zip(paths, copies, strict=True):
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, copy)
        shutil.copy(PICTURES, Path(folder, "conftest.py"))
        command = [
            *(sys.executable, "-m", "pytest", "--nbval", "--nbval-current-env", "--nbval-cell-timeout=600"),
            *(f"--nbval-sanitize-with={SANITIZE}", f"--rootdir={folder}", f"--confcutdir={folder}"),
            *("-o", "addopts=", "-o", "filterwarnings=default", "-p", "no:cacheprovider", "-q", "--color=no"),
            *("--durations=15", *(("-n", str(workers), "--dist", "loadscope") if workers > 1 else ())),
            *map(str, copies),
        ]
        return subprocess.run(command, cwd=folder, env=environment, capture_output=capture, text=True, check=False)


def main(arguments: list[str]) -> int:
    paths = [Path(word).resolve() for word in arguments]
    paths = paths or (notebooks() if os.environ.get("CI") else changed())
    print(f"{len(paths)} notebooks to compare (CI=true compares all)", flush=True)
    return compare(paths).returncode if paths else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
