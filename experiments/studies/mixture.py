"""What does a mixture of experts gain over one feed-forward layer, if each has its own learning rate?"""

import math
import random
from functools import lru_cache

import torch
from torch.nn import functional as F

from experiments.harness import TUNING, Check, Finding, Study, plain
from experiments.statistics import difference
from experiments.tasks import SMOKE
from transformer_lib.data.everyday import fill_patterns
from transformer_lib.plain.experts import Experts, SwiGLU
from transformer_lib.plain.gpt import GPT, train

LENGTH, WIDTH, EXPERT = 48, 64, 32  # letters in a row, numbers for a letter, inside an expert
N, VISITED = 16, 2  # experts
NEW = 20 if SMOKE else 1500  # sentences to tune on, and as many to test on


class Balanced(Experts):
    """Experts whose biases move at each update, as the page does it."""

    def route(self, x):
        scores, visits = super().route(x)
        if self.training:
            self.balance(visits, 0.01)
        return scores, visits


@lru_cache(1)
def letters():
    """The text of GPT's page as numbers: to learn from, to tune and to test on, and how many different letters it has."""
    found = {pair.source for pair in fill_patterns()}
    sentences = sorted(text for text in found if len(text) in range(12, 41) and text[-1] in ".!?")
    random.Random(0).shuffle(sentences)
    number = {letter: i for i, letter in enumerate(sorted(set("\n".join(sentences))))}
    parts = sentences[2 * NEW :], sentences[:NEW], sentences[NEW : 2 * NEW]
    ids = [torch.tensor([number[letter] for letter in "\n".join(part)]) for part in parts]
    return *ids, len(number)


@torch.no_grad()
def bits(model, ids):
    """Bits a letter, in windows that don't overlap."""
    windows = ids.unfold(0, LENGTH + 1, LENGTH)
    nats = sum(
        F.cross_entropy(model(part[:, :-1]).mT, part[:, 1:], reduction="sum").item() for part in windows.split(100)
    )
    return nats / (len(windows) * LENGTH) / math.log(2)


def measure(seed, budget, rate, inside=0, layers=1):
    """Bits a letter on new sentences; the feed-forward layer is one network of this width, or a mixture of experts."""
    torch.set_flush_denormal(True)
    text, valid, test, n_letters = letters()
    model = GPT(n_letters, WIDTH, n_heads=4, n_layers=layers, max_length=LENGTH)
    for layer in model.layers:
        layer.feed_forward = SwiGLU(WIDTH, inside) if inside else Balanced(WIDTH, EXPERT, N, VISITED)
    updates = max(1, budget // 3) if seed in TUNING else budget  # rates are chosen after a third of the updates
    train(model, text, updates, rate)
    model.eval()
    parameters = sum(one.numel() for one in model.parameters())
    return {"valid": bits(model, valid), "bits": bits(model, test), "parameters": parameters}


ACTIVE, TOTAL = "one network, as many active", "one network, as many in all"
STUDY = Study(
    chapter="descendants/experts",
    equal="text (the sentences of GPT's page but 3,000, letter by letter), GPT of one layer and width 64 with four heads, all of its feed-forward layers SwiGLU; 16 experts of width 32, of which a letter visits two, one network of width 64 (as many parameters at work), or one of width 512 (as many in all); 20 windows of 48 letters an update, Adam (0.9, 0.98), warm-up of 50 and a straight line to zero, clipping at 1; the experts' biases move by 0.01; rates were chosen after 1,000 updates on a seed of its own",
    arms={ACTIVE: {"inside": VISITED * EXPERT}, "mixture": {}, TOTAL: {"inside": N * EXPERT}},
    rates=(0.006, 0.012, 0.024),
    measure=measure,
    metric="bits a letter, lower is better",
    budget=3000,
    smoke=3,
    seeds=range(1, 4),
    tuning=TUNING[:1],
    findings={
        "gain": Finding(
            "With as many parameters at work for a letter, a mixture of 16 small experts costs at least 0.02 bits a letter less than one network.",
            difference("bits", ACTIVE, "mixture"),
            ("low", ">", 0.02),
        ),
        "behind": Finding(
            "With one layer and as many parameters in all, one network that every letter visits costs less than the mixture.",
            difference("bits", "mixture", TOTAL),
            ("low", ">", 0),
        ),
    },
)

CHECKS = {
    "deeper": Check(
        "two layers rather than one, 1,500 updates rather than 3,000; seeds 100 to 102",
        ("gain", "behind"),
        range(100, 103),
        plain(STUDY),
        budget=1500,
        rates=(0.012, 0.024, 0.048),
        settings={"layers": 2},
    ),
}
