"""Tests for chapter "Residual connections, layer norm and feed-forward layers"."""

import torch
from torch import nn, randn
from torch.nn import functional as F

from transformer_lib.models.layers import FeedForward, LayerNorm, residual
from transformer_lib.student.checks import check, equal, holds, same


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
    """At the start, each vector gets mean 0 and variance 1."""
    y = LayerNorm(64)(randn(3, 64) * 5 + 2)
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


@check(residual, "Pre-norm and post-norm")
def post_norm() -> None:
    """Post-norm is norm(x + sublayer(x))."""
    f, norm, x = nn.Linear(6, 6), nn.LayerNorm(6), randn(2, 3, 6)
    slips = {
        "Post-norm in the text, pre-norm in the code": x + f(norm(x)),
        "the residual connection is missing": norm(f(x)),
    }
    equal(residual(x, f, norm, nn.Identity()), norm(x + f(x)), slips | {"norm before the sum": x + norm(f(x))})


@check(residual, "Pre-norm and post-norm")
def pre_norm() -> None:
    """Pre-norm is x + sublayer(norm(x))."""
    f, norm, x = nn.Linear(6, 6), nn.LayerNorm(6), randn(2, 3, 6)
    slips = {"always post-norm": norm(x + f(x)), "the norm is added, not x": norm(x) + f(norm(x))}
    equal(residual(x, f, norm, nn.Identity(), norm_first=True), x + f(norm(x)), slips)


@check(residual, "Pre-norm and post-norm")
def where_dropout_is() -> None:
    """Dropout acts on the sublayer's output, before it is added to x."""
    f, norm, x = nn.Linear(6, 6), nn.LayerNorm(6), randn(2, 3, 6)

    def half(y: torch.Tensor) -> torch.Tensor:  # stands for dropout
        return y / 2

    dropout = nn.Module()
    dropout.forward = half
    equal(
        residual(x, f, norm, dropout),
        norm(x + f(x) / 2),
        {"Dropout in another place": norm(x + f(x)) / 2, "dropout is missing": norm(x + f(x))},
    )
    equal(
        residual(x, f, norm, dropout, norm_first=True),
        x + f(norm(x)) / 2,
        {"Dropout in another place": (x + f(norm(x))) / 2},
    )


@check(residual, "Residual connections")
def a_way_around() -> None:
    """If the sublayer gives zeros, pre-norm leaves x as it is."""
    x = randn(2, 3, 6)
    got = residual(x, torch.zeros_like, nn.LayerNorm(6), nn.Identity(), norm_first=True)
    holds(torch.equal(got, x), f"expected  x itself\ngot       something {float((got - x).abs().max()):.3g} away")
