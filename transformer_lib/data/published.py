"""What published models chose: sizes and parts of their layers, each with its source."""

import tomllib
from copy import deepcopy
from functools import cache
from pathlib import Path
from typing import Any

__all__ = ["load_published"]


@cache
def _rows() -> tuple[dict[str, Any], ...]:
    """The rows of the file."""
    text = Path(__file__).with_name("published_models.toml").read_text(encoding="utf-8")
    return tuple(tomllib.loads(text)["model"])


def load_published() -> dict[str, dict[str, Any]]:
    """Published models by name, oldest first.

    A row has ``year``, ``attention``, ``positions``, ``extras``, ``feed_forward``, ``source``, and ``rests``: what its
    sizes rest on. If known, it has ``cache``, pairs of layers and of the numbers that each of them keeps for every
    token, and ``local``, of layers, tokens and numbers, for those that keep only the latest tokens.
    """
    return {row["name"]: {"local": []} | row for row in deepcopy(_rows())}
