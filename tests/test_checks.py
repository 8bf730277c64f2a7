"""Bad input is named, and good input costs nothing."""

import math
from dataclasses import dataclass

import pytest
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from transformer_lib.checks import (
    check_choice,
    check_fields,
    check_flag,
    check_number,
    check_positive,
    check_probability,
    check_texts,
    check_whole,
    explained,
    pick_device,
)


@explained
def mixed(weights: Float[Tensor, "T S"], values: Float[Tensor, "S D"], times: int = 1) -> Float[Tensor, "T D"]:
    return weights @ values * times


class Scaled(nn.Module):
    @explained
    def forward(self, x: Float[Tensor, "B D"], ids: Int[Tensor, " B"] | None = None) -> Tensor:
        return x * 2 if ids is None else x * ids[:, None].abs()


GOOD = torch.ones(2, 4), torch.ones(4, 3)


def test_what_succeeds_is_untouched():
    assert torch.equal(mixed(*GOOD, times=3), torch.full((2, 3), 12.0))
    assert mixed.__name__ == "mixed" and mixed.__doc__ is None


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ((GOOD[0], GOOD[1][:3]), ValueError, r"mixed: values is a float32 tensor of shape \(3, 3\), .*S D.* with S=4"),
        ((GOOD[0].tolist(), GOOD[1]), TypeError, r"mixed: weights is \[\[1.0.*\(list\), expected Float"),
        ((GOOD[0], None), TypeError, "mixed: values is None, expected Float"),
        ((GOOD[0].long(), GOOD[1]), ValueError, "mixed: weights is a int64 tensor"),
        ((*GOOD, "twice"), TypeError, r"mixed: times is 'twice' \(str\), expected int"),
    ],
)
def test_the_argument_that_does_not_fit_is_named(arguments, error, message):
    with pytest.raises(error, match=message):
        mixed(*arguments)


def test_a_method_and_a_choice_of_types():
    with pytest.raises(TypeError, match=r"Scaled.forward: ids is 'no' \(str\), expected Int.* \| None"):
        Scaled()(torch.ones(2, 3), "no")
    with pytest.raises(ValueError, match=r"Scaled.forward: ids is a int64 tensor of shape \(3,\), .* with B=2"):
        Scaled()(torch.ones(2, 3), torch.arange(3))


def test_errors_of_another_cause_and_wrong_numbers_of_arguments_stay_as_they_are():
    @explained
    def fails(x: int) -> int:
        raise RuntimeError("out of memory")

    with pytest.raises(RuntimeError, match="out of memory"):
        fails(1)
    with pytest.raises(TypeError, match="missing 1 required"):
        fails()


def test_what_came_is_told_where_all_fit_and_pytorch_refuses():
    table = nn.Embedding(5, 3)

    @explained
    def look_up(x: Float[Tensor, "B D"], ids: Int[Tensor, " B"]) -> Tensor:
        return (x @ torch.ones(3, 3)) * table(ids)

    wanted = r"look_up: index out of range.*\(x is a float32 tensor of shape \(2, 3\); ids is a int64 tensor of shape"
    with pytest.raises(ValueError, match=wanted):
        look_up(torch.ones(2, 3), torch.tensor([4, 5]))
    with pytest.raises(ValueError, match=r"look_up: mat1 and mat2 shapes.*\(x is a float32 tensor of shape \(2, 4\)"):
        look_up(torch.ones(2, 4), torch.tensor([4, 3]))


def test_the_inner_explanation_reaches_the_caller():
    @explained
    def outer(x: Float[Tensor, "T S"]) -> Tensor:
        return mixed(x, torch.ones(9, 3))

    with pytest.raises(ValueError, match="mixed: values"):
        outer(torch.ones(2, 4))


@pytest.mark.slow
def test_it_passes_through_export_and_compile():
    exported = torch.export.export(Scaled(), (torch.ones(2, 3),)).module()
    assert torch.equal(exported(torch.ones(2, 3)), torch.full((2, 3), 2.0))
    compiled = torch.compile(Scaled(), fullgraph=True, backend="eager")
    assert torch.equal(compiled(torch.ones(2, 3)), torch.full((2, 3), 2.0))


@pytest.mark.parametrize("value", [0, -1, 2.5, 2.0, True, "3", None, math.nan])
def test_sizes(value):
    with pytest.raises(ValueError, match=r"beam_size=.* must be"):
        check_positive(beam_size=value)
    check_positive(beam_size=1, n_best=torch.tensor(3))
    assert check_whole("seed", torch.tensor(0), least=0) == 0


@pytest.mark.parametrize("value", [-0.1, 1, 1.5, "0.1", None, math.nan, math.inf, True])
def test_probabilities(value):
    with pytest.raises(ValueError, match=r"dropout=.* must be a finite number at least 0 and below 1"):
        check_probability(dropout=value)
    check_probability(dropout=0, attention_dropout=0.999)


def test_numbers_have_limits_that_are_in_or_out():
    check_number(above=0, at_most=1, top_p=1)
    for bad in (0, 1.01):
        with pytest.raises(ValueError, match=r"top_p=.* above 0 and at most 1"):
            check_number(above=0, at_most=1, top_p=bad)


def test_the_settings_of_a_dataclass():
    @dataclass
    class Settings:
        width: int = 1
        bias: bool = True
        dropout: float = 0.0
        name: str = "any"

    check_fields(Settings(name=""))
    for bad in ({"width": 0}, {"width": 2.5}, {"bias": "no"}, {"dropout": 1.0}):
        with pytest.raises((ValueError, TypeError), match=f"{next(iter(bad))}=.* must be"):
            check_fields(Settings(**bad))


def test_flags_choices_and_texts():
    check_flag(bias=True)
    with pytest.raises(TypeError, match="bias='no' must be True or False"):
        check_flag(bias="no")
    check_choice("activation", "relu", ["relu", "gelu"])
    with pytest.raises(ValueError, match="activation='rleu' is unknown; choose from relu, gelu"):
        check_choice("activation", "rleu", {"relu": 1, "gelu": 2})
    assert check_texts(iter(["a", "b"])) == ["a", "b"]
    for bad in ("a", 3, None):
        with pytest.raises(TypeError, match="expected a list of strings"):
            check_texts(bad)
    with pytest.raises(TypeError, match=r"texts\[1\] is 3 \(int\), expected a string"):
        check_texts(["a", 3])
    with pytest.raises(ValueError, match=r"texts\[0\] holds half a surrogate pair"):
        check_texts(["a\ud800"])


def test_devices():
    assert pick_device("cpu").type == "cpu"
    for bad in ("cuda:99", "meta", "gpu", 5.5):
        with pytest.raises(ValueError, match="is not available here"):
            pick_device(bad)
