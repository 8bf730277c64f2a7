"""Tests for chapter "Llama"."""

import torch
from torch import nn, randn, tensor
from torch.nn import functional as F

from transformer_lib.models.llama import Llama, LlamaConfig, RMSNorm, RotaryAttention, SwiGLU, rotate
from transformer_lib.models.multi_head import KVCache
from transformer_lib.student.checks import check, equal, holds, refuses, same

AT = torch.arange(5)


def sizes(**changes: int) -> LlamaConfig:
    """A small configuration with two heads of keys for four of queries."""
    same = {"vocab_size": 12, "d_model": 16, "n_heads": 4, "n_kv_heads": 2, "n_layers": 1, "d_ff": 24, "max_length": 16}
    return LlamaConfig(**(same | changes))


@check(rotate, "RoPE: rotary positions")
def position_zero() -> None:
    """At position 0 nothing turns, and at every position the length stays; an odd width raises a ValueError."""
    refuses(ValueError, rotate, randn(1, 5, 7), AT)
    x = randn(2, 3, 5, 8)
    y = rotate(x, AT)
    equal((y[:, :, 0], y.norm(dim=-1)), (x[:, :, 0], x.norm(dim=-1)))


@check(rotate, "RoPE: rotary positions")
def the_angles() -> None:
    """Pair i turns by base^(-2i / K) radians at each position; column i is paired with column i + K / 2."""
    x = randn(1, 5, 8)
    angle = AT[:, None] * 10_000.0 ** (-torch.arange(0, 8, 2) / 8)

    def turned(z: torch.Tensor, a: torch.Tensor) -> torch.Tensor:
        return torch.view_as_real(torch.view_as_complex(z.contiguous()) * torch.polar(torch.ones_like(a), a))

    halves = turned(torch.stack(x.chunk(2, -1), -1), angle)
    neighbours = turned(x.unflatten(-1, (4, 2)), angle).flatten(-2)
    back, want = turned(torch.stack(x.chunk(2, -1), -1), -angle), torch.cat([halves[..., 0], halves[..., 1]], -1)
    slips = {
        "Two layouts of rotary positions": neighbours,
        "turned the other way": torch.cat([back[..., 0], back[..., 1]], -1),
    }
    equal(rotate(x, AT), want, slips)
    equal(rotate(x, AT, interleaved=True), neighbours, {"Two layouts of rotary positions": want})


@check(rotate, "RoPE: rotary positions")
def only_distances_count() -> None:
    """The dot product of a query and a key depends on their distance alone."""
    q, k = randn(1, 8), randn(1, 8)
    products = [rotate(q, tensor([a])) @ rotate(k, tensor([b])).T for a, b in ((3, 1), (12, 10))]
    equal(products[1], products[0])


@check(RMSNorm.forward, "RMSNorm and SwiGLU")
def like_pytorch() -> None:
    """The result equals torch.nn.RMSNorm's, with its gain; the mean is not subtracted."""
    ours, theirs, x = RMSNorm(8, eps=1e-3), nn.RMSNorm(8, eps=1e-3), randn(2, 3, 8) + 1
    nn.init.normal_(ours.weight)
    theirs.load_state_dict(ours.state_dict())
    slips = {"a layer norm: the mean is subtracted": F.layer_norm(x, (8,), ours.weight, None, 1e-3)}
    length = x / (x.norm(dim=-1, keepdim=True)) * ours.weight
    outside = x / (x.square().mean(-1, keepdim=True).sqrt() + 1e-3) * ours.weight
    equal(
        ours(x),
        theirs(x),
        slips | {"divided by the length, not by the root mean square": length, "epsilon outside the root": outside},
    )


@check(RMSNorm.forward, "RMSNorm and SwiGLU")
def half_precision() -> None:
    """In half precision, the squares of large numbers do not overflow, and the type stays."""
    norm = RMSNorm(8).half()
    got = norm(torch.full((1, 8), 6e4, dtype=torch.float16)).detach()
    equal((got.dtype, got), (torch.float16, norm.weight.detach()[None]))


