"""Preferences and rewards: DPO, GRPO and pass@k against their formulas, loops and exhaustive counts."""

from __future__ import annotations

import math
from itertools import combinations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from transformer_lib.training.preferences import (
    dpo_loss,
    group_advantages,
    grpo_loss,
    pass_at_k,
)


def numbers(*shape: int, seed: int = 1) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


# ---------------------------------------------------------------- preferences


def test_dpo_begins_at_log_2_and_follows_its_formula():
    one, two, three, four = (numbers(5, seed=n) for n in range(4))
    assert dpo_loss(one, two, one, two).item() == pytest.approx(math.log(2))
    pairs = zip(one.tolist(), two.tolist(), three.tolist(), four.tolist(), strict=True)
    terms = [-math.log(1 / (1 + math.exp(-0.3 * ((c - rc) - (r - rr))))) for c, r, rc, rr in pairs]
    assert dpo_loss(one, two, three, four, beta=0.3).item() == pytest.approx(sum(terms) / 5, rel=1e-5)


# ---------------------------------------------------------------- rewards


@given(seed=st.integers(0, 1000), scale=st.sampled_from([0.1, 1.0, 30.0]), shift=st.sampled_from([-5.0, 0.0, 2.0]))
def test_advantages_forget_scale_and_shift(seed, scale, shift):
    rewards = numbers(3, 6, seed=seed)
    found = group_advantages(rewards)
    torch.testing.assert_close(group_advantages(scale * rewards + shift), found, atol=1e-2, rtol=1e-2)
    torch.testing.assert_close(found.mean(1), torch.zeros(3), atol=1e-5, rtol=0)
    torch.testing.assert_close(found.std(1), torch.ones(3), atol=1e-2, rtol=0)


def in_a_loop(now: Tensor, old: Tensor, reference: Tensor, advantages: Tensor, written: Tensor, beta: float) -> float:
    total = 0.0
    for i in range(len(now)):
        terms = []
        for t in range(now.shape[1]):
            if written[i, t]:
                ratio, a = math.exp(now[i, t] - old[i, t]), float(advantages[i])
                d = float(reference[i, t] - now[i, t])
                gain = min(ratio * a, min(max(ratio, 0.8), 1.2) * a)
                terms.append(gain - beta * (math.exp(d) - 1 - d))
        total -= sum(terms) / max(len(terms), 1)
    return total / len(now)


@given(seed=st.integers(0, 1000), beta=st.sampled_from([0.0, 0.3]))
def test_grpo_equals_a_loop(seed, beta):
    now, old, reference = (0.5 * numbers(4, 4, seed=seed + n) - 2 for n in range(3))
    written = torch.tensor([[1, 1, 1, 1], [1, 1, 0, 0], [0, 1, 0, 1], [0, 0, 0, 0]]).bool()
    advantages = numbers(4, seed=seed)
    found = grpo_loss(now, old, reference, advantages, written, beta=beta).item()
    assert found == pytest.approx(in_a_loop(now, old, reference, advantages, written, beta), rel=1e-4, abs=1e-5)


def test_with_its_own_draws_the_gradient_is_that_of_reinforce():
    now = numbers(3, 4).requires_grad_()
    written = torch.tensor([[1, 1, 1, 1], [1, 1, 0, 0], [1, 0, 0, 0]]).bool()
    advantages = numbers(3, seed=2)
    (found,) = torch.autograd.grad(grpo_loss(now, now.detach(), now.detach(), advantages, written, beta=0.5), now)
    expected = -advantages[:, None] * written / written.sum(1, keepdim=True) / 3
    torch.testing.assert_close(found, expected)


# ---------------------------------------------------------------- pass@k


@given(n=st.integers(1, 8), data=st.data())
def test_pass_at_k_counts_all_groups(n, data):
    correct, k = data.draw(st.integers(0, n)), data.draw(st.integers(1, n))
    groups = [*combinations(range(n), k)]
    share = sum(any(i < correct for i in group) for group in groups) / len(groups)
    assert pass_at_k(n, correct, k) == pytest.approx(share)
