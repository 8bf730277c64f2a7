"""Positions, feed-forward layers, layer norm against their formulas and PyTorch."""

from __future__ import annotations

import copy
import math

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from transformer_lib.models.layers import (
    ACTIVATIONS,
    FeedForward,
    LayerNorm,
    LearnedPositions,
    SinusoidalPositions,
    sinusoids,
)

KINDS = pytest.mark.parametrize("kind", [SinusoidalPositions, LearnedPositions])


@pytest.mark.parametrize(("length", "width"), [(1, 2), (50, 6), (2000, 64)])
def test_sinusoids_equal_the_formula(length, width):
    table = sinusoids(length, width, dtype=torch.float64)
    for t in range(0, length, 97):
        for i in range(width // 2):
            angle = t / 10_000 ** (2 * i / width)
            assert abs(table[t, 2 * i] - math.sin(angle)) < 1e-9
            assert abs(table[t, 2 * i + 1] - math.cos(angle)) < 1e-9


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_sinusoids_are_rounded_once(dtype):
    exact = sinusoids(1024, 64, dtype=torch.float64)
    assert torch.equal(sinusoids(1024, 64, dtype=dtype), exact.to(dtype))


def test_an_odd_width_is_refused():
    with pytest.raises(ValueError, match="odd"):
        sinusoids(4, 3)


@KINDS
def test_positions_add_their_rows_all_at_once_or_one_by_one(kind):
    positions, x = kind(8, 20), torch.randn(2, 6, 8)
    y = positions(x, 5)
    torch.testing.assert_close(y, x + positions.table[5:11].float())
    for t in range(6):
        assert torch.equal(positions(x[:, t : t + 1], 5 + t), y[:, t : t + 1])


@KINDS
def test_the_last_position_is_there_and_the_next_is_refused(kind):
    positions = kind(8, 20)
    positions(torch.zeros(1, 1, 8), 19)
    for start, length in ((20, 1), (18, 3)):
        with pytest.raises(ValueError, match="max_length=20"):
            positions(torch.zeros(1, length, 8), start)


def test_only_learned_positions_are_stored_and_trained():
    assert list(LearnedPositions(8).state_dict()) == ["table"]
    assert not SinusoidalPositions(8).state_dict() and not list(SinusoidalPositions(8).parameters())


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16], ids=str)
def test_sinusoidal_positions_survive_meta_moves_copies_and_types(dtype):
    x = torch.randn(2, 5, 8, dtype=dtype)
    expected = x + sinusoids(5, 8, dtype=dtype)
    with torch.device("meta"):
        empty = SinusoidalPositions(8)
    assert empty(x.to("meta")).is_meta
    assert torch.equal(empty(x), expected)
    assert torch.equal(empty.to_empty(device="cpu")(x), expected)
    assert torch.equal(SinusoidalPositions(8).half()(x), expected)
    assert torch.equal(copy.deepcopy(empty)(x), expected)


def test_a_forward_pass_changes_no_positions():
    """Whatever its type, so that a model may be compiled, exported, or shared by threads."""
    positions = SinusoidalPositions(8)
    table, before = positions.table, positions.table.clone()
    for dtype in (torch.bfloat16, torch.float64):
        positions(torch.randn(2, 5, 8, dtype=dtype))
    assert positions.table is table and torch.equal(table, before)


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_feed_forward_equals_its_equation(activation):
    layer, x = FeedForward(8, 12, activation=activation).double(), torch.randn(2, 3, 8).double()
    functions = {"relu": nn.ReLU(), "gelu": nn.GELU(), "swish": nn.SiLU(), "gelu_tanh": nn.GELU("tanh")}
    nn.init.normal_(layer.linear1.bias)
    expected = F.linear(functions[activation](layer.linear1(x)), layer.linear2.weight, layer.linear2.bias)
    torch.testing.assert_close(layer(x), expected)


def test_dropout_inside_a_feed_forward_layer_acts_in_training_only():
    layer, x = FeedForward(8, 64, dropout=0.5), torch.randn(1, 3, 8)
    assert not torch.equal(layer(x), layer(x))
    assert torch.equal(layer.eval()(x), layer(x))


@pytest.mark.parametrize("scale", [0.0, 1.0, 1e3])
def test_layer_norm_equals_torch(scale):
    ours, theirs = LayerNorm(8, eps=1e-3).double(), nn.LayerNorm(8, 1e-3).double()
    nn.init.normal_(ours.weight), nn.init.normal_(ours.bias)
    theirs.load_state_dict(ours.state_dict())
    x = (scale * torch.randn(2, 3, 8).double()).requires_grad_()
    results = []
    for norm in (ours, theirs):
        y = norm(x)
        results.append([y, *torch.autograd.grad(y.pow(3).sum(), [x, norm.weight, norm.bias])])
    torch.testing.assert_close(*results)
