"""One palette and a handful of plotting functions for every picture of the book."""

import tomllib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

__all__ = ["CURVES", "HEAT", "PALETTE", "attention_colours", "bars", "heatmap", "shades"]

FOLDER = Path(__file__).parent
PALETTE: dict[str, str] = tomllib.loads((FOLDER / "palette.toml").read_text("utf-8"))
CURVES = ("blue", "red", "green", "purple", "brown")  # the colours of curves, in this order
HEAT = "#FBFAF7 #D6DEEA #B0C3DD #8AA9D0 #5F90C3 #2478B5 #075C94 #0A3F6E #08254A".split()  # noqa: SIM905


def colour_of(name: str) -> str:
    """The colour behind a name of the palette; any other stays as it is."""
    return PALETTE.get(name, name)


def attention_colours() -> Any:
    """The colour map of attention weights: from the colour of the page, for zero, to deep blue.

    Its lightness falls evenly, so that it survives a grey print.
    """
    from matplotlib.colors import LinearSegmentedColormap

    return LinearSegmentedColormap.from_list("attention", HEAT)


def shades(values: Any, largest: float = 1.0) -> np.ndarray:
    """Numbers as colours for ``imshow``: blue above zero, red below, and at zero the page itself, light or dark.

    Args:
        values: (rows, columns): tensor, array or nested lists, of any sign.
        largest: the size from which on a colour is full.

    Returns:
        (rows, columns, 4): red, green, blue, and how opaque.

    Raises:
        ValueError: if ``largest`` isn't above zero.
    """
    from matplotlib.colors import to_rgb

    if not largest > 0:
        raise ValueError(f"largest={largest}: expected more than 0")
    array = as_array(values)
    picture = np.empty((*array.shape, 4))
    picture[..., :3] = np.where(array[..., None] < 0, to_rgb(PALETTE["red"]), to_rgb(PALETTE["blue"]))
    picture[..., 3] = np.minimum(abs(array) / largest, 1)
    return picture


def as_array(values: Any) -> np.ndarray:
    """A tensor, an array or nested lists as an array of numbers."""
    plain = values.detach().cpu().double() if hasattr(values, "detach") else values
    return np.asarray(plain, dtype=np.float64)


def as_weights(values: Any, name: str, largest: float = 1.0) -> np.ndarray:
    """A tensor, an array or nested lists as an array of numbers from zero to ``largest``."""
    array = as_array(values)
    if not ((array >= 0) & (array <= 1.001 * largest)).all():  # NaN, too
        found = f"{name} holds {array.min():.4g} to {array.max():.4g}"
        raise ValueError(f"{found}: expected numbers from 0 to {largest}")
    return array


def check_words(words: Sequence[str] | None, name: str, count: int) -> list[str]:
    """The words of one side of a matrix, one for each row or column."""
    if isinstance(words, str) or (words is not None and len(words) != count):
        raise ValueError(f"{name}={words!r:.60}: expected {count} words, as the matrix has")
    return [str(word) for word in words or []]


def heatmap(
    ax: Any,
    matrix: Any,
    rows: Sequence[str] | None,
    columns: Sequence[str] | None,
    gold: Iterable[tuple[int, int]] | None = None,
    largest: float = 1.0,
    numbers: bool = False,
) -> Any:
    """Draw attention weights as a heat map with a row for each target word.

    Give the figure about a third of an inch for each word.

    Args:
        matrix: weights, (T, S): tensor, array or nested lists, none negative.
        rows: the T target words, from top to bottom; None leaves them out.
        columns: the S source words, from left to right; None leaves them out.
        gold: (source, target) pairs, such as ``Pair.alignment``, whose cells are framed.
        largest: the weight of the darkest shade.
        numbers: whether to write each weight into its cell.
    """
    from matplotlib.patches import Rectangle

    array = as_weights(matrix, "matrix", largest)
    n_rows, n_columns = array.shape
    down, across = check_words(rows, "rows", n_rows), check_words(columns, "columns", n_columns)
    image = ax.imshow(array, attention_colours(), vmin=0, vmax=largest, interpolation="nearest")
    ax.grid(False)
    ax.spines[:].set_visible(False)
    box, inches = ax.get_position(), ax.figure.get_size_inches()
    cell = 72 * float(min(box.width * inches[0] / n_columns, box.height * inches[1] / n_rows))
    label_words(ax, down, across, cell)
    if max(array.shape) <= 40:  # thin lines between the cells
        ax.set_xticks(np.arange(n_columns + 1) - 0.5, minor=True)
        ax.set_yticks(np.arange(n_rows + 1) - 0.5, minor=True)
        ax.grid(which="minor", axis="both", color=PALETTE["grid"], linewidth=0.6)
        ax.tick_params(which="minor", length=0, top=False, left=False)
    if numbers:
        for (row, column), value in np.ndenumerate(array):
            ink = PALETTE["paper" if value > 0.5 * largest else "ink"]
            look: dict[str, Any] = {"ha": "center", "va": "center", "color": ink, "gid": "number"}
            ax.text(column, row, f"{value:.2f}", fontsize=max(5.0, min(11.0, 0.36 * cell)), **look)
    for source, target in gold or ():
        look = {"fill": False, "edgecolor": PALETTE["red"], "linewidth": 2, "gid": "gold"}
        ax.add_patch(Rectangle((source - 0.42, target - 0.42), 0.84, 0.84, **look))
    return image


def label_words(ax: Any, rows: list[str], columns: list[str], cell: float) -> None:
    """Write rows at the left and columns above, slanted or upright so that none clash."""
    size = max(5.0, min(11.0, 0.85 * cell))
    slanted = 0.62 * cell >= size
    ax.xaxis.tick_top()
    ax.xaxis.set_label_position("top")
    ax.set_xticks(range(len(columns)), columns, parse_math=False)
    ax.set_yticks(range(len(rows)), rows, parse_math=False)
    ax.tick_params(which="both", length=0, labelsize=size)
    for label in ax.get_xticklabels():
        label.set(rotation=45 if slanted else 90, ha="left" if slanted else "center", va="bottom")
        label.set_rotation_mode("anchor" if slanted else "default")


def colours_for(colours: str | Sequence[str], count: int) -> list[str]:
    """One colour for each of ``count`` things."""
    if isinstance(colours, str):
        return [colour_of(colours)] * count
    return [colour_of(colour) for colour in colours]


def bars(
    ax: Any,
    labels: Sequence[str],
    values: Any,
    colours: str | Sequence[str] = "blue",
    fmt: str = "{:.1f}",
    horizontal: bool = False,
) -> Any:
    """Draw one bar for each value, from zero, with its number at the end.

    Args:
        colours: one colour or N, from the palette or any others.
        fmt: how the numbers are written, for ``str.format``.
        horizontal: whether the bars lie, the first at the top; better for long names.
    """
    array = np.asarray(values, dtype=np.float64)
    positions = np.arange(len(array))
    draw, names = (ax.barh, ax.yaxis) if horizontal else (ax.bar, ax.xaxis)
    container = draw(positions, array, 0.7, color=colours_for(colours, len(array)))
    names.set_ticks(positions, labels, parse_math=False)
    if horizontal:
        ax.invert_yaxis()
        ax.grid(False, axis="y")
        ax.grid(True, axis="x")
    ax.tick_params(axis="y" if horizontal else "x", length=0)
    ax.bar_label(container, fmt=fmt, padding=3)
    ax.margins(**{"x" if horizontal else "y": 0.12})
    return container
