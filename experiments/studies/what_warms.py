"""Which of the two does warm-up warm: the weights, or the means that Adam keeps?"""

import torch

from experiments.harness import Check, Finding, Study, plain
from experiments.statistics import difference
from experiments.tasks import PAD, Rows, captions, mean_loss, stream
from transformer_lib.plain.training import AdamW, train, warmup
from transformer_lib.plain.transformer import Transformer

MARKS = (1, 2, 3, 5, 8, 12, 16, 20, 25, 30, 40, 42, 45, 50, 60, 70, 80, 100, 120)


def gentle(length, low=0.3):
    """A low rate for so many updates, and then the whole peak at once, which falls along a straight line."""
    return lambda update, updates: low if update <= length else (updates + 1 - update) / (updates - length)


SCHEDULES = {f"{length} gentle updates": gentle(length) for length in (0, 5, 12, 24, 40)}
SCHEDULES |= {
    "a small first update": lambda update, updates: 1 / 60 if update == 1 else gentle(0)(update, updates),
    "only the weights": gentle(40),
    "only Adam": gentle(40, 0.0),
    "warm-up": warmup,
}


@torch.no_grad()
def spread(model, rows):
    """The share of the squared length of the encoder's vectors that is left without their mean."""
    seen = rows.source != PAD
    memory = model.eval().encoder(model.embed(rows.source, model.source_embedding), seen[:, None, None])[seen]
    return ((memory - memory.mean(0)).square().sum() / memory.square().sum()).item()


def measure(seed, budget, start, rate=0.01, width=64, n=2500, layers=2):
    """The loss on new captions, what wrong sources add to it, and the spread on the way."""
    data, numbers = captions(seed, n), {}
    rows, test = data.rows["train"], data.rows["test"]
    sizes = {"d_model": width, "n_heads": 4, "d_ff": 2 * width, "encoder_layers": layers, "decoder_layers": layers}
    model = Transformer(*data.sizes, **sizes)
    optimizers, sixty = [AdamW(model.parameters())], test.take(slice(60))
    losses = train(model, optimizers, stream(rows, 64, seed), SCHEDULES[start], rate, budget)
    for update, _ in enumerate(losses, start=1):
        if update in MARKS:
            numbers[f"spread {update}"] = spread(model, sixty)
        if start == "only the weights" and update == 40:
            optimizers[0] = AdamW(model.parameters())  # whose means are fresh
    numbers["loss"] = mean_loss(model, test)
    others = Rows(test.source.roll(7, 0), test.target)
    return numbers | {"wrong": mean_loss(model, others) - numbers["loss"]}


STUDY = Study(
    chapter="translation/training",
    equal="captions, initialisation and order of batches (by seed), dropout of 0.1, AdamW (0.9, 0.98), no decay of weights, a peak of 0.01, clipping at 1, smoothing 0.1",
    arms={start: {"start": start} for start in SCHEDULES},
    measure=measure,
    metric="nats a word, lower is better",
    budget=120,
    seeds=range(4),
    findings={
        "weights": Finding(
            "After 120 updates, a Transformer whose weights alone were warm is at least 0.2 nats better than one for which only Adam was warm.",
            difference("loss", "only Adam", "only the weights"),
            ("low", ">", 0.2),
            withdrawn="A wider model with twice the captions fails with warm weights alone, too: it ends at 3.3 to 4.8 nats, against 1.2 to 1.4 with both.",
        ),
        "both": Finding(
            "After 120 updates, a Transformer whose weights alone were warm is at least 0.2 nats worse than one that kept its means, too.",
            difference("loss", "only the weights", "40 gentle updates"),
            ("low", ">", 0.2),
        ),
    },
)

CHECKS = {
    "wider": Check(
        "96 numbers a vector rather than 64, 5,000 captions rather than 2,500; seeds 100 to 105",
        ("weights", "both"),
        range(100, 106),
        plain(
            STUDY,
            *(start for start in SCHEDULES if start not in ("only the weights", "only Adam", "40 gentle updates")),
        ),
        settings={"width": 96, "n": 5000},
    ),
}
