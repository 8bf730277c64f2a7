"""Draw the book's logo, favicon, road of attention and social card.

    python tools/art.py            write the SVG files below book/
    python tools/art.py --card     also the PNG of the social card (needs chromium on the path)

The drawings are committed; a test checks that they are what this script draws.
"""

from __future__ import annotations

import argparse
import math
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
STATIC = ROOT / "book" / "_static"
GLYPHS = ROOT / "book" / "_ext" / "glyphs"

LIGHT = {"blue": "#0072B2", "orange": "#E69F00", "green": "#009E73", "ink": "#22262B", "muted": "#6B7075",
         "cell": "#E4E1D8", "paper": "#FBFAF7"}  # fmt: skip
DARK = {"blue": "#56B4E9", "orange": "#F0B429", "green": "#3CC29A", "ink": "#E6E3DC", "muted": "#A3A7AC",
        "cell": "#343A41", "paper": "#191C20"}  # fmt: skip


def rect(x: float, y: float, w: float, h: float, colour: str, opacity: float = 1.0, radius: float = 2.0) -> str:
    """A rectangle in one of the named colours."""
    faint = "" if opacity >= 1 else f' fill-opacity="{opacity:.2f}"'
    return f'<rect x="{x:g}" y="{y:g}" width="{w:g}" height="{h:g}" rx="{radius:g}" class="{colour}"{faint}/>'


def dot(x: float, y: float, r: float, colour: str) -> str:
    """A filled circle."""
    return f'<circle cx="{x:g}" cy="{y:g}" r="{r:g}" class="{colour}"/>'


def line(path: str, colour: str, width: float = 2.0, opacity: float = 1.0) -> str:
    """A stroked path."""
    faint = "" if opacity >= 1 else f' stroke-opacity="{opacity:.2f}"'
    return f'<path d="{path}" class="line-{colour}" stroke-width="{width:g}"{faint}/>'


def grid(
    weights: Iterable[Iterable[float]], colour: str, x: float = 8, y: float = 8, cell: float = 14.0, gap: float = 2.5
) -> list[str]:
    """A matrix of attention weights: the darker, the more weight."""
    out = []
    for i, row in enumerate(weights):
        for j, weight in enumerate(row):
            left, top = x + j * (cell + gap), y + i * (cell + gap)
            out.append(rect(left, top, cell, cell, "cell"))
            if weight > 0.02:
                out.append(rect(left, top, cell, cell, colour, weight))
    return out


def one_vector() -> list[str]:
    """A chain of words, squeezed through one vector, unrolled into another chain."""
    top, bottom, xs = 16, 80, (14, 37, 60, 83)
    parts = [line(f"M{xs[0]} {top}H{xs[-1]}", "muted"), line(f"M{xs[0]} {bottom}H{xs[-1]}", "muted")]
    parts += [line(f"M{xs[-1]} {top}C{xs[-1]} 40 48 26 48 48S{xs[0]} 58 {xs[0]} {bottom}", "muted")]
    parts += [dot(x, top, 7, "blue") for x in xs] + [dot(x, bottom, 7, "green") for x in xs]
    return [*parts, dot(48, 48, 10, "orange")]


def alignment() -> list[str]:
    """A soft alignment with two words in another order."""
    centres = (0, 1, 3, 2, 4)
    rows = [[math.exp(-((j - centre) ** 2) / 0.45) for j in range(5)] for centre in centres]
    return grid(rows, "blue")


def window() -> list[str]:
    """A Gaussian window over the source."""
    xs = [8 + 11.7 * j for j in range(7)]
    weights = [math.exp(-((j - 3.4) ** 2) / 1.6) for j in range(7)]
    parts = [rect(x, 72, 9.7, 14, "cell") for x in xs]
    parts += [rect(x, 72, 9.7, 14, "blue", weight) for x, weight in zip(xs, weights, strict=True) if weight > 0.05]
    points = [(8 + t * 0.8, 62 - 46 * math.exp(-(((t * 0.8 - 43) / 15) ** 2))) for t in range(0, 101, 4)]
    path = "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in points)
    return [*parts, line(path, "orange", 3)]


def choice() -> list[str]:
    """One place for each word, and no other."""
    return grid([[1.0 if j == one else 0.0 for j in range(5)] for one in (0, 2, 1, 4, 3)], "orange")


