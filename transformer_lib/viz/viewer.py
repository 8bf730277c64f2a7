"""Viewers: pictures to play with, as HTML that needs no library and no network."""

import html
import json
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from transformer_lib.viz.plots import as_weights, check_words

__all__ = ["Control", "Part", "Viewer", "attention_viewer", "make_viewer", "page_script", "percent", "widest_map"]


STYLE, SCRIPT, TEXT = (Path(__file__).with_suffix(f".{kind}").read_text("utf-8") for kind in ("css", "js", "html"))
# the parts of a viewer
HTML: dict[str, str] = dict(re.findall(r"<!-- (.+?) -->\n(.*?)\n(?=<!-- |\Z)", TEXT, re.DOTALL))


def page_script(file: str, *names: str) -> str:
    """The script of a figure: an engine as one function, and what draws it, without comments and indents.

    Args:
        file: the figure's module; its engine is the file beside it that ends in ``.js``, the other in ``_page.js``.
        names: what the engine gives.
    """
    engine, page = (Path(file).with_name(f"{Path(file).stem}{end}.js").read_text("utf-8") for end in ("", "_page"))
    text = f"function engine() {{\n{engine}return {{ {', '.join(names)} }};\n}}\n{page}"
    return "(() => {\n" + re.sub(r"(?m)^export |^ *//.*\n|^\s+", "", text) + "})();"


@dataclass(frozen=True)
class Viewer:
    """An interactive picture that notebooks and pages display by themselves.

    Attributes:
        summary: what it shows, in words.
        html: the whole viewer, as HTML that needs nothing else.
    """

    summary: str
    html: str = field(repr=False)

    def _repr_html_(self) -> str:
        return self.html


@dataclass(frozen=True)
class Control:
    """A control of a viewer, such as a menu or a slider.

    Args:
        name: what is written before it.
        options: what can be chosen; for a slider a range of whole numbers.
        kind: ``choice`` or ``words`` for buttons, ``menu``, or ``slider``.
        start: the option that is set at first.
        begin: where a slider goes as soon as a script runs; None to stay.
        labels: the buttons as HTML elements, if they are more than their text.
    """

    name: str
    options: Sequence[Any]
    kind: str = "choice"
    start: int = 0
    begin: int | None = None
    labels: Sequence[str] | None = None

    def html(self, number: int) -> str:
        """The control as HTML."""
        name = html.escape(self.name)
        if self.kind == "slider":
            begin, last = self.start if self.begin is None else self.begin, len(self.options) - 1
            numbers = {"first": self.options[0], "begin": begin, "start": self.start, "last": last}
            return HTML["slider"].format(number=number, name=name, **numbers)
        options = [html.escape(str(option)) for option in self.options]
        shape = "menu" if self.kind == "menu" else "buttons"
        if shape == "buttons":
            options = list(self.labels or (HTML["text"].format(text=option) for option in options))
        kinds = [f"{shape} item{' at first' if i == self.start else ''}" for i in range(len(options))]
        items = [HTML[kind].format(item=item) for kind, item in zip(kinds, options, strict=True)]
        return HTML[shape].format(number=number, name=name, kind=self.kind, items="".join(items))


@dataclass(frozen=True)
class Part:
    """Places of a viewer's scene that depend on the same controls.

    Args:
        uses: the numbers of these controls.
        table: nested lists, a level for each of them. At the bottom stand what is said, and a text or an integer
            for each place, in the order of the scene.
        weights: the places are words with weights in per cent; what is said is then made from the largest.
    """

    uses: tuple[int, ...]
    table: list[Any]
    weights: bool = False

    def row(self, controls: Sequence[Control]) -> list[Any]:
        """What stands there at first."""
        row = self.table
        for number in self.uses:
            row = row[min(controls[number].start, len(row) - 1)]
        return row


