"""Figures to touch: what the page shows at a setting is what ``draw`` draws there, by mouse, finger and keyboard."""

from __future__ import annotations

import io
import itertools
import json
import os
import re
import sys
from functools import cache
from html import escape
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import numpy as np
import pytest
from browser import NARROW, write_pages
from hypothesis import given, settings
from hypothesis import strategies as st

from transformer_lib import viz
from transformer_lib.viz import frames, touchable

ROOT = Path(__file__).resolve().parents[1]
sys.path.append(str(ROOT / "book" / "_ext"))
import compare  # noqa: E402
import nbval_conftest  # noqa: E402

SINGULAR = (
    "is|was|as|less|pass|loss|gives|reads|looks|writes|has|yes|degrees"  # what may follow a 1 (66, 64 and 1 degrees)
)
ODD = re.compile(rf"(?<![\w.,])(?:-0(?:\.0+)?(?![.\d])|1 (?!(?:{SINGULAR})\b)[a-z]+s\b|nan\b).*")
WIDTHS, PLACES = [1, 4, 16, 64], [-1.0, -0.5, 0.0, 0.5, 1.0]


@pytest.fixture(autouse=True)
def style() -> Any:
    before = plt.get_fignums()
    with matplotlib.rc_context():
        viz.use_style()
        yield
        assert plt.get_fignums() == before  # touch closes what draw opens


def weights(width: int, scaled: str) -> str:
    """Bars that change in height and colour, a text, and as many marks as the logarithm."""
    scores = np.linspace(1, 0, 6) * (np.sqrt(width) if scaled == "no" else 1)
    share = np.exp(scores) / np.exp(scores).sum()
    _, ax = plt.subplots()
    ax.bar(range(6), share, color=viz.PALETTE["red" if scaled == "no" else "blue"])
    ax.set(ylim=(0, 1), xlabel="keys", ylabel="weight")
    ax.text(5, 0.9, f"{100 * share[0]:.0f} %", ha="right")
    ax.plot(range(int(np.log2(width))), [0.5] * int(np.log2(width)), "o")
    for i in range(int(np.log2(width))):
        ax.axvline(i, clip_on=i % 2 == 0, ls="--" if i == 1 else "-")
    return f"Width {width}: the best key gets {share[0]:.2f}."


def arrow(x: float, y: float) -> str:
    _, (ax, other) = plt.subplots(1, 2)
    ax.set(xlim=(-2, 2), ylim=(-2, 2), aspect="equal")
    ax.plot([0, x], [0, y])
    other.barh(["x", "y"], [x, y])
    other.set(xlim=(-1, 1))
    return f"At {x} and {y}."


def maps(sharpness: float, causal: bool) -> str:
    """A heat map, and cells of another colour map."""
    scores = sharpness * np.arange(9).reshape(3, 3)
    if causal:
        scores[np.triu_indices(3, 1)] = -1e9
    shares = np.exp(scores - scores.max(1, keepdims=True))
    shares /= shares.sum(1, keepdims=True)
    _, (left, right) = plt.subplots(1, 2)
    viz.heatmap(left, shares, ["a", "b", "c"], ["x", "y", "z"], numbers=True)
    right.imshow(plt.cm.viridis(shares) if causal else shares, origin="lower")  # a picture, or cells
    return f"The last weight is {shares[2, 2]:.2f}."


FIGURES = {
    "maps": (maps, {"sharpness": [0.0, 0.5, 1.5], "causal": [False, True]}, {"title": "Maps"}),
    "weights": (weights, {"width": WIDTHS, "scaled": ["no", "yes"]}, {"start": {"width": 16}, "title": "Saturation"}),
    "arrow": (arrow, {"x": PLACES, "y": PLACES[:4]}, {"drag": ("x", "y"), "start": {"x": 0.5}}),
}


def made(name: str) -> viz.Viewer:
    draw, controls, options = FIGURES[name]
    with matplotlib.rc_context():
        viz.use_style()
        return viz.touch(draw, **options, **controls)


