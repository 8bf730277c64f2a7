"""Without warm-up, are a Transformer's first steps too long, or do they go in the wrong directions?"""

from functools import partial

import torch
from torch import nn

from experiments.harness import Check, Finding, Study
from experiments.statistics import difference
from experiments.studies.what_warms import spread
from experiments.tasks import Rows, captions, decay, mean_loss, stream
from transformer_lib.plain.training import AdamW, Muon, hidden_matrices, train
from transformer_lib.plain.transformer import Transformer

EARLY = 40  # updates in which the encoder's vectors are watched


class Crossed:
    """Steps in the directions that one optimizer takes, each matrix's as long as that of another optimizer."""

    def __init__(self, matrices, direction, length):
        self.matrices = list(matrices)
        self.copies = [[nn.Parameter(torch.zeros_like(p)) for p in self.matrices] for _ in range(2)]
        self.optimizers = [kind(copies) for kind, copies in zip((direction, length), self.copies, strict=True)]

    @torch.no_grad()
    def step(self, rate):
        """Move all matrices."""
        for copies, optimizer in zip(self.copies, self.optimizers, strict=True):
            for copy, p in zip(copies, self.matrices, strict=True):
                copy.zero_()
                copy.grad = p.grad
            optimizer.step(rate)
        for p, one, other in zip(self.matrices, *self.copies, strict=True):
            p += one * (other.norm() / (one.norm() + 1e-12))
            p.grad = None


class Part:
    """AdamW's steps with a part of their singular directions, from the strongest on."""

    def __init__(self, matrices, kind, keep):
        self.matrices = list(matrices)
        self.optimizer, self.keep = kind(self.matrices), keep

    @torch.no_grad()
    def step(self, rate):
        """Step, and drop the other directions."""
        self.optimizer.step(rate)
        for p in self.matrices:
            left, sizes, right = torch.linalg.svd(p, full_matrices=False)
            p.copy_(left[:, self.keep] * sizes[self.keep] @ right[self.keep])


class Times:
    """An optimizer with another rate."""

    def __init__(self, optimizer, times):
        self.optimizer, self.times = optimizer, times

    def step(self, rate):
        """Step with so many times the rate."""
        self.optimizer.step(self.times * rate)


def measure(seed, budget, direction, length, factor=1.0, rate=0.01, width=64, n=2500, betas=(0.9, 0.98)):
    """The loss on new captions, what wrong sources add to it, and the smallest spread on the way; no warm-up at all."""
    data = captions(seed, n)
    rows, test = data.rows["train"], data.rows["test"]
    sizes = {"d_model": width, "n_heads": 4, "d_ff": 2 * width, "encoder_layers": 2, "decoder_layers": 2}
    model, adam = Transformer(*data.sizes, **sizes), partial(AdamW, betas=betas)
    parts = {"strongest": [0], "without the strongest": range(1, width), "without the second": [0, *range(2, width)]}
    kinds = {"AdamW": adam, "Muon": Muon} | {
        name: partial(Part, kind=adam, keep=[*keep]) for name, keep in parts.items()
    }
    matrices = hidden_matrices(model)
    others = [p for p in model.parameters() if all(p is not matrix for matrix in matrices)]
    crossed = Crossed(matrices, kinds[direction], kinds[length])
    sixty, least = test.take(slice(60)), 1.0
    losses = train(model, [Times(crossed, factor), adam(others)], stream(rows, 64, seed), decay, rate, budget)
    for update, _ in enumerate(losses, start=1):
        if update <= EARLY:
            least = min(least, spread(model, sixty))
    loss = mean_loss(model, test)
    wrong = mean_loss(model, Rows(test.source.roll(7, 0), test.target)) - loss
    return {"loss": loss, "wrong": wrong, "least spread": least}


def arm(direction, length, **settings):
    """An arm's settings."""
    return {"direction": direction, "length": length} | settings


