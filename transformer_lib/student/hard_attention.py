"""Tests for chapter "Hard attention"."""

import torch
from torch import randn, tensor
from torch.nn import functional as F

from transformer_lib.data.batching import Batch
from transformer_lib.models.bahdanau import AlignedMemory
from transformer_lib.models.hard_attention import HardAttention, HardConfig, HardSeq2Seq, gumbel_like, reinforce
from transformer_lib.models.luong import DotScore
from transformer_lib.models.seq2seq import token_losses
from transformer_lib.student.checks import check, equal, holds, same

SOURCE, TARGET = tensor([[4, 5, 6, 2], [7, 2, 0, 0]]), tensor([[1, 8, 9, 2], [1, 10, 2, 0]])
MASK = tensor([[True] * 5, [True] * 2 + [False] * 3])


def memory() -> AlignedMemory:
    """Five source positions, of which the second sentence fills two."""
    outputs = randn(2, 5, 8)
    return AlignedMemory(outputs, MASK, outputs)


@check(gumbel_like, "Gumbel-softmax and the straight-through trick")
def the_gumbel_distribution() -> None:
    """Gumbel noise has a mean of 0.577 and a variance of 1.645, and the shape of the scores."""
    noise = gumbel_like(torch.zeros(200, 500))
    equal(noise.shape, torch.Size([200, 500]))
    mean, variance = float(noise.mean()), float(noise.var())
    numbers = f"mean {mean:.3f}, variance {variance:.3f}"
    holds(
        abs(mean - 0.577) < 0.02 and abs(variance - 1.645) < 0.05,
        numbers,
        {"the sign of the Gumbel noise": abs(mean + 0.577) < 0.02},
    )


@check(HardAttention.perturb, "From one word to a sentence")
def noise_in_training_only() -> None:
    """Scores get Gumbel noise in training, and none in evaluation."""
    hard, scores = HardAttention(DotScore()), randn(2, 3, 5)
    got = hard.eval().perturb(scores)
    equal(got, scores, {"Noise in evaluation mode": not same(got, scores)})
    holds((hard.train().perturb(scores) != scores).all(), "in training, the scores came back without noise")
    mean = float(hard.perturb(torch.full((200, 500), 3.0)).mean())
    holds(abs(mean - 3.577) < 0.02, f"scores of 3 should be 3.577 in the mean, got {mean:.3f}")


@check(HardAttention.forward, "From one word to a sentence")
def one_word() -> None:
    """In evaluation, all the weight is on the best word that is no padding."""
    hard, q, m = HardAttention(DotScore()).eval(), randn(2, 3, 8), memory()
    best = (q @ m.keys.mT).masked_fill(~MASK[:, None], -1e9).argmax(-1)
    unmasked = (q @ m.keys.mT).argmax(-1)
    context, weights = hard(q, m)[:2]
    equal(weights, F.one_hot(best, 5).float(), {"the mask is not used": F.one_hot(unmasked, 5).float()})
    equal(context, weights @ m.outputs)


@check(HardAttention.forward, "From one word to a sentence")
def drawn_from_the_softmax() -> None:
    """In training, a word is drawn as often as its softmax says."""
    hard, q, m = HardAttention(DotScore()), randn(2, 1, 8) / 3, memory()
    want = (q @ m.keys.mT).masked_fill(~MASK[:, None], -1e9).softmax(-1)[:, 0]
    got = hard(q.expand(2, 4000, 8), m)[1].mean(1)
    holds((got - want).abs().max() < 0.04, f"softmax {want[0].tolist()}, share of draws {got[0].tolist()}")


@check(HardAttention.forward, "From one word to a sentence")
def log_probabilities_and_entropies() -> None:
    """The third result is the log-probability of the chosen word, the fourth the entropy of the softmax."""
    hard, q, m = HardAttention(DotScore()).eval(), randn(2, 3, 8), memory()
    p = (q @ m.keys.mT).masked_fill(~MASK[:, None], -1e9).softmax(-1)
    _, _, log_p, entropy, queries = hard(q, m)
    equal((log_p, entropy), (p.amax(-1).log(), -torch.xlogy(p, p).sum(-1)))
    equal(queries, q)


@check(HardAttention.forward, "Gumbel-softmax and the straight-through trick")
def straight_through() -> None:
    """With the estimator "gumbel", the weights are one-hot, but the queries get a gradient."""
    hard, q = HardAttention(DotScore(), estimator="gumbel"), randn(2, 3, 8, requires_grad=True)
    weights = hard(q, memory())[1]
    equal(weights.sort(-1)[0].round(decimals=4).detach(), F.one_hot(torch.full((2, 3), 4), 5).float())
    learns = weights.requires_grad and bool(torch.autograd.grad(weights[..., 0].sum(), q)[0].any())
    holds(learns, "no gradient reaches the queries", {"A choice that cuts the gradient": True})


@check(HardAttention.forward, "Gumbel-softmax and the straight-through trick")
def the_gradient_of_the_softmax() -> None:
    """The gradient is that of the softmax of scores / temperature; without training or "gumbel", there is none."""
    q, m = randn(2, 3, 8, requires_grad=True), memory()
    for training, estimator in ((True, "gumbel"), (False, "gumbel"), (True, "reinforce")):
        hard = HardAttention(DotScore(), estimator=estimator, temperature=0.5).train(training)
        hard.perturb = lambda scores: scores  # no noise, so that we know the draw
        weights = hard(q, m)[1]
        if not training or estimator != "gumbel":
            holds(not weights.requires_grad, f"the weights have a gradient, {training=}, {estimator=}")
            continue
        soft, plain = ((q @ m.keys.mT / t).masked_fill(~MASK[:, None], -1e9).softmax(-1) for t in (0.5, 1.0))
        got, want, slip = (torch.autograd.grad(x[..., 0].sum(), q)[0] for x in (weights, soft, plain))
        equal(got, want, {"the temperature is ignored": slip})


