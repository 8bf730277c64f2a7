"""The calculator of costs: its script agrees with the plain functions of the page, and it takes what is typed."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from browser import NARROW, launch

from experiments.pages import ask_node
from transformer_lib.plain import costs as plain
from transformer_lib.viz import cost_calculator

NOTEBOOK = Path(__file__).parents[1] / "book" / "scale" / "what_training_costs.ipynb"


def tables() -> dict[str, dict[str, tuple[float, ...]]]:
    """MODELS and DEVICES, as the page writes them."""
    cells = json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"]
    (source,) = (text for cell in cells if (text := "".join(cell["source"])).startswith("MODELS = {"))
    found: dict[str, Any] = {}
    exec(source, found)
    return {name: found[name] for name in ("MODELS", "DEVICES")}


def expected(model: Any, device: Any, given: dict[str, float]) -> dict[str, Any]:
    """What the plain functions make of the same numbers."""
    parameters, used, layers, kept, tokens = (x * y for x, y in zip(model, (1e9, 1e9, 1, 1, 1e9), strict=True))
    peak, bandwidth, memory = (x * y * given["devices"] for x, y in zip(device, (1e12, 1e12, 1e9), strict=True))
    length, rows, share, width = (given[name] for name in ("length", "rows", "utilisation", "bytes"))
    operations, cache = plain.training_operations(used, tokens), plain.cache_bytes(layers, kept, length, rows)
    hours = plain.training_seconds(operations, peak, share) / 3600
    found = {"operations": operations, "hours": hours, "deviceHours": hours * given["devices"], "memory": memory}
    found |= {"training": plain.training_bytes(parameters), "weights": parameters * width, "cache": cache}
    found["reading"] = plain.reading_seconds(used, length * rows, peak, share)
    found["step"] = plain.step_seconds(parameters, used, cache, peak, bandwidth, rows, width)
    return found


def test_the_script_computes_what_the_page_computes() -> None:
    models, devices = (list(table.values()) for table in tables().values())
    names = ("devices", "utilisation", "length", "rows", "bytes")
    settings = [
        dict(zip(names, one, strict=True)) for one in product((1, 8), (0.35,), (100, 1e5), (1, 64, 4096), (0.5, 2))
    ]
    cases = list(product(models, devices, settings))
    answers = ask_node(costs={"cases": cases, "numbers": []})["found"]
    limits = set()
    for case, answer in zip(cases, answers, strict=True):
        limits.add(limit := answer.pop("limit"))
        assert answer == pytest.approx(expected(*case)), case
        model, device, given = case
        computing = 2e9 * model[1] * given["rows"] / (device[0] * 1e12 * given["devices"])
        assert (limit == "arithmetic") == (answer["step"] == pytest.approx(computing)), case
    assert limits == {"memory", "arithmetic"}


def test_numbers_are_short() -> None:
    numbers = [0.0042, 1.5, 42, 999.6, 12_345, 3.2e9, 7.23e23]
    short, size, time, power = zip(*ask_node(costs={"cases": [], "numbers": numbers})["words"], strict=True)
    assert short[1:6] == ("1.5", "42", "1 thousand", "12.3 thousand", "3.2 billion")
    assert size[5] == "3.2 GB" and power[6] == "7.2 · 10²³" and power[0] == "4.2 · 10⁻³"
    assert time[:5] == ("4.2 milliseconds", "1.5 seconds", "42 seconds", "16.7 minutes", "3.43 hours")


@pytest.fixture
def page(tmp_path: Path) -> Iterator[Any]:
    path = tmp_path / "calculator.html"
    viewer = cost_calculator(*tables().values(), model="Llama 3.1 8B", device="H100")
    path.write_text(f"<!doctype html><meta charset='utf-8'>{viewer.html}", encoding="utf-8")
    with launch() as browser:
        page, problems = browser.new_page(viewport=NARROW), []
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.goto(path.as_uri())
        yield page
        assert problems == []


@pytest.mark.slow
def test_a_reader_chooses_and_types(page: Any) -> None:
    def out(name: str) -> str:
        return page.inner_text(f"[data-out={name}]")

    assert page.inner_text(".tl-says") == "80 GB of memory: training doesn't fit, running fits."
    assert out("training") == "128 GB" and out("operations") == "7.2 · 10²³" and "66.2 years" in out("hours")
    page.select_option("[name=model]", "DeepSeek-V3 (2024)")
    assert page.input_value("[name=model-1]") == "37" and out("training") == "10.7 TB"
    page.select_option("[name=bytes]", "0.5")
    page.fill("[name=devices]", "8")
    assert page.input_value("[name=device]") == "H100" and page.input_value("[name=model]") != ""
    assert "640 GB" in page.inner_text(".tl-says") and "running fits" in page.inner_text(".tl-says")
    page.fill("[name=model-0]", "-1")
    assert "greater than zero" in page.inner_text(".tl-says")
    assert page.get_attribute("[name=model-0]", "aria-invalid") == "true" and page.input_value("[name=model]") == ""
    assert page.evaluate("document.documentElement.scrollWidth") <= NARROW["width"]


def test_it_says_where_no_script_runs_and_names_every_field() -> None:
    viewer = cost_calculator(*tables().values())
    assert "needs a script" in viewer.html and "6 models and 4 devices" in viewer.summary
    for tag in re.findall(r"<(?:input|select)[^>]*>", viewer.html):
        assert " disabled" in tag and re.search(r'name="[\w-]+"', tag)