@pytest.fixture(scope="module")
def figures() -> dict[str, viz.Viewer]:
    return {name: made(name) for name in FIGURES}


# ---- columns ----


@given(st.lists(st.integers(-(10**7), 10**7), min_size=1))
def test_letters_hold_any_numbers(numbers: list[int]) -> None:
    assert nbval_conftest.numbers_of(frames.digits_of(numbers)) == numbers


def read(columns: frames.Columns, templates: list[Any], setting: tuple[int, ...]) -> str:
    """What the script makes of templates at one setting."""
    kept = list(columns.kept)

    def number(place: int) -> tuple[int, int]:
        uses, decimals, numbers = kept[place]
        at = 0
        for k in uses:
            at = at * columns.sizes[k] + setting[k]
        return numbers[at], decimals

    form, *used = templates[number(templates[-1])[0]] if isinstance(templates[-1], int) else templates[0]
    fill = iter(used)
    return re.sub("~", lambda _: frames.written(*number(next(fill))), form) if used else form


@settings(deadline=None)
@given(st.data())
def test_texts_come_back_as_they_were(data: st.DataObject) -> None:
    sizes = data.draw(st.lists(st.integers(1, 3), min_size=1, max_size=3))
    words = st.sampled_from(["", "1", "2.50", "-0.3", "007", "~", "a 1", "a 2.5", "#00ff00", "3 4", "−1", "-0.0", "x"])
    values = data.draw(st.lists(words, min_size=int(np.prod(sizes)), max_size=int(np.prod(sizes))))
    columns = frames.Columns(sizes)
    templates = columns.texts(values)
    for value, setting in zip(values, itertools.product(*map(range, sizes)), strict=True):
        assert read(columns, templates, setting) == value


def test_a_column_keeps_only_the_controls_it_depends_on() -> None:
    columns = frames.Columns([2, 3])
    assert columns.texts([f"M{a} 5L{b}" for a in (1, 2) for b in (7, 8, 9)]) == [["M~ 5L~", 0, 1]]
    assert list(columns.kept) == [((0,), 0, (1, 2)), ((1,), 0, (7, 8, 9))]
    assert columns.texts([f"{a}" for a in (1, 2) for _ in range(3)]) == [["~", 0]]  # kept once


def test_numbers_too_large_for_the_script_are_kept_as_texts() -> None:
    columns, texts = frames.Columns([2]), ["1 a", "2000000000 a"]
    templates = columns.texts(texts)
    assert max(abs(number) for *_, numbers in columns.kept for number in numbers) < 2**29
    assert [read(columns, templates, (at,)) for at in (0, 1)] == texts
    assert frames.Columns([2]).texts(["1 a", "500000000 a"]) == [["~ a", 0]]


# ---- the figure ----


def test_notebooks_are_compared_by_what_their_figures_say(figures: dict[str, viz.Viewer]) -> None:
    for name, (draw, controls, options) in FIGURES.items():
        title, *lines = nbval_conftest.said(figures[name].html).splitlines()
        assert title == options.get("title", "A figure to touch")
        for setting, line in zip(itertools.product(*controls.values()), lines, strict=True):
            assert line.endswith(" " + draw(**dict(zip(controls, setting, strict=True))))
            plt.close()
    assert nbval_conftest.said("<b>1</b>") == "<b>1</b>"  # anything else as it is


def test_it_is_small_always_the_same_and_loads_nothing(figures: dict[str, viz.Viewer]) -> None:
    for name, figure in figures.items():
        assert len(figure.html) < 30_000 and (name == "arrow" or figure.html == made(name).html)
        plain = figure.html.replace('xmlns="http://www.w3.org/2000/svg"', "").replace(
            '"http://www.w3.org/2000/svg"', ""
        )
        assert not re.search(r"https?:|src=|@import|url\((?!#touch-)| name=", plain)
    names = [set(re.findall(r' id="([^"]*)"', figure.html)) for figure in figures.values()]
    assert all(names) and not names[0] & names[1]  # figures of one page do not use each other's shapes


