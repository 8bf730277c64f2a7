"""Does Muon train our Transformer to a lower loss than AdamW, if each has its own rate and enough updates?"""

from experiments.harness import Check, Finding, Study, plain
from experiments.statistics import difference
from experiments.tasks import captions, mean_loss, stream
from transformer_lib.plain.training import AdamW, Muon, hidden_matrices, train, warmup
from transformer_lib.plain.transformer import Transformer


def measure(seed, budget, muon, rate, times=1, n=2500, norm_first=True):
    """The loss on new captions after warm-up over a tenth of the updates and a straight line to zero."""
    data = captions(seed, n)
    sizes = {"d_model": 64, "n_heads": 4, "d_ff": 128, "encoder_layers": 2, "decoder_layers": 2}
    model, updates = Transformer(*data.sizes, **sizes, norm_first=norm_first), times * budget
    optimizers = [AdamW(model.parameters())]
    if muon:
        matrices = hidden_matrices(model)
        others = [p for p in model.parameters() if all(p is not matrix for matrix in matrices)]
        optimizers = [Muon(matrices), AdamW(others)]

    def schedule(update, updates):
        return warmup(update, updates, max(1, updates // 10))

    for _ in train(model, optimizers, stream(data.rows["train"], 64, seed), schedule, rate, updates):
        pass
    return {"valid": mean_loss(model, data.rows["valid"]), "loss": mean_loss(model, data.rows["test"])}


SHORT = {"AdamW": {"muon": False}, "Muon": {"muon": True}}
LONG = {f"{name}, four times the updates": settings | {"times": 4} for name, settings in SHORT.items()}
STUDY = Study(
    chapter="translation/training",
    equal="captions, initialisation and order of batches (by seed), pre-norm, dropout of 0.1, clipping at 1, smoothing 0.1, warm-up over a tenth of the updates, linear decay, no decay of weights; Muon's partner for embeddings, biases and norms is AdamW at the same rate",
    arms=SHORT | LONG,
    rates={
        **dict.fromkeys(("AdamW", "AdamW, four times the updates"), (0.003, 0.006, 0.012)),
        "Muon": (0.005, 0.01, 0.02, 0.04),
        "Muon, four times the updates": (0.0025, 0.005, 0.01, 0.02),
    },
    measure=measure,
    metric="nats a word, lower is better",
    budget=200,
    seeds=range(100, 105),
    findings={
        "short": Finding(
            "After 200 updates, and each at its best rate, our Transformer's loss on new captions is at least 0.1 nats lower with Muon than with AdamW.",
            difference("loss", "AdamW", "Muon"),
            ("low", ">", 0.1),
            line="In a short training, our small Transformer gets further with Muon than with AdamW.",
        ),
        "long": Finding(
            "After 800 updates, and each at its best rate, our Transformer's loss on new captions differs by less than 0.1 nats between Muon and AdamW.",
            difference("loss", *LONG),
            (("low", ">", -0.1), ("high", "<", 0.1)),
            line="Trained four times as long, our small Transformer ends level with Muon and with AdamW.",
        ),
    },
)

CHECKS = {
    "post-norm": Check(
        "post-norm rather than pre-norm; seeds 200 to 204",
        ("short", "long"),
        range(200, 205),
        plain(STUDY),
        settings={"norm_first": False},
    ),
    "more": Check(
        "5,000 captions rather than 2,500; seeds 300 to 304",
        ("short", "long"),
        range(300, 305),
        plain(STUDY),
        settings={"n": 5000},
    ),
}
