"""Can you tell from a translator's own probabilities which of its translations to trust?"""

import os
from functools import lru_cache
from statistics import median

from sacrebleu.metrics.chrf import CHRF

from experiments.harness import Check, Finding, Study, plain
from experiments.statistics import level
from transformer_lib.data.captions import make_captions
from transformer_lib.data.multi30k import load_multi30k
from transformer_lib.metrics import bleu
from transformer_lib.translation.translator import Translator

SMOKE = bool(os.environ.get("SMOKE"))
FIFTHS = 5


@lru_cache(4)
def translated(split, n, name):
    """For each sentence the log-probability of a token of its translation, its length, the translation, and the reference."""
    if SMOKE:  # needs no download
        translator, pairs = (
            Translator.from_pretrained("captions-en-de", device="cpu"),
            make_captions(n, seed=len(split)),
        )
    else:
        translator = Translator.from_pretrained(name, device="cpu")
        pairs = load_multi30k(split, *name.split("-")[1:])[:n]
    rows = []
    for pair, best in zip(pairs, translator.search([pair.source for pair in pairs]), strict=True):
        tokens = len(translator.target_tokenizer.encode(best[0].text)) + 1  # and the end of the sentence
        rows.append((best[0].log_probability / tokens, len(pair.source.split()), best[0].text, pair.target))
    return rows


def measure(seed, budget, name="multi30k-en-de", parts=FIFTHS, swap=False, alike=False):
    """BLEU and chrF of the sentences of one fifth of the test set above and below the median of the validation set.

    `parts` in place of fifths; `swap` exchanges the two sets; `alike`: the median of the 100 closest in length.
    """
    known, new = (translated(split, budget, name) for split in ("val", "test_2016_flickr")[:: -1 if swap else 1])

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
    chapter="translation/translating_real_sentences",
    equal="one translator and its own search; the sentences; the median of the probability per token on the validation set as the threshold",
    arms={"probability per token": {}},
    measure=measure,
    metric="BLEU",
    budget=1000,
    unit="sentences",
    smoke=20,
    seeds=range(FIFTHS),
    each="fifth",
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
        plain(STUDY),
        settings={"name": "multi30k-de-en", "parts": 10},
    ),
    "as-long": Check(
        "the sentences of the validation set, in tenths, and thresholds from the test set; for the probability per token, the threshold is the median of the 100 sentences whose length is closest",
        ("token",),
        range(200, 210),
        plain(STUDY),
        settings={"parts": 10, "swap": True, "alike": True},
    ),
}
