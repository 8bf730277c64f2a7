"""Tests for chapter "Multi-head attention"."""

import torch
from torch import nn, randn, tensor
from torch.nn import functional as F

from transformer_lib.plain.multi_head import Attention
from transformer_lib.student.checks import check, equal, same

EVERYTHING = tensor(True)  # every query may look at every key


def pair() -> tuple[Attention, nn.MultiheadAttention]:
    """Our layer and PyTorch's, with the same weights; no bias is zero."""
    ours, theirs = Attention(12, 3), nn.MultiheadAttention(12, 3, batch_first=True)
    for vector in (ours.in_proj_bias, ours.out_proj.bias):
        nn.init.normal_(vector)
    theirs.load_state_dict(ours.state_dict())
    return ours, theirs


@check(Attention.split, "One product instead of a loop")
def shapes() -> None:
    """(B, T, D) becomes (B, H, T, D / H): sentences, heads, words, width of a head."""
    equal(Attention(12, 3).split(randn(2, 5, 12)).shape, torch.Size([2, 3, 5, 4]))


@check(Attention.split, "One product instead of a loop")
def heads_are_slices_of_columns() -> None:
    """The first head has the first D / H columns of every word, the second head the next ones."""
    x = randn(2, 5, 12)
    slips = {
        "Heads cut without the transpose": x.reshape(2, 3, 5, 4),
        "a head gets every third column": x.unflatten(2, (4, 3)).permute(0, 3, 1, 2),
    }
    equal(Attention(12, 3).split(x), torch.stack([x[..., :4], x[..., 4:8], x[..., 8:]], 1), slips)


@check(Attention.forward, "The layer")
def like_pytorch() -> None:
    """Self-attention equals that of nn.MultiheadAttention.

    The first D rows of ``in_proj_weight`` belong to the queries, the next D to the keys, and the last to the values.
    """
    (ours, theirs), x = pair(), randn(2, 5, 12)
    q, k, v = (ours.split(part) for part in F.linear(x, ours.in_proj_weight, ours.in_proj_bias).chunk(3, -1))
    z = F.scaled_dot_product_attention(q, k, v)
    by_width = F.scaled_dot_product_attention(q, k, v, scale=12**-0.5)
    slips = {
        "the heads are joined without the transpose": ours.out_proj(z.reshape(2, 5, 12)),
        "the output projection is missing": z.transpose(1, 2).flatten(2),
        "the scores are divided by the root of the model's width": ours.out_proj(by_width.transpose(1, 2).flatten(2)),
    }
    equal(ours(x, x, EVERYTHING), theirs(x, x, x, need_weights=False)[0], slips)


@check(Attention.forward, "The layer")
def the_weights_are_kept() -> None:
    """``self.weights`` has a row for every sentence, head and query, and each row sums to 1; they carry no gradient."""
    (ours, theirs), x = pair(), randn(2, 5, 12)
    ours(x, x, EVERYTHING)
    equal(ours.weights, theirs(x, x, x, average_attn_weights=False)[1])
    equal(ours.weights.requires_grad, False)


@check(Attention.forward, "Three uses of one layer")
def cross_attention() -> None:
    """Queries come from x, keys and values from the memory, so there is a vector for each word of x."""
    (ours, theirs), x, memory = pair(), randn(2, 4, 12), randn(2, 6, 12)
    slips = {"Queries and keys exchanged in cross-attention": theirs(memory, x, x, need_weights=False)[0]}
    equal(ours(x, memory, EVERYTHING), theirs(x, memory, memory, need_weights=False)[0], slips)


@check(Attention.forward, "Three uses of one layer")
def padding_is_not_read() -> None:
    """What a mask (B, 1, 1, S) hides changes nothing."""
    (ours, theirs), x = pair(), randn(2, 5, 12)
    mask = torch.ones(2, 1, 1, 5, dtype=torch.bool)
    mask[1, ..., 3:] = False
    hidden = ~mask[:, 0, 0]
    hides_words = theirs(x[1:], x[1:], x[1:], key_padding_mask=~hidden[1:])[0]
    slips = {"the mask is not used": theirs(x, x, x)[0]}
    got = ours(x, x, mask)
    slips["True means the opposite"] = same(got[1:], hides_words)
    equal(got, theirs(x, x, x, key_padding_mask=hidden)[0], slips)


@check(Attention.forward, "Three uses of one layer")
def no_leak() -> None:
    """With a causal mask (T, T), no output depends on a later word."""
    ours, x, causal = pair()[0], randn(1, 5, 12), torch.ones(5, 5, dtype=torch.bool).tril()
    other = torch.cat([x[:, :4], x[:, 4:] + 1], 1)
    equal(ours(other, other, causal)[:, :4], ours(x, x, causal)[:, :4], names="before / after")
