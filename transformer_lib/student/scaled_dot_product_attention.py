"""Tests for chapter "Scaled dot-product attention"."""

import torch
from torch import randn, tensor
from torch.nn import functional as F

from transformer_lib.plain.attention import attention
from transformer_lib.student.checks import check, equal, same

MASK = tensor([[True, True, False, True, False], [False, True, True, True, True], [True] * 5])


@check(attention, "The formula")
def one_row_for_each_query() -> None:
    """Three queries and five values of width 7 give (3, 7), with or without axes in front, and so do the numbers."""
    q, k, v = randn(2, 4, 3, 16), randn(2, 4, 5, 16), randn(2, 4, 5, 7)
    got = attention(q[0, 0], k[0, 0], v[0, 0])
    slips = {"the weights are returned, not the average of the values": got.shape == (3, 5)}
    equal(tuple(got.shape), (3, 7), slips)
    equal(attention(q, k, v), F.scaled_dot_product_attention(q, k, v))


@check(attention, "Why the square root?")
def divided_by_the_root() -> None:
    """The scores are divided by the root of the width d_k before the softmax."""
    q, k, v = randn(2, 3, 16), randn(2, 5, 16), randn(2, 5, 7)
    scores = 3 * q @ k.mT
    slips = {
        "Dividing the scores by half the width instead of its root": (scores / 8).softmax(-1) @ v,
        "Softmax along the wrong axis": (scores / 4).softmax(-2) @ v,
        "the scores are not divided": scores.softmax(-1) @ v,
        "divided by d_k, not by its root": (scores / 16).softmax(-1) @ v,
        "divided by the root of the number of keys": (scores / 5**0.5).softmax(-1) @ v,
        "divided after the softmax": scores.softmax(-1) / 4 @ v,
    }
    equal(attention(3 * q, k, v), (scores / 4).softmax(-1) @ v, slips)


@check(attention, "The formula")
def a_mask_hides_keys() -> None:
    """True in the mask means that a query may look; elsewhere a key gets no weight, and the others add up to 1."""
    q, k, v = randn(1, 3, 4), randn(1, 5, 4), randn(1, 5, 6)
    scores = q @ k.mT / 2
    want = scores.masked_fill(~MASK, -torch.inf).softmax(-1) @ v
    slips = {
        "True means the opposite": scores.masked_fill(MASK, -torch.inf).softmax(-1) @ v,
        "Multiplying by the mask": (scores * MASK).softmax(-1) @ v,
        "the weights are multiplied by the mask, so they no longer add up to 1": scores.softmax(-1) * MASK @ v,
        "the mask is not used": scores.softmax(-1) @ v,
    }
    got = attention(q, k, v, MASK)
    slips["True means the opposite"] = same(got[:, :2], slips["True means the opposite"][:, :2])
    equal(got, want, slips)


@check(attention, "The formula")
def a_mask_for_all_heads() -> None:
    """A mask (B, 1, T, S) serves every head, and the mask itself stays as it is."""
    q, k, v = randn(2, 4, 3, 8), randn(2, 4, 5, 8), randn(2, 4, 5, 6)
    mask = MASK.expand(2, 1, 3, 5).clone()
    equal(attention(q, k, v, mask), F.scaled_dot_product_attention(q, k, v, mask))
    slip = {"the mask that was given is changed": True}
    equal(mask, MASK.expand(2, 1, 3, 5), slip, "the mask before / after")
