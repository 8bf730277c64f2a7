"""Tests for chapter "Positional encoding"."""

import math

import torch
from torch import randn, tensor

from transformer_lib.plain.positions import LearnedPositions, rotate, sinusoids
from transformer_lib.student.checks import check, equal, same


@check(sinusoids, "From numbers to clock hands")
def a_row_for_each_position() -> None:
    """Seven positions of width 6 give a table of 7 rows and 6 columns."""
    equal(sinusoids(7, 6).shape, torch.Size([7, 6]))


@check(sinusoids, "From numbers to clock hands")
def position_zero() -> None:
    """At position 0, every sine is 0 and every cosine is 1."""
    equal(sinusoids(3, 6)[0], tensor([0.0, 1.0] * 3), {"all sines before all cosines": tensor([0.0] * 3 + [1.0] * 3)})


@check(sinusoids, "From numbers to clock hands")
def the_formula() -> None:
    """Columns 2i and 2i + 1 hold the sine and the cosine of position / 10000^(2i / D): of the same angle."""

    def table(sine: object, cosine: object) -> torch.Tensor:
        rows = [
            [f(p / 10_000 ** e(i)) for i in range(3) for f, e in ((math.sin, sine), (math.cos, cosine))]
            for p in range(7)
        ]
        return tensor(rows)

    right = table(lambda i: 2 * i / 6, lambda i: 2 * i / 6)
    got, odd = sinusoids(7, 6), table(lambda i: 4 * i / 6, lambda i: 2 * (2 * i + 1) / 6)
    slips = {
        "Sine and cosine of different frequency": any(
            same(got, x) for x in (odd, table(lambda i: 2 * i / 6, lambda i: (2 * i + 1) / 6))
        ),
        "the exponent is doubled once too often": table(lambda i: 4 * i / 6, lambda i: 4 * i / 6),
        "the exponent is not doubled": table(lambda i: i / 6, lambda i: i / 6),
    }
    equal(got, right, slips)


@check(sinusoids, "A shift is a rotation")
def a_shift_is_a_rotation() -> None:
    """The dot product of two rows depends on their distance only."""
    table = sinusoids(40, 16).double()
    equal(table[3] @ table[8], table[30] @ table[35])


@check(LearnedPositions.forward, "Learned positions")
def added() -> None:
    """Row t of the table is added to the vector at position t, in every sentence."""
    layer, x = LearnedPositions(6, 9), randn(2, 4, 6)
    equal(layer(x), x + layer.table[:4])


@check(LearnedPositions.forward, "Learned positions")
def after_others() -> None:
    """With ``start``, the first vector is at that position, as a translator needs it that writes word by word."""
    layer, x = LearnedPositions(6, 9), randn(2, 4, 6)
    equal(layer(x, 3), x + layer.table[3:7], {"Every cached token at position zero": x + layer.table[:4]})


def turned(x: torch.Tensor, start: int = 0, sign: int = 1) -> torch.Tensor:
    """Each pair of columns as a complex number, times a number of length 1."""
    steps = torch.arange(start, start + x.shape[-2])[:, None] * 10_000 ** (
        -torch.arange(0, x.shape[-1], 2) / x.shape[-1]
    )
    pairs = torch.view_as_complex(x.unflatten(-1, (-1, 2)).contiguous())
    return torch.view_as_real(pairs * torch.polar(torch.ones_like(steps), sign * steps)).flatten(-2)


@check(rotate, "Rotary embeddings: turn the queries and keys")
def each_pair_is_turned() -> None:
    """Columns 2i and 2i + 1 turn by the angle of hand i at their position: (a, b) to (a c - b s, a s + b c)."""
    x = randn(2, 3, 5, 6)
    left, right = x[..., :3], x[..., 3:]
    halved = turned(torch.stack([left, right], -1).flatten(-2)).unflatten(-1, (-1, 2)).mT.flatten(-2)
    slips = {
        "the other direction": turned(x, sign=-1),
        "number i is paired with number i + D / 2, not with its neighbour": halved,
        "position 0 is turned, too": turned(x, 1),
    }
    equal(rotate(x), turned(x), slips)


@check(rotate, "Rotary embeddings: turn the queries and keys")
def from_a_later_start() -> None:
    """With ``start``, the first vector is at that position."""
    x = randn(2, 5, 6)
    equal(rotate(x, 3), turned(x, 3), {"Every cached token at position zero": turned(x)})


@check(rotate, "Rotary embeddings: turn the queries and keys")
def only_the_distance() -> None:
    """The score of a query and a key depends on their distance, and lengths stay as they are."""
    q, k = randn(1, 8), randn(1, 8)
    equal(rotate(q, 9) @ rotate(k, 4).T, rotate(q, 25) @ rotate(k, 20).T)
    equal(rotate(q, 9).norm(), q.norm())
