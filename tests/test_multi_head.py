"""Multi-head attention against PyTorch's layer, shared heads, beams that share a memory, and recorded weights."""

from __future__ import annotations

from threading import Barrier, Thread

import pytest
import torch
from torch import nn

from transformer_lib.models.attention import attention_weights, causal_mask
from transformer_lib.models.multi_head import KVCache, MultiHeadAttention, record_attention


def layer(seed=0, **options):
    torch.manual_seed(seed)
    made = MultiHeadAttention(12, 4, **options).double()
    if made.in_proj_bias is not None:
        nn.init.normal_(made.in_proj_bias), nn.init.normal_(made.out_proj.bias)
    return made


def vectors(*shape, seed=1):
    return torch.randn(*shape, 12, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("use", ["self", "padded", "causal", "cross"])
def test_equals_torch_in_outputs_weights_and_gradients(bias, use):
    ours = layer(bias=bias)
    theirs = nn.MultiheadAttention(12, 4, bias=bias, batch_first=True, dtype=torch.float64)
    theirs.load_state_dict(ours.state_dict())
    x, memory = vectors(3, 5).requires_grad_(), vectors(3, 7, seed=2).requires_grad_()
    valid = torch.arange(5) < torch.tensor([[5], [3], [4]])
    source = memory if use == "cross" else x
    options = {"causal": use == "causal", "mask": valid[:, None, None] if use == "padded" else None}
    with record_attention(ours) as maps:
        y = ours(x, memory if use == "cross" else None, **options)
    expected, weights = theirs(
        x,
        source,
        source,
        key_padding_mask=~valid if use == "padded" else None,
        attn_mask=~causal_mask(5)[0, 0] if use == "causal" else None,
        average_attn_weights=False,
    )
    torch.testing.assert_close(y, expected)
    torch.testing.assert_close(maps[""][0], weights)
    inputs = [x, memory] if use == "cross" else [x]
    gradients = [
        torch.autograd.grad(out.square().sum(), [*inputs, *model.parameters()])
        for out, model in ((y, ours), (expected, theirs))
    ]
    torch.testing.assert_close(*gradients)


def test_widths_and_shared_heads_equal_a_loop():
    ours, x = layer(d_key=5, d_value=3, n_kv_heads=2), vectors(2, 6)
    q, k, v = (
        x @ w.T + b
        for w, b in zip(*(p.split([20, 10, 6]) for p in (ours.in_proj_weight, ours.in_proj_bias)), strict=True)
    )
    heads = []
    for h in range(4):
        kind = h // 2  # two heads of queries share one of keys and values
        query, key = q[..., 5 * h : 5 * h + 5], k[..., 5 * kind : 5 * kind + 5]
        heads.append((query @ key.mT / 5**0.5).softmax(-1) @ v[..., 3 * kind : 3 * kind + 3])
    torch.testing.assert_close(ours(x), ours.out_proj(torch.cat(heads, -1)))


@pytest.mark.parametrize("projected", [False, True])
@pytest.mark.parametrize("T", [1, 3])
def test_beams_share_a_memory_and_their_weights_are_told_apart(projected, T):
    ours, x, memory = layer(), vectors(6, T), vectors(2, 7, seed=3)
    mask = (torch.arange(7) < torch.tensor([[7], [4]]))[:, None, None]
    source = ours.project(memory, 1) if projected else memory
    with record_attention(ours) as maps:
        y = ours(x, source, mask=mask)
        expected = ours(x, memory.repeat_interleave(3, 0), mask=mask.repeat_interleave(3, 0))
    torch.testing.assert_close(y, expected)
    torch.testing.assert_close(*maps[""])


def test_dropout_acts_on_weights_in_training_only():
    ours, x = layer(dropout=0.5), vectors(2, 5)
    assert not torch.equal(ours(x), ours(x))
    assert torch.equal(ours.eval()(x), ours(x))


def test_recording_changes_no_output_and_ends_with_the_block():
    ours, x = layer(), vectors(2, 5)
    plain = ours(x)
    with record_attention(nn.Sequential(ours)) as maps:
        assert torch.equal(ours(x), plain)
        with record_attention(ours) as inner:
            ours(x)
        ours(x)
    ours(x)
    assert [len(maps["0"]), len(inner[""])] == [2, 1]
    q, k, _ = ours.project(x)
    torch.testing.assert_close(maps["0"][0], attention_weights(q, k))


def test_threads_do_not_mix_their_maps():
    ours, start, results = layer(), Barrier(2), {}

    def work(length):
        with record_attention(ours) as maps:
            for _ in range(20):
                start.wait()
                ours(vectors(1, length))
        results[length] = maps[""]

    threads = [Thread(target=work, args=(length,)) for length in (4, 6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all({w.shape for w in results[n]} == {(1, 4, n, n)} and len(results[n]) == 20 for n in (4, 6))


def test_a_module_without_attention_cannot_be_recorded():
    with pytest.raises(ValueError, match="no MultiHeadAttention"), record_attention(nn.Linear(2, 2)):
        pass


def test_what_would_be_silently_wrong_is_refused():
    ours, x = layer(), vectors(3, 3)
    with pytest.raises((ValueError, TypeError)):
        ours(x, mask=torch.ones(3, 3, dtype=torch.bool))  # (B, S) would pass as (T, S)
    with pytest.raises(TypeError):
        ours(x, mask=torch.zeros(3, 1, 1, 3))
    for options in ({"causal": True}, {"cache": KVCache()}):
        with pytest.raises(ValueError, match="combined with a memory"):
            ours(x, x, **options)
    with pytest.raises(ValueError, match="divisible"):
        MultiHeadAttention(10, 4)
    for memory in (x, vectors(3, 3, seed=2)):
        with pytest.raises(TypeError, match=r"write layer\(x\) for PyTorch's layer\(x, x, x\)"):
            ours(x, memory, memory)
