"""The pictures: orientation, labels, colours, refusals, and a viewer that is safe and always the same."""

import itertools
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from transformer_lib import viz
from transformer_lib.viz.plots import CURVES, HEAT

ROOT = Path(__file__).resolve().parents[1]
ROWS = ["ein", "kleiner", "Hund"]
COLUMNS = ["a", "small", "dog", "."]
WEIGHTS = [[0.7, 0.1, 0.1, 0.1], [0.1, 0.8, 0.1, 0.0], [0.0, 0.0, 1.0, 0.0]]


@pytest.fixture(autouse=True)
def style():
    """Each test draws in the book's style and leaves no figure behind."""
    with matplotlib.rc_context():
        viz.use_style()
        yield
        plt.close("all")


@pytest.fixture
def ax():
    return plt.subplots()[1]


def luminance(colour):
    coded = np.array(matplotlib.colors.to_rgb(colour))
    light = np.where(coded <= 0.04045, coded / 12.92, ((coded + 0.055) / 1.055) ** 2.4)
    return light @ [0.2126, 0.7152, 0.0722]


def contrast(one, other):
    dark, light = sorted([luminance(one), luminance(other)])
    return (light + 0.05) / (dark + 0.05)


def pixels(figure):
    """What the figure looks like, as an array (height, width, 3)."""
    figure.canvas.draw()
    return np.asarray(figure.canvas.buffer_rgba())[:, :, :3].astype(int)


# ---- palette and style ----


def test_text_and_lines_stand_out_from_the_paper():
    paper = viz.PALETTE["paper"]
    assert contrast(viz.PALETTE["ink"], paper) >= 7
    assert contrast(viz.PALETTE["muted"], paper) >= 4.5
    assert all(contrast(viz.PALETTE[name], paper) >= 3 for name in (*CURVES, "grey"))
    assert plt.rcParams["axes.prop_cycle"].by_key()["color"] == [viz.PALETTE[name] for name in CURVES]
    style = (ROOT / "transformer_lib" / "viz" / "book.mplstyle").read_text(encoding="utf-8")
    assert {f"#{colour}" for colour in re.findall(r"\b[0-9A-F]{6}\b", style)} <= set(viz.PALETTE.values())


def test_the_palette_is_that_of_the_pages():
    css = (ROOT / "book" / "_static" / "book.css").read_text(encoding="utf-8")
    light = css[css.index('html[data-theme="light"]') : css.index('html[data-theme="dark"]')]
    of_page = dict(re.findall(r"--book-(\w+): (#\w{6});", light))
    shared = set(of_page) & set(viz.PALETTE)
    assert {"blue", "orange", "green", "red", "ink", "paper"} <= shared
    assert {name: of_page[name].upper() for name in shared} == {name: viz.PALETTE[name] for name in shared}


def test_shades_run_from_paper_to_dark_and_only_get_darker():
    colours = viz.attention_colours()
    assert matplotlib.colors.to_hex(colours(0.0)).upper() == viz.PALETTE["paper"]
    values = [luminance(colours(x)) for x in np.linspace(0, 1, 101)]
    assert (np.diff(values) < 0).all()
    assert contrast(colours(0.0), colours(1.0)) > 12


def test_figures_are_opaque_and_readable_on_a_phone(tmp_path):
    figure, ax = plt.subplots()
    ax.plot([0, 1])
    figure.savefig(tmp_path / "figure.png")
    image = plt.imread(tmp_path / "figure.png")
    assert (image[:, :, 3] == 1).all()
    assert matplotlib.colors.to_hex(image[2, 2, :3]).upper() == viz.PALETTE["paper"]
    assert image.shape[1] <= 7 * 144
    smallest = min(plt.rcParams[name] for name in ("font.size", "axes.labelsize", "xtick.labelsize", "legend.fontsize"))
    assert smallest / 72 * 360 / figure.get_size_inches()[0] >= 9


# ---- heat maps ----


