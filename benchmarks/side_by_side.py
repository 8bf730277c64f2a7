"""Times of things that take turns, and what becomes of their ratios: the arithmetic behind ``peers.py``."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any

Row = dict[str, Any]
Work = Callable[[], Any]
FALLEN = 0.85  # a ratio below so much of what it was has fallen


def turns(ours: Work, peers: dict[str, Work], repeats: int) -> dict[str, list[float]]:
    """Processor seconds of each, measured in turns after one warm-up; ours under the name ``ours``."""
    everyone = {"ours": ours, **peers}
    times: dict[str, list[float]] = {name: [] for name in everyone}
    for repeat in range(repeats + 1):
        for name, work in everyone.items():
            started = time.process_time()
            work()
            if repeat:
                times[name].append(time.process_time() - started)
    return times


def compare(what: str, unit: str, amount: float, times: dict[str, list[float]]) -> Iterator[Row]:
    """A row for each peer: how much work a second, how many times as fast ours is, and between which quartiles."""
    ours = times["ours"]
    for peer, theirs in times.items():
        if peer == "ours":
            continue
        ratios = sorted(b / a for a, b in zip(ours, theirs, strict=True))
        low, _, high = statistics.quantiles(ratios, n=4)
        yield {
            "measured": what,
            "peer": peer,
            "unit": unit,
            "ours": round(amount / statistics.median(ours), 1),
            "theirs": round(amount / statistics.median(theirs), 1),
            "times_as_fast": round(statistics.median(theirs) / statistics.median(ours), 2),
            "quartiles": [round(low, 2), round(high, 2)],
        }


def less(what: str, peer: str, ours: float, theirs: float) -> Row:
    """A row for two peaks of memory, in MB."""
    return {
        "measured": what,
        "peer": peer,
        "unit": "MB",
        "ours": round(ours, 1),
        "theirs": round(theirs, 1),
        "times_as_fast": round(theirs / max(ours, 1), 2),
        "quartiles": [],
    }


def fallen(rows: list[Row], earlier: list[Row]) -> list[str]:
    """Every ratio that is more than 15 percent below what it was, or is not measured any more."""
    now = {(row["measured"], row["peer"]): row["times_as_fast"] for row in rows}
    found = []
    for row in earlier:
        was, there = row["times_as_fast"], now.get((row["measured"], row["peer"]))
        if there is None:
            found.append(f"{row['measured']}, {row['peer']}: {was} before, not measured now")
        elif there < FALLEN * was:
            found.append(f"{row['measured']}, {row['peer']}: {was} before, {there} now")
    return found
