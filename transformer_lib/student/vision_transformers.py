"""Tests for chapter "Vision transformers"."""

import torch
from torch import nn, randn, tensor

from transformer_lib.plain.vision_transformer import Layer, VisionTransformer, patches
from transformer_lib.student.checks import check, equal, holds

EVERY = torch.ones(1, dtype=torch.bool)


@check(patches, "An image is a sentence")
def squares() -> None:
    """Patches go from left to right and from top to bottom, and so do the pixels in each."""
    images = torch.arange(48.0).view(2, 4, 6)
    rows = [images[:, i : i + 2, j : j + 2].flatten(1) for i in (0, 2) for j in (0, 2, 4)]
    slips = {"Patches cut with a view": images.reshape(2, 6, 4)}
    equal(patches(images, 2), torch.stack(rows, 1), slips)
    holds(patches(images[:, :3, :6], 3).shape == (2, 2, 9), "images of 3 x 6 pixels have two patches of size 3")


@check(Layer.forward, "The model")
def norms_first() -> None:
    """Each sublayer reads a normalised x, and its result is added to x."""
    layer, x = Layer(8, 2, 16), randn(2, 5, 8)
    nn.init.normal_(layer.norm1.bias)
    y = x + layer.self_attn(layer.norm1(x), EVERY)
    post = layer.norm1(x + layer.self_attn(x, EVERY))
    slips = {
        "the norms come after the sums": layer.norm2(post + layer.feed_forward(post)),
        "the second sublayer reads x without a norm": y + layer.feed_forward(y),
    }
    equal(layer(x, EVERY), y + layer.feed_forward(layer.norm2(y)), slips)
    first = torch.arange(5) == 0
    y = x + layer.self_attn(layer.norm1(x), first)
    equal(layer(x, first), y + layer.feed_forward(layer.norm2(y)), names="expected with a mask / got")


def vit() -> VisionTransformer:
    """A small model whose parameters are all at work."""
    model = VisionTransformer(2, 6, 3, 8, 2, 2, 16).eval()
    for weight in model.parameters():
        weight.data += 0.3 * randn(weight.shape)
    return model


IMAGES = torch.arange(48.0).view(2, 4, 6).sin()


@check(VisionTransformer.encode, "The model")
def class_token_first() -> None:
    """The class token comes first, then the patches, each with its position; layers and a last norm follow."""
    model = vit()
    words = model.patch(patches(IMAGES, 2))
    first = model.class_token.expand(2, 1, 8)

    def rest(x: torch.Tensor) -> torch.Tensor:
        for layer in model.layers:
            x = layer(x, EVERY)
        return model.norm(x)

    x = torch.cat([first, words], 1)
    no_norm = model.layers[1](model.layers[0](x + model.positions, EVERY), EVERY)
    slips = {
        "positions are missing": rest(x),
        "the class token comes last": rest(torch.cat([words, first], 1) + model.positions),
        "the class token has no position": rest(torch.cat([first, words + model.positions[1:]], 1)),
        "the last norm is missing": no_norm,
    }
    equal(model.encode(IMAGES), rest(x + model.positions), slips)


@check(VisionTransformer.encode, "The model")
def only_some_patches() -> None:
    """With ``keep``, only these patches are read, each with its own position; their order doesn't matter."""
    model, keep = vit(), tensor([[5, 0, 3], [1, 2, 4]])
    x = model.patch(patches(IMAGES, 2)) + model.positions[1:]
    x = torch.stack([row[chosen] for row, chosen in zip(x, keep, strict=True)])
    first = (model.class_token + model.positions[0]).expand(2, 1, 8)
    x = torch.cat([first, x], 1)
    for layer in model.layers:
        x = layer(x, EVERY)
    renumbered = model.patch(patches(IMAGES, 2)).take_along_dim(keep[..., None], 1) + model.positions[1:4]
    renumbered = torch.cat([first, renumbered], 1)
    for layer in model.layers:
        renumbered = layer(renumbered, EVERY)
    slips = {"all patches are read": model.encode(IMAGES)[:, :4], "positions are renumbered": model.norm(renumbered)}
    equal(model.encode(IMAGES, keep), model.norm(x), slips)


@check(VisionTransformer.forward, "The model")
def answer_of_the_class_token() -> None:
    """The head reads the first vector, and ``keep`` is handed on."""
    model, keep = vit(), tensor([[5, 0, 3], [1, 2, 4]])
    x = model.encode(IMAGES)
    slips = {"the mean of all positions": model.head(x.mean(1)), "the last vector": model.head(x[:, -1])}
    equal(model(IMAGES), model.head(x[:, 0]), slips)
    equal(model(IMAGES, keep), model.head(model.encode(IMAGES, keep)[:, 0]), {"all patches are read": model(IMAGES)})
