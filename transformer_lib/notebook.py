"""What only notebooks need: a class that later cells, or later chapters, add methods to."""

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
