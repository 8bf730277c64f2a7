"""The viewers of the book: what they hold is right, and they work by keyboard, in words, in the dark and on a phone."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import torch
from browser import NARROW, write_pages

from experiments.pages import NODE
from transformer_lib import Translator, viz
from transformer_lib.viz.viewer import Control, Part, make_viewer

ROOT = Path(__file__).resolve().parents[1]
SCRIPTS = sorted((ROOT / "transformer_lib" / "viz").glob("*.js"))
TEXT = "The dog does not cross the street because it is too wide."
WORDS = ["dog", "tired", "it"]


def parts_of(viewer: viz.Viewer) -> list[dict[str, Any]]:
    return json.loads(re.search(r'<script type="application/json">(.*?)</script>', viewer.html, re.S)[1])


def made() -> dict[str, viz.Viewer]:
    """One of each kind."""
    translator = Translator.from_pretrained("captions-en-de", device="cpu")
    draw = torch.Generator().manual_seed(0)
    maps = torch.rand(2, 3, 3, 3, generator=draw).softmax(-1)
    return {
        "attention": viz.attention_viewer(maps, WORDS, WORDS),
        "greedy": viz.decoding_viewer(translator, "the dog sleeps", choices=3),
        "beam": viz.beam_viewer(translator, TEXT, beam_size=(1, 3), length_penalty=(0.6, 1.4)),
        "maps": viz.translation_viewer(translator, [TEXT, "the dog sleeps"]),
    }


@pytest.fixture(scope="module")
def viewers() -> dict[str, viz.Viewer]:
    return made()


# ---- what they hold ----


def test_a_scene_shows_its_first_setting_and_keeps_all() -> None:
    controls = [Control("Word", ["a", "b"], start=1), Control("Step", range(1, 4), "slider", 2, begin=0)]
    scene = '<p data-part="0"></p><!--1--><i data-part="0"></i><b data-part="1"></b>'
    table = [[["one", "A", 1]] * 3, [["two", "B", 2], ["three", "C", 3]]]  # b has only two steps
    parts = [Part((0, 1), table), Part((0,), [["", "x"], ["", "<y>"]])]
    html = make_viewer("t", controls, scene, parts, note="n & m").html
    assert '<p data-part="0">C</p>' in html and '<i data-part="0" style="--tl-value:3"></i>' in html
    assert '<b data-part="1">&lt;y&gt;</b>' in html and '<p class="tl-says">three</p>' in html and "n &amp; m" in html
    assert 'max="2" value="2"' in html and 'data-begin="0"' in html and "<!--" not in html
    assert "<y>" not in html and parts_of(viz.Viewer("", html))[0]["table"][1][0] == ["two", "B", 2]


def test_every_beam_is_that_of_the_search(viewers: dict[str, viz.Viewer]) -> None:
    translator = Translator.from_pretrained("captions-en-de", device="cpu")
    (part,) = parts_of(viewers["beam"])
    assert part["uses"] == [0, 1, 2]
    for size, row in zip((1, 3), part["table"], strict=True):
        for penalty, steps in zip((0.6, 1.4), row, strict=True):
            (best,) = translator.search([TEXT], beam_size=size, length_penalty=penalty, max_length=40)[0]
            written = translator.text.prepare(best.text, translator.target_tokenizer)
            assert steps[-1][0].endswith(f"{written} <eos>, score {best.score:.2f}.")
            assert all(step.count("goes on") <= size for step in steps)


def test_all_maps_are_there_and_it_opens_at_one_worth_seeing(viewers: dict[str, viz.Viewer]) -> None:
    translator = Translator.from_pretrained("captions-en-de", device="cpu")
    words, weights = parts_of(viewers["maps"])
    found = translator.attention(TEXT)
    for kind, maps in enumerate((found.cross, found.encoder, found.decoder)):
        assert torch.allclose(torch.tensor(weights["table"][0][kind]) / 100, maps, atol=0.0051)
    assert len({len(row) for rows in words["table"] for row in rows}) == 1  # a place for every word
    layer, head = divmod(int(found.cross.amax(2).sum(2).argmax()), found.cross.shape[1])
    assert f"layer {layer + 1}, head {head + 1} of" in viewers["maps"].html
    chosen = re.findall(r'checked><span dir="auto">(\d)</span>', viewers["maps"].html)
    assert chosen == [str(layer + 1), str(head + 1)]


def test_they_are_small_always_the_same_and_load_nothing(viewers: dict[str, viz.Viewer]) -> None:
    for name, again in made().items():
        html = viewers[name].html
        assert html == again.html and len(html) < 60_000
        assert not re.search(r"https?:|src=|@import|url\(| id=| name=", html)


def test_one_text_is_not_taken_for_a_list_of_letters() -> None:
    translator = Translator.from_pretrained("captions-en-de", device="cpu")
    with pytest.raises(TypeError, match="expected a list of strings"):
        viz.translation_viewer(translator, "the dog sleeps")


# ---- the scripts ----


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.name)
def test_the_style_of_the_scripts(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    lines = text.splitlines()
    assert max(map(len, lines)) <= 100 and not any(line.rstrip() != line or "\t" in line for line in lines)
    assert text.endswith("\n") and not text.endswith("\n\n")
    assert '"use strict";' in text or re.search(
        r"^(?:export|import) |await import\(", text, re.M
    )  # a module is strict by itself
    for word in (r"\bvar\b", r"console\.", "innerHTML", r"\beval\b", "https?:", r"[^=!]==[^=]", "!=[^=]"):
        assert not re.search(word, text), word
    assert subprocess.run([NODE, "--check", str(path)], capture_output=True).returncode == 0


# ---- in a browser ----


@pytest.fixture(scope="module")
def pages(viewers: dict[str, viz.Viewer], tmp_path_factory: pytest.TempPathFactory) -> Path:
    body = "".join(f'<section id="{name}">{viewer.html}</section>' for name, viewer in viewers.items())
    return write_pages(tmp_path_factory.mktemp("viewers"), body)


@pytest.mark.slow
def test_everything_works_by_keyboard_and_is_said(pages: Path, visit: Any) -> None:
    page = visit((pages / "light.html").as_uri())

    def says(name: str) -> str:
        assert page.get_attribute(f"#{name} .tl-says", "aria-live") == "polite"
        return page.inner_text(f"#{name} .tl-says").replace("\N{NO-BREAK SPACE}", " ")

    def press(selector: str, *keys: str) -> None:
        page.focus(selector)
        for key in keys:
            page.keyboard.press(key)

    assert says("attention").startswith("dog: ")
    press("#attention .tl-words input:checked", "ArrowLeft")
    assert says("attention").startswith("it: ")
    assert page.input_value("#greedy input") == "0"  # the walk begins at its first step
    press("#greedy input", "End")
    assert says("greedy").startswith("Most likely next: <eos>")
    steps = page.get_attribute("#greedy input", "aria-valuetext")
    press("#greedy button:first-of-type", "Enter")
    assert page.get_attribute("#greedy input", "aria-valuetext") != steps
    page.select_option("#maps select >> nth=0", index=1)
    assert says("maps").startswith("der: the ")
    assert page.locator("#maps .tl-words label:visible").count() == 4  # a shorter sentence
    page.select_option("#maps select >> nth=1", index=1)
    assert page.inner_text("#maps .tl-words input:checked + span") == "the"


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["light", "dark"])
def test_they_fit_a_phone_and_can_be_read(pages: Path, visit: Any, mode: str) -> None:
    page = visit((pages / f"{mode}.html").as_uri(), viewport=NARROW, has_touch=True)
    assert page.evaluate("() => document.documentElement.scrollWidth") <= 390
    light = page.evaluate("() => getComputedStyle(document.querySelector('.tl-viewer')).backgroundColor")
    assert (light == "rgb(20, 24, 30)") == (mode == "dark")
    small = page.evaluate(
        "() => [...document.querySelectorAll('.tl-viewer *')].filter((one) => one.offsetParent && one.innerText"
        " && parseFloat(getComputedStyle(one).fontSize) < 12).length"
    )
    assert small == 0
    page.tap("#attention .tl-words label:nth-of-type(2)")
    assert page.inner_text("#attention .tl-says").startswith("tired: ")


@pytest.mark.slow
def test_without_scripts_a_still_picture_remains(pages: Path, visit: Any) -> None:
    page = visit((pages / "light.html").as_uri(), java_script_enabled=False)
    assert "The best of" in page.inner_text("#beam .tl-says")  # the last step of the search
    assert not page.is_visible("#beam .tl-slider") and page.is_disabled("#maps select >> nth=0")


@pytest.mark.slow
def test_two_on_a_page_do_not_disturb_each_other(visit: Any, tmp_path: Path) -> None:
    one = viz.attention_viewer(torch.eye(3), WORDS, WORDS).html
    (tmp_path / "x.html").write_text(f'<div id="a">{one}</div><div id="b">{one}</div>', encoding="utf-8")
    page = visit((tmp_path / "x.html").as_uri())
    page.check("#a input >> nth=2", force=True)
    assert page.inner_text("#a .tl-says").startswith("it:") and page.inner_text("#b .tl-says").startswith("dog:")
