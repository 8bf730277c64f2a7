"""The mask to paint: its lamps are what gradients say, and it works by mouse, finger and keyboard, and in words."""

from __future__ import annotations

import re
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from browser import NARROW, write_pages
from torch import Tensor

from experiments.pages import ask_node
from transformer_lib.models.multi_head import MultiHeadAttention
from transformer_lib.viz import mask_viewer

T, S = torch.arange(8)[:, None], torch.arange(8)
CAUSAL = S <= T
WRONG = CAUSAL | ((T == 1) & (S == 6))
PRESETS = {
    "causal": CAUSAL,
    "no mask": CAUSAL | True,
    "one wrong cell": WRONG,
    "prefix": CAUSAL | (S < 3),
    "window": CAUSAL & (T - S < 3),
    "blocks": CAUSAL & ((T < 4) == (S < 4)),
}


def depends(mask: Tensor, layers: int) -> list[list[bool]]:
    """Which inputs each output has a gradient for, after layers of attention with residual connections."""
    torch.manual_seed(0)
    x = torch.randn(1, 8, 16, dtype=torch.float64, requires_grad=True)
    y = x
    for _ in range(layers):
        y = y + MultiHeadAttention(16, 2).double()(y, mask=mask[None, None])
    rows = [torch.autograd.grad(y[0, t] @ torch.randn(16).double(), x, retain_graph=True)[0] for t in range(8)]
    return [(row[0] != 0).any(-1).tolist() for row in rows]


def masks() -> list[Tensor]:
    """The presets, and random ones, some with rows that see nothing."""
    draw = torch.Generator().manual_seed(0)
    shares = (0.05, 0.1, 0.15, 0.2, 0.3, 0.5)
    return [*PRESETS.values(), *(torch.rand(8, 8, generator=draw) < share for share in shares for _ in range(5))]


@pytest.mark.parametrize("layers", [1, 2, 3])
def test_what_is_known_is_what_has_a_gradient(layers: int) -> None:
    found = ask_node(masks=[mask.tolist() for mask in masks()], layers=layers)
    assert set(found["presets"]) == set(PRESETS)
    for name, mask in found["presets"].items():
        assert mask == PRESETS[name].tolist()
    lit = 0
    for mask, known, lamps, paths in zip(masks(), found["known"], found["lamps"], found["paths"], strict=True):
        assert known == depends(mask, layers)
        assert lamps == [known[t][t + 1] for t in range(7)] + [False]
        for t in range(8):
            if lamps[t]:  # each step of the way is allowed, and it ends at the answer
                steps, lit = paths[t], lit + 1
                assert len(steps) == layers + 1 and (steps[0], steps[-1]) == (t, t + 1)
                assert all(a == b or mask[a, b] for a, b in pairwise(steps))
    assert lit >= 50


def test_it_is_small_always_the_same_and_loads_nothing() -> None:
    figure = mask_viewer().html
    assert figure == mask_viewer().html and len(figure) < 25_000 and "http" not in figure
    pressed = re.findall(r'class="tl-cell[^"]*" aria-pressed="(\w+)"', figure)
    assert [one == "true" for one in pressed] == CAUSAL.flatten().tolist()
    assert "0 through one layer, 0 through two, 0 through three" in mask_viewer().summary


# ---- in a browser ----


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_pages(tmp_path_factory.mktemp("masks"), mask_viewer().html)


def lit(page: Any) -> list[list[bool]]:
    """The lamps, a list for each number of layers."""
    on = page.locator(".tl-lamp").evaluate_all("lamps => lamps.map(one => !one.disabled)")
    return [on[n::3] for n in range(3)]


def gradients(mask: Tensor) -> list[list[bool]]:
    known = [depends(mask, layers) for layers in (1, 2, 3)]
    return [[*(one[t][t + 1] for t in range(7)), False] for one in known]