def test_a_row_is_a_target_word(ax):
    image = viz.heatmap(ax, WEIGHTS, ROWS, COLUMNS)
    assert [label.get_text() for label in ax.get_yticklabels()] == ROWS
    assert [label.get_text() for label in ax.get_xticklabels()] == COLUMNS
    assert image.get_array().shape == (3, 4)
    seen = pixels(ax.figure)
    above = ax.get_window_extent().y1
    assert all(label.get_window_extent().y0 >= above for label in ax.get_xticklabels())

    def shade(row, column):
        x, y = ax.transData.transform((column, row))
        return seen[seen.shape[0] - 1 - round(y), round(x)]

    dark, light = matplotlib.colors.to_rgb(HEAT[-1]), matplotlib.colors.to_rgb(HEAT[0])
    assert np.allclose(shade(2, 2), np.array(dark) * 255, atol=1)  # Hund looks at dog, in the third row from above
    assert np.allclose(shade(2, 3), np.array(light) * 255, atol=1)
    assert np.allclose(shade(1, 3), np.array(light) * 255, atol=1)


def test_the_scale_begins_at_zero_whatever_the_weights(ax):
    image = viz.heatmap(ax, [[0.4, 0.5]], ["x"], ["a", "b"])
    assert image.get_clim() == (0, 1)
    image = viz.heatmap(ax, [[4.0, 5.0]], ["x"], ["a", "b"], largest=8)
    assert image.get_clim() == (0, 8)


def test_shades_are_the_page_at_zero_and_full_at_the_largest():
    picture = viz.shades(torch.tensor([[0.0, 1, -2], [4, -4, 8]]), largest=4)
    assert picture.shape == (2, 3, 4) and picture[..., 3].tolist() == [[0, 0.25, 0.5], [1, 1, 1]]
    for sign, name in ((1, "blue"), (-1, "red")):
        shown = picture[np.sign([[0, 1, -2], [4, -4, 8]]) == sign]
        assert np.allclose(shown[:, :3], matplotlib.colors.to_rgb(viz.PALETTE[name]))
    assert np.array_equal(viz.shades([[0.5, -1]]), viz.shades(np.array([[0.5, -1]])))
    with pytest.raises(ValueError, match="largest=0: expected more than 0"):
        viz.shades([[0.0]], largest=0)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_tensors_of_any_kind_draw_the_same(ax, dtype):
    weights = torch.tensor([[0.25, 0.75], [1.0, 0.0]], dtype=dtype, requires_grad=True)
    for given_as in (weights, weights.detach().double().numpy(), weights.tolist()):
        assert np.array_equal(viz.heatmap(ax, given_as, ["ab"] * 2, ["c", "d"]).get_array(), weights.tolist())


def test_gold_cells_are_framed_where_the_alignment_says(ax):
    viz.heatmap(ax, WEIGHTS, ROWS, COLUMNS, gold=((3, 1), (0, 2)))
    frames = [patch for patch in ax.patches if patch.get_gid() == "gold"]
    centres = {(round(f.get_x() + f.get_width() / 2), round(f.get_y() + f.get_height() / 2)) for f in frames}
    assert centres == {(3, 1), (0, 2)} and not any(frame.get_fill() for frame in frames)


def test_numbers_in_cells_can_be_read(ax):
    viz.heatmap(ax, WEIGHTS, ROWS, COLUMNS, numbers=True)
    texts = {text.get_position(): text for text in ax.texts}
    assert len(texts) == 12 and texts[1, 1].get_text() == "0.80"
    for (column, row), text in texts.items():
        assert contrast(text.get_color(), viz.attention_colours()(WEIGHTS[row][column])) >= 4.5


@pytest.mark.slow
@pytest.mark.parametrize(("count", "inches"), [(4, 3), (12, 5), (30, 5), (36, 7)])
def test_words_do_not_clash(count, inches):
    words = [f"Wort{i}" for i in range(count)]
    figure, ax = plt.subplots(figsize=(inches, inches))
    viz.heatmap(ax, np.eye(count), words, words)
    figure.canvas.draw()
    rows = [label.get_window_extent() for label in ax.get_yticklabels()]
    assert all(one.y0 >= two.y1 - 1 for one, two in itertools.pairwise(rows))
    labels = ax.get_xticklabels()
    cell = abs(ax.transData.transform((1, 0))[0] - ax.transData.transform((0, 0))[0])
    thickness = labels[0].get_fontsize() / 72 * figure.dpi  # of a line of text
    slant = np.sin(np.radians(labels[0].get_rotation()))
    assert cell * slant >= 1.1 * thickness


