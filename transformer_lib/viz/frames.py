"""Frames of a figure: matplotlib's drawings as trees, and what differs between them as columns of numbers."""

import io
import re
from collections.abc import Sequence
from itertools import zip_longest
from math import prod
from typing import Any
from xml.etree import ElementTree
from xml.etree.ElementTree import Element

import numpy as np

from transformer_lib.viz.plots import PALETTE

__all__ = ["Columns", "draw_cells", "drawing_of", "gather_shapes", "weave"]

SVG, LINK = "{http://www.w3.org/2000/svg}", "{http://www.w3.org/1999/xlink}href"
FONT = 11  # points: what 1em is
CELLS = 1000  # as many as one image may have
ATTENTION = "attention"  # the name of viz.attention_colours
PAGE = {colour.lower() for colour in PALETTE.values()}  # colours that follow the page
NUMBER = re.compile(r"-?\d+(?:\.\d+)?")
RECTANGLE = re.compile(r"M(\S+) (\S+)L(\S+) \2L\3 ([^LM]+)L\1 \4(?:z|L\1 \2z?)")
DIGITS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"


# ---- one drawing as a tree ----


def drawing_of(figure: Any, scale: float) -> Any:
    """A figure as a short SVG tree: attributes instead of styles, a tenth of a point, no groups without a use.

    Args:
        scale: pixels for each point, where there is room.
    """
    import matplotlib as mpl

    file = io.StringIO()
    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": "touch"}):
        figure.savefig(file, format="svg", metadata={"Date": None, "Creator": None})
    root = ElementTree.fromstring(file.getvalue())
    for defs in root.findall(f"{SVG}defs/{SVG}style/.."):
        root.remove(defs)  # its style would be that of the whole page
    root[:] = [child for child in root if child.tag != f"{SVG}metadata"]
    _tidy(root)
    box = root.get("viewBox", "")
    root.attrib = {"viewBox": box, "width": f"{scale * float(box.split()[2]):.0f}"}
    root.attrib |= {"stroke-linejoin": "round", "font-size": str(FONT)}
    return root


def draw_cells(ax: Any) -> None:
    """Turn tables of numbers into cells, whose colours differ from frame to frame; pictures stay as they are."""
    limits = ax.get_xlim(), ax.get_ylim()
    images = [one for one in ax.images if one.get_visible() and one.get_array().ndim == 2]
    for rows, columns in (one.get_array().shape for one in images):
        if rows * columns > CELLS:
            raise ValueError(f"an image of {rows} x {columns} cells: expected at most {CELLS}")
    for image in images:
        array = image.get_array()
        rows, columns = array.shape
        left, right, bottom, top = image.get_extent()
        down = np.linspace(top, bottom, rows + 1)
        across = np.linspace(left, right, columns + 1)
        look = {"cmap": image.cmap, "norm": image.norm, "alpha": image.get_alpha(), "zorder": image.zorder}
        cells = ax.pcolormesh(across, down[:: -1 if image.origin == "lower" else 1], array, **look)
        cells.set_gid(image.cmap.name)
        image.set_visible(False)
    ax.set(xlim=limits[0], ylim=limits[1])


def _tidy(node: Element) -> None:
    node.tag = node.tag.removeprefix(SVG)
    node.text = re.sub(r"\s+", " ", node.text or "") if node.tag in ("text", "tspan") and not len(node) else None
    node.tail = None
    attributes = {LINK: "href"}
    found = {attributes.get(name, name): value for name, value in node.attrib.items()}
    style = found.pop("style", "")
    found |= dict(re.findall(r"([\w-]+):\s*([^;]*[^;\s])", style))
    found.pop("font-family", None)  # that of the page
    if node.tag not in ("path", "clipPath") and found.pop("id", "") == ATTENTION:
        found["class"] = "touch-attention"  # whose shades turn round in the dark
    found = {name: _shorter(name, value) for name, value in found.items()}
    node.attrib = {name: value for name, value in found.items() if value}
    if "id" not in node.attrib:  # others refer to what has one
        _round(node)
    for child in node:
        _tidy(child)
    node[:] = _regrouped([below for child in node for below in _without_group(child)])


def _without_group(node: Element) -> list[Element]:
    """A node, or what is in it, if it is a group that says nothing."""
    return list(node) if node.tag == "g" and not (node.attrib and len(node)) else [node]


def _regrouped(nodes: list[Element]) -> list[Element]:
    """Neighbours that are clipped alike, as one group."""
    found: list[Element] = []
    for node in sorted(nodes, key=lambda node: node.tag != "defs"):  # shapes stand between no neighbours
        clip = node.attrib.pop("clip-path", "")
        if not clip:
            found.append(node)
            continue
        if not found or found[-1].attrib != {"clip-path": clip}:
            found.append(Element("g", {"clip-path": clip}))
        found[-1].extend(_without_group(node))
    return found


