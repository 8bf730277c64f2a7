"""How a translator from English to German answers a hundred things that people type first.

    python -m experiments.pages.visitors MODEL [--record FILE]

MODEL is a shipped translator or the folder of a run, whose corpus must be at hand. `visitors.tsv` has a group, what is
typed, and what should come back. Translations are separated by " / ", and [dir|Ihnen|euch] is a choice. !words,
!language and !script are messages instead of a translation: unknown words, another language, another script.

A translation is right if it is one of those, whatever its capitals, full stops and quotation marks. Everything else is
refused (a message instead), warned (wrong, but the page says not to trust it) or silent (wrong, and nobody says so).
The answers are the library's, which follow the rule of the first page: translation/known.py, viz/known.js.
"""

from __future__ import annotations

import argparse
import re
import sys
import unicodedata
from collections import Counter
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path
from typing import Any

from experiments.harness import provenance
from experiments.pages.words import measure
from transformer_lib import Translator
from transformer_lib.data.files import write_json
from transformer_lib.translation.translator import find_pretrained

FILE = Path(__file__).with_suffix(".tsv")
OUTCOMES = ("right", "refused", "warned", "silent")


@dataclass(frozen=True)
class Visitor:
    """What somebody types, and what should come back."""

    group: str
    text: str
    wanted: str


@dataclass(frozen=True)
class Answer:
    """A translation, or the kind of message that stands in its place."""

    translation: str = ""
    message: str = ""
    warned: str = ""
    """``wrong``: it is called probably wrong; ``look``: one should look twice."""


def load_visitors(path: Path = FILE) -> list[Visitor]:
    """The list, from its file."""
    return [Visitor(*line.split("\t")) for line in path.read_text(encoding="utf-8").splitlines()]


def plain(text: str) -> str:
    """A translation without what doesn't make it wrong: capitals, final punctuation and quotation marks."""
    text = unicodedata.normalize("NFC", text).lower().translate({ord(mark): "'" for mark in "’‘`"})
    return " ".join(re.sub(r"[„“”\"]", "", text).split()).rstrip(" .!?…")


def accepted(wanted: str) -> set[str]:
    """The translations that are right."""
    found: set[str] = set()
    for one in wanted.split(" / "):
        if not one.startswith("!"):
            parts = [part.split("|") if i % 2 else [part] for i, part in enumerate(re.split(r"\[(.*?)\]", one))]
            found |= {plain("".join(choice)) for choice in product(*parts)}
    return found


def outcome(visitor: Visitor, answer: Answer) -> str:
    """One of the outcomes; where a message is wanted, any that replaces the translation is right."""
    if answer.message:
        return "right" if any(one.startswith("!") for one in visitor.wanted.split(" / ")) else "refused"
    if plain(answer.translation) in accepted(visitor.wanted):
        return "right"
    return "warned" if answer.warned else "silent"


def first_sentence(text: str) -> str:
    """What a model of captions reads."""
    return re.match(r"[.!?…\s]*[^.!?…]*[.!?…]*", text)[0]  # type: ignore[index]


MESSAGES = {"language": "language", "unknown": "words", "no words": "words"}  # what stands for a translation


def answers(translator: Any, texts: list[str]) -> list[Answer]:
    """What the first page would answer to each of the texts, by the rule of the library."""
    typed = [text.strip() for text in texts]
    firsts = [first_sentence(text) for text in typed] if translator.text.kind == "captions" else typed
    found = []
    for text, first, (best,) in zip(typed, firsts, translator.search(firsts), strict=True):
        kinds = [kind for sign, kind in MESSAGES.items() if best.doubt and sign in best.doubt.signs]
        tier = "wrong" if best.doubt and best.doubt.certain else "look" if best.doubt or first != text else ""
        found.append(Answer(message=kinds[0]) if kinds else Answer(best.text, warned=tier))
    return found


def score(visitors: list[Visitor], given: list[Answer]) -> tuple[dict[str, int], list[dict[str, Any]]]:
    """How often each outcome occurred, and one row for each visitor."""
    rows = [asdict(v) | asdict(a) | {"outcome": outcome(v, a)} for v, a in zip(visitors, given, strict=True)]
    count = Counter(row["outcome"] for row in rows)
    numbers = {name: count[name] for name in OUTCOMES}
    numbers["right, but warned"] = sum(row["outcome"] == "right" and bool(row["warned"]) for row in rows)
    for tier, name in (("wrong", "probably wrong"), ("look", "look twice")):
        numbers[f"wrong, {name}"] = sum((row["outcome"], row["warned"]) == ("warned", tier) for row in rows)
        numbers[f"right, {name}"] = sum((row["outcome"], row["warned"]) == ("right", tier) for row in rows)
    numbers["the kind of message that was wanted"] = sum(
        f"!{row['message']}" in row["wanted"].split(" / ") for row in rows
    )
    return numbers, rows


def main(arguments: list[str] | None = None) -> None:
    """Score a model, print what went wrong, and write the record."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("model", help="a shipped translator, or the folder of a run")
    parser.add_argument("--record", type=Path, help="where to write every answer, as JSON")
    asked = parser.parse_args(arguments)
    translator, visitors = Translator.from_pretrained(asked.model, device="cpu"), load_visitors()
    if (translator.text.source, translator.text.target) != ("en", "de"):
        sys.exit(f"{asked.model} doesn't translate from English to German, as the list does")
    translator.known = translator.known or measure(find_pretrained(asked.model))
    given = answers(translator, [visitor.text for visitor in visitors])
    numbers, rows = score(visitors, given)
    for row in rows:
        if row["outcome"] != "right":
            print(f"{row['outcome']:8} {row['text']}  →  {row['translation'] or '!' + row['message']}")
    print(*(f"{name}: {number}" for name, number in numbers.items()), sep="\n")
    if asked.record:
        about = {"title": "What visitors type first", "model": Path(asked.model).name}
        origin = provenance(f"python -m experiments.pages.visitors {Path(asked.model).name}")
        write_json(asked.record, origin | about | {"metrics": numbers, "answers": rows})


if __name__ == "__main__":
    main()
