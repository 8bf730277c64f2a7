"""Preferences and rewards: DPO, GRPO and pass@k against their formulas, loops and exhaustive counts."""

from __future__ import annotations

import math
from itertools import combinations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from transformer_lib.models.gpt import GPT, GPTConfig
from transformer_lib.training.preferences import (
    answer_log_probs,
    dpo_loss,
    group_advantages,
    grpo_loss,
    pass_at_k,
)

TOKENS = torch.tensor([[1, 5, 6, 7, 8, 2], [1, 9, 6, 4, 2, 0]])


def numbers(*shape: int, seed: int = 1) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def model() -> GPT:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return GPT(GPTConfig(vocab_size=12, d_model=8, n_heads=2, n_layers=1, dropout=0.0, max_length=8)).eval()


# ---------------------------------------------------------------- log-probabilities of answers


@torch.no_grad()
@pytest.mark.parametrize("start", [1, 3])
def test_each_token_of_the_answer_gets_its_log_probability(start):
    gpt = model()
    found, written = answer_log_probs(gpt, TOKENS, start)
    assert torch.equal(written, TOKENS[:, start:] != 0)
    for row in range(2):
        for t in range(start, 6):
            token = int(TOKENS[row, t])
            expected = gpt(TOKENS[row : row + 1, :t])[0, -1].log_softmax(-1)[token] if token else 0.0
            assert float(found[row, t - start]) == pytest.approx(float(expected), abs=1e-5)


# ---------------------------------------------------------------- preferences


def test_dpo_begins_at_log_2_and_follows_its_formula():
    one, two, three, four = (numbers(5, seed=n) for n in range(4))
    assert dpo_loss(one, two, one, two).item() == pytest.approx(math.log(2))
    pairs = zip(one.tolist(), two.tolist(), three.tolist(), four.tolist(), strict=True)
    terms = [-math.log(1 / (1 + math.exp(-0.3 * ((c - rc) - (r - rr))))) for c, r, rc, rr in pairs]
    assert dpo_loss(one, two, three, four, beta=0.3).item() == pytest.approx(sum(terms) / 5, rel=1e-5)


def test_dpo_recovers_the_policy_that_its_reward_wants():
    """With preferences in the proportions of Bradley and Terry, the optimum is reference * exp(r / beta)."""
    reward, reference, beta = torch.tensor([0.0, 0.5, 1.0]), torch.tensor([0.5, 0.2, 0.3]).log(), 0.5
    logits = torch.zeros(3, requires_grad=True)
    first, second = torch.tensor([*combinations(range(3), 2)]).T
    wins = torch.sigmoid(reward[first] - reward[second])
    optimizer = torch.optim.LBFGS([logits], max_iter=200, tolerance_grad=1e-9)

    def closure() -> Tensor:
        optimizer.zero_grad()
        policy, loss = logits.log_softmax(-1), torch.zeros(())
        for a, b, p in zip(first, second, wins, strict=True):
            for winner, loser, share in ((a, b, p), (b, a, 1 - p)):
                rows = (policy[winner], policy[loser], reference[winner], reference[loser])
                loss = loss + share * dpo_loss(*(x[None] for x in rows), beta=beta)
        loss.backward()
        return loss

    optimizer.step(closure)
    expected = (reference + reward / beta).softmax(-1)
    torch.testing.assert_close(logits.detach().softmax(-1), expected, atol=1e-3, rtol=1e-3)


# ---------------------------------------------------------------- rewards


@given(seed=st.integers(0, 1000), scale=st.sampled_from([0.1, 1.0, 30.0]), shift=st.sampled_from([-5.0, 0.0, 2.0]))
def test_advantages_forget_scale_and_shift(seed, scale, shift):
    rewards = numbers(3, 6, seed=seed)
    found = group_advantages(rewards)
    torch.testing.assert_close(group_advantages(scale * rewards + shift), found, atol=1e-2, rtol=1e-2)
    torch.testing.assert_close(found.mean(1), torch.zeros(3), atol=1e-5, rtol=0)
    torch.testing.assert_close(found.std(1), torch.ones(3), atol=1e-2, rtol=0)


