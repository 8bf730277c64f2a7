"""What a second process brings: a training step on a whole batch, and the same batch shared by two processes.

    python benchmarks/processes.py --record results/scaling-processes.json

Three steps take turns, with one thread for each process. They are timed by the wall clock between two barriers, and by
the processor time of the busier process, which leaves out other work on the machine (and waiting for messages):

- alone: one process makes the whole batch, and the other waits;
- shared: each process makes half of the batch, gradients are summed by gloo, and both make the same Adam update;
- apart: each process makes half of the batch, with an update of its own and without a message. This is the control: it
  shows what two processes on this machine reach when nothing has to be exchanged.

Each turn gives two speed-ups, alone / shared and alone / apart; the record has their medians and quartiles.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch
import torch.distributed as dist
from scaling import SIZES, make, random_batch
from torch import multiprocessing
from torch.nn.parallel import DistributedDataParallel

from transformer_lib.data.files import write_json
from transformer_lib.training.loss import smoothed_loss
from transformer_lib.translation.evaluation import run_metadata

WORLD, LENGTH = 2, 24
CASES = [("narrow", 16), ("narrow", 64), ("wide", 16)]  # width, sentences of the whole batch


def stepper(size: str, rows: int, parallel: bool) -> Callable[[], None]:
    """A training step: forward, backward, Adam."""
    torch.manual_seed(0)
    model = make("cpu", **SIZES[size])
    called = DistributedDataParallel(model) if parallel else model
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)
    batch = random_batch("cpu", rows, LENGTH)

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        smoothed_loss(called(batch.source, batch.target_input), batch.target_output).backward()
        optimizer.step()

    return step


def timed(step: Callable[[], None] | None, steps: int) -> tuple[float, float]:
    """Seconds of a step between two barriers, and of the busier process's processor time; None waits."""
    dist.barrier()
    started, used = time.perf_counter(), time.process_time()
    if step is not None:
        for _ in range(steps):
            step()
    used = time.process_time() - used
    dist.barrier()
    taken = time.perf_counter() - started
    most = torch.tensor(used)
    dist.all_reduce(most, dist.ReduceOp.MAX)
    return taken / steps, most.item() / steps


def work(rank: int, folder: str, turns: int) -> None:
    """One of the processes."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=WORLD)
    rows = []
    for size, sentences in CASES:
        ways = {
            "alone": stepper(size, sentences, False) if rank == 0 else None,
            "shared": stepper(size, sentences // WORLD, True),
            "apart": stepper(size, sentences // WORLD, False),
        }
        steps = 4 if size == "narrow" else 1
        for step in ways.values():
            timed(step, 1)
        times = [{name: timed(step, steps) for name, step in ways.items()} for _ in range(turns)]
        row = {"size": size, "sentences": sentences, "words": sentences * LENGTH}
        for clock, label in enumerate(("wall", "processor")):
            for name in ways:
                typical = statistics.median(turn[name][clock] for turn in times)
                row[f"{name}_{label}_milliseconds"] = round(1000 * typical, 1)
            for name in ("shared", "apart"):
                ratios = [turn["alone"][clock] / turn[name][clock] for turn in times]
                low, middle, high = statistics.quantiles(ratios, n=4)
                row[f"{name}_{label}_speed_up"] = round(middle, 2)
                row[f"{name}_{label}_quartiles"] = [round(low, 2), round(high, 2)]
        rows.append(row)
        if rank == 0:
            print(json.dumps(row), flush=True)
    if rank == 0:
        Path(folder, "rows.json").write_text(json.dumps(rows), encoding="utf-8")
    dist.destroy_process_group()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--turns", type=int, default=7)
    parser.add_argument("--record", type=Path, help="write a JSON record to this file")
    given = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = "1"
    with tempfile.TemporaryDirectory() as folder:
        multiprocessing.spawn(work, (folder, given.turns), nprocs=WORLD)
        rows = json.loads(Path(folder, "rows.json").read_text(encoding="utf-8"))
    if given.record is not None:
        content = {
            **run_metadata(f"python benchmarks/processes.py --record {given.record}", [0]),
            "title": "A training step on one core and on two",
            "data": f"random words, sentences of {LENGTH}",
            "notes": "one thread for each process, gloo, two cores with other work on them; medians and quartiles of "
            f"{given.turns} turns",
            "rows": rows,
        }
        write_json(given.record, content)


if __name__ == "__main__":
    main()
