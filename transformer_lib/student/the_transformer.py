"""Tests for chapter "The Transformer"."""

import torch
from torch import nn, randn, tensor

from transformer_lib.plain.transformer import (
    Attention,
    DecoderLayer,
    EncoderLayer,
    FeedForward,
    Stack,
    Transformer,
    sinusoids,
    translate,
)
from transformer_lib.student.checks import check, equal, holds, same

SOURCE, TARGET = tensor([[4, 5, 6, 2], [7, 2, 0, 0]]), tensor([[1, 8, 9, 2], [1, 10, 2, 0]])
MASK = (SOURCE != 0)[:, None, None]
CAUSAL = torch.ones(3, 3, dtype=torch.bool).tril()


def pytorch(layer: nn.Module, kind: type, names: dict[str, str], **options: bool) -> nn.Module:
    """PyTorch's layer with the weights of ours."""
    theirs = kind(8, 2, 16, 0.0, batch_first=True, **options)
    state = layer.state_dict()
    for ours, new in names.items():
        state = {key.replace(ours, new): value for key, value in state.items()}
    theirs.load_state_dict(state)
    theirs.dropout = nn.Identity()  # inside of the feed-forward layer, where we have none
    return theirs


@check(Attention.split, "Attention")
def heads() -> None:
    """(B, T, D) becomes (B, H, T, D / H): head 0 has the first columns."""
    x = randn(2, 3, 8)
    slips = {"Heads cut without the transpose": x.view(2, 2, 3, 4)}
    equal(Attention(8, 2).split(x), torch.stack([x[..., :4], x[..., 4:]], 1), slips)


@check(Attention.forward, "Attention")
def attention() -> None:
    """Queries come from x, keys and values from the memory, and only what the mask allows is seen.

    The result equals nn.MultiheadAttention; the weights (B, H, T, S) are kept as ``self.weights``.
    """
    layer, x, memory = Attention(8, 2), randn(2, 3, 8), randn(2, 4, 8)
    nn.init.normal_(layer.in_proj_bias)
    theirs = nn.MultiheadAttention(8, 2, batch_first=True)
    theirs.load_state_dict(layer.state_dict())
    masked = {"key_padding_mask": ~MASK[:, 0, 0], "average_attn_weights": False}
    want, weights = theirs(x, memory, memory, **masked)
    got = layer(x, memory, MASK)
    slips = {
        "the mask is not used": theirs(x, memory, memory)[0],
        "True means the opposite": theirs(x, memory, memory, key_padding_mask=MASK[:, 0, 0])[0],
    }
    equal(got, want, slips)
    equal(layer.weights, weights)


@check(FeedForward.forward, "Feed-forward")
def feed_forward() -> None:
    """The result is W2 relu(W1 x + b1) + b2."""
    layer, x = FeedForward(8, 16), randn(2, 3, 8)
    inside = layer.linear1(x)
    equal(layer(x), layer.linear2(inside.relu()), {"the activation is missing": layer.linear2(inside)})


@check(EncoderLayer.add, "The encoder layer")
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


@check(EncoderLayer.forward, "The encoder layer")
def encoder_layer() -> None:
    """An encoder layer equals nn.TransformerEncoderLayer, padding included, post-norm and pre-norm."""
    for first in (False, True):
        layer, x = EncoderLayer(8, 2, 16, 0.0, first), randn(2, 4, 8)
        theirs = pytorch(layer, nn.TransformerEncoderLayer, {"feed_forward.": ""}, norm_first=first).train()
        got, want = (y * MASK[:, 0, 0, :, None] for y in (layer(x, MASK), theirs(x, None, ~MASK[:, 0, 0])))
        equal(got, want, {"the mask is not used": theirs(x) * MASK[:, 0, 0, :, None]})


@check(DecoderLayer.forward, "The decoder layer")
def decoder_layer() -> None:
    """A decoder layer equals nn.TransformerDecoderLayer: causal self-attention, cross-attention, feed-forward."""
    for first in (False, True):
        layer, x, memory = DecoderLayer(8, 2, 16, 0.0, first), randn(2, 3, 8), randn(2, 4, 8)
        names = {"feed_forward.": "", "cross_attn": "multihead_attn"}
        theirs = pytorch(layer, nn.TransformerDecoderLayer, names, norm_first=first)
        padding = {"memory_key_padding_mask": ~MASK[:, 0, 0]}
        want, leaks = (theirs(x, memory, mask, **padding) for mask in (~CAUSAL, None))
        unmasked = theirs(x, memory, ~CAUSAL)
        slips = {"self-attention is not causal": leaks, "the memory's padding is not masked": unmasked}
        equal(layer(x, CAUSAL, memory, MASK), want, slips)


