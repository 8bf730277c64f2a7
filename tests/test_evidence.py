"""How sure we are: the box, its picture, and the pages of findings."""

import json
import math
import re
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
sys.path.append(str(ROOT / "book" / "_ext"))
pytest.importorskip("sphinx")

import book_evidence  # noqa: E402
import book_results  # noqa: E402

from experiments import harness  # noqa: E402
from transformer_lib import results  # noqa: E402


def test_a_picture_is_drawn_to_scale():
    found = {"kind": "difference", "value": 2.0, "low": 1.0, "high": 3.0}
    drawn = book_evidence.picture(found, [["low", ">", 0.5]], [found])
    # from 0 to 3, with a margin of 0.18 on both sides: zero at 5.4, one at 35.1, two at 64.9, three at 94.6
    assert 'd="M5.4 0V14"' in drawn and 'd="M35.1 7H94.6"' in drawn and 'cx="64.9"' in drawn
    assert 'class="wanted" x="20.2" width="79.8"' in drawn
    assert 'aria-label="2 (1 to 3); the whole interval has to lie above 0.50"' in drawn
    twice = {"kind": "ratio", "value": 2.0, "low": 1.0, "high": 4.0}
    drawn = book_evidence.picture(twice, [["low", ">", 0.5]], [twice])
    places = [float(drawn.split(mark)[1].split(end)[0]) for mark, end in (('d="M', " 0V"), ('cx="', '"'), (" 7H", '"'))]
    assert places[1] - places[0] == pytest.approx(places[2] - places[1], abs=0.15)  # one, two and four: equal steps


@pytest.mark.parametrize(
    ("criterion", "ends", "words"),
    [
        ([["low", ">", 5]], [5, math.inf], "the whole interval has to lie above 5"),
        ([["high", "<", -0.5]], [-math.inf, -0.5], "the whole interval has to lie below −0.50"),
        ([["low", ">", -3], ["high", "<", 3]], [-3, 3], "the whole interval has to lie between −3 and 3"),
        ([["value", "==", 1]], [1, 1], "the value has to be 1"),
    ],
)
def test_a_criterion_is_told_in_words(criterion, ends, words):
    assert book_evidence.bounds(criterion) == ends and book_evidence.demanded(criterion) == words


def test_a_box_tells_how_long_its_own_runs_were():
    record = {"budget": 200, "unit": "updates", "seeds": [0, 1]}

    def told(*arms, kind="difference", **changed):
        return book_evidence.length({"kind": kind, "arms": arms}, record | changed)

    assert told("a", "b") == "200 updates, 2 seeds." and told("a", kind="ratio") == "2 repetitions."
    assert told("a", "b, twice the updates") == "400 updates, 2 seeds."
    assert told("a", kind="ratio", unit="timings") == "200 timings, 2 repetitions."
    for study in map(harness.get_study, harness.names()):
        for arm, settings in study.arms.items():
            assert told(arm) == f"{200 * settings.get('times', 1):,} updates, 2 seeds.", (study.name, arm)


def test_what_became_of_a_finding():
    def became(found, *checks):
        record = {
            "findings": {"it": {"holds": True} | found},
            "challenges": [{"findings": {"it": one}} for one in checks],
        }
        return book_results.verdict(record, "it")

    held, broke = {"holds": True}, {"holds": False}
    assert became({}, held, held) == "held in 2 checks" and became({}, held) == "held in 1 check"
    assert became({}) == "not checked yet" and became({}, held, broke) == "broke in a check"
    assert became({"holds": False}) == "did not come out" and became({"withdrawn": "No."}, held) == "withdrawn"


def test_every_box_and_every_short_list_names_a_finding_that_we_stand_by():
    named = []
    for path in [*(ROOT / "book").rglob("*.md"), *(ROOT / "book").rglob("*.ipynb")]:
        text = path.read_text(encoding="utf-8")
        if path.suffix == ".ipynb":
            text = "\n".join("".join(cell["source"]) for cell in json.loads(text)["cells"])
        for names in re.findall(r"^```\{(?:sure|claims)\} ([^\n]+)$", text, re.M):
            named += names.split()
    assert len(named) > 5
    for study, _, key in (name.partition("/") for name in named):
        assert results.load(study)["findings"][key]["line"]
