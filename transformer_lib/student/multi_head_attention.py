"""Tests for chapter "Multi-head attention"."""

import torch
from torch import nn, randn
from torch.nn import functional as F

from transformer_lib.models.multi_head import KVCache, MultiHeadAttention, record_attention
from transformer_lib.student.checks import check, equal, holds, same


def pair() -> tuple[MultiHeadAttention, nn.MultiheadAttention]:
    """Our layer and PyTorch's, with the same weights."""
    ours, theirs = MultiHeadAttention(12, 3).eval(), nn.MultiheadAttention(12, 3, batch_first=True).eval()
    for vector in (ours.in_proj_bias, ours.out_proj.bias):
        nn.init.normal_(vector)
    theirs.load_state_dict(ours.state_dict())
    return ours, theirs


@check(MultiHeadAttention.project, "One product instead of a loop")
def shapes() -> None:
    """Queries, keys and values are (sentences, heads, words, width of a head)."""
    equal([part.shape for part in MultiHeadAttention(12, 3).project(randn(2, 5, 12))], [torch.Size([2, 3, 5, 4])] * 3)


@check(MultiHeadAttention.project, "One product instead of a loop")
def heads_are_slices_of_columns() -> None:
    """Head h of the queries is the product with its own rows of the weights, plus their bias."""
    layer, x = pair()[0], randn(2, 5, 12)
    full = F.linear(x, layer.in_proj_weight, layer.in_proj_bias)
    want = [torch.stack([full[..., 12 * i + 4 * h : 12 * i + 4 * h + 4] for h in range(3)], 1) for i in range(3)]
    slip = [full[..., 12 * i : 12 * i + 12].reshape(2, 3, 5, 4) for i in range(3)]
    interleaved = [full[..., 12 * i : 12 * i + 12].unflatten(2, (4, 3)).permute(0, 3, 1, 2) for i in range(3)]
    slips = {"Heads cut without the transpose": slip, "a head gets every third column": interleaved}
    equal(layer.project(x), want, slips)


@check(MultiHeadAttention.project, "What the library adds")
def some_of_the_three() -> None:
    """``project(x, 1)`` gives keys and values, ``project(x, 0, 1)`` the queries, also with fewer heads of keys."""
    layer, x = MultiHeadAttention(12, 6, n_kv_heads=2), randn(2, 5, 12)
    q, k, v = layer.project(x)
    equal([q.shape, k.shape], [torch.Size([2, 6, 5, 2]), torch.Size([2, 2, 5, 2])])
    equal(layer.project(x, 1), [k, v])
    equal(layer.project(x, 0, 1), [q])


@check(KVCache.append, "What the library adds")
def the_cache_grows() -> None:
    """New positions are put behind the old ones, along the axis of positions, and stay."""
    cache, k, v = KVCache(), randn(2, 3, 5, 4), randn(2, 3, 5, 4)
    equal(cache.append(k[:, :, :3], v[:, :, :3]), [k[:, :, :3], v[:, :, :3]])
    slips = {"the cache forgets": [k[:, :, 3:], v[:, :, 3:]]}
    equal(cache.append(k[:, :, 3:], v[:, :, 3:]), [k, v], slips)
    equal([cache.k, cache.v], [k, v])


@check(MultiHeadAttention.forward, "What the library adds")
def like_pytorch() -> None:
    """Self-attention equals that of nn.MultiheadAttention."""
    (ours, theirs), x = pair(), randn(2, 5, 12)
    q, k, v = ours.project(x)
    context = F.scaled_dot_product_attention(q, k, v)
    slip = ours.out_proj(context.reshape(2, 5, 12))
    want = theirs(x, x, x, need_weights=False)[0]
    slips = {
        "Heads cut without the transpose": slip,
        "the output projection is missing": context.transpose(1, 2).flatten(2),
    }
    equal(ours(x), want, slips)
    with record_attention(ours) as maps:
        ours(x)
    holds(maps[""], "nothing was recorded", {"the layer's own method attend is not called": True})


@check(MultiHeadAttention.forward, "Three uses of one layer")
def cross_attention() -> None:
    """Queries come from x, keys and values from the memory, so there is a vector for each word of x."""
    (ours, theirs), x, memory = pair(), randn(2, 4, 12), randn(2, 6, 12)
    got, slip = ours(x, memory), theirs(memory, x, x, need_weights=False)[0]
    slips = {"Queries and keys exchanged in cross-attention": slip}
    equal(got, theirs(x, memory, memory, need_weights=False)[0], slips)


@check(MultiHeadAttention.forward, "Three uses of one layer")
def padding_is_not_read() -> None:
    """What a mask hides changes nothing."""
    (ours, theirs), x = pair(), randn(2, 5, 12)
    mask = torch.ones(2, 1, 1, 5, dtype=torch.bool)
    mask[1, ..., 3:] = False
    want = theirs(x, x, x, key_padding_mask=~mask[:, 0, 0], need_weights=False)[0]
    equal(ours(x, mask=mask)[0], want[0])
    equal(ours(x, mask=mask)[1], want[1], {"the mask is not used": theirs(x, x, x, need_weights=False)[0][1]})


@check(MultiHeadAttention.forward, "Three uses of one layer")
def no_leak() -> None:
    """With ``causal``, no output depends on a later word."""
    ours, x = pair()[0], randn(1, 5, 12)
    other = torch.cat([x[:, :4], x[:, 4:] + 1], 1)
    equal(ours(other, causal=True)[:, :4], ours(x, causal=True)[:, :4], names="before / after")


@check(MultiHeadAttention.forward, "What the library adds")
def a_cache_changes_nothing() -> None:
    """Word by word or two at a time with a cache, the outputs are those of the whole sentence with ``causal``."""
    ours, x, cache = pair()[0], randn(2, 5, 12), KVCache()
    steps = [ours(part, cache=cache) for part in x.split([1, 2, 2], 1)]
    slips = {"the cache does not imply causality": same(steps[0], ours(x, causal=True)[:, :1])}
    equal(torch.cat(steps, 1), ours(x, causal=True), slips, "the whole sentence / in parts")
    holds(len(cache) == 5, f"expected  5 positions in the cache\ngot       {len(cache)}")


@check(MultiHeadAttention.forward, "What the library adds")
def hypotheses_share_a_memory() -> None:
    """Four rows and a memory of two sentences: rows 0 and 1 attend to the first sentence.

    ``attend`` gets the queries of one sentence's rows one after the other, on the axis of positions.
    """
    ours, x, memory = pair()[0], randn(4, 3, 12), randn(2, 6, 12)
    want, slip = (
        torch.cat([ours(x[i : i + 1], memory[j : j + 1]) for i, j in enumerate(order)])
        for order in ((0, 0, 1, 1), (0, 1, 0, 1))
    )
    equal(ours(x, memory), want, {"the sentences take turns": slip})
    equal(ours(x, ours.project(memory, 1)), want)


@check(MultiHeadAttention.forward, "What the library adds")
def a_mask_needs_four_axes() -> None:
    """A mask of shape (B, S) raises a ValueError: it could pass for (T, S). So does a memory with causal or a cache."""
    layer, x = MultiHeadAttention(12, 3), randn(5, 5, 12)
    for wrong in ({"mask": x[0, :, :5] > 0}, {"memory": x, "causal": True}, {"memory": x, "cache": KVCache()}):
        try:
            layer(x, **wrong)
        except ValueError:
            continue
        holds(False, f"expected  ValueError for {', '.join(wrong)}\ngot       a result")