@pytest.mark.slow
def test_the_lamps_are_those_of_pytorch(pages: Path, visit: Any) -> None:
    page = visit((pages / "light.html").as_uri())
    for name, mask in PRESETS.items():
        page.click(f".tl-preset >> text='{name}'")
        assert lit(page) == gradients(mask), name
        counts = [sum(row) for row in gradients(mask)]
        said = "{} through one layer, {} through two, {} through three".format(*counts)
        assert said in page.inner_text(".tl-says") and page.locator(".tl-preset[aria-pressed=true]").count() == 1
    page.click(".tl-preset >> text='one wrong cell'")
    page.click(".tl-lamp[aria-label^='to sees'] >> nth=1")
    told = "To predict \N{LEFT DOUBLE QUOTATION MARK}walk\N{RIGHT DOUBLE QUOTATION MARK}"
    assert page.inner_text(".tl-says").startswith(told) and "layer 2 at" in page.inner_text(".tl-says")
    assert page.locator(".tl-way").count() == 2
    page.click(".tl-cell >> nth=0")  # the first word may look at itself no longer
    assert "Fully masked" in page.inner_text(".tl-says") and page.locator(".tl-way").count() == 0
    mask = WRONG.clone()
    mask[0, 0] = False
    assert lit(page) == gradients(mask) and page.locator(".tl-preset[aria-pressed=true]").count() == 0


@pytest.mark.slow
def test_it_is_painted_by_mouse_and_by_keyboard(pages: Path, visit: Any) -> None:
    page = visit((pages / "light.html").as_uri())
    boxes = [page.locator(".tl-cell").nth(i).bounding_box() for i in (4, 7)]
    page.mouse.move(*middle(boxes[0]))
    page.mouse.down()
    page.mouse.move(*middle(boxes[1]), steps=12)
    page.mouse.up()
    mask = CAUSAL | ((T == 0) & (S >= 4))
    assert painted(page) == mask.tolist() and lit(page) == gradients(mask)
    page.focus(".tl-cell[tabindex='0']")
    for key in ("ArrowUp", "ArrowDown", "ArrowRight", "ArrowRight", "Space"):
        page.keyboard.press(key)
    mask = mask | ((T == 1) & (S == 2))
    assert painted(page) == mask.tolist() and lit(page) == gradients(mask)
    page.keyboard.press("Enter")
    assert painted(page)[1][2] is False
    assert page.locator(".tl-cell[tabindex='0']").count() == 1
    assert page.get_attribute(".tl-says", "aria-live") == "polite"


@pytest.mark.slow
def test_a_press_that_ends_elsewhere_keeps_no_key_from_painting(pages: Path, visit: Any) -> None:
    page = visit((pages / "light.html").as_uri())
    page.mouse.move(*middle(page.locator(".tl-cell").nth(4).bounding_box()))
    page.mouse.down()
    assert painted(page)[0][4] is True
    page.mouse.move(1, 1)
    page.mouse.up()
    page.keyboard.press("Space")
    assert painted(page) == CAUSAL.tolist()


def middle(box: dict[str, float]) -> tuple[float, float]:
    return box["x"] + box["width"] / 2, box["y"] + box["height"] / 2


def painted(page: Any) -> list[list[bool]]:
    cells = page.locator(".tl-cell").evaluate_all("cells => cells.map(one => one.ariaPressed === 'true')")
    return [cells[8 * t : 8 * t + 8] for t in range(8)]


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["light", "dark"])
def test_it_fits_a_phone_and_a_finger_paints(pages: Path, visit: Any, mode: str) -> None:
    page = visit((pages / f"{mode}.html").as_uri(), viewport=NARROW, has_touch=True)
    assert page.evaluate("() => document.documentElement.scrollWidth") <= 390
    ground = page.evaluate("() => getComputedStyle(document.querySelector('.tl-paint')).backgroundColor")
    assert (ground == "rgb(20, 24, 30)") == (mode == "dark")
    page.locator(".tl-cell").nth(1).tap()
    assert painted(page)[0][1] is True and lit(page)[0][0] is True
    small = "all => all.filter((one) => one.innerText && parseFloat(getComputedStyle(one).fontSize) < 12).length"
    assert page.locator(".tl-paint *").evaluate_all(small) == 0
    names = page.locator(".tl-paint button").evaluate_all("all => all.map(one => one.ariaLabel || one.innerText)")
    assert all(names) and len({*names}) == len(names)  # what a screen reader says tells all of them apart


@pytest.mark.slow
def test_without_a_script_a_causal_mask_stands_there(pages: Path, visit: Any) -> None:
    page = visit((pages / "light.html").as_uri(), java_script_enabled=False)
    assert page.locator(".tl-cell[aria-pressed=true]").count() == 36 and page.locator(".tl-cell:enabled").count() == 0
    assert not page.locator(".tl-preset >> nth=0").is_visible()
