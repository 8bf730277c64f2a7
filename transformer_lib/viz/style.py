"""The look of every plot of the book, and plots in notebooks as SVG."""

import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from hashlib import sha256
from itertools import groupby
from typing import Any
from xml.etree import ElementTree
from xml.etree.ElementTree import Element

from transformer_lib.viz.frames import SVG, draw_cells, drawing_of, gather_shapes
from transformer_lib.viz.plots import FOLDER

__all__ = ["picture_of", "use_style"]

FAMILY = "'Source Sans 3', system-ui, sans-serif"
TALL = 0.547  # x-height of DejaVu Sans, which matplotlib measures with: any font as tall fits where it fits


def use_style() -> None:
    """Set matplotlib's defaults to the style of the book: its background, sizes and colours.

    In a notebook, figures are shown as SVG from then on.
    """
    import matplotlib.pyplot as plt
    from matplotlib.figure import Figure

    plt.style.use(FOLDER / "book.mplstyle")
    shell = sys.modules["IPython"].get_ipython() if "IPython" in sys.modules else None
    if shell is not None and "inline" in (backend := plt.get_backend()):
        plt.switch_backend(backend)  # it chooses a format when it is first used
        shell.display_formatter.formatters["image/png"].pop(Figure, None)
        shell.display_formatter.formatters["image/svg+xml"].for_type(Figure, picture_of)


def picture_of(figure: Any) -> str:
    """A figure as SVG for a notebook; the page that shows it sets its words in a font of its own."""
    with _cells(figure):
        root = drawing_of(figure, 2)
    _join_cells(root)
    for text in root.iter("text"):
        _join_letters(text)
    name = f"plot-{sha256(ElementTree.tostring(root)).hexdigest()[:6]}-"
    root.insert(0, gather_shapes([root], name))
    root.attrib |= {"xmlns": SVG[1:-1], "font-family": FAMILY, "style": f"font-size-adjust:{TALL}"}
    return ElementTree.tostring(root, "unicode").replace(" />", "/>")


@contextmanager
def _cells(figure: Any) -> Iterator[None]:
    """A block in which the tables of a figure are drawn as cells."""
    with ExitStack() as undo:
        for ax in figure.axes:
            undo.callback(ax.set, autoscalex_on=ax.get_autoscalex_on(), autoscaley_on=ax.get_autoscaley_on())
            images, before = [one for one in ax.images if one.get_visible()], {*ax.collections}
            with suppress(ValueError):  # a larger table stays a picture
                draw_cells(ax)
            for one in images:
                undo.callback(one.set_visible, True)
            for cells in {*ax.collections} - before:
                undo.callback(cells.remove)
        yield


def _join_cells(node: Element) -> None:
    """Put cells that stand side by side into one group without seams, and those of one colour into one path."""
    node.attrib.pop("class", None)  # whatever turns round in the dark turns the whole plot
    for child in node:
        _join_cells(child)
    found: list[Element] = []
    for cells, together in groupby(node, lambda one: one.attrib.keys() == {"d", "fill"} and "H" in one.get("d", "")):
        if not cells:
            found += together
            continue
        found.append(Element("g", {"shape-rendering": "crispEdges"}))
        for fill, alike in groupby(together, lambda one: one.get("fill", "")):
            found[-1].append(Element("path", {"d": "".join(one.get("d", "") for one in alike), "fill": fill}))
    node[:] = found


def _join_letters(text: Element) -> None:
    """Put the letters of words beside a formula, which stand one by one, together again."""
    found: list[Element] = []
    before: dict[str, str] = {}
    for one in text:
        look = one.attrib | {"x": ""}
        if look == before and "font-style" not in look and f"{found[-1].text}{one.text}".isalpha():
            found[-1].text = f"{found[-1].text}{one.text}"
        else:
            found.append(one)
        before = look
    text[:] = found