def _shorter(name: str, value: str) -> str:
    """An attribute in few letters, rounded to a tenth of a point."""
    if name == "font-size":
        return "" if value == f"{FONT}px" else f"{float(value.removesuffix('px')) / FONT:.3g}em"
    if name == "transform":
        value = re.sub(r"rotate\(-?0[ )][^)]*\)?", "", value).strip()
    if re.fullmatch("#[0-9a-f]{6}", value) and value not in PAGE:  # numbers can be kept as steps
        return f"rgb({int(value[1:3], 16)},{int(value[3:5], 16)},{int(value[5:], 16)})"
    fine = re.match(r"matrix\(\d\.", value)  # a picture with cells of less than ten points
    if name in ("id", "class", "href", "clip-path") or value in PAGE or fine:
        return value
    places = 1 if name in ("d", "x", "y", "width", "height", "transform") else 2
    value = NUMBER.sub(lambda found: written(round(float(found[0]) * 10**places), ~places), value)
    if name != "d":
        return value
    path = re.sub(r"\s*([MLCQz])\s*", r"\1", value).strip()
    corners = RECTANGLE.fullmatch(path)
    return corners.expand(r"M\1 \2H\3V\4H\1z") if corners else path


def gather_shapes(frames: Sequence[Any], name: str) -> Any:
    """Take the shapes that frames refer to out of them, into one ``defs``; ``name`` begins their new names.

    Marks whose shape is short are drawn where they stand instead, so that their sizes can differ.
    """
    shapes: dict[str, Element] = {}
    for frame in frames:
        for parent in frame.iter():
            for defs in [child for child in parent if child.tag == "defs"]:
                parent.remove(defs)
                shapes |= {shape.get("id", ""): shape for shape in defs}
    used: dict[str, str] = {}
    for frame in frames:
        for node in frame.iter():
            if node.tag == "use":
                _draw_mark(node, shapes[node.get("href", "")[1:]])
            for key in {"href", "clip-path"}.intersection(node.keys()):
                if (link := re.search(r"#(\w+)", node.get(key, ""))) is not None:  # or else a picture
                    new = used.setdefault(link[1], f"{name}{len(used)}")
                    node.set(key, node.get(key, "").replace(link[1], new))
    defs = Element("defs")
    for old, new in used.items():
        shapes[old].set("id", new)
        defs.append(shapes[old])
    return defs


def _draw_mark(node: Element, shape: Element) -> None:
    """Turn the use of a short shape into the shape itself."""
    path = shape.get("d", "")
    if len(path) > 400:
        return
    x, y = node.attrib.pop("x"), node.attrib.pop("y")
    node.attrib.pop("href")
    node.attrib |= {key: value for key, value in shape.attrib.items() if key not in ("id", "d")}
    node.tag = "path"
    node.attrib |= {"d": path, "transform": f"translate({x} {y})"}
    _round(node)


def _round(node: Element) -> None:
    """Turn a path of eight equal curves into a circle."""
    if node.tag != "path" or not re.fullmatch(r"M[-\d. ]+(C[-\d. ]+){8}z", node.get("d", "")):
        return
    numbers = [float(one) for one in NUMBER.findall(node.get("d", ""))]
    ends = [numbers[6 * i : 6 * i + 2] for i in range(9)]
    (x, low), (right, _), (_, high) = ends[0], ends[2], ends[4]
    if abs(abs(right - x) - abs(low - high) / 2) > 0.2:
        return  # an ellipse
    del node.attrib["d"]
    cx, cy = NUMBER.findall(node.attrib.pop("transform", "translate(0 0)"))
    node.tag = "circle"
    for name, value in (("cx", x + float(cx)), ("cy", (low + high) / 2 + float(cy)), ("r", abs(low - high) / 2)):
        node.set(name, written(round(100 * value), ~2))


# ---- what differs, as columns of whole numbers ----


def written(number: int, decimals: int) -> str:
    """A whole number of tenths (or hundredths) as text; with ``~decimals``, no zeros at its end."""
    if decimals >= 0:
        return f"{number / 10**decimals:.{decimals}f}"
    text = f"{number / 10**~decimals:.{~decimals}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def digits_of(numbers: Sequence[int]) -> str:
    """Numbers as letters: each one's difference to the one before, as base64 digits of five bits, sign last."""
    text, before = "", 0
    for number in numbers:
        step, before = number - before, number
        rest = step << 1 if step >= 0 else (-step << 1) | 1
        while True:
            rest, digit = rest >> 5, rest & 31
            text += DIGITS[digit | 32 * (rest > 0)]
            if not rest:
                break
    return text


