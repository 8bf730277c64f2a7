"""Scaled dot-product attention against plain loops and PyTorch; masks, and rows that may attend to nothing."""

from __future__ import annotations

import math

import pytest
import torch
from torch.nn import functional as F

from transformer_lib.models.attention import (
    attention,
    attention_weights,
    causal_mask,
    padding_mask,
)

TYPES = [torch.float64, torch.float32, torch.float16, torch.bfloat16]


def by_formula(q, k, v, mask=None, *, causal=False):
    if v.dim() > 3:
        v = v.repeat_interleave(q.shape[-3] // v.shape[-3], -3)
    return attention_weights(q, k, mask, causal=causal) @ v


VERSIONS = pytest.mark.parametrize("version", [attention, by_formula], ids=["kernel", "formula"])


def tensors(*lead, T=5, S=7, seed=0, dtype=torch.float64, heads=None):
    rng = torch.Generator().manual_seed(seed)
    keys = (*lead[:-1], heads or lead[-1]) if lead else ()
    shapes = (*lead, T, 8), (*keys, S, 8), (*keys, S, 6)
    return [torch.randn(shape, generator=rng, dtype=torch.float64).to(dtype) for shape in shapes]


def loops(q, k, v, mask):
    """The equation, one query at a time; q, k, v of (T, d), mask (T, S)."""
    rows = []
    for query, allowed in zip(q, mask, strict=True):
        scores = [math.exp(float(query @ key) / math.sqrt(len(query))) for key in k]
        scores = [s if a else 0.0 for s, a in zip(scores, allowed, strict=True)]
        total = sum(scores) or 1.0
        rows.append(sum((s / total * value for s, value in zip(scores, v, strict=True)), torch.zeros_like(v[0])))
    return torch.stack(rows)


@VERSIONS
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("lengths", [(5, 7), (6, 6), (7, 5), (1, 6)], ids=str)
@pytest.mark.parametrize("masked", [False, True])
def test_equals_plain_loops(version, causal, lengths, masked):
    T, S = lengths
    q, k, v = tensors(2, 3, T=T, S=S)
    mask = torch.rand(2, 1, T, S, generator=torch.Generator().manual_seed(1)) < 0.6 if masked else None
    result = version(q, k, v, mask, causal=causal)
    allowed = torch.ones(2, 1, T, S, dtype=torch.bool) if mask is None else mask
    if causal:  # aligned to the lower right: the last query is at the last key
        allowed = allowed & torch.tensor([[s <= t + S - T for s in range(S)] for t in range(T)])
    for b in range(2):
        for h in range(3):
            expected = loops(q[b, h], k[b, h], v[b, h], allowed[b, 0])
            torch.testing.assert_close(result[b, h], expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("shape", [None, (1, 7), (5, 7), (2, 1, 1, 7), (2, 3, 5, 7)], ids=str)
@pytest.mark.parametrize("causal", [False, True])
def test_kernel_and_formula_have_the_same_gradients(shape, causal):
    mask = None if shape is None else torch.rand(shape, generator=torch.Generator().manual_seed(1)) < 0.5
    results = []
    for version in (attention, by_formula):
        inputs = [tensor.requires_grad_() for tensor in tensors(2, 3)]
        y = version(*inputs, mask, causal=causal)
        results.append([y, *torch.autograd.grad(y.square().sum(), inputs)])
    for ours, theirs in zip(*results, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-10)


@VERSIONS
@pytest.mark.parametrize("causal", [False, True])
def test_heads_may_share_their_keys(version, causal):
    q, k, v = tensors(5, 6, heads=2)
    repeated = version(q, k.repeat_interleave(3, 1), v.repeat_interleave(3, 1), causal=causal)
    torch.testing.assert_close(version(q, k, v, causal=causal), repeated)


@VERSIONS
@pytest.mark.parametrize("dtype", TYPES, ids=str)
@pytest.mark.parametrize("shape", [(5, 7), (2, 1, 5, 7), (1, 3, 1, 1)], ids=str)
def test_a_query_that_sees_nothing_gets_zeros_and_a_finite_gradient(version, dtype, shape):
    inputs = [tensor.requires_grad_() for tensor in tensors(2, 3, dtype=dtype)]
    mask = torch.ones(shape, dtype=torch.bool)
    mask[..., 0, :] = False
    y = version(*inputs, mask)
    blind = ~mask.any(-1, keepdim=True).expand(2, 3, 5, 1)
    assert not y.masked_select(blind).any()
    y.float().square().sum().backward()
    assert all(tensor.grad.isfinite().all() for tensor in inputs)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("autocast", [False, True])
def test_on_a_cpu_half_precision_is_rounded_once(dtype, autocast):
    q, k, v = tensors(2, 3, T=64, S=64, dtype=dtype)
    with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
        y = attention(q, k, v, causal=True)
    exact = attention(q.float(), k.float(), v.float(), causal=True)
    assert y.dtype == dtype and torch.equal(y, exact.to(dtype))


def test_large_scores_do_not_overflow_in_half_precision():
    q = torch.full((1, 1, 2, 64), 60.0, dtype=torch.float16)
    assert attention_weights(q, q).isfinite().all()
    assert attention(q, q, q).isfinite().all()


def test_the_kernel_never_keeps_the_weights():
    inputs = [torch.randn(1, 2, 256, 16, requires_grad=True) for _ in range(3)]
    sizes: dict[int, int] = {}

    def note(tensor):
        sizes[tensor.data_ptr()] = tensor.numel()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        attention(*inputs, causal=True)
    assert sum(sizes.values()) <= 5 * 2 * 256 * 16 < 2 * 256**2


def test_without_a_mask_causality_is_the_kernels_own_flag(monkeypatch):
    calls = []
    kernel = F.scaled_dot_product_attention

    def spy(q, k, v, mask, dropout, causal, **options):
        calls.append((mask is None, causal))
        return kernel(q, k, v, mask, dropout, causal, **options)

    monkeypatch.setattr(F, "scaled_dot_product_attention", spy)
    attention(*tensors(1, 2, T=6, S=6), causal=True)
    attention(*tensors(1, 2, T=1, S=6), causal=True)
    attention(*tensors(1, 2, T=2, S=6), causal=True)
    assert calls == [(True, True), (True, False), (False, False)]


def test_dropout_drops_weights_and_keeps_their_mean():
    q, k, v = tensors(1, 1, T=400, S=50)
    v = torch.ones_like(v)
    torch.manual_seed(0)
    y = attention(q, k, v, dropout=0.5)
    assert 0.95 < y.mean() < 1.05 and y.std() > 0.05


@pytest.mark.parametrize("dtype", [torch.float32, torch.int64], ids=str)
def test_a_mask_that_is_not_boolean_is_refused(dtype):
    with pytest.raises(TypeError):
        attention(*tensors(2, 3), torch.ones(5, 7, dtype=dtype))


def test_masks_equal_loops():
    tokens = torch.tensor([[5, 6, 0, 0], [4, 9, 7, 2]])
    assert padding_mask(tokens)[:, 0, 0].tolist() == [[id != 0 for id in row] for row in tokens.tolist()]
    assert padding_mask(tokens, 7)[:, 0, 0].tolist() == [[id != 7 for id in row] for row in tokens.tolist()]
    for past in range(3):
        expected = [[s <= t + past for s in range(4 + past)] for t in range(4)]
        assert causal_mask(4, past)[0, 0].tolist() == expected
    assert causal_mask(2, device="meta").is_meta
