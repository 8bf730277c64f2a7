"""Words to cut: the page cuts as Python does, with every number of merges, by keys and in words."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from browser import NARROW, write_pages

from experiments.pages import ask_node
from transformer_lib.data.tokenizer import Tokenizer
from transformer_lib.plain.subwords import BYTES, cut
from transformer_lib.translation.translator import find_pretrained
from transformer_lib.viz import subword_viewer
from transformer_lib.viz.pieces import ALPHABET, packed

NAMES = ("everyday-en-de", "multi30k-en-de", "multi30k-en-fr")
TEXTS = (
    "The grandmother laughs.",
    "",
    "a",
    " two  spaces\nand a line's end ",
    "Donaudampfschifffahrt, 1234567 m² for 3½ $",
    "🐕 我在这里 Ǆ é e\u0301 <b>&amp;</b> \\ ` '",
    "It's WE'RE they've can't",
)


def tokenizer(name: str) -> Tokenizer:
    """What a shipped translator reads with."""
    return Tokenizer.load(find_pretrained(name) / "source.json")


@pytest.mark.parametrize("name", NAMES)
def test_the_page_cuts_as_python_does(name: str) -> None:
    ours, limits = tokenizer(name), [0, 1, 2, 50, 1000, 10_000]
    question = {"packed": packed(ours), "alphabet": ALPHABET}
    found = ask_node(cut=question, texts=TEXTS, limits=limits)
    assert [tuple(pair) for pair in found["merges"]] == list(ours.merges)
    for text, answer in zip(TEXTS, found["answers"], strict=True):
        assert answer["pieces"] == [cut(text, ours.merges[:limit]) for limit in limits]
        assert answer["read"] == ours.tokens(text)


def test_swaps_are_inside_of_the_longest_word() -> None:
    found = ask_node(cut={"packed": "", "alphabet": ALPHABET}, texts=["a goose ran", "at", "", "xyyz"], limits=[0])
    expected = ["a gosoe ran"], [], [], []
    assert [one["swaps"] for one in found["answers"]] == [*expected]


def test_it_is_small_always_the_same_and_loads_nothing() -> None:
    figure = subword_viewer(tokenizer(NAMES[0])).html
    assert figure == subword_viewer(tokenizer(NAMES[0])).html and len(figure) < 40_000 and "http" not in figure
    assert re.findall("<span>(.*?)</span>", figure) == tokenizer(NAMES[0]).tokens("The grandmother laughs.")
    assert "<b>" not in subword_viewer(tokenizer(NAMES[0]), '<b>"x"</b>').html
    with pytest.raises(ValueError, match=r"level='word'.*expected subwords"):
        subword_viewer(Tokenizer.train(["a b"], level="word"))


# ---- in a browser ----


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_pages(tmp_path_factory.mktemp("pieces"), subword_viewer(tokenizer(NAMES[0])).html)


def shown(page: Any) -> list[str]:
    return page.locator(".tl-pieces span").all_inner_texts()


@pytest.mark.slow
def test_what_is_typed_is_cut_at_once(pages: Path, visit: Any) -> None:
    ours = tokenizer(NAMES[0])
    page = visit((pages / "light.html").as_uri())
    assert shown(page) == ours.tokens("The grandmother laughs.")
    page.click(".tl-swap")
    assert shown(page) == ours.tokens("The garndmother laughs.") and len(shown(page)) == 6
    page.click(".tl-swap")
    assert page.input_value(".tl-text") == "The grnadmother laughs."
    page.fill(".tl-text", "Zürich 🐕")
    assert shown(page) == ours.tokens("Zürich 🐕")
    one, other = (bytes(BYTES[letter] for letter in half).decode().replace(" ", "▁") for half in ours.merges[-1])
    says = f"13 bytes, {len(shown(page))} pieces. Merge {len(ours.merges):,} joins {one} and {other}."
    assert page.inner_text(".tl-says").startswith(says)
    page.focus(".tl-merges")
    page.keyboard.press("Home")
    assert "".join(shown(page)) == "▁Z\\xc3\\xbcrich▁\\xf0\\x9f\\x90\\x95" and "No merges" in page.inner_text(
        ".tl-says"
    )
    counts = []
    for _ in range(60):
        page.keyboard.press("ArrowRight")
        counts.append(int(page.inner_text(".tl-count").replace(",", "")))
    assert counts == sorted(counts) and counts[0] == 0 and 50 < counts[-1] < 100
    for button in page.locator(".tl-row button").all():
        button.click()
    assert page.input_value(".tl-text") == "The grandmother laughs." and len(shown(page)) > 6
    assert page.get_attribute(".tl-says", "aria-live") == "polite"


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["light", "dark"])
def test_it_fits_a_phone(pages: Path, visit: Any, mode: str) -> None:
    page = visit((pages / f"{mode}.html").as_uri(), viewport=NARROW)
    page.fill(".tl-text", "Donaudampfschifffahrtsgesellschaft" * 3)
    assert page.evaluate("() => document.documentElement.scrollWidth") <= 390
    ground = page.evaluate("() => getComputedStyle(document.querySelector('.tl-cut')).backgroundColor")
    assert (ground == "rgb(20, 24, 30)") == (mode == "dark")


@pytest.mark.slow
def test_without_a_script_the_pieces_stand_there(pages: Path, visit: Any) -> None:
    page = visit((pages / "light.html").as_uri(), java_script_enabled=False)
    assert shown(page)[1] == "▁grandmother" and not page.locator(".tl-swap").is_visible()
