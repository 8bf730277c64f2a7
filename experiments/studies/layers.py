"""How long does a layer of self-attention take, beside a recurrent layer of the same width?"""

import torch
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.benchmark import Timer
from torch.utils.flop_counter import FlopCounterMode

from experiments.harness import Check, Finding, Study
from experiments.statistics import ratio
from transformer_lib.models.multi_head import MultiHeadAttention

S = 64  # words


def layer(kind, D):
    """A function of vectors (B, S, D), and the multiplications that it makes for one sentence."""
    if kind == "GRU":
        gru = nn.GRU(D, D, batch_first=True)
        return lambda x: gru(x)[0], 6 * S * D * D
    attention = MultiHeadAttention(D, 4)
    return lambda x: attention(x), 4 * S * D * D + 2 * S * S * D


def count(f, x):
    """The multiplications as PyTorch counts them, without our formulas."""
    with FlopCounterMode(display=False) as counter, sdpa_kernel(SDPBackend.MATH), torch.no_grad():
        f(x)
    return counter.get_total_flops() / 2


def measure(seed, budget, kind, batch, width=256, training=False, counted=False):
    """The median time of a pass over a batch of sentences, on one thread; millions of multiplications in the forward pass."""
    f, multiplications = layer(kind, width)
    x = torch.randn(batch, S, width, requires_grad=training)
    with torch.inference_mode(not training):
        timer = Timer("f(x).sum().backward()" if training else "f(x)", globals={"f": f, "x": x})
        timer.timeit(1)
        times = sorted(timer.timeit(1).median for _ in range(budget))
    made = count(f, x) if counted else batch * multiplications
    return {"milliseconds": 1000 * times[budget // 2], "multiplications": made / 1e6}


STUDY = Study(
    chapter="transformer/the_transformer",
    equal="width 256, random sentences (four, or 32 where we say so), one thread, inference mode; in turns, in one process",
    arms={
        f"{kind}, 64 words{name}": {"kind": kind, "batch": batch}
        for name, batch in (("", 4), (", 32 sentences", 32))
        for kind in ("GRU", "attention")
    },
    measure=measure,
    metric="milliseconds",
    seeds=range(9),
    budget=5,
    unit="timings",
    smoke=1,
    findings={
        "short": Finding(
            "For four sentences of 64 words, a GRU layer takes at least twice as long as self-attention of the same width, on one core.",
            ratio("milliseconds", "GRU, 64 words", "attention, 64 words"),
            ("low", ">", 2),
            line="On one core, a GRU layer takes at least twice as long as self-attention for four sentences of 64 words.",
            earlier="An earlier version didn't say how many sentences. With 32 at once, the ratio falls to two.",
        ),
        "arithmetic": Finding(
            "For 64 words, a GRU layer makes less than twice as many multiplications as self-attention of the same width.",
            ratio("multiplications", "GRU, 64 words", "attention, 64 words"),
            ("high", "<", 2),
        ),
    },
)

CHECKS = {
    "wide": Check(
        "width 512 rather than 256, and the median of 11 timings rather than 5; repetitions 100 to 109; PyTorch's own counter counts the multiplications",
        ("short", "arithmetic"),
        range(100, 110),
        budget=11,
        settings={"width": 512, "counted": True},
    ),
    "training": Check(
        "a forward and a backward pass, as in training, rather than the forward pass alone; width 128 rather than 256; the median of 11 timings rather than 5; repetitions 200 to 211",
        ("short", "arithmetic"),
        range(200, 212),
        budget=11,
        settings={"width": 128, "training": True},
    ),
}
