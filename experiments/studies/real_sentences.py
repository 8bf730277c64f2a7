"""On real sentences, what does each step from one vector to the Transformer bring?"""

from functools import partial

from experiments.harness import Check, Finding, Study
from experiments.statistics import difference
from experiments.tasks import SIZES, fit, mean_loss, photos, rise, stream, translation_loss
from transformer_lib.models.bahdanau import BahdanauSeq2Seq
from transformer_lib.models.luong import LuongConfig, LuongSeq2Seq
from transformer_lib.models.recurrent import RecurrentConfig, RecurrentEncoder, RecurrentSeq2Seq
from transformer_lib.models.transformer import Transformer, TransformerConfig


class BothWays(RecurrentSeq2Seq):
    """One vector, by an encoder that reads in both directions."""

    def __init__(self, config):
        super().__init__(config)
        self.encoder = RecurrentEncoder(config, bidirectional=True)


def build(kind, sizes, dropout, hidden=128):
    """Models of about half a million parameters."""
    recurrent = {"d_model": 64, "d_hidden": hidden, "dropout": dropout}
    if kind == "Transformer":
        options = {"dropout": dropout, "tie_embeddings": "target", "norm_first": True}
        return Transformer(TransformerConfig(*sizes, **options, **SIZES))
    if kind.startswith("Luong"):
        return LuongSeq2Seq(LuongConfig(*sizes, **recurrent, score="dot" if "dot" in kind else "general"))
    one = {"one vector": RecurrentSeq2Seq, "one vector, read both ways": BothWays, "Bahdanau": BahdanauSeq2Seq}[kind]
    return one(RecurrentConfig(*sizes, **recurrent))


def measure(seed, budget, kind, rate, dropout=0.2, size=64, hidden=128, drawn=("de", "en", 10_000)):
    """BLEU of 500 new sentences."""
    data = photos(seed, *drawn)
    model, batches = build(kind, data.sizes, dropout, hidden), stream(data.rows["train"], size, seed)
    fit(model, partial(translation_loss, smoothing=0.1), batches, rate, budget, rise(100))
    return {"valid": mean_loss(model, data.rows["valid"]), "bleu": data.bleu(model)}


KINDS = ("one vector", "one vector, read both ways", "Bahdanau", "Luong", "Luong, dot product", "Transformer")
STUDY = Study(
    chapter="translation/translating_real_sentences",
    equal="pairs (10,000 of at most 12 words from Multi30k, by seed), subwords, batches, dropout 0.2, smoothing 0.1, Adam, clipping at 1, warm-up of 100, decay, updates, the 500 test sentences",
    arms={kind: {"kind": kind} for kind in KINDS},
    rates=dict.fromkeys(KINDS[:3], (0.012, 0.024, 0.048)) | dict.fromkeys(KINDS[3:], (0.006, 0.012, 0.024)),
    measure=measure,
    metric="BLEU",
    budget=800,
    smoke=2,
    findings={
        "attention": Finding(
            "After 800 updates, Bahdanau's attention is at least three points ahead of a single vector, even from a bidirectional encoder.",
            difference("bleu", "Bahdanau", "one vector, read both ways"),
            ("low", ">", 3),
            line="After 800 updates on real sentences, attention is at least three BLEU ahead of a single vector.",
        ),
        "luong": Finding(
            "After 800 updates, Bahdanau's and Luong's attention are within two points of each other.",
            difference("bleu", "Luong", "Bahdanau", margin=2),
            (("low", ">", -2), ("high", "<", 2)),
        ),
        "dot": Finding(
            "After 800 updates, Luong's attention with the dot product is at least two points ahead of his general score.",
            difference("bleu", "Luong, dot product", "Luong"),
            ("low", ">", 2),
            withdrawn="With states of 64 numbers and batches of 24 pairs, runs of both scores differ so much that no lead shows.",
        ),
        "transformer": Finding(
            "After 800 updates, the Transformer is ahead of Bahdanau's attention.",
            difference("bleu", "Transformer", "Bahdanau"),
            ("low", ">", 0),
        ),
    },
)

VECTOR = "one vector, read both ways"
CHECKS = {
    "wider": Check(
        "from English to French, 5,000 pairs, 800 updates of 32 pairs rather than 64; the single vector and its decoder's states have 256 numbers rather than 128; this model gets the better of two rates (0.012 and 0.024), Bahdanau's has 0.016; seeds 100 to 104",
        ("attention",),
        range(100, 105),
        {VECTOR: {"hidden": 256}, "Bahdanau": {"rate": 0.016}},
        settings={"drawn": ("en", "fr", 5000), "size": 32},
        rates=(0.012, 0.024),
    ),
    "longer": Check(
        "from English to German, 1,200 updates of 32 pairs rather than 800 of 64, but from 3,000 pairs, so that a model sees each of them 13 times rather than 5; dropout of 0.1; a rate of 0.016 for both; seeds 200 to 204",
        ("attention",),
        range(200, 205),
        {VECTOR: {"rate": 0.016}, "Bahdanau": {"rate": 0.016}},
        budget=1200,
        settings={"drawn": ("en", "de", 3000), "size": 32, "dropout": 0.1},
    ),
    "narrow": Check(
        "states of 64 numbers rather than 128; 800 updates of 24 pairs rather than 64, from 5,000 pairs rather than 10,000; dropout of 0.1; the general score gets the best of three other rates (0.009, 0.016 and 0.03), chosen on two seeds, the dot product has 0.012; seeds 400 to 404",
        ("dot",),
        range(400, 405),
        {"Luong": {}, "Luong, dot product": {"rate": 0.012}},
        settings={"hidden": 64, "drawn": ("de", "en", 5000), "size": 24, "dropout": 0.1},
        rates={"Luong": (0.009, 0.016, 0.03)},
    ),
}
