"""Keeps numbers in prose true: `2.41<!-- warm_up/findings/gap/value:.2f -->` is what that record says."""

import re
from functools import cache, reduce
from pathlib import Path

from transformer_lib import results

ROOT = Path(__file__).parents[1]
# without quotes, since notebooks are JSON
MARK = re.compile(r"([-+\u2212]?\d[\d.,]*)(<!-- ([\w-]+)/([^:>]+):(\S+) -->)")
load = cache(results.load)


def pages():
    """All files of the book that hold prose."""
    book = ROOT / "book"
    return [*sorted(book.rglob("*.md")), *sorted(book.rglob("*.ipynb")), ROOT / "README.md"]


def step(part, key):
    """One step of a path: a key, or in a list of rows the name of an arm, whose first measured row it is."""
    if not isinstance(part, list):
        return part[key]
    return next(row for row in part if row["arm"] == key and not row["tuning"])


def rewrite(text, stale):
    """The text with every marked number as its record has it now; what was otherwise goes into `stale`."""

    def replace(match):
        old, mark, record, path, form = match.groups()
        try:
            value = reduce(step, path.split("/"), load(record))
            new = format(value, form).replace("-", "\u2212")
        except (KeyError, TypeError, ValueError, StopIteration) as error:
            raise SystemExit(f"{match[0]} names nothing: {error}") from None
        if new != old:
            stale.append(f"{old} should be {new}  ({record}/{path})")
        return new + mark

    return MARK.sub(replace, text)


def main(files, check):
    """Rewrite the numbers of some files, or of all pages; with `check`, only say which are stale."""
    stale = []
    for file in map(Path, files or pages()):
        text = file.read_text(encoding="utf-8")
        new = rewrite(text, found := [])
        stale += [f"{file}: {line}" for line in found]
        if not check and new != text:
            file.write_text(new, encoding="utf-8")
    print("\n".join(stale) or "all numbers are what the records say")
    return int(bool(stale and check))