# ---- in a notebook ----


@pytest.mark.slow
def test_a_notebook_shows_words_as_words_and_the_same_every_time():
    code = """
from IPython.core.interactiveshell import InteractiveShell
shell = InteractiveShell.instance()
import matplotlib.pyplot as plt
from transformer_lib import viz
viz.use_style()
for size in (3, 33):
    figure, ax = plt.subplots()
    ax.imshow([[0.0] * size] * size)
    ax.set_title("words")
    shown, again = (shell.display_formatter.format(figure)[0] for _ in range(2))
    plt.close(figure)
    assert set(shown) == {"text/plain", "image/svg+xml"} and shown == again, shown.keys()
    svg = shown["image/svg+xml"]
    assert ">words</text>" in svg and "DejaVu" not in svg and "metadata" not in svg
    assert ("<image" in svg) == (size == 33)
    assert size == 33 or svg.count("M") > svg.count("<path") + 3  # cells of one colour are one path
"""
    environment = os.environ | {"MPLBACKEND": "module://matplotlib_inline.backend_inline"}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr


def test_a_figure_can_be_changed_and_shown_again(ax):
    image = ax.imshow([[0.0, 1.0]])
    hidden, first = ax.imshow([[0.5, 0.5]], visible=False), viz.style.picture_of(ax.figure)
    image.set_data([[1.0, 0.0]])
    ax.plot([0, 7], [0, 0])
    again = viz.style.picture_of(ax.figure)
    assert [*ax.images] == [image, hidden] and not ax.collections and ax.get_xlim()[1] >= 7
    assert [image.get_visible(), hidden.get_visible()] == [True, False]
    colours = [re.findall(r"fill=\"(rgb\(68,1,84\)|rgb\(253,231,37\))", one) for one in (first, again)]
    assert colours[0] == colours[1][::-1] and len({*colours[0]}) == 2


# ---- bars ----


@pytest.mark.parametrize("horizontal", [False, True])
def test_bars_start_at_zero_and_carry_their_numbers(ax, horizontal):
    drawn = viz.bars(ax, ["a", "b"], [20.04, 25], ["blue", "orange"], horizontal=horizontal)
    sizes = [bar.get_width() if horizontal else bar.get_height() for bar in drawn]
    assert np.allclose(sizes, [20.04, 25])
    assert [text.get_text() for text in ax.texts] == ["20.0", "25.0"]
    assert (ax.get_xlim() if horizontal else ax.get_ylim())[0] == 0
    labels = ax.get_yticklabels() if horizontal else ax.get_xticklabels()
    assert [label.get_text() for label in labels] == ["a", "b"]
    assert matplotlib.colors.to_hex(drawn[1].get_facecolor()).upper() == viz.PALETTE["orange"]
    assert ax.yaxis_inverted() == horizontal  # the first bar is at the top


# ---- boxes and arrows ----


MONEY = ["$$", r"$\x$", "costs $5, not $10", "$", r"\$"]


@pytest.mark.parametrize("horizontal", [False, True])
def test_dollar_signs_are_no_formulas(horizontal):
    figure, axes = plt.subplots(1, 3, figsize=(12, 4))
    viz.heatmap(axes[0], np.eye(5), MONEY, MONEY)
    viz.bars(axes[1], MONEY, range(5), horizontal=horizontal)
    axes[2].set(xlim=(0, 12), ylim=(0, 1))
    viz.draw_tokens(axes[2], MONEY, 0.5)
    figure.canvas.draw()  # which is where a formula would be read
    labels = [*axes[0].get_xticklabels(), *axes[0].get_yticklabels()]
    labels += axes[1].get_yticklabels() if horizontal else axes[1].get_xticklabels()
    assert [label.get_text() for label in labels] == MONEY * 3 and not any(label.get_parse_math() for label in labels)
    assert [text._preprocess_math(text.get_text()) for text in axes[2].texts] == [(one, False) for one in MONEY]
    assert "mathjax_ignore" in viz.attention_viewer(np.eye(5), MONEY, MONEY).html
    assert "mathjax_ignore" not in viz.attention_viewer(np.eye(1), ["a"], ["b"]).html


