"""Tests for chapter "Training"."""

import torch
from torch import Tensor, nn, randn, tensor
from torch.nn import functional as F

from transformer_lib.plain.training import (
    AdamW,
    Muon,
    accumulate,
    hidden_matrices,
    loss,
    orthogonal,
    smoothed_loss,
    train,
    warmup,
)
from transformer_lib.plain.transformer import Transformer
from transformer_lib.student.checks import check, equal, holds

BATCHES = [
    (tensor([[4, 5, 6, 2], [7, 2, 0, 0]]), tensor([[1, 8, 9, 2], [1, 10, 0, 0]])),
    (tensor([[7, 2]]), tensor([[1, 10, 0, 0]])),
]


def model(dropout: float = 0.0) -> Transformer:
    """A small Transformer."""
    torch.manual_seed(0)
    sizes = {"d_model": 8, "n_heads": 2, "d_ff": 16, "encoder_layers": 1, "decoder_layers": 1}
    return Transformer(12, 12, dropout=dropout, **sizes)


def gradients(one: nn.Module) -> Tensor:
    """All gradients as one vector."""
    return torch.cat([torch.zeros(0), *(p.grad.flatten() for p in one.parameters() if p.grad is not None)])


@check(loss, "The whole loop")
def per_token() -> None:
    """The model reads the target without its last token; the mean is over the tokens that follow, without padding."""
    one, (source, target) = model(), BATCHES[0]
    logits = one(source, target[:, :-1]).mT
    want, padded = (F.cross_entropy(logits, target[:, 1:], ignore_index=pad).detach() for pad in (0, -1))
    slips = {
        "padding is counted, too": padded,
        "The answer among the inputs": F.cross_entropy(logits, target[:, :-1], ignore_index=0).detach(),
    }
    equal(loss(one, source, target).detach(), want, slips)


@check(loss, "The whole loop")
def smoothed() -> None:
    """With smoothing, it is PyTorch's cross-entropy with this label smoothing."""
    one, (source, target) = model(), BATCHES[0]
    logits = one(source, target[:, :-1]).mT
    want = F.cross_entropy(logits, target[:, 1:], ignore_index=0, label_smoothing=0.3).detach()
    equal(loss(one, source, target, 0.3).detach(), want)


class Watched:
    """An optimizer that notes what it gets, and changes nothing."""

    def __init__(self, one: nn.Module) -> None:
        self.one = one
        self.rates: list[float] = []
        self.norms: list[float] = []
        self.modes: list[bool] = []

    def step(self, rate: float) -> None:
        """Note the rate, the norm of the gradient, and the mode of the model; then clear the gradients."""
        self.rates.append(rate)
        self.norms.append(float(gradients(self.one).norm()))
        self.modes.append(self.one.training)
        for p in self.one.parameters():
            p.grad = None


@check(train, "The whole loop")
def a_step_for_each_batch() -> None:
    """Each optimizer steps once for each batch, with the peak times the schedule; updates count from 1."""
    one = model().eval()
    both = [Watched(one), Watched(one)]
    losses = list(train(one, both, BATCHES * 2, lambda u, n: u / n, 0.4, 4))
    rates = [0.1, 0.2, 0.3, 0.4]
    equal(both[0].rates, rates, {"The first update is number zero": [0.0, 0.1, 0.2, 0.3]})
    equal(len(both[1].rates), 4)
    holds(all(both[0].modes), "the model is in evaluation mode")
    equal(losses[0], loss(model(), *BATCHES[0], 0.1).item(), {"without smoothing": loss(model(), *BATCHES[0]).item()})


@check(train, "The whole loop")
def stops_and_clips() -> None:
    """There are as many updates as asked for, and no gradient's norm is above 1."""
    one = model()
    with torch.no_grad():
        for p in one.parameters():
            p.mul_(4)
    watched = Watched(one)
    losses = list(train(one, [watched], BATCHES * 5, lambda u, n: 1.0, 0.1, 3))
    equal(len(losses), 3)
    holds(max(watched.norms) < 1.001, f"a gradient has the norm {max(watched.norms):.2f}: it isn't clipped")


@check(warmup, "A run that gets stuck")
def up_and_down() -> None:
    """The share rises in equal steps to 1 at the end of the warm-up, and falls in equal steps; after the last update
    it would be zero.
    """
    got = [warmup(u, 9, length=4) for u in (1, 2, 4, 7, 9)]
    slips = {"The first update is number zero": [0.0, 0.25, 0.75, 0.5, 1 / 6]}
    equal(got, [0.25, 0.5, 1.0, 0.5, 1 / 6], slips)


