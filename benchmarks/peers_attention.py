"""Attention itself beside the peers', forward and backward: a part of ``peers.py``, which runs it.

    python benchmarks/peers_attention.py NAME      prints the peak memory of one of them for every length, as JSON

Every length is that of the sentences in which the same 4,096 tokens come; width 256, 4 heads, no mask. Time is measured
in turns. Memory is measured in a program for each, from the shortest sentences to the longest, by the kernel's own mark
of the highest use, which is taken back before each length.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import torch
from side_by_side import Row, Work, compare, less, turns
from torch import Tensor, nn
from torch.nn import functional as F

from transformer_lib.models.attention import explicit_attention, scaled_dot_product_attention
from transformer_lib.models.multi_head import MultiHeadAttention

WIDTH, HEADS, TOKENS, LENGTHS = 256, 4, 4096, (32, 128, 512, 2048, 4096)
LAYERS = ("nn.MultiheadAttention", "Hugging Face Marian, sdpa", "Hugging Face Marian, eager", "x-transformers")
KERNELS = ("F.scaled_dot_product_attention",)
FORMULAS = ("Hugging Face's eager function",)
GROUPS = {
    "attention layer": ("MultiHeadAttention", LAYERS),
    "fused attention": ("scaled_dot_product_attention", KERNELS),
    "attention by its formula": ("explicit_attention", FORMULAS),
}


def marian_attention(kind: str) -> nn.Module:
    """The attention layer of Hugging Face's Marian."""
    from transformers import MarianConfig
    from transformers.models.marian.modeling_marian import MarianAttention

    config = MarianConfig(d_model=WIDTH, encoder_attention_heads=HEADS)
    config._attn_implementation = kind
    return MarianAttention(WIDTH, HEADS, config=config)


def eager(queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    """What Hugging Face computes where it does not use the fused kernel."""
    from transformers.models.marian.modeling_marian import eager_attention_forward

    module = SimpleNamespace(training=False)
    return eager_attention_forward(module, queries, keys, values, None, queries.shape[-1] ** -0.5)[0]


def forward_of(name: str) -> tuple[Work, bool]:
    """What one of them computes, and whether it is a layer or only what comes between its projections."""
    torch.manual_seed(0)
    if name == "MultiHeadAttention":
        return MultiHeadAttention(WIDTH, HEADS), True
    if name == "nn.MultiheadAttention":
        layer = nn.MultiheadAttention(WIDTH, HEADS, batch_first=True)
        return lambda inputs: layer(inputs, inputs, inputs, need_weights=False)[0], True
    if name.startswith("Hugging Face Marian"):
        theirs = marian_attention(name.split()[-1])
        return lambda inputs: theirs(inputs)[0], True
    if name == "x-transformers":
        from x_transformers.x_transformers import Attention

        other = Attention(WIDTH, heads=HEADS, dim_head=WIDTH // HEADS, flash=True)
        return lambda inputs: other(inputs)[0], True
    kernels = {
        "scaled_dot_product_attention": scaled_dot_product_attention,
        "explicit_attention": lambda *tensors: explicit_attention(*tensors)[0],
        "F.scaled_dot_product_attention": F.scaled_dot_product_attention,
        "Hugging Face's eager function": eager,
    }
    return kernels[name], False


def update(name: str, length: int) -> Work:
    """Forward and backward over 4,096 tokens in sentences of one length."""
    forward, layer = forward_of(name)
    shape = (TOKENS // length, length, WIDTH) if layer else (TOKENS // length, HEADS, length, WIDTH // HEADS)
    inputs = [torch.randn(shape, requires_grad=True) for _ in range(1 if layer else 3)]

    def both() -> None:
        forward(*inputs).sum().backward()

    return both


def installed(names: tuple[str, ...]) -> list[str]:
    """Those that can be built here."""
    found = []
    for name in names:
        try:
            forward_of(name)
        except ImportError:
            continue
        found.append(name)
    return found


def attention(repeats: int) -> Iterator[Row]:
    """Time, forward and backward, of ours and the peers' for each length."""
    for group, (ours, peers) in GROUPS.items():
        for length in LENGTHS:
            work = {name: update(name, length) for name in installed(peers)}
            times = turns(update(ours, length), work, repeats)
            yield from compare(f"{group}, length {length:,}", "updates/s", 1, times)


def peaks(name: str) -> dict[int, float]:
    """Peak memory in MB of forward and backward, over what was in use before; in a program of its own."""

    def marks() -> dict[str, float]:
        lines = Path("/proc/self/status").read_text().splitlines()
        return {key: int(line.split()[1]) / 1024 for line in lines for key in ("VmHWM", "VmRSS") if key in line}

    found = {}
    for length in LENGTHS:
        work = update(name, length)
        if length == LENGTHS[0]:
            work()  # what the first call allocates for good
        Path("/proc/self/clear_refs").write_text("5")  # takes the mark of the highest use back
        before = marks()["VmRSS"]
        work()
        found[length] = round(marks()["VmHWM"] - before, 1)
    return found


def attention_memory(repeats: int) -> Iterator[Row]:
    """Peak memory of the same."""
    here = {**os.environ, "MALLOC_MMAP_THRESHOLD_": "65536"}  # what is freed goes back to the system
    for group, (ours, peers) in GROUPS.items():
        found = {}
        for name in (ours, *installed(peers)):
            asked = [sys.executable, "-W", "ignore", __file__, name]
            done = subprocess.run(asked, capture_output=True, text=True, check=True, env=here)
            found[name] = json.loads(done.stdout.splitlines()[-1])
        mine = found.pop(ours)
        for length, peak in mine.items():
            for name, theirs in found.items():
                yield less(f"peak memory of {group}, length {int(length):,}", name, peak, theirs[length])


if __name__ == "__main__":
    torch.set_num_threads(1)
    print(json.dumps(peaks(sys.argv[1])))
