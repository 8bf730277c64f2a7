"""Does warm-up protect a Transformer from Adam's first step, or does it buy a higher learning rate?"""

from functools import partial

from experiments.harness import Check, Finding, Study, plain
from experiments.statistics import difference
from experiments.tasks import SIZES, captions, decay, learn
from transformer_lib.models.transformer import Transformer, TransformerConfig


def schedule(update, budget, start, late=False):
    """The share of the peak rate at an update: one of three beginnings, then a straight line to zero.

    The line begins at the first update, so that update 41 of 200 has 0.8 of the peak; `late`: after forty at the peak.
    """
    if start == "warm-up" and update <= 40:
        return update / 40
    if start == "small first update" and update == 1:
        return 1 / 40
    return decay(max(update - 40, 1), budget - 40) if late else decay(update, budget)


def measure(seed, budget, start, rate, norm="post-norm", times=1, n=2500, late=False, betas=(0.9, 0.98)):
    """The loss on new captions."""
    data = captions(seed, n)
    sizes = SIZES | {"norm_first": norm == "pre-norm", "tie_embeddings": "target"}
    model, beginning = Transformer(TransformerConfig(*data.sizes, **sizes)), partial(schedule, start=start, late=late)
    return learn(model, data.rows, seed, rate, times * budget, beginning, betas, smoothing=0.1)


STARTS, NORMS = ("no warm-up", "warm-up"), ("post-norm", "pre-norm")
GRID = {f"{norm}, {start}": {"norm": norm, "start": start} for norm in NORMS for start in STARTS}
FIXED = {f"{start}, 0.01": {"start": start, "rate": 0.01} for start in (*STARTS, "small first update")}
TWICE = {f"{start}, twice the updates": {"start": start, "times": 2} for start in STARTS}
STUDY = Study(
    chapter="translation/training",
    equal="captions, initialisation and order of batches (by seed), dropout of 0.1, Adam (0.9, 0.98), clipping at 1, smoothing 0.1, linear decay",
    arms=GRID | FIXED | TWICE,
    rates=(0.002, 0.005, 0.01, 0.02),
    every_rate=tuple(GRID),
    measure=measure,
    metric="nats a word, lower is better",
    budget=200,
    findings={
        "gap": Finding(
            "At a peak rate of 0.01, our small post-norm Transformer learns far less without warm-up than with forty updates of it.",
            difference("loss", "no warm-up, 0.01", "warm-up, 0.01"),
            ("low", ">", 0.5),
            line="At a high peak rate, our post-norm Transformer learns far less without warm-up.",
        ),
        "first-step": Finding(
            "Adam's first step alone is not the reason: a first update forty times smaller gains less than 0.5 nats, where warm-up gains 2.3.",
            difference("loss", "no warm-up, 0.01", "small first update, 0.01"),
            ("high", "<", 0.5),
            line="Adam's first step alone isn't what warm-up protects our Transformer from.",
            earlier="We had said that it is, and had never tried a smaller first step.",
        ),
        "twice": Finding(
            "After 400 updates, and each at the best of the peak rates we tried, warm-up changes the loss of the post-norm Transformer by less than 0.1.",
            difference("loss", "no warm-up, twice the updates", "warm-up, twice the updates"),
            (("low", ">", -0.1), ("high", "<", 0.1)),
            line="After 400 updates, and each at its best rate, warm-up changes the loss of our Transformer by less than 0.1 nats.",
            earlier="“Warm-up is worth 0.3 nats” was true after 200 updates, and no longer after 400.",
        ),
    },
)

COLD, WARM = (0.0035, 0.005, 0.007, 0.01), (0.005, 0.007, 0.01, 0.014)
PEAKS = {name: COLD if "no warm-up" in name else WARM for name in plain(STUDY)}
CHECKS = {
    "longer": Check(
        "5,000 captions to learn from rather than 2,500. At the fixed peak rate of 0.01, 600 updates rather than 200; elsewhere the same numbers of updates, with the best of four closer peak rates (0.0035 to 0.01 without warm-up, 0.005 to 0.014 with it); seeds 100 to 105",
        ("gap", "first-step", "twice"),
        range(100, 106),
        plain(STUDY) | {name: {"times": 3} for name in plain(STUDY) if name.endswith("0.01")},
        settings={"n": 5000},
        rates=PEAKS,
    ),
    "late": Check(
        "the rate begins to fall only after forty updates, so that the variants differ in nothing but these and all reach their peak; Adam's betas are 0.9 and 0.999; the same updates; for the variants with twice the updates, the best of four peak rates (0.0035 to 0.01 without warm-up, 0.005 to 0.014 with it); seeds 200 to 207",
        ("gap", "first-step", "twice"),
        range(200, 208),
        plain(STUDY, *GRID),
        settings={"late": True, "betas": (0.9, 0.999)},
        rates=PEAKS,
    ),
}
