"""Diagrams: a sheet for boxes, tokens and arrows."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from transformer_lib.viz.plots import PALETTE, colour_of, colours_for

__all__ = ["Box", "canvas", "draw_arrow", "draw_boxes", "draw_tokens"]

Point = tuple[float, float]


@dataclass(frozen=True)
class Box:
    """A box in a drawing: its centre and its size, in the drawing's units."""

    x: float
    y: float
    width: float
    height: float

    @property
    def left(self) -> Point:
        """The middle of the left side."""
        return self.x - self.width / 2, self.y

    @property
    def right(self) -> Point:
        """The middle of the right side."""
        return self.x + self.width / 2, self.y

    @property
    def top(self) -> Point:
        """The middle of the upper side."""
        return self.x, self.y + self.height / 2

    @property
    def bottom(self) -> Point:
        """The middle of the lower side."""
        return self.x, self.y - self.height / 2


def canvas(width: float, height: float, unit: float | None = None) -> tuple[Any, Any]:
    """An empty drawing without axes, whose unit is ``unit`` inches; None makes it six inches wide."""
    import matplotlib.pyplot as plt

    scale = 6.0 / width if unit is None else unit
    figure = plt.figure(figsize=(width * scale, height * scale), layout="none")
    ax = figure.add_axes((0, 0, 1, 1))
    ax.set(xlim=(0, width), ylim=(0, height), aspect="equal")
    ax.set_axis_off()
    return figure, ax


def text_width(ax: Any, text: str, size: float) -> float:
    """The width of a text in the units of the axes."""
    drawn = ax.text(0, 0, text, fontsize=size)
    extent = drawn.get_window_extent().transformed(ax.transData.inverted())
    drawn.remove()
    return extent.width


def draw_box(ax: Any, box: Box, text: str, colour: str, size: float) -> None:
    """One rounded box; its text shrinks to fit, but not below 8 points."""
    from matplotlib.colors import to_rgb
    from matplotlib.patches import FancyBboxPatch

    available, needed = 0.94 * box.width, text_width(ax, text, size)
    fitted = size if needed <= available else size * available / needed
    if fitted < 8:
        raise ValueError(f"{text!r} is too long for a box {box.width:g} wide; widen box or sheet")
    light, strong = to_rgb(PALETTE["paper"]), to_rgb(colour)
    tint = tuple(0.78 * a + 0.22 * b for a, b in zip(light, strong, strict=True))
    style = f"round,pad=0,rounding_size={0.15 * min(box.width, box.height)}"
    corner = (box.x - box.width / 2, box.y - box.height / 2)
    look: dict[str, Any] = {"facecolor": tint, "edgecolor": colour, "linewidth": 1.4, "gid": "box"}
    ax.add_patch(FancyBboxPatch(corner, box.width, box.height, boxstyle=style, **look))
    look = {"ha": "center", "va": "center_baseline", "color": PALETTE["ink"]}
    ax.text(box.x, box.y, text, fontsize=fitted, **look)


def draw_boxes(
    ax: Any,
    labels: Sequence[str],
    y: float,
    x: Sequence[float],
    width: float = 0.8,
    height: float = 0.6,
    colours: str | Sequence[str] = "blue",
    size: float = 11,
) -> list[Box]:
    """Draw a row of boxes with a text in each; arrows can start and end at them.

    Args:
        labels: the N texts; mathematics between dollar signs works.
        y: the height of the boxes' centres, in the drawing's units.
        x: the N centres, from left to right.
        colours: one colour or N, from the palette or any others.
        size: of the text in points; what is too long for its box becomes smaller.
    """
    boxes = [Box(float(centre), y, width, height) for centre in x]
    for box, name, colour in zip(boxes, labels, colours_for(colours, len(labels)), strict=True):
        draw_box(ax, box, name, colour, size)
    return boxes


def draw_tokens(
    ax: Any,
    tokens: Sequence[str],
    y: float,
    left: float = 0.1,
    colours: str | Sequence[str] = "grey",
) -> list[Box]:
    """Draw a sentence as a row of boxes, each as wide as its token.

    Args:
        y: the height of the boxes' centres, in the drawing's units.
        left: where the first box begins.
        colours: one colour or N, from the palette or any others.
    """
    tokens = [token.replace("$", r"\$") for token in tokens]  # words are no formulas
    boxes = []
    for token, colour in zip(tokens, colours_for(colours, len(tokens)), strict=True):
        width = text_width(ax, token, 11) + text_width(ax, "nn", 11)
        boxes.append(Box(left + width / 2, y, width, 0.5))
        draw_box(ax, boxes[-1], token, colour, 11)
        left += width + 0.12
    return boxes


def arrow_end(end: Box | Sequence[float], other: Box | Sequence[float]) -> Point:
    """Where an arrow touches: the point itself, or the side of a box that faces the other end."""
    if not isinstance(end, Box):
        x, y = end
        return float(x), float(y)
    x, y = (other.x, other.y) if isinstance(other, Box) else other
    if abs(y - end.y) * end.width >= abs(x - end.x) * end.height:
        return end.top if y > end.y else end.bottom
    return end.right if x > end.x else end.left


def draw_arrow(
    ax: Any,
    start: Box | Sequence[float],
    end: Box | Sequence[float],
    label: str | None = None,
    colour: str = "muted",
    bend: float = 0.0,
    width: float = 1.5,
) -> Any:
    """Draw an arrow between two boxes or points (x, y).

    Args:
        label: a short text beside the arrow's middle.
        bend: 0 is straight; 0.3 bends to the right of the way from start to end, -0.3 to the left.
        width: of the line in points.
    """
    from matplotlib.patches import FancyArrowPatch

    (x0, y0), (x1, y1) = arrow_end(start, end), arrow_end(end, start)
    look: dict[str, Any] = {"color": colour_of(colour), "linewidth": width, "gid": "arrow"}
    look |= {"arrowstyle": "-|>", "mutation_scale": 12}
    style = f"arc3,rad={bend}"
    arrow = FancyArrowPatch((x0, y0), (x1, y1), connectionstyle=style, shrinkA=1, shrinkB=1, **look)
    ax.add_patch(arrow)
    if label is not None:
        middle = (x0 + x1 + bend * (y1 - y0)) / 2, (y0 + y1 - bend * (x1 - x0)) / 2
        ground = {"facecolor": PALETTE["paper"], "edgecolor": "none", "pad": 1.5}
        look = {"ha": "center", "va": "center", "fontsize": 11, "color": PALETTE["ink"]}
        ax.text(*middle, label, bbox=ground, **look)
    return arrow
