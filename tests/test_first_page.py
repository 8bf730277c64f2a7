"""The first page: its opening shows what the translator does, and its styles lose nothing that a page uses."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
from browser import NARROW

from experiments.pages import breaking as page_breaking
from transformer_lib import Translator, results

ROOT = Path(__file__).resolve().parents[1]
RECORD, MEASURED = results.load("page-breaking"), results.load("how_many_words")
BLEU = {row["arm"].removeprefix("Bahdanau, "): row["bleu"] for row in MEASURED["rows"]}
PAGE = """<!doctype html><html lang="en" data-theme="{mode}"><meta charset="utf-8"><title>t</title>
<style>* {{ box-sizing: border-box }}</style><meta name="viewport" content="width=device-width">
<link rel="icon" href="data:,"><link rel="stylesheet" href="book.css"><body class="bd-article">{widget}</body></html>"""


@pytest.mark.parametrize("name", ["all words", "1 word", "all equally"])
def test_the_record_is_what_the_translator_does(name: str) -> None:
    translator = Translator.from_pretrained(RECORD["model"], device="cpu")
    found = page_breaking.state(translator, page_breaking.WORDS[name])
    assert found["target"] == RECORD["states"][name]["target"]
    for row, recorded in zip(found["weights"], RECORD["states"][name]["weights"], strict=True):
        assert dict(map(tuple, row)) == pytest.approx(dict(map(tuple, recorded)), abs=1)
    looked = max(len(row) for row in found["weights"])
    assert (looked <= 2) == (name == "1 word")  # a word and the full stop behind it are two steps


def test_words_that_share_pieces_share_weights() -> None:
    import torch

    words, rows = page_breaking.by_word(["▁a", "b", "▁c", "<eos>"], torch.eye(4))
    assert words == ["ab", "c"] and rows.tolist() == [[1, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1]]


def test_words_are_kept_if_both_have_them_in_the_same_order() -> None:
    assert page_breaking.kept(["a", "b", "c", "d"], ["a", "x", "c", "d"]) == [0, 2, 3]


@pytest.fixture(scope="module")
def extension() -> Any:
    pytest.importorskip("sphinx")
    sys.path.insert(0, str(ROOT / "book" / "_ext"))
    import book_translator

    return book_translator


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory, extension: Any) -> Path:
    folder = tmp_path_factory.mktemp("site")
    widget = extension.breaking(RECORD, BLEU, MEASURED["budget"], "files")
    for mode in ("light", "dark"):
        (folder / f"{mode}.html").write_text(PAGE.format(mode=mode, widget=widget), encoding="utf-8")
        game = extension.guess(results.load("page-circuit"), "files")
        (folder / f"guess-{mode}.html").write_text(PAGE.format(mode=mode, widget=game), encoding="utf-8")
    extension.copy_files(folder / "files", folder / "no models", {})
    shutil.copy(ROOT / "book" / "_static" / "book.css", folder)
    shutil.copytree(ROOT / "book" / "_static" / "fonts", folder / "fonts")
    return folder


@pytest.mark.slow
def test_the_slider_breaks_the_sentence(root: str, visit: Any) -> None:
    page = visit(f"{root}light.html")
    slider, target = page.locator("#br-words"), page.locator(".br-target")
    slider.focus()
    seen, height = [], page.evaluate("() => document.documentElement.scrollHeight")
    for name, state in RECORD["states"].items():
        words = state["target"][:25]
        assert [word for word in target.inner_text().split() if word != "…"] == words
        assert page.inner_text(".br-score strong") == f"{BLEU[name]:.1f}"
        assert slider.get_attribute("aria-valuetext") == name == page.inner_text(".br-ticks .br-on")
        assert page.evaluate("() => document.documentElement.scrollHeight") == height  # nothing jumps
        seen.append(page.locator(".br-changed").count())
        page.keyboard.press("ArrowRight")
    assert seen[0] == 0 and seen[-1] > 5
    slider.fill("0")
    target.locator("button").nth(5).focus()  # shirt
    assert page.inner_text(".br-says").startswith("shirt ← Hemd")
    assert page.inner_text(".br-now") == "shirt" and page.locator(".br-stage path").count() > 0
    assert "Hemd" in page.locator(".br-lit").all_inner_texts()
    page.keyboard.press("ArrowRight")
    assert page.inner_text(".br-now") == "and"


@pytest.mark.slow
def test_it_translates_itself_once_and_stands_there_without_a_script(root: str, visit: Any) -> None:
    whole = RECORD["states"]["all words"]["target"]
    page = visit(f"{root}dark.html", viewport=NARROW, reduced_motion="no-preference")
    assert page.evaluate("() => document.documentElement.scrollWidth") <= 390
    page.wait_for_selector(".br-later", state="attached")
    page.wait_for_function("() => !document.querySelector('.br-later')", timeout=10_000)
    assert page.inner_text(".br-target").split() == whole
    page.wait_for_selector(".br-stage path", state="attached")  # one word shows at the end where it looked
    page = visit(f"{root}light.html", java_script_enabled=False)
    assert page.inner_text(".br-target").split() == whole
    assert not page.locator("#br-words").is_visible()


# ---- the theme's styles ----

STYLE = """
@charset "utf-8"; @font-face{font-family:x;src:url("a.woff,b")}
:root{--a:1} p,h1.gone{color:red} .kept.gone{a:b} .kept>.other[title="x,.gone"]:hover{a:b} #here a{a:b} #there a{a:b}
.kept:not(.gone, .lost){a:b} p:is(.gone,.kept){a:b} .col\\:wide{a:b} .by-script{a:b}
@media (min-width:1px){.gone{a:b} @supports (a:b){.kept{c:d}}} @media print{.gone{a:b}} @keyframes gone{50.5%{a:b}}
"""


def test_rules_that_nothing_can_use_go_and_no_others(extension: Any) -> None:
    import book_styles

    names = book_styles.used(
        ["<p class='kept other'><b id=here></b>", '<i class="col:wide">'], ["x.classList.add('by-script')"]
    )
    assert {"kept", "other", "here", "col:wide", "by-script"} <= names and "gone" not in names
    left = book_styles.trim(STYLE, names)
    squeezed = left.replace(" ", "")
    for kept in """:root{ p{color:red} .other[title="x,.gone"]:hover #herea{ .kept:not(.gone,.lost){ p:is(.gone,.kept){
        .col\\:wide{ .by-script{ @supports(a:b){.kept{c:d}} @keyframesgone{50.5%""".split():  # noqa: SIM905
        assert kept in squeezed, kept
    assert '@font-face{font-family:x;src:url("a.woff,b")}' in left
    for gone in ("h1.gone", ".kept.gone", "#there", "@mediaprint"):
        assert gone not in squeezed, gone
    assert book_styles.trim(left, names) == left


@pytest.mark.slow
def test_the_reader_guesses_and_sixteen_heads_vote(root: str, visit: Any) -> None:
    page = visit(f"{root}guess-light.html", permissions=["clipboard-read", "clipboard-write"])
    told = json.loads(page.text_content("script[type='application/json']"))
    for place, one in enumerate(told["sentences"]):
        assert one["words"][one["noun"]] not in ("it", "is") and len(one["votes"]) == 16
        wrong = place == 3
        page.locator(".gs-source button").nth(0 if wrong else one["noun"]).click()
        count = one["votes"].count(one["noun"])
        assert f"{count} of its 16 heads looked there" in page.inner_text(".gs-says")
        assert page.inner_text(".gs-says").startswith("No: it is the dog" if wrong else "Right")
        votes = [int(text) for text in page.locator(".gs-votes").all_inner_texts()]
        assert sum(votes) == 16 and page.inner_text(".gs-target strong") == one["pronoun"]
        if place < 5:
            page.keyboard.press("Enter")  # on "Next", which has the focus
            continue
        page.locator(".gs-source button").nth(1).click()  # a second answer counts for nothing
        if place < 9:
            page.click(".gs-next")
    heads = [sum(one["votes"][head] == one["noun"] for one in told["sentences"]) for head in range(16)]
    assert page.inner_text(".gs-score") == f"You: 9 of 10. The best head: {max(heads)}."
    assert "You found 9 of 10, layer 2, head 2 and layer 4, head 3 found 10" in page.inner_text(".gs-says")
    page.click(".gs-copy")
    link = page.evaluate("() => navigator.clipboard.readText()")
    assert link == f"{root}guess-light.html#guess-9"
    page.goto("about:blank")
    page.goto(link)
    assert page.inner_text(".gs-says") == "Somebody found 9 of 10. And you?"
    page.locator(".gs-source button").first.focus()
    page.keyboard.press("ArrowRight")
    assert page.evaluate("() => document.activeElement.textContent") == told["sentences"][0]["words"][1]


@pytest.mark.slow
def test_the_game_fits_a_phone(root: str, visit: Any) -> None:
    page = visit(f"{root}guess-dark.html", viewport=NARROW)
    page.locator(".gs-source button").first.click()
    assert page.evaluate("() => document.documentElement.scrollWidth <= innerWidth")
