"""Tests for chapter "Residual connections, layer norm and feed-forward layers"."""

import torch
from torch import nn, randn
from torch.nn import functional as F

from transformer_lib.plain.layers import EncoderLayer, FeedForward, LayerNorm
from transformer_lib.student.checks import check, equal, same


@check(FeedForward.forward, "The feed-forward layer")
def two_maps() -> None:
    """The result is W2 relu(W1 x + b1) + b2."""
    layer, x = FeedForward(6, 10), randn(2, 3, 6)
    inside = layer.linear1(x)
    want = layer.linear2(inside.relu())
    slips = {
        '"The paper uses GELU"': layer.linear2(F.gelu(inside)),
        "the activation is missing": layer.linear2(inside),
        "an activation after the second map, too": want.relu(),
    }
    equal(layer(x), want, slips)


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


@check(EncoderLayer.add, "Pre-norm and post-norm")
def residual() -> None:
    """What comes out of a sublayer's dropout is added to x, then normalised; with ``norm_first``, x is before."""
    x, sublayer, norm = randn(2, 3, 8), nn.Linear(8, 8), nn.LayerNorm(8)
    for first in (False, True):
        layer = EncoderLayer(8, 2, 16, 0.1, first)
        layer.dropout.forward = lambda y: y / 2  # stands for dropout
        post, pre = norm(x + sublayer(x) / 2), x + sublayer(norm(x)) / 2
        slips = {"always post-norm": post, "Post-norm in the text, pre-norm in the code": pre}
        slips |= {"the norm is inside of the sum": x + norm(sublayer(x)) / 2}
        slips |= {"Dropout in another place": norm(x + sublayer(x)) / 2}
        equal(layer.add(x, sublayer, norm), pre if first else post, slips)


@check(EncoderLayer.forward, "Pre-norm and post-norm")
def encoder_layer() -> None:
    """An encoder layer equals nn.TransformerEncoderLayer, padding included, post-norm and pre-norm."""
    mask = torch.tensor([[True] * 4, [True, True, False, False]])
    for first in (False, True):
        layer, x = EncoderLayer(8, 2, 16, 0.0, first), randn(2, 4, 8)
        theirs = nn.TransformerEncoderLayer(8, 2, 16, 0.0, batch_first=True, norm_first=first)
        theirs.load_state_dict({name.replace("feed_forward.", ""): w for name, w in layer.state_dict().items()})
        theirs.dropout = nn.Identity()  # inside of the feed-forward layer, where we have none
        got, want = (y * mask[..., None] for y in (layer(x, mask[:, None, None]), theirs(x, None, ~mask)))
        equal(got, want, {"the mask is not used": theirs(x) * mask[..., None]})
