"""A figure to touch: any matplotlib figure whose drawing is a function of what the reader sets."""

import html
import json
import re
from collections.abc import Callable, Mapping, Sequence
from hashlib import sha256
from itertools import product
from numbers import Integral, Real
from pathlib import Path
from typing import Any
from xml.etree import ElementTree
from xml.etree.ElementTree import Element

from transformer_lib.viz.frames import Columns, draw_cells, drawing_of, gather_shapes, weave
from transformer_lib.viz.plots import PALETTE
from transformer_lib.viz.viewer import Viewer

__all__ = ["touch"]

LOOK: dict[str, Any] = {"axes.facecolor": "none", "savefig.bbox": "standard"}
LOOK |= {"figure.figsize": (5.0, 3.0)}  # labels of a figure this wide can be read on a phone


def _short(kind: str) -> str:
    """A file beside this one, without comments and indents: it stands in every figure."""
    lines = map(str.strip, Path(__file__).with_suffix(kind).read_text("utf-8").splitlines())
    return "".join(f"{line}\n" for line in lines if line and not line.startswith("//"))


STYLE, SCRIPT = re.sub(r"\s*([{};,])[^\S\n]*|(?<=:) ", r"\1", _short(".css")), _short(".js")
HTML = (
    '<div class="touch mathjax_ignore tex2jax_ignore" role="group" aria-label="{name}"><style>\n{style}</style>{title}'
    '<div class="touch-controls">{controls}</div>{picture}<p class="touch-says"><span aria-hidden="true">{longest}'
    '</span><span class="touch-said">{said}</span></p><script type="application/json">{data}</script></div>'
    "<script>\n{script}</script>"
)
HINT = '<p class="touch-hint">Drag the ring, or use the arrow keys.</p>'
TURNED = (  # on a dark page, the colours of attention run from dark to light
    '<filter color-interpolation-filters="sRGB"><feComponentTransfer>'
    '<feFuncR type="table" tableValues="0.45 0.33 0.24 0.16 0.09"/>'
    '<feFuncG type="linear" slope="-0.85" intercept="0.943"/>'
    '<feFuncB type="table" tableValues="1 0.99 0.92 0.68 0.11"/></feComponentTransfer></filter>'
)


def touch(
    draw: Callable[..., str],
    *,
    start: Mapping[str, Any] | None = None,
    drag: tuple[str, str] | None = None,
    title: str = "",
    **controls: Sequence[Any],
) -> Viewer:
    """A figure to touch, as HTML that needs no kernel, no library and no network: it holds a frame for every setting.

    Args:
        draw: draws one matplotlib figure for one value of each control, and returns what is seen in one sentence.
        start: the values at which it opens, the first of each control by default.
        drag: two controls of numbers, for a handle in the first axes: its x and its y.
        title: written above the figure.
        controls: for each name the values that a reader can set. Numbers make a slider, anything else buttons.

    Raises:
        ValueError: if a value is missing, doubled, or cannot be dragged; or if draw makes no figure, or images of
            more than a thousand cells, or does not say what is seen.
    """
    values, dragged = {name: list(found) for name, found in controls.items()}, drag or ()
    at = _start(values, start or {}, dragged)
    picture, said, data = _woven(Painter(draw, dragged), values, at)
    data |= {"labels": [[_label(one) for one in found] for found in values.values()], "at": list(at.values())}
    data["drag"] = [list(values).index(name) for name in dragged]
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":")).replace("<", r"\u003c")
    boxes = [_control(k, name, values[name], at[name], name in dragged) for k, name in enumerate(values)]
    opened = html.escape(said[0])
    page = HTML.format(
        name=html.escape(title or "A figure to touch"),
        title=f"<p><strong>{html.escape(title)}</strong></p>" if title else "",
        style=STYLE + _colours(picture + text),
        controls=HINT * bool(dragged) + "".join(boxes),
        picture=picture,
        longest=html.escape(max(said, key=len)),
        said=opened,
        data=text,
        script=SCRIPT,
    )
    return Viewer(f"{title or 'A figure to touch'}: {said[0]}", page)


# ---- its frames ----


class Painter:
    """Draws frame after frame: the first lays out the axes, the others keep that layout."""

    def __init__(self, draw: Callable[..., str], drag: Sequence[str]) -> None:
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
                if not said or not isinstance(said, str):
                    raise ValueError(f"draw returned {said!r}: expected a sentence that says what is seen")
                self.keep_layout(figure)
                figure.patch.set_visible(False)  # the page is its ground
                for ax in figure.axes:
                    draw_cells(ax)
                return drawing_of(figure, 1.4), said, self.handle(figure, setting)
            finally:
                plt.close(figure)

    def keep_layout(self, figure: Any) -> None:
        """Give the axes the places that they had in the first frame."""
        if not self.layout:
            figure.draw_without_rendering()
            self.layout = [ax.get_position(original=True) for ax in figure.axes]
        if len(figure.axes) != len(self.layout):
            raise ValueError(f"draw made {len(figure.axes)} axes, but {len(self.layout)} at first: expected as many")
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
        return [f"{round(72 * one, 1) + 0.0:.1f}" for one in (x, height - y)]  # not -0.0


