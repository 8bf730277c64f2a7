"""Positions: the paper's formula, one turn for each offset, no two alike, and tables that survive every move."""

import copy
import math
import pickle
import re
import subprocess
import sys
from collections.abc import Sequence

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from jaxtyping import TypeCheckError
from torch import nn

from transformer_lib.models.positions import (
    LearnedPositions,
    SinusoidalPositions,
    sinusoids,
)

DEVICES = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]
KINDS = pytest.mark.parametrize("kind", [SinusoidalPositions, LearnedPositions])
HALF = {torch.float32: 2e-7, torch.bfloat16: 4e-3, torch.float16: 5e-4}  # half a unit in the last place, at 1


def generator(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def by_hand(positions: Sequence[int], d_model: int) -> torch.Tensor:
    """The formula of the paper as a double loop, in Python's own numbers."""
    table = torch.zeros(len(positions), d_model, dtype=torch.float64)
    for row, position in enumerate(positions):
        for pair in range(d_model // 2):
            table[row, 2 * pair] = math.sin(position / 10000 ** (2 * pair / d_model))
            table[row, 2 * pair + 1] = math.cos(position / 10000 ** (2 * pair / d_model))
    return table


def turn(offset: int, d_model: int) -> torch.Tensor:
    """The rotation that leads from every position to the one ``offset`` further."""
    blocks = []
    for pair in range(d_model // 2):
        angle = offset / 10000 ** (2 * pair / d_model)
        rows = [[math.cos(angle), math.sin(angle)], [-math.sin(angle), math.cos(angle)]]
        blocks.append(torch.tensor(rows, dtype=torch.float64))
    return torch.block_diag(*blocks)


# ---------------------------------------------------------------- the table


@given(length=st.integers(1, 60), half=st.integers(1, 20))
def test_sinusoids_equal_the_formula(length, half):
    table = sinusoids(length, 2 * half, dtype=torch.float64)
    assert table.shape == (length, 2 * half) and table.dtype == torch.float64
    torch.testing.assert_close(table, by_hand(range(length), 2 * half), atol=1e-12, rtol=0)


@pytest.mark.slow
@pytest.mark.parametrize("d_model", [2, 64, 512])
def test_far_positions_equal_the_formula_too(d_model):
    table, rows = sinusoids(5000, d_model, dtype=torch.float64), [0, 1, 999, 4999]
    torch.testing.assert_close(table[rows], by_hand(rows, d_model), atol=1e-10, rtol=0)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", HALF)
def test_every_type_is_rounded_once(dtype):
    table = sinusoids(1024, 64, dtype=dtype)
    assert table.dtype == dtype
    assert torch.equal(table, sinusoids(1024, 64, dtype=torch.float64).to(dtype))
    torch.testing.assert_close(table.double(), by_hand(range(1024), 64), atol=HALF[dtype], rtol=0)


def test_the_default_type_and_device_are_honoured():
    assert sinusoids(3, 4).dtype == torch.float32
    torch.set_default_dtype(torch.float64)
    try:
        assert torch.equal(sinusoids(3, 4), sinusoids(3, 4, dtype=torch.float64))
    finally:
        torch.set_default_dtype(torch.float32)
    with torch.device("meta"):
        assert sinusoids(3, 4).is_meta


@given(
    offset=st.integers(-200, 200),
    start=st.integers(0, 300),
    half=st.integers(1, 32),
)
def test_an_offset_is_one_rotation_wherever_it_starts(offset, start, half):
    table = sinusoids(700, 2 * half, dtype=torch.float64)
    rotation = turn(offset, 2 * half)
    torch.testing.assert_close(rotation.T @ rotation, torch.eye(2 * half, dtype=torch.float64), atol=1e-12, rtol=0)
    first = start + max(0, -offset)
    torch.testing.assert_close(rotation @ table[first], table[first + offset], atol=1e-10, rtol=0)


@given(half=st.integers(1, 64), first=st.integers(0, 400), second=st.integers(0, 400), shift=st.integers(1, 500))
def test_the_product_of_two_positions_depends_on_their_distance(half, first, second, shift):
    table = sinusoids(901, 2 * half, dtype=torch.float64)
    torch.testing.assert_close(
        table[first] @ table[second], table[first + shift] @ table[second + shift], atol=1e-9, rtol=0
    )
    assert table[first] @ table[first] == pytest.approx(half, abs=1e-9)
    if first != second:
        assert table[first] @ table[second] < half - 1e-9


@pytest.mark.parametrize("d_model", [4, 64, 512])
@pytest.mark.parametrize("dtype", [torch.float64, *HALF])
def test_no_two_positions_are_alike(d_model, dtype):
    table = SinusoidalPositions(d_model, 1024).to(dtype).table
    if dtype in (torch.bfloat16, torch.float16) and d_model == 4:
        pytest.skip("four numbers of 16 bits cannot name a thousand positions")
    assert len(table.unique(dim=0)) == 1024


def test_pairs_share_a_frequency_and_frequencies_fall():
    crossings = (sinusoids(20_000, 32, dtype=torch.float64).sign().diff(dim=0) != 0).sum(dim=0)
    sines, cosines = crossings[0::2], crossings[1::2]
    assert (sines - cosines).abs().max() <= 2
    assert (sines.diff() <= 0).all() and (sines[:10].diff() < 0).all()
    for pair in range(6):  # a sine crosses zero twice in a wavelength
        wavelength = 2 * math.pi * 10000 ** (2 * pair / 32)
        assert sines[pair].item() == pytest.approx(2 * 20_000 / wavelength, abs=2)


def test_values_are_bounded_and_start_at_sine_0_cosine_1():
    table = sinusoids(3000, 128, dtype=torch.float64)
    assert table.abs().max() <= 1
    assert table[0].tolist() == [0.0, 1.0] * 64


# ---------------------------------------------------------------- the modules


@KINDS
@given(batch=st.integers(1, 3), length=st.integers(0, 12), half=st.integers(1, 6), start=st.integers(0, 8))
def test_a_start_is_a_slice(kind, batch, length, half, start):
    positions = kind(2 * half, 20).double()
    inputs = torch.randn(batch, length, 2 * half, generator=generator(length)).double()
    rows = torch.stack([positions.table[start + t] for t in range(length)]) if length else torch.zeros(0, 2 * half)
    torch.testing.assert_close(positions(inputs, start), inputs + rows.double(), atol=1e-14, rtol=0)


@KINDS
def test_one_place_at_a_time_equals_all_at_once(kind):
    positions = kind(6, 9)
    inputs = torch.randn(2, 9, 6, generator=generator(0))
    single = [positions(inputs[:, t : t + 1], t) for t in range(9)]
    assert torch.equal(torch.cat(single, dim=1), positions(inputs))


@KINDS
def test_inputs_are_left_alone(kind):
    inputs = torch.randn(2, 3, 4, generator=generator(0))
    before = inputs.clone()
    kind(4, 8)(inputs)
    assert torch.equal(inputs, before)


def test_each_kind_has_the_table_it_says():
    assert torch.equal(SinusoidalPositions(8, 50).table, sinusoids(50, 8))
    learned = LearnedPositions(64, 500).table
    assert learned.std().item() == pytest.approx(64**-0.5, rel=0.05) and abs(learned.mean().item()) < 0.005
    assert SinusoidalPositions(4).max_length == LearnedPositions(4).max_length == 1024


def test_only_learned_positions_are_stored_and_trained():
    fixed, learned = SinusoidalPositions(4, 6), LearnedPositions(4, 6)
    assert not fixed.state_dict() and not list(fixed.parameters())
    assert list(learned.state_dict()) == ["table"] == [name for name, _ in learned.named_parameters()]
    assert not fixed.table.requires_grad


def test_gradients_of_learned_positions():
    learned, inputs = LearnedPositions(4, 9).double(), torch.randn(3, 5, 4).double().requires_grad_()
    weights = torch.randn(3, 5, 4, generator=generator(0)).double()
    (learned(inputs, 2) * weights).sum().backward()
    torch.testing.assert_close(learned.table.grad[2:7], weights.sum(dim=0))  # a row serves the whole batch
    assert not learned.table.grad[:2].any() and not learned.table.grad[7:].any()
    assert torch.equal(inputs.grad, weights)


@KINDS
@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", HALF)
def test_types_and_devices(kind, device, dtype):
    positions = kind(16, 1024)
    exact = copy.deepcopy(positions).double()
    inputs = torch.randn(2, 5, 16, generator=generator(0))
    moved = positions.to(device, dtype)(inputs.to(device, dtype), 1000)
    assert moved.dtype == dtype and moved.device.type == device
    torch.testing.assert_close(moved.cpu().double(), exact(inputs.double(), 1000), atol=8 * HALF[dtype], rtol=0)


@KINDS
@pytest.mark.parametrize("device", DEVICES)
def test_the_inputs_decide_the_type_of_the_sum(kind, device):
    positions = kind(4, 8).to(device)
    for dtype in (torch.bfloat16, torch.float16, torch.float64):
        assert positions(torch.zeros(1, 2, 4, device=device, dtype=dtype)).dtype == dtype
    with torch.autocast(device, dtype=torch.bfloat16):
        assert positions(torch.zeros(1, 2, 4, device=device)).dtype == torch.float32


COMPILED = """
import torch
from transformer_lib.models.positions import LearnedPositions, SinusoidalPositions
for kind in (SinusoidalPositions, LearnedPositions):
    positions, inputs = kind(4, 8), torch.randn(2, 3, 4)
    compiled = torch.compile(positions, fullgraph=True, backend="eager")
    for start in (0, 2, 5):
        assert torch.equal(compiled(inputs, start), positions(inputs, start))
print("one graph")
"""


@pytest.mark.slow
def test_compiles_into_one_graph():
    """In a process of its own, as users have it: the run-time check of annotations cannot be compiled."""
    done = subprocess.run([sys.executable, "-c", COMPILED], capture_output=True, text=True, timeout=300)
    assert done.stdout.strip() == "one graph", done.stderr[-3000:]


# ---------------------------------------------------------------- a table that is in no file


def inside(positions: SinusoidalPositions) -> nn.Module:
    """A model that holds positions and something with weights."""
    return nn.ModuleDict({"positions": positions, "linear": nn.Linear(4, 4)})


def test_memory_given_later_holds_the_table():
    with torch.device("meta"):
        model = inside(SinusoidalPositions(4, 6))
    assert model["positions"].table.is_meta
    assert model["positions"](torch.zeros(2, 3, 4, device="meta")).shape == (2, 3, 4)
    model.to_empty(device="cpu")
    assert torch.equal(model["positions"].table, sinusoids(6, 4))
    assert "table" in dict(model["positions"].named_buffers())


def test_memory_given_later_in_another_type_holds_the_table():
    with torch.device("meta"):
        model = inside(SinusoidalPositions(4, 6)).bfloat16()
        model.to_empty(device="cpu")  # still inside: nothing is to be computed on this device
    assert torch.equal(model["positions"].table, sinusoids(6, 4, dtype=torch.bfloat16))


def test_weights_assigned_to_a_model_without_memory():
    full = inside(SinusoidalPositions(4, 6))
    with torch.device("meta"):
        model = inside(SinusoidalPositions(4, 6))
    model.load_state_dict(full.state_dict(), assign=True)
    inputs = torch.randn(1, 5, 4)
    assert torch.equal(model["positions"](inputs, 1), full["positions"](inputs, 1))
    assert not model["positions"].table.is_meta
    assert not model.state_dict().keys() - full.state_dict().keys()


def test_to_half_and_back_loses_nothing():
    positions = SinusoidalPositions(8, 100)
    assert torch.equal(positions.half().float().table, sinusoids(100, 8))
    assert torch.equal(positions.double().table, sinusoids(100, 8, dtype=torch.float64))


def test_moves_that_change_nothing_keep_the_table():
    positions = SinusoidalPositions(8, 10)
    table = positions.table
    assert positions.to("cpu").float().table is table
    assert positions.requires_grad_(False).share_memory().table.is_shared()
    assert torch.equal(positions.table, sinusoids(10, 8))


def test_copies_and_pickles():
    positions = SinusoidalPositions(8, 10)
    for other in (copy.deepcopy(positions), pickle.loads(pickle.dumps(positions))):
        assert torch.equal(other.table, positions.table) and other.table is not positions.table
        assert not other.state_dict()


# ---------------------------------------------------------------- bad input

BAD = {
    "odd width of a table": (lambda: sinusoids(5, 7), "d_model=7 is odd"),
    "table of length 0": (lambda: sinusoids(0, 4), "length=0"),
    "negative length": (lambda: sinusoids(-3, 4), "length=-3"),
    "width of 0": (lambda: sinusoids(3, 0), "d_model=0"),
    "whole numbers": (lambda: sinusoids(3, 4, dtype=torch.int64), "torch.int64 is no floating type"),
    "odd width": (lambda: SinusoidalPositions(5), "d_model=5 is odd"),
    "sinusoids without room": (lambda: SinusoidalPositions(4, 0), "max_length=0"),
    "learned without room": (lambda: LearnedPositions(4, -1), "max_length=-1"),
    "learned without width": (lambda: LearnedPositions(0, 4), "d_model=0"),
    "another width": (
        lambda: SinusoidalPositions(4, 8)(torch.zeros(1, 2, 6)),
        r"shape \(1, 2, 6\), expected .*4",
    ),
    "no batch": (lambda: LearnedPositions(4, 8)(torch.zeros(2, 4)), r"shape \(2, 4\), expected"),
    "four axes": (lambda: LearnedPositions(4, 8)(torch.zeros(1, 1, 2, 4)), r"shape \(1, 1, 2, 4\), expected"),
    "token ids": (lambda: SinusoidalPositions(4, 8)(torch.zeros(1, 2, 4, dtype=torch.long)), "int64 tensor"),
    "too long": (lambda: SinusoidalPositions(4, 8)(torch.zeros(1, 9, 4)), "positions 0 to 8 .* max_length=8"),
    "too far": (lambda: LearnedPositions(4, 8)(torch.zeros(1, 3, 4), 6), "positions 6 to 8 .* max_length=8"),
    "just too far": (lambda: LearnedPositions(4, 8)(torch.zeros(1, 1, 4), 8), "positions 8 to 8 .* max_length=8"),
    "before the start": (lambda: SinusoidalPositions(4, 8)(torch.zeros(1, 3, 4), -1), "positions -1 to 1"),
    "a place and a half": (lambda: LearnedPositions(4, 8)(torch.zeros(1, 3, 4), 1.5), "start is 1.5"),
    "vectors of width 1": (lambda: LearnedPositions(4, 8)(torch.zeros(1, 3, 1)), r"shape \(1, 3, 1\)"),
    "another device": (
        lambda: SinusoidalPositions(4, 8)(torch.zeros(1, 3, 4, device="meta")),
        "meta",
    ),
    "learned on meta": (
        lambda: LearnedPositions(4, 8).to("meta")(torch.zeros(1, 3, 4)),
        "meta",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_named(case):
    call, message = BAD[case]
    with pytest.raises((ValueError, TypeError, RuntimeError)) as caught:
        call()
    # With the annotations enforced, a wrong shape may be caught before our own check; test_errors.py runs without.
    error = caught.value
    assert TypeCheckError in (type(error), type(error.__cause__)) or re.search(message, str(caught.value))


@KINDS
def test_the_last_place_is_still_there(kind):
    positions = kind(4, 8)
    assert positions(torch.zeros(1, 8, 4)).shape == (1, 8, 4)
    assert torch.equal(positions(torch.zeros(1, 1, 4), 7)[0, 0], positions.table[7])
