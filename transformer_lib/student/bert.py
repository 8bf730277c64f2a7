"""Tests for chapter "BERT"."""

import torch
from torch import nn, randn, tensor
from torch.nn import functional as F

from transformer_lib.plain.bert import (
    Attention,
    Bert,
    BertClassifier,
    Encoder,
    FeedForward,
    Layer,
    mask_tokens,
)
from transformer_lib.student.checks import check, equal, holds

TOKENS = tensor([[1, 5, 6, 7, 2], [1, 8, 2, 0, 0]])
THERE = (TOKENS != 0)[:, None, None]


def bert() -> Bert:
    """A small model."""
    return Bert(20, 8, 2, 2, 16, dropout=0.0).eval()


@check(Attention.forward, "The model")
def attention() -> None:
    """Every position attends to those that the mask allows; the result equals nn.MultiheadAttention."""
    layer, x = Attention(8, 2), randn(2, 5, 8)
    nn.init.normal_(layer.in_proj_bias)
    theirs = nn.MultiheadAttention(8, 2, batch_first=True)
    theirs.load_state_dict(layer.state_dict())
    slips = {
        "the mask is not used": theirs(x, x, x)[0],
        "True means the opposite": theirs(x, x, x, key_padding_mask=THERE[:, 0, 0])[0],
    }
    equal(layer(x, THERE), theirs(x, x, x, key_padding_mask=~THERE[:, 0, 0])[0], slips)
    causal = torch.ones(5, 5, dtype=torch.bool).tril()
    equal(layer(x, causal), theirs(x, x, x, attn_mask=~causal)[0])


@check(FeedForward.forward, "The model")
def feed_forward() -> None:
    """The result is W2 gelu(W1 x + b1) + b2."""
    layer, x = FeedForward(8, 16), randn(2, 5, 8)
    inside = layer.linear1(x)
    slips = {"the activation is missing": layer.linear2(inside), "the activation is ReLU": layer.linear2(inside.relu())}
    equal(layer(x), layer.linear2(F.gelu(inside)), slips)


@check(Layer.forward, "The model")
def one_layer() -> None:
    """Attention, then the feed-forward layer; each is dropped out, added to its input, and normalised."""
    layer, x = Layer(8, 2, 16, 0.1), randn(2, 5, 8)
    layer.dropout.forward = lambda y: y / 2  # stands for dropout
    attend, transform = layer.self_attn, layer.feed_forward
    y = layer.norm1(x + attend(x, THERE) / 2)
    pre = x + attend(layer.norm1(x), THERE) / 2
    slips = {
        "the norm comes before each sublayer": pre + transform(layer.norm2(pre)) / 2,
        "there is no residual connection": layer.norm2(transform(layer.norm1(attend(x, THERE) / 2)) / 2),
    }
    equal(layer(x, THERE), layer.norm2(y + transform(y) / 2), slips)


@check(Encoder.forward, "The model")
def layer_after_layer() -> None:
    """Vectors pass through all layers in order."""
    layers, x = [Layer(8, 2, 16, 0.0) for _ in range(2)], randn(2, 5, 8)
    equal(Encoder(layers)(x, THERE), layers[1](layers[0](x, THERE), THERE))


@check(Bert.encode, "The model")
def three_tables() -> None:
    """Vectors of words, segments and positions are added, normalised, dropped out, and encoded; padding is masked."""
    model = bert()
    model.dropout.forward = lambda y: y / 2  # stands for dropout
    nn.init.normal_(model.norm.bias)
    segments = tensor([[0, 0, 0, 1, 1], [0, 0, 0, 0, 0]])
    x = model.token_embedding(TOKENS) + model.segment_embedding(segments) + model.positions.weight[:5]
    y = model.norm(x) / 2
    slips = {
        "the norm of the embeddings is missing": model.encoder(x / 2, THERE),
        "the padding is not masked": model.encoder(y, THERE | True),
        "True means the opposite": model.encoder(y, ~THERE),
    }
    equal(model.encode(TOKENS, segments), model.encoder(y, THERE), slips)
    equal(model.encode(TOKENS), model.encode(TOKENS, torch.zeros_like(TOKENS)), names="segments of 0 / none given")


@check(Bert.encode, "The model")
def another_mask() -> None:
    """A given mask stands in for that of the padding."""
    model, other = bert(), TOKENS.clone()
    other[:, 1] = 9
    mask = torch.arange(5)[None, None, None] != 1
    one, two = (model.encode(tokens, mask=mask)[:, 2:] for tokens in (TOKENS, other))
    equal(two, one, names="a masked token / the same, changed")


