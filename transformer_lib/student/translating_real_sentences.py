"""Tests for chapter "BLEU, and what attention bought on real sentences"."""

from collections import Counter

from transformer_lib.plain.bleu import corpus_bleu, ngrams
from transformer_lib.student.checks import check, equal, holds

HYPOTHESES = ["she gets up early on sunday", "the the the dog sleeps"]
REFERENCES = ["she gets up early every day", "the little dog sleeps in the garden"]
GERMAN = ["ein Hund läuft im Park", "zwei Katzen schlafen auf dem Sofa"]


@check(ngrams, "BLEU by hand")
def neighbours() -> None:
    """Each group of n neighbours is counted, in its order, as often as it occurs."""
    equal(ngrams(["a", "b", "a", "b"], 2), Counter({("a", "b"): 2, ("b", "a"): 1}))
    equal(ngrams(["a", "b"], 2), Counter({("a", "b"): 1}), {"the last group is missing": Counter()})
    equal(ngrams(["a", "b"], 3), Counter())
    equal(ngrams(["a", "b", "a"], 1), Counter({("a",): 2, ("b",): 1}))


@check(corpus_bleu, "BLEU by hand")
def the_example_of_the_page() -> None:
    """Both sentences of the page have 30.7, the second alone has 0."""
    alone = [corpus_bleu([h], [r]) for h, r in zip(HYPOTHESES, REFERENCES, strict=True)]
    got = corpus_bleu(HYPOTHESES, REFERENCES)
    equal(round(got, 1), 30.7, {"a mean of the sentences' scores": round(sum(alone) / 2, 1)})
    equal(corpus_bleu(HYPOTHESES[1:], REFERENCES[1:]), 0.0)


@check(corpus_bleu, "BLEU by hand")
def perfect() -> None:
    """If hypotheses equal references, the score is 100."""
    equal(corpus_bleu(GERMAN, GERMAN), 100.0, {"a share, not points": 1.0})


@check(corpus_bleu, "BLEU by hand")
def brevity() -> None:
    """An output that is too short is punished: five of six words make a penalty of exp(1 - 6/5); a long one isn't."""
    long = [GERMAN[0] + " herum"]
    swapped = {"BLEU on four sentences, or the wrong way round": 76.0}
    equal(round(corpus_bleu(GERMAN[:1], long), 1), 81.9, swapped)
    # 5 of 6, 4 of 5, 3 of 4 and 2 of 3 n-grams match: a fourth root of 1/3
    equal(round(corpus_bleu(long, GERMAN[:1]), 1), 76.0, {"long output is rewarded": round(76.0 * 2.718 ** (1 / 6), 1)})


@check(corpus_bleu, "BLEU by hand")
def no_n_gram_counts_twice() -> None:
    """An n-gram matches no more often than the reference has it."""
    # 6 of 8, 4 of 7, 3 of 6 and 2 of 5
    clipped = corpus_bleu(["the dog sleeps in the garden the the"], REFERENCES[1:])
    equal(round(clipped, 1), 54.1, {"without clipping": 58.1})


@check(corpus_bleu, "BLEU by hand")
def nothing_written() -> None:
    """An empty hypothesis, or one without four tokens, has a score of 0, and no error."""
    equal(corpus_bleu(["a b c"], ["a b c"]), 0.0)
    equal(corpus_bleu([""], ["a b c d"]), 0.0)
    both = corpus_bleu([GERMAN[0], ""], GERMAN)
    holds(0 < both < 100, f"BLEU {both:.1f} with an empty second hypothesis")