def test_what_it_opens_with_is_in_the_page_without_a_script(figures: dict[str, viz.Viewer]) -> None:
    html = figures["weights"].html
    assert '<span class="touch-said">Width 16: the best key gets 0.56.</span>' in html and ">56 %</text>" in html
    assert 'max="3" value="2"' in html and str(figures["weights"]).startswith("Viewer(summary='Saturation: Width 16")
    assert html.count("<output") == 1 and 'value="0" checked><span>no' in html
    assert [*map(touchable._label, np.array([1, 1048576]))] == ["1", "1048576"]


@pytest.mark.parametrize(
    ("controls", "message"),
    [
        ({"width": [], "scaled": ["no"]}, "width=.*different values"),
        ({"width": [1, 1], "scaled": ["no"]}, "width=.*different values"),
        ({"width": [1], "scaled": ["no"], "start": {"width": 3}}, "width=3 is none of its values"),
        ({"width": [1], "scaled": ["no"], "start": {"depth": 3}}, "depth is no control: there are width, scaled"),
        ({"width": [1], "scaled": ["no"], "drag": ("width", "scaled")}, "scaled=.*only numbers can be dragged"),
    ],
)
def test_what_cannot_be_right_is_refused(controls: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        viz.touch(weights, **controls)


def nothing(x: int) -> str:
    return "nothing"


def silent(x: int) -> None:
    plt.subplots()


def growing(x: int) -> str:
    plt.subplots(1, x)
    return f"{x} axes"


def crowded(x: int) -> str:
    plt.subplots()[1].imshow(np.zeros((40, 40)))
    return "all zero"


@pytest.mark.parametrize(
    ("draw", "message"),
    [
        (nothing, "draw made no figure"),
        (silent, "draw returned None: expected a sentence"),
        (crowded, "an image of 40 x 40 cells"),
        (growing, "draw made 2 axes, but 1 at first: expected as many"),
    ],
)
def test_a_function_that_draws_what_cannot_be_shown_is_refused(draw: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        viz.touch(draw, x=[1, 2])


def test_a_handle_may_stand_at_the_edge_of_its_figure() -> None:
    def draw(x: float, y: float) -> str:
        ax = plt.subplots(layout="none")[1]
        ax.set_position((0, 0, 1, 1))
        ax.set(xlim=(0, 1), ylim=(0, 1))
        return f"At {x}, {y}."

    viz.touch(draw, x=[-0.00001, 0.5], y=[0.5, 1.00001], drag=("x", "y"))


def test_cells_have_the_colours_of_their_numbers() -> None:
    """From the first row to the last, whichever side an image begins at."""
    shares = np.linspace(0, 1, 6).reshape(2, 3)

    def draw(low: bool) -> str:
        ax = plt.subplots()[1]
        viz.heatmap(ax, shares, None, None)
        ax.images[0].origin = "lower" if low else "upper"
        ax.images[0].set_extent((-0.5, 2.5, -0.5, 1.5) if low else (-0.5, 2.5, 1.5, -0.5))
        ax.set(ylim=(-0.5, 1.5) if low else (1.5, -0.5))
        return "six cells"

    for low in (False, True):
        html = viz.touch(draw, low=[low]).html
        cells = re.findall(
            r'd="M([\d.]+) ([\d.]+)[LH][^"]*"[^>]*fill="([^"]*)"', html[html.index('<g class="touch-att') :]
        )[:6]
        down = sorted((float(y) * (-1 if low else 1), float(x), fill) for x, y, fill in cells)
        colours = [matplotlib.colors.to_hex(colour) for colour in viz.attention_colours()(shares.ravel())]
        page = {name.lower() for name in viz.PALETTE.values()}  # these colours follow the page
        rgb = [f"rgb({','.join(str(part) for part in bytes.fromhex(colour[1:]))})" for colour in colours]
        assert [fill for _, _, fill in down] == [c if c in page else r for c, r in zip(colours, rgb, strict=True)]


def test_in_an_epub_it_is_its_first_frame_and_proper_xml(figures: dict[str, viz.Viewer]) -> None:
    for figure in (*figures.values(), viz.attention_viewer(np.eye(2)[None], ["a", "b"], ["x", "y"])):
        html = pytest.importorskip("book_cells").still(figure.html)
        page = ElementTree.fromstring(f"<body>{html}</body>")
        assert "<script" not in html and 'touch-controls"' not in html
        if figure in figures.values():
            assert len(page.findall(".//{*}svg")) == 1 and not page.findall(".//input")


# ---- in a browser ----

SEEN = """(svg) => {
  const seen = (one) => one.getAttribute('display') !== 'none';
  const names = (one) => one.getAttributeNames()
    .filter((name) => !['data-touch', 'display', 'href', 'clip-path'].includes(name));
  const shape = (id) => !id?.includes('#') ? id
    : document.querySelector(id.match(/#[^)]*/)[0]).outerHTML.replace(/ id="[^"]*"/, '');
  const tree = (one) => [one.tagName, names(one).sort().map((name) => [name, one.getAttribute(name)]),
    shape(one.getAttribute('href')), shape(one.getAttribute('clip-path')),
    one.children.length ? '' : one.textContent,
    [...one.children].filter((child) => seen(child) && child.tagName !== 'defs').map(tree)];
  return JSON.stringify([...svg.children].filter((one) => seen(one) && !/defs/.test(one.tagName)
    && one.getAttribute('class') !== 'touch-handle').map(tree));
}"""


def show(visit: Any, folder: Path, figures: dict[str, viz.Viewer], dark: bool = False, **options: Any) -> Any:
    body = "".join(f'<section id="{name}">{figure.html}</section>' for name, figure in figures.items())
    path = write_pages(folder, body) / ("dark.html" if dark else "light.html")
    return visit(path.as_uri(), **{"reduced_motion": "no-preference", **options})


@pytest.mark.slow
@pytest.mark.parametrize("name", FIGURES)
def test_each_frame_is_what_draw_draws(figures: dict[str, viz.Viewer], name: str, visit: Any, tmp_path: Path) -> None:
    draw, controls, _ = FIGURES[name]
    alone = {}
    for i, values in enumerate(itertools.product(*controls.values())):
        alone[f"f{i}"] = viz.touch(draw, **{key: [value] for key, value in zip(controls, values, strict=True)})
    page = show(visit, tmp_path, {"all": figures[name], **alone})
    for i, setting in enumerate(itertools.product(*(range(len(values)) for values in controls.values()))):
        for k, at in enumerate(setting):
            page.eval_on_selector(
                f'#all [data-control="{k}"]',
                """(box, at) => { const one = box.querySelector('[type=range]') ?? box.querySelectorAll('input')[at];
                if (one.type === 'range') one.value = at; else one.checked = true;
                one.dispatchEvent(new Event('input', { bubbles: true })); }""",
                at,
            )
        assert page.eval_on_selector("#all svg", SEEN) == page.eval_on_selector(f"#f{i} svg", SEEN)
        assert page.inner_text("#all .touch-said") == page.inner_text(f"#f{i} .touch-said")


@pytest.mark.slow
def test_it_works_by_keyboard_and_is_said(figures: dict[str, viz.Viewer], visit: Any, tmp_path: Path) -> None:
    page = show(visit, tmp_path, figures)
    assert page.get_attribute("#weights .touch-said", "aria-live") == "polite"
    page.focus("#weights [type=range]")
    page.keyboard.press("End")
    assert page.inner_text("#weights .touch-said").startswith("Width 64: ")
    assert page.inner_text("#weights output") == "64"
    assert page.get_attribute("#weights [type=range]", "aria-valuetext") == "64"
    page.focus("#weights fieldset input:checked")
    page.keyboard.press("ArrowRight")
    assert page.inner_text("#weights .touch-said") == "Width 64: the best key gets 0.26."
    assert page.inner_text("#arrow .touch-said") == "At 0.5 and -1.0."  # it is not disturbed
    page.focus("#arrow [type=range] >> nth=0")
    for key in ("ArrowUp", "ArrowUp", "ArrowLeft", "ArrowDown", "ArrowRight", "ArrowRight", "ArrowRight"):
        page.keyboard.press(key)
    assert page.inner_text("#arrow .touch-said") == "At 1.0 and -0.5."


@pytest.mark.slow
@pytest.mark.parametrize("touch", [False, True])
def test_the_handle_follows_the_pointer(
    figures: dict[str, viz.Viewer], visit: Any, tmp_path: Path, touch: bool
) -> None:
    page = show(
        visit, tmp_path, {"arrow": figures["arrow"]}, **({"viewport": NARROW, "has_touch": True} if touch else {})
    )
    ring = page.locator("#arrow .touch-ring").bounding_box()
    box = page.locator("#arrow svg").bounding_box()
    x, y = ring["x"] + ring["width"] / 2, ring["y"] + ring["height"] / 2
    step = page.evaluate(  # one step of x, in pixels
        "() => { const box = document.querySelector('#arrow'); const place = () => box.querySelector('.touch-ring')"
        ".getBoundingClientRect().x; const range = box.querySelector('input'); const at = place();"
        "range.value = 4; range.dispatchEvent(new Event('input', {bubbles: true})); return place() - at; }"
    )
    assert page.inner_text("#arrow .touch-said") == "At 1.0 and -1.0." and 5 < step < box["width"] / 8
    if touch:
        page.touchscreen.tap(x - step, y - 2 * step)
    else:
        page.mouse.move(x + step, y)
        page.mouse.down()
        page.mouse.move(x - step, y - 2 * step, steps=5)
        page.mouse.up()
        page.mouse.move(x, y)  # nothing is held any more
    assert page.inner_text("#arrow .touch-said") == "At 0.0 and 0.0."
    page.mouse.click(box["x"] + box["width"] - 3, y)  # beside the plane
    assert page.inner_text("#arrow .touch-said") == "At 0.0 and 0.0."


@pytest.mark.slow
def test_play_runs_to_the_end_and_stops(figures: dict[str, viz.Viewer], visit: Any, tmp_path: Path) -> None:
    page = show(visit, tmp_path, figures)
    assert page.inner_text("#weights output") == "16"  # nothing moves before it is asked to
    page.click("#weights button")
    assert page.get_attribute("#weights button", "aria-pressed") == "true"
    page.wait_for_selector('#weights button[aria-pressed="false"]')
    assert page.inner_text("#weights output") == "64"
    page.click("#weights button")
    assert page.inner_text("#weights output") == "1"
    page.click("#weights button")
    page.wait_for_timeout(700)
    assert page.inner_text("#weights output") == "1"


@pytest.mark.slow
@pytest.mark.parametrize("dark", [False, True])
def test_it_fits_a_phone_and_can_be_read(
    figures: dict[str, viz.Viewer], visit: Any, tmp_path: Path, dark: bool
) -> None:
    page = show(visit, tmp_path, figures, dark=dark, viewport=NARROW)
    assert page.evaluate("() => document.documentElement.scrollWidth") <= 390
    sizes = page.evaluate(
        "() => [...document.querySelectorAll('.touch svg text')]"
        ".map((one) => parseFloat(getComputedStyle(one).fontSize)"
        " * Math.hypot(one.getScreenCTM().a, one.getScreenCTM().b))"
    )
    assert len(sizes) > 20 and min(size for size in sizes if size) >= 9
    fill = page.evaluate("() => getComputedStyle(document.querySelector('#weights svg text')).fill")
    assert fill == ("rgb(230, 227, 220)" if dark else "rgb(34, 38, 43)")
    page.click("#maps fieldset label >> nth=1")  # some weights are zero: they keep a light page's colour, to be turned
    zero = "() => getComputedStyle(document.querySelector('#maps .touch-attention [fill=\"#fbfaf7\"]')).fill"
    assert page.evaluate(zero) == "rgb(251, 250, 247)"
    height = "() => document.documentElement.scrollHeight"
    before = page.evaluate(height)
    page.focus("#weights [type=range]")
    page.keyboard.press("Home")
    page.keyboard.press("End")
    assert page.evaluate(height) == before  # nothing jumps


@pytest.mark.slow
def test_without_scripts_a_still_picture_remains(figures: dict[str, viz.Viewer], visit: Any, tmp_path: Path) -> None:
    page = show(visit, tmp_path, figures, java_script_enabled=False)
    assert page.is_visible("#weights svg") and not page.is_visible("#weights input >> nth=0")
    assert page.inner_text("#weights .touch-said").startswith("Width 16")


# ---- the figures of the book ----


@cache
def shown_in_the_book() -> list[tuple[Path, int, str]]:
    """Every output in HTML: its notebook, the count of its cell, and its text."""
    found = []
    for path in sorted((ROOT / "book").rglob("*.ipynb")):
        for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
            for output in cell.get("outputs", []):
                if html := "".join(output.get("data", {}).get("text/html", [])):
                    found.append((path, cell["execution_count"], html))
    return found


def of_the_book(everything: bool = True) -> dict[str, str]:
    """The figures to touch of all notebooks; or of those that changed, and every tenth of the others."""
    figures = [one for one in shown_in_the_book() if one[2].startswith('<div class="touch')]
    if not everything and not os.environ.get("CI"):
        new = set(compare.changed())
        figures = [one for i, one in enumerate(figures) if one[0] in new or i % 10 == 0]
    return {f"{path.stem}-{count}": html for path, count, html in figures}


def test_the_figures_of_the_book_are_small_and_have_the_script_of_today() -> None:
    figures = of_the_book()
    assert len(figures) >= 3
    for name, html in figures.items():
        assert len(html.encode()) < 60_000, name
        assert touchable.STYLE in html and touchable.SCRIPT in html, f"{name}: run its notebook again"
        assert not (odd := ODD.findall(nbval_conftest.said(html))), f"{name} says {odd}"


@pytest.mark.slow
def test_the_figures_of_the_book_can_be_read_on_a_phone_and_nothing_jumps(visit: Any, tmp_path: Path) -> None:
    figures = of_the_book(everything=False)
    page = show(visit, tmp_path, {name: viz.Viewer(name, html) for name, html in figures.items()}, viewport=NARROW)
    page.add_style_tag(content="body { margin: 0 18px } p { max-width: none }")  # narrower than any page of the book
    assert page.evaluate("() => document.documentElement.scrollWidth") <= 390
    for name in figures:
        looks = page.eval_on_selector_all(
            f"#{name} input",
            """(all) => all.flatMap((one) => Array.from({ length: one.type === 'range' ? +one.max + 1 : 1 }, (_, i) => {
            if (one.type === 'range') one.value = i; else one.checked = true;
            one.dispatchEvent(new Event('input', { bubbles: true }));
            const box = one.closest('.touch');
            return [box.offsetHeight, box.querySelector('.touch-said').textContent]; }))""",
        )
        assert len({height for height, _ in looks}) == 1, name
        assert not [said for _, said in looks if re.search(r"(?<![\d.,])1 (letter|round|step|update|word)s", said)], (
            name
        )
        sizes = page.eval_on_selector_all(
            f"#{name} svg text",
            "(all) => all.map((one) => parseFloat(getComputedStyle(one).fontSize)"
            " * Math.hypot(one.getScreenCTM().a, one.getScreenCTM().b))",
        )
        assert min(sizes, default=9) >= 9, name


PRESS = """(box) => {  // every value of a control, and what is drawn then
  const drawn = [];
  for (const one of box.querySelectorAll('input'))
    for (let i = 0; i <= (one.type === 'range' ? Number(one.max) : 0); i++) {
      if (one.type !== 'range') one.click();
      else {
        one.value = i;
        one.dispatchEvent(new Event('input', { bubbles: true }));
      }
      drawn.push(box.closest('.touch').querySelector('svg').innerHTML);
    }
  return drawn;
}"""


@pytest.mark.slow
def test_each_figure_of_the_book_works_alone_in_a_frame_without_rights(visit: Any) -> None:
    """So it is on Colab: each output is a page of its own, which sees neither the notebook nor the network."""
    page = visit("about:blank")
    for name, html in of_the_book(everything=False).items():
        inside = escape(f'<!doctype html><html lang="en"><title>t</title><body>{html}</body></html>')
        page.set_content(f'<iframe sandbox="allow-scripts" width="800" height="900" srcdoc="{inside}"></iframe>')
        frame = page.query_selector("iframe").content_frame()  # page.frames may still hold the one before
        frame.wait_for_selector(".touch[data-ready]")
        controls = frame.query_selector_all("[data-control]")
        looks = [control.evaluate(PRESS) for control in controls * 2]  # the second time, the others are at their ends
        for k in range(len(controls)):
            assert len({*looks[k], *looks[k + len(controls)]}) > 1, f"{name}: a control that changes nothing"


TO_THE_END = """(all) => all.forEach((one) => {
  if (one.type === 'range') one.value = one.max; else one.checked = true;
  one.dispatchEvent(new Event('input', { bubbles: true })); })"""


@pytest.mark.slow
def test_no_figure_of_the_book_shines_in_the_dark(visit: Any) -> None:
    """Nothing but a picture of the world may be white over a tenth of its area: where a map is zero, it is the page."""
    page = visit("about:blank", color_scheme="dark")
    for name, html in of_the_book(everything=False).items():
        if name.startswith("vision_transformers"):  # a photograph, and digits on paper
            continue
        page.set_content(f'<html data-theme="dark"><body style="background:#14181e">{html}</body></html>')
        page.wait_for_selector(".touch[data-ready]")
        for _ in ("at its start", "at the end of each control"):
            picture = plt.imread(io.BytesIO(page.locator(".touch svg").first.screenshot()))
            assert (picture[..., :3].min(-1) > 0.7).mean() < 0.1, name
            page.eval_on_selector_all(".touch input", TO_THE_END)


@pytest.mark.slow
def test_the_theme_paints_no_pale_frame_round_a_figure_in_the_dark(visit: Any, tmp_path: Path) -> None:
    pytest.importorskip("sphinx")
    theme = pytest.importorskip("pydata_sphinx_theme")
    (sheet,) = Path(theme.__file__).parent.rglob("styles/pydata-sphinx-theme.css")
    found = {
        frozenset(re.findall('class="[^"]*"', html)): html for _, _, html in shown_in_the_book()
    }  # of each kind one
    outputs = ["<p>Anything else</p>", *(html for html in found.values() if "<table" not in html)]
    assert len(outputs) > 10
    boxes = "".join(f'<div class="cell_output"><div class="output text_html">{html}</div></div>' for html in outputs)
    style = sheet.read_text("utf-8") + (ROOT / "book/_static/book.css").read_text("utf-8")
    page = visit("about:blank", color_scheme="dark")
    page.set_content(
        f'<!doctype html><html data-theme="dark" data-mode="dark"><style>{style}</style>'
        f'<body><div class="bd-content"><article class="bd-article">{boxes}</article></div></body></html>'
    )
    looks = page.eval_on_selector_all(
        ".text_html", "(all) => all.map((one) => getComputedStyle(one)).map((s) => [s.backgroundColor, s.padding])"
    )
    assert looks[0][0] != "rgba(0, 0, 0, 0)"  # the theme does paint
    assert {tuple(look) for look in looks[1:]} == {("rgba(0, 0, 0, 0)", "0px")}
