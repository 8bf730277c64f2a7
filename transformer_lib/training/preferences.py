"""Preferences and rewards: DPO, GRPO with a KL penalty, and pass@k.

Chapter: From prediction to assistant.
"""

__all__ = ["answer_log_probs", "check_shapes", "dpo_loss", "group_advantages", "grpo_loss", "pass_at_k"]

import math

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from transformer_lib.models.seq2seq import check_tokens, special_ids, vocab_size, wide


def answer_log_probs(
    model: nn.Module,
    tokens: Int[Tensor, "N T"],
    start: int,
    mask: Bool[Tensor, "N T"] | None = None,
) -> tuple[Float[Tensor, "N A"], Bool[Tensor, "N A"]]:
    """Log-probabilities of the tokens from ``start`` on, True at those that count.

    Args:
        start: the place of the answer's first token, 1 or more.
        mask: True at the tokens that count; None: all but the model's padding. If
            the model fills up rows with its end, all up to the first end.

    Raises:
        ValueError: if start is below 1, or there is padding before a token.
    """
    if start < 1:
        raise ValueError(f"{start=} must be at least 1")
    special, answer = special_ids(model), tokens[:, start:]
    if mask is None:
        check_tokens(tokens, vocab_size(model, "target"), "tokens", special.padding)
    written = special.written(answer) if mask is None else mask[:, start:]
    if not answer.numel():
        return torch.zeros_like(answer, dtype=torch.float32), written
    logits = wide(model(tokens[:, :-1])[:, start - 1 :])
    logits = logits.masked_fill(~written[..., None], 0)  # whatever stands there
    log_probs = logits.log_softmax(-1).gather(2, answer[..., None].long())[..., 0]
    return log_probs.masked_fill(~written, 0), written


def check_shapes(**tensors: Tensor) -> None:
    """Refuse tensors that PyTorch would stretch to a common shape."""
    shapes = {name: tuple(x.shape) for name, x in tensors.items()}
    if len({*shapes.values()}) > 1:
        raise ValueError(f"the shapes differ: {shapes}")


def dpo_loss(
    chosen: Float[Tensor, " N"],
    rejected: Float[Tensor, " N"],
    reference_chosen: Float[Tensor, " N"],
    reference_rejected: Float[Tensor, " N"],
    beta: float = 0.1,
) -> Float[Tensor, ""]:
    """Direct preference optimisation, from the log-probabilities of whole answers.

    Source: Rafailov et al. (2023), eq. 7.
    """
    references = {
        "reference_chosen": reference_chosen,
        "reference_rejected": reference_rejected,
    }
    check_shapes(chosen=chosen, rejected=rejected, **references)
    gained = wide((chosen - reference_chosen) - (rejected - reference_rejected))
    return -F.logsigmoid(beta * gained).sum() / max(len(gained), 1)


def group_advantages(rewards: Float[Tensor, "B G"]) -> Float[Tensor, "B G"]:
    """How far each reward is from its group's mean, in standard deviations.

    Source: Shao et al. (2024), section 4.1.2.
    """
    rewards = wide(rewards)
    rewards = rewards - rewards[:, :1]  # so that equal ones are exactly 0
    centred = rewards - rewards.mean(1, keepdim=True)
    correction = min(1, rewards.shape[1] - 1)  # a single answer is its group's mean
    return centred / (rewards.std(1, keepdim=True, correction=correction) + 1e-4)


def grpo_loss(
    log_probs: Float[Tensor, "N A"],
    old: Float[Tensor, "N A"],
    reference: Float[Tensor, "N A"],
    advantages: Float[Tensor, " N"],
    written: Bool[Tensor, "N A"],
    *,
    clip: float = 0.2,
    beta: float = 0.0,
) -> Float[Tensor, ""]:
    """Group-relative policy optimisation, from the log-probabilities of answer tokens.

    Args:
        old: from the model that wrote the answers.
        reference: from the model that this one should stay close to.
        written: False at what does not count, such as padding.
        clip: how far from 1 the ratio to the old probability can still earn more.
        beta: weight of the divergence from the reference.

    An answer without tokens has a loss of 0.

    Source: Shao et al. (2024), eqs. 3 and 4.
    """
    check_shapes(log_probs=log_probs, old=old, reference=reference, written=written)
    check_shapes(advantages=advantages, answers=log_probs.sum(1))
    given = log_probs, old, reference, advantages[:, None].expand_as(log_probs)
    # a product with 0 would keep what is infinite, so what doesn't count goes first
    now, old, reference, gain = (wide(x).masked_fill(~written, 0) for x in given)
    ratio = (now - old).clamp(max=50).exp()
    loss = -torch.minimum(ratio * gain, ratio.clamp(1 - clip, 1 + clip) * gain)
    if beta:
        d = (reference - now).clamp(max=50)
        loss = loss + beta * (d.exp() - 1 - d)
    means = loss.sum(1) / written.sum(1).clamp(min=1)
    return means.sum() / max(len(means), 1)


def pass_at_k(n: int, correct: int, k: int) -> float:
    """Probability that one or more of k <= n answers are correct, if ``correct`` are.

    Source: Chen et al. (2021), eq. 1.
    """
    if not (1 <= k <= n and 0 <= correct <= n):
        raise ValueError(f"{correct=} of {n=} answers, {k=}")
    return 1 - math.comb(n - correct, k) / math.comb(n, k)