def make_viewer(
    title: str, controls: Sequence[Control], scene: str, parts: Sequence[Part], *, note: str = ""
) -> Viewer:
    """A viewer made of controls, a scene, and the content of the scene for every setting of the controls.

    Args:
        title: what the viewer shows.
        controls: those that the scene does not name stand above it.
        scene: HTML; ``<!--K-->`` is the place of control K, and ``data-part="P"`` marks an element as one of part P.
        parts: what stands in the places.
        note: a sentence below the title.
    """
    above = "".join(one.html(k) for k, one in enumerate(controls) if f"<!--{k}-->" not in scene)

    def control(mark: re.Match[str]) -> str:
        return controls[int(mark[1])].html(int(mark[1]))

    body = above + re.sub(r"<!--(\d+)-->", control, scene)
    rows = [part.row(controls) for part in parts]
    values = [iter(row if part.weights else row[1:]) for row, part in zip(rows, parts, strict=True)]

    def fill(mark: re.Match[str]) -> str:
        value = next(values[int(mark[1])], 0)
        if isinstance(value, str):
            return f"{mark[0]}{html.escape(value)}"
        return f'data-part="{mark[1]}" style="--tl-value:{value}"{mark[2]}>'

    body = re.sub(r'data-part="(\d+)"([^>]*)>', fill, body)
    told = [row[0] for row, part in zip(rows, parts, strict=True) if not part.weights]
    said = " ".join(html.escape(text) for text in told if text)
    data = json.dumps([asdict(part) for part in parts], ensure_ascii=False, separators=(",", ":"))
    contents = {
        "title": html.escape(title),
        "note": HTML["note"].format(note=html.escape(note)) if note else "",
        "body": body,
        "said": said,
        "data": data.replace("<", r"\u003c"),
    }
    formula = any("$" in text for text in contents.values())  # or words would become formulas
    plain = " mathjax_ignore tex2jax_ignore" * formula
    return Viewer(title, HTML["viewer"].format(plain=plain, style=STYLE, script=SCRIPT, **contents))


def percent(weights: Any) -> Any:
    """Numbers from 0 to 1 as nested lists of whole per cent."""
    return np.rint(100 * np.minimum(np.asarray(weights), 1)).astype(int).tolist()


def widest_map(weights: np.ndarray) -> tuple[int, ...]:
    """The index of the map (..., T, S) whose largest weights are spread over the most columns."""
    reached = weights.max(axis=-2).sum(axis=-1)
    return tuple(map(int, np.unravel_index(reached.argmax(), reached.shape)))


def attention_viewer(weights: Any, rows: Sequence[str], columns: Sequence[str], title: str = "Attention") -> Viewer:
    """An interactive view of attention: choose a target word, and the source words it attends to light up.

    It opens at the map whose weights reach the most source words, works with mouse, finger and keyboard, needs no
    library and no network, follows the page's light or dark colours, and is the same text whenever the weights are
    the same to one per cent.

    Args:
        weights: (T, S) for one map, (H, T, S) for several heads, or (L, H, T, S) for layers of heads; tensor, array or
            nested lists, between 0 and 1.
        rows: the T target words.
        columns: the S source words.
        title: what the viewer shows, read out by screen readers and written above the words.
    """
    array = as_weights(weights, "weights")
    if not 2 <= array.ndim <= 4:
        raise ValueError(f"weights of shape {array.shape}: expected (T, S), (H, T, S) or (L, H, T, S)")
    targets = check_words(rows, "rows", array.shape[-2])
    sources = check_words(columns, "columns", array.shape[-1])
    start, names = widest_map(array), ("Layer", "Head")[4 - array.ndim :]
    menus = list(zip(names, array.shape[:-2], start, strict=True))
    controls = [Control(name, range(1, size + 1), "menu", at) for name, size, at in menus]
    opened = ", ".join(f"{name.lower()} {at + 1}" for name, _, at in menus)
    note = f"It opens at {opened}: its weights reach the most source words." if menus else ""
    controls.append(Control("Target: choose a word", targets, "words"))
    part = Part(tuple(range(len(controls))), percent(array), weights=True)
    lights = "".join(HTML["light"].format(text=html.escape(word)) for word in sources)
    scene = HTML["attention"].format(lights=lights, control=len(menus))
    return make_viewer(title, controls, scene, [part], note=note)
