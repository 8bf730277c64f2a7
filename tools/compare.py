"""Run notebooks again and compare every output with the committed one, strictly (nbval).

python tools/compare.py                 every notebook of the book
python tools/compare.py NOTEBOOK ...    only these
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
from chapters import ROOT, notebooks

SANITIZE = Path(__file__).resolve().with_name("nbval_sanitize.cfg")


def command(paths: list[Path], workers: int, root: Path = ROOT) -> list[str]:
    """The call of pytest that compares these notebooks."""
    return [
        *(sys.executable, "-m", "pytest", "--nbval", "--nbval-current-env", "--nbval-cell-timeout=600"),
        *(f"--nbval-sanitize-with={SANITIZE}", f"--rootdir={root}", f"--confcutdir={root}"),
        *("-o", "addopts=", "-o", "filterwarnings=default", "-p", "no:cacheprovider", "-q", "--color=no"),
        *(("-n", str(workers), "--dist", "loadscope") if workers > 1 else ()),
        *map(str, paths),
    ]


def compare(paths: list[Path], root: Path = ROOT, capture: bool = False) -> subprocess.CompletedProcess:
    """Run the comparison, several notebooks at a time; the exit status is 0 only if every cell agrees."""
    workers = min(2, os.cpu_count() or 1, len(paths))
    environment = {key: value for key, value in os.environ.items() if key != "MPLBACKEND"}  # the kernel's own is right
    threads = max(1, (os.cpu_count() or 1) // max(1, workers))
    environment.setdefault("OMP_NUM_THREADS", str(threads))  # notebooks that run side by side do not fight for cores
    return subprocess.run(
        command(paths, workers, root), cwd=root, env=environment, capture_output=capture, text=True, check=False
    )


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("notebooks", nargs="*", type=Path, help="default: all")
    paths = [path.resolve() for path in parser.parse_args(arguments).notebooks] or notebooks()
    if not paths:
        print("no notebooks to compare")
        return 0
    return compare(paths).returncode


if __name__ == "__main__":
    sys.exit(main())
