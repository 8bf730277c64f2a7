"""How a translator from English to German answers a hundred things that people type first.

    python -m experiments.pages.visitors MODEL [--record FILE]

MODEL is a shipped translator or the folder of a run, whose corpus must be at hand. `visitors.tsv` has a group, what is
typed, and what should come back. Translations are separated by " / ", and [dir|Ihnen|euch] is a choice. !words,
!language and !script are messages instead of a translation: unknown words, another language, another script.

A translation is right if it is one of those, whatever its capitals, full stops and quotation marks. Everything else is
refused (a message instead), warned (wrong, but the page says not to trust it) or silent (wrong, and nobody says so).
The answers follow the rules of the first page: viz/translator_page.js.
"""

from __future__ import annotations

import argparse
import re
import sys
import unicodedata
from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path
from typing import Any

from experiments.harness import provenance
from experiments.pages.words import LISTS, certainty, measure, words
from transformer_lib import Translator, results
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
    warned: bool = False


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
        return "right" if "!" in visitor.wanted else "refused"
    if plain(answer.translation) in accepted(visitor.wanted):
        return "right"
    return "warned" if answer.warned else "silent"


def first_sentence(text: str) -> str:
    """What a model of captions reads."""
    return re.match(r"[^.!?…]*[.!?…]*", text)[0]  # type: ignore[index]


def message(text: str, known: set[str], others: Iterable[set[str]] = ()) -> str:
    """The kind of message, words or language, that replaces a translation if half of the words are unknown.

    Args:
        others: the words of other languages.
    """
    typed = words(text)
    if 2 * sum(word not in known for word in typed) < len(typed):
        return ""
    half = len(typed) / 2
    return "language" if any(sum(word in other for word in typed) > half for other in others) else "words"


def answers(translator: Any, texts: list[str], known: set[str], sure: float) -> list[Answer]:
    """What the first page would answer to each of the texts.

    Args:
        known: the words that the model has often seen.
        sure: the mean log-probability of a token below which the page warns.
    """
    others = [set(path.read_text(encoding="utf-8").split()) for path in LISTS.glob(f"*.{translator.text.target}.txt")]
    firsts = [first_sentence(text.strip()) for text in texts] if translator.text.kind == "captions" else texts
    kinds = [message(first, known, others) for first in firsts]
    asked = [first for first, kind in zip(firsts, kinds, strict=True) if not kind]
    written = zip(translator.search(asked), certainty(translator, asked), strict=True)
    found = []
    for text, first, kind in zip(texts, firsts, kinds, strict=True):
        if kind:
            found.append(Answer(message=kind))
            continue
        (best,), log_p = next(written)
        strange = any(word not in known for word in words(first))
        found.append(Answer(best.text, warned=strange or log_p < sure or first != text.strip()))
    return found


def score(visitors: list[Visitor], given: list[Answer]) -> tuple[dict[str, int], list[dict[str, Any]]]:
    """How often each outcome occurred, and one row for each visitor."""
    rows = [asdict(v) | asdict(a) | {"outcome": outcome(v, a)} for v, a in zip(visitors, given, strict=True)]
    count = Counter(row["outcome"] for row in rows)
    numbers = {name: count[name] for name in OUTCOMES}
    numbers["right, but warned"] = sum(row["outcome"] == "right" and row["warned"] for row in rows)
    numbers["the kind of message that was wanted"] = sum(
        f"!{row['message']}" in row["wanted"].split(" / ") for row in rows
    )
    return numbers, rows


def limits(model: str) -> tuple[set[str], float]:
    """The words that a model knows and how sure it has to be: from the record of shipped ones, else measured."""
    shipped = results.load("page-words")["models"].get(model)
    if shipped:
        return set((LISTS / f"{shipped['list']}.txt").read_text(encoding="utf-8").split()), shipped["sure"]
    _, known, sure = measure(find_pretrained(model))
    return set(known), sure


def main(arguments: list[str] | None = None) -> None:
    """Score a model, print what went wrong, and write the record."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("model", help="a shipped translator, or the folder of a run")
    parser.add_argument("--record", type=Path, help="where to write every answer, as JSON")
    asked = parser.parse_args(arguments)
    translator, visitors = Translator.from_pretrained(asked.model, device="cpu"), load_visitors()
    if (translator.text.source, translator.text.target) != ("en", "de"):
        sys.exit(f"{asked.model} doesn't translate from English to German, as the list does")
    given = answers(translator, [visitor.text for visitor in visitors], *limits(asked.model))
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