def test_boxes_hold_their_text():
    figure, ax = viz.canvas(8, 2)
    places = [8 / 6, 4, 40 / 6]
    boxes = viz.draw_boxes(ax, ["h", "encoder", "$h_1$"], 1, places, width=1.3, colours=["blue", "#00FF00", "grey"])
    figure.canvas.draw()
    frames = [patch.get_window_extent() for patch in ax.patches]
    texts = [text.get_window_extent() for text in ax.texts]
    assert [text.get_text() for text in ax.texts] == ["h", "encoder", "$h_1$"]
    for frame, text in zip(frames, texts, strict=True):
        assert frame.x0 <= text.x0 and text.x1 <= frame.x1 and frame.y0 <= text.y0 and text.y1 <= frame.y1
    assert [box.x for box in boxes] == places


def test_a_long_text_becomes_smaller_and_then_is_refused():
    _, ax = viz.canvas(10, 2)
    viz.draw_boxes(ax, ["probability"], 1, [5], width=1.3)
    assert 8 <= ax.texts[0].get_fontsize() < 11
    with pytest.raises(ValueError, match="too long for a box"):
        viz.draw_boxes(ax, ["a very long name indeed"], 1, [5], width=1.0)


def test_tokens_are_as_wide_as_their_words_and_stay_apart():
    _, ax = viz.canvas(12, 1)
    row = viz.draw_tokens(ax, ["a", "dog", "translation"], y=0.5)
    assert row[0].width < row[1].width < row[2].width
    assert all(one.right[0] < two.left[0] for one, two in itertools.pairwise(row))


@pytest.mark.parametrize(
    ("end", "side"), [((9, 1), "right"), ((1, 1), "left"), ((5, 4), "top"), ((5, -3), "bottom")]
)  # fmt: skip
def test_an_arrow_leaves_from_the_side_that_faces_its_end(end, side):
    _, ax = viz.canvas(10, 2)
    box = viz.Box(5, 1, 1, 1)
    arrow = viz.draw_arrow(ax, box, end, label="state")
    assert arrow._posA_posB[0] == getattr(box, side) and arrow._posA_posB[1] == end
    assert ax.texts[0].get_text() == "state"
    back = viz.draw_arrow(ax, viz.Box(*end, 1, 1), box)
    assert back._posA_posB[1] == getattr(box, side)


# ---- the viewer ----


def data_of(viewer):
    return json.loads(re.search(r'<script type="application/json">(.*?)</script>', viewer.html, re.S)[1])


def sources_and_targets(viewer):
    """The words that get weights, and those to choose from."""
    return (
        re.findall(r"<b>(.*?)</b>", viewer.html),
        re.findall(r'<span dir="auto">(.*?)</span></label>', viewer.html),
    )


def test_the_viewer_holds_words_and_weights():
    viewer = viz.attention_viewer(torch.tensor(WEIGHTS, dtype=torch.bfloat16, requires_grad=True), ROWS, COLUMNS)
    assert sources_and_targets(viewer) == (COLUMNS, ROWS)
    assert np.allclose(np.array(data_of(viewer)[0]["table"]) / 100, WEIGHTS, atol=0.0071)
    assert viewer._repr_html_() == viewer.html
    assert "html" not in repr(viewer) and " at 0x" not in repr(viewer)


def test_heads_and_layers_have_menus():
    def menus(weights):
        html = viz.attention_viewer(weights, ["x"], ["a", "b"]).html
        return [
            (name, re.findall("<option(?: selected)?>(.*?)</option>", menu))
            for name, menu in re.findall(r"<label[^>]*>(\w+) <select disabled>(.*?)</select>", html)
        ]

    one = torch.tensor([[0.5, 0.5]])
    assert menus(one) == []
    assert menus(one.expand(3, 1, 2)) == [("Head", ["1", "2", "3"])]
    assert menus(one.expand(2, 3, 1, 2)) == [("Layer", ["1", "2"]), ("Head", ["1", "2", "3"])]


def test_the_viewer_opens_at_the_map_that_reaches_most():
    flat, pointing = np.full((2, 2), 0.5), np.eye(2)
    viewer = viz.attention_viewer([[flat, flat], [flat, pointing]], ["x", "y"], ["a", "b"])
    assert "It opens at layer 2, head 2" in viewer.html and viewer.html.count("<option selected>2</option>") == 2


