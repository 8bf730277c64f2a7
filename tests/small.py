"""Small recurrent translators and sentences, in double precision, for the tests of each kind of them."""

from typing import Any

import torch
from torch import Tensor, nn

from transformer_lib.data.tokenizer import EOS, PAD

SIZES = {"source_vocab_size": 13, "target_vocab_size": 11, "d_model": 6, "d_hidden": 8}


def generator(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def small(kind: type[nn.Module], config: Any, seed: int = 0, **changes: Any) -> Any:
    """A model with random numbers added to every weight, so that nothing is equal or zero by accident."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = kind(config(**{**SIZES, "dropout": 0.0, **changes}))
        for parameter in model.parameters():
            parameter.data.add_(0.3 * torch.randn_like(parameter))
    return model.double()


def ragged(lengths: list[int], vocab_size: int, seed: int = 0, first: int | None = None) -> Tensor:
    """Random sentences, closed by EOS, filled up with PAD."""
    rows = torch.full((len(lengths), max(lengths)), PAD)
    for row, length in zip(rows, lengths, strict=True):
        row[:length] = torch.randint(4, vocab_size, (length,), generator=generator(seed + length))
        row[length - 1] = EOS
        if first is not None:
            row[0] = first
    return rows
