"""Why does a small model with rotary positions fail beyond the length it was trained on, and does a window repair it?"""

import math

import torch
from torch.nn import functional as F

from experiments.harness import Check, Finding, Study
from experiments.statistics import level
from experiments.tasks import SMOKE, fit, rise
from transformer_lib.data.captions import make_captions
from transformer_lib.plain.llama import Llama

WINDOW, READ = 64, 256  # letters in a row to train on, and to read
TEXTS, CAPTIONS = (2, 2_000) if SMOKE else (60, 9_000)


def capped(layer, cap):
    """The layer's forward pass, in which no distance counts as larger than the cap; every key is seen."""

    def forward(x):
        qkv = F.linear(x, layer.in_proj_weight).unflatten(2, (-1, layer.K)).transpose(1, 2)
        q, k, v = qkv.split(layer.heads, dim=1)
        k, v = (part.repeat_interleave(layer.heads[0] // layer.heads[1], dim=1) for part in (k, v))
        t = torch.arange(x.shape[1])
        distance = t[:, None] - t
        (a, b), (c, d) = q.chunk(2, dim=-1), k.chunk(2, dim=-1)
        scores = torch.zeros(*q.shape[:3], len(t))
        for i in range(layer.K // 2):  # the dot product of a rotated pair depends on the distance alone
            angle = distance.clamp(max=cap) * layer.base ** (-2 * i / layer.K)
            (one, two), (three, four) = ((z[..., i, None] for z in (a, b)), (z[..., None, :, i] for z in (c, d)))
            scores += (one * three + two * four) * angle.cos() + (one * four - two * three) * angle.sin()
        weights = (scores / layer.K**0.5).masked_fill(distance < 0, -torch.inf).softmax(dim=-1)
        return layer.out_proj((weights @ v).transpose(1, 2).flatten(2))

    return forward


@torch.no_grad()
def bits(model, texts):
    """Bits a letter at each position."""
    return F.cross_entropy(model(texts[:, :-1]).mT, texts[:, 1:], reduction="none").mean(0) / math.log(2)


def measure(seed, budget, rate, layers=2, base=10_000.0):
    """The page's recipe; bits a letter inside, far beyond, and there with a window, alone, or with capped distances."""
    text = "\n".join(pair.source for pair in make_captions(CAPTIONS, seed=seed))
    ids = {letter: i for i, letter in enumerate(sorted(set(text)))}
    text = torch.tensor([ids[letter] for letter in text])
    rows, new = text[:-30_000].unfold(0, WINDOW + 1, 1), text[-30_000:].unfold(0, READ + 1, READ)
    valid, new = new[TEXTS:], new[:TEXTS]
    model = Llama(len(ids), 64, 4, 2, 176, layers, base=base, tied=True)
    batches = (rows[torch.randint(len(rows), (32,))] for _ in range(budget))

    def loss(model, batch):
        return F.cross_entropy(model(batch[:, :-1]).flatten(0, 1), batch[:, 1:].flatten())

    fit(model, loss, batches, rate, budget, rise(30), betas=(0.9, 0.95))
    whole, parts = bits(model, new), [layer.self_attn for layer in model.layers]
    numbers = {"valid": bits(model, valid)[16:WINDOW].mean().item(), "inside": whole[16:WINDOW].mean().item()}
    found = {"without": whole[3 * WINDOW :].mean().item()}
    for window in (WINDOW, WINDOW // 2, 2 * WINDOW):
        for part in parts:
            part.window = window
        found[f"window {window}"] = bits(model, new)[3 * WINDOW :].mean().item()
    for part in parts:
        part.window = None
    found["alone"] = bits(model, new[:, 3 * WINDOW :])[16:].mean().item()
    for cap in (WINDOW // 2, WINDOW - 1):
        for part in parts:
            part.forward = capped(part, cap)
        found[f"capped at {cap}"] = bits(model, new)[3 * WINDOW :].mean().item()
    # beside the same letters, read alone: other letters cost something else
    return numbers | found | {f"rise, {name}": value - found["alone"] for name, value in found.items()}


STUDY = Study(
    chapter="descendants/llama",
    equal="the trained model; only what it looks at, or what distances it is told, changes while it reads",
    arms={"Llama": {"rate": 0.01}},  # that of the page
    measure=measure,
    metric="bits a letter, lower is better",
    budget=400,
    findings={
        "window": Finding(
            "With a window of the 64 letters it was trained on, set only when it reads, a letter at three to four times that length costs at most 0.1 bits more than in the same 64 letters, read alone, where it counts from the 17th on.",
            level("rise, window 64", "Llama"),
            ("high", "<", 0.1),
            line="With a window of its training length, set only when it reads, a small rotary model reads four times as far.",
        ),
        "without": Finding(
            "Without a window, it costs at least a bit more.",
            level("rise, without", "Llama"),
            ("low", ">", 1),
        ),
        "capped": Finding(
            "With every key in sight, but no distance counted as larger than 32, it costs at most 0.1 bits more.",
            level("rise, capped at 32", "Llama"),
            ("high", "<", 0.1),
            withdrawn="In models with four layers and a base of 500,000, it cost up to 0.15 bits, of the 6.3 without a cap.",
        ),
    },
)

CHECKS = {
    "longer": Check(
        "800 updates; seeds 300 to 304",
        ("window", "without", "capped"),
        range(300, 305),
        budget=800,
    ),
    "deeper": Check(
        "four layers rather than two, and a base of 500,000; seeds 400 to 404",
        ("window", "without", "capped"),
        range(400, 405),
        settings={"layers": 4, "base": 500_000.0},
    ),
}
