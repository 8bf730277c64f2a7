"""Tests for chapter "What training costs"."""

from transformer_lib.plain.costs import (
    cache_bytes,
    reading_seconds,
    step_seconds,
    training_bytes,
    training_operations,
    training_seconds,
)
from transformer_lib.student.checks import check, equal


@check(training_operations, "How long does training take?")
def six_for_each() -> None:
    """Two operations a parameter and token on the way up, four on the way down."""
    equal(training_operations(10, 7), 420, {"the way up only": 140, "the way down only": 280})


@check(training_seconds, "How long does training take?")
def a_share_of_the_peak() -> None:
    """A device that reaches half of its peak takes twice as long."""
    equal(training_seconds(1000.0, 100.0, 0.5), 20.0, {"the peak itself": 10.0, "multiplied by the share": 5.0})


@check(training_bytes, "How much memory does training take?")
def sixteen_bytes() -> None:
    """A weight, a gradient and two averages of Adam, in four bytes each."""
    equal(training_bytes(5), 80, {"weights and gradients only": 40, "one average": 60})


@check(cache_bytes, "How long does it take to run?")
def two_bytes_a_number() -> None:
    """Layers, kept numbers, tokens and texts are multiplied, and each number has two bytes."""
    equal(cache_bytes(3, 10, 7, 2), 840, {"one text": 420, "in single precision": 1680, "one layer": 280})


@check(reading_seconds, "How long does it take to run?")
def two_for_each() -> None:
    """Reading is a forward pass: two operations a parameter and token."""
    equal(reading_seconds(10.0, 7, 100.0, 0.5), 2.8, {"as in training": 8.4, "the peak itself": 1.4})


@check(step_seconds, "How long does it take to run?")
def moving_takes_longer() -> None:
    """For one text, all weights are moved, and that takes longer than computing."""
    want = (100.0 * 2 + 50) / 10
    slips = {"without the cache": 20.0, "in single precision": 45.0, "computing only": 2 * 100.0 / 1000}
    equal(step_seconds(100.0, 100.0, 50.0, 1000.0, 10.0), want, slips)


@check(step_seconds, "How long does it take to run?")
def computing_takes_longer() -> None:
    """For many texts, computing takes longer."""
    equal(step_seconds(100.0, 100.0, 0.0, 10.0, 1000.0, rows=8), 160.0, {"one text": 20.0, "moving only": 0.2})


@check(step_seconds, "How long does it take to run?")
def only_the_experts_that_are_used() -> None:
    """With few texts, only the parameters in use are moved; with many, no more than there are."""
    found = [step_seconds(100.0, 10.0, 0.0, 1e9, 1.0, rows=rows) for rows in (1, 4, 50)]
    equal(found, [20.0, 80.0, 200.0], {"always all": [200.0] * 3, "more than there are": [20.0, 80.0, 1000.0]})
