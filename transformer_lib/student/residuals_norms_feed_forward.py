"""Tests for chapter "Residual connections, layer norm and feed-forward layers"."""

import torch
from torch import nn, randn
from torch.nn import functional as F

from transformer_lib.models.layers import FeedForward, LayerNorm
from transformer_lib.student.checks import check, equal, same


@check(FeedForward.forward, "The feed-forward layer")
def two_maps() -> None:
    """The result is W2 relu(W1 x + b1) + b2; dropout acts behind the activation."""
    layer, x = FeedForward(6, 10), randn(2, 3, 6)
    inside = layer.linear1(x)
    want = layer.linear2(layer.dropout(inside.relu()))
    slips = {
        '"The paper uses GELU"': layer.linear2(F.gelu(inside)),
        "the activation is missing": layer.linear2(inside),
        "an activation after the second map, too": want.relu(),
    }
    equal(layer(x), want, slips)


@check(FeedForward.forward, "The feed-forward layer")
def another_activation() -> None:
    """The layer uses the activation that it was made with."""
    layer, x = FeedForward(6, 10, activation="gelu"), randn(2, 3, 6)
    want = layer.linear2(layer.dropout(F.gelu(layer.linear1(x))))
    equal(layer(x), want, {"always ReLU": layer.linear2(layer.linear1(x).relu())})


@check(FeedForward.forward, "The feed-forward layer")
def each_position_on_its_own() -> None:
    """What happens at one position does not depend on the others."""
    layer, x = FeedForward(6, 10), randn(2, 3, 6)
    equal(layer(x)[:, 1], layer(x[:, 1]))


@check(LayerNorm.forward, "Layer norm")
def mean_and_variance() -> None:
    """With a scale of 1 and a shift of 0, each vector gets mean 0 and variance 1."""
    norm = LayerNorm(64)
    norm.weight.data.fill_(1), norm.bias.data.zero_()
    y = norm(randn(3, 64) * 5 + 2)
    equal(
        (y.mean(-1), y.var(-1, correction=0)),
        (torch.zeros(3), torch.ones(3)),
        {"A layer norm that is almost the one in the library": (y.mean(-1), torch.full((3,), 63 / 64))},
    )


@check(LayerNorm.forward, "Layer norm")
def like_pytorch() -> None:
    """The result equals nn.LayerNorm's, scale and shift included, also for a vector of equal numbers."""
    ours, theirs, x = (
        LayerNorm(6),
        nn.LayerNorm(6),
        torch.cat([randn(2, 6), torch.full((1, 6), 3.0), randn(1, 6) * 1e-3]),
    )
    for p in ours.parameters():
        nn.init.normal_(p)
    theirs.load_state_dict(ours.state_dict())
    centred, w, b = x - x.mean(-1, keepdim=True), ours.weight, ours.bias
    slips = [centred / (x.std(-1, keepdim=True, correction=c) + ours.eps) * w + b for c in (0, 1)]
    slips += [centred / (x.var(-1, keepdim=True) + ours.eps).sqrt() * w + b]
    got = ours(x)
    whole = (x - x.mean()) / x.var(correction=0).sqrt() * w + b
    equal(
        got,
        theirs(x),
        {
            "A layer norm that is almost the one in the library": any(same(got, x) for x in slips),
            "one mean for the whole batch": whole,
        },
    )


@check(LayerNorm.forward, "Layer norm")
def each_vector_on_its_own() -> None:
    """A vector is normalised by its own mean and variance, not by those of the batch or of the sentence."""
    layer, x = LayerNorm(6), randn(2, 3, 6)
    equal(layer(x)[:, 1], layer(x[:, 1]))
