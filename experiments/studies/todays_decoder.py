"""What is each part of today's decoder worth in a small model, and how far beyond its training text does it read?"""

import math

import torch
from torch import nn
from torch.nn import functional as F

from experiments.harness import Check, Finding, Study
from experiments.statistics import difference, level
from experiments.tasks import captions, fit, rise
from transformer_lib.models.gpt import GPT, GPTConfig
from transformer_lib.models.layers import FeedForward, LayerNorm
from transformer_lib.models.llama import Llama, LlamaConfig

WINDOW, READ = 64, 256  # letters in a row to train on, and to read
ROWS, WIDTH = 32, 64  # rows; numbers for a letter
SIZES = {"d_model": WIDTH, "n_heads": 4, "n_layers": 2, "dropout": 0.0}
SIZES |= {"max_length": READ, "tie_embeddings": True}


class Learned(Llama):
    """Today's decoder with a learned vector for each position in place of the rotation."""

    def __init__(self, config):
        super().__init__(config)
        self.positions = nn.Embedding(READ, WIDTH)
        nn.init.normal_(self.positions.weight, std=WIDTH**-0.5)  # as in GPT
        for layer in self.layers:
            hook = layer.self_attn.register_forward_pre_hook
            hook(lambda _, inputs: (inputs[0], torch.zeros_like(inputs[1])))

    def embed(self, tokens, positions):
        return super().embed(tokens, positions) + self.positions(positions)


def build(part, letters, base=10_000.0, **sizes):
    """Today's decoder with one part of GPT-2's, or with all of them; inner widths for about as many parameters."""
    sizes = SIZES | sizes
    if part == "all":
        return GPT(GPTConfig(letters, **sizes, d_ff=232))
    config = LlamaConfig(letters, rotary_base=base, n_kv_heads=2, d_ff=176, **sizes)
    model = Learned(config) if part == "positions" else Llama(config)
    for layer in model.layers:
        if part == "norm":
            layer.norm1, layer.norm2 = LayerNorm(WIDTH), LayerNorm(WIDTH)
            model.norm = LayerNorm(WIDTH)
        elif part == "gate":
            layer.feed_forward = FeedForward(WIDTH, 264, activation="gelu_tanh")
            layer.feed_forward.linear1.bias = layer.feed_forward.linear2.bias = None
    return model


def loss(model, batch):
    """Nats a letter."""
    return F.cross_entropy(model(batch[:, :-1]).flatten(0, 1), batch[:, 1:].flatten())


def losses(model, text, rows=100):
    """Bits for each position of windows of 256 letters."""
    windows = text.unfold(0, READ + 1, READ)[:rows]
    with torch.no_grad():
        nats = F.cross_entropy(model(windows[:, :-1]).mT, windows[:, 1:], reduction="none")
    return nats.mean(0) / math.log(2)


def measure(seed, budget, rate, part="", zeros=False, **options):
    """Bits a letter on new captions: where positions were trained, just beyond, and far beyond."""
    pairs = captions(seed, n=8000, longest=14, new=800).pairs
    texts = {name: "\n".join(pair.source for pair in some) for name, some in pairs.items()}
    ids = {letter: i for i, letter in enumerate(sorted(set("".join(texts.values()))))}
    texts = {name: torch.tensor([ids[letter] for letter in text]) for name, text in texts.items()}
    rows, draw = texts["train"].unfold(0, WINDOW + 1, 1), torch.Generator().manual_seed(seed)
    batches = (rows[torch.randint(len(rows), (ROWS,), generator=draw)] for _ in range(budget))
    model = build(part, len(ids), **options)
    if zeros:  # GPT-2's positions begin near zero
        nn.init.zeros_(model.positions.weight)
    fit(model, loss, batches, rate, budget, rise(30), betas=(0.9, 0.95))
    bits = losses(model, texts["test"])
    numbers = {f"bits at {at}": bits[at : at + 16].mean().item() for at in range(0, READ, 16)}
    numbers |= {"inside": bits[16:WINDOW].mean().item(), "far": bits[3 * WINDOW :].mean().item()}
    numbers["rise"] = numbers["far"] - numbers["inside"]
    return numbers | {"valid": losses(model, texts["valid"])[16:WINDOW].mean().item()}


KEPT = {"learned positions": "positions", "layer norm": "norm", "GELU": "gate"}
KEPT |= {"GPT-2's design": "all"}
STUDY = Study(
    chapter="descendants/llama",
    equal="captions and windows (by seed), width, layers, parameters (positions apart), Adam, warm-up of 30, decay, updates",
    arms={"today": {}} | {name: {"part": part} for name, part in KEPT.items()},
    rates=(0.004, 0.008, 0.016, 0.032),
    measure=measure,
    metric="bits a letter, lower is better",
    budget=400,
    findings={
        "jump": Finding(
            "In the first 16 letters beyond the training length, learned positions cost at least a bit more than rotary ones.",
            difference("bits at 64", "learned positions", "today"),
            ("low", ">", 1),
            line="Just beyond the training length, learned positions cost at least a bit a letter more than rotary ones.",
            earlier="That they cost more within the training length, too, fell after 1,000 updates.",
        ),
        "far": Finding(
            "At three to four times the training length, rotary positions (base 10,000 or more) cost at least a bit more than within it.",
            level("rise", "today"),
            ("low", ">", 1),
            line="At three times the training length, our models with rotary positions fail as well.",
        ),
    }
    | {
        part: Finding(
            f"With {name} instead of today's choice, the cost of a letter within the training length changes by less than 0.1 bits.",
            difference("inside", name, "today"),
            (("low", ">", -0.1), ("high", "<", 0.1)),
            line=f"{same}: in our small decoder, a letter costs the same to within a tenth of a bit.",
        )
        for name, part, same in (("layer norm", "norm", "Layer norm or RMS norm"), ("GELU", "gate", "GELU or SwiGLU"))
    },
)

LEARNED = {"learned positions": {}, "GPT-2's design": {}}
CHECKS = {
    "longer": Check(
        "1,000 updates; 0.016, the old rate, for today's decoder, and the best of two (0.008 and 0.016) for the others; seeds 100 to 105",
        ("jump", "far"),
        range(100, 106),
        {"today": {"rate": 0.016}, **LEARNED},
        budget=1000,
        rates=(0.008, 0.016),
    ),
    "zeros": Check(
        "the vectors of the learned positions begin as zeros, and rotary positions have a base of 500,000 rather than 10,000; 400 updates; 0.016, the old rate, for today's decoder, and the best of three for the others; seeds 200 to 207",
        ("jump", "far"),
        range(200, 208),
        {"today": {"rate": 0.016, "base": 500_000.0}} | {name: {"zeros": True} for name in LEARNED},
        rates=(0.008, 0.016, 0.032),
    ),
    "longer-layers": Check(
        "800 updates; the best of two rates (0.008 and 0.016); seeds 300 to 305",
        ("norm", "gate"),
        range(300, 306),
        {"today": {}, "layer norm": {}, "GELU": {}},
        budget=800,
        rates=(0.008, 0.016),
    ),
    "deeper": Check(
        "four layers rather than two, 400 updates; the best of two rates (0.008 and 0.016); seeds 400 to 405",
        ("norm", "gate"),
        range(400, 406),
        {"today": {}, "layer norm": {}, "GELU": {}},
        settings={"n_layers": 4},
        rates=(0.008, 0.016),
    ),
}