WITHOUT = "AdamW without its strongest direction"
STUDY = Study(
    chapter="translation/training",
    equal="captions, initialisation and order of batches (by seed), post-norm, dropout of 0.1, a rate that begins at its peak of 0.01 and falls along a straight line, clipping at 1, smoothing 0.1, no decay of weights; embeddings, biases and norms always take AdamW's steps",
    arms={
        "AdamW": arm("AdamW", "AdamW"),
        "AdamW's directions, Muon's lengths": arm("AdamW", "Muon"),
        "Muon's directions, AdamW's lengths": arm("Muon", "AdamW"),
        "Muon": arm("Muon", "Muon"),
        "Muon, a third of the rate": arm("Muon", "Muon", factor=1 / 3),
        "Muon, three times the rate": arm("Muon", "Muon", factor=3.0),
        WITHOUT: arm("without the strongest", "AdamW"),
        "AdamW without the second direction": arm("without the second", "AdamW"),
        "nothing but AdamW's strongest direction": arm("strongest", "AdamW"),
    },
    measure=measure,
    metric="nats a word, lower is better",
    budget=120,
    seeds=range(110, 115),
    findings={
        "muon": Finding(
            "Without warm-up, after 120 updates with a peak rate of 0.01, our post-norm Transformer's loss on new captions is at least a nat lower if Muon takes the hidden matrices than if AdamW takes everything.",
            difference("loss", "AdamW", "Muon"),
            ("low", ">", 1),
        ),
        "directions": Finding(
            "The same is true if Muon's steps are made as long as AdamW's, matrix by matrix and update by update.",
            difference("loss", "AdamW", "Muon's directions, AdamW's lengths"),
            ("low", ">", 1),
            line="Without warm-up, steps as long as AdamW's do our Transformer no such harm if they go in Muon's directions.",
        ),
        "lengths": Finding(
            "If AdamW's steps are made as long as Muon's instead, the loss is lower than with AdamW.",
            difference("loss", "AdamW", "AdamW's directions, Muon's lengths"),
            ("low", ">", 0),
        ),
        "rest": Finding(
            "But at steps of the same length as Muon's, AdamW's directions still end at least 0.3 nats higher.",
            difference("loss", "AdamW's directions, Muon's lengths", "Muon"),
            ("low", ">", 0.3),
        ),
        "strongest": Finding(
            "If AdamW's steps lose their strongest direction, and stay as long as before, the loss is at least a nat lower.",
            difference("loss", "AdamW", WITHOUT),
            ("low", ">", 1),
            line="Without warm-up, AdamW's steps do our Transformer far less harm without their strongest direction, at the same length.",
        ),
    },
)

LINES = {name: {} for name in ("AdamW", "Muon's directions, AdamW's lengths", "Muon")}
CHECKS = {
    "wider": Check(
        "96 numbers a vector rather than 64, 5,000 captions rather than 2,500; seeds 200 to 204",
        ("muon", "directions"),
        range(200, 205),
        LINES,
        settings={"width": 96, "n": 5000},
    ),
    "betas": Check(
        "Adam's betas are 0.9 and 0.999; seeds 500 to 502",
        ("strongest",),
        range(500, 503),
        {name: {} for name in ("AdamW", WITHOUT)},
        settings={"betas": (0.9, 0.999)},
    ),
    "without": Check(
        "96 numbers a vector rather than 64, 5,000 captions rather than 2,500, 240 updates rather than 120; seeds 400 to 404",
        ("strongest",),
        range(400, 405),
        {name: {} for name in ("AdamW", WITHOUT, "AdamW without the second direction")},
        budget=240,
        settings={"width": 96, "n": 5000},
    ),
    "longer": Check(
        "240 updates rather than 120, and Adam's betas are 0.9 and 0.999; seeds 300 to 304",
        ("muon", "directions"),
        range(300, 305),
        LINES,
        budget=240,
        settings={"betas": (0.9, 0.999)},
    ),
}
