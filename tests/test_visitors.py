"""The score of a translator with visitors: the list, and the scorer on translators that only pretend."""

import json
import re
import subprocess
from pathlib import Path
from types import SimpleNamespace

import pytest

from experiments.pages import NODE, visitors
from experiments.pages.visitors import (
    Answer,
    Visitor,
    accepted,
    first_sentence,
    load_visitors,
    outcome,
    plain,
    score,
)
from transformer_lib import Translator
from transformer_lib.translation.known import Known, doubt, words
from transformer_lib.translation.translator import Translation

LIST = load_visitors()
PAGE = Path(__file__).parents[1] / "transformer_lib" / "viz" / "known.js"


def test_the_list_has_a_hundred_inputs_with_well_formed_answers():
    assert len({visitor.text for visitor in LIST}) == len(LIST) == 100
    for visitor in LIST:
        signs = {one for one in visitor.wanted.split(" / ") if one.startswith("!")}
        assert signs <= {"!words", "!language", "!script"}, visitor
        assert bool(accepted(visitor.wanted)) or signs, visitor
        assert not any(re.search(r"[\[\]|]|^$", one) for one in accepted(visitor.wanted)), visitor


def test_choices_are_multiplied_and_capitals_and_the_last_sign_do_not_count():
    assert accepted("Wie geht es [dir|Ihnen] / Wie geht's / !words") == {
        "wie geht es dir",
        "wie geht es ihnen",
        "wie geht's",
    }
    assert plain("  Wie geht’s ?") == "wie geht's" and plain("„Ja!“") == "ja"
    assert plain("Ja, nein") != plain("Ja nein") and plain("schon") != plain("schön")


def test_a_perfect_translator_has_a_hundred_and_one_that_echoes_has_nearly_none():
    perfect = [
        Answer(min(accepted(one.wanted))) if accepted(one.wanted) else Answer(message=one.wanted[1:]) for one in LIST
    ]
    assert score(LIST, perfect)[0]["right"] == 100
    numbers, rows = score(LIST, [Answer(one.text) for one in LIST])
    alike = ["Hi", "Sorry!", "computer", "Stop!", "pizza", "2 + 2 = 4"]
    assert [row["text"] for row in rows if row["outcome"] == "right"] == alike
    assert numbers["silent"] == 94


@pytest.mark.parametrize(
    ("wanted", "answer", "expected"),
    [
        ("Hallo", Answer("hallo!", warned="wrong"), "right"),
        ("Hallo", Answer("Höhle!", warned="wrong"), "warned"),
        ("Hallo", Answer("Höhle!"), "silent"),
        ("Hallo", Answer(message="words"), "refused"),
        ("Hallo / !words", Answer(message="words"), "right"),
        ("Gute Nacht[,|!] schlaf gut", Answer(message="words"), "refused"),
        ("!language", Answer(message="words"), "right"),
        ("!words", Answer("Höhle!"), "silent"),
        ("!words", Answer("Höhle!", warned="look"), "warned"),
    ],
)
def test_outcomes(wanted: str, answer: Answer, expected: str):
    assert outcome(Visitor("greeting", "Hello!", wanted), answer) == expected


def test_the_page_reads_counts_and_refuses_as_the_scorer_does():
    odd = ["", "x² İstanbul naïve", "Zwei  Hunde!? Ja.", "a\u0308rger 3rd don't", "你好, two dogs", "…dog.", "two_dogs"]
    odd += ["Zwei \u202ahu\u0308hner\u202c\u200bda", "hu\xadnde \ufe0f\u3164zwei\U000e0041 \x07\u180eja"]
    texts = [*(visitor.text for visitor in LIST), *odd, "ǅ ﬁ ª"]
    known = set(words("two dogs the weather is hello how are you dog x"))
    program = f"""
      import {{ doubt, firstSentence, wordsOf }} from "{PAGE}";
      const [texts, known] = {json.dumps([texts, sorted(known)])};
      const source = new Map(known.map((word, place) => [word, place]));
      const rows = texts.map((text) => {{
        const first = firstSentence(text);
        return [first, wordsOf(first), Boolean(doubt({{ source, target: new Set() }}, first)?.certain)];
      }});
      process.stdout.write(JSON.stringify(rows));"""
    run = [NODE, "--input-type=module", "--eval", program]
    rows = json.loads(subprocess.run(run, capture_output=True, check=True).stdout)
    for text, row in zip(texts, rows, strict=True):
        first = first_sentence(text)
        why = doubt(Known({word: place for place, word in enumerate(sorted(known))}, frozenset()), first)
        assert row == [first, words(first), why is not None and why.certain], text


class Stub:
    """A translator that says the same to everybody."""

    text = SimpleNamespace(source="en", target="de", kind="captions")
    known = Known({"hello": 0, "hi": 1, "dog": 2, "stop": 3, "pizza": 4}, frozenset({"hallo"}), -1.0)

    def search(self, texts: list[str]) -> list[list[Translation]]:
        sure = {"Hello!": -0.1, "Hi": -2.0}
        return [
            [Translation("Hallo!", doubt=doubt(self.known, text, "Hallo!", sure.get(text, -0.5)))] for text in texts
        ]


def test_the_tool_scores_prints_and_records(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys):
    monkeypatch.setattr(Translator, "from_pretrained", lambda *_, **__: Stub())
    visitors.main(["anything", "--record", str(tmp_path / "record.json")])
    printed = capsys.readouterr().out
    record = (tmp_path / "record.json").read_text(encoding="utf-8")
    for row in ("silent   dog  →  Hallo!", "refused  Goodbye  →  !words"):
        assert row in printed, row
    assert "Hello!  →" not in printed and "right, probably wrong: 1" in printed  # Hi, of which it isn't sure
    assert '"What visitors type first"' in record and record.count('"outcome"') == 100
    Stub.text = SimpleNamespace(source="de", target="en", kind="raw")
    with pytest.raises(SystemExit, match="English to German"):
        visitors.main(["anything"])
