"""Tests for chapter "Masks"."""

import torch
from torch import randn, tensor
from torch.nn import functional as F

from transformer_lib.models.attention import causal_mask, padding_mask
from transformer_lib.student.checks import check, equal

TOKENS = tensor([[4, 5, 6, 2], [7, 2, 0, 0]])


@check(padding_mask, "The padding mask")
def true_at_tokens() -> None:
    """The mask is True at tokens, False at padding, and has axes for the heads and the queries."""
    want = (TOKENS != 0).view(2, 1, 1, 4)
    slips = {"True means the opposite": ~want, "A mask without its middle axes": TOKENS != 0}
    equal(padding_mask(TOKENS), want, slips | {"one middle axis is missing": want[:, 0]})


@check(padding_mask, "The padding mask")
def padding_is_never_read() -> None:
    """If the vectors at the padding change, nothing else does."""
    q, k = randn(2, 1, 4, 8), randn(2, 1, 4, 8)
    other = k.clone()
    other[1, :, 2:] += 1
    one, two = (F.scaled_dot_product_attention(q, x, x, padding_mask(TOKENS)) for x in (k, other))
    equal(two, one, {"True means the opposite": bool(padding_mask(TOKENS)[1].flatten()[-1])})


@check(causal_mask, "The causal mask")
def a_lower_triangle() -> None:
    """Query t may attend to the keys up to t, itself included; the mask has axes for sentences and heads."""
    want = torch.ones(1, 1, 4, 4, dtype=torch.bool).tril()
    slips = {
        "True means the opposite": ~want,
        "a word that does not see itself": want.tril(-1),
        "the triangle is upside down": want.mT,
    }
    equal(causal_mask(4), want, slips | {"A mask without its middle axes": want[0, 0]})
    equal(causal_mask(4, device="meta").device.type, "meta")  # a device that every machine has


@check(causal_mask, "The causal mask")
def positions_before() -> None:
    """After three earlier positions, the first of two queries sees four keys, and the second all five."""
    want = tensor([[[[True, True, True, True, False], [True] * 5]]])
    first = torch.ones(1, 1, 2, 5, dtype=torch.bool).tril()
    equal(causal_mask(2, 3), want, {"the first query is at the first key": first})


@check(causal_mask, "A test that finds leaks")
def no_leak() -> None:
    """If the last vector changes, no earlier output does."""
    x = randn(1, 1, 5, 8)
    other = x.clone()
    other[..., -1, :] += 1
    one, two = (F.scaled_dot_product_attention(y, y, y, causal_mask(5)) for y in (x, other))
    equal(two[..., :-1, :], one[..., :-1, :])
