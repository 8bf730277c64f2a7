"""Rehearse Colab: each chapter alone, in an empty folder, with nothing but the package and Jupyter.

    python tools/colab.py                      every notebook of the book
    python tools/colab.py NOTEBOOK ...         only these
    python tools/colab.py --here [NOTEBOOK]    with this very Python, as inside Colab's own image

Each notebook runs in an environment that has the dependencies of the package, with the extras that pages ask for, and
Jupyter, but not the package: a start-up file of IPython says that this is Colab, so the notebook's own install cell
runs, and git takes the project's address for a local clone that holds the working tree. The environment is kept in
build/colab and made anew when pins or pyproject.toml change.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
import venv
from itertools import chain
from pathlib import Path

from chapters import EXTRAS, ROOT, notebooks, repository

STARTUP = 'import sys, types\nsys.modules.setdefault("google.colab", types.ModuleType("google.colab"))\n'
RUN = """
import sys, nbformat
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError
notebook = nbformat.read(sys.argv[1], as_version=4)
try:
    NotebookClient(notebook, timeout=900, kernel_name="python3").execute()
except CellExecutionError as error:
    sys.exit(str(error))
"""
INSTALLED = """
import json
from importlib.metadata import distribution
found = distribution("attention-step-by-step")
print(json.loads(found.read_text("direct_url.json"))["vcs_info"]["commit_id"])
"""


def call(command: list, **options) -> str:
    """Run a command; its output, or an error that shows it."""
    done = subprocess.run(
        [str(word) for word in command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **options
    )
    if done.returncode:
        raise RuntimeError(f"{' '.join(map(str, command[:6]))} ... failed:\n{done.stdout[-6000:]}")
    return done.stdout


def pip(python: Path, *arguments: str | Path, **options) -> str:
    return call([python, "-m", "pip", "--disable-pip-version-check", *arguments], **options)


def working_copy(folder: Path, root: Path = ROOT) -> Path:
    """Copy what git tracks or would track; ignored files stay behind."""
    for name in call(["git", "ls-files", "-z", "-co", "--exclude-standard"], cwd=root).split("\0"):
        if name and (root / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(root / name, folder / name)
    return folder


def clone(folder: Path, root: Path = ROOT) -> str:
    """Make a repository of the working tree, on the branch or tag that readers get; the id of its one commit."""
    working_copy(folder, root)
    git = ["git", "-C", folder, "-c", "user.name=Rehearsal", "-c", "user.email=rehearsal@localhost"]
    call([*git, "init", "-q", "-b", repository(root)[1]])
    call([*git, "add", "-A"])
    call([*git, "-c", "commit.gpgsign=false", "commit", "-q", "-m", "The working tree"])
    return call([*git, "rev-parse", "HEAD"]).strip()


def environment(root: Path = ROOT) -> Path:
    """The Python of an environment with the package's dependencies and Jupyter, pinned, but without the package."""
    pins, folder = root / "requirements.txt", root / "build" / "colab"
    python, ready = folder / "bin" / "python", folder / ".ready"
    declared = (root / "pyproject.toml").read_text(encoding="utf-8")
    made_of = pins.read_text(encoding="utf-8") + declared
    if not ready.exists() or ready.read_text(encoding="utf-8") != made_of:
        project = tomllib.loads(declared)["project"]
        extras = (project["optional-dependencies"][name] for name in ("viz", *EXTRAS.values()))
        asked = [*project["dependencies"], *chain(*extras), "ipykernel", "nbclient"]
        venv.create(folder, clear=True, with_pip=True)
        pip(python, "install", "--quiet", "--constraint", pins, "torch")  # first, so that nothing chooses its build
        pip(python, "install", "--quiet", "--constraint", pins, *asked)
        ready.write_text(made_of, encoding="utf-8")
    return python


def surroundings(copy: Path, ipython: Path, root: Path = ROOT) -> dict[str, str]:
    """The environment variables of a rehearsal: no data, no other packages, and git finds the local clone."""
    startup = ipython / "profile_default" / "startup"
    startup.mkdir(parents=True, exist_ok=True)
    (startup / "00-colab.py").write_text(STARTUP)
    dropped = {"PYTHONPATH", "VIRTUAL_ENV", "MPLBACKEND", "TRANSFORMER_LIB_DATA", "PYTEST_CURRENT_TEST"}
    kept = {key: value for key, value in os.environ.items() if key not in dropped}
    number = int(kept.get("GIT_CONFIG_COUNT", "0"))
    return kept | {
        "GIT_CONFIG_COUNT": str(number + 1),
        f"GIT_CONFIG_KEY_{number}": f"url.{copy.as_uri()}.insteadOf",
        f"GIT_CONFIG_VALUE_{number}": repository(root)[0],
        "IPYTHONDIR": str(ipython),
        "JUPYTER_CONFIG_DIR": str(ipython),
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
        "PYTHONNOUSERSITE": "1",
    }


def rehearse(notebook: Path, python: Path, copy: Path, commit: str, root: Path = ROOT) -> float:
    """Run one chapter as Colab would; the seconds it took. Raises if it fails, or did not install the clone."""
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory() as ipython:
        variables = surroundings(copy, Path(ipython), root)
        pip(python, "uninstall", "--quiet", "--yes", "attention-step-by-step", env=variables)
        shutil.copy2(notebook, folder)
        started = time.perf_counter()
        call([python, "-c", RUN, notebook.name], cwd=folder, env=variables)
        seconds = time.perf_counter() - started
        installed = call([python, "-c", INSTALLED], cwd=folder, env=variables).strip()
    if installed != commit:
        raise RuntimeError(f"{notebook.name} installed commit {installed}, not the rehearsed {commit}")
    return seconds


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("notebooks", nargs="*", type=Path, help="default: all")
    parser.add_argument("--here", action="store_true", help="use this Python instead of an environment of its own")
    options = parser.parse_args(arguments)
    failed = 0
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder).resolve()
        commit = clone(copy)
        python = Path(sys.executable) if options.here else environment()
        for notebook in [path.resolve() for path in options.notebooks] or notebooks():
            name = notebook.relative_to(ROOT).as_posix()
            try:
                print(f"{name}: {rehearse(notebook, python, copy, commit):.0f} s", flush=True)
            except RuntimeError as error:
                failed += 1
                print(f"{name}: FAILED\n{error}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
