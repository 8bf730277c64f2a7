"""Why a training step stays below the best rate of its processor: every operation held against the roofline.

    python benchmarks/roofline.py --record results/scaling-roofline.json

One step is forward, backward and Adam, for 32 sentences of 24 words and 4,000 word ids, on one thread. A dispatch mode
times every operation, and counts its floating-point operations W and the bytes Q of its inputs and outputs. With the
largest rate P of matrix products and the memory bandwidth, both measured in the same run, the larger of W/P and
Q/bandwidth is the least time that the roofline allows. Times are processor times of the process, so that other work on
the machine is not counted; the time of the wall clock is noted beside them. Of several steps, the median is kept.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

import torch
from scaling import SIZES, bandwidth, make, random_batch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from transformer_lib.data.files import write_json
from transformer_lib.training.costs import Machine, count_flops, measure_machine
from transformer_lib.training.loss import smoothed_loss
from transformer_lib.translation.evaluation import run_metadata

PARTS = ("matrix products", "attention", "element-wise", "Adam")


def work(name: str, inputs: list[Tensor]) -> int:
    """Floating-point operations of a matrix product or an attention; 0 for anything else."""
    if name in ("mm", "bmm", "addmm"):
        left, right = inputs[-2:]
        return 2 * left.numel() * right.shape[-1]
    if name.startswith("_scaled_dot_product"):
        backward = "backward" in name
        query, key = inputs[1:3] if backward else inputs[:2]
        return (8 if backward else 4) * query.numel() * key.shape[-2]
    return 0


def moved(inputs: list[Tensor], outputs: list[Tensor], in_place: bool) -> int:
    """Bytes that are read and written, each once; 0 for a view, which moves nothing."""
    known = {tensor.untyped_storage().data_ptr() for tensor in inputs}
    if not in_place and all(tensor.untyped_storage().data_ptr() in known for tensor in outputs):
        return 0
    written = sum(tensor.nbytes for tensor in outputs)
    return written + sum(min(tensor.nbytes, 64 * written) for tensor in inputs)


class Watch(TorchDispatchMode):
    """Notes every operation: its part, seconds, operations, bytes."""

    def __init__(self) -> None:
        super().__init__()
        self.notes: list[tuple[str, float, int, int]] = []
        self.updating = False

    def __torch_dispatch__(self, operation: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        started = time.process_time()
        result = operation(*args, **(kwargs or {}))
        taken = time.process_time() - started
        name = operation.overloadpacket.__name__
        inputs = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)]
        outputs = [leaf for leaf in tree_leaves(result) if isinstance(leaf, Tensor)]
        flops, part = work(name, inputs), "element-wise"
        if self.updating:
            part = "Adam"
        elif flops:
            part = "attention" if name.startswith("_scaled") else "matrix products"
        size = moved(inputs, outputs, name.endswith("_") or ".out" in str(operation)) if outputs else 0
        self.notes.append((part, taken, flops, size))
        return result


def watch(size: str, machine: Machine, repeats: int) -> dict[str, object]:
    """A step of one model: time, work and roofline of its parts."""
    model = make("cpu", **SIZES[size])
    batch, optimizer = random_batch("cpu"), torch.optim.Adam(model.parameters(), lr=1e-4)

    def step(note: Watch | None = None) -> tuple[float, float]:
        started, by_the_wall = time.process_time(), time.perf_counter()
        optimizer.zero_grad(set_to_none=True)
        smoothed_loss(model(batch.source, batch.target_input), batch.target_output).backward()
        if note is not None:
            note.updating = True
        optimizer.step()
        return time.process_time() - started, time.perf_counter() - by_the_wall

    step()
    whole, walls, runs = [], [], []
    for _ in range(repeats):
        used, passed = step()
        whole.append(used)
        walls.append(passed)
        with Watch() as note:
            step(note)
        runs.append(note.notes)
    spent, flops, size_, bound = (defaultdict(float) for _ in range(4))
    for same in zip(*runs, strict=True):
        part, _, w, q = same[0]
        spent[part] += statistics.median(taken for _, taken, _, _ in same)
        flops[part] += w
        size_[part] += q
        bound[part] += max(w / machine.flops, q / machine.bandwidth)
    counted = count_flops(model.config, 24, 24, 32, training=True).total
    assert abs(sum(flops.values()) / counted - 1) < 0.01, (sum(flops.values()), counted)
    quartiles = statistics.quantiles(whole, n=4)
    return {
        "size": size,
        "operations": len(runs[0]),
        "gflop": round(counted / 1e9, 2),
        "gigabytes": round(sum(size_.values()) / 1e9, 3),
        "seconds": round(statistics.median(whole), 4),
        "seconds_quartiles": [round(quartiles[0], 4), round(quartiles[2], 4)],
        "wall_seconds": round(statistics.median(walls), 4),
        "gflops_per_second": round(counted / statistics.median(whole) / 1e9, 1),
        "parts": {
            part: {
                "gflop": round(flops[part] / 1e9, 3),
                "gigabytes": round(size_[part] / 1e9, 4),
                "seconds": round(spent[part], 4),
                "roofline_seconds": round(bound[part], 4),
            }
            for part in PARTS
        },
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--record", type=Path, help="write a JSON record to this file")
    given = parser.parse_args()
    torch.set_num_threads(1)
    machine = Machine(measure_machine("cpu", torch.float32, 1.0).flops, bandwidth())
    rows = [watch(size, machine, given.repeats) for size in SIZES]
    content = {
        **run_metadata(f"python benchmarks/roofline.py --record {given.record}", [0]),
        "title": "Every operation of a training step, held against the roofline",
        "data": "random words, 32 sentences of 24",
        "notes": f"one thread, processor time, median of {given.repeats} steps, other work on the machine",
        "machine": {
            "gflops_per_second": round(machine.flops / 1e9, 1),
            "gigabytes_per_second": round(machine.bandwidth / 1e9, 1),
        },
        "rows": rows,
    }
    for row in rows:
        print(row)
    print(content["machine"])
    if given.record is not None:
        write_json(given.record, content)


if __name__ == "__main__":
    main()
