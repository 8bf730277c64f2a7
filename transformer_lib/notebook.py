"""What only notebooks need: a class that later cells, or later chapters, add methods to."""

import ast
import sys
from abc import update_abstractmethods
from functools import cached_property
from typing import Any


def extends(cls: type) -> Any:
    """Add a method to a class that an earlier cell began; in the library, it stands inside the class.

    It may be a property, cached or not, a class method or a static method. Write ``super(C, self)`` in it: ``super()``
    needs a class around it.
    """

    def attach(method: Any) -> Any:
        name = getattr(method, "fget", getattr(method, "func", method)).__name__
        setattr(cls, name, method)
        if isinstance(method, cached_property):
            method.__set_name__(cls, name)
        update_abstractmethods(cls)
        # a function of the same name stays what it was
        return sys._getframe(1).f_globals.get(name, method)

    return attach


def class_of(node: ast.stmt) -> str | None:
    """The class that a definition marked with ``@extends(C)`` belongs to."""
    mark = next(iter(getattr(node, "decorator_list", [])), None)
    if isinstance(mark, ast.Call) and ast.unparse(mark.func) == "extends":
        return ast.unparse(mark.args[0])
    return None