@check(SwiGLU.forward, "RMSNorm and SwiGLU")
def a_gate() -> None:
    """The result is W2 (swish(G x) * W1 x)."""
    layer, x = SwiGLU(8, 12), randn(2, 5, 8)
    g, u = layer.gate(x), layer.linear1(x)
    slips = {
        "gate and value exchanged": layer.linear2(g * F.silu(u)),
        "a sigmoid, not a swish": layer.linear2(g.sigmoid() * u),
        "added, not multiplied": layer.linear2(F.silu(g) + u),
    }
    equal(layer(x), layer.linear2(F.silu(g) * u), slips)


@check(RotaryAttention.forward, "Everything in one layer")
def grouped_and_rotated() -> None:
    """Queries and keys are normalised, if there are norms, and rotated; values are not.

    The first two heads of queries share the first of keys.
    """
    layer, x = RotaryAttention(sizes(qk_norm=True)), randn(2, 5, 16)
    q, k, v = layer.project(x)
    q, k = layer.q_norm(q), layer.k_norm(k)
    r, s = rotate(q, AT, base=layer.base), rotate(k, AT, base=layer.base)

    def result(*parts: torch.Tensor) -> torch.Tensor:
        return layer.out_proj(
            F.scaled_dot_product_attention(*parts, is_causal=True, enable_gqa=True).transpose(1, 2).flatten(2)
        )

    turn = [0, 1, 0, 1]
    slips = {
        "Shared keys repeated in the wrong order": result(r, s[:, turn], v[:, turn]),
        "the keys are not rotated": result(r, k, v),
        "the values are rotated, too": result(r, s, rotate(v, AT, base=layer.base)),
        "the default base": result(rotate(q, AT), rotate(k, AT), v),
    }
    equal(layer(x, AT), result(r, s, v), slips)


@check(RotaryAttention.forward, "Everything in one layer")
def a_cache_changes_nothing() -> None:
    """Word by word with a cache, the outputs are those of the whole text; keys are rotated once."""
    layer, x, cache = RotaryAttention(sizes()), randn(2, 5, 16), KVCache()
    got = torch.cat([layer(word, AT[t : t + 1], cache=cache) for t, word in enumerate(x.split(1, 1))], 1)
    want, once = layer(x, AT), rotate(layer.project(x)[1], AT, base=layer.base)
    equal(got, want, {"A rotated key that is rotated again": len(cache) == 5 and not same(got, want)})
    equal(cache.k, once, {"the cache keeps keys that are not rotated": layer.project(x)[1]})


@check(RotaryAttention.forward, "Everything in one layer")
def a_window() -> None:
    """With a window of 2, each position sees itself and the one before."""
    layer, x = RotaryAttention(sizes(window=2)), randn(1, 5, 16)
    far = torch.cat([x[:, :3] + 1, x[:, 3:]], 1)
    equal(layer(far, AT)[:, 4], layer(x, AT)[:, 4])
    near = torch.cat([x[:, :3], x[:, 3:4] + 1, x[:, 4:]], 1)
    holds(
        not torch.allclose(layer(near, AT)[:, 4], layer(x, AT)[:, 4]), "the last position does not see the one before"
    )
    mask = torch.ones(1, 1, 1, 5, dtype=torch.bool)
    mask[..., 3] = False
    equal(layer(near, AT, mask=mask)[:, 4], layer(x, AT, mask=mask)[:, 4], names="a masked word / the same, changed")


@check(RotaryAttention.forward, "Everything in one layer")
def in_the_model() -> None:
    """A Llama made of these layers gives the same logits step by step as for the whole text."""
    model, tokens = Llama(sizes(n_layers=2)).eval(), tensor([[1, 5, 6, 7, 2]])
    row, state = model.start(tokens[:, 1:3])  # after BOS
    rows = [row]
    for token in tokens[:, 3:].unbind(1):
        row, state = model.step(token, state)
        rows.append(row)
    equal(torch.stack(rows, 1), model(tokens)[:, 2:])


@check(Llama.embed, "Everything in one layer")
def plain_tokens() -> None:
    """Without a table of positions, a model embeds tokens alone, wherever they are."""
    model, tokens = Llama(sizes()), tensor([[1, 5, 6, 7, 2]])
    equal(model.embed(tokens, AT + 3), model.embedding(tokens))
