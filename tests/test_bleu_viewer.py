"""A translation to edit: the page's BLEU is sacreBLEU's, and every n-gram is shown."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
from browser import NARROW, write_pages

from experiments.pages import ask_node
from transformer_lib.metrics import bleu
from transformer_lib.plain.bleu import corpus_bleu
from transformer_lib.viz import bleu_viewer

REFERENCE = "the little dog sleeps in the garden"
FIRST = "the small dog is sleeping in the garden"
HYPOTHESES = {"other words": FIRST, "only “the”": "the the the the the the the", "<b>": "a & b"}


def test_the_page_s_scores_are_sacrebleu_s() -> None:
    rng = random.Random(0)
    pairs = [(" ".join(rng.choices("abcd", k=rng.randint(4, 14))), " ".join("abcdabca")) for _ in range(200)]
    pairs += [(text, REFERENCE) for text in (*HYPOTHESES.values(), REFERENCE, "the little dog sleeps in the")]
    for (mine, right), found in zip(pairs, ask_node(bleu=pairs), strict=True):
        assert found["bleu"] == pytest.approx(corpus_bleu([mine], [right]))
        ours = bleu([mine], [right], tokenize="none")
        assert found["smoothed"] == pytest.approx(ours.score, abs=1e-6)
        assert found["penalty"] == pytest.approx(ours.brevity_penalty)
        assert [row.count("hit") for row in found["rows"]] == found["matches"]
    assert sum(one["bleu"] > 0 for one in ask_node(bleu=pairs)) > 20


def test_what_is_clipped() -> None:
    (found,) = ask_node(bleu=[["the the the dog", "the dog the"]])
    assert found["rows"] == [["hit", "hit", "clipped", "hit"], ["miss", "miss", "hit"], ["miss", "miss"], ["miss"]]
    (empty,) = ask_node(bleu=[["", "a b"]])
    assert (empty["bleu"], empty["smoothed"], empty["rows"]) == (0, 0, [[], [], [], []])


def test_it_is_small_always_the_same_and_loads_nothing() -> None:
    figure = bleu_viewer(REFERENCE, HYPOTHESES).html
    assert figure == bleu_viewer(REFERENCE, HYPOTHESES).html and len(figure) < 12_000 and "http" not in figure
    assert "<b></b>" not in figure and "&lt;b&gt;" in figure and "a &amp; b" in figure


@pytest.mark.slow
def test_an_edit_moves_the_score(tmp_path: Path, visit: Any) -> None:
    pages = write_pages(tmp_path, bleu_viewer(REFERENCE, HYPOTHESES).html)
    page = visit((pages / "light.html").as_uri(), viewport=NARROW)
    assert page.inner_text(".tl-says").startswith("BLEU 0.0, smoothed ")
    assert page.locator(".tl-hit").count() == 8 and page.locator(".tl-word").count() == 8
    page.fill(".tl-text", REFERENCE)
    assert page.inner_text(".tl-says") == "BLEU 100.0" and page.locator(".tl-miss").count() == 0
    assert page.locator(".tl-hit").count() == 7 + 6 + 5 + 4
    page.click("button >> nth=1")
    assert page.locator(".tl-clipped").count() == 5 and "2 of 7" in page.inner_text(".tl-table")
    page.fill(".tl-text", "")
    assert page.inner_text(".tl-says") == "BLEU 0.0"
    page.fill(".tl-text", "word " * 22)
    assert page.evaluate("() => document.documentElement.scrollWidth") <= 390
    assert page.get_attribute(".tl-says", "aria-live") == "polite"