def test_equal_rewards_teach_nothing():
    assert torch.equal(group_advantages(torch.full((2, 4), 0.7)), torch.zeros(2, 4))


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
        total -= sum(terms) / len(terms)
    return total / len(now)


@given(seed=st.integers(0, 1000), beta=st.sampled_from([0.0, 0.3]))
def test_grpo_equals_a_loop(seed, beta):
    now, old, reference = (0.5 * numbers(3, 4, seed=seed + n) - 2 for n in range(3))
    written = torch.tensor([[1, 1, 1, 1], [1, 1, 0, 0], [1, 0, 0, 0]]).bool()
    advantages = numbers(3, seed=seed)
    found = grpo_loss(now, old, reference, advantages, written, beta=beta).item()
    assert found == pytest.approx(in_a_loop(now, old, reference, advantages, written, beta), rel=1e-4, abs=1e-5)


def test_with_its_own_draws_the_gradient_is_that_of_reinforce():
    now = numbers(3, 4).requires_grad_()
    written = torch.tensor([[1, 1, 1, 1], [1, 1, 0, 0], [1, 0, 0, 0]]).bool()
    advantages = numbers(3, seed=2)
    (found,) = torch.autograd.grad(grpo_loss(now, now.detach(), now.detach(), advantages, written, beta=0.5), now)
    expected = -advantages[:, None] * written / written.sum(1, keepdim=True) / 3
    torch.testing.assert_close(found, expected)


def test_clipping_stops_the_push_and_not_the_way_back():
    old = torch.zeros(1, 1)
    for far, advantage, moves in ((0.5, 1.0, False), (0.5, -1.0, True), (-0.5, -1.0, False), (-0.5, 1.0, True)):
        now = torch.full((1, 1), far, requires_grad=True)
        loss = grpo_loss(now, old, old, torch.tensor([advantage]), torch.ones(1, 1).bool())
        (gradient,) = torch.autograd.grad(loss, now)
        assert (gradient != 0).item() is moves


def test_the_leash_is_the_divergence_from_the_reference():
    policy, reference = numbers(6, seed=3).log_softmax(-1), numbers(6, seed=4).log_softmax(-1)
    weight = policy.exp()
    rows = (x[:, None] for x in (policy, policy, reference))
    ones = torch.ones(6, 1).bool()
    single = torch.stack(
        [
            grpo_loss(p, o, r, torch.zeros(1), ones[:1], beta=1.0)
            for p, o, r in zip(*(x.split(1) for x in rows), strict=True)
        ]
    )
    assert (single >= 0).all()
    expected = (weight * (policy - reference)).sum()
    torch.testing.assert_close((weight * single).sum(), expected, atol=1e-5, rtol=1e-4)


def test_rewards_teach_a_model():
    """A model that is rewarded for one token learns to write it."""
    gpt, prompt = model(), torch.tensor([[1]]).repeat(16, 1)
    adam, draw = torch.optim.Adam(gpt.parameters(), 0.02), torch.Generator().manual_seed(0)
    shares = []
    for _ in range(30):
        answer = gpt(prompt)[:, -1].softmax(-1).multinomial(1, generator=draw)
        now, written = answer_log_probs(gpt, torch.cat([prompt, answer], 1), 1)
        reward = (answer == 7).float().view(1, 16)
        advantages = group_advantages(reward).flatten()
        loss = grpo_loss(now, now.detach(), now.detach(), advantages, written | True)
        adam.zero_grad()
        loss.backward()
        adam.step()
        shares.append(float(gpt(prompt[:1])[0, -1].softmax(-1)[7].detach()))
    assert shares[0] < 0.5 and shares[-1] > 0.8


# ---------------------------------------------------------------- pass@k


@given(n=st.integers(1, 8), data=st.data())
def test_pass_at_k_counts_all_groups(n, data):
    correct, k = data.draw(st.integers(0, n)), data.draw(st.integers(1, n))
    groups = [*combinations(range(n), k)]
    share = sum(any(i < correct for i in group) for group in groups) / len(groups)
    assert pass_at_k(n, correct, k) == pytest.approx(share)