@check(Bert.encode, "The model")
def both_sides() -> None:
    """A vector depends on the words on both its sides: there is no causal mask."""
    model, other = bert(), TOKENS.clone()
    other[0, 3] = 9
    apart = (model.encode(other) - model.encode(TOKENS))[0, 1].abs().max()
    holds(apart > 1e-6, f"the vector of word 1 moved by {float(apart.detach()):.1e} when word 3 changed")


@check(Bert.encode, "The model")
def padding_changes_nothing() -> None:
    """A sentence gives the same vectors alone as beside a longer one."""
    model = bert()
    equal(model.encode(TOKENS)[1:, :3], model.encode(TOKENS[1:, :3]))


@check(Bert.logits, "The model")
def a_transform_then_the_table() -> None:
    """Vectors are transformed, activated and normalised before they meet the table of words."""
    model, x = bert(), randn(2, 5, 8)
    inside = model.transform(x)
    slips = {
        "the activation is missing": model.output(model.transform_norm(inside)),
        "the norm comes before the activation": model.output(F.gelu(model.transform_norm(inside))),
    }
    equal(model.logits(x), model.output(model.transform_norm(F.gelu(inside))), slips)


@check(Bert.forward, "The model")
def logits_everywhere() -> None:
    """There are logits of every word at every position, with segments and with a mask."""
    model, causal = bert(), torch.ones(5, 5, dtype=torch.bool).tril()
    segments = tensor([[0, 0, 0, 1, 1], [0, 1, 1, 0, 0]])
    equal(model(TOKENS, segments), model.logits(model.encode(TOKENS, segments)))
    equal(model(TOKENS, mask=causal), model.logits(model.encode(TOKENS, mask=causal)))


ROWS = torch.randint(4, 19, (400, 50), generator=torch.Generator().manual_seed(0))


def hide(tokens: torch.Tensor, share: float = 0.15) -> tuple[torch.Tensor, torch.Tensor]:
    """Hide words with a fixed seed."""
    return mask_tokens(tokens, 19, share=share, rng=torch.Generator().manual_seed(1))


@check(mask_tokens, "Hide the word instead")
def a_share_of_the_words() -> None:
    """About 15 % of the words are chosen, drawn with ``rng``, and words that are not chosen stay."""
    hidden, chosen = hide(ROWS)
    equal(hide(ROWS), (hidden, chosen), {"`rng` is not used": True}, "drawn with a generator / with the same one again")
    share = float(chosen.float().mean())
    holds(0.14 < share < 0.16, f"share {share:.3f}")
    equal(hidden[~chosen], ROWS[~chosen])


@check(mask_tokens, "Hide the word instead")
def eighty_ten_ten() -> None:
    """Of the chosen words, 80 % become the mask token, 10 % another word, and 10 % stay."""
    hidden, chosen = hide(ROWS, 0.5)
    masked, kept = float((hidden[chosen] == 19).float().mean()), float((hidden[chosen] == ROWS[chosen]).float().mean())
    numbers = f"masked {masked:.3f}, the same {kept:.3f}, another {1 - masked - kept:.3f}"
    slips = {"the words that stay are not there": kept < 0.02, "all chosen words are masked": masked > 0.99}
    holds(abs(masked - 0.8) < 0.02 and abs(kept - 0.107) < 0.02, numbers, slips)


@check(mask_tokens, "Hide the word instead")
def special_tokens_stay() -> None:
    """Padding, BOS, EOS and UNK are never chosen, and never put in the place of a word."""
    rows = torch.cat([TOKENS, tensor([[1, 3, 3, 3, 2]])]).repeat(300, 1)
    hidden, chosen = hide(rows, 0.9)
    equal(hidden[rows < 4], rows[rows < 4])
    drawn = hidden[chosen & (hidden != 19)]
    holds(not chosen[rows < 4].any(), "a special token was chosen")
    equal([int(drawn.min()), int(drawn.max())], [4, 18], names="first and last of the words / drawn")


@check(BertClassifier.forward, "A few hundred labels")
def by_its_first_position() -> None:
    """The first vector goes through the pooler, tanh and a dropout, and then to the classes."""
    model = BertClassifier(bert(), 3).eval()
    model.dropout.forward = lambda y: y / 2  # stands for dropout
    segments = tensor([[0, 0, 0, 1, 1], [0, 1, 1, 0, 0]])
    x = model.bert.encode(TOKENS, segments)
    want, mean = (model.classifier(model.pooler(y).tanh() / 2) for y in (x[:, 0], x.mean(1)))
    slips = {"tanh is missing": model.classifier(model.pooler(x[:, 0]) / 2)}
    equal(model(TOKENS, segments), want, slips | {"the mean of all positions": mean})
