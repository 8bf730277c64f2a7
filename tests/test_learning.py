"""The layer that learns in the page: its losses are PyTorch's, and the figure does what it says."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from browser import NARROW, serve
from torch import Tensor, nn
from torch.nn import functional as F

from experiments.pages import ask_node
from experiments.pages.learning import EXAMPLE
from transformer_lib import results
from transformer_lib.viz import learning_viewer

RECORD = results.load("page-learning")
TASKS = {
    "reverse": lambda tokens: tokens.flip(1),
    "shift": lambda tokens: tokens.roll(-1, 1),
    "copy": lambda tokens: tokens,
    "sort": lambda tokens: tokens.sort(1).values,
    "find": lambda tokens: tokens.max(1, keepdim=True).values.expand(-1, 8),
}


def numbers(seed: int) -> Iterator[float]:
    while True:
        seed = (1664525 * seed + 1013904223) % 2**32
        yield seed / 2**32


def train(
    steps: int, task: str = "reverse", positions: bool = True, root: bool = True, heads: int = 1, rate: float = 0.01
) -> tuple[list[float], Tensor, Tensor]:
    """The losses, and the weights and answers for the example."""
    draw = numbers(1)

    def normal(rows: int, columns: int, scale: float) -> nn.Parameter:
        pairs = [(next(draw), next(draw)) for _ in range(rows * columns)]
        values = [math.sqrt(-2 * math.log(u + 1e-12)) * math.cos(2 * math.pi * v) for u, v in pairs]
        return nn.Parameter(scale * torch.tensor(values).view(rows, columns))

    letters, places = normal(8, 16, 1), normal(8, 16, 1)
    query, key, value, output = normal(16, 16, 0.25), normal(16, 16, 0.25), normal(16, 16, 0.25), normal(16, 8, 0.25)
    adam = torch.optim.Adam([letters, places, query, key, value, output], lr=rate, betas=(0.9, 0.98), eps=1e-8)

    def forward(tokens: Tensor) -> tuple[Tensor, Tensor]:
        x = letters[tokens] + (places if positions else 0 * places)
        q, k, v = ((x @ one).unflatten(-1, (heads, -1)).transpose(1, 2) for one in (query, key, value))
        weights = (q @ k.mT * ((16 / heads) ** -0.5 if root else 1)).softmax(-1)  # (B, H, T, T)
        return (weights @ v).transpose(1, 2).flatten(2) @ output, weights

    losses = []
    for _ in range(steps):
        tokens = torch.tensor([[int(8 * next(draw)) for _ in range(8)] for _ in range(32)])
        loss = F.cross_entropy(forward(tokens)[0].flatten(0, 1), TASKS[task](tokens).flatten())
        adam.zero_grad()
        loss.backward()
        adam.step()
        losses.append(loss.item())
    with torch.no_grad():
        logits, weights = forward(torch.tensor([EXAMPLE]))
    return losses, weights[0], logits[0].argmax(-1)


SETTINGS: list[dict[str, Any]] = [
    *({"task": task} for task in TASKS),
    {"positions": False, "task": "find"},
    {"root": False},
    {"heads": 2},
    {"heads": 2, "task": "sort", "rate": 0.03},
]


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_it_learns_as_in_pytorch(settings: dict[str, Any]) -> None:
    (found,) = ask_node(learn=[settings], steps=50, example=EXAMPLE)
    losses, weights, answers = train(50, **settings)
    assert found["losses"] == pytest.approx(losses, abs=2e-3)
    assert found["losses"][:10] == pytest.approx(losses[:10], abs=1e-5)
    assert found["losses"][-1] < found["losses"][0] - 0.5
    assert found["weights"] == pytest.approx(weights.flatten().tolist(), abs=0.01)
    assert found["answers"] == answers.tolist()


def test_the_record_is_what_the_script_does() -> None:
    (found,) = ask_node(learn=[{}], steps=50, example=EXAMPLE)
    assert found["losses"] == pytest.approx(RECORD["losses"], abs=1e-4)
    assert found["weights"] == pytest.approx(RECORD["weights"], abs=1e-3) and found["answers"] == RECORD["answers"]


def test_without_positions_nothing_can_be_reversed() -> None:
    with_them, without = ask_node(learn=[{}, {"positions": False}], steps=200)
    assert with_them["losses"][-1] < 0.01 and min(without["losses"]) > 1


def test_the_figure_is_small_and_always_the_same() -> None:
    figure = learning_viewer().html
    assert figure == learning_viewer().html and len(figure) < 25_000 and "http" not in figure
    assert [*map(float, re.findall(r"--tl-value:([\d.]+)", figure))] == pytest.approx(RECORD["weights"], abs=0.006)


PAGE = """<!doctype html><html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>t</title><link rel="icon" href="data:,">{rule}<body>{figure}</body></html>"""
DONE = "() => /(won|lost) your bet/.test(document.querySelector('.tl-told').textContent)"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("learning")
    policy = "script-src 'unsafe-inline'; worker-src 'none'"
    strict = f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
    for name, rule in (("index", ""), ("strict", strict)):
        text = PAGE.format(rule=rule, figure=learning_viewer().html)
        (folder / f"{name}.html").write_text(text, encoding="utf-8")
    return folder


@pytest.mark.slow
@pytest.mark.parametrize(("page", "motion"), [("index", "no-preference"), ("strict", "reduce")])
def test_a_reader_bets_and_watches(site: Path, browser: Any, page: str, motion: Any) -> None:
    with serve(site) as root:
        tab = browser.new_context(viewport=NARROW, reduced_motion=motion).new_page()
        problems: list[str] = []
        tab.on("pageerror", lambda error: problems.append(str(error)))
        tab.goto(f"{root}{page}.html")
        assert tab.evaluate("() => document.documentElement.scrollWidth") <= 390
        tab.wait_for_function("() => document.querySelector('.tl-says').textContent.includes('untrained')")
        tab.evaluate("""() => { window.seen = new Map(); new MutationObserver(() => {
          const said = document.querySelector(".tl-says").textContent;
          const [, step, loss] = said.match(/step (\\d+): loss ([\\d.]+)/) ?? [];
          if (step) seen.set(Number(step), loss);
        }).observe(document.querySelector(".tl-says"), { childList: true }); }""")
        tab.click(".tl-bet >> nth=0")
        tab.wait_for_function(DONE)
        assert "You won your bet" in tab.inner_text(".tl-told") and tab.locator(".tl-right").count() == 8
        seen = dict(json.loads(tab.evaluate("JSON.stringify([...seen])")))
        assert float(seen[50]) == pytest.approx(RECORD["losses"][49], abs=6e-4)
        assert motion == "reduce" or len(seen) > 50

        tab.check("[data-set=positions] [value=no]")  # another layer, and another bet
        assert tab.locator(".tl-go").is_disabled()
        tab.click(".tl-bet >> nth=1")
        if motion == "reduce":
            tab.wait_for_function(DONE, timeout=60_000)
            assert "You won your bet" in tab.inner_text(".tl-told")
        tab.check("[data-set=heads] [value='2']")
        tab.wait_for_function("() => document.querySelectorAll('.tl-map').length === 2")
        assert "untrained" in tab.inner_text(".tl-says") and problems == []
        tab.context.close()


@pytest.mark.slow
def test_without_a_script_the_learned_map_stands_there(site: Path, browser: Any) -> None:
    with serve(site) as root:
        tab = browser.new_context(java_script_enabled=False).new_page()
        tab.goto(f"{root}index.html")
        assert tab.locator(".tl-map i").count() == 64 and not tab.locator(".tl-bet >> nth=0").is_visible()
        tab.context.close()


@pytest.mark.slow
def test_two_on_a_page_do_not_disturb_each_other(site: Path, root: str, visit: Any) -> None:
    (site / "two.html").write_text(PAGE.format(rule="", figure=2 * learning_viewer().html), encoding="utf-8")
    page = visit(f"{root}two.html")
    wanted = page.locator(".tl-wanted").all_inner_texts()
    page.check("[data-set=task] [value=copy] >> nth=0")
    found = page.locator(".tl-wanted").all_inner_texts()
    assert found[0] != wanted[0] == wanted[1] == found[1] and page.locator(":checked[value=reverse]").count() == 1
