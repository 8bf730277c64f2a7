"""Rehearse Colab: each chapter alone, in an empty folder, with nothing but the package and Jupyter.

    python tools/colab.py                      every notebook of the book
    python tools/colab.py NOTEBOOK ...         only these
    python tools/colab.py --here [NOTEBOOK]    with this very Python, as inside Colab's own image

A wheel is built from a copy of the working tree and its content checked. Then each notebook runs in an environment that
has the dependencies of ``attention-step-by-step[viz]`` and Jupyter, but not the package: a start-up file of IPython
says that this is Colab, so the notebook's own install cell runs, and git takes the project's address for a
local clone that holds the working tree. The environments are kept in build/ and made anew when the pins change.
"""

from __future__ import annotations

import argparse
import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
from chapters import BY_HAND, PACKAGE, ROOT, SHIPPED, book, notebooks
from set_repository import Repository

JUPYTER = ("ipykernel", "nbclient")
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
import json, sys
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
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=root, capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    for name in filter(None, listed.split("\0")):
        if (root / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(root / name, folder / name)
    return folder


def clone(folder: Path, root: Path = ROOT) -> str:
    """A repository that holds the working tree, on the branch that readers get; the id of its one commit."""
    working_copy(folder, root)
    git = ["git", "-C", folder, "-c", "user.name=Rehearsal", "-c", "user.email=rehearsal@localhost"]
    call([*git, "init", "-q", "-b", Repository.declared(root).branch])
    call([*git, "add", "-A"])
    call([*git, "-c", "commit.gpgsign=false", "commit", "-q", "-m", "The working tree"])
    return call([*git, "rev-parse", "HEAD"]).strip()


def build_wheel(copy: Path, folder: Path, python: Path | str = sys.executable) -> Path:
    """Build the wheel of a copy of the project."""
    pip(Path(python), "wheel", "--quiet", "--no-deps", "--wheel-dir", folder, copy)
    return next(folder.glob("attention_step_by_step-*.whl"))


def wheel_problems(wheel: Path, root: Path = ROOT) -> list[str]:
    """What the wheel lacks, or holds without need."""
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        metadata = archive.read(next(name for name in names if name.endswith(".dist-info/METADATA"))).decode()
    modules = [f"{PACKAGE}/{chapter.module}.py" for chapter in book(root) if chapter.module]
    expected = {f"{PACKAGE}/{name}" for name in BY_HAND} | set(modules)
    expected |= {path.relative_to(root).as_posix() for path in (root / PACKAGE / SHIPPED).glob("*/*")}
    packed = {name for name in names if ".dist-info/" not in name}
    problems = [f"{wheel.name} lacks {name}" for name in sorted(expected - packed)]
    problems += [f"{wheel.name} holds {name}" for name in sorted(packed - expected)]
    for needed in project.get("license-files", []):
        if not any(name.endswith(f".dist-info/licenses/{needed}") for name in names):
            problems.append(f"{wheel.name} lacks the licence {needed}")
    if f"Version: {project['version']}\n" not in metadata:
        problems.append(f"{wheel.name} is not of version {project['version']}")
    return problems


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Let one process at a time in."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def dependencies(root: Path, extra: str | None = None) -> list[str]:
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return project["optional-dependencies"][extra] if extra else project["dependencies"]


def make_environment(name: str, packages: list[str], root: Path, below: Path | None = None) -> Path:
    """A virtual environment with these packages at the pinned versions, made once; its Python.

    Args:
        name: what the environment is for.
        packages: what to install; torch comes first, so that nothing else chooses its build.
        root: the project, whose requirements.txt holds the pins.
        below: the Python of another environment whose packages can be imported too.
    """
    pins = root / "requirements.txt"
    key = hashlib.sha256(
        "\n".join([pins.read_text(encoding="utf-8"), sys.version, *packages, str(below)]).encode()
    ).hexdigest()
    folder = root / "build" / "environments" / name
    python, ready = folder / "bin" / "python", folder / ".ready"
    with locked(folder.with_suffix(".lock")):
        if not ready.exists() or ready.read_text() != key:
            call([sys.executable, "-m", "venv", "--clear", folder])
            if below:
                site = "import sysconfig; print(sysconfig.get_path('purelib'))"
                (Path(call([python, "-c", site]).strip()) / "below.pth").write_text(call([below, "-c", site]))
            first = [package for package in packages if package.startswith("torch>")]
            for wave in (first, packages):
                if wave:
                    pip(python, "install", "--quiet", "--constraint", pins, *wave)
            ready.write_text(key)
    return python


def bare_environment(root: Path = ROOT) -> Path:
    """The Python of an environment with the package's dependencies alone."""
    return make_environment("bare", dependencies(root), root)


def jupyter_environment(root: Path = ROOT) -> Path:
    """The Python of an environment with the dependencies of attention-step-by-step[viz], and Jupyter."""
    return make_environment("jupyter", [*dependencies(root, "viz"), *JUPYTER], root, below=bare_environment(root))


def surroundings(repository: Path, ipython: Path, root: Path = ROOT) -> dict[str, str]:
    """The environment variables of a rehearsal: no data, no other packages, and git finds the local clone."""
    startup = ipython / "profile_default" / "startup"
    startup.mkdir(parents=True, exist_ok=True)
    (startup / "00-colab.py").write_text(STARTUP)
    dropped = {"PYTHONPATH", "VIRTUAL_ENV", "MPLBACKEND", "TRANSFORMER_LIB_DATA", "PYTEST_CURRENT_TEST"}
    kept = {key: value for key, value in os.environ.items() if key not in dropped}
    number = int(kept.get("GIT_CONFIG_COUNT", "0"))
    return kept | {
        "GIT_CONFIG_COUNT": str(number + 1),
        f"GIT_CONFIG_KEY_{number}": f"url.{repository.as_uri()}.insteadOf",
        f"GIT_CONFIG_VALUE_{number}": Repository.declared(root).url,
        "IPYTHONDIR": str(ipython),
        "JUPYTER_CONFIG_DIR": str(ipython),
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
        "PYTHONNOUSERSITE": "1",
    }


def rehearse(notebook: Path, python: Path, repository: Path, commit: str, root: Path = ROOT) -> float:
    """Run one chapter as Colab would; the seconds it took. Raises if it fails, or did not install the clone."""
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory() as ipython:
        environment = surroundings(repository, Path(ipython), root)
        pip(python, "uninstall", "--quiet", "--yes", "attention-step-by-step", env=environment)
        shutil.copy2(notebook, folder)
        started = time.perf_counter()
        call([python, "-c", RUN, notebook.name], cwd=folder, env=environment)
        seconds = time.perf_counter() - started
        installed = call([python, "-c", INSTALLED], cwd=folder, env=environment).strip()
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
        repository = Path(folder).resolve() / "repository"
        repository.mkdir()
        commit = clone(repository)
        wheel = build_wheel(working_copy(Path(folder) / "sources"), Path(folder))
        problems = wheel_problems(wheel)
        print("\n".join(problems) or f"{wheel.name} holds every module, py.typed and the licence", flush=True)
        python = Path(sys.executable) if options.here else jupyter_environment()
        for notebook in [path.resolve() for path in options.notebooks] or notebooks():
            name = notebook.relative_to(ROOT).as_posix()
            try:
                print(f"{name}: {rehearse(notebook, python, repository, commit):.0f} s", flush=True)
            except RuntimeError as error:
                failed += 1
                print(f"{name}: FAILED\n{error}", flush=True)
    return 1 if failed or problems else 0


if __name__ == "__main__":
    sys.exit(main())
