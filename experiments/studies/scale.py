"""Does a model need the scale of attention for its small start, or for its small steps?"""

from experiments.harness import Check, Finding, Study, plain
from experiments.statistics import difference
from transformer_lib.plain.scale import learn


def measure(seed, budget, rate, start, steps, width=512):
    """The loss of the last twenty updates; "small" is what the factor 1 / sqrt(width) makes of queries or their steps."""
    size = {"small": width**-0.5, "large": 1.0}
    loss = learn(1.0, size[start], rate=rate, query_rate=size[steps], width=width, updates=budget, seed=seed)
    return {"loss": loss, "valid": loss}


SIZES = ("small", "large")
STUDY = Study(
    chapter="transformer/what_the_scale_does",
    equal="the task (sixteen of 32 names on a page), pages and initialisation (by seed) up to the length of the queries, Adam (0.9, 0.999), updates",
    arms={f"{start} start, {steps} steps": {"start": start, "steps": steps} for start in SIZES for steps in SIZES},
    rates=(0.003, 0.01, 0.03, 0.1, 0.3, 1.0),
    measure=measure,
    metric="nats, lower is better",
    budget=400,
    smoke=20,
    findings={
        "start": Finding(
            "After 400 updates, and each at its best rate, a phone book with keys of width 512 is learned from a small start with large steps, and not from a large start with small steps.",
            difference("loss", "large start, small steps", "small start, large steps"),
            ("low", ">", 0.5),
            line="The scale of attention matters for the start of a wide head, not for the size of its steps.",
        ),
    },
)

TRIED = ("large start, small steps", "small start, large steps")
TWO = plain(STUDY, "small start, small steps", "large start, large steps")
CHECKS = {
    "longer": Check(
        "seeds 100 to 107, 1,600 updates, the best of four rates for each (0.01 to 0.1 for the large start, 0.003 to 0.03 for the small one)",
        ("start",),
        range(100, 108),
        TWO,
        budget=1600,
        rates={TRIED[0]: (0.01, 0.02, 0.05, 0.1), TRIED[1]: (0.003, 0.006, 0.015, 0.03)},
    ),
    "narrower": Check(
        "keys of width 128; the best of four rates for each (0.01 to 0.2 for the large start, 0.01 to 0.1 for the small one); seeds 200 to 209",
        ("start",),
        range(200, 210),
        TWO,
        settings={"width": 128},
        rates={TRIED[0]: (0.01, 0.03, 0.1, 0.2), TRIED[1]: (0.01, 0.02, 0.05, 0.1)},
    ),
}
