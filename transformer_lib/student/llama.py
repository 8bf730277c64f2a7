"""Tests for chapter "Today's layer, 2026"."""

import torch
from torch import nn, randn, tensor
from torch.nn import functional as F

from transformer_lib.plain.llama import Attention, Block, Llama, RMSNorm, SwiGLU, rotate, write
from transformer_lib.student.checks import check, equal, holds, same

TOKENS = tensor([[1, 5, 6, 7, 2], [3, 3, 4, 9, 8]])


def model(window: int | None = None, tied: bool = False) -> Llama:
    """A small model with two heads of keys for four of queries."""
    return Llama(12, 16, 4, 2, 24, 2, base=100.0, window=window, eps=1e-3, tied=tied)


@check(RMSNorm.forward, "RMSNorm")
def like_pytorch() -> None:
    """The result equals torch.nn.RMSNorm's, with its gain; the mean is not subtracted."""
    ours, theirs, x = RMSNorm(8, 1e-3), nn.RMSNorm(8, eps=1e-3), randn(2, 3, 8) + 1
    nn.init.normal_(ours.weight)
    theirs.load_state_dict(ours.state_dict())
    slips = {"a layer norm: the mean is subtracted": F.layer_norm(x, (8,), ours.weight, None, 1e-3)}
    length = x / (x.norm(dim=-1, keepdim=True)) * ours.weight
    outside = x / (x.square().mean(-1, keepdim=True).sqrt() + 1e-3) * ours.weight
    slips |= {"divided by the length, not by the root mean square": length, "epsilon outside the root": outside}
    equal(ours(x), theirs(x), slips)


def turned(z: torch.Tensor, base: float, sign: int = 1) -> torch.Tensor:
    """Pairs (..., T, K / 2, 2), each turned by its position."""
    angle = sign * torch.arange(z.shape[-3])[:, None] * base ** -(torch.arange(z.shape[-2]) / z.shape[-2])
    return torch.view_as_real(torch.view_as_complex(z.contiguous()) * torch.polar(torch.ones_like(angle), angle))


@check(rotate, "RoPE: rotary positions")
def the_angles() -> None:
    """Pair i turns by base^(-2i / K) radians at each position; number i is paired with number i + K / 2."""
    x = randn(2, 3, 5, 8)
    pairs = torch.stack(x.chunk(2, -1), -1)

    def halves(z: torch.Tensor) -> torch.Tensor:
        return torch.cat([z[..., 0], z[..., 1]], -1)

    slips = {
        "Two layouts of rotary positions": turned(x.unflatten(-1, (4, 2)), 100.0).flatten(-2),
        "turned the other way": halves(turned(pairs, 100.0, -1)),
        "the base is not used": halves(turned(pairs, 10_000.0)),
    }
    equal(rotate(x, 100.0), halves(turned(pairs, 100.0)), slips)


@check(rotate, "RoPE: rotary positions")
def only_distances_count() -> None:
    """The dot product of a query and a key depends on their distance alone; at position 0, nothing turns."""
    q, k = (randn(1, 8).expand(1, 1, 9, 8) for _ in range(2))
    scores = (rotate(q, 10_000.0) @ rotate(k, 10_000.0).mT)[0, 0]
    equal(scores.diagonal(-3), scores[3, 0].expand(6))
    equal(rotate(q, 10_000.0)[:, :, 0], q[:, :, 0])


@check(SwiGLU.forward, "SwiGLU")
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


@check(Attention.forward, "Attention, with fewer heads of keys and values")
def grouped_and_rotated() -> None:
    """Queries and keys are rotated, values are not, and no later token is seen.

    The first two heads of queries share the first of keys and values.
    """
    layer, x = Attention(16, 4, 2, 100.0, None), randn(2, 5, 16)
    q, k, v = (
        part.unflatten(2, (-1, 4)).transpose(1, 2) for part in (x @ layer.in_proj_weight.T).split([16, 8, 8], -1)
    )
    r, s = rotate(q, 100.0), rotate(k, 100.0)

    def result(*parts: torch.Tensor, causal: bool = True) -> torch.Tensor:
        y = F.scaled_dot_product_attention(*parts, is_causal=causal, enable_gqa=True)
        return layer.out_proj(y.transpose(1, 2).flatten(2))

    turn = [0, 1, 0, 1]
    slips = {
        "Shared keys repeated in the wrong order": result(r, s[:, turn], v[:, turn]),
        "the keys are not rotated": result(r, k, v),
        "the values are rotated, too": result(r, s, rotate(v, 100.0)),
        "the default base": result(rotate(q, 10_000.0), rotate(k, 10_000.0), v),
        "later tokens are seen": result(r, s, v, causal=False),
    }
    equal(layer(x), result(r, s, v), slips)


@check(Attention.forward, "Attention, with fewer heads of keys and values")
def a_window() -> None:
    """With a window of 2, each token sees itself and the one before, and no other."""
    layer, x = Attention(16, 4, 2, 100.0, 2), randn(1, 5, 16)
    far = torch.cat([x[:, :3] + 1, x[:, 3:]], 1)
    equal(layer(far)[:, 4], layer(x)[:, 4], names="as before / with the first three changed")
    near = torch.cat([x[:, :3], x[:, 3:4] + 1, x[:, 4:]], 1)
    holds(not torch.allclose(layer(near)[:, 4], layer(x)[:, 4]), "the last token does not see the one before")


@check(Block.forward, "The whole model")
def pre_norm() -> None:
    """Each sublayer reads a normalised vector, and its result is added to the one that is not."""
    block, x = model().layers[0], randn(2, 5, 16)
    nn.init.normal_(block.norm1.weight)
    nn.init.normal_(block.norm2.weight)
    a = x + block.self_attn(block.norm1(x))
    n = block.norm1(x + block.self_attn(x))
    slips = {
        "the norms come after the sums": block.norm2(n + block.feed_forward(n)),
        "one norm for both": a + block.feed_forward(block.norm1(a)),
        "both sublayers read the same vector": a + block.feed_forward(block.norm2(x)),
    }
    equal(block(x), a + block.feed_forward(block.norm2(a)), slips)


@check(Llama.forward, "The whole model")
def whole() -> None:
    """Tokens become vectors, pass through all layers and the last norm, and become logits (B, T, V)."""
    for tied in (False, True):
        llama = model(tied=tied)
        nn.init.normal_(llama.norm.weight)
        x = llama.embedding(TOKENS)
        for layer in llama.layers:
            x = layer(x)
        equal(llama(TOKENS), llama.output(llama.norm(x)), {"the last norm is missing": llama.output(x)})


@check(write, "The whole model")
def greedy() -> None:
    """The likeliest token is appended, up to the length or to the end token, which stays; no gradient is kept."""

    class Counting(nn.Module):
        """The likeliest token is the next number."""

        def forward(self, tokens: torch.Tensor) -> torch.Tensor:
            """Logits (1, T, 12)."""
            return F.one_hot((tokens + 1) % 12, 12).float().requires_grad_()

    prompt = tensor([[7, 3]])
    equal(write(Counting(), prompt, 3), tensor([[7, 3, 4, 5, 6]]))
    got = write(Counting(), prompt, 9, end=5)
    equal(got, tensor([[7, 3, 4, 5]]), {"the end token is cut off": same(got, tensor([[7, 3, 4]]))})
