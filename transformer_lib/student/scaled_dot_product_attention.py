"""Tests for chapter "Scaled dot-product attention"."""

import torch
from torch import randn
from torch.nn import functional as F

from transformer_lib.models.attention import attention, attention_weights, fused_attention, with_causal
from transformer_lib.student.checks import check, equal, refuses, same

DIAGONAL = torch.ones(4, 4, dtype=torch.bool).tril()


@check(with_causal, "Attention in matrix form")
def the_future_is_hidden() -> None:
    """Without another mask, query t may attend to the keys up to t."""
    got = with_causal(None, 4, 4, torch.device("cpu"))
    slips = {"Shifted the wrong way": DIAGONAL.mT, "True means the opposite": ~DIAGONAL}
    equal(got, DIAGONAL, slips | {"a word that does not see itself": DIAGONAL.tril(-1)})


@check(with_causal, "Attention in matrix form")
def both_masks() -> None:
    """A position is visible if both masks allow it; of two queries for four keys, the last one is at the last key."""
    mask = torch.tensor([[True, False, True, True], [True, True, False, True]])[None, None]
    want = DIAGONAL[2:]
    slips = {"the first query is at the first key": mask & DIAGONAL[:2], "either mask, not both": mask | want}
    equal(with_causal(mask, 2, 4, torch.device("cpu")), mask & want, slips)
    given = torch.ones(4, 4, dtype=torch.bool)
    with_causal(given, 4, 4, torch.device("cpu"))
    slip = {"&= writes into the mask that was given: write mask & causal": True}
    equal(given, torch.ones(4, 4, dtype=torch.bool), slip, "the mask before / after")


@check(attention_weights, "Attention in matrix form")
def one_row_for_each_query() -> None:
    """Three queries and five keys give three rows of five weights that sum to 1, with or without axes in front."""
    equal(attention_weights(randn(3, 16), randn(5, 16)).shape, torch.Size([3, 5]))
    weights = attention_weights(randn(2, 3, 16), randn(2, 5, 16))
    equal(weights.shape, torch.Size([2, 3, 5]))
    across = same(weights.sum(-2), torch.ones(2, 5))
    equal(weights.sum(-1), torch.ones(2, 3), {"Softmax along the wrong axis": across})


@check(attention_weights, "Why the square root?")
def divided_by_the_root() -> None:
    """The scores are divided by the root of the width d_k before the softmax."""
    q, k = randn(2, 3, 16), randn(2, 5, 16)
    scores = q @ k.mT
    slips = {
        "Dividing the scores by half the width instead of its root": (scores / 8).softmax(-1),
        "Softmax along the wrong axis": (scores / 4).softmax(-2),
        "the scores are not divided": scores.softmax(-1),
        "divided by d_k, not by its root": (scores / 16).softmax(-1),
        "divided after the softmax": scores.softmax(-1) / 4,
    }
    equal(attention_weights(q, k), (scores / 4).softmax(-1), slips)


@check(attention_weights, "Attention in matrix form")
def a_mask_hides_keys() -> None:
    """True in the mask means that a query may attend, and a query with nothing to attend to gets zeros."""
    q, k = randn(1, 3, 4), randn(1, 5, 4)
    mask = torch.tensor([[True, True, False, True, False], [False] * 5, [True] * 5])
    scores = (q @ k.mT) / 2
    got, want = attention_weights(q, k, mask), scores.masked_fill(~mask, -1e9).softmax(-1) * mask
    slips = {
        "True means the opposite": bool((got[0, 0][mask[0]] == 0).all()),
        "Multiplying by the mask": (scores * mask).softmax(-1),
        "Masking with minus infinity": scores.masked_fill(~mask, -torch.inf).softmax(-1),
        "Masking with a large negative number": scores.masked_fill(~mask, -1e9).softmax(-1),
        "the mask is not used": scores.softmax(-1),
    }
    equal(got, want, slips)


@check(attention_weights, "Attention in matrix form")
def causal_weights() -> None:
    """With ``causal``, no weight is right of the diagonal."""
    q, k = randn(1, 4, 4), randn(1, 4, 4)
    got, scores = attention_weights(q, k, causal=True), (q @ k.mT) / 2
    slips = {"True means the opposite": bool((got[0, :3].tril() == 0).all())}
    equal(got, scores.masked_fill(~DIAGONAL, -1e9).softmax(-1), slips)


@check(attention_weights, "Attention in matrix form")
def causal_and_masked_weights() -> None:
    """With a mask *and* ``causal``, a weight is above zero only where both allow it; the mask itself stays as it is."""
    q, k = randn(1, 4, 4), randn(1, 4, 4)
    mask = torch.tensor([True, True, False, True]).expand(4, 4).clone()
    got, scores, before = attention_weights(q, k, mask, causal=True), (q @ k.mT) / 2, mask.clone()
    want, late, early = (
        scores.masked_fill(~allowed, -1e9).softmax(-1) * allowed for allowed in (mask & DIAGONAL, before, DIAGONAL)
    )
    slips = {"causal is ignored as soon as there is a mask": late, "the mask is ignored if causal": early}
    equal(got, want, slips)
    kept = torch.tensor([True, True, False, True]).expand(4, 4)
    equal(
        mask, kept, {"the mask that was given is changed: write mask & causal, not &=": True}, "the mask before / after"
    )


@check(attention_weights, "Attention in matrix form")
def heads_that_share_keys() -> None:
    """If four heads share two heads of keys, the first two heads share the first."""
    q, k = randn(1, 4, 3, 4), randn(1, 2, 5, 4)
    right, wrong = ((q @ keys.mT / 2).softmax(-1) for keys in (k[:, [0, 0, 1, 1]], k[:, [0, 1, 0, 1]]))
    equal(attention_weights(q, k), right, {"Shared keys repeated in the wrong order": wrong})


