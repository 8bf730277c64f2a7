"""The GRU of chapter 3 beside PyTorch's own: time of a training step, as ratios measured in one run.

    python benchmarks/recurrent.py [--device cpu] [--repeats 20]

Absolute times mean little on a shared machine; the ratio of two measurements that take turns means more. Each pair
is measured alternately and the medians are divided.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable

import torch
from torch import nn

from transformer_lib.models.recurrent import GRU, RecurrentConfig, RecurrentSeq2Seq
from transformer_lib.models.seq2seq import sequence_loss


def seconds(step: Callable[[], None], device: str) -> float:
    """The time of one call, with the device's queue emptied before and after."""
    if device.startswith("cuda"):
        torch.cuda.synchronize()
    started = time.perf_counter()
    step()
    if device.startswith("cuda"):
        torch.cuda.synchronize()
    return time.perf_counter() - started


def ratio(ours: Callable[[], None], peer: Callable[[], None], device: str, repeats: int) -> float:
    """How many times as long ours takes as the peer, the two taking turns."""
    for step in (ours, peer):
        step()
    times = [(seconds(ours, device), seconds(peer, device)) for _ in range(repeats)]
    return statistics.median(a for a, _ in times) / statistics.median(b for _, b in times)


def gru_against_torch(device: str, repeats: int, size: tuple[int, int, int, int]) -> float:
    """Forward and backward of our GRU against ``torch.nn.GRU``, for a batch, length, input and state width."""
    batch, length, d_input, d_hidden = size
    inputs = torch.randn(batch, length, d_input, device=device)
    ours, peer = GRU(d_input, d_hidden).to(device), nn.GRU(d_input, d_hidden, batch_first=True).to(device)
    return ratio(
        lambda: ours(inputs)[0].square().mean().backward(),
        lambda: peer(inputs)[0].square().mean().backward(),
        device,
        repeats,
    )


def start_against_torch(device: str, repeats: int) -> float:
    """A step of the translator with embeddings that start at PyTorch's standard deviation of 1, against our start."""

    def stepper(deviation: float | None) -> Callable[[], None]:
        torch.manual_seed(0)
        model = RecurrentSeq2Seq(RecurrentConfig(4000, 4000, d_model=256, d_hidden=256, dropout=0.0)).to(device)
        if deviation is not None:
            for table in (model.encoder.embedding, model.decoder.embedding):
                nn.init.normal_(table.weight, std=deviation)
        source = torch.randint(4, 4000, (32, 20), device=device)
        target = torch.randint(4, 4000, (32, 21), device=device)

        def step() -> None:
            model.zero_grad(set_to_none=True)
            sequence_loss(model(source, target[:, :-1]), target[:, 1:]).backward()

        return step

    return ratio(stepper(1.0), stepper(None), device, repeats)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--repeats", type=int, default=20)
    given = parser.parse_args()
    sizes = {"small (64 x 12, 64 to 256)": (64, 12, 64, 256), "large (64 x 20, 256 to 512)": (64, 20, 256, 512)}
    found = {
        f"GRU / torch.nn.GRU, {name}": round(gru_against_torch(given.device, given.repeats, size), 2)
        for name, size in sizes.items()
    }
    found["start at 1 / start at d ** -0.5"] = round(start_against_torch(given.device, given.repeats), 2)
    print(json.dumps({"device": given.device, "torch": torch.__version__, "ratios of time": found}, indent=2))


if __name__ == "__main__":
    main()