@check(reinforce, "REINFORCE: a gradient from random draws")
def without_a_guess() -> None:
    """Without a guess, the terms are -reward * log-probability."""
    rewards, log_p, valid = randn(2, 3), randn(2, 3), torch.ones(2, 3, dtype=torch.bool)
    equal(reinforce(rewards, log_p, valid), -rewards * log_p, {"the sign of the reward": rewards * log_p})


@check(reinforce, "A baseline makes it less noisy")
def with_a_guess() -> None:
    """The guess is subtracted from the reward, and a tenth of its squared error is added."""
    rewards, log_p, guess, valid = randn(2, 3), randn(2, 3), randn(2, 3), torch.ones(2, 3, dtype=torch.bool)
    equal(reinforce(rewards, log_p, valid, guess), 0.1 * (guess - rewards) ** 2 - (rewards - guess) * log_p)


@check(reinforce, "A baseline makes it less noisy")
def the_advantage_is_only_a_factor() -> None:
    """The guess learns from its own error alone; the advantage carries no gradient to it."""
    rewards, log_p, guess = randn(2, 3), randn(2, 3), randn(2, 3, requires_grad=True)
    terms = reinforce(rewards, log_p, torch.ones(2, 3, dtype=torch.bool), guess)
    got, want = torch.autograd.grad(terms.sum(), guess)[0], 0.2 * (guess - rewards).detach()
    equal(got, want, {"A reward that isn't detached": want + log_p})


@check(reinforce, "REINFORCE: a gradient from random draws")
def later_rewards() -> None:
    """With ``later``, a draw also earns the rewards of all later steps, but not of earlier ones."""
    rewards, log_p = tensor([[1.0, 2.0, 4.0]]), torch.ones(1, 3)
    got = -reinforce(rewards, log_p, torch.ones(1, 3, dtype=torch.bool), later=True)
    equal(got, tensor([[7.0, 6.0, 4.0]]), {"the earlier rewards": tensor([[1.0, 3.0, 7.0]])})
    guess, valid = randn(1, 3), tensor([[True, True, False]])
    total, steps = tensor([[3.0, 2.0, 0.0]]), tensor([[2.0, 1.0, 0.0]])
    want = 0.1 * (guess - total / tensor([[2.0, 1.0, 1.0]])) ** 2 - (total - steps * guess)
    got = reinforce(tensor([[1.0, 2.0, 0.0]]), log_p, valid, guess, later=True)
    equal(got, want, {"the guess, a mean per step, meets a sum of steps": True})


@check(HardSeq2Seq.loss, "From one word to a sentence")
def the_value_is_the_cross_entropy() -> None:
    """The value is the summed cross-entropy of the tokens, in evaluation and in training, beside their number."""
    model, batch = HardSeq2Seq(HardConfig(11, 11, d_model=6, d_hidden=8, dropout=0.0)), Batch(SOURCE, TARGET)
    for mode in (False, True):
        torch.manual_seed(0)
        logits, options = model.train(mode)(SOURCE, batch.target_input).mT, {"ignore_index": 0, "reduction": "sum"}
        want = F.cross_entropy(logits, batch.target_output, **options).detach()
        torch.manual_seed(0)
        nats, n_tokens = model.loss(batch, 0.0 if mode else 0.1)  # smoothing is for training
        equal(nats.detach(), want, {"a mean, not a sum": want / batch.n_tokens})
        equal(int(n_tokens), batch.n_tokens)


@check(HardSeq2Seq.loss, "From one word to a sentence")
def the_score_learns() -> None:
    """In training, the loss has a gradient for the weights of the score, with either estimator."""
    for estimator in ("reinforce", "gumbel"):
        model = HardSeq2Seq(HardConfig(11, 11, d_model=6, d_hidden=8, dropout=0.0, estimator=estimator))
        model.loss(Batch(SOURCE, TARGET)).sum.backward()
        gradient = model.attention.score.key.weight.grad
        holds(
            gradient is not None and gradient.any(),
            f"{estimator}: {gradient}",
            {"A choice that cuts the gradient": True},
        )


@check(HardSeq2Seq.surrogate, "From one word to a sentence")
def terms_of_every_token() -> None:
    """In training, a token's term is its (smoothed) loss less the weighted entropy; padding has none.

    With "reinforce", what `reinforce` makes of the negative terms is added: of later ones, too, with input feeding.
    """
    sizes, batch = {"d_model": 6, "d_hidden": 8, "dropout": 0.0, "entropy_weight": 0.5}, Batch(SOURCE, TARGET)
    valid = batch.target_output != 0
    for options in ({}, {"input_feeding": True}, {"estimator": "gumbel"}):
        model = HardSeq2Seq(HardConfig(11, 11, **sizes, **options))
        weight = model.attention.score.key.weight
        torch.manual_seed(0)
        hidden, state = model.read(batch.target_input, model.start(SOURCE))
        _, log_p, entropy, queries = state.attention
        terms = token_losses(model.output(hidden), batch.target_output, 0.1) - 0.5 * entropy
        if "estimator" not in options:
            guess = model.guess(queries, batch.target_output)
            terms = terms + reinforce(-terms.detach() * valid, log_p, valid, guess, later=bool(options))
        (want,) = torch.autograd.grad((terms * valid).sum(), weight)
        torch.manual_seed(0)
        (got,) = torch.autograd.grad(model.loss(batch, 0.1).sum, weight)
        equal(got, want, {f"a mistake with {options or 'reinforce'}": True})
