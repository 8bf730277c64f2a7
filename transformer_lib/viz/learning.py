"""Attention that is learned in the page: a figure that trains a layer while the reader watches."""

import json
import re
from pathlib import Path

from transformer_lib.viz.viewer import Viewer, page_script

__all__ = ["learning_viewer"]

STYLE, TEXT = (Path(__file__).with_suffix(f".{kind}").read_text("utf-8") for kind in ("css", "html"))
SCRIPT = page_script(__file__, "learner", "TASKS")
HTML: dict[str, str] = dict(re.findall(r"<!-- (.+?) -->\n(.*?)\n(?=<!-- |\Z)", TEXT, re.DOTALL))
RECORD = Path(__file__).parents[1] / "results" / "page-learning.json"
LETTERS, EXAMPLE = "ABCDEFGH", "CAHBEDFA"
CHOICES = {  # for each setting what stands before it, and what can be chosen; the first is chosen
    "task": ("Task:", ["reverse", "shift", "copy", "sort", "find"]),
    "positions": ("positions", ["yes", "no"]),
    "root": ("divide by √d", ["yes", "no"]),
    "heads": ("heads", ["1", "2"]),
}
LONG = {"find": "find the last letter of the alphabet"}


def choice(name: str) -> str:
    """The radio buttons of a setting."""
    label, values = CHOICES[name]
    first, *others = [{"name": name, "value": value, "text": LONG.get(value, value)} for value in values]
    options = [HTML["option at first"].format(**first), *(HTML["option"].format(**one) for one in others)]
    return HTML["choice"].format(name=name, label=label, options="".join(options))


def learning_viewer() -> Viewer:
    """A layer of attention that learns a task in the page: choose, bet, and watch its map form.

    It needs no library and no network. Where no script runs, the map after fifty steps stands there.
    """
    record, goal, cells = json.loads(RECORD.read_text("utf-8")), EXAMPLE[::-1], ""
    for n, weight in enumerate(record["weights"]):
        cells += HTML["cell"].format(weight=weight)
        if n % 8 == 7:
            letter = LETTERS[record["answers"][n // 8]]
            verdict = "right" if letter == goal[n // 8] else "wrong"
            cells += HTML["answer"].format(verdict=verdict, letter=letter)
    rates = [
        HTML["rate at first" if rate == "0.01" else "rate"].format(rate=rate) for rate in ("0.003", "0.01", "0.03")
    ]
    title = "Watch attention being learned"
    contents = {name: choice(name) for name in CHOICES} | {"title": title, "style": STYLE, "rates": "".join(rates)}
    contents |= {"example": " ".join(EXAMPLE), "goal": " ".join(goal), "cells": cells, "script": SCRIPT}
    return Viewer(title, HTML["figure"].format(head="".join(f"<b>{one}</b>" for one in EXAMPLE), **contents))
