"""How long does a layer of self-attention take, beside a recurrent and a convolutional layer of the same width?"""

import torch
from torch import nn
from torch.utils.benchmark import Timer

from experiments.harness import Finding, Study
from experiments.statistics import ratio
from transformer_lib.models.multi_head import MultiHeadAttention

WIDTH, WINDOW, BATCH = 256, 3, 4


def layer(kind):
    """A function of vectors (B, S, D), and the multiplications that it makes for S words of one sentence."""
    D = WIDTH
    if kind == "GRU":
        gru = nn.GRU(D, D, batch_first=True)
        return lambda x: gru(x)[0], lambda S: 6 * S * D * D
    if kind == "convolution":
        convolution = nn.Conv1d(D, D, WINDOW, padding=WINDOW // 2)
        return lambda x: convolution(x.mT).mT, lambda S: WINDOW * S * D * D
    attention = MultiHeadAttention(D, 4)
    return lambda x: attention(x), lambda S: 4 * S * D * D + 2 * S * S * D


def measure(seed, budget, kind, S):
    """The median time of a forward pass over four sentences, on one thread; millions of multiplications."""
    f, multiplications = layer(kind)
    x = torch.randn(BATCH, S, WIDTH)
    with torch.inference_mode():
        f(x)
        timer = Timer("f(x)", globals={"f": f, "x": x})
        times = sorted(timer.timeit(1).median for _ in range(budget))
    return {"milliseconds": 1000 * times[budget // 2], "multiplications": BATCH * multiplications(S) / 1e6}


STUDY = Study(
    chapter="transformer/the_transformer",
    equal="width 256, four random sentences, one thread, inference mode; in turns, in one process",
    arms={
        f"{kind}, {S} words": {"kind": kind, "S": S} for S in (64, 1024) for kind in ("GRU", "convolution", "attention")
    },
    measure=measure,
    metric="milliseconds",
    seeds=range(9),
    budget=5,
    unit="timings",
    smoke=1,
    findings={
        "short": Finding(
            "For 64 words, a GRU layer takes at least twice as long as self-attention of the same width, on one core.",
            ratio("milliseconds", "GRU, 64 words", "attention, 64 words"),
            "low > 2",
        ),
        "arithmetic": Finding(
            "That is more than its share of the arithmetic.",
            ratio("multiplications", "GRU, 64 words", "attention, 64 words"),
            "high < 2",
        ),
        "long": Finding(
            "For 1,024 words, a convolution is faster than self-attention, whose work grows with the square of the length.",
            ratio("milliseconds", "attention, 1024 words", "convolution, 1024 words"),
            "low > 1",
        ),
    },
)
