"""Tests for chapter "More from 29,000 sentence pairs"."""

import torch
from torch import Tensor, tensor
from torch.nn import functional as F

from transformer_lib.data.batching import Batch
from transformer_lib.models.loss import translation_loss
from transformer_lib.models.transformer import Transformer, TransformerConfig
from transformer_lib.student.checks import check, equal, holds
from transformer_lib.training.loss import minimum_risk_loss, r_drop_loss

BATCH = Batch(tensor([[4, 5, 6, 2], [7, 2, 0, 0]]), tensor([[1, 8, 9, 2], [1, 10, 0, 0]]))
SAMPLES = tensor([[[1, 8, 9, 2], [1, 5, 2, 0]], [[1, 10, 2, 0], [1, 4, 4, 2]]])
COSTS = tensor([[0.0, 0.8], [0.1, 0.9]])


def model(dropout: float = 0.0) -> Transformer:
    """A small model."""
    sizes = {"d_model": 8, "n_heads": 2, "n_encoder_layers": 1, "n_decoder_layers": 1, "d_ff": 16}
    return Transformer(TransformerConfig(12, 12, dropout=dropout, **sizes))


@check(r_drop_loss, "Two passes that should agree: R-Drop")
def without_dropout() -> None:
    """Without dropout both passes agree, so the loss is the summed cross-entropy."""
    one = model().train()
    want = translation_loss(one, BATCH, 0.1).sum.detach()
    equal(r_drop_loss(one, BATCH).sum.detach(), want, {"both entropies are added, not averaged": 2 * want})


@check(r_drop_loss, "Two passes that should agree: R-Drop")
def two_passes() -> None:
    """With dropout, the divergence of both passes, the mean of both directions, is added with its weight."""
    one = model(0.3).train()
    twice = Batch(BATCH.source.repeat(2, 1), BATCH.target.repeat(2, 1))
    torch.manual_seed(3)
    logits = one(twice.source, twice.target_input)
    entropy = F.cross_entropy(logits.mT, twice.target_output, ignore_index=0, label_smoothing=0.1, reduction="sum") / 2
    p, q = logits.log_softmax(-1).chunk(2)
    apart = ((p.exp() * (p - q)).sum(-1) + (q.exp() * (q - p)).sum(-1)) / 2
    torch.manual_seed(3)
    padded = entropy + 2 * apart.sum()
    want, real = entropy + 2 * (apart * (BATCH.target_output != 0)).sum(), apart * (BATCH.target_output != 0)
    slips = {
        "the divergence of padding is added, too": padded,
        "the weight is forgotten": entropy + real.sum(),
        "both directions are added, not averaged": entropy + 4 * real.sum(),
    }
    equal(r_drop_loss(one, BATCH).sum.detach(), want.detach(), {name: x.detach() for name, x in slips.items()})
    torch.manual_seed(3)
    nats, n_tokens = r_drop_loss(one, BATCH, weight=5.0)
    equal(nats.detach(), (want + 3 * real.sum()).detach(), {"the weight is always 2": want.detach()})
    equal(int(n_tokens), int((BATCH.target_output != 0).sum()))


@check(r_drop_loss, "Two passes that should agree: R-Drop")
def evaluation() -> None:
    """In evaluation mode, the loss is the plain cross-entropy."""
    one = model(0.3).eval()
    equal(r_drop_loss(one, BATCH).sum.detach(), translation_loss(one, BATCH).sum.detach())


def risk(one: Transformer, costs: Tensor = COSTS, sharpness: float = 0.5) -> Tensor:
    """The loss with two fixed samples for each sentence."""
    return minimum_risk_loss(one, BATCH, lambda m, s: SAMPLES, lambda t, r: costs, sharpness).sum


@check(minimum_risk_loss, "Train on what we want: minimum risk")
def equal_costs() -> None:
    """If every translation costs 0.5, the expected cost of a sentence is 0.5, times its number of target tokens.

    In evaluation mode, the loss is the model's own.
    """
    one = model().eval()
    equal(risk(one).detach(), one.loss(BATCH).sum.detach())
    equal(
        risk(model().train(), torch.full((2, 2), 0.5)).detach(),
        tensor(2.0),
        {"not multiplied by the tokens": tensor(0.5)},
    )


@check(minimum_risk_loss, "Train on what we want: minimum risk")
def expected_cost() -> None:
    """The samples of a sentence are weighted by the softmax of their log-probabilities times the sharpness."""
    one = model().train()
    with torch.no_grad():
        rows = [
            [
                -F.cross_entropy(
                    one(BATCH.source[b : b + 1], s[None, :-1]).mT, s[None, 1:], ignore_index=0, reduction="sum"
                )
                for s in SAMPLES[b]
            ]
            for b in range(2)
        ]
    log_p = tensor(rows)
    costs = [(w * COSTS).sum(1) for w in ((0.5 * log_p).softmax(1), (0.5 * log_p).softmax(0), log_p.softmax(1))]
    want, across, plain = (3 * cost[0] + cost[1] for cost in costs)
    slips = {"Softmax along the wrong axis": across, "the sharpness is forgotten": plain}
    equal(risk(one).detach(), want, slips | {"every sentence has the same weight": 2 * costs[0].sum()})


@check(minimum_risk_loss, "Train on what we want: minimum risk")
def cheap_translations_become_likelier() -> None:
    """A step down the gradient makes the cheap translations likelier than the dear ones."""
    one = model().train()
    before = risk(one)
    before.backward()
    with torch.no_grad():
        for p in one.parameters():
            p -= 0.01 * p.grad if p.grad is not None else 0
    holds(
        risk(one) < before, f"expected cost before {float(before.detach()):.4f}, after {float(risk(one).detach()):.4f}"
    )
