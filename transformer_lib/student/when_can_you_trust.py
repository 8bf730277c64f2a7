"""Tests for chapter "When can you trust a translation?"."""

import math

import torch
from torch import tensor

from transformer_lib.plain.trust import auc, confidence, log_probabilities, rounded
from transformer_lib.student.checks import check, equal

P = tensor(  # the probabilities of six words after each token 0 to 5: padding, BOS, EOS and three words
    [
        [0.1, 0.1, 0.1, 0.3, 0.2, 0.2],
        [0.05, 0.05, 0.1, 0.5, 0.2, 0.1],
        [1 / 6] * 6,
        [0.1, 0.1, 0.2, 0.1, 0.4, 0.1],
        [0.05, 0.05, 0.7, 0.1, 0.05, 0.05],
        [0.2, 0.2, 0.3, 0.1, 0.1, 0.1],
    ]
)
SOURCE = tensor([[3, 4, 2], [5, 2, 0]])
TARGET = tensor([[1, 3, 4, 2], [1, 5, 2, 0]])


def model(source: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    """A model that looks at the last token only; logits are no probabilities, so all of them are shifted."""
    return P.log()[target] + 3 * source[:, :1, None]


@check(log_probabilities, "From probabilities to one number")
def each_token_by_those_before() -> None:
    """Each token after BOS has the log-probability that the model gives it after the tokens before; padding has 0."""
    want = tensor([[0.5, 0.4, 0.7], [0.1, 0.3, 1.0]]).log()
    p = P[TARGET[:, :-1]].gather(-1, TARGET[:, 1:, None]).squeeze(-1).log()
    slips = {"padding counts, too": p, "probabilities without a logarithm": want.exp()}
    equal(log_probabilities(model, SOURCE, TARGET), want, slips)


@check(log_probabilities, "From probabilities to one number")
def no_gradient() -> None:
    """The result has no gradient: nothing is learned here."""
    weights = torch.ones(6, requires_grad=True)
    found = log_probabilities(lambda s, t: model(s, t) * weights, SOURCE, TARGET)
    equal(found.requires_grad, False)


@check(confidence, "From probabilities to one number")
def geometric_mean() -> None:
    """The geometric mean of the probabilities, over the tokens that are no padding."""
    want = tensor([(0.5 * 0.4 * 0.7) ** (1 / 3), (0.1 * 0.3) ** (1 / 2)])
    slips = {
        "the probability of the whole": tensor([0.5 * 0.4 * 0.7, 0.1 * 0.3]),
        "padding counts, too": tensor([(0.5 * 0.4 * 0.7) ** (1 / 3), (0.1 * 0.3) ** (1 / 3)]),
        "the arithmetic mean": tensor([(0.5 + 0.4 + 0.7) / 3, (0.1 + 0.3) / 2]),
        "a logarithm": want.log(),
    }
    equal(confidence(model, SOURCE, TARGET), want, slips)


@check(auc, "How good is the warning?")
def share_of_pairs() -> None:
    """The share of pairs in which the first value is lower: 1 if all are, 0 if none is, and ties count half."""
    equal(float(auc([0.2, 0.6], [0.5, 0.7])), 0.75, {"a count, not a share": 3.0, "the wrong way round": 0.25})
    equal((float(auc([1], [2, 3])), float(auc([4, 5], [2]))), (1.0, 0.0))
    equal(float(auc([1, 2], [1, 2])), 0.5, {"ties count nothing": 0.25, "ties count fully": 0.75})
    equal(math.isclose(auc([1, 1, 3], [2, 2]), 2 / 3), True)


@check(rounded, "How exact must a weight be?")
def whole_numbers_times_a_scale() -> None:
    """With three bits, whole numbers from -3 to 3, times a scale for each row, whose largest weight stays as it is."""
    weight = tensor([[1.0, -0.4, 0.3], [0.02, 0.04, -0.1]])
    scale = tensor([[1.0], [0.1]]) / 3
    whole = tensor([[3.0, -1, 1], [1, 1, -3]])
    slips = {
        "the whole numbers, without their scale": whole,
        "one scale for the whole matrix": tensor([[3.0, -1, 1], [0, 0, 0]]) / 3,
        "cut off, not rounded": tensor([[3.0, -1, 0], [0, 1, -3]]) * scale,
        "whole numbers up to 4 need another bit": tensor([[4.0, -2, 1], [1, 2, -4]]) * tensor([[1.0], [0.1]]) / 4,
        "the largest weight with its sign": tensor([[3.0, -1, 1], [2, 3, -8]]) * tensor([[1.0], [0.04]]) / 3,
    }
    equal(rounded(weight, 3), whole * scale, slips)
    zeros, nan = torch.zeros(1, 3), torch.full((1, 3), torch.nan)
    equal(rounded(zeros, 3), zeros, {"a row of zeros, divided by zero": nan})