def _woven(
    painter: Painter, values: Mapping[str, list[Any]], at: Mapping[str, int]
) -> tuple[str, list[str], dict[str, Any]]:
    """The picture at the start, what is said of all frames, that of the start first, and how the others differ."""
    settings = [dict(zip(values, found, strict=True)) for found in product(*values.values())]
    first = settings.index({name: found[at[name]] for name, found in values.items()})
    opened = painter.frame(settings[first])
    drawn = [opened if i == first else painter.frame(one) for i, one in enumerate(settings)]
    frames, said, handles = zip(*drawn, strict=True)
    digest = sha256(b"".join(map(ElementTree.tostring, frames))).hexdigest()
    shapes = gather_shapes(frames, f"touch-{digest[:6]}-")
    columns = Columns([len(found) for found in values.values()])
    data: dict[str, Any] = {"marks": weave(frames, first, columns), "said": columns.texts(said)}
    data["handle"] = [columns.number(place) for place in zip(*handles, strict=True)]
    data["columns"] = columns.data()
    root = opened[0]
    if root.find(".//*[@class='touch-attention']") is not None:
        turned = ElementTree.fromstring(TURNED)
        turned.set("id", f"touch-{digest[:6]}-turned")
        shapes.append(turned)
        root.set("style", f"--turned: url(#touch-{digest[:6]}-turned)")
    root.insert(0, shapes)
    root.attrib |= {"xmlns": "http://www.w3.org/2000/svg", "aria-hidden": "true"}  # what it shows is said below
    return ElementTree.tostring(root, "unicode").replace(" />", "/>"), [said[first], *said], data


# ---- its controls ----


def _is_number(value: Any) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool)


def _label(value: Any) -> str:
    """A value as a reader sees it."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:.6g}" if _is_number(value) and not isinstance(value, Integral) else str(value)


def _start(values: Mapping[str, list[Any]], start: Mapping[str, Any], drag: Sequence[str]) -> dict[str, int]:
    """Where each control stands at first."""
    for name in sorted({*start, *drag} - values.keys()):
        raise ValueError(f"{name} is no control: there are {', '.join(values)}")
    at = {}
    for name, found in values.items():
        if not found or len({_label(one) for one in found}) < len(found):
            raise ValueError(f"{name}={found}: expected different values")
        if name in drag and not all(map(_is_number, found)):
            raise ValueError(f"{name}={found}: only numbers can be dragged")
        if name in start and start[name] not in found:
            raise ValueError(f"start: {name}={start[name]!r} is none of its values, {found}")
        at[name] = found.index(start.get(name, found[0]))
    return at


def _control(number: int, name: str, values: Sequence[Any], at: int, dragged: bool) -> str:
    """One control: a slider for numbers, which a handle may stand for, buttons for anything else."""
    label, shown = html.escape(name.replace("_", " ")), [html.escape(_label(one)) for one in values]
    if not all(map(_is_number, values)):
        items = "".join(
            f'<label><input type="radio" value="{i}"{" checked" * (i == at)}><span>{one}</span></label>'
            for i, one in enumerate(shown)
        )
        return f'<fieldset data-control="{number}"><legend>{label}</legend>{items}</fieldset>'
    slider = f'<input type="range" min="0" max="{len(values) - 1}" value="{at}" aria-label="{label}">'
    if dragged:
        return f'<span class="touch-dragged" data-control="{number}">{slider}</span>'
    play = f'<button type="button" aria-label="Play: {label}"></button>' if len(values) > 3 else ""
    output = f'<output style="min-width:{max(map(len, shown))}ch">{shown[at]}</output>'
    return f'<p class="touch-slider" data-control="{number}"><span>{label}</span>{play}{slider}{output}</p>'


def _colours(content: str) -> str:
    """Style by which the colours that occur follow the page, light or dark."""
    used = [(name, colour.lower()) for name, colour in PALETTE.items() if colour.lower() in content]
    rule = '.touch [{use}="{colour}"] {{ {use}: var(--{name}); }}\n'
    uses = ("fill", "stroke")
    return "".join(rule.format(use=use, colour=colour, name=name) for name, colour in used for use in uses)
