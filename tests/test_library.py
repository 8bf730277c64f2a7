"""The library as a whole: its size, and the examples in its docstrings."""

from __future__ import annotations

import doctest
import importlib
from pathlib import Path

import pytest

import transformer_lib

PACKAGE = Path(transformer_lib.__file__).parent
MODULES = sorted(
    ".".join(["transformer_lib", *path.relative_to(PACKAGE).with_suffix("").parts])
    for path in PACKAGE.rglob("*.py")
    if not path.stem.startswith("__")
)
NAMES = [name for name in transformer_lib.__all__ if not name.startswith("__")]


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


@pytest.mark.parametrize("name", NAMES)
def test_every_public_name_has_an_example(name: str) -> None:
    words = getattr(transformer_lib, name).__doc__ or ""
    assert doctest.DocTestParser().get_examples(words)


def test_about_eighty_names() -> None:
    assert len(transformer_lib.__all__) <= 90
    assert all(hasattr(transformer_lib, name) for name in transformer_lib.__all__)