@given(st.lists(st.text(max_size=12), min_size=1, max_size=5), st.text(max_size=12))
def test_no_word_can_become_markup(words, title):
    viewer = viz.attention_viewer(np.zeros((len(words), 1)), words, ["x"], title=title)
    plain = viz.attention_viewer(np.zeros((len(words), 1)), ["w"] * len(words), ["x"], title="t")
    for character in "<>":
        assert viewer.html.count(character) == plain.html.count(character)
    assert viewer.html.count('"') == plain.html.count('"')


@pytest.mark.slow
def test_the_viewer_needs_no_matplotlib_and_the_rest_names_it():
    code = """
import sys
class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("matplotlib", "cycler"):
            raise ImportError(name)
sys.meta_path.insert(0, Blocker())
from transformer_lib import viz
from transformer_lib.viz.plots import CURVES, HEAT
viz.attention_viewer([[1.0]], ["a"], ["b"])
for draw in (viz.use_style, viz.attention_colours, lambda: viz.canvas(3, 3)):
    try:
        draw()
    except ImportError as error:
        assert "matplotlib" in str(error), error
    else:
        raise SystemExit("no error")
assert "matplotlib" not in sys.modules
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


# ---- refusals ----

NAN = float("nan")
REFUSED = {
    "too few rows": (lambda ax: viz.heatmap(ax, WEIGHTS, ROWS[:2], COLUMNS), "rows=.*expected 3 words"),
    "transposed": (lambda ax: viz.heatmap(ax, np.transpose(WEIGHTS), ROWS, COLUMNS), "rows=.*expected 4 words"),
    "one string": (lambda ax: viz.heatmap(ax, [[1.0] * 3], ["x"], "abc"), "columns='abc'"),
    "NaN": (lambda ax: viz.heatmap(ax, [[NAN]], ["x"], ["y"]), "matrix holds nan"),
    "infinity": (lambda ax: viz.heatmap(ax, [[float("inf")]], ["x"], ["y"]), "matrix holds inf"),
    "negative": (lambda ax: viz.heatmap(ax, [[-0.1]], ["x"], ["y"]), "-0.1 to -0.1: expected numbers from 0 to 1"),
    "above one": (lambda ax: viz.heatmap(ax, [[3.0]], ["x"], ["y"]), "3 to 3: expected numbers from 0 to 1"),
    "a box without place": (lambda ax: viz.draw_boxes(ax, ["a"], 0, x=[]), "zip"),
    "a NaN map": (lambda ax: viz.attention_viewer([[NAN]], ["x"], ["y"]), "weights holds nan"),
    "viewer words": (lambda ax: viz.attention_viewer(WEIGHTS, COLUMNS, ROWS), "rows=.*expected 3 words"),
    "one dimension": (lambda ax: viz.attention_viewer([1.0], ["x"], ["y"]), r"shape \(1,\): expected \(T, S\)"),
    "batches": (lambda ax: viz.attention_viewer(np.ones((1,) * 5), ["x"], ["y"]), r"shape \(1, 1, 1, 1, 1\)"),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_right_is_refused(ax, name):
    draw, message = REFUSED[name]
    with pytest.raises(ValueError, match=message):
        draw(ax)


@pytest.mark.parametrize("name", ["query_viewer", "heads_viewer", "position_viewer", "rotary_viewer"])
def test_a_viewer_that_is_gone_says_what_replaces_it(name):
    with pytest.raises(AttributeError, match=r"viz\.touch"):
        getattr(viz, name)


# ---- the scripts of the pages ----

SCRIPTS = {path.name: path.read_text("utf-8") for path in Path(viz.__file__).parent.glob("*.js")}


@pytest.mark.parametrize("name", sorted(SCRIPTS))
def test_a_script_imports_only_what_another_one_exports(name):
    for imported, other in re.findall(r"import \{([^}]*)\} from \"\./([\w.]+)\"", SCRIPTS[name]):
        exported = " ".join(re.findall(r"^export (.*)$", SCRIPTS[other], re.M))
        for one in filter(None, (part.split(" as ")[0].strip() for part in imported.split(","))):
            assert re.search(rf"\b{one}\b", exported), f"{name}: {other} doesn't export {one}"
