"""Does it matter which score Luong's attention has, and what does a window on the source cost?"""

from experiments.harness import Check, Finding, Study
from experiments.statistics import difference
from experiments.studies.alignment import attention_links, error_rate
from experiments.tasks import captions, learn, right
from transformer_lib.models.luong import LuongConfig, LuongSeq2Seq


def measure(seed, budget, rate, longest=10, **options):
    """Exact matches, and the alignment error rate, on new captions of 4 to 10 words."""
    data = captions(seed, n=4000, longest=longest)
    options |= {"d_model": 48, "d_hidden": 64, "dropout": 0.0}
    model = LuongSeq2Seq(LuongConfig(*data.sizes, **options))
    numbers = learn(model, data.rows, seed, rate, budget, betas=(0.9, 0.999))
    numbers["aer"] = error_rate(attention_links(model, data), data.pairs["test"])
    return numbers | {"exact": right(model, data.rows["test"])}


SCORES = ("dot", "general", "concat", "location")
WINDOWS = [("m", 3), ("m", 6), ("p", 3), ("p", 6)]
STUDY = Study(
    chapter="history/luong_attention",
    equal="captions and order of batches (by seed), sizes, input feeding, Adam, clipping, linear decay, updates, greedy decoding",
    arms={score: {"score": score} for score in SCORES}
    | {f"general, local-{kind}, {n}": {"local": kind, "window": n} for kind, n in WINDOWS},
    rates=(0.005, 0.01, 0.02, 0.04),
    measure=measure,
    metric="% of new captions translated exactly",
    budget=500,
    findings={
        "location": Finding(
            "A score that does not look at the words aligns worse than the dot product.",
            difference("aer", "location", "dot"),
            ("low", ">", 0),
        ),
    },
)

CHECKS = {
    "longer": Check(
        "seeds 100 to 107, 1,000 updates, three rates for each of the two scores",
        ("location",),
        range(100, 108),
        {"dot": {}, "location": {}},
        budget=1000,
        rates=(0.007, 0.014, 0.028),
    ),
    "lengths": Check(
        "captions of 4 to 6 words; three rates for each of the two scores; seeds 300 to 309",
        ("location",),
        range(300, 310),
        {"dot": {}, "location": {}},
        settings={"longest": 6},
        rates=(0.01, 0.015, 0.025),
    ),
}
