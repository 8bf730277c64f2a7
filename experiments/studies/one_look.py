"""Why can't attention in one step read an If-Then program out of word vectors: no positions, or no word that depends on another?"""

from experiments.harness import Check, Finding, Study
from experiments.statistics import difference
from experiments.studies.latent_attention import accuracy, loss
from experiments.tasks import fit, recipes, stream
from transformer_lib.plain.latent_attention import AddPositions, IfThen, LatentAttention, OneStep, SelfAttention

KINDS = {
    "one step": (OneStep, None),
    "one step, positions": (OneStep, AddPositions),
    "one step, self-attention": (OneStep, SelfAttention),
    "latent attention": (LatentAttention, None),
}


def measure(seed, budget, kind, rate, width=64):
    """Accuracy on combinations of trigger and action that training never shows."""
    attention, encoder = KINDS[kind]
    (n_words, n_labels), train, valid, test = recipes(seed)
    model = IfThen(n_words, n_labels, attention(width, 4), encoder and encoder(width), width)
    fit(model, loss, stream(train, 64, seed), rate, budget, betas=(0.9, 0.999))
    return {"valid": accuracy(model, valid), "accuracy": accuracy(model, test)}


STUDY = Study(
    chapter="history/latent_attention",
    equal="recipes, their split and order (by seed), word vectors of width 64, dropout, Adam, decay, updates; not the parameters",
    arms={name: {"kind": name} for name in KINDS},
    rates=(0.005, 0.02, 0.08, 0.32),
    measure=measure,
    metric="% of new combinations right",
    higher=True,
    budget=500,
    smoke=10,
    findings={
        "positions": Finding(
            "On word vectors alone, attention in one step gets far fewer recipes right than latent attention, although positions are added to its words.",
            difference("accuracy", "latent attention", "one step, positions"),
            ("low", ">", 40),
            line="Attention in one step needs more than positions: it lacks weights of one word that depend on another.",
            earlier="On bare word vectors, latent attention seemed far ahead, but its rival had no positions.",
        ),
        "self-attention": Finding(
            "Over the outputs of one layer of self-attention, attention in one step gets more recipes right than latent attention does.",
            difference("accuracy", "one step, self-attention", "latent attention"),
            ("low", ">", 3),
        ),
    },
)

CHECKS = {
    "longer": Check(
        "seeds 100 to 104, twice the updates at half the learning rate",
        ("positions", "self-attention"),
        range(100, 105),
        {name: {"rate": 0.01} for name in KINDS},
        budget=1000,
    ),
    "wide": Check(
        "word vectors of width 128, seeds 200 to 204, rates tuned again",
        ("positions", "self-attention"),
        range(200, 205),
        {name: {} for name in KINDS},
        settings={"width": 128},
        rates={name: (0.005, 0.02, 0.08) for name in KINDS},
    ),
}