def self_attention() -> list[str]:
    """The words of one sentence, looking at each other."""
    xs = (12, 30, 48, 66, 84)
    arcs = [(0, 4, 1.5), (1, 4, 4.5), (2, 4, 2), (0, 2, 3), (1, 3, 1.5)]
    parts = []
    for a, b, width in arcs:
        radius = (xs[b] - xs[a]) / 2
        colour = "orange" if b == 4 else "muted"
        parts.append(line(f"M{xs[a]} 70A{radius:g} {radius * 1.45:g} 0 0 1 {xs[b]} 70", colour, width, 0.9))
    return parts + [dot(x, 72, 7, "blue") for x in xs]


def heads() -> list[str]:
    """Several patterns at once."""
    patterns = [
        ("green", lambda i, j: 0.9 if j == 0 else 0.15),
        ("orange", lambda i, j: 0.95 if i == j + 1 else 0.12),
        ("blue", lambda i, j: math.exp(-((i - j) ** 2) / 0.7)),
    ]
    parts = []
    for k, (colour, weight) in enumerate(patterns):
        x, y = 44 - 18 * k, 8 + 18 * k
        parts.append(rect(x - 3, y - 3, 50, 50, "paper", radius=4))
        parts += grid([[weight(i, j) for j in range(4)] for i in range(4)], colour, x, y, 9.5, 2)
    return parts


def transformer() -> list[str]:
    """Encoder and decoder as stacks of layers; the decoder looks at the encoder."""
    parts = []
    for k in range(3):
        y = 12 + 26 * k
        parts += [line(f"M40 {32 - 8 + 12}C50 {36} 48 {y + 10} 56 {y + 10}", "orange", 2.5)]
        parts += [rect(8, y, 32, 20, "blue", 1 - 0.22 * (k), 4), rect(56, y, 32, 20, "green", 1 - 0.22 * k, 4)]
    return parts


def staircase() -> list[str]:
    """Each word looks at the words before it and at itself: the causal mask, a staircase."""
    rows = [[1.0 if i == j else 0.75 - 0.12 * (i - j) if j < i else 0.0 for j in range(5)] for i in range(5)]
    parts = grid(rows, "blue")
    return parts + [rect(8 + 16.5 * i, 8 + 16.5 * i, 14, 14, "orange") for i in range(5)]


ROAD: dict[str, tuple[Callable[[], list[str]], str, str]] = {
    "one-vector": (one_vector, "One vector", "2014"),
    "alignment": (alignment, "Alignment", "2015"),
    "window": (window, "Local attention", "2015"),
    "choice": (choice, "Hard choices", "2015"),
    "self-attention": (self_attention, "Self-attention", "2017"),
    "heads": (heads, "Many heads", "2017"),
    "transformer": (transformer, "The Transformer", "2017"),
    "staircase": (staircase, "What grew from it", "2018"),
}


def glyph(name: str) -> str:
    """One drawing of the road, coloured by the style sheet of the page that holds it."""
    return (
        '<svg class="glyph" viewBox="0 0 96 96" aria-hidden="true" focusable="false">'
        + "".join(ROAD[name][0]())
        + "</svg>\n"
    )


def style(colours: dict[str, str]) -> str:
    """The classes of the drawings, for a picture that stands alone."""
    rules = "".join(f".{name}{{fill:{colour}}}.line-{name}{{fill:none;stroke:{colour};stroke-linecap:round}}"
                    for name, colour in colours.items())  # fmt: skip
    font = "system-ui,-apple-system,'Segoe UI',Roboto,'Helvetica Neue',Arial,sans-serif"
    return f"<style>{rules}text{{font-family:{font};text-anchor:middle}}</style>"


