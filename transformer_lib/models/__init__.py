"""Translators, and the attention that they are made of."""

import sys
import warnings
from importlib import import_module
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

MOVED = {"averages": "attention", "chunked_loss": "loss", "one_stack": "gpt"}


class Moved:
    """Finds modules under the names that they had before they became part of another one."""

    @staticmethod
    def find_spec(name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        """The last finder that Python asks."""
        parent, _, last = name.rpartition(".")
        return ModuleSpec(name, Moved) if parent == __name__ and last in MOVED else None  # type: ignore[arg-type]

    @staticmethod
    def create_module(spec: ModuleSpec) -> None:
        """An ordinary module."""

    @staticmethod
    def exec_module(module: ModuleType) -> None:
        """Everything that the new place has."""
        place = f"{__name__}.{MOVED[module.__name__.rpartition('.')[2]]}"
        warnings.warn(f"{module.__name__} is now part of {place}", DeprecationWarning, stacklevel=2)
        vars(module).update({name: one for name, one in vars(import_module(place)).items() if name[:2] != "__"})


sys.meta_path.append(Moved)
