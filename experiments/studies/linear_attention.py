"""Can linear attention that only adds learn to recall, or does it need the delta rule?"""

import torch
from torch import nn
from torch.nn import functional as F

from experiments.harness import Check, Finding, Study
from experiments.statistics import level
from experiments.tasks import decay
from transformer_lib.data.recall import N_KEYS, N_VALUES, make_recall
from transformer_lib.models.linear_attention import LinearAttention

LISTS = (2, 4, 8, 16, 24)  # pairs in a list


class Reader(nn.Module):
    """Reads pairs of key and value, then keys alone, and answers with a value."""

    def __init__(self, layer, width, d_model=64, layers=1):
        super().__init__()
        self.key, self.value = nn.Embedding(N_KEYS, d_model), nn.Embedding(N_VALUES + 1, d_model)
        for table in (self.key, self.value):
            nn.init.normal_(table.weight, std=d_model**-0.5)
        if layer == "gru":  # its state is as large as the matrix of the others
            self.layer = nn.GRU(d_model, width**2 // layers, layers, batch_first=True)
        else:
            self.layer = LinearAttention(d_model, rule=layer, d_key=width, d_value=width)
        self.answer = nn.Linear(width**2 // layers if layer == "gru" else d_model, N_VALUES)

    def forward(self, batch):
        x = self.key(batch.keys) + self.value(batch.values)
        return self.answer(self.layer(x)[0])[:, -batch.answers.shape[1] :]


@torch.no_grad()
def recalled(reader, seed):
    """Percent of the answers that are right in lists of 24 pairs."""
    batch = make_recall(256, 24, generator=torch.Generator().manual_seed(seed))
    return 100 * (reader(batch).argmax(-1) == batch.answers).float().mean().item()


def measure(seed, budget, layer, rate, times=1, width=16, layers=1, lists=32):
    """Train on lists of 2 to 24 pairs."""
    reader, budget = Reader(layer, width, layers=layers), times * budget
    adam, draw = torch.optim.Adam(reader.parameters()), torch.Generator().manual_seed(1000 + seed)
    for update in range(1, budget + 1):
        adam.param_groups[0]["lr"] = rate * min(update / 50, decay(update, budget))
        n_keys = LISTS[int(torch.randint(len(LISTS), (), generator=draw))]
        batch = make_recall(lists, n_keys, generator=draw)
        loss = F.cross_entropy(reader(batch).flatten(0, 1), batch.answers.flatten())
        adam.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(reader.parameters(), 1.0)
        adam.step()
    return {"valid": recalled(reader, 99_000 + seed), "recalled": recalled(reader, 98_000 + seed)}


STUDY = Study(
    chapter="descendants/linear_attention",
    equal="lists (by seed), size of the state (256 numbers), Adam, warm-up of 50 updates, linear decay, clipping, updates",
    arms={
        "plain sums": {"layer": "sum"},
        "delta rule": {"layer": "delta"},
        "GRU": {"layer": "gru"},
        "plain sums, four times the updates": {"layer": "sum", "times": 4},
    },
    rates=(0.003, 0.01, 0.03, 0.06),
    measure=measure,
    metric="% of 24 values recalled",
    higher=True,
    seeds=range(10),
    budget=600,
    smoke=3,
    findings={
        "gru": Finding(
            "A GRU with as many numbers in its state recalls less than a fifth of the values within the same updates.",
            level("recalled", "GRU"),
            ("high", "<", 20),
        ),
    },
)

CHECKS = {
    "more-seeds": Check(
        "seeds 100 to 119, 600 updates, three closer rates for plain sums; the GRU gets twice as many updates and three lower rates",
        ("gru",),
        range(100, 120),
        {"plain sums": {}, "GRU": {"times": 2}},
        rates={"plain sums": (0.02, 0.03, 0.045), "GRU": (0.001, 0.003, 0.01)},
    ),
    "more-lists": Check(
        "64 lists in each of the 600 updates rather than 32, and two layers of GRU with 128 numbers each; three rates for each, seeds 200 to 219",
        ("gru",),
        range(200, 220),
        {"plain sums": {}, "GRU": {"layers": 2}},
        settings={"lists": 64},
        rates={"plain sums": (0.01, 0.03, 0.06), "GRU": (0.003, 0.01, 0.03)},
    ),
}
