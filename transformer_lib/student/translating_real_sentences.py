"""Tests for chapter "Translating real sentences"."""

from transformer_lib.metrics import bleu, exact_match
from transformer_lib.student.checks import check, equal, holds, refuses, same

GERMAN = ["ein Hund läuft im Park", "zwei Katzen schlafen auf dem Sofa"]


@check(exact_match, "Exact match")
def a_fraction() -> None:
    """One right sentence of two is one half."""
    equal(exact_match(["ein Hund", "eine Katze"], ["ein Hund", "die Katze"]), 0.5, {"a count, not a fraction": 1})


@check(exact_match, "Exact match")
def other_lengths_are_refused() -> None:
    """Two hypotheses for one reference raise a ValueError."""
    refuses(ValueError, exact_match, ["a", "b"], ["a"])


@check(bleu, "BLEU by hand")
def perfect() -> None:
    """If hypotheses equal references, the score is 100, and every precision, too."""
    got = bleu(GERMAN, GERMAN)
    equal((got.score, got.precisions, got.brevity_penalty), (100.0, (100.0,) * 4, 1.0))


@check(bleu, "BLEU by hand")
def brevity() -> None:
    """An output that is too short is punished: five of six words make a brevity penalty of exp(1 - 6/5)."""
    got = bleu(GERMAN[:1], [GERMAN[0] + " herum"])
    turned = bleu([GERMAN[0] + " herum"], GERMAN[:1]).score
    equal(round(got.score, 1), 81.9, {"BLEU on four sentences, or the wrong way round": same(got.score, turned)})
    equal(
        (got.hypothesis_length, got.reference_length),
        (5, 6),
        {"BLEU on four sentences, or the wrong way round": (6, 5)},
    )


@check(bleu, "BLEU by hand")
def of_the_corpus() -> None:
    """The n-grams of the whole corpus are counted together: the score is no mean of sentences' scores."""
    hypotheses = ["ein Hund läuft im Park", "zwei Katzen schlafen"]
    alone = [bleu([h], [r]).score for h, r in zip(hypotheses, GERMAN, strict=True)]
    got = bleu(hypotheses, GERMAN).score
    holds(
        abs(got - sum(alone) / 2) > 1,
        f"corpus {got:.1f}, mean of the sentences {sum(alone) / 2:.1f}",
        {"A mean of means": True},
    )


@check(bleu, "BLEU by hand")
def several_references() -> None:
    """With several references for a sentence, an n-gram may match any of them."""
    references = [["eine Katze sitzt auf dem Sofa", "ein Hund läuft im Park"], [GERMAN[1]]]
    equal(bleu(GERMAN, references).score, 100.0)
    holds("case:lc" in bleu(GERMAN, references, lowercase=True).signature, "the signature does not say case:lc")
