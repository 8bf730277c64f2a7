"""Tests for chapter "Positional encoding"."""

import math

import torch
from torch import randn, tensor

from transformer_lib.models.layers import LearnedPositions, Positions, SinusoidalPositions, sinusoids
from transformer_lib.student.checks import check, equal, holds, refuses, same


@check(sinusoids, "From numbers to clock hands")
def a_row_for_each_position() -> None:
    """Seven positions of width 6 give a table of 7 rows and 6 columns; an odd width raises a ValueError."""
    refuses(ValueError, sinusoids, 7, 5)
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


@check(Positions.forward, "Adding positions to words")
def added() -> None:
    """Row t of the table is added to the vector at position t, in every sentence."""
    layer, x = LearnedPositions(6, 9), randn(2, 4, 6)
    equal(layer(x), x + layer.table[:4])


@check(Positions.forward, "Adding positions to words")
def after_others() -> None:
    """With ``start``, the first vector is at that position, as a decoder with a cache needs it."""
    layer, x = LearnedPositions(6, 9), randn(2, 4, 6)
    equal(layer(x, 3), x + layer.table[3:7], {"Every cached token at position zero": x + layer.table[:4]})


@check(Positions.forward, "Adding positions to words")
def beyond_the_table() -> None:
    """A position beyond the table raises a ValueError."""
    refuses(ValueError, LearnedPositions(6, 9), randn(2, 1, 6), 9)
    equal(LearnedPositions(6, 9)(randn(2, 9, 6)).shape, torch.Size([2, 9, 6]))


@check(SinusoidalPositions.forward, "Adding positions to words")
def fixed_positions() -> None:
    """The sinusoids of the right positions are added."""
    x = randn(2, 4, 6)
    equal(
        SinusoidalPositions(6, 9)(x, 2),
        x + sinusoids(9, 6)[2:6],
        {"Every cached token at position zero": x + sinusoids(9, 6)[:4]},
    )


@check(SinusoidalPositions.forward, "Adding positions to words")
def the_type_of_the_words() -> None:
    """Words in double precision get the sinusoids in double precision."""
    x = torch.zeros(1, 300, 6, dtype=torch.float64)
    got = SinusoidalPositions(6, 300)(x)[0]
    apart = float((got - sinusoids(300, 6, dtype=torch.float64)).abs().max())
    holds(apart < 1e-12, f"expected  the sines of 299 to 12 digits\ngot       an error of {apart:.1e}")
