"""What the comparison of notebooks sees of pictures: nothing of a plot; of a figure to touch, what it says everywhere.

``compare.py`` puts this file beside the copies. Points of a line differ in their last digit from machine to machine.
"""

from __future__ import annotations

import json
import re
from functools import cache
from itertools import product
from typing import Any

from transformer_lib.viz.frames import DIGITS, written

FIGURE = re.compile(r'<div class="touch .*?aria-label="([^"]*)".*?<script type="application/json">(.*?)</script>', re.S)


@cache
def numbers_of(letters: str) -> list[int]:
    """The numbers that ``frames.digits_of`` wrote."""
    found, last, rest, shift = [], 0, 0, 0
    for letter in letters:
        digit = DIGITS.index(letter)
        rest, shift = rest + ((digit & 31) << shift), shift + 5
        if digit < 32:
            last += -(rest >> 1) if rest & 1 else rest >> 1
            found.append(last)
            rest = shift = 0
    return found


def said(page: str) -> str:
    """The title of a figure to touch and its sentence at every setting; any other output as it is."""
    figure = FIGURE.match(page)
    if figure is None:
        return page
    data = json.loads(figure[2])
    settings = product(*(range(len(values)) for values in data["labels"]))
    return "\n".join([figure[1], *(_sentence(data, setting) for setting in settings)])


def _sentence(data: dict[str, Any], setting: tuple[int, ...]) -> str:
    labels, templates = data["labels"], data["said"]

    def number(column: int) -> tuple[int, int]:
        uses, decimals, letters = data["columns"][column]
        at = 0
        for control in uses:
            at = at * len(labels[control]) + setting[control]
        return numbers_of(letters)[at], decimals

    form, *used = templates[number(templates[-1])[0]] if isinstance(templates[-1], int) else templates[0]
    values = iter(written(*number(column)) for column in used)
    sentence = re.sub("~", lambda _: next(values), form) if used else form
    return " ".join([*(labels[control][i] for control, i in enumerate(setting)), sentence])


def pytest_collectstart(collector: Any) -> None:
    """nbval leaves out PNG by itself."""
    if hasattr(collector, "skip_compare"):
        collector.skip_compare += ("image/svg+xml",)


def pytest_configure() -> None:
    """Let every cell of a notebook be compared by what its figures say."""
    from nbval.plugin import IPyNbCell  # type: ignore[import-untyped]

    before = IPyNbCell.sanitize
    IPyNbCell.sanitize = lambda self, text: before(self, said(text) if isinstance(text, str) else text)
