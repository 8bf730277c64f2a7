"""Explicit against fused attention: time of a training step and memory, side by side, against length.

    python benchmarks/attention.py [--device cpu] [--dtype float32] [--repeats 9] [--record results/attention-cost.json]

One step is forward and backward of causal self-attention with equal numbers of queries and keys. The two versions take
turns, and the medians are divided. The peak of the memory is what a step allocates on top of its inputs, read from the
profiler on a CPU and from the allocator on an accelerator, so it depends on no clock.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor
from torch.profiler import ProfilerActivity, profile

from transformer_lib.data.files import write_json
from transformer_lib.models.attention import (
    explicit_attention,
    scaled_dot_product_attention,
)
from transformer_lib.models.masks import causal_mask
from transformer_lib.translation.evaluation import run_metadata

Step = Callable[[], None]


def steps(length: int, heads: int, width: int, device: str, dtype: torch.dtype) -> tuple[Step, Step]:
    """A training step of the explicit version, and one of the fused version, on the same numbers."""
    draw = torch.Generator().manual_seed(0)
    shape = (1, heads, length, width)
    inputs = [torch.randn(shape, generator=draw).to(device, dtype).requires_grad_() for _ in range(3)]
    mask = causal_mask(length, device=device)

    def step(attention: Callable[[], Tensor]) -> None:
        attention().sum().backward()
        for tensor in inputs:
            tensor.grad = None

    return (
        lambda: step(lambda: explicit_attention(*inputs, mask)[0]),
        lambda: step(lambda: scaled_dot_product_attention(*inputs, causal=True)),
    )


def seconds(step: Step, device: str) -> float:
    """The time of one step, with the device's queue emptied before and after."""
    if device.startswith("cuda"):
        torch.cuda.synchronize()
    started = time.perf_counter()
    step()
    if device.startswith("cuda"):
        torch.cuda.synchronize()
    return time.perf_counter() - started


def peak_bytes(step: Step, device: str) -> int:
    """The most memory that one step holds at any time, on top of what was there before it."""
    if device.startswith("cuda"):
        torch.cuda.synchronize()
        before = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        step()
        return torch.cuda.max_memory_allocated() - before
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        step()
    held = peak = 0
    events = [event for event in profiler.profiler.kineto_results.events() if event.name() == "[memory]"]
    for event in sorted(events, key=lambda event: event.start_ns()):
        held += event.nbytes()
        peak = max(peak, held)
    return peak


def compare(length: int, given: argparse.Namespace) -> dict[str, float | int]:
    """One row of the record: both versions at one length."""
    explicit, fused = steps(length, given.heads, given.width, given.device, getattr(torch, given.dtype))
    for step in (explicit, fused):
        step()
    times = [(seconds(explicit, given.device), seconds(fused, given.device)) for _ in range(given.repeats)]
    slow, fast = (statistics.median(column) for column in zip(*times, strict=True))
    large, small = peak_bytes(explicit, given.device), peak_bytes(fused, given.device)
    return {
        "length": length,
        "explicit_ms": float(f"{1000 * slow:.3g}"),
        "fused_ms": float(f"{1000 * fast:.3g}"),
        "time_ratio": float(f"{slow / fast:.3g}"),
        "explicit_mb": float(f"{large / 1e6:.3g}"),
        "fused_mb": float(f"{small / 1e6:.3g}"),
        "memory_ratio": float(f"{large / small:.3g}"),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--heads", type=int, default=4)
    parser.add_argument("--width", type=int, default=64, help="of one head")
    parser.add_argument("--lengths", type=int, nargs="+", default=[32, 128, 512, 2048, 4096])
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--record", type=Path, default=None, help="write a JSON record to this file")
    given = parser.parse_args()
    rows = []
    for length in given.lengths:
        rows.append(compare(length, given))
        print(json.dumps(rows[-1]), flush=True)
    if given.record is not None:
        command = f"python benchmarks/attention.py --record {given.record}"
        changed = [f"--{name} {value}" for name, value in vars(given).items() if value != parser.get_default(name)]
        extra = [text for text in changed if not text.startswith("--record")]
        content = {
            **run_metadata(" ".join([command, *extra]), [0]),
            "title": "Explicit and fused attention: time and memory of a training step against length",
            "data": f"random numbers, {given.heads} heads of width {given.width}, {given.dtype}, causal",
            "notes": f"threads: {torch.get_num_threads()}; median of {given.repeats} steps in turns",
            "rows": rows,
        }
        write_json(given.record, content)


if __name__ == "__main__":
    main()
