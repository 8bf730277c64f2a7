"""How wide should a beam be, and does a length penalty lift the curse of wide ones?"""

from functools import lru_cache

from experiments.harness import Check, Finding, Study
from experiments.statistics import difference
from experiments.tasks import multi30k, translator
from transformer_lib.metrics import bleu

PARTS = 10  # of the sentences, one for each seed


@lru_cache(64)
def translated(name, split, part, n, beam, penalty):
    """The references of one part of the sentences, and the best translation of each."""
    pairs = multi30k(split, *name.split("-")[1:])[:n][part::PARTS]
    search = {"beam_size": beam, "length_penalty": penalty, "max_tokens": 16_000}
    best = translator(name).search([pair.source for pair in pairs], **search)
    return [pair.target for pair in pairs], [one[0] for one in best]


def measure(seed, budget, beam, penalty, split="val", name="multi30k-en-de"):
    """BLEU, lengths, and how often the search beats greedy decoding in the model's own eyes."""
    references, best = translated(name, split, seed % PARTS, budget, beam, penalty)
    _, greedy = translated(name, split, seed % PARTS, budget, 1, 0.0)
    ours = [one.text for one in best]
    gains = [one.log_probability - other.log_probability for one, other in zip(best, greedy, strict=True)]
    result = bleu(ours, references)
    filled = [one.text or other.text for one, other in zip(best, greedy, strict=True)]
    return {
        "bleu": result.score,
        "bleu, greedy where empty": bleu(filled, references).score,
        "length": 100 * result.hypothesis_length / result.reference_length,
        "empty": sum(not text for text in ours),
        "more probable": 100 * sum(gain > 1e-3 for gain in gains) / len(gains),
    }


STUDY = Study(
    chapter="translation/decoding",
    equal="one translator, trained with label smoothing of 0.1; the sentences (validation set of Multi30k, in ten parts)",
    arms={f"beam {b}, penalty {p:.0f}": {"beam": b, "penalty": p} for b in (1, 2, 4, 8, 16) for p in (0.0, 1.0)},
    measure=measure,
    metric="BLEU",
    seeds=range(PARTS),
    budget=1014,
    unit="sentences",
    smoke=20,
    findings={
        "beam": Finding(
            "With a length penalty of 1, our translators of Multi30k between English and German score higher with a beam of 4 than with greedy decoding.",
            difference("bleu", "beam 4, penalty 1", "beam 1, penalty 1"),
            ("low", ">", 0),
            line="With a length penalty, a beam of four beats greedy decoding.",
        ),
        "cure": Finding(
            "With a length penalty of 1, our translators of Multi30k between English and German score within one point with beams of 16 and of 4.",
            difference("bleu", "beam 16, penalty 1", "beam 4, penalty 1"),
            (("low", ">", -1), ("high", "<", 1)),
            line="With a length penalty, a beam of 16 scores within a point of a beam of four.",
            earlier="That wide beams do harm without a penalty fell: it was true of one translator, and not of the other.",
        ),
    },
)

SEARCHES = (1, 1), (4, 0), (4, 1), (16, 0), (16, 1)
BEAMS = {f"beam {beam}, penalty {penalty}": {} for beam, penalty in SEARCHES}
CHECKS = {
    "test-set": Check(
        "the 1,000 sentences of the test set of 2016, in ten parts, rather than the validation set, on which the translator's own search was chosen",
        ("beam", "cure"),
        range(100, 110),
        BEAMS,
        settings={"split": "test_2016_flickr"},
    ),
    "other-way": Check(
        "the translator from German to English instead; the 1,000 sentences of the test set of 2016, in ten parts",
        ("beam", "cure"),
        range(200, 210),
        BEAMS,
        settings={"split": "test_2016_flickr", "name": "multi30k-de-en"},
    ),
}
