"""What does label smoothing do to samples and to the empty translation?"""

from functools import lru_cache

import torch

from experiments.harness import Check, Finding, Study
from experiments.statistics import difference
from experiments.tasks import SIZES, captions, learn
from transformer_lib.data.tokenizer import EOS, PAD
from transformer_lib.decoding.sampling import sample
from transformer_lib.models.transformer import Transformer, TransformerConfig


def sampled(model, rows, seed):
    """Percent of the sentences whose sample, at temperature 1, is the reference."""
    torch.manual_seed(seed)
    written = sample(model, rows.source, max_length=20), rows.target[:, 1:]
    lines, references = ([[token for token in row if token != PAD] for row in part.tolist()] for part in written)
    return 100 * sum(a == b for a, b in zip(lines, references, strict=True)) / len(lines)


@torch.no_grad()
def empty(model, rows):
    """The log-probability of an empty translation."""
    return model(rows.source, rows.target[:, :1]).log_softmax(-1)[:, 0, EOS].mean().item()


@lru_cache(16)  # two arms of a check train the same
def measure(seed, budget, smoothing, rate, times=1, n=2500, dropout=0.1):
    """A small Transformer on captions of 4 to 7 words."""
    data = captions(seed, n)
    options = SIZES | {"tie_embeddings": "target", "norm_first": True, "dropout": dropout}
    model, test = Transformer(TransformerConfig(*data.sizes, **options)), data.rows["test"]
    numbers = learn(model, data.rows, seed, rate, times * budget, smoothing=smoothing)
    return numbers | {"empty": empty(model, test), "sampled": sampled(model, test, seed)}


SHORT = {"no smoothing": {"smoothing": 0.0}, "smoothing of 0.1": {"smoothing": 0.1}}
PLAIN, SMOOTHED = (f"{name}, twice the updates" for name in SHORT)
STUDY = Study(
    chapter="translation/decoding",
    equal="captions, initialisation and order of batches (by seed), dropout of 0.1, Adam, clipping, linear decay, updates, samples' random numbers",
    arms=SHORT | {PLAIN: {"smoothing": 0.0, "times": 2}, SMOOTHED: {"smoothing": 0.1, "times": 2}},
    rates=(0.0025, 0.005, 0.01, 0.02),
    measure=measure,
    metric="right translations in percentage points, or the log-probability of the empty one in nats",
    budget=300,
    findings={
        "samples": Finding(
            "A model trained with label smoothing of 0.1 samples fewer right translations at temperature 1 than one trained without.",
            difference("sampled", "no smoothing", "smoothing of 0.1"),
            ("low", ">", 5),
            line="A model trained with label smoothing samples fewer right translations from its whole distribution.",
            earlier="We had blamed the captions, which have few right translations.",
        ),
        "empty": Finding(
            "Label smoothing of 0.1 makes the empty translation at least 2.7 times as probable.",
            difference("empty", SMOOTHED, PLAIN),
            ("low", ">", 1),
            line="Label smoothing makes the empty translation far more probable.",
        ),
    },
)

CHECKS = {
    "longer": Check(
        "seeds 100 to 109, 1,200 updates for all; the best of three rates for each of the two variants",
        ("samples", "empty"),
        range(100, 110),
        {name: {"times": 4} for name in STUDY.arms},
        rates=(0.0025, 0.005, 0.01),
    ),
    "overfitting": Check(
        "800 captions to learn from rather than 2,500, and no dropout rather than 0.1; 300 updates, or 600; three rates for each variant, seeds 200 to 209",
        ("samples", "empty"),
        range(200, 210),
        settings={"n": 800, "dropout": 0.0},
        rates=(0.0025, 0.005, 0.01),
    ),
}
