"""What each remedy brings to a training step: sorted batches, bfloat16, torch.compile, fused attention.

    python benchmarks/scaling.py [--device cpu] [--repeats 5] [--record results/scaling-cost.json]

Absolute times mean little on a shared machine; the ratio of two measurements that take turns means more. Each pair is
measured alternately and the shortest times are divided. On a CPU they are processor times, which leave out other work
on the machine. A ratio below 1 means that the first of the two is faster. A step is
forward, backward and Adam, for 32 sentences of 24 words and 4,000 word ids; wide is the paper's base model with two
layers instead of six.
"""

from __future__ import annotations

import argparse
import copy
import json
import random
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from transformer_lib.data.batching import Batch, batches, collate, encode_pairs
from transformer_lib.data.captions import make_captions
from transformer_lib.data.files import write_json
from transformer_lib.data.tokenizer import Tokenizer
from transformer_lib.models.transformer import Transformer, TransformerConfig
from transformer_lib.training.costs import (
    count_flops,
    measure_machine,
    padding_share,
)
from transformer_lib.training.loss import smoothed_loss
from transformer_lib.translation.evaluation import run_metadata

Step = Callable[[], object]
ROWS, LENGTH, WORDS = 32, 24, 4000
SIZES = {
    "narrow": {"d_model": 128, "n_heads": 4, "d_ff": 512},
    "wide": {"d_model": 512, "n_heads": 8, "d_ff": 2048},
}


def seconds(step: Step, device: str) -> float:
    """The processor time of a step on a CPU; elsewhere the time until the device is done."""
    if device == "cpu":
        started = time.process_time()
        step()
        return time.process_time() - started
    torch.accelerator.synchronize()
    started = time.perf_counter()
    step()
    torch.accelerator.synchronize()
    return time.perf_counter() - started


def ratio(one: Step, other: Step, device: str, repeats: int) -> float:
    """The shortest time of the first step over that of the second, the two taking turns."""
    for step in (one, other):
        step()
    times = [(seconds(one, device), seconds(other, device)) for _ in range(repeats)]
    return min(a for a, _ in times) / min(b for _, b in times)


def make(device: str, **changes: int | float) -> Transformer:
    """A Transformer with two layers on each side."""
    torch.manual_seed(0)
    shape = {"source_vocab_size": WORDS, "target_vocab_size": WORDS, "n_encoder_layers": 2, "n_decoder_layers": 2}
    return Transformer(TransformerConfig(**{**shape, **SIZES["narrow"], **changes})).to(device).train()


def random_batch(device: str, rows: int = ROWS, length: int = LENGTH) -> Batch:
    """Sentences of random words, without padding."""
    source, target = torch.randint(4, WORDS, (rows, length)), torch.randint(4, WORDS, (rows, length + 1))
    return Batch(source, target, tuple(range(rows))).to(device)


def step_of(model: nn.Module, batch: Batch, precision: torch.dtype | None = None) -> Step:
    """A training step: forward, backward, Adam."""
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast(batch.source.device.type, dtype=precision, enabled=precision is not None):
            logits = model(batch.source, batch.target_input)
        smoothed_loss(logits, batch.target_output).backward()
        optimizer.step()

    return step


def precision_pair(device: str, size: str) -> tuple[Step, Step]:
    """A step in automatic mixed precision, and in single precision."""
    batch = random_batch(device)
    mixed, single = (make(device, **SIZES[size]) for _ in range(2))
    return step_of(mixed, batch, torch.bfloat16), step_of(single, batch)


def compiled_pair(device: str, size: str) -> tuple[Step, Step]:
    """A step of a compiled model, and of the model as it is."""
    batch, model = random_batch(device), make(device, **SIZES[size])
    return step_of(torch.compile(copy.deepcopy(model)), batch), step_of(model, batch)


