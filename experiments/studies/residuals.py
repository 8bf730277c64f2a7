"""Why is a stack of thirty plain layers hard to train, if neither signal nor gradient vanishes before training?"""

from functools import partial

import torch
from torch import nn
from torch.nn import functional as F

from experiments.harness import Check, Finding, Study
from experiments.statistics import difference, ratio
from experiments.tasks import captions, decay, fit
from transformer_lib.data.tokenizer import BOS

SIZE = 4  # words before the one that is predicted


class Layer(nn.Module):
    """A feed-forward layer that starts in one of three ways: plain, or with a residual connection and a norm before or after."""

    def __init__(self, start, norm, width):
        super().__init__()
        inner = 4 * width
        self.up, self.down = nn.Linear(width, inner), nn.Linear(inner, width)
        self.place, self.norm = norm, nn.LayerNorm(width) if norm else None
        for linear in (self.up, self.down):
            nn.init.xavier_uniform_(linear.weight)
            nn.init.zeros_(linear.bias)
        if start == "He":
            nn.init.kaiming_normal_(self.up.weight)
            nn.init.normal_(self.down.weight, std=inner**-0.5)
        if start == "zero":  # the layer adds nothing
            nn.init.zeros_(self.down.weight)

    def forward(self, x):
        y = self.down(F.relu(self.up(self.norm(x) if self.place == "pre" else x)))
        if self.place == "post":
            return self.norm(x + y)
        return x + y if self.place else y


class NextWord(nn.Module):
    """Predicts a word from the four before it, through a stack of layers."""

    def __init__(self, words, depth=30, start="He", norm=None, width=32):
        super().__init__()
        self.embedding, self.inputs = nn.Embedding(words, width), nn.Linear(SIZE * width, width)
        self.layers = nn.Sequential(*(Layer(start, norm, width) for _ in range(depth)))
        self.norm, self.output = nn.LayerNorm(width), nn.Linear(width, words)

    def forward(self, context):
        x = self.inputs(self.embedding(context).flatten(1))
        return self.output(self.norm(self.layers(x)))


def contexts(sentences):
    """Every word of captions with the four words before it."""
    windows = F.pad(sentences, (SIZE, 0), value=BOS).unfold(1, SIZE + 1, 1).flatten(0, 1)
    return windows[windows[:, -1] > BOS]


def schedule(update, budget, cooled, warm):
    """The share of the peak rate: warm-up, then all of it, or a straight line to zero."""
    return min(1, update / (warm * budget)) * (decay(update, budget) if cooled else 1)


def loss(model, rows):
    """Nats a word."""
    return F.cross_entropy(model(rows[:, :-1]), rows[:, -1])


def measure(seed, budget, rate, of_loss=False, cooled=False, warm=0.1, side=0, **build):
    """The loss on training data, since this is about optimisation, and how large signal and gradient were at the start.

    The gradient is a random one, or that of the loss (`of_loss`). Captions are English or German (`side`).
    """
    data = captions(seed)
    train, valid = (contexts(data.rows[part][side]) for part in ("train", "valid"))
    model, draw = NextWord(data.sizes[side], **build), torch.Generator().manual_seed(seed)
    first = model.inputs(model.embedding(train[:500, :-1]).flatten(1)).detach().requires_grad_()
    last, top = model.layers(first), torch.randn(first.shape, generator=draw)
    if of_loss:
        value = F.cross_entropy(model.output(model.norm(last)), train[:500, -1])
        (top,) = torch.autograd.grad(value, last, retain_graph=True)
    (gradient,) = torch.autograd.grad(last, first, top)
    start = {"signal": (last.norm() / first.norm()).item(), "gradient": (gradient.norm() / top.norm()).item()}
    batches = (train[torch.randint(len(train), (64,), generator=draw)] for _ in range(budget))
    fit(model, loss, batches, rate, budget, partial(schedule, cooled=cooled, warm=warm))
    with torch.no_grad():
        return start | {"valid": loss(model, valid).item(), "loss": loss(model, train[:3000]).item()}


