"""Does a translator without recurrence end up better than one with attention and recurrence, or does it only learn sooner?"""

from experiments.harness import Finding, Study
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
            "low > 10",
        ),
        "sooner": Finding(
            "At this size the Transformer is not ahead after 500 updates: it translates at most one point more captions exactly than a GRU with attention.",
            difference("exact", "Transformer", "GRU with attention"),
            "high < 1",
        ),
        "later": Finding(
            "After 1,000 updates, the two are within five points.",
            difference("exact", "Transformer, twice the updates", "GRU with attention, twice the updates", margin=5),
            "low > -5 and high < 5",
        ),
    },
)
