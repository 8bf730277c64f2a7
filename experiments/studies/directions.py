"""Do thirty plain layers fail because the directions get lost in which inputs differ?"""

from functools import lru_cache

import torch
from torch import Tensor
from torch.nn import functional as F

from experiments.harness import TUNING, Check, Finding, Study
from experiments.statistics import difference
from experiments.studies.residuals import contexts
from experiments.tasks import captions, decay

WIDTH, INNER = 32, 128
GROUPS = TUNING, range(5), range(100, 105), range(200, 205)  # seeds that are trained side by side


def first_weights(start, seeded):
    """Both matrices of a layer, (INNER, WIDTH) and (WIDTH, INNER)."""

    def normal(*size):
        return torch.randn(*size, generator=seeded)

    if start in ("rotation", "mirrored"):  # linear, because relu(z) - relu(-z) = z
        up, down = normal(INNER // 2, WIDTH) * (INNER / 2) ** -0.5, normal(WIDTH, INNER // 2) * WIDTH**-0.5
        if start == "rotation":  # the layer only turns its input, or reflects it
            up = torch.linalg.qr(up)[0]
            down = torch.linalg.qr(normal(WIDTH, WIDTH))[0] @ up.T
        return torch.cat([up, -up]), torch.cat([down, -down], 1)
    if start == "He":
        return normal(INNER, WIDTH) * (2 / WIDTH) ** 0.5, normal(WIDTH, INNER) * INNER**-0.5
    bound = (6 / (WIDTH + INNER)) ** 0.5  # Xavier's
    up, down = ((2 * torch.rand(size, generator=seeded) - 1) * bound for size in ((INNER, WIDTH), (WIDTH, INNER)))
    return up, down * 0 if start == "zero" else down


def uniform(rows, columns, seeded):
    """As a linear layer of PyTorch starts."""
    return (2 * torch.rand(rows, columns, generator=seeded) - 1) * columns**-0.5


class Stacks:
    """Models that predict a word from the four before it, side by side: every weight has an axis for the model first."""

    def __init__(self, words, seeds, depth=30, start="He", residual=False, norm=False, centred=False):
        self.residual, self.norm, self.centred = residual, norm, centred
        models = []
        for seed in seeds:
            seeded = torch.Generator().manual_seed(seed)
            layers = [first_weights(start, seeded) for _ in range(depth)]
            made = {"embedding": torch.randn(words, WIDTH, generator=seeded)}
            made["inputs"] = uniform(WIDTH, 4 * WIDTH, seeded)
            made["output"] = uniform(words, WIDTH, seeded)
            made["ups"], made["downs"] = map(torch.stack, zip(*layers, strict=True))
            made |= {"inside": torch.zeros(depth, INNER), "shifts": torch.zeros(depth, WIDTH)}
            made |= {"gains": torch.ones(depth + 1, WIDTH), "biases": torch.zeros(depth + 1, WIDTH)}
            models.append(made | {"begin": torch.zeros(WIDTH), "end": torch.zeros(words)})
        self.weights = {name: torch.stack([one[name] for one in models]) for name in models[0]}
        for weight in self.weights.values():
            weight.requires_grad_()

    def normed(self, x, layer):
        """The layer norm of a layer, or the last one."""
        gain, bias = (self.weights[name][:, layer, None] for name in ("gains", "biases"))
        return F.layer_norm(x, [WIDTH]) * gain + bias

    def through(self, context):
        """What comes out of the last layer: contexts (M, B, 4) become vectors (M, B, WIDTH)."""
        w = self.weights
        words = torch.stack([table[rows] for table, rows in zip(w["embedding"], context, strict=True)]).flatten(2)
        x = words @ w["inputs"].mT + w["begin"][:, None]
        for layer in range(w["ups"].shape[1]):
            up, down, inside, shift = (w[name][:, layer] for name in ("ups", "downs", "inside", "shifts"))
            y = F.relu(x @ up.mT + inside[:, None]) @ down.mT + shift[:, None]
            x = x + y if self.residual else y
            x = x - x.mean(1, keepdim=True) if self.centred else x
            x = self.normed(x, layer) if self.norm else x
        return x

    def losses(self, rows):
        """Nats a word of each model on its own rows, (M, B, 5)."""
        w = self.weights
        logits = self.normed(self.through(rows[..., :4]), -1) @ w["output"].mT + w["end"][:, None]
        nats = F.cross_entropy(logits.flatten(0, 1), rows[..., 4].flatten(), reduction="none")
        return nats.view(rows.shape[:2]).mean(1)


@torch.no_grad()
def directions(x: Tensor) -> Tensor:
    """In how many directions the vectors of each model differ, (M, B, D) to (M,)."""
    variances = torch.linalg.svdvals(x - x.mean(1, keepdim=True)).square()
    return variances.sum(1).square() / variances.square().sum(1)


@torch.no_grad()
def cosines(x: Tensor) -> Tensor:
    """The mean cosine of two vectors of each model."""
    towards, n = F.normalize(x, dim=2), x.shape[1]
    return ((towards @ towards.mT).sum((1, 2)) - n) / (n * n - n)


@lru_cache(None)
def trained(seeds, rates, budget, side, text, cooled, **build):
    """The numbers of every seed with every rate: Adam, a tenth of warm-up, gradients of each model clipped at 1."""
    torch.set_flush_denormal(True)
    data = captions(text)
    train, valid = (contexts(data.rows[part][side]) for part in ("train", "valid"))
    pairs = [(seed, rate) for seed in seeds for rate in rates]
    stacks = Stacks(data.sizes[side], [seed for seed, _ in pairs], **build)
    first = stacks.through(train[:500, :4].expand(len(pairs), -1, -1))
    numbers = {"directions": directions(first), "cosine": cosines(first)}
    weights, batches = list(stacks.weights.values()), [torch.Generator().manual_seed(1000 + seed) for seed, _ in pairs]
    means, squares = ([torch.zeros_like(weight) for weight in weights] for _ in range(2))
    for update in range(1, budget + 1):
        rows = torch.stack([train[torch.randint(len(train), (64,), generator=one)] for one in batches])
        loss = stacks.losses(rows).sum()
        gradients = torch.autograd.grad(loss, weights, allow_unused=True, materialize_grads=True)
        length = sum(gradient.flatten(1).square().sum(1) for gradient in gradients).sqrt()
        rate = torch.tensor([rate for _, rate in pairs]) * min(1, 10 * update / budget)
        rate = rate * decay(update, budget) if cooled else rate
        with torch.no_grad():
            for weight, gradient, mean, square in zip(weights, gradients, means, squares, strict=True):
                each = (-1,) + (1,) * (weight.dim() - 1)
                gradient = gradient / length.clamp(min=1).view(each)
                mean.lerp_(gradient, 0.1)
                square.lerp_(gradient.square(), 0.02)
                step = mean / (1 - 0.9**update) / ((square / (1 - 0.98**update)).sqrt() + 1e-9)
                weight -= rate.view(each) * step
    with torch.no_grad():
        for name, rows in (("valid", valid), ("loss", train[:3000])):
            numbers[name] = stacks.losses(rows.expand(len(pairs), -1, -1))
    return {pair: {key: value[i].item() for key, value in numbers.items()} for i, pair in enumerate(pairs)}


def measure(seed, budget, rate, side=0, text=0, cooled=False, **build):
    """The loss on training data, and in how many directions outputs differ before training."""
    seeds = next(group for group in GROUPS if seed in group)
    rates = next(grid for grid in GRIDS if rate in grid) if seed in TUNING else (rate,)
    return trained(tuple(seeds), rates, budget, side, text, cooled, **build)[seed, rate]


SLOW, MIDDLE, FAST = (0.0001, 0.00025, 0.0006), (0.0002, 0.0005, 0.0012), (0.001, 0.003, 0.009)
WARM = 0.0008, 0.0018, 0.0045
COOL, HOT = (0.0004, 0.0009, 0.002, 0.0044), (0.0007, 0.0015, 0.0033, 0.0072)  # where the rate falls to zero
GRIDS = SLOW, MIDDLE, WARM, FAST, COOL, HOT
SIX, HE, CENTRED = "6 plain layers", "30 plain layers, He", "30 plain layers, He, the mean subtracted"
MIRRORED, ROTATION = "30 plain layers, mirrored, Gaussian", "30 plain layers, mirrored, rotation"
NORM, SUM_ZERO = "30 layers, norm alone", "30 layers, sum alone, zero"
STUDY = Study(
    chapter="transformer/residuals_norms_feed_forward",
    equal="captions, batches (by seed), width, parameters of a layer (a norm besides, where there is one), Adam, a tenth of warm-up, updates",
    arms={
        SIX: {"depth": 6},
        HE: {},
        CENTRED: {"centred": True},
        MIRRORED: {"start": "mirrored"},
        ROTATION: {"start": "rotation"},
        NORM: {"norm": True},
        SUM_ZERO: {"start": "zero", "residual": True},
    },
    rates={
        SIX: FAST,
        HE: SLOW,
        CENTRED: MIDDLE,
        MIRRORED: SLOW,
        ROTATION: MIDDLE,
        NORM: SLOW,
        SUM_ZERO: WARM,
    },
    measure=measure,
    metric="training loss in nats a word, lower is better",
    budget=400,
    findings={
        "kept": Finding(
            "Thirty plain layers that start as rotations, so that inputs go on differing in all directions, reach a training loss more than 0.2 nats below thirty with He's weights, each at its best learning rate.",
            difference("loss", HE, ROTATION),
            ("low", ">", 0.2),
            line="Thirty plain layers train better from random weights that keep the directions in which inputs differ.",
        ),
        "control": Finding(
            "Mirrored weights that are Gaussian, so that layers start linear but lose directions, end above rotations.",
            difference("loss", MIRRORED, ROTATION),
            ("low", ">", 0),
        ),
        "common": Finding(
            "Thirty plain layers with He's weights that subtract the mean of the batch after every layer, and with it the direction that all outputs share, end more than 0.2 nats above those that start as rotations.",
            difference("loss", CENTRED, ROTATION),
            ("low", ">", 0.2),
        ),
        "norm": Finding(
            "A layer norm after each of thirty plain layers with He's weights lowers the loss by less than 0.2 nats.",
            difference("loss", HE, NORM),
            ("high", "<", 0.2),
        ),
        "sum": Finding(
            "Thirty layers with residual connections but no norm, each starting by adding nothing, end less than 0.1 nats above six plain layers, or below them.",
            difference("loss", SUM_ZERO, SIX),
            ("high", "<", 0.1),
        ),
    },
)

TWICE = {HE: SLOW, MIRRORED: SLOW, ROTATION: MIDDLE}
CHECKS = {
    "longer": Check(
        "German captions rather than English ones, 800 updates, rates tuned again; seeds 100 to 104",
        ("kept", "control"),
        GROUPS[2],
        {name: {} for name in TWICE},
        budget=800,
        settings={"side": 1},
        rates=TWICE,
    ),
    "cooled": Check(
        "other captions, and after a tenth of warm-up the rate falls to zero in a straight line; rates tuned again; seeds 200 to 204",
        ("kept", "control"),
        GROUPS[3],
        {name: {} for name in TWICE},
        settings={"text": 100, "cooled": True},
        rates={HE: COOL, MIRRORED: COOL, ROTATION: HOT},
    ),
}
