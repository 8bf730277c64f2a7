"""Positions, feed-forward layers, layer norm: all of a Transformer but attention."""

__all__ = [
    "sinusoids",
    "Positions",
    "SinusoidalPositions",
    "LearnedPositions",
    "ACTIVATIONS",
    "FeedForward",
    "LayerNorm",
]

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F


def sinusoids(length: int, d_model: int, *, dtype: torch.dtype | None = None) -> Float[Tensor, "T D"]:
    """Sine and cosine of position / 10000^(2 i / D) in columns 2 i and 2 i + 1.

    Source: Vaswani et al. (2017), section 3.5.
    """
    if d_model % 2:
        raise ValueError(f"{d_model=} is odd: sine and cosine come in pairs")
    exact: dict[str, Any] = {"dtype": torch.float64, "device": "cpu"}  # for any model
    omega = 10_000 ** (-torch.arange(0, d_model, 2, **exact) / d_model)
    angle = torch.arange(length, **exact)[:, None] * omega  # (T, D / 2)
    table = torch.stack([angle.sin(), angle.cos()], -1).flatten(1)
    return table.to(dtype or torch.get_default_dtype())


class Positions(nn.Module):
    """A module that adds row t of a table to the vector at position t."""

    table: Float[Tensor, "M D"]

    def forward(self, x: Float[Tensor, "N T D"], start: int = 0) -> Float[Tensor, "N T D"]:
        """Add positions; the first vector is at position ``start``.

        Raises:
            ValueError: beyond the table; a slice would silently be too short.
        """
        end = start + x.shape[1]
        if end > len(self.table):
            raise ValueError(f"position {end - 1} is not within max_length={len(self.table)}")
        rows = self.table[start:end].to(x.dtype)
        return x + rows.to(x.device, non_blocking=True)  # without it, an accelerator's host would wait


class SinusoidalPositions(Positions):
    """Fixed positions: nothing to learn and nothing to store.

    The table stays on the CPU in double precision, whatever happens to the model, and each use rounds it once.

    Args:
        d_model: width of the vectors, an even number.
        max_length: how many positions there are.
    """

    def __init__(self, d_model: int, max_length: int = 1024) -> None:
        super().__init__()
        self.table = sinusoids(max_length, d_model, dtype=torch.float64)  # no buffer: neither saved, moved nor rounded


class LearnedPositions(Positions):
    """One learned vector for each position.

    Args:
        d_model: width of the vectors.
        max_length: how many positions there are.

    Source: Gehring et al. (2017), section 3.1.
    """

    def __init__(self, d_model: int, max_length: int = 1024) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.randn(max_length, d_model) * d_model**-0.5)


ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": F.relu,
    "gelu": F.gelu,
    "swish": F.silu,
    "gelu_tanh": partial(F.gelu, approximate="tanh"),
}


class FeedForward(nn.Module):
    """Two linear maps with an activation between them, the same at every position.

    Args:
        d_model: width of the vectors that go in and come out.
        d_ff: width between the two maps.
        activation: relu, gelu, swish or gelu_tanh.
        dropout: after the activation, in training.

    Source: Vaswani et al. (2017), eq. 2.
    """

    def __init__(
        self,
        d_model: int,
        d_ff: int,
        *,
        activation: str = "relu",
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.activation = ACTIVATIONS[activation]
        self.linear1 = nn.Linear(d_model, d_ff)
        self.linear2 = nn.Linear(d_ff, d_model)
        self.dropout = nn.Dropout(dropout)
        for linear in (self.linear1, self.linear2):
            nn.init.xavier_uniform_(linear.weight)
            nn.init.zeros_(linear.bias)

    def forward(self, x: Float[Tensor, "*B D"]) -> Float[Tensor, "*B D"]:
        """Transform each position on its own."""
        return self.linear2(self.dropout(self.activation(self.linear1(x))))


class LayerNorm(nn.Module):
    """Layer norm: mean 0 and variance 1, then a learned scale and shift.

    Args:
        d_model: width of the vectors.
        eps: what is added to the variance.

    Source: Ba et al. (2016), eqs. 3 and 4.
    """

    def __init__(self, d_model: int, *, eps: float = 1e-5) -> None:
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(d_model))
        self.bias = nn.Parameter(torch.zeros(d_model))

    def forward(self, x: Float[Tensor, "*B D"]) -> Float[Tensor, "*B D"]:
        """Normalize each vector on its own."""
        return F.layer_norm(x, self.weight.shape, self.weight, self.bias, self.eps)
