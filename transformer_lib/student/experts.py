"""Tests for chapter "Mixture of experts"."""

import torch
from torch import nn, randn, tensor
from torch.nn import functional as F

from transformer_lib.plain.experts import Experts, SwiGLU, balance_loss
from transformer_lib.plain.sparse_attention import choose
from transformer_lib.student.checks import check, equal, learns


@check(SwiGLU.forward, "A router and a loop")
def gated_feed_forward() -> None:
    """Swish of the gate, times the first map, through the second map."""
    layer, x = SwiGLU(6, 5), randn(2, 3, 6)
    a, b = layer.gate(x), layer.linear1(x)
    slips = {
        "gate and first map are exchanged": layer.linear2(F.silu(b) * a),
        "a sigmoid instead of Swish": layer.linear2(a.sigmoid() * b),
        "no gate": layer.linear2(F.silu(b)),
    }
    equal(layer(x), layer.linear2(F.silu(a) * b), slips)


@check(Experts.route, "A router and a loop")
def scores_and_visits() -> None:
    """Scores are a softmax over the experts; the k best are visited; the bias counts for the choice only."""
    layer, x = Experts(8, 4, 5, 2), randn(6, 8)
    layer.bias[3] = 4.0
    scores, across = layer.router(x).softmax(-1), layer.router(x).softmax(0)
    want = (scores, choose(scores + layer.bias, 2))
    slips = {
        "the bias is part of the scores": (scores + layer.bias, want[1]),
        "the bias is ignored": (scores, choose(scores, 2)),
        "Softmax along the wrong axis": (across, choose(across + layer.bias, 2)),
    }
    equal(layer.route(x), want, slips)


@check(Experts.route, "A router and a loop")
def never_more_than_k() -> None:
    """Of equal scores, the earliest experts are visited: k for each token, never more."""
    layer, x = Experts(8, 4, 5, 2), randn(3, 8)
    nn.init.zeros_(layer.router.weight)
    scores = torch.full((3, 5), 0.2)
    want = tensor([[True, True, False, False, False]]).expand(3, 5)
    told = "all scores that equal the k-th are chosen, so more than k"
    equal(layer.route(x), (scores, want), {told: (scores, torch.ones(3, 5, dtype=torch.bool))})


@check(Experts.forward, "A router and a loop")
def a_weighted_sum() -> None:
    """Each token gets the average of its visited experts, with weights that sum to 1, and without the bias."""
    layer, x = Experts(8, 4, 5, 2), randn(2, 3, 8).requires_grad_()
    layer.bias += torch.rand(5)
    scores, visits = layer.route(x.flatten(0, 1))
    results = torch.stack([expert(x.flatten(0, 1)) for expert in layer.experts], 1)  # (N, n, D)
    plain = (scores * visits)[..., None] * results
    want = plain.sum(1) / (scores * visits).sum(-1, keepdim=True)
    both = (scores + layer.bias) * visits
    biased = ((both / both.sum(-1, keepdim=True))[..., None] * results).sum(1)
    slips = {
        "the bias is part of the weights": biased.view(2, 3, 8),
        "the weights don't sum to 1": plain.sum(1).view(2, 3, 8),
        "all experts are visited": (scores[..., None] * results).sum(1).view(2, 3, 8),
        "all visited experts count the same": (visits[..., None] * results).sum(1).view(2, 3, 8) / 2,
    }
    equal(layer(x), want.view(2, 3, 8), slips)
    learns(layer(x), want.view(2, 3, 8), x, *layer.parameters())


class Counting(nn.Module):
    """An expert that counts the tokens it gets."""

    tokens = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The same vectors; they are counted."""
        self.tokens += len(x)
        return x


@check(Experts.forward, "A router and a loop")
def only_visited_experts_work() -> None:
    """An expert computes for the tokens that visit it, and for no others: 6 tokens with k = 2 are 12 visits."""
    layer, x = Experts(8, 4, 5, 2), randn(2, 3, 8)
    layer.experts = nn.ModuleList(Counting() for _ in range(5))
    visits = layer.route(x.flatten(0, 1))[1].sum(0).tolist()
    layer(x)
    got = [expert.tokens for expert in layer.experts]
    everything = {"every expert computes for all tokens, and most of it is multiplied by zero": sum(got) >= 30}
    equal(got, visits, everything, names="visits of each expert / tokens that it computed for")


@check(Experts.forward, "A router and a loop")
def the_router_learns_through_the_weights() -> None:
    """The gradient reaches the router through the weights of the experts that were chosen."""
    layer, x = Experts(8, 4, 5, 2), randn(2, 3, 8)
    layer(x).square().sum().backward()
    got = layer.router.weight.grad is not None and bool(layer.router.weight.grad.abs().max() > 0)
    equal(got, True, names="the router should have a gradient / it has")


@check(Experts.balance, "Two remedies")
def idle_up_busy_down() -> None:
    """The bias of an expert with too few visits rises by a step, and that of one with too many falls."""
    layer = Experts(8, 4, 3, 1)
    visits = nn.functional.one_hot(tensor([0, 0, 0, 1, 2, 0]), 3).bool()
    layer.balance(visits, step=0.25)
    want = tensor([-0.25, 0.25, 0.25])
    slips = {"the wrong way round": -want, "in proportion to the load, not by a step": 0.25 * tensor([-6.0, 3, 3])}
    equal(layer.bias, want, slips)
    layer.balance(visits.roll(1, 1), step=0.25)
    equal(layer.bias, tensor([0.0, 0.0, 0.5]), {"the last step is forgotten": tensor([0.25, -0.25, 0.25])})
    layer.balance(torch.eye(3, dtype=torch.bool), step=0.25)
    equal(layer.bias, tensor([0.0, 0.0, 0.5]))  # all have as many


@check(balance_loss, "Two remedies")
def busy_times_high() -> None:
    """n / k times the sum over experts of the share of tokens that visit each times its mean score."""
    scores = randn(6, 4).softmax(-1).requires_grad_()
    visits = choose(scores.detach(), 2)
    load, mean = visits.float().mean(0), scores.mean(0)
    slips = {
        "not multiplied by the number of experts": (load * mean).sum() / 2,
        "not divided by k": 4 * (load * mean).sum(),
        "the mean over the experts, not the sum": (load * mean).mean() * 2,
    }
    got = balance_loss(scores, visits)
    equal(got, 2 * (load * mean).sum(), slips)
    got.backward()
    equal(scores.grad, (2 * load / 6).expand(6, 4), names="expected gradient of the scores / got")
