"""Does a translator without recurrence end up better than one with attention and recurrence, or does it only learn sooner?"""

from experiments.harness import Check, Finding, Study
from experiments.statistics import difference
from experiments.tasks import SIZES, captions, fit, mean_loss, right, rise, stream, translation_loss
from transformer_lib.models.bahdanau import BahdanauSeq2Seq
from transformer_lib.models.recurrent import RecurrentConfig, RecurrentSeq2Seq
from transformer_lib.models.transformer import Transformer, TransformerConfig

RECURRENT = {"d_model": 80, "d_hidden": 96, "dropout": 0.0}


def build(kind, sizes, **own):
    """Models of about 230,000 parameters."""
    if kind == "Transformer":
        return Transformer(TransformerConfig(*sizes, tie_embeddings="target", **SIZES | {"dropout": 0.0} | own))
    one = RecurrentSeq2Seq if kind == "GRU" else BahdanauSeq2Seq
    return one(RecurrentConfig(*sizes, **RECURRENT | own))


def measure(seed, budget, kind, rate, times=1, n=4000, **own):
    """How many new captions of 4 to 10 words are translated exactly, the longer half apart."""
    data, budget = captions(seed, n=n, longest=10), times * budget
    model = build(kind, data.sizes, **own)
    fit(model, translation_loss, stream(data.rows["train"], 64, seed), rate, budget, rise(60))
    test, numbers = data.rows["test"], {"valid": mean_loss(model, data.rows["valid"])}
    long = (test.source != 0).sum(1) > 8  # more than seven words, and the end
    numbers |= {"loss": mean_loss(model, test), "exact": right(model, test)}
    return numbers | {"exact, 8 to 10 words": right(model, test.take(long))}


KINDS = ("GRU", "GRU with attention", "Transformer")
STUDY = Study(
    chapter="transformer/the_transformer",
    equal="captions and order of batches (by seed), parameters (within 5 %), Adam (0.9, 0.98), clipping at 1, warm-up of 60, "
    "linear decay, updates, no dropout, no smoothing, greedy decoding",
    arms={kind: {"kind": kind} for kind in KINDS}
    | {f"{kind}, twice the updates": {"kind": kind, "times": 2} for kind in KINDS[1:]},
    rates=(0.004, 0.008, 0.016, 0.032),
    measure=measure,
    metric="% of new captions translated exactly",
    budget=500,
    smoke=2,
    findings={
        "attention": Finding(
            "The Transformer translates at least ten points more captions exactly than a GRU with a single vector.",
            difference("exact", "Transformer", "GRU"),
            ("low", ">", 10),
        ),
        "sooner": Finding(
            "At this size the Transformer is not ahead after 500 updates: it translates at most one point more captions exactly than a GRU with attention.",
            difference("exact", "Transformer", "GRU with attention"),
            ("high", "<", 1),
        ),
        "later": Finding(
            "After 1,000 updates, the two are within five points.",
            difference("exact", "Transformer, twice the updates", "GRU with attention, twice the updates", margin=5),
            (("low", ">", -5), ("high", "<", 5)),
            line="After 1,000 updates on captions, a small Transformer and a GRU with attention translate equally well.",
        ),
    },
)

STACKS = "Transformer", "Transformer, twice the updates"
WITH_ATTENTION = "GRU with attention", "GRU with attention, twice the updates"
CHECKS = {
    "longer": Check(
        "2,000 updates; the best of three rates for the GRU, and 0.008, the old rate, for the Transformer; seeds 100 to 105",
        ("attention",),
        range(100, 106),
        {"GRU": {}, "Transformer": {"rate": 0.008}},
        budget=2000,
        rates=(0.008, 0.016, 0.024),
    ),
    "pre-norm": Check(
        "a Transformer with pre-norm, and the best of three rates; the GRU without attention reads the source in reverse, and both GRUs have the old rate, 0.016; seeds 200 to 206",
        ("attention", "sooner", "later"),
        range(200, 207),
        {"GRU": {"reverse_source": True, "rate": 0.016}}
        | {name: {"rate": 0.016} for name in WITH_ATTENTION}
        | {name: {"norm_first": True} for name in STACKS},
        rates=(0.004, 0.008, 0.016),
    ),
    "more-captions": Check(
        "8,000 captions rather than 4,000; the best of three closer rates for each with 500 updates, and with 1,000 the old ones; seeds 300 to 307",
        ("sooner", "later"),
        range(300, 308),
        {STACKS[0]: {}, STACKS[1]: {"rate": 0.008}, WITH_ATTENTION[0]: {}, WITH_ATTENTION[1]: {"rate": 0.016}},
        settings={"n": 8000},
        rates={STACKS[0]: (0.006, 0.008, 0.012), WITH_ATTENTION[0]: (0.012, 0.016, 0.024)},
    ),
}
