"""Local attention beside global attention: time and memory against the length of the source, as ratios of one run.

    python benchmarks/local_attention.py [--device cpu] [--repeats 41] [--record results/local-attention.json]

Time is measured for the two in turn and the medians are divided. Memory is the bytes that a forward pass keeps for
its backward pass; it is counted, not measured, and the same on every machine.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from pathlib import Path

import torch
from recurrent import ratio
from torch import Tensor

from transformer_lib.data.files import write_json
from transformer_lib.models.alignment import Attention, Score
from transformer_lib.models.scores import ConcatScore, GeneralScore, LocalAttention
from transformer_lib.models.seq2seq import Memory
from transformer_lib.translation.evaluation import run_metadata

WIDTH, WINDOW, BATCH, QUERIES = 128, 10, 8, 16
LENGTHS = (16, 64, 256, 1024)
SCORES: dict[str, Callable[[], Score]] = {
    "general": lambda: GeneralScore(WIDTH, WIDTH),
    "concat": lambda: ConcatScore(WIDTH, WIDTH, WIDTH),
}


def kept(step: Callable[[], Tensor]) -> int:
    """Bytes of the different tensors that a forward pass keeps for its backward pass."""
    found: dict[int, int] = {}

    def pack(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        found[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        result = step()  # alive until the sum is taken, so that no address is used twice
    total = sum(found.values())
    del result
    return total


def row(kind: str, length: int, device: str, repeats: int) -> dict[str, str | int | float]:
    """Global against local-p, both with the same score, on a source of some length."""
    torch.manual_seed(0)
    both = [Attention(SCORES[kind]()), LocalAttention(SCORES[kind](), WINDOW, WIDTH)]
    both = [attention.to(device) for attention in both]
    outputs = torch.randn(BATCH, length, WIDTH, device=device, requires_grad=True)
    memory = Memory(outputs, torch.ones(BATCH, length, dtype=torch.bool, device=device))
    queries = torch.randn(BATCH, QUERIES, WIDTH, device=device, requires_grad=True)
    places, one = torch.arange(QUERIES, device=device), torch.arange(1, device=device)
    prepared = [attention.prepare(memory) for attention in both]

    def look(which: int) -> Tensor:
        return both[which](queries, prepared[which], places).context

    def learn(which: int) -> Callable[[], None]:
        return lambda: look(which).square().mean().backward(retain_graph=True)

    def ask(which: int) -> Callable[[], None]:
        def step() -> None:
            with torch.no_grad():
                both[which](queries[:, :1], prepared[which], one)

        return step

    return {
        "score": kind,
        "source_length": length,
        "decoding_time": round(ratio(ask(0), ask(1), device, 5 * repeats), 2),
        "training_time": round(ratio(learn(0), learn(1), device, repeats), 2),
        "kept_for_backward": round(kept(lambda: look(0)) / kept(lambda: look(1)), 2),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--repeats", type=int, default=41)
    parser.add_argument("--record", type=Path)
    given = parser.parse_args()
    rows = [row(kind, length, given.device, given.repeats) for kind in SCORES for length in LENGTHS]
    print(json.dumps(rows, indent=2))
    if given.record:
        record = run_metadata(f"python benchmarks/local_attention.py --record {given.record}", seeds=[0])
        record["title"] = "Global attention divided by local attention, against the length of the source"
        record["data"] = (
            f"random vectors {WIDTH} wide, batch {BATCH}, window {WINDOW} to either side, one query when decoding, "
            f"{QUERIES} when training"
        )
        write_json(given.record, record | {"rows": rows})


if __name__ == "__main__":
    main()