def road(colours: dict[str, str]) -> str:
    """The whole road as one picture, for places that show only images."""
    width, height, step = 1040, 400, 250
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img">']
    parts.append("<title>The road from one vector to the Transformer, in eight pictures of attention</title>")
    parts.append(style(colours))
    parts.append(f'<rect width="{width}" height="{height}" rx="16" class="paper"/>')
    parts.append(line("M210 80H830M960 80C1030 80 1030 208 960 208H80C10 208 10 280 70 280M210 280H830", "cell", 4))
    for k, (draw, title, year) in enumerate(ROAD.values()):
        x, y = 97 + step * (k % 4), 32 + 200 * (k // 4)
        parts.append(rect(x - 14, y - 12, 124, 120, "paper", radius=12))
        parts.append(f'<g transform="translate({x} {y})">' + "".join(draw()) + "</g>")
        parts.append(f'<text x="{x + 48}" y="{y + 122}" font-size="19" font-weight="600" class="ink">{title}</text>')
        parts.append(f'<text x="{x + 48}" y="{y + 143}" font-size="15" class="muted">{year}</text>')
    return "".join(parts) + "</svg>\n"


def mark(tile: str, near: str, far: str, diagonal: str) -> str:
    """The logo: three words, each looking at itself and at what came before. Drawn for 16 pixels and up."""
    cells = "".join(
        f'<rect x="{2 + 10 * j}" y="{2 + 10 * i}" width="8" height="8" rx="1.5" '
        f'fill="{diagonal if i == j else near if i - j == 1 else far}"/>'
        for i in range(3)
        for j in range(i + 1)
    )
    ground = f'<rect width="32" height="32" rx="6" fill="{tile}"/>' if tile else ""
    return f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 32 32">{ground}{cells}</svg>\n'


def card() -> str:
    """The picture that other sites show beside a link to the book."""
    rows = [[1.0 if i == j else 0.8 - 0.1 * (i - j) if j < i else 0.0 for j in range(7)] for i in range(7)]
    art = "".join(grid(rows, "blue", 740, 96, 54, 10))
    art += "".join(rect(740 + 64 * i, 96 + 64 * i, 54, 54, "orange", radius=4) for i in range(7))
    words = ("Attention,", "Step by Step")
    text = "".join(
        f'<text x="84" y="{250 + 92 * i}" font-size="86" font-weight="600" class="ink">{word}</text>'
        for i, word in enumerate(words)
    )
    text += '<text x="86" y="412" font-size="33" class="muted">A book you can run, from the first</text>'
    text += '<text x="86" y="456" font-size="33" class="muted">attention to the Transformer</text>'
    sheet = style(DARK).replace("text-anchor:middle", "").replace("font-family:", "font-family:'Source Sans 3',")
    return (
        '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 1200 630" width="1200" height="630">'
        f'{sheet}<rect width="1200" height="630" class="paper"/>{art}{text}</svg>\n'
    )


def drawings() -> dict[Path, str]:
    """Every file this script writes, with its content."""
    found = {
        STATIC / "favicon.svg": mark("#22262B", "#56B4E9", "#2F6F96", "#F0B429"),
        STATIC / "logo.svg": mark("", "#0072B2", "#7FB8D8", "#E69F00"),
        STATIC / "logo-dark.svg": mark("", "#56B4E9", "#2F6F96", "#F0B429"),
        STATIC / "road.svg": road(LIGHT),
        STATIC / "road-dark.svg": road(DARK),
    }
    return {**found, **{GLYPHS / f"{name}.svg": glyph(name) for name in ROAD}}


def draw_card(path: Path) -> None:
    """Photograph the social card with a headless browser."""
    browser = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if browser is None:
        raise SystemExit("the social card needs chromium on the path")
    font = (STATIC / "fonts" / "source-sans-3-latin-wght-normal.woff2").as_uri()
    face = f"@font-face{{font-family:'Source Sans 3';font-weight:200 900;src:url({font})}}body{{margin:0}}"
    with tempfile.TemporaryDirectory() as folder:
        page = Path(folder) / "card.html"
        page.write_text(f"<!doctype html><style>{face}</style>{card()}", encoding="utf-8")
        command = [browser, "--headless", "--no-sandbox", "--hide-scrollbars", "--allow-file-access-from-files",
                   "--window-size=1200,630", f"--screenshot={path}", page.as_uri()]  # fmt: skip
        subprocess.run(command, check=True, capture_output=True, timeout=120)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--card", action="store_true", help="also draw the social card as PNG")
    options = parser.parse_args(arguments)
    GLYPHS.mkdir(parents=True, exist_ok=True)
    for path, content in drawings().items():
        path.write_text(content, encoding="utf-8")
    if options.card:
        draw_card(STATIC / "card.png")
    return 0


if __name__ == "__main__":
    sys.exit(main())
