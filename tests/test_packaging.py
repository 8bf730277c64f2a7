"""The package as users get it: what the wheel holds, what an import needs, and one chapter as Colab would run it."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
import tomllib
import zipfile
from importlib.metadata import metadata
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "transformer_lib"
FILES = [path.relative_to(PACKAGE) for path in PACKAGE.rglob("*.py") if not path.stem.startswith("__")]
MODULES = sorted(".".join(path.with_suffix("").parts) for path in FILES if path.stem != "strict")
OURS = ("PYTHONPATH", "TRANSFORMER_LIB_DATA", "TRANSFORMER_LIB_STRICT")
PLAIN = {key: value for key, value in os.environ.items() if key not in OURS}

NOT_NEEDED = "matplotlib PIL IPython ipykernel jupyter jupyter_client jupyter_core nbclient nbconvert nbformat pytest"
NOT_NEEDED += " beartype huggingface_hub requests"
IMPORTING = f"""
import importlib, importlib.abc, random, socket, sys
import numpy, torch
state = random.getstate(), torch.get_rng_state(), numpy.random.get_state()[1].copy(), torch.get_num_threads()
def refuse(*arguments): raise OSError("an import opened a connection")
socket.socket.connect = refuse

class Blocker(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in "{NOT_NEEDED}".split():
            raise ModuleNotFoundError(f"{{name}} is not installed here", name=name)

sys.meta_path.insert(0, Blocker())
import transformer_lib
for name in {MODULES!r}:
    module = importlib.import_module("transformer_lib." + name)
    missing = [public for public in getattr(module, '__all__', []) if not hasattr(module, public)]
    assert not missing, (name, missing)
for public in getattr(transformer_lib, "__all__", []):
    getattr(transformer_lib, public)
assert random.getstate() == state[0] and torch.equal(torch.get_rng_state(), state[1])
assert (numpy.random.get_state()[1] == state[2]).all() and torch.get_num_threads() == state[3]
assert torch.is_grad_enabled() and torch.get_default_dtype() == torch.float32
"""


def run(command: list, **options) -> subprocess.CompletedProcess:
    return subprocess.run([str(word) for word in command], capture_output=True, text=True, env=PLAIN, **options)


@pytest.mark.slow
def test_every_module_imports_without_jupyter_matplotlib_or_a_hub_and_changes_nothing(tmp_path: Path) -> None:
    done = run([sys.executable, "-W", "error", "-c", IMPORTING], cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert list(tmp_path.iterdir()) == []


def test_the_version_is_the_same_everywhere() -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
    assert metadata("attention-step-by-step")["Version"] == version, "make book or make test installs the package again"
    citation = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert re.findall(r"(?m)^version:\s*['\"]?([^'\"\s]+)", citation) == [version]
    changes = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert re.search(r"(?m)^##\s*\[?v?(\d[\w.]*)", changes)[1] == version


def imported() -> set[str]:
    """The top-level packages that the library imports, anywhere in its text."""
    names = set()
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                names |= {alias.name.split(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.level == 0:
                names.add(node.module.split(".")[0])
    return names


@pytest.mark.slow
def test_dependencies_are_what_the_library_imports() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    asked = project["dependencies"]
    names = {re.match(r"[\w-]+", line)[0] for line in asked}
    unused = names - imported()
    assert not unused, f"asked for, but never imported: {', '.join(sorted(unused))}"
    extras = ("viz", "moses", "strict", "marian", "hf")
    optional = [line for extra in extras for line in project["optional-dependencies"][extra]]
    extras = {re.match(r"[\w-]+", line)[0] for line in optional}
    named = {"datasets"}  # large, and asked for by the error of `hf:NAME` itself
    missing = imported() - names - extras - named - set(sys.stdlib_module_names) - {"transformer_lib"}
    assert not missing, f"imported, but not asked for: {', '.join(sorted(missing))}"


# In environments of their own -----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the project, so that nothing is built in the tree."""
    import colab

    return colab.working_copy(tmp_path_factory.mktemp("project"))


@pytest.mark.slow
@pytest.mark.ci
@pytest.mark.xdist_group("environments")
def test_the_wheel_holds_the_package_and_the_licences(copy: Path, tmp_path: Path) -> None:
    import colab

    colab.pip(Path(sys.executable), "wheel", "--quiet", "--no-deps", "--wheel-dir", tmp_path, copy)
    (wheel,) = tmp_path.glob("*.whl")
    # W002, one file twice: both languages of a translator may share their subwords
    command = Path(sys.executable).with_name("check-wheel-contents")
    check = [command, "--package", copy / "transformer_lib", "--ignore", "W002", wheel]
    done = run(check, cwd=tmp_path)
    assert done.returncode == 0, done.stdout
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        metadata = archive.read(next(name for name in names if name.endswith("/METADATA"))).decode()
    assert "transformer_lib/py.typed" in names and any(name.endswith("/licenses/LICENSE") for name in names)
    assert any(name.endswith("pretrained/TERMS.md") and "licenses" in name for name in names)  # of the weights
    assert re.search(r"(?m)^Name: attention-step-by-step$", metadata)


@pytest.mark.slow
@pytest.mark.ci
@pytest.mark.xdist_group("environments")
def test_one_chapter_as_colab_would_run_it(tmp_path: Path) -> None:
    """The chapter installs the package; nothing is broken then, and the command is there."""
    import chapters
    import colab

    chapter = next(c for c in chapters.book() if c.part in chapters.CHAPTER_PARTS)
    python = colab.environment()
    (tmp_path / "repository").mkdir()
    commit = colab.clone(tmp_path / "repository")
    colab.rehearse(chapter.path, python, tmp_path / "repository", commit)
    assert "No broken requirements found" in colab.pip(python, "check", env=PLAIN)
    script = run([python.with_name("transformer-lib"), "--help"], cwd=tmp_path)
    assert script.returncode == 0 and "usage: transformer-lib" in script.stdout, script.stderr