@check(AdamW.step, "The suspect: Adam's first step")
def like_pytorchs() -> None:
    """Five updates give what PyTorch's AdamW gives, with and without decay."""
    for decay in (0.0, 0.3):
        ours, theirs = (nn.Parameter(tensor([1.0, -2.0, 3.0])) for _ in range(2))
        mine = AdamW([ours], betas=(0.8, 0.9), eps=1e-3, decay=decay)
        adam = torch.optim.AdamW([theirs], lr=0.1, betas=(0.8, 0.9), eps=1e-3, weight_decay=decay)
        for u in range(1, 6):
            gradient = tensor([5.0, -0.01, 0.5 * (-1) ** u])
            ours.grad, theirs.grad = gradient.clone(), gradient.clone()
            mine.step(0.1)
            adam.step()
            if u == 1 and not decay:
                biased = tensor([1.0, -2.0, 3.0]) - 0.1 * 0.2 * gradient / ((0.1 * gradient**2).sqrt() + 1e-3)
                equal(ours.detach(), theirs.detach(), {"the bias of the means is not corrected": biased})
        equal(ours.detach(), theirs.detach())


@check(AdamW.step, "The suspect: Adam's first step")
def leaves_no_gradient() -> None:
    """After a step, the gradients are cleared."""
    p = nn.Parameter(torch.ones(2))
    p.grad = torch.ones(2)
    AdamW([p]).step(0.1)
    holds(p.grad is None or not p.grad.any(), "the gradient is still there, and the next one is added to it")


@check(orthogonal, "Muon: one step for a whole matrix")
def each_singular_value() -> None:
    """A step turns each singular value s of G / |G| into 3.4445 s - 4.775 s³ + 2.0315 s⁵, in the same directions."""
    U, _ = torch.linalg.qr(randn(4, 3))
    V, _ = torch.linalg.qr(randn(5, 3))
    s = tensor([0.8, 0.6, 0.0])
    for steps in (1, 2):
        s = 3.4445 * s - 4.775 * s**3 + 2.0315 * s**5
        equal(orthogonal(7 * U @ tensor([0.8, 0.6, 0.0]).diag() @ V.mT, steps), U @ s.diag() @ V.mT)


@check(orthogonal, "Muon: one step for a whole matrix")
def five_steps() -> None:
    """After the usual five steps, all but the smallest singular values are between 0.6 and 1.3, for any shape."""
    for shape in ((6, 6), (3, 8), (8, 3)):
        values = torch.linalg.svdvals(orthogonal(randn(shape) + 3 * torch.eye(*shape)))
        holds(bool((values > 0.6).all() and (values < 1.3).all()), f"of a matrix of {shape}, they are {values}")


@check(Muon.step, "Muon: one step for a whole matrix")
def momentum_and_size() -> None:
    """The mean of gradients looks ahead, is made orthogonal, and gets entries of about 0.2."""
    p, G = nn.Parameter(randn(6, 3)), [randn(6, 3), randn(6, 3)]
    want, M = p.detach().clone(), torch.zeros(6, 3)
    one = Muon([p], momentum=0.8, decay=0.5)
    flat = want.clone()
    for g in G:
        M = 0.8 * M + 0.2 * g
        step = 0.2 * 6**0.5 * orthogonal(0.2 * g + 0.8 * M)
        flat = flat - 0.1 * (0.2 * 6**0.5 * orthogonal(M) + 0.5 * flat)
        want = want - 0.1 * (step + 0.5 * want)
        p.grad = g.clone()
        one.step(0.1)
    equal(p.detach(), want, {"without Nesterov's look ahead": flat})
    holds(p.grad is None or not p.grad.any(), "the gradient is still there, and the next one is added to it")


@check(hidden_matrices, "Muon: one step for a whole matrix")
def inside() -> None:
    """The matrices of attention and feed-forward layers: no embedding, no bias, no norm."""
    one = model()
    want = {name for name, p in one.named_parameters() if p.ndim == 2 and name.startswith(("encoder", "decoder"))}
    names = {id(p): name for name, p in one.named_parameters()}
    equal({names[id(p)] for p in hidden_matrices(one)}, want)


@check(smoothed_loss, "Label smoothing")
def pytorchs_smoothing() -> None:
    """The mean over all rows equals PyTorch's, for any amount of smoothing."""
    logits, target = randn(5, 7), tensor([0, 6, 3, 3, 1])
    for eps in (0.0, 0.1, 0.5):
        entropy = F.cross_entropy(logits, target)
        rest = -logits.log_softmax(-1).mean(-1).mean()
        other = (1 - eps) * entropy + eps * (7 * rest - entropy) / 6
        slips = {"the share is spread over the other tokens only": other} if eps else {}
        equal(smoothed_loss(logits, target, eps), F.cross_entropy(logits, target, label_smoothing=eps), slips)


@check(accumulate, "Clipping and accumulation")
def as_one_batch() -> None:
    """The gradients add up to that of one batch of all sentences: each batch counts with its share of the tokens."""
    one, parts = model(), []
    for source, target in BATCHES:
        one.zero_grad()
        loss(one, source, target, 0.1).backward()
        parts.append(gradients(one))
    one.zero_grad()
    accumulate(one, BATCHES)
    want, slip = (4 * parts[0] + parts[1]) / 5, (parts[0] + parts[1]) / 2
    equal(gradients(one), want, {"A mean of means": slip, "a sum of means": 2 * slip})
