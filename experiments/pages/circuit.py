"""The record of the pronoun's circuit: what becomes of a pronoun without a head, without a word, with another vector.

    python -m experiments.pages.circuit

The pairs of sentences differ in their last word, and so in the noun that *it* stands for: those of the
first page whose two nouns differ in gender, and the first ones among new captions.
"""

from __future__ import annotations

from itertools import product
from typing import Any

from experiments.harness import provenance
from experiments.pages import ROOT, ask_node
from experiments.pages.example import MODEL, PATTERN, SLOTS
from transformer_lib import make_captions
from transformer_lib.data.captions import Pair
from transformer_lib.data.files import write_json
from transformer_lib.translation.run import load_corpus, read_options

RECORD = ROOT / "transformer_lib" / "results" / "page-circuit.json"
PRONOUNS = ("er", "sie", "es")
GENDERS = {"dog": "er", "cat": "sie", "horse": "es", "street": "sie", "river": "er"}


def pronoun(pair: Pair) -> str | None:
    """The pronoun of a caption that has one."""
    found = [word for word in pair.target.split() if word in PRONOUNS]
    return found[0] if len(found) == 1 == len(pair.referents) else None


def new_pairs(count: int) -> list[tuple[Pair, Pair]]:
    """The first pairs of captions that the model has not seen and that differ only in their last word and in the noun."""
    stored, options = read_options(MODEL)
    known = {pair.source for pair in load_corpus(options, stored.text).train}
    groups: dict[str, dict[int, Pair]] = {}
    for pair in make_captions(6000, seed=4242):
        if pronoun(pair) and "because it is" in pair.source and pair.source not in known:
            start, _, _ = pair.source.rpartition(" ")
            groups.setdefault(start, {}).setdefault(pair.referents[0][1], pair)
    pairs = [tuple(group.values()) for group in groups.values() if len(group) == 2]
    return pairs[:count]  # type: ignore[return-value]


def sentences(count: int = 3) -> list[list[tuple[str, str, str]]]:
    """Pairs of sentences, each with its right pronoun and the noun that it stands for."""
    animals, places, reasons = SLOTS
    both = [(a, p) for a, p in product(animals, places) if GENDERS[a] != GENDERS[p]]
    ours = [
        [(PATTERN.format(a, p, reason), GENDERS[noun], noun) for reason, noun in zip(reasons, (a, p), strict=True)]
        for a, p in both
    ]
    return ours + [[spoken(pair) for pair in two] for two in new_pairs(count)]


def spoken(pair: Pair) -> tuple[str, str, str]:
    """A caption as people write it, its pronoun and its noun."""
    ((_, noun),) = pair.referents
    return f"{pair.source[0].upper()}{pair.source[1:]}.", str(pronoun(pair)), pair.source.split()[noun]


def tight(one: dict[str, Any], right: str, noun: str) -> dict[str, Any]:
    """What the page keeps: scores in hundredths, translations once, weights in thousandths."""
    texts = [one["written"]]

    def outcome(found: dict[str, Any]) -> list[int]:
        if found["written"] not in texts:
            texts.append(found["written"])
        return [*(round(100 * score) for score in found["scores"]), texts.index(found["written"])]

    outcomes = {kind: [outcome(found) for found in one[kind]] for kind in ("heads", "hidden", "swapped")}
    looks = [[[i, round(1000 * w)] for i, w in enumerate(row) if w >= 0.05] for rows in one["looks"] for row in rows]
    scores = [round(100 * score) for score in one["scores"]]
    words = {"text": one["text"], "words": one["words"], "right": PRONOUNS.index(right), "noun": noun, "scores": scores}
    return words | {"texts": texts, "looks": looks} | outcomes


def record() -> dict[str, Any]:
    """What the page shows before it has loaded the model."""
    pairs = sentences()
    answers = ask_node(folder=str(MODEL), pairs=[[text for text, *_ in pair] for pair in pairs])
    found = [
        [tight(one, *truth) for one, (_, *truth) in zip(both, pair, strict=True)]
        for both, pair in zip(answers, pairs, strict=True)
    ]
    right = [one["scores"][one["right"]] == max(one["scores"]) for both in found for one in both]
    metrics = {"sentences": len(right), "pronouns that are right": sum(right)}
    return {
        "title": "A pronoun's circuit, as the page shows it",
        "data": "captions",
        "metrics": metrics,
        "pairs": found,
    }


if __name__ == "__main__":
    origin = provenance("python -m experiments.pages.circuit")  # type: ignore[no-untyped-call]
    write_json(RECORD, origin | record())
