"""How long does a layer of self-attention take, beside a recurrent and a convolutional layer of the same width?"""

import torch
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.benchmark import Timer
from torch.utils.flop_counter import FlopCounterMode

from experiments.harness import Finding, Study
from experiments.statistics import ratio
from transformer_lib.models.multi_head import MultiHeadAttention

WINDOW, BATCH = 3, 4
MANY = ", 32 sentences"


def layer(kind, D):
    """A function of vectors (B, S, D), and the multiplications that it makes for S words of one sentence."""
    if kind == "GRU":
        gru = nn.GRU(D, D, batch_first=True)
        return lambda x: gru(x)[0], lambda S: 6 * S * D * D
    if kind == "convolution":
        convolution = nn.Conv1d(D, D, WINDOW, padding=WINDOW // 2)
        return lambda x: convolution(x.mT).mT, lambda S: WINDOW * S * D * D
    attention = MultiHeadAttention(D, 4)
    return lambda x: attention(x), lambda S: 4 * S * D * D + 2 * S * S * D


def count(f, x):
    """The multiplications as PyTorch counts them, without our formulas."""
    with FlopCounterMode(display=False) as counter, sdpa_kernel(SDPBackend.MATH), torch.no_grad():
        f(x)
    return counter.get_total_flops() / 2


def measure(seed, budget, kind, S, batch=BATCH, width=256, training=False, counted=False):
    """The median time of a pass over a batch of sentences, on one thread; millions of multiplications in the forward pass."""
    f, multiplications = layer(kind, width)
    x = torch.randn(batch, S, width, requires_grad=training)
    with torch.inference_mode(not training):
        timer = Timer("f(x).sum().backward()" if training else "f(x)", globals={"f": f, "x": x})
        timer.timeit(1)
        times = sorted(timer.timeit(1).median for _ in range(budget))
    made = count(f, x) if counted else batch * multiplications(S)
    return {"milliseconds": 1000 * times[budget // 2], "multiplications": made / 1e6}


STUDY = Study(
    chapter="transformer/the_transformer",
    equal="width 256, random sentences (four, or 32 where we say so), one thread, inference mode; in turns, in one process",
    arms={
        f"{kind}, {S} words": {"kind": kind, "S": S} for S in (64, 1024) for kind in ("GRU", "convolution", "attention")
    }
    | {f"{kind}, 64 words{MANY}": {"kind": kind, "S": 64, "batch": 32} for kind in ("GRU", "attention")},
    measure=measure,
    metric="milliseconds",
    seeds=range(9),
    each="round",
    budget=5,
    unit="timings",
    smoke=1,
    findings={
        "short": Finding(
            "For four sentences of 64 words, a GRU layer takes at least twice as long as self-attention of the same width, on one core.",
            ratio("milliseconds", "GRU, 64 words", "attention, 64 words"),
            "low > 2",
        ),
        "arithmetic": Finding(
            "For 64 words, a GRU layer makes less than twice as many multiplications as self-attention of the same width.",
            ratio("multiplications", "GRU, 64 words", "attention, 64 words"),
            "high < 2",
        ),
        "batch": Finding(
            "With 32 sentences of 64 words at once, the GRU layer takes less than twice as long as self-attention.",
            ratio("milliseconds", f"GRU, 64 words{MANY}", f"attention, 64 words{MANY}"),
            "high < 2",
            withdrawn="The first run left it open: twice as long fits as well.",
        ),
        "long": Finding(
            "For four sentences of 1,024 words, a convolution over three words is faster than self-attention of the same width, on one core.",
            ratio("milliseconds", "attention, 1024 words", "convolution, 1024 words"),
            "low > 1",
        ),
    },
)
