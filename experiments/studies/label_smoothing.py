"""What does label smoothing do to samples and to the empty translation?"""

from functools import lru_cache, partial

import torch

from experiments.harness import Check, Finding, Study
from experiments.statistics import difference
from experiments.tasks import SIZES, captions, fit, mean_loss, stream, translation_loss
from transformer_lib.data.tokenizer import BOS, EOS, PAD
from transformer_lib.decoding.greedy import collect_tokens
from transformer_lib.models.transformer import Transformer, TransformerConfig


def sampled(model, rows, seed):
    """Percent of the sentences whose sample, at temperature 1, is the reference."""
    torch.manual_seed(seed)
    written = collect_tokens(
        model, rows.source, choose=lambda scores: scores.softmax(-1).multinomial(1)[:, 0], max_length=20
    )
    lines = [[token for token in row if token != PAD] for row in written.tolist()]
    references = [[token for token in row if token not in (PAD, BOS)] for row in rows.target.tolist()]
    return 100 * sum(a == b for a, b in zip(lines, references, strict=True)) / len(lines)


@torch.no_grad()
def empty(model, rows):
    """The log-probability of an empty translation."""
    return model(rows.source, rows.target[:, :1]).log_softmax(-1)[:, 0, EOS].mean().item()


@lru_cache(16)  # two arms of a check train the same
def measure(seed, budget, smoothing, rate, times=1, n=2500, dropout=0.1):
    """A small Transformer on captions of 4 to 7 words."""
    data = captions(seed, n)
    config = TransformerConfig(*data.sizes, tie_embeddings="target", norm_first=True, dropout=dropout, **SIZES)
    model, loss = Transformer(config), partial(translation_loss, smoothing=smoothing)
    fit(model, loss, stream(data.rows["train"], 64, seed), rate, times * budget)
    numbers = {"valid": mean_loss(model, data.rows["valid"]), "loss": mean_loss(model, data.rows["test"])}
    return numbers | {"empty": empty(model, data.rows["test"]), "sampled": sampled(model, data.rows["test"], seed)}


SHORT = {"no smoothing": {"smoothing": 0.0}, "smoothing of 0.1": {"smoothing": 0.1}}
STUDY = Study(
    chapter="translation/decoding",
    equal="captions, initialisation and order of batches (by seed), dropout of 0.1, Adam, clipping, linear decay, updates, samples' random numbers",
    arms=SHORT | {f"{name}, twice the updates": arm | {"times": 2} for name, arm in SHORT.items()},
    rates=(0.0025, 0.005, 0.01, 0.02),
    measure=measure,
    metric="points, or nats",
    budget=300,
    findings={
        "samples": Finding(
            "A model trained with smoothing of 0.1 writes fewer right translations when it samples at temperature 1.",
            difference("sampled", "no smoothing", "smoothing of 0.1"),
            ("low", ">", 5),
            line="A model trained with label smoothing writes fewer right translations when it samples from the whole distribution.",
            earlier="We had blamed the captions, which have few right translations.",
        ),
        "empty": Finding(
            "Smoothing makes the empty translation at least e times as probable.",
            difference("empty", "smoothing of 0.1, twice the updates", "no smoothing, twice the updates"),
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