@check(Stack.forward, "Stacks and positions")
def stack() -> None:
    """Vectors pass through all layers in order, each with the other arguments, and then through the last norm."""
    layers, x = [EncoderLayer(8, 2, 16, 0.0, True) for _ in range(2)], randn(2, 4, 8)
    inside = layers[1](layers[0](x, MASK), MASK)
    made = Stack(layers, 8, True)
    made.norm.weight.data += randn(8)
    equal(made(x, MASK), made.norm(inside), {"the last norm of a pre-norm stack is missing": inside})


@check(sinusoids, "Stacks and positions")
def waves() -> None:
    """Columns 2 i and 2 i + 1 hold the sine and the cosine of position / 10000^(2 i / D)."""
    angle = torch.arange(5)[:, None] * tensor([1.0, 0.01])
    sine, cosine = angle.sin(), angle.cos()
    slips = {"all sines, then all cosines": torch.cat([sine, cosine], 1)}
    equal(sinusoids(5, 4), torch.stack([sine, cosine], -1).flatten(1), slips)


def translator(**options: bool) -> Transformer:
    """A small model without dropout."""
    return Transformer(11, 11, 8, 2, 16, 2, 2, 0.0, **options).eval()


@check(Transformer.embed, "The model")
def embedding() -> None:
    """Embeddings are scaled by the root of D before positions are added; then comes a dropout."""
    model = translator()
    model.dropout.forward = lambda y: y / 2  # stands for dropout
    words, waves = model.source_embedding(SOURCE), sinusoids(4, 8)
    slips = {
        "the embeddings are not scaled": (words + waves) / 2,
        "the positions are scaled, too": (words + waves) * 8**0.5 / 2,
    }
    equal(model.embed(SOURCE, model.source_embedding), (words * 8**0.5 + waves) / 2, slips)


@check(Transformer.forward, "The model")
def whole() -> None:
    """The encoder reads the source, the decoder the target and the memory, and its vectors become scores.

    If the last target word changes, no earlier score does, in training and in evaluation.
    """
    model, other = translator(norm_first=True), TARGET.clone()
    memory = model.encoder(model.embed(SOURCE, model.source_embedding), MASK)
    causal = torch.ones(4, 4, dtype=torch.bool).tril()
    x = model.embed(TARGET, model.target_embedding)
    got = model(SOURCE, TARGET)
    leaks = model.output(model.decoder(x, causal | True, memory, MASK))
    slips = {"A decoder that sees the answer during evaluation": leaks}
    equal(got, model.output(model.decoder(x, causal, memory, MASK)), slips)
    other[:, -1] = 5
    for mode in (True, False):
        model.train(mode)
        one, two = model(SOURCE, TARGET)[:, :-1], model(SOURCE, other)[:, :-1]
        slips = {"the causal mask is missing in training mode": not same(two, one)}
        equal(two, one, slips, "before / after")


@check(Transformer.forward, "The model")
def padding_changes_nothing() -> None:
    """A pair gives the same logits alone as beside a longer one."""
    model = translator(shared=True)
    one, two = model(SOURCE, TARGET)[1:, :3], model(SOURCE[1:, :2], TARGET[1:, :3])
    equal(one, two, names="alone / beside a longer one")


class Scripted(nn.Module):
    """Gives the highest scores to PAD and BOS, and the next to a fixed text."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[bool] = []
        self.begins: list[int] = []

    def forward(self, source: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        """Scores (B, T, 11)."""
        self.seen.append(self.training)
        self.begins = target[:, 0].tolist()
        scores = torch.zeros(len(target), target.shape[1], 11)
        for row, text in enumerate(([7, 8, 2], [9, 2, 5])):
            for t in range(target.shape[1]):
                scores[row, t, text[t] if t < 3 else 6] = 1
        scores[..., :2] = 3
        return scores


@check(translate, "The model")
def greedy() -> None:
    """The likeliest word is appended until each row holds EOS; PAD and BOS are never written; BOS is left out.

    The model is in evaluation mode, and no row has more than ``max_length`` words.
    """
    model = Scripted().train()
    equal(translate(model, SOURCE), tensor([[7, 8, 2], [9, 2, 5]]), {})
    holds(not any(model.seen), "expected  evaluation mode\ngot       training mode")
    holds(model.begins == [1, 1], f"expected  rows that begin with BOS\ngot       {model.begins}")
    equal(translate(model, SOURCE, 2), tensor([[7, 8], [9, 2]]))
