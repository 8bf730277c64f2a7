"""Are four heads better than one, or only faster to learn?"""

import torch
from torch import nn
from torch.nn import functional as F

from experiments.harness import Check, Finding, Study
from experiments.statistics import difference
from experiments.tasks import captions, decay, fit
from transformer_lib.data.tokenizer import PAD
from transformer_lib.models.multi_head import MultiHeadAttention

DATA = {"n": 8000, "shortest": 8, "longest": 14, "new": 1000}


class Tagger(nn.Module):
    """Gives every English word its German form: one layer of attention and a small network."""

    def __init__(self, words, labels, n_heads, d_model=64, **widths):
        super().__init__()
        self.words, self.positions = nn.Embedding(words, d_model), nn.Embedding(16, d_model)
        for table in (self.words, self.positions):
            nn.init.normal_(table.weight, std=0.3)
        self.attention = MultiHeadAttention(d_model, n_heads, **widths)
        self.network = nn.Sequential(nn.Linear(d_model, 4 * d_model), nn.ReLU(), nn.Linear(4 * d_model, d_model))
        self.norm1, self.norm2, self.norm3 = (nn.LayerNorm(d_model) for _ in range(3))
        self.output = nn.Linear(d_model, labels)

    def forward(self, words):
        x = self.words(words) + self.positions.weight[: words.shape[1]]
        x = x + self.attention(self.norm1(x), mask=(words != PAD)[:, None, None])
        return self.output(self.norm3(x + self.network(self.norm2(x))))


def clause(pair):
    """What happens, without the reason."""
    return pair.source.split(" because ")[0]


def labelled(data, part):
    """The words, and for each the German word that translates it, or PAD. New captions have new main clauses."""
    known = {clause(pair) for pair in data.pairs["train"]} if part != "train" else ()
    rows = [row for row, pair in enumerate(data.pairs[part]) if clause(pair) not in known]
    words = data.rows[part].source[rows]
    labels = torch.full_like(words, PAD)
    for row, pair in enumerate(data.pairs[part][row] for row in rows):
        target = data.de.encode(pair.target)
        for i, j in reversed(pair.alignment):
            labels[row, i] = target[j]
    return words, labels


def loss(model, batch):
    """Nats a word, over the words that have a translation."""
    words, labels = batch
    return F.cross_entropy(model(words).flatten(0, 1), labels.flatten(), ignore_index=PAD)


def schedule(update, budget):
    """A tenth of warm-up, and then a straight line to zero."""
    return min(10 * update / budget, 1.1 * decay(update, budget))


def measure(seed, budget, n_heads, rate, **widths):
    """How many of the pronouns and of all words get the right German form, in percent."""
    data = captions(seed, **DATA)
    train, valid, test = (labelled(data, part) for part in ("train", "valid", "test"))
    draw = torch.Generator().manual_seed(seed)
    picks = (torch.randint(len(train[0]), (64,), generator=draw) for _ in range(budget))
    batches = ((train[0][rows], train[1][rows]) for rows in picks)
    model = fit(Tagger(*data.sizes, n_heads, **widths), loss, batches, rate, budget, schedule)
    with torch.no_grad():
        right = model(test[0]).argmax(-1) == test[1]
        pronouns = (test[0] == data.en.encode("it")[0]) & (test[1] != PAD)
        shares = {"pronouns": right[pronouns], "words": right[test[1] != PAD]}
        shares = {name: 100 * hits.float().mean().item() for name, hits in shares.items()}
        return shares | {"valid": loss(model, valid).item()}


STUDY = Study(
    chapter="transformer/multi_head_attention",
    equal="captions (the new ones have main clauses that no training caption has) and batches (by seed), width and so (but for the narrow keys) parameters, Adam, a tenth of warm-up, linear decay, updates",
    arms={
        "one head": {"n_heads": 1},
        "one head, narrow keys": {"n_heads": 1, "d_key": 16, "d_value": 64},
        "four heads": {"n_heads": 4},
    },
    rates=(0.01, 0.02, 0.04),
    measure=measure,
    metric="% of pronouns in the right form",
    budget=500,
    findings={
        "faster": Finding(
            "Within 500 updates, and each at its own learning rate, four heads get more pronouns right than one.",
            difference("pronouns", "four heads", "one head"),
            ("low", ">", 0),
            line="Four heads learn the pronouns sooner than one head of the same size.",
            earlier="That one head catches up with four times the updates fell when both learned from 2,000 captions instead of 8,000.",
        ),
    },
)

CHECKS = {
    "more-seeds": Check(
        "seeds 100 to 104, 500 updates, three rates",
        ("faster",),
        range(100, 105),
        arms={"one head": {}, "four heads": {}},
    ),
    "wide": Check(
        "vectors of width 128, seeds 200 to 204, 400 updates, rates tuned again",
        ("faster",),
        range(200, 205),
        arms={"one head": {}, "four heads": {}},
        budget=400,
        settings={"d_model": 128},
        rates={"one head": (0.005, 0.01, 0.02), "four heads": (0.005, 0.01, 0.02)},
    ),
}
