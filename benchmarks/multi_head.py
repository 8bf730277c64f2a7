"""Multi-head attention beside PyTorch's own, and decoding with a cache beside decoding without: ratios from one run.

    python benchmarks/multi_head.py [--device cpu] [--repeats 20] [--record results/multi-head-cost.json]

Absolute times mean little on a shared machine; the ratio of two measurements that take turns means more. Each pair is
measured alternately and the medians are divided. The sizes are a batch of 32 sentences, width 256 and 8 heads.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from pathlib import Path

import torch
from recurrent import ratio
from torch import nn

from transformer_lib.data.files import write_json
from transformer_lib.models.masks import causal_mask
from transformer_lib.models.multi_head import MultiHeadAttention, record_attention
from transformer_lib.translation.evaluation import run_metadata

Step = Callable[[], object]
ROWS, WIDTH, HEADS = 32, 256, 8


def layers(device: str) -> tuple[MultiHeadAttention, nn.MultiheadAttention]:
    """Our layer, and PyTorch's with the same weights."""
    torch.manual_seed(0)
    ours = MultiHeadAttention(WIDTH, HEADS).to(device)
    theirs = nn.MultiheadAttention(WIDTH, HEADS, batch_first=True).to(device)
    with torch.no_grad():
        for mine, yours in zip(ours.parameters(), theirs.parameters(), strict=True):
            yours.copy_(mine)
    return ours, theirs


def training_pair(device: str, length: int, padded: bool) -> tuple[Step, Step]:
    """Forward and backward of self-attention: ours, and theirs."""
    ours, theirs = layers(device)
    inputs = torch.randn(ROWS, length, WIDTH, device=device)
    lengths = torch.randint(length // 2, length + 1, (ROWS,), device=device)
    words = torch.arange(length, device=device) < lengths[:, None] if padded else None

    def our_step() -> None:
        mask = None if words is None else words[:, None, None, :]
        ours(inputs, mask=mask).square().mean().backward()

    def their_step() -> None:
        hidden = None if words is None else ~words
        theirs(inputs, inputs, inputs, key_padding_mask=hidden, need_weights=False)[0].square().mean().backward()

    return our_step, their_step


def evaluation_pair(device: str, length: int) -> tuple[Step, Step]:
    """Self-attention without gradients: ours, and theirs on its own fast path."""
    ours, theirs = (layer.eval() for layer in layers(device))
    inputs = torch.randn(ROWS, length, WIDTH, device=device)
    return (
        torch.no_grad()(lambda: ours(inputs)),
        torch.no_grad()(lambda: theirs(inputs, inputs, inputs, need_weights=False)),
    )


def weights_pair(device: str, length: int) -> tuple[Step, Step]:
    """Forward and backward with the weights recorded, and without."""
    ours, _ = layers(device)
    inputs = torch.randn(ROWS, length, WIDTH, device=device)

    def recorded() -> None:
        with record_attention(ours):
            ours(inputs).square().mean().backward()

    return recorded, lambda: ours(inputs).square().mean().backward()


def writing_pair(device: str, length: int) -> tuple[Step, Step]:
    """One layer that reads a sentence word by word: all of it again at each word, and with a cache."""
    ours, _ = layers(device)
    inputs = torch.randn(ROWS, length, WIDTH, device=device)

    @torch.no_grad()
    def again() -> None:
        for end in range(1, length + 1):
            ours(inputs[:, :end], mask=causal_mask(end, device=device))

    @torch.no_grad()
    def cached() -> None:
        cache = ours.new_cache(ROWS)
        for t in range(length):
            ours(inputs[:, t : t + 1], cache=cache)

    return again, cached


def source_pair(device: str, length: int, beams: int = 4) -> tuple[Step, Step]:
    """One step of all beams that looks at the source: repeated and projected again, and kept and shared."""
    ours, _ = layers(device)
    asking = torch.randn(ROWS * beams, 1, WIDTH, device=device)
    source = torch.randn(ROWS, length, WIDTH, device=device)
    with torch.no_grad():
        kept = ours.keys_values(source)
    return (
        torch.no_grad()(lambda: ours(asking, source.repeat_interleave(beams, dim=0))),
        torch.no_grad()(lambda: ours(asking, kept)),
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--repeats", type=int, default=20)
    parser.add_argument("--record", type=Path, help="write a JSON record to this file")
    given = parser.parse_args()
    pairs = {
        "training, 20 words: ours / torch": training_pair(given.device, 20, padded=False),
        "training, 20 words with padding: ours / torch": training_pair(given.device, 20, padded=True),
        "training, 128 words: ours / torch": training_pair(given.device, 128, padded=False),
        "evaluation, 20 words: ours / torch": evaluation_pair(given.device, 20),
        "evaluation, 128 words: ours / torch": evaluation_pair(given.device, 128),
        "training, 128 words: weights recorded / not": weights_pair(given.device, 128),
        "writing 20 words: everything again / cache": writing_pair(given.device, 20),
        "writing 80 words: everything again / cache": writing_pair(given.device, 80),
        "a look of 4 beams at 20 words: repeated / kept": source_pair(given.device, 20),
    }
    rows = []
    for name, pair in pairs.items():
        rows.append({"measured": name, "time_ratio": round(ratio(*pair, given.device, given.repeats), 2)})
        print(json.dumps(rows[-1]), flush=True)
    if given.record is not None:
        command = f"python benchmarks/multi_head.py --record {given.record}"
        command += f" --device {given.device}" * (given.device != "cpu")
        content = {
            **run_metadata(command, [0]),
            "title": "Multi-head attention beside PyTorch's, and a cache beside none: ratios of time",
            "data": f"random numbers, {ROWS} sentences, width {WIDTH}, {HEADS} heads",
            "notes": f"threads: {torch.get_num_threads()}; medians of {given.repeats} steps in turns",
            "rows": rows,
        }
        write_json(given.record, content)


if __name__ == "__main__":
    main()