@check(attention, "From the formula to a fast kernel")
def like_pytorch() -> None:
    """The result equals PyTorch's scaled_dot_product_attention, with or without axes in front."""
    q, k, v = randn(2, 4, 3, 16), randn(2, 4, 5, 16), randn(2, 4, 5, 8)
    equal(attention(q[0, 0], k[0, 0], v[0, 0]), F.scaled_dot_product_attention(q, k, v)[0, 0])
    slip = (q @ k.mT / 8).softmax(-1) @ v
    equal(
        attention(q, k, v),
        F.scaled_dot_product_attention(q, k, v),
        {"Dividing the scores by half the width instead of its root": slip},
    )


@check(fused_attention, "From the formula to a fast kernel")
@check(attention, "From the formula to a fast kernel")
def masked_and_causal() -> None:
    """A mask, causality, and both together give the weights of the formula, times the values."""
    q, k, v, mask = randn(2, 4, 3, 4), randn(2, 4, 3, 4), randn(2, 4, 3, 8), torch.rand(2, 1, 1, 3) > 0.4
    mask[..., 0] = True
    for m, causal in ((mask, False), (None, True), (mask, True)):
        allowed = torch.ones(2, 1, 3, 3, dtype=torch.bool) if m is None else m.expand(2, 1, 3, 3)
        allowed = allowed & DIAGONAL[:3, :3] if causal else allowed
        scores = q @ k.mT / 2
        slips = {
            "True means the opposite": scores.masked_fill(allowed, -1e9).softmax(-1) @ v,
            "the mask is not used": scores.softmax(-1) @ v,
        }
        equal(attention(q, k, v, m, causal=causal), scores.masked_fill(~allowed, -1e9).softmax(-1) @ v, slips)


@check(attention, "From the formula to a fast kernel")
def the_mask_is_only_read() -> None:
    """With ``causal``, too, the mask that is given is not changed."""
    q, mask = randn(1, 2, 4, 8), torch.ones(1, 1, 4, 4, dtype=torch.bool)
    attention(q, q, q, mask, causal=True)
    slip = {"&= writes into the mask that was given: write mask & causal": True}
    equal(mask, torch.ones(1, 1, 4, 4, dtype=torch.bool), slip, "the mask before / after")


@check(attention, "From the formula to a fast kernel")
def a_single_query_is_the_last() -> None:
    """Plumbing: with a cache there is one query and many keys, and even with ``causal`` it sees them all.

    Of two queries, the first one doesn't see the last key.
    """
    q, k, v = randn(1, 2, 1, 16), randn(1, 2, 5, 16), randn(1, 2, 5, 8)
    first = v[:, :, :1]
    equal(
        attention(q, k, v, causal=True),
        F.scaled_dot_product_attention(q, k, v),
        {"the query is at the first key": first},
    )
    two, seen = randn(1, 2, 2, 16), torch.ones(2, 5, dtype=torch.bool).tril(3)
    wrong = F.scaled_dot_product_attention(two, k, v, is_causal=True)
    want = F.scaled_dot_product_attention(two, k, v, seen)
    equal(attention(two, k, v, causal=True), want, {"the first query is at the first key": wrong})


@check(fused_attention, "From the formula to a fast kernel")
def half_precision_on_a_cpu() -> None:
    """Plumbing: on a CPU, half precision is computed in single precision, and the result is rounded once."""
    q, k, v = (randn(2, 4, 9, 16).bfloat16() for _ in range(3))
    want = F.scaled_dot_product_attention(q.float(), k.float(), v.float()).bfloat16()
    equal(attention(q, k, v), want, {"computed in half precision": F.scaled_dot_product_attention(q, k, v)})
    for mask, causal in ((torch.rand(9, 9) > 0.2, False), (None, True)):
        want = F.scaled_dot_product_attention(q.float(), k.float(), v.float(), mask, is_causal=causal).bfloat16()
        equal(attention(q, k, v, mask, causal=causal), want)


@check(fused_attention, "From the formula to a fast kernel")
@check(attention, "From the formula to a fast kernel")
def heads_that_share_keys_and_values() -> None:
    """If four heads share two heads of keys and values, the first two heads share the first."""
    q, k, v = randn(1, 4, 3, 8), randn(1, 2, 5, 8), randn(1, 2, 5, 6)
    right, wrong = ((q @ k[:, i].mT / 8**0.5).softmax(-1) @ v[:, i] for i in ([0, 0, 1, 1], [0, 1, 0, 1]))
    equal(attention(q, k, v), right, {"Shared keys repeated in the wrong order": wrong})


@check(fused_attention, "From the formula to a fast kernel")
@check(attention, "From the formula to a fast kernel")
def weights_are_dropped() -> None:
    """A dropout of 1 drops all weights, in single precision and in half precision."""
    for q in (randn(1, 2, 3, 16), randn(1, 2, 3, 16).bfloat16()):
        equal(attention(q, q, q, dropout=1.0), torch.zeros_like(q), {"dropout is ignored": attention(q, q, q)})


@check(attention, "From the formula to a fast kernel")
def a_float_mask_is_refused() -> None:
    """Plumbing: a mask of floats raises a TypeError, because the kernel would silently add it to the scores."""
    q = randn(1, 2, 3, 16)
    refuses(TypeError, attention, q, q, q, torch.ones(3, 3))


@check(attention, "From the formula to a fast kernel")
def keys_without_values_are_refused() -> None:
    """Plumbing: more keys than values raise a ValueError, because the kernel would read past the end."""
    q = randn(1, 2, 3, 16)
    refuses(ValueError, attention, q, randn(1, 2, 5, 16), randn(1, 2, 4, 16))
