"""Measurements that took longer than a page may: one JSON file each, with every seed."""

import json
from importlib.resources import files
from typing import Any


def names() -> list[str]:
    """The names of all records."""
    return sorted(f.name[:-5] for f in files(__package__).iterdir() if f.name.endswith(".json"))


def load(name: str) -> dict[str, Any]:
    """A record by its name.

    Raises:
        ValueError: there is no such record.
    """
    path = files(__package__) / f"{name}.json"
    if not path.is_file():
        raise ValueError(f"no record is called {name!r}; there are {', '.join(names())}")
    return json.loads(path.read_text(encoding="utf-8"))
