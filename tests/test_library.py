"""The library as a whole: its size, and the examples in its docstrings."""

from __future__ import annotations

import doctest
import importlib
import os
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
import torch
from jaxtyping import TypeCheckError

import transformer_lib
from transformer_lib.models import registry

PACKAGE = Path(transformer_lib.__file__).parent
sys.path.append(str(PACKAGE.parent / "book" / "_ext"))
MODULES = sorted(
    ".".join(["transformer_lib", *path.relative_to(PACKAGE).with_suffix("").parts])
    for path in PACKAGE.rglob("*.py")
    if not path.stem.startswith("__")
)
NAMES = [name for name in transformer_lib.__all__ if not name.startswith("__")]


@pytest.fixture(autouse=True)
def names_of_models(monkeypatch: pytest.MonkeyPatch) -> None:
    """What an example registers is gone after it."""
    monkeypatch.setattr(registry, "_REGISTERED", dict(registry._REGISTERED))


def examples_of(module: str) -> list[doctest.DocTest]:
    """Every docstring of a module that holds an example."""
    found = doctest.DocTestFinder(exclude_empty=True).find(importlib.import_module(module))
    return [test for test in found if test.examples]


@pytest.mark.parametrize("module", MODULES)
def test_the_examples_run(module: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE | doctest.FAIL_FAST)
    report: list[str] = []
    for test in examples_of(module):
        runner.run(test, out=report.append)
    assert not report, "".join(report)


PAGES = sorted((PACKAGE.parent / "book" / "api").rglob("*.md"))


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.stem)
def test_the_examples_on_the_pages_of_the_library_run(page: Path) -> None:
    names: dict[str, object] = {}
    for code in re.findall(r"^```python\n(.*?)^```$", page.read_text(encoding="utf-8"), re.M | re.S):
        assert all(len(line) < 90 for line in code.splitlines())  # as wide as its box
        if code.startswith(">>>"):
            test = doctest.DocTestParser().get_doctest(code, names, page.stem, str(page), 0)
            runner = doctest.DocTestRunner(optionflags=doctest.IGNORE_EXCEPTION_DETAIL)
            assert runner.run(test, clear_globs=False).failed == 0
            names |= test.globs
        else:
            exec(code, names)


def test_a_model_is_imported_without_the_corpora_and_only_public_names_are_listed() -> None:
    program = (
        "import sys; from transformer_lib import Transformer, GPT, Trainer, beam_search, Pair; print(*sys.modules); "
        "print(*dir(sys.modules['transformer_lib']))"
    )
    command = [sys.executable, "-c", program]
    loaded, listed = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    corpora = ["grammar", "lexicon", "captions", "everyday", "multi30k", "recipes", "recall"]
    assert not {f"transformer_lib.data.{one}" for one in corpora} & set(loaded.split())
    assert set(listed.split()) == {*transformer_lib.__all__, "__version__"}


def test_every_public_class_has_an_example() -> None:
    book_api = pytest.importorskip("book_api")
    pages = "".join(re.findall(r"^```python\n(.*?)^```$", "\n".join(map(Path.read_text, PAGES)), re.M | re.S))
    kept = {"MarianTokenizer"}  # needs files that the package doesn't have
    for name in book_api.modules():
        module = importlib.import_module(f"transformer_lib.{name}")
        made = {one for one, _ in book_api.public(name) if isinstance(getattr(module, one), type)} - kept
        lone = {one for one in made if ">>>" not in (getattr(module, one).__doc__ or "")}
        if name != "translation.cli" and not name.startswith("plain."):  # these have pages of their own
            assert not lone - set(re.findall(r"\w+", pages)), name


def test_every_public_name_is_there_and_says_what_it_is() -> None:
    values = {name: getattr(transformer_lib, name) for name in NAMES}
    assert [name for name, value in values.items() if callable(value) and not value.__doc__] == []
    for module in MODULES:  # an import of a module must not put it in the place of a name
        importlib.import_module(module)
    assert [name for name in NAMES if isinstance(getattr(transformer_lib, name), ModuleType)] == []


def test_settings_is_the_decorator_whatever_was_imported_before() -> None:
    code = """
import sys
for first in ("pass", "import transformer_lib.settings", "from transformer_lib import GPTConfig"):
    for name in [name for name in sys.modules if name.startswith("transformer_lib")]:
        del sys.modules[name]
    exec(first)
    from transformer_lib import settings
    assert settings(type("A", (), {"__annotations__": {}}))(), first
"""
    environment = {**os.environ, "PYTHONPATH": str(PACKAGE.parent)}
    subprocess.run([sys.executable, "-c", code], env=environment, check=True, timeout=120)


def test_strict_mode_names_the_wrong_argument_and_takes_a_whole_number_for_a_float() -> None:
    """All tests run in it."""
    from transformer_lib.metrics import sequence_log_probability

    assert round(transformer_lib.perplexity(-6, 3), 3) == 7.389
    with pytest.raises(TypeCheckError, match="targets"):
        sequence_log_probability(torch.zeros(2, 3, 4), torch.ones(2, 9, dtype=torch.long))


def test_about_eighty_names() -> None:
    assert len(transformer_lib.__all__) <= 90
    assert all(hasattr(transformer_lib, name) for name in transformer_lib.__all__)
