"""Self-attention beside a GRU and a convolution of the same width: time of a training step, as ratios of one run.

    python benchmarks/self_attention.py [--device cpu] [--repeats 9] [--record results/self-attention-cost.json]

Forward and backward pass of one layer, for sentences of several lengths. The layers take turns, and each time is the
median of the repeats, of which short sentences get more. Ratios are means over the seeds, with their standard
deviation. The recurrent and the convolutional layer are those of PyTorch. Multiply-adds follow the formulas that
chapter 8 counts, for one sentence, forward.
"""

from __future__ import annotations

import argparse
import shlex
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from transformer_lib.data.files import write_json
from transformer_lib.models.self_attention import SelfAttention
from transformer_lib.translation.evaluation import run_metadata

WIDTH, WINDOW, BATCH = 256, 3, 4
LENGTHS = (16, 64, 256, 1024, 2048)
SEEDS = (0, 1, 2)


def multiply_adds(n: int) -> dict[str, int]:
    """What one layer multiplies and adds for one sentence of n words."""
    square = n * WIDTH * WIDTH
    return {"self_attention": 3 * square + 2 * n * n * WIDTH, "gru": 6 * square, "convolution": WINDOW * square}


def layers(device: str) -> dict[str, Callable[[Tensor], Tensor]]:
    """One layer of each kind, from (B, S, D) to (B, S, D)."""
    attention = SelfAttention(WIDTH).to(device)
    gru = nn.GRU(WIDTH, WIDTH, batch_first=True).to(device)
    convolution = nn.Conv1d(WIDTH, WIDTH, WINDOW, padding=WINDOW // 2, bias=False).to(device)
    return {
        "self_attention": lambda x: attention(x)[0],
        "gru": lambda x: gru(x)[0],
        "convolution": lambda x: convolution(x.transpose(1, 2)).transpose(1, 2),
    }


def seconds(layer: Callable[[Tensor], Tensor], inputs: Tensor) -> float:
    """The time of one training step, with the device's queue emptied before and after."""
    if inputs.is_cuda:
        torch.cuda.synchronize()
    started = time.perf_counter()
    layer(inputs).square().mean().backward()
    if inputs.is_cuda:
        torch.cuda.synchronize()
    return time.perf_counter() - started


def medians(n: int, device: str, repeats: int) -> dict[str, float]:
    """The median time of each layer, all taking turns."""
    inputs = torch.randn(BATCH, n, WIDTH, device=device, requires_grad=True)
    built = layers(device)
    for layer in built.values():
        seconds(layer, inputs)
    rounds = [
        {name: seconds(layer, inputs) for name, layer in built.items()} for _ in range(repeats * max(1, 1024 // n))
    ]
    return {name: statistics.median(times[name] for times in rounds) for name in built}


def row(n: int, device: str, repeats: int) -> dict[str, Any]:
    """One length: counted work and measured time, both as multiples of self-attention's."""
    times = []
    for seed in SEEDS:
        torch.manual_seed(seed)
        times.append(medians(n, device, repeats))
    work = multiply_adds(n)
    found: dict[str, Any] = {"words": n, "multiply_adds": work["self_attention"]}
    for peer in ("gru", "convolution"):
        ratios = [time[peer] / time["self_attention"] for time in times]
        found[f"{peer}_work"] = round(work[peer] / work["self_attention"], 2)
        found[f"{peer}_time"] = round(statistics.mean(ratios), 2)
        found[f"{peer}_time_sd"] = round(statistics.stdev(ratios), 2)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--record", type=Path)
    options = parser.parse_args()
    rows = []
    for n in LENGTHS:
        rows.append(row(n, options.device, options.repeats))
        print(rows[-1], flush=True)
    if options.record:
        content = {
            **run_metadata(shlex.join(["python", *sys.argv]), SEEDS),
            "title": "A layer of self-attention against a recurrent and a convolutional one: work and time",
            "data": f"random vectors, batch {BATCH}, width {WIDTH}, window {WINDOW}, {options.device}",
            "rows": rows,
        }
        write_json(options.record, content)


if __name__ == "__main__":
    main()
