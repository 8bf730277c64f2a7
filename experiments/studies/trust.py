"""Can you tell from a translator's own probabilities which of its translations to trust?"""

from functools import lru_cache
from statistics import median

from sacrebleu.metrics.chrf import CHRF

from experiments.harness import Check, Finding, Study
from experiments.statistics import level
from experiments.tasks import multi30k, translator
from transformer_lib.metrics import bleu

FIFTHS = 5


@lru_cache(4)
def translated(split, n, name):
    """For each sentence the log-probability of a token of its translation, its length, the translation, and the reference."""
    ours, pairs, rows = translator(name), multi30k(split, *name.split("-")[1:])[:n], []
    for pair, best in zip(pairs, ours.search([pair.source for pair in pairs]), strict=True):
        tokens = len(ours.target_tokenizer.encode(best[0].text)) + 1  # and the end of the sentence
        length = len(pair.source.split())
        rows.append((best[0].log_probability / tokens, length, best[0].text, pair.target))
    return rows


def measure(seed, budget, name="multi30k-en-de", parts=FIFTHS, swap=False, alike=False):
    """BLEU and chrF of the sentences of one fifth of the test set above and below the median of the validation set.

    `parts` in place of fifths; `swap` exchanges the two sets; `alike`: the median of the 100 closest in length.
    """
    known, new = (translated(split, budget, name) for split in ("val", "test_2016_flickr"))
    known, new = (new, known) if swap else (known, new)

    def cut(length):
        near = sorted(known, key=lambda row: abs(row[1] - length))
        return median(token for token, *_ in near[: 100 if alike else None])

    cuts = {length: cut(length) for length in {length for _, length, *_ in new}}
    numbers, fifth = {}, new[seed % parts :: parts]
    halves = {
        "trusted": [row for row in fifth if row[0] >= cuts[row[1]]],
        "doubted": [row for row in fifth if row[0] < cuts[row[1]]],
        "all": fifth,
    }
    for half, rows in halves.items():
        _, _, hypotheses, references = zip(*(rows or fifth[:1]), strict=True)
        numbers[half] = bleu(hypotheses, references).score
        numbers[f"chrF of {half}"] = CHRF().corpus_score(hypotheses, [references]).score
    numbers["trusted share"] = 100 * len(halves["trusted"]) / len(fifth)
    return numbers | {"gap": numbers["trusted"] - numbers["doubted"]}


STUDY = Study(
    chapter="translation/when_can_you_trust",
    equal="one translator and its own search; the sentences; the median of the probability per token on the validation set as the threshold",
    arms={"probability per token": {}},
    measure=measure,
    metric="BLEU",
    budget=1000,
    unit="sentences",
    smoke=20,
    seeds=range(FIFTHS),
    findings={
        "token": Finding(
            "Of one translator of Multi30k, translations with an above-median probability per token have more BLEU than the others.",
            level("gap", "probability per token"),
            ("low", ">", 0),
            line="Our translators' own probabilities tell their better translations from the worse ones.",
            earlier="That short sentences are translated better fell: the interval contains zero.",
        ),
    },
)

CHECKS = {
    "other-way": Check(
        "the translator from German to English instead; each tenth of the test set",
        ("token",),
        range(100, 110),
        settings={"name": "multi30k-de-en", "parts": 10},
    ),
    "as-long": Check(
        "the sentences of the validation set, in tenths, and thresholds from the test set; for the probability per token, the threshold is the median of the 100 sentences whose length is closest",
        ("token",),
        range(200, 210),
        settings={"parts": 10, "swap": True, "alike": True},
    ),
}
