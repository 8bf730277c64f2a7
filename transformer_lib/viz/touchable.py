"""A figure to touch: any matplotlib figure whose drawing is a function of what the reader sets."""

import html
import json
from collections.abc import Callable, Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any
from xml.etree import ElementTree
from xml.etree.ElementTree import Element

from transformer_lib.viz.frames import LOOK, Columns, drawing_of, gather_shapes, settings_of, weave
from transformer_lib.viz.plots import PALETTE
from transformer_lib.viz.viewer import Viewer

__all__ = ["touch"]

STYLE, SCRIPT = (Path(__file__).with_suffix(kind).read_text("utf-8") for kind in (".css", ".js"))
HTML = (
    '<div class="touch" role="group" aria-label="{title}"><style>\n{style}</style>{heading}'
    '<div class="touch-controls">{controls}</div>{picture}<p class="touch-says"><span aria-hidden="true">{longest}'
    '</span><span class="touch-said">{said}</span></p><script type="application/json">{data}</script></div>'
    "<script>\n{script}</script>"
)


class Painter:
    """Draws frame after frame: the first lays out the axes, the others keep that layout."""

    def __init__(self, draw: Callable[..., str | None], drag: Sequence[str] | None) -> None:
        self.draw, self.drag = draw, drag
        self.layout: list[Any] = []

    def frame(self, setting: Mapping[str, Any]) -> tuple[Element, str, list[str]]:
        """A drawing, what is said of it, and where its handle is, from the left and from the top."""
        import matplotlib.pyplot as plt

        with plt.rc_context(LOOK):  # type: ignore[arg-type]
            before = plt.get_fignums()
            said = self.draw(**setting)
            if plt.get_fignums() == before:
                raise ValueError("draw made no figure")
            figure = plt.gcf()
            try:
                self.keep_layout(figure)
                return drawing_of(figure), said or "", self.handle(figure, setting)
            finally:
                plt.close(figure)

    def keep_layout(self, figure: Any) -> None:
        """Give the axes the places that they had in the first frame."""
        if not self.layout:
            figure.draw_without_rendering()
            self.layout = [ax.get_position(original=True) for ax in figure.axes]
        figure.set_layout_engine("none")
        for ax, place in zip(figure.axes, self.layout, strict=True):
            ax.set_position(place)

    def handle(self, figure: Any, setting: Mapping[str, Any]) -> list[str]:
        """Where the handle is in the first axes."""
        if not self.drag:
            return []
        ax, height = figure.axes[0], figure.get_size_inches()[1]
        point = ax.transData.transform([setting[name] for name in self.drag])
        x, y = figure.dpi_scale_trans.inverted().transform(point)
        return [f"{72 * x:.1f}", f"{72 * (height - y):.1f}"]


