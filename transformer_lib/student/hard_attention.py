"""Tests for chapter "Hard attention"."""

import math

import torch
from torch import nn, randn, tensor
from torch.nn import functional as F

from transformer_lib.plain.hard_attention import Attention, HardTranslator, Score, straight_through
from transformer_lib.student.checks import check, equal, holds, same

SOURCE, TARGET = tensor([[4, 5, 6, 2], [7, 2, 0, 0]]), tensor([[1, 8, 9, 2], [1, 10, 2, 0]])
MASK = tensor([[True] * 5, [True] * 2 + [False] * 3])
LOWEST = torch.finfo(torch.float32).min


@check(straight_through, "Gumbel-softmax and the straight-through trick")
def drawn_from_the_softmax() -> None:
    """The weights are one-hot, and a position is drawn as often as the softmax of the scores says."""
    scores = tensor([2.0, 1.0, 0.0, -1.0])
    weights = straight_through(scores.expand(20000, 4))
    equal(weights.sort(-1)[0], F.one_hot(torch.full((20000,), 3), 4).float())
    got, want = weights.mean(0), scores.softmax(0)
    slips = {
        "the best position is taken every time": got[0] == 1,
        "the noise has the wrong sign": got[0] < want[0] - 0.03,
    }
    holds((got - want).abs().max() < 0.02, f"softmax {want.tolist()}, share of draws {got.tolist()}", slips)


@check(straight_through, "Gumbel-softmax and the straight-through trick")
def the_gradient_of_the_relaxed_draw() -> None:
    """The gradient is that of the softmax of the noisy scores, divided by the temperature."""
    scores = randn(4000, 3, requires_grad=True)
    weights = straight_through(scores, 0.5)
    holds(weights.requires_grad, "no gradient reaches the scores", {"A choice that cuts the gradient": True})
    rows = [torch.autograd.grad(weights[:, i].sum(), scores, retain_graph=True)[0] for i in range(3)]
    got = torch.stack(rows, 1)  # of weight i with respect to score j
    relaxed = F.normalize(-1 / got[:, [1, 0, 0], [2, 2, 1]], 1, -1)  # got[i, j] is -relaxed[i] relaxed[j] / 0.5
    hot = torch.diag_embed(relaxed) - relaxed[:, :, None] * relaxed[:, None]
    equal(got, hot / 0.5, {"the temperature is ignored": hot})
    noise = 0.5 * relaxed.log() - scores.detach()
    share = ((noise[:, 0] - noise[:, 1]).abs() < math.log(3)).double().mean().item()
    slips = {"the relaxed draw has no noise": same(relaxed, (scores / 0.5).softmax(-1))}
    holds(abs(share - 0.5) < 0.05, f"noises less than log 3 apart: expected a share of 0.5, got {share}", slips)
    alike = (weights.argmax(-1) == relaxed.argmax(-1)).double().mean().item()
    holds(alike > 0.99, f"draw and gradient have the same noise: expected 1.0, got {alike}")
    holds(((weights == 0) | (weights == 1)).all(), "the weights are not exactly 0 and 1")


@check(Score.forward, "From one word to a sentence")
def all_states_with_all_vectors() -> None:
    """The scores (B, T, S): each state's dot product with each projected vector."""
    score, q, k = Score(6), randn(2, 3, 6), randn(2, 5, 6)
    want = torch.einsum("btd,bsd->bts", q, score.key(k))
    equal(score(q, k), want, {"the state is projected instead": torch.einsum("btd,bsd->bts", score.key(q), k)})


def attended(reads: str, training: bool) -> tuple:
    """A layer, what it returns, and the masked scores."""
    layer, q, k = Attention(6, reads).train(training), randn(2, 3, 6), randn(2, 5, 6)
    q.requires_grad_()
    return layer(q, k, MASK), layer.score(q, k).masked_fill(~MASK[:, None], LOWEST), k, q


@check(Attention.forward, "From one word to a sentence")
def soft_reads_the_average() -> None:
    """With "soft", the weights are the softmax; the last result is its logarithm, the first the weighted average."""
    (context, weights, log_alpha), scores, k, _ = attended("soft", True)
    want = scores.softmax(-1)
    equal(weights, want, {"the mask is not used": bool(weights[1, :, 2:].any())})
    equal((context, log_alpha[0]), (want @ k, want[0].log()))


@check(Attention.forward, "From one word to a sentence")
def the_best_in_evaluation() -> None:
    """In evaluation, all the weight is on the best word that is no padding, every time."""
    for reads in ("straight-through", "reinforce"):
        (context, weights, _), scores, k, _ = attended(reads, training=False)
        want = F.one_hot(scores.argmax(-1), 5).float()
        slips = {"the mask is not used": bool(weights[1, :, 2:].any())}
        slips["Noise in evaluation mode"] = bool((weights == weights.round()).all())
        equal(weights, want, slips)
        equal(context, want @ k)


@check(Attention.forward, "From one word to a sentence")
def a_draw_in_training() -> None:
    """In training, one position is drawn, never padding: with "straight-through" with a gradient, or else without."""
    for reads in ("straight-through", "reinforce"):
        layer, q, k = Attention(6, reads), randn(2, 1, 6) / 2, randn(2, 5, 6)
        want = layer.score(q, k).masked_fill(~MASK[:, None], -1e9).softmax(-1)[:, 0]
        _, weights, log_alpha = layer(q.expand(2, 6000, 6), k, MASK)
        got = weights.detach().mean(1)
        holds((got - want).abs().max() < 0.04, f"softmax {want[0].tolist()}, share of draws {got[0].tolist()}")
        equal(log_alpha.detach().exp(), want.detach()[:, None].expand(2, 6000, 5))
        holds(
            weights.requires_grad == (reads == "straight-through"),
            f"{reads}: the weights {'have a' if weights.requires_grad else 'have no'} gradient",
            {"A choice that cuts the gradient": reads == "straight-through"},
        )


