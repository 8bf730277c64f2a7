"""Tests for chapter "From prediction to assistant"."""

import math

import torch
from torch import nn, randn, tensor
from torch.nn import functional as F

from transformer_lib.data.batching import SpecialIds
from transformer_lib.models.gpt import GPT, GPTConfig
from transformer_lib.student.checks import check, equal, holds, refuses, same
from transformer_lib.training.preferences import (
    answer_log_probs,
    check_shapes,
    dpo_loss,
    group_advantages,
    grpo_loss,
    pass_at_k,
)

TOKENS = tensor([[1, 5, 6, 7, 8, 2], [1, 9, 6, 4, 2, 0]])
WRITTEN = tensor([[True, True, True], [True, False, False]])


@check(answer_log_probs, "Preferences: DPO")
def of_the_answer() -> None:
    """Each token of the answer gets its log-probability given all tokens before it; padding gets 0 and False."""
    sizes = {"d_model": 8, "n_heads": 2, "n_layers": 1, "max_length": 8}
    model = GPT(GPTConfig(vocab_size=12, dropout=0.0, **sizes)).eval()
    logits = model(TOKENS).log_softmax(-1).detach()
    want = logits[:, 2:-1].gather(2, TOKENS[:, 3:, None])[..., 0]
    shifted = logits[:, 3:].gather(2, TOKENS[:, 3:, None])[..., 0]
    written = TOKENS[:, 3:] != 0
    got, mask = answer_log_probs(model, TOKENS, 3)
    slips = {
        "the logits are one position too late": (shifted * written, written),
        "padding counts, too": (want, written),
    }
    equal((got.detach(), mask), (want * written, written), slips)
    holds(got.requires_grad, "no gradient reaches the model")


@check(answer_log_probs, "Preferences: DPO")
def padding_as_the_model_says() -> None:
    """The model says what padding is: of one with another id, or none, 0 is a word; a mask goes before any id."""
    sizes = {"vocab_size": 12, "d_model": 8, "n_heads": 2, "n_layers": 1, "max_length": 8, "dropout": 0.0}
    tokens = tensor([[1, 5, 0, 7, 9, 9]])
    for pad, want in ((9, [True, True, False, False]), (None, [True] * 4)):
        model = GPT(GPTConfig(**sizes, special=SpecialIds(pad=pad, eos=(11,)))).eval()
        got, written = answer_log_probs(model, tokens, 2)
        slips = {"padding is taken to be 0": (tokens[:, 2:] != 0).tolist() == written.tolist()}
        equal(written, tensor([want]), slips)
        equal((got == 0).detach(), ~tensor([want]), {"padding counts, too": True})
    mask = tensor([[True, True, False, True, True, True]])
    equal(answer_log_probs(model, tokens, 2, mask)[1], mask[:, 2:])


@check(answer_log_probs, "Preferences: DPO")
def whatever_stands_at_padding() -> None:
    """Plumbing: numbers at padding that are infinite have no influence, in value and gradient."""

    class Odd(nn.Module):
        def forward(self, tokens: torch.Tensor) -> torch.Tensor:
            return logits

    logits = randn(2, 5, 12)
    logits[..., 0] = -math.inf  # so padding has probability 0
    logits[1, 4] = math.nan  # and here stands nothing that counts
    logits.requires_grad_()
    got, _ = answer_log_probs(Odd(), TOKENS, 3)
    got.sum().backward()
    slip = {
        "0 times infinity is no number: use masked_fill or where": bool(got.isnan().any() | logits.grad.isnan().any())
    }
    holds(got.isfinite().all() and logits.grad.isfinite().all(), "values or gradients that are no numbers", slip)


@check(dpo_loss, "Preferences: DPO")
def of_two_differences() -> None:
    """The loss is -log sigmoid(beta times what the preferred answer gained more than the rejected one), averaged."""
    c, r, rc, rr = (randn(6) for _ in range(4))
    want = F.softplus(-0.2 * ((c - rc) - (r - rr))).mean()
    slips = {
        "without the reference": F.softplus(-0.2 * (c - r)).mean(),
        "the wrong answer is preferred": F.softplus(0.2 * ((c - rc) - (r - rr))).mean(),
        "beta is forgotten": F.softplus(-((c - rc) - (r - rr))).mean(),
    }
    equal(dpo_loss(c, r, rc, rr, 0.2), want, slips)
    far, zero = torch.full((1,), -200.0), torch.zeros(1)
    equal(dpo_loss(far, zero, zero, zero, 1.0), tensor(200.0), {"log(sigmoid(x)) overflows": tensor(math.inf)})


@check(group_advantages, "Rewards: GRPO")
def compared_with_the_group() -> None:
    """Advantages are rewards minus the mean of their group, divided by its standard deviation; 0 if all are equal."""
    rewards = tensor([[1.0, 0, 0, 0], [2.0, 4, 6, 8], [3.0, 3, 3, 3]])
    mean, std = rewards.mean(1, keepdim=True), rewards.std(1, keepdim=True)
    slips = {
        "all groups are compared with each other": (rewards - rewards.mean()) / (rewards.std() + 1e-4),
        "not divided": rewards - mean,
    }
    got = group_advantages(rewards)  # whatever small number is added
    equal(got if got is None else got.round(decimals=3), ((rewards - mean) / (std + 1e-4)).round(decimals=3), slips)