SIX, HE = "6 plain layers", "30 plain layers, He"
POST, POST_ZERO = "30 residual layers, post-norm", "30 residual layers, post-norm, zero"
PRE = "30 residual layers, pre-norm"
RATES = 0.0003, 0.001, 0.003, 0.01, 0.03
STUDY = Study(
    chapter="transformer/residuals_norms_feed_forward",
    equal="captions and batches (by seed), width, parameters of a layer (a norm besides, where there is one), Adam, a tenth of warm-up, updates",
    arms={
        SIX: {"depth": 6},
        HE: {},
        POST: {"start": "Xavier", "norm": "post"},
        POST_ZERO: {"start": "zero", "norm": "post"},
        PRE: {"start": "Xavier", "norm": "pre"},
    },
    rates={
        SIX: RATES,
        HE: (0.0001, *RATES),
        POST: (0.00025, 0.0005, 0.001, 0.002),
        POST_ZERO: (0.0005, 0.001, 0.002, 0.004),
        PRE: (*RATES, 0.1),
    },
    every_rate=(SIX, HE, POST, POST_ZERO, PRE),
    measure=measure,
    metric="training loss in nats a word, lower is better",
    budget=400,
    findings={
        "degradation": Finding(
            "Thirty plain layers that start with He's weights stay more than 0.2 nats above six in training loss, each at its best learning rate.",
            difference("loss", HE, SIX),
            ("low", ">", 0.2),
            line="Thirty plain layers with He's weights train worse than six, each at its best learning rate.",
        ),
        "not-vanishing": Finding(
            "Before training, the gradient at the bottom of thirty plain layers with He's weights is more than a tenth as large as with six.",
            ratio("gradient", HE, SIX),
            ("low", ">", 0.1),
            line="Thirty plain layers train worse than six, but not for lack of a gradient at the start: with He's weights, it's more than a tenth as large.",
            earlier="“Nothing gets through thirty plain layers” was true of Xavier's initial weights only.",
        ),
        "start": Finding(
            "Thirty layers with post-norm that start by adding nothing reach a training loss at least 0.3 nats below that of thirty that start with Xavier's weights.",
            difference("loss", POST, POST_ZERO),
            ("low", ">", 0.3),
            line="Thirty post-norm layers train better if each begins by adding nothing.",
        ),
        "below": Finding(
            "Thirty layers with residual connections and pre-norm reach a training loss at least 0.1 nats below that of six plain ones.",
            difference("loss", SIX, PRE),
            ("low", ">", 0.1),
            line="With residual connections and pre-norm, thirty layers reach a lower training loss than six plain ones.",
        ),
    },
)

LONGER = {SIX: (0.001, 0.002, 0.004), HE: (0.00015, 0.0003, 0.0006), PRE: (0.006, 0.015, 0.04)}
STARTS = {POST: (0.0003, 0.0006, 0.0012, 0.0024), POST_ZERO: (0.0006, 0.0012, 0.0024, 0.0048)}
WIDE = LONGER | {SIX: (0.001, 0.003, 0.006)}
CHECKS = {
    "longer": Check(
        "1,200 updates, three closer rates for each stack, seeds 100 to 106; the gradient is that of the loss rather than a random one",
        ("degradation", "not-vanishing", "below"),
        range(100, 107),
        {name: {} for name in LONGER},
        budget=1200,
        settings={"of_loss": True},
        rates=LONGER,
    ),
    "wide": Check(
        "layers of width 64 rather than 32; after its first tenth, the rate falls to zero in a straight line; layers with pre-norm start with He's weights, too; the gradient is that of the loss; three rates for each stack, seeds 300 to 308",
        ("degradation", "not-vanishing", "below"),
        range(300, 309),
        {name: {} for name in WIDE},
        settings={"width": 64, "cooled": True, "of_loss": True, "start": "He"},
        rates=WIDE,
    ),
    "start-longer": Check(
        "800 updates; after a warm-up of 80, the rate falls to zero in a straight line; four rates for each start, seeds 700 to 704",
        ("start",),
        range(700, 705),
        {name: {} for name in STARTS},
        budget=800,
        settings={"cooled": True},
        rates=STARTS,
    ),
    "start-warm": Check(
        "German captions rather than English ones, and three times the warm-up; four rates for each start, seeds 800 to 804",
        ("start",),
        range(800, 805),
        {name: {} for name in STARTS},
        settings={"warm": 0.3, "side": 1},
        rates=STARTS,
    ),
}
