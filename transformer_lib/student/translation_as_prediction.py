"""Tests for chapter "Translation as prediction"."""

import math

import torch
from torch import randn, tensor

from transformer_lib.metrics import perplexity, sequence_log_probability
from transformer_lib.student.checks import check, equal, refuses


@check(sequence_log_probability, "The loss")
def one_number_for_each_sentence() -> None:
    """Two sentences give two numbers."""
    equal(sequence_log_probability(randn(2, 3, 7), tensor([[4, 5, 2], [6, 2, 0]])).shape, torch.Size([2]))


@check(sequence_log_probability, "The loss")
def equal_logits() -> None:
    """If all V tokens are equally likely, each of the three tokens adds -ln V."""
    got = sequence_log_probability(torch.zeros(1, 3, 7), tensor([[4, 5, 2]]))
    equal(got, tensor([-3 * math.log(7)]), {"a mean, not a sum": tensor([-math.log(7)])})


@check(sequence_log_probability, "The loss")
def sum_of_log_probabilities() -> None:
    """The log-probability of a sentence is the sum of its tokens' ones; other shapes raise a ValueError."""
    logits, targets = randn(2, 3, 7), tensor([[4, 5, 2], [6, 3, 2]])
    log_p = logits.log_softmax(-1)
    loop = torch.stack([sum(log_p[b, t, targets[b, t]] for t in range(3)) for b in range(2)])
    shifted = torch.stack([sum(log_p[b, t, targets[b, t + 1]] for t in range(2)) for b in range(2)])
    wrong = torch.stack([sum(logits.log_softmax(1)[b, t, targets[b, t]] for t in range(3)) for b in range(2)])
    slips = {"Softmax along the wrong axis": wrong, "The answer among the inputs": shifted}
    equal(sequence_log_probability(logits, targets), loop, slips)
    refuses(ValueError, sequence_log_probability, logits, targets[:, :2])


@check(sequence_log_probability, "A batch")
def padding_adds_nothing() -> None:
    """Padding behind a sentence does not change its log-probability, whatever id the argument ``pad`` says it has."""
    log_p = randn(1, 5, 7).log_softmax(-1)
    for pad in (0, 6):
        targets = tensor([[4, 2, pad, pad, pad]])
        chosen = log_p[0, range(5), targets[0]]
        slips = {"the log-probabilities of PAD are added, too": chosen.sum()[None]}
        equal(sequence_log_probability(log_p, targets, pad), chosen[:2].sum()[None], slips)


@check(perplexity, "Perplexity")
def a_fair_die() -> None:
    """A model that finds seven tokens equally likely has perplexity 7."""
    got, nats = perplexity(-3 * math.log(7), 3), 3 * math.log(7)
    equal(got, 7.0, {"a forgotten minus sign": math.exp(-nats / 3), "not divided by the tokens": math.exp(nats)})


@check(perplexity, "Perplexity")
def nats() -> None:
    """Log-probabilities are in nats, so the perplexity is a power of e: at -2 nats a token, e squared.

    A positive log-probability (perhaps a loss) or no token raises a ValueError.
    """
    refuses(ValueError, perplexity, 6.0, 3)
    refuses(ValueError, perplexity, -6.0, 0)
    equal(perplexity(-6.0, 3), math.exp(2), {"a power of 2 instead of e": 4.0})
