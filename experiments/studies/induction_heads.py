"""Can one layer of attention look up what followed a letter, and what do two layers need for it?"""

import torch
from torch import nn
from torch.nn import functional as F

from experiments.harness import Check, Finding, Study
from experiments.statistics import level, share
from transformer_lib.models.layers import SinusoidalPositions
from transformer_lib.models.multi_head import MultiHeadAttention

N, PAIRS = 16, 24  # letters, and as many digits; pairs in a prompt


def make_prompts(n, rng, pairs=PAIRS):
    """Random letters, each followed by its digit in a code that is new in every prompt; and whether it came before."""
    code = torch.randint(N, (n, N), generator=rng) + N
    letters = torch.randint(N, (n, pairs), generator=rng)
    tokens = torch.stack([letters, code.gather(1, letters)], 2).flatten(1)
    again = (letters[:, :, None] == letters[:, None]).tril(-1).any(2)
    return tokens, again


class ShiftedKeys(MultiHeadAttention):
    """Attention in which each position has the key of the position before it."""

    def attend(self, q, k, v, beams=1, **options):
        return super().attend(q, F.pad(k, (0, 0, 1, -1)), v, beams, **options)


class AttentionOnly(nn.Module):
    """Layers of causal self-attention with residual connections, and nothing else."""

    def __init__(self, n_layers, n_heads=1, layer=MultiHeadAttention, d_model=64):
        super().__init__()
        self.embedding, self.positions = nn.Embedding(2 * N, d_model), SinusoidalPositions(d_model)
        self.layers = nn.ModuleList(layer(d_model, n_heads) for _ in range(n_layers))
        self.norms = nn.ModuleList(nn.LayerNorm(d_model) for _ in range(n_layers + 1))
        self.output = nn.Linear(d_model, 2 * N)

    def forward(self, tokens, mask=None):
        """Logits of the next token; a mask closes connections of the first layer."""
        x = self.positions(self.embedding(tokens))
        for i, layer in enumerate(self.layers):
            x = x + layer(self.norms[i](x), causal=True, mask=None if i else mask)
        return self.output(self.norms[-1](x))


def hide(distance, length):
    """Every position may see all but the one at this distance before it."""
    positions = torch.arange(length)
    return (positions[:, None] - positions != distance)[None, None]


@torch.no_grad()
def accuracy(model, prompts, mask=None):
    """Percent of right digits after letters that have occurred before."""
    tokens, again = prompts
    best = model(tokens[:, :-1], mask)[:, ::2].argmax(-1)
    return 100 * (best == tokens[:, 1::2])[again].float().mean().item()


def measure(seed, budget, rate, pairs=PAIRS, **sizes):
    """Accuracy on new prompts during training, and at the end also with one connection of the first layer hidden."""
    model, rng = AttentionOnly(**sizes), torch.Generator().manual_seed(1000 + seed)
    adam = torch.optim.Adam(model.parameters(), rate)
    warm_up = torch.optim.lr_scheduler.LambdaLR(adam, lambda update: min(1, (update + 1) / 50))
    seeds = (torch.Generator().manual_seed(part + seed) for part in (99_000, 98_000))
    (valid, test), row = (make_prompts(200, new, pairs) for new in seeds), {}
    for update in range(1, budget + 1):
        tokens, _ = make_prompts(32, rng, pairs)
        logits = model(tokens[:, :-1])[:, ::2]
        loss = F.cross_entropy(logits.flatten(0, 1), tokens[:, 1::2].flatten())
        adam.zero_grad()
        loss.backward()
        adam.step()
        warm_up.step()
        if update % 50 == 0:
            row[f"after {update}"] = accuracy(model, test)
    row |= {"valid": accuracy(model, valid), "accuracy": accuracy(model, test)}
    return row | {f"hidden {gap}": accuracy(model, test, hide(gap, 2 * pairs - 1)) for gap in (1, 2, 3)}


TWO, SHIFTED = "two layers", "one layer, keys shifted by one token"
WIDE = "one wider layer with four heads"
RATES = (0.001, 0.003, 0.01)
ARMS = {
    WIDE: {"n_layers": 1, "n_heads": 4, "d_model": 88},  # as many parameters as two layers
    SHIFTED: {"n_layers": 1, "layer": ShiftedKeys},
    TWO: {"n_layers": 2},
}
STUDY = Study(
    chapter="descendants/induction_heads",
    equal="prompts (by seed), Adam, 50 updates of warm-up, batches of 32 prompts, width 64 and one head (but for the wider layer), updates",
    arms=ARMS,
    rates={WIDE: (*RATES, 0.03), SHIFTED: RATES, TWO: RATES},
    measure=measure,
    metric="% of right digits after letters that occurred before in the prompt",
    higher=True,
    budget=800,
    findings={
        "wide": Finding(
            "One layer with four heads and as many parameters as two layers gets less than 35 % right.",
            level("accuracy", WIDE),
            ("high", "<", 35),
            line="Within 2,400 updates, one layer of attention didn't learn to look up what followed a letter, even with as many parameters as two.",
        ),
        "shift": Finding(
            "One layer whose keys are shifted by one token learns to look up what followed a letter, with at least four of five seeds.",
            share("accuracy", SHIFTED, 90),
            ("value", ">=", 0.8),
            line="Shift the keys by one token, and a single layer learns to look it up.",
        ),
        "hidden": Finding(
            "With the previous token hidden from layer 1, two trained layers with one head each get less than 25 % right.",
            level("hidden 1", TWO),
            ("high", "<", 25),
            line="Hide the previous token from the first layer, and two trained layers with one head each can't look it up any more.",
            earlier="That two layers never learn it without that token fell: after 3,200 updates, four of six got more than 80 % right.",
        ),
    },
)

CHECKS = {
    "longer": Check(
        "2,400 updates; the best of three rates (0.0003 to 0.003); seeds 100 to 105",
        ("wide",),
        range(100, 106),
        {WIDE: {}},
        budget=2400,
        rates=(0.0003, 0.001, 0.003),
    ),
    "longer-two": Check(
        "1,600 updates; the best of two rates (0.001 and 0.003) for two layers, and 0.001, the old rate, with shifted keys; seeds 300 to 309",
        ("shift", "hidden"),
        range(300, 310),
        {"two layers": {}, SHIFTED: {"rate": 0.001}},
        budget=1600,
        rates=(0.001, 0.003),
    ),
    "heads": Check(
        "four heads in each layer, and eight in the wider one, 800 updates; the best of two rates (0.001 and 0.003; the wider layer and shifted keys: 0.001); seeds 200 to 206",
        ("wide", "shift"),
        range(200, 207),
        {TWO: {"n_heads": 4}, WIDE: {"n_heads": 8, "rate": 0.001}, SHIFTED: {"n_heads": 4, "rate": 0.001}},
        rates=(0.001, 0.003),
    ),
    "shorter-prompts": Check(
        "prompts of 12 pairs of a letter and a digit rather than 24, in training and in testing, for 800 updates; the best of four rates (0.001, 0.002, 0.003 and 0.005); seeds 500 to 509",
        ("hidden",),
        range(500, 510),
        {"two layers": {"pairs": 12}},
        rates=(0.001, 0.002, 0.003, 0.005),
    ),
}