def translator(reads: str) -> HardTranslator:
    """A small model, with weights that are large enough to see what each of them does."""
    model = HardTranslator(11, 11, reads, d_model=6, d_hidden=8)
    for weight in model.parameters():
        nn.init.normal_(weight, std=0.5)
    return model


@check(HardTranslator.read, "From one word to a sentence")
def updates_and_then_attends() -> None:
    """Logits from context and state, the states (B, T, H), the weights, and their log-probabilities.

    The GRU starts from the encoder's state and reads all target words at once; its states ask.
    """
    model = translator("soft")
    vectors, state = model.encoder(SOURCE)
    states, _ = model.gru(model.embedding(TARGET), state)
    context, weights, log_alpha = model.attention(states, vectors, SOURCE != 0)
    rows = torch.cat([context, states], -1), torch.cat([states, context], -1)
    want, swapped = (model.output(torch.tanh(model.attentional(row))) for row in rows)
    got = model.read(SOURCE, TARGET)
    cold, _ = model.gru(model.embedding(TARGET))
    slips = {
        "context and state exchanged": (swapped, states, weights, log_alpha),
        "the encoder's state is not used": same(got[1], cold),
    }
    equal(tuple(got), (want, states, weights, log_alpha), slips)


@check(HardTranslator.forward, "From one word to a sentence")
def only_the_logits() -> None:
    """The logits of `read`, (B, T, V)."""
    model = translator("soft")
    equal(model(SOURCE, TARGET), model.read(SOURCE, TARGET)[0], {"all that `read` returns": True})


def parts(model: HardTranslator, bonus: float) -> tuple:
    """Cross-entropy less the bonus, rewards, log-probabilities of the draws and guesses, for each word of one draw."""
    logits, states, weights, log_alpha = model.read(SOURCE, TARGET[:, :-1])
    nats = F.cross_entropy(logits.mT, TARGET[:, 1:], reduction="none")
    alpha = log_alpha.exp()
    terms = nats + bonus * torch.xlogy(alpha, alpha.clamp(min=1e-38)).sum(-1)
    log_p = (weights * log_alpha).sum(-1)
    known = torch.cat([states, model.embedding(TARGET[:, 1:])], -1).detach()
    guess = model.baseline(known)[..., 0] if model.attention.reads == "reinforce" else 0 * nats
    return terms, -terms.detach(), log_p, guess


def gradient(loss: torch.Tensor, model: HardTranslator, name: str) -> torch.Tensor:
    """Of one weight."""
    return torch.autograd.grad(loss, model.get_parameter(name), retain_graph=True)[0]


@check(HardTranslator.loss, "From one word to a sentence")
def cross_entropy_and_bonus() -> None:
    """Without REINFORCE: the mean over all words of the cross-entropy less ``bonus`` times the entropy; no padding."""
    valid = TARGET[:, 1:] != 0
    for reads in ("soft", "straight-through"):
        model = translator(reads)
        torch.manual_seed(0)
        terms, *_ = parts(model, 0.5)
        torch.manual_seed(0)
        plain, *_ = parts(model, 0.0)
        torch.manual_seed(0)
        got = model.loss(SOURCE, TARGET, 0.5)
        slips = {
            "the entropy has the wrong sign": (2 * plain - terms)[valid].mean(),
            "there is no bonus": plain[valid].mean(),
            "padding counts": terms.mean(),
            "a sum, not a mean": terms[valid].sum(),
        }
        equal(got, terms[valid].mean(), slips)


@check(HardTranslator.loss, "From one word to a sentence")
def the_third_part() -> None:
    """With REINFORCE: less (reward - guess) times the log-probability of the draw. The reward counts the bonus."""
    model, valid = translator("reinforce"), TARGET[:, 1:] != 0
    torch.manual_seed(0)
    terms, reward, log_p, guess = parts(model, 0.5)
    gain = reward - guess.detach()
    losses = terms - gain * log_p, terms + gain * log_p, terms - reward * log_p
    losses += (terms + (terms + guess.detach()) * log_p + 0.1 * (terms + guess) ** 2,)
    torch.manual_seed(0)
    loss = model.loss(SOURCE, TARGET, 0.5)
    names = ["the reward has the wrong sign", "the baseline is not used", "A reward that isn't detached"]
    for name in ("attention.score.key.weight", "output.bias", "gru.weight_hh_l0"):
        want, *slips = (gradient(one[valid].mean(), model, name) for one in losses)
        equal(gradient(loss, model, name), want, dict(zip(names, slips, strict=True)))


@check(HardTranslator.loss, "From one word to a sentence")
def what_the_baseline_learns() -> None:
    """The baseline learns from a tenth of its squared error alone, and nothing else learns from it."""
    model, valid, name = translator("reinforce"), TARGET[:, 1:] != 0, "baseline.2.weight"
    torch.manual_seed(0)
    _, reward, log_p, guess = parts(model, 0.5)
    want = (0.1 * (reward - guess) ** 2)[valid].mean()
    leaky = want - ((reward - guess) * log_p)[valid].mean()
    torch.manual_seed(0)
    loss = model.loss(SOURCE, TARGET, 0.5)
    slips = {
        "the guess in the advantage has a gradient": gradient(leaky, model, name),
        "all of the error": 10 * gradient(want, model, name),
    }
    equal(gradient(loss, model, name), gradient(want, model, name), slips)
