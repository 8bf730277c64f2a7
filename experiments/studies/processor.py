"""What limits a training step on a processor: memory or arithmetic, and does bfloat16 help?"""

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.benchmark import Timer

from experiments.harness import Check, Finding, Study
from experiments.statistics import ratio
from experiments.tasks import Rows
from transformer_lib.models.transformer import Transformer, TransformerConfig


def summing(what, n):
    """An addition that reads one array twice or two arrays, and writes a third."""
    a, b, out = (torch.ones(n) for _ in range(3))
    return (lambda: torch.add(a, a if what == "one array" else b, out=out)), {
        "gigabytes": (3 if what == "two arrays" else 2) * 4 * n / 1e9
    }


def product(what, n):
    """A matrix product in one of two precisions."""
    a = torch.ones(n, n, dtype=getattr(torch, what.split()[1]))
    return (lambda: a @ a), {"gflop": 2 * n**3 / 1e9}


def step(what, n):
    """An update of a small Transformer, with or without autocast."""
    sizes = {"d_model": n, "n_heads": 4, "d_ff": 4 * n, "n_encoder_layers": 2, "n_decoder_layers": 2}
    model = Transformer(TransformerConfig(2000, 2000, **sizes))
    adam, draw = torch.optim.Adam(model.parameters()), torch.Generator().manual_seed(0)
    batch = Rows(*(torch.randint(4, 2000, (32, 20), generator=draw) for _ in range(2)))

    def update():
        adam.zero_grad()
        with torch.autocast("cpu", torch.bfloat16, enabled="bfloat16" in what):
            logits = model(batch.source, batch.target[:, :-1])
        F.cross_entropy(logits.float().flatten(0, 1), batch.target[:, 1:].flatten()).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        adam.step()

    return update, {}


def measure(seed, budget, kind, what, n):
    """The median of `budget` timings; one thread."""
    n = n if budget > 1 else max(8, n // 8)
    f, work = {"sum": summing, "product": product, "step": step}[kind](what, n)
    f()
    times = sorted(Timer("f()", globals={"f": f}).timeit(1).median for _ in range(budget))
    seconds = times[budget // 2]
    rates = {f"{key} a second": value / seconds for key, value in work.items()}
    return {"milliseconds": 1000 * seconds} | rates


ARMS = {what: {"kind": "sum", "what": what, "n": 20_000_000} for what in ("one array", "two arrays")}
for precision in ("float32", "bfloat16"):
    ARMS[f"product, {precision}"] = {"kind": "product", "what": f"product {precision}", "n": 1024}
    ARMS[f"step, {precision}"] = {"kind": "step", "what": f"step {precision}", "n": 256}
STUDY = Study(
    chapter="scale/what_training_costs",
    equal="one thread, the same arrays and batches; in turns, in one process",
    arms=ARMS,
    measure=measure,
    metric="milliseconds",
    seeds=range(9),
    budget=7,
    unit="timings",
    smoke=1,
    findings={
        "emulated": Finding(
            "On our processors without instructions for bfloat16, a step of our small Transformer takes longer in bfloat16.",
            ratio("milliseconds", "step, bfloat16", "step, float32"),
            ("low", ">", 1),
            line="On our processors without instructions for bfloat16, bfloat16 slowed training down.",
            earlier="“Five times slower” was true of one processor. On another, it was three times.",
        ),
    },
)

STEPS = ("step, float32", "step, bfloat16")
CHECKS = {
    "narrow": Check(
        "a model of width 16 rather than 256, so that little of a step is matrix products; the median of 31 timings rather than 7; ten rounds, 300 to 309, rather than nine",
        ("emulated",),
        range(300, 310),
        {name: {"n": 16} for name in STEPS},
        budget=31,
    ),
    "wide": Check(
        "a model of width 512 rather than 256, so that most of a step is large matrix products and Adam's arrays are larger; the median of three timings rather than seven; five rounds, 400 to 404, rather than nine",
        ("emulated",),
        range(400, 405),
        {name: {"n": 512} for name in STEPS},
        budget=3,
    ),
}