def fused_pair(device: str, length: int) -> tuple[Step, Step]:
    """A step with the fused kernel, and with attention in separate matrix products."""
    batch, fused, explicit = random_batch(device, ROWS * LENGTH // length, length), make(device), make(device)
    separate = step_of(explicit, batch)

    def step() -> None:
        with sdpa_kernel(SDPBackend.MATH):
            separate()

    return step_of(fused, batch), step


def bucket_pair(device: str) -> tuple[Step, Step, list[float]]:
    """An epoch of captions in batches by length, and by chance; and the share of padding in each."""
    pairs = make_captions(600, seed=0)
    words = Tokenizer.train([text for pair in pairs for text in (pair.source, pair.target)], level="word")
    examples = encode_pairs(pairs, words, words)
    mixed = random.Random(0).sample(examples, len(examples))
    orders = [
        list(batches(examples, ROWS * LENGTH, seed=0)),
        [collate(mixed[start : start + ROWS]) for start in range(0, len(mixed), ROWS)],
    ]

    def sweep(order: list[Batch]) -> Step:
        model, order = make(device), [batch.to(device) for batch in order]
        return lambda: [model.loss(batch).backward() for batch in order]

    return sweep(orders[0]), sweep(orders[1]), [padding_share(order) for order in orders]


def reached(device: str, precision: torch.dtype | None, repeats: int) -> float:
    """Billions of operations a second in a training step of the wide model."""
    rows = 256 if device.startswith("cuda") else ROWS
    model = make(device, **SIZES["wide"])
    step = step_of(model, random_batch(device, rows), precision)
    step()
    best = min(seconds(step, device) for _ in range(repeats))
    return count_flops(model.config, LENGTH, LENGTH, rows, training=True).total / best / 1e9


def bandwidth(repeats: int = 15) -> float:
    """Bytes a second, read and written, of a copy of 64 MiB; the best of several, in processor time."""
    numbers = torch.zeros(2**26, dtype=torch.uint8)
    copy, times = torch.empty_like(numbers), []
    for _ in range(repeats):
        started = time.process_time()
        copy.copy_(numbers)
        times.append(time.process_time() - started)
    return 2 * numbers.nbytes / min(times)


def measure(device: str, repeats: int) -> list[tuple[str, float, str]]:
    """Everything that is measured: what, how much, in which unit."""
    found: list[tuple[str, float, str]] = []

    def note(name: str, value: float, unit: str = "ratio of time", digits: int = 2) -> None:
        found.append((name, round(value, digits), unit))
        print(json.dumps(found[-1]), flush=True)

    *passes, padding = bucket_pair(device)
    note("padding, batches by length", 100 * padding[0], "percent", 0)
    note("padding, batches by chance", 100 * padding[1], "percent", 0)
    note("an epoch, batches by length / by chance", ratio(*passes, device, max(3, repeats // 3)))
    for length in (24, 384):
        note(f"{length} words, fused attention / explicit", ratio(*fused_pair(device, length), device, repeats))
    for size in SIZES:
        note(f"{size}, bfloat16 / float32", ratio(*precision_pair(device, size), device, repeats))
    note("narrow, compiled / not", ratio(*compiled_pair(device, "narrow"), device, repeats))
    for name, dtype in (("float32", torch.float32), ("bfloat16", torch.bfloat16)):
        machine = measure_machine(device, dtype, 1.0)
        note(f"largest rate of matrix products, {name}", machine.flops / 1e9, "GFLOP/s", 0)
        precision = None if dtype == torch.float32 else dtype
        note(f"a training step, wide, {name}", reached(device, precision, repeats), "GFLOP/s", 0)
    found_bandwidth = bandwidth() if device == "cpu" else machine.bandwidth
    note("memory bandwidth", found_bandwidth / 1e9, "GB/s", 1)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--record", type=Path, help="write a JSON record to this file")
    given = parser.parse_args()
    found = measure(given.device, given.repeats)
    rows = [dict(zip(("measured", "value", "unit"), row, strict=True)) for row in found]
    if given.record is not None:
        command = f"python benchmarks/scaling.py --record {given.record}"
        command += f" --device {given.device}" * (given.device != "cpu")
        content = {
            **run_metadata(command, [0]),
            "title": "What sorted batches, bfloat16, compilation and fused attention bring to a training step",
            "data": f"random words, {ROWS} sentences of {LENGTH}; 600 captions for the batches",
            "notes": f"threads: {torch.get_num_threads()}; the shortest of {given.repeats} steps in turns, in "
            "processor time, on a machine with other work",
            "rows": rows,
        }
        write_json(given.record, content)


if __name__ == "__main__":
    main()