class Columns:
    """Everything that differs between frames: columns of whole numbers, each kept once.

    Args:
        sizes: how many values each control has; frames come in the order of their product.
    """

    def __init__(self, sizes: Sequence[int]) -> None:
        self.sizes = list(sizes)
        self.kept: dict[tuple[Any, ...], int] = {}

    def data(self) -> list[list[Any]]:
        """For each column the controls that it depends on, its decimals, and its numbers."""
        return [[list(uses), decimals, digits_of(numbers)] for uses, decimals, numbers in self.kept]

    def number(self, values: Sequence[str | None]) -> int:
        """The place of a column of numbers, None where a frame has none.

        Raises:
            ValueError: if they cannot be written back, such as 007, or are too large for the script.
        """
        decimals = {len(value.partition(".")[2]) for value in values if value is not None}
        shown = decimals.pop() if len(decimals) == 1 else ~max(decimals)
        scale = 10 ** max(shown, ~shown)
        numbers = [None if value is None else round(float(value) * scale) for value in values]
        for number, value in zip(numbers, values, strict=True):
            if number is not None and (abs(number) >= 2**29 or written(number, shown) != value):  # 32 bits in the page
                raise ValueError(f"{value} cannot be written back")
        return self._keep(shown, numbers)

    def _keep(self, decimals: int, numbers: list[int | None]) -> int:
        uses = list(range(len(self.sizes)))
        for control in range(len(self.sizes)):
            axis = uses.index(control)
            sizes = [self.sizes[one] for one in uses]
            inner = prod(sizes[axis + 1 :])
            starts = [a * inner * sizes[axis] + b for a in range(prod(sizes[:axis])) for b in range(inner)]
            groups = [set(numbers[i : i + inner * sizes[axis] : inner]) - {None} for i in starts]
            if all(len(group) <= 1 for group in groups):  # it does not depend on this control
                numbers = [next(iter(group), None) for group in groups]
                uses.remove(control)
        last = next(n for n in numbers if n is not None)
        filled = [last := last if n is None else n for n in numbers]
        return self.kept.setdefault((tuple(uses), decimals, tuple(filled)), len(self.kept))

    def texts(self, values: Sequence[str | None]) -> list[Any]:
        """Texts as templates whose ``~`` are columns, and if there are several, the column that chooses."""
        forms = [value and NUMBER.sub("~", value) for value in values]
        if any("~" in value or value.startswith(("#", "url")) for value in values if value):
            forms = list(values)  # no numbers to keep
        try:
            templates = [self._template(form, values, forms) for form in _different(forms)]
        except ValueError:
            forms = list(values)
            templates = [[form] for form in _different(forms)]
        if len(templates) > 1:
            choices = {form: i for i, form in enumerate(_different(forms))}
            templates.append(self._keep(0, [None if form is None else choices[form] for form in forms]))
        return templates

    def _template(self, form: str, values: Sequence[str | None], forms: Sequence[str | None]) -> Any:
        """One form of the texts: what is always the same, and the columns of what is not."""
        same = [value if one == form else None for value, one in zip(values, forms, strict=True)]
        if form in same:  # without a number
            return [form]
        rows = [None if value is None else NUMBER.findall(value) for value in same]
        (text, *pieces), places = form.split("~"), []
        for i, piece in enumerate(pieces):
            column = [None if row is None else row[i] for row in rows]
            known = _different(column)
            if len(known) > 1:
                places.append(self.number(column))
            text += ("~" if len(known) > 1 else known[0]) + piece
        return [text, *places]


def _different(values: Sequence[str | None]) -> list[str]:
    """The values without None, each once."""
    return [value for value in dict.fromkeys(values) if value is not None]


def weave(frames: Sequence[Any], start: int, columns: Columns) -> list[list[Any]]:
    """Mark in the frame at ``start`` what differs between all of them.

    Returns:
        For each mark an attribute's name, or ``text``, and its texts as ``Columns.texts`` writes them. The elements
        carry the numbers of their marks in ``data-touch``.
    """
    marks: list[list[Any]] = []
    _weave(frames, start, columns, marks)
    return marks


def _weave(nodes: Sequence[Element | None], start: int, columns: Columns, marks: list[list[Any]]) -> Element:
    here = nodes[start]
    base = here if here is not None else next(node for node in nodes if node is not None)
    found: list[tuple[str, list[str | None]]] = []
    if any(node is None for node in nodes):
        found.append(("display", ["none" if node is None else "" for node in nodes]))
        if here is None:
            base.set("display", "none")
    for name in sorted(set().union(*(node.attrib for node in nodes if node is not None)) - {"display"}):
        found.append((name, [None if node is None else node.get(name, "") for node in nodes]))
    if base.text:
        found.append(("text", [None if node is None else node.text or "" for node in nodes]))
    for name, values in found:
        if len(set(values) - {None}) > 1:
            base.set("data-touch", f"{base.get('data-touch', '')} {len(marks)}".strip())
            marks.append([name, *columns.texts(values)])
    below: list[Element] = []
    for children in zip_longest(*(list(node) if node is not None else [] for node in nodes)):
        for tag in dict.fromkeys(child.tag for child in children if child is not None):
            same = [child if child is not None and child.tag == tag else None for child in children]
            below.append(_weave(same, start, columns, marks))
    base[:] = below
    return base