def touch(
    draw: Callable[..., str | None],
    *,
    start: Mapping[str, Any] | None = None,
    drag: tuple[str, str] | None = None,
    title: str = "",
    **controls: Sequence[Any],
) -> Viewer:
    """A figure to touch, as HTML that needs no kernel, no library and no network: it holds a frame for every setting.

    Args:
        draw: draws one matplotlib figure for one value of each control, and may return what is said of it.
        start: the values at which it opens, the first of each control by default.
        drag: two controls of numbers, for a handle in the first axes: its x and its y.
        title: written above the figure.
        controls: for each name the values that a reader can set. Numbers make a slider, words make buttons.
    """
    values = {name: list(found) for name, found in controls.items()}
    at = _start(values, start or {}, drag or ())
    settings = settings_of(values)
    first = settings.index({name: found[at[name]] for name, found in values.items()})
    painter = Painter(draw, drag)
    opened = painter.frame(settings[first])
    drawn = [opened if i == first else painter.frame(one) for i, one in enumerate(settings)]
    frames, said, handles = zip(*drawn, strict=True)

    name = sha256(ElementTree.tostring(opened[0]) + title.encode()).hexdigest()[:6]
    shapes = gather_shapes(frames, f"touch-{name}-")
    columns = Columns([len(found) for found in values.values()])
    marks = weave(frames, first, columns)
    picture = opened[0]
    picture.insert(0, shapes)
    data = {
        "values": list(values.values()),
        "at": list(at.values()),
        "marks": marks,
        "said": columns.texts(said),
        "handle": [columns.number(place) for place in zip(*handles, strict=True)],
        "drag": [list(values).index(one) for one in drag or ()],
    }
    text = json.dumps(data | {"columns": columns.data()}, ensure_ascii=False, separators=(",", ":"))
    parts = {
        "title": html.escape(title or "A figure to touch"),
        "heading": f"<p><strong>{html.escape(title)}</strong></p>" if title else "",
        "controls": "".join(
            _control(k, one, values[one], at[one], one in (drag or ())) for k, one in enumerate(values)
        ),
        "picture": _picture(picture),
        "longest": html.escape(max(said, key=len)),
        "said": html.escape(said[first]),
        "data": text.replace("<", r"\u003c"),
    }
    style = STYLE + _colours(parts["picture"] + text)
    return Viewer(f"{title or 'A figure to touch'}: {said[first]}", HTML.format(style=style, script=SCRIPT, **parts))


def _start(controls: Mapping[str, list[Any]], start: Mapping[str, Any], drag: Sequence[str]) -> dict[str, int]:
    """Where each control stands at first."""
    for name in {*start, *drag} - controls.keys():
        raise ValueError(f"{name} is no control: there are {', '.join(controls)}")
    at = {}
    for name, values in controls.items():
        if not values or len(set(values)) < len(values):
            raise ValueError(f"{name}={values}: expected different values")
        if name in drag and isinstance(values[0], str):
            raise ValueError(f"{name}={values}: only numbers can be dragged")
        if name in start and start[name] not in values:
            raise ValueError(f"start: {name}={start[name]!r} is none of its values, {values}")
        at[name] = values.index(start.get(name, values[0]))
    return at


def _control(number: int, name: str, values: Sequence[Any], at: int, dragged: bool) -> str:
    """One control: buttons for words, a slider for numbers, which a handle may stand for."""
    label = html.escape(name.replace("_", " "))
    if isinstance(values[0], str):
        items = "".join(
            f'<label><input type="radio" value="{i}"{" checked" * (i == at)}><span>{html.escape(one)}</span></label>'
            for i, one in enumerate(values)
        )
        return f'<fieldset data-control="{number}"><legend>{label}</legend>{items}</fieldset>'
    slider = f'<input type="range" min="0" max="{len(values) - 1}" value="{at}" aria-label="{label}">'
    if dragged:
        return f'<span class="touch-dragged" data-control="{number}">{slider}</span>'
    width = max(len(str(one)) for one in values)
    play = f'<button type="button" aria-label="Play: {label}"></button>' if len(values) > 3 else ""
    shown = f'<output style="min-width:{width}ch">{values[at]}</output>'
    return f'<p class="touch-slider" data-control="{number}"><span>{label}</span>{play}{slider}{shown}</p>'


def _colours(content: str) -> str:
    """Style by which the colours of the palette that occur follow the page, light or dark."""
    used = [(name, colour.lower()) for name, colour in PALETTE.items() if colour.lower() in content]
    return "".join(
        f'.touch [{use}="{colour}"] {{ {use}: var(--{name}); }}\n'
        for name, colour in used
        for use in ("fill", "stroke")
    )


def _picture(picture: Element) -> str:
    """The first frame as SVG, with the names that it needs to stand alone."""
    picture.set("xmlns", "http://www.w3.org/2000/svg")
    picture.set("aria-hidden", "true")  # what it shows is said below
    return ElementTree.tostring(picture, "unicode").replace(" />", "/>")