def draws() -> tuple[torch.Tensor, ...]:
    """Log-probabilities now, before and of the reference, and advantages."""
    now = -torch.rand(2, 3) - 0.5
    return now, now + 0.4 * randn(2, 3), now + 0.4 * randn(2, 3), tensor([1.5, -0.5])


@check(grpo_loss, "Rewards: GRPO")
def clipped_gain() -> None:
    """Without a leash: minus the smaller of ratio * A and clipped ratio * A, averaged in each answer, then over all."""
    now, old, reference, a = draws()
    ratio, gain = (now - old).exp(), a[:, None]
    always = ratio.clamp(0.8, 1.2) * gain
    both = torch.minimum(ratio * gain, always)
    want = -((both * WRITTEN).sum(1) / WRITTEN.sum(1)).mean()
    slips = {
        "the ratio is not clipped": -((ratio * gain * WRITTEN).sum(1) / WRITTEN.sum(1)).mean(),
        "always clipped, even on the way back": -(
            (ratio.clamp(0.8, 1.2) * gain * WRITTEN).sum(1) / WRITTEN.sum(1)
        ).mean(),
        "padding counts, too": -both.mean(),
    }
    equal(grpo_loss(now, old, reference, a, WRITTEN), want, slips)
    wide = torch.minimum(ratio * gain, ratio.clamp(0.9, 1.1) * gain)
    wide = -((wide * WRITTEN).sum(1) / WRITTEN.sum(1)).mean()
    equal(grpo_loss(now, old, reference, a, WRITTEN, clip=0.1), wide, {"clip is always 0.2": want})


@check(grpo_loss, "Rewards: GRPO")
def the_leash() -> None:
    """The leash adds beta (e^d - 1 - d) for each token; d is log(probability of the reference / of the model)."""
    now, _, reference, a = draws()
    d = reference - now
    leash = ((d.exp() - 1 - d) * WRITTEN).sum(1) / WRITTEN.sum(1)
    other = (((-d).exp() - 1 + d) * WRITTEN).sum(1) / WRITTEN.sum(1)
    want = (-a + 0.5 * leash).mean()
    slips = {
        "d has the wrong sign": (-a + 0.5 * other).mean(),
        "the leash pulls away": (-a - 0.5 * leash).mean(),
    }
    equal(grpo_loss(now, now, reference, a, WRITTEN, beta=0.5), want, slips)


@check(grpo_loss, "Rewards: GRPO")
def what_is_not_written() -> None:
    """Plumbing: an answer without tokens has a loss of 0, and what stands at padding has no influence."""
    now, old, reference, a = draws()
    none = WRITTEN.clone()
    none[1] = False
    want = grpo_loss(now[:1], old[:1], reference[:1], a[:1], WRITTEN[:1], beta=0.5) / 2
    got = grpo_loss(now, old, reference, a, none, beta=0.5)
    equal(got, want, {"zero is divided by zero": bool(got.isnan())})
    now = now.clone().masked_fill(~none, -math.inf).requires_grad_()
    got = grpo_loss(now, old, reference, a, none, beta=0.5)
    got.backward()
    slip = {"0 times infinity is no number: use masked_fill or where": True}
    holds(
        same(got.detach(), want) and now.grad.isfinite().all(),
        f"loss {got.item():.4g}, expected {want.item():.4g}",
        slip,
    )


@check(check_shapes, "Preferences: DPO")
def only_one_shape() -> None:
    """Plumbing: tensors of different shapes raise a ValueError; PyTorch would stretch (3) and (3, 1) to (3, 3)."""
    equal(check_shapes(one=randn(3), two=randn(3)), None)
    refuses(ValueError, lambda: check_shapes(one=randn(3), two=randn(3, 1)))


@check(dpo_loss, "Preferences: DPO")
def no_shape_is_stretched() -> None:
    """Plumbing: four tensors of one shape, or a ValueError."""
    refuses(ValueError, dpo_loss, randn(3), randn(3, 1), randn(3), randn(3))


@check(group_advantages, "Rewards: GRPO")
def a_group_of_one() -> None:
    """Plumbing: a single answer, and large equal rewards, have advantages of 0."""
    got = group_advantages(tensor([[5.0], [7.0]]))
    equal(got, torch.zeros(2, 1), {"the standard deviation of one number is no number": bool(got.isnan().any())})
    equal(group_advantages(torch.full((1, 7), 1e6 + 0.7)), torch.zeros(1, 7), {"equal rewards are rounded apart": True})


@check(pass_at_k, "Has it learned something new? pass@k")
def at_least_one() -> None:
    """One minus the share of groups of k that contain no correct answer."""
    slip = {"drawn with replacement": 1 - (1 - 3 / 10) ** 4}
    equal(pass_at_k(10, 3, 4), 1 - math.comb(7, 4) / math.comb(10, 4), slip)
    equal(pass_at_k(10, 0, 4), 0.0)
    equal(pass_at_k(10, 7, 4), 1.0)
