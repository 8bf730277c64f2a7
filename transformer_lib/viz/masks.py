"""A mask to paint, and a lamp for each word that can see its own answer."""

import re
from pathlib import Path

from transformer_lib.viz.viewer import Viewer, page_script

__all__ = ["mask_viewer"]

STYLE, TEXT = (Path(__file__).with_suffix(f".{kind}").read_text("utf-8") for kind in ("css", "html"))
SCRIPT = page_script(__file__, "lamps", "path", "PRESETS")
HTML: dict[str, str] = dict(re.findall(r"<!-- (.+?) -->\n(.*?)\n(?=<!-- |\Z)", TEXT, re.DOTALL))
WORDS = ["⟨bos⟩", "it", "is", "too", "tired", "to", "walk", "home"]
DEPTHS = ["one layer", "two layers", "three layers"]
SAYS = "Words that can see their own answer: 0 through one layer, 0 through two, 0 through three."


def _row(t: int, word: str) -> str:
    """A word, the cells of what it may look at, at first all up to itself, and its lamps."""
    cells, names = "", {"query": word}
    for s, key in enumerate(WORDS):
        kind = " tl-answer" if s == t + 1 else ""
        names["key"] = f"{key}, its answer" if kind else key
        cells += HTML["cell"].format(kind=kind, pressed=str(s <= t).lower(), **names)
    lamps = "".join(HTML["lamp"].format(depth=depth, query=word) for depth in DEPTHS)
    return HTML["row"].format(word=word, cells=cells, lamps=lamps)


def mask_viewer() -> Viewer:
    """A mask of eight words to paint: a lamp lights for each word that can see its answer, also through more layers.

    It needs no library and no network. Where no script runs, a causal mask stands there.
    """
    names = re.findall(r'(?m)^"?([\w ]+)"?: \(', SCRIPT.partition("PRESETS")[2])
    presets = "".join(HTML["preset"].format(name=name, pressed=str(name == "causal").lower()) for name in names)
    title, says = "Paint a mask", SAYS
    contents = {
        "columns": "".join(HTML["column"].format(word=word) for word in WORDS),
        "depths": "".join(HTML["depth"].format(depth=one) for one in ("1 layer", "2 layers", "3 layers")),
        "rows": "".join(_row(t, word) for t, word in enumerate(WORDS)),
    }
    page = HTML["figure"].format(title=title, style=STYLE, presets=presets, says=says, script=SCRIPT, **contents)
    return Viewer(f"{title}. {says}", page)
