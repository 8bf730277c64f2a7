"""From cells to a module: imports at the top, pages by name, and methods inside the class that they extend."""

from __future__ import annotations

import ast

import export
import pytest

BEGIN = '''from abc import ABC, abstractmethod


class Base(ABC):
    def __init__(self):
        self.n = 0

    @abstractmethod
    def double(self):
        """Twice as many."""


class Counter(Base):
    """Counts."""

    def use(self):
        return helper(self.n)


class Between:
    """A class between two pages."""
'''
LATER = '''from abc import ABC
from functools import cache, cached_property
from transformer_lib.models.counter import Counter
from transformer_lib.notebook import extends


def helper(n):
    return "helper", n


# Begins at zero, too.
@extends(Counter)
def __init__(self, n=0):
    super(Counter, self).__init__()
    self.n = n


@extends(Counter)
def double(self) -> "Counter":
    """Twice as many.

    In two lines.
    """
    return type(self)(2 * self.n)


@extends(Counter)
@property
def text(self):
    return f"""
{self.n}
    times"""


@extends(Counter)
@cached_property
def once(self):
    return [self.n]


@extends(Counter)
def helper(self):
    return "method"


@extends(Counter)
@classmethod
def three(cls):
    return cls(3)


@extends(Counter)
@staticmethod
def four():
    return 4
'''
PARTS = [("first", BEGIN), ("later", LATER)]


def measured(scope: dict) -> list[object]:
    """What the classes do."""
    three = scope["Counter"].three()
    return [
        three.double().n,
        three.text,
        three.once is three.once,
        three.use(),
        three.helper(),
        three.four(),
        scope["helper"](1),
    ]


EXPECTED = [6, "\n3\n    times", True, ("helper", 3), "method", 4, ("helper", 1)]


def test_a_class_that_grows_does_the_same_on_the_page_and_in_the_library() -> None:
    page: dict = {}
    for cell in (BEGIN, LATER.replace("from transformer_lib.models.counter import Counter\n", "")):
        exec(cell, page)
    library: dict = {}
    exec(export.join("models.counter", PARTS), library)
    assert measured(page) == measured(library) == EXPECTED


def test_the_library_has_one_ordinary_class() -> None:
    text = export.join("models.counter", PARTS)
    tree = ast.parse(text)
    first = next(n for n, node in enumerate(tree.body) if not isinstance(node, (ast.Import, ast.ImportFrom)))
    assert all(not isinstance(node, (ast.Import, ast.ImportFrom)) for node in tree.body[first:])
    classes = {node.name: [one.name for one in node.body[1:]] for node in tree.body if isinstance(node, ast.ClassDef)}
    assert classes["Counter"] == ["use", "__init__", "double", "text", "once", "helper", "three", "four"]
    assert export.public(text) == ["Base", "Counter", "Between", "helper"]
    assert "extends" not in text and "transformer_lib" not in text
    begins = [line for line in text.splitlines() if line.lstrip().startswith("#")]
    assert begins == ["# page: first", "    # page: later", "    # Begins at zero, too.", "# page: later"]


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("@extends(Counter)\ndef f(self):\n    return super().f()", r"later: .* in f, say super\(Counter, self\)"),
        (
            "@extends(Nothing)\ndef f(self):\n    return 1",
            r"later: no cell before @extends\(Nothing\) ",
        ),
    ],
)
def test_what_a_class_cannot_take_is_refused_with_the_name_of_the_page(code: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        export.join("models.counter", [("first", BEGIN), ("later", code)])
