"""Multi-head attention: equal to a loop over heads and to PyTorch's, with a cache and without, blind to padding."""

import ast
import copy
import math
import re
import subprocess
import sys

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from jaxtyping import TypeCheckError
from pages import ROOT, prose_of, read, record_of
from torch import Tensor, nn

from transformer_lib.models.masks import causal_mask, combine_masks
from transformer_lib.models.multi_head import (
    KeysValues,
    KeyValueCache,
    MultiHeadAttention,
    record_attention,
)
from transformer_lib.models.seq2seq import reorder, select

DEVICES = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]
MODES = pytest.mark.parametrize("training", [False, True], ids=["eval", "train"])
WEIGHTS = pytest.mark.parametrize("need_weights", [False, True], ids=["fused", "weights"])


def generator(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def layer(d_model: int = 8, n_heads: int = 2, seed: int = 0, **changes) -> MultiHeadAttention:
    """A layer of double precision whose biases are not zero."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        attention = MultiHeadAttention(d_model, n_heads, **changes)
        for parameter in attention.parameters():
            parameter.data.add_(0.3 * torch.randn_like(parameter))
    return attention.double().eval()


def call(ours: MultiHeadAttention, inputs: Tensor, memory=None, mask=None, cache=None, need_weights: bool = False):
    """The outputs, and the weights or None; a mask of two axes is (T, S)."""
    if mask is not None and mask.dim() == 2:
        mask = mask[None, None]
    if not need_weights:
        return ours(inputs, memory, mask=mask, cache=cache), None
    with record_attention(ours) as maps:
        outputs = ours(inputs, memory, mask=mask, cache=cache)
    assert ours.recorded is None
    return outputs, maps[""][0]


def vectors(*shape: int, seed: int = 1) -> Tensor:
    return torch.randn(*shape, generator=generator(seed)).double()


def peer(ours: MultiHeadAttention, dropout: float = 0.0) -> nn.MultiheadAttention:
    """``torch.nn.MultiheadAttention`` with the weights of ours."""
    bias = ours.in_proj_bias is not None
    theirs = nn.MultiheadAttention(ours.d_model, ours.n_heads, dropout, bias=bias, batch_first=True)
    theirs = theirs.to(ours.in_proj_weight.dtype)
    theirs.load_state_dict(ours.state_dict())
    return theirs.train(ours.training)


def by_hand(ours: MultiHeadAttention, inputs: Tensor, memory: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    """One row, one head, one query at a time. The mask has shape (N, H, T, S)."""
    n_heads, d_key, d_value = ours.n_heads, ours.d_key, ours.d_value
    weight, bias = ours.in_proj_weight, ours.in_proj_bias
    (rows, length, _), seen = inputs.shape, memory.shape[1]
    outputs = torch.zeros(rows, length, ours.d_model).double()
    weights = torch.zeros(rows, n_heads, length, seen).double()
    for n in range(rows):
        for t in range(length):
            joined = torch.zeros(n_heads * d_value).double()
            for head in range(n_heads):

                def part(vector: Tensor, first: int, width: int) -> Tensor:
                    rows_of_it = slice(first, first + width)
                    made = weight[rows_of_it] @ vector
                    return made if bias is None else made + bias[rows_of_it]

                query = part(inputs[n, t], head * d_key, d_key)
                scores = torch.full((seen,), -math.inf).double()
                for s in range(seen):
                    if mask[n, head, t, s]:
                        key = part(memory[n, s], n_heads * d_key + head * d_key, d_key)
                        scores[s] = (query * key).sum() / math.sqrt(d_key)
                if mask[n, head, t].any():
                    weights[n, head, t] = torch.softmax(scores, 0)
                for s in range(seen):
                    value = part(memory[n, s], 2 * n_heads * d_key + head * d_value, d_value)
                    joined[head * d_value : (head + 1) * d_value] += weights[n, head, t, s] * value
            outputs[n, t] = ours.out_proj(joined)
    return outputs, weights


# ---------------------------------------------------------------- equal to a reference


@WEIGHTS
@given(
    n_heads=st.integers(1, 3),
    widths=st.tuples(st.integers(1, 4), st.integers(1, 4)),
    lengths=st.tuples(st.integers(1, 3), st.integers(1, 4)),
    cross=st.booleans(),
    bias=st.booleans(),
    seed=st.integers(0, 1000),
)
@pytest.mark.slow
def test_equals_a_loop_over_heads_and_queries(need_weights, n_heads, widths, lengths, cross, bias, seed):
    d_key, d_value = widths
    ours = layer(5, n_heads, seed, d_key=d_key, d_value=d_value, bias=bias)  # 5 is not divisible: no need
    inputs = vectors(2, lengths[0], 5, seed=seed)
    memory = vectors(2, lengths[1], 5, seed=seed + 1) if cross else inputs
    shape = (2, n_heads, lengths[0], memory.shape[1])
    mask = torch.rand(shape, generator=generator(seed)) < 0.7  # some queries may look nowhere
    with torch.no_grad():
        outputs, weights = call(ours, inputs, memory if cross else None, mask, need_weights=need_weights)
        expected, expected_weights = by_hand(ours, inputs, memory, mask)
    torch.testing.assert_close(outputs, expected, atol=1e-12, rtol=0)
    if need_weights:
        torch.testing.assert_close(weights, expected_weights, atol=1e-12, rtol=0)
    else:
        assert weights is None


@pytest.mark.slow
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-12), (torch.float32, 1e-5)])
@pytest.mark.parametrize("bias", [True, False], ids=["bias", "no bias"])
@pytest.mark.parametrize("use", ["self", "causal", "cross"])
@pytest.mark.parametrize("n_heads", [1, 2, 4])
def test_equals_torch_in_outputs_weights_and_gradients(dtype, tolerance, bias, use, n_heads):
    ours = layer(8, n_heads, bias=bias).to(dtype)
    theirs = peer(ours)
    inputs = vectors(3, 4, 8).to(dtype)
    memory = vectors(3, 6, 8, seed=2).to(dtype) if use == "cross" else None
    seen = 6 if use == "cross" else 4
    padding = torch.arange(seen) < torch.tensor([seen, 2, 3])[:, None]  # (B, S), True at words
    causal = causal_mask(4) if use == "causal" else None
    mask = combine_masks(padding[:, None, None, :], causal)

    mine = [tensor.clone().requires_grad_() for tensor in (inputs, memory) if tensor is not None]
    yours = [tensor.clone().requires_grad_() for tensor in (inputs, memory) if tensor is not None]
    outputs, weights = call(ours, mine[0], mine[1] if use == "cross" else None, mask, need_weights=True)
    options = {
        "key_padding_mask": ~padding,
        "attn_mask": None if causal is None else ~causal[0, 0],
    }  # theirs: True = hidden
    expected, expected_weights = theirs(yours[0], yours[-1], yours[-1], average_attn_weights=False, **options)
    torch.testing.assert_close(outputs, expected, atol=tolerance, rtol=0)
    torch.testing.assert_close(weights, expected_weights, atol=tolerance, rtol=0)
    fused, nothing = call(ours, mine[0], mine[1] if use == "cross" else None, mask)
    torch.testing.assert_close(fused, expected, atol=tolerance, rtol=0)
    assert nothing is None

    direction = vectors(*outputs.shape, seed=3).to(dtype)
    for found in (outputs, fused):
        ours.zero_grad()
        theirs.zero_grad()
        gradients = torch.autograd.grad((found * direction).sum(), [*mine, *ours.parameters()], retain_graph=True)
        wanted = torch.autograd.grad((expected * direction).sum(), [*yours, *theirs.parameters()], retain_graph=True)
        names = ["in_proj_weight", "in_proj_bias", "out_proj.weight", "out_proj.bias"]
        order = [name for name, _ in ours.named_parameters()]
        assert order == (names if bias else names[::2])
        theirs_order = ["in_proj_weight", "in_proj_bias", "out_proj.weight", "out_proj.bias"]
        assert [name for name, _ in theirs.named_parameters()] == (theirs_order if bias else theirs_order[::2])
        for gradient, want in zip(gradients, wanted, strict=True):
            torch.testing.assert_close(gradient, want, atol=10 * tolerance, rtol=0)


@pytest.mark.parametrize("n_heads", [1, 2, 4, 8])
def test_the_number_of_heads_changes_no_parameter_count(n_heads):
    ours = MultiHeadAttention(16, n_heads)
    count = sum(parameter.numel() for parameter in ours.parameters())
    assert count == 4 * 16 * 16 + 4 * 16
    assert count == sum(parameter.numel() for parameter in nn.MultiheadAttention(16, n_heads).parameters())
    assert list(ours.state_dict()) == ["in_proj_weight", "in_proj_bias", "out_proj.weight", "out_proj.bias"]


def test_gradients_agree_with_finite_differences():
    ours = layer(4, 2, d_key=3, d_value=1)
    mask = torch.tensor([[True, True, False], [False, False, False]])

    def attend(inputs: Tensor, memory: Tensor) -> Tensor:
        return call(ours, inputs, memory, mask)[0]

    inputs, memory = vectors(2, 2, 4).requires_grad_(), vectors(2, 3, 4, seed=2).requires_grad_()
    assert torch.autograd.gradcheck(attend, (inputs, memory))


def test_scores_are_divided_by_the_root_of_the_head_width():
    torch.manual_seed(0)
    ours = MultiHeadAttention(64, 4, bias=False)
    nn.init.eye_(ours.in_proj_weight[:64].data)
    ours.in_proj_weight.data[64:128] = torch.eye(64)
    inputs = torch.randn(16, 24, 64)
    with torch.no_grad():
        _, weights = call(ours, inputs, torch.randn(16, 24, 64), need_weights=True)
    spread = weights.log().sub(weights.log().mean(-1, keepdim=True)).var().item()  # that of the scores
    assert spread == pytest.approx(1, rel=0.1)


@pytest.mark.parametrize("device", DEVICES)
@WEIGHTS
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.bfloat16, 5e-2), (torch.float16, 5e-3)])
def test_other_precisions(device, need_weights, dtype, tolerance):
    exact = layer(8, 2)
    inputs, memory = vectors(3, 4, 8), vectors(3, 5, 8, seed=2)
    mask = torch.rand(3, 1, 4, 5, generator=generator(0)) < 0.6
    mask[0, 0, 0] = False
    expected, _ = call(exact, inputs, memory, mask)
    rounded = copy.deepcopy(exact).to(device, dtype)
    inputs, memory, mask = inputs.to(device, dtype), memory.to(device, dtype), mask.to(device)
    outputs, weights = call(rounded, inputs, memory, mask, need_weights=need_weights)
    assert outputs.dtype == dtype and (weights is None or weights.dtype == dtype)
    torch.testing.assert_close(outputs.cpu().double(), expected, atol=tolerance, rtol=0)
    cached, _ = call(rounded, inputs, mask=causal_mask(4, device=device), cache=rounded.new_cache(3, room=2))
    full, _ = call(exact, inputs.cpu().double(), mask=causal_mask(4))
    assert cached.dtype == dtype
    torch.testing.assert_close(cached.cpu().double(), full, atol=2 * tolerance, rtol=0)


# ---------------------------------------------------------------- properties


@WEIGHTS
@MODES
def test_cross_attention_asks_with_the_inputs_and_reads_the_memory(need_weights, training):
    ours = layer().train(training)
    inputs, memory = vectors(2, 3, 8), vectors(2, 7, 8, seed=2)
    outputs, weights = call(ours, inputs, memory, need_weights=need_weights)
    assert outputs.shape == (2, 3, 8)
    assert weights is None or weights.shape == (2, 2, 3, 7)
    other, _ = call(ours, inputs, memory + vectors(2, 7, 8, seed=3))
    assert ((other - outputs).abs().amax(dim=(1, 2)) > 1e-3).all()
    asked, _ = call(ours, inputs.flip(1), memory)
    torch.testing.assert_close(asked, outputs.flip(1), atol=1e-12, rtol=0)  # one answer for each question


@pytest.mark.slow
@WEIGHTS
@MODES
@given(position=st.integers(1, 5), n_heads=st.sampled_from([1, 2, 4]))
def test_a_causal_mask_hides_what_comes_later(need_weights, training, position, n_heads):
    ours = layer(8, n_heads).train(training)
    inputs = vectors(2, 6, 8)
    changed = inputs.clone()
    changed[:, position] += 1
    before, _ = call(ours, inputs, mask=causal_mask(6), need_weights=need_weights)
    after, weights = call(ours, changed, mask=causal_mask(6), need_weights=need_weights)
    torch.testing.assert_close(after[:, :position], before[:, :position], atol=1e-12, rtol=0)
    assert ((after - before)[:, position:].abs().amax(-1) > 1e-6).all()
    if need_weights:
        assert not weights.triu(1).any()


@pytest.mark.slow
@WEIGHTS
@given(lengths=st.lists(st.integers(1, 6), min_size=1, max_size=4), extra=st.integers(0, 4), seed=st.integers(0, 50))
def test_padding_and_company_change_nothing(need_weights, lengths, extra, seed):
    ours = layer()
    longest = max(lengths) + extra
    inputs = vectors(len(lengths), longest, 8, seed=seed)
    mask = (torch.arange(longest) < torch.tensor(lengths)[:, None])[:, None, None, :]
    outputs, _ = call(ours, inputs, mask=mask, need_weights=need_weights)
    rubbish = torch.where(mask[:, 0, 0, :, None], inputs, 1e3)
    again, _ = call(ours, rubbish, mask=mask, need_weights=need_weights)
    for row, length in enumerate(lengths):
        alone, _ = call(ours, inputs[row : row + 1, :length])
        torch.testing.assert_close(outputs[row, :length], alone[0], atol=1e-12, rtol=0)
        torch.testing.assert_close(again[row, :length], alone[0], atol=1e-12, rtol=0)


@given(order=st.permutations(range(5)), n_heads=st.sampled_from([1, 2, 4]))
def test_a_permuted_sentence_gives_permuted_outputs(order, n_heads):
    ours = layer(8, n_heads)
    inputs = vectors(2, 5, 8)
    outputs, weights = call(ours, inputs, need_weights=True)
    moved, moved_weights = call(ours, inputs[:, order], need_weights=True)
    torch.testing.assert_close(moved, outputs[:, order], atol=1e-12, rtol=0)
    torch.testing.assert_close(moved_weights, weights[:, :, order][..., order], atol=1e-12, rtol=0)


@given(
    mask_shape=st.sampled_from([None, (3, 4), (1, 4), (2, 1, 1, 4), (2, 2, 3, 4), (1, 2, 1, 4), (2, 1, 3, 1)]),
    seed=st.integers(0, 100),
)
def test_asking_for_weights_changes_no_output(mask_shape, seed):
    ours = layer()
    inputs, memory = vectors(2, 3, 8, seed=seed), vectors(2, 4, 8, seed=seed + 1)
    mask = None if mask_shape is None else torch.rand(mask_shape, generator=generator(seed)) < 0.6
    outputs, nothing = call(ours, inputs, memory, mask)
    same, weights = call(ours, inputs, memory, mask, need_weights=True)
    assert nothing is None
    torch.testing.assert_close(same, outputs, atol=1e-12, rtol=0)
    somewhere = torch.ones(2, 2, 3, 4).bool() if mask is None else mask.expand(2, 2, 3, 4)
    torch.testing.assert_close(weights.sum(-1), somewhere.any(-1).double(), atol=1e-12, rtol=0)
    assert not weights[~somewhere].any()


@WEIGHTS
def test_a_query_that_may_look_nowhere_gets_the_bias_and_a_finite_gradient(need_weights):
    ours = layer()
    inputs = vectors(2, 3, 8).requires_grad_()
    mask = torch.ones(2, 1, 3, 3, dtype=torch.bool)
    mask[1] = False
    outputs, _ = call(ours, inputs, mask=mask, need_weights=need_weights)
    torch.testing.assert_close(outputs[1], ours.out_proj.bias.expand(3, 8), atol=1e-12, rtol=0)
    outputs.sum().backward()
    assert inputs.grad.isfinite().all() and not inputs.grad[1].any()
    assert all(parameter.grad.isfinite().all() for parameter in ours.parameters())


@pytest.mark.slow
@WEIGHTS
def test_weights_are_dropped_in_training_only(need_weights):
    ours = layer(dropout=0.5)
    inputs = vectors(2, 5, 8)
    calm, weights = call(ours, inputs, need_weights=need_weights)
    plain, _ = call(layer(dropout=0.0), inputs)
    torch.testing.assert_close(calm, plain, atol=1e-12, rtol=0)
    ours.train()
    with torch.no_grad(), torch.random.fork_rng():
        torch.manual_seed(0)
        once, dropped_weights = call(ours, inputs, need_weights=need_weights)
        twice, _ = call(ours, inputs, need_weights=need_weights)
        mean = torch.stack([call(ours, inputs, need_weights=need_weights)[0] for _ in range(3000)]).mean(0)
    assert (once - calm).abs().max() > 0.1 and (once - twice).abs().max() > 0.1
    torch.testing.assert_close(mean, calm, atol=0.15, rtol=0)  # what is left is scaled up
    if need_weights:
        torch.testing.assert_close(dropped_weights, weights, atol=1e-12, rtol=0)  # reported before dropout


# ---------------------------------------------------------------- keys and values that are kept


@WEIGHTS
@given(
    chunks=st.lists(st.integers(1, 4), min_size=1, max_size=5),
    room=st.integers(1, 8),
    n_heads=st.sampled_from([1, 2, 4]),
    seed=st.integers(0, 100),
)
@pytest.mark.slow
def test_a_cache_changes_nothing_however_the_sequence_is_cut(need_weights, chunks, room, n_heads, seed):
    ours = layer(8, n_heads, seed, d_key=3, d_value=2)
    inputs = vectors(2, sum(chunks), 8, seed=seed)
    expected, all_weights = call(ours, inputs, mask=causal_mask(sum(chunks)), need_weights=True)
    cache, past = ours.new_cache(2, room), 0
    with torch.no_grad():
        for chunk in chunks:
            new = inputs[:, past : past + chunk]
            found, weights = call(ours, new, mask=causal_mask(chunk, past), cache=cache, need_weights=need_weights)
            torch.testing.assert_close(found, expected[:, past : past + chunk], atol=1e-12, rtol=0)
            if need_weights:
                seen = past + chunk
                torch.testing.assert_close(weights, all_weights[:, :, past:seen, :seen], atol=1e-12, rtol=0)
            past += chunk
            assert cache.length == past


def test_one_token_at_a_time_needs_no_mask():
    ours = layer()
    inputs = vectors(3, 5, 8)
    expected, _ = call(ours, inputs, mask=causal_mask(5))
    cache = ours.new_cache(3)
    with torch.no_grad():
        steps = [call(ours, inputs[:, t : t + 1], cache=cache)[0] for t in range(5)]
    torch.testing.assert_close(torch.cat(steps, 1), expected, atol=1e-12, rtol=0)


def test_a_cache_is_filled_in_place_and_doubles_when_full():
    ours = layer()
    cache = ours.new_cache(2, room=2)
    rooms, places = [], []
    with torch.no_grad():
        for step in range(9):
            call(ours, vectors(2, 1, 8, seed=step), cache=cache)
            rooms.append(cache.keys.shape[2])
            places.append(cache.keys.data_ptr())
    assert rooms == [2, 2, 4, 4, 8, 8, 8, 8, 16] and cache.values.shape[2] == 16
    assert len(set(places)) == 4  # moved only when it grew
    with torch.no_grad():
        call(ours, vectors(2, 30, 8), cache=cache)  # more than twice as much at once
    assert cache.length == 39 and cache.keys.shape[2] == 39


def test_a_refused_call_leaves_the_cache_as_it_was():
    ours, inputs = layer(), vectors(2, 3, 8)
    cache = ours.new_cache(2)
    with torch.no_grad():
        ours(inputs[:, :2], mask=causal_mask(2), cache=cache)
        for mask in (torch.ones(1, 2, dtype=torch.bool), torch.ones(1, 1, 1, 3)):  # of two axes, of numbers
            with pytest.raises((ValueError, TypeError)):
                ours(inputs[:, 2:], mask=mask, cache=cache)
            assert cache.length == 2
        found = ours(inputs[:, 2:], cache=cache)
        expected = ours(inputs, mask=causal_mask(3))
    torch.testing.assert_close(found, expected[:, 2:], atol=1e-12, rtol=0)


def test_what_a_cache_returns_is_a_view_of_all_that_was_written():
    cache = KeyValueCache(torch.zeros(2, 1, 4, 3), torch.zeros(2, 1, 4, 5))
    first = KeysValues(vectors(2, 1, 2, 3).float(), vectors(2, 1, 2, 5).float())
    second = KeysValues(vectors(2, 1, 1, 3, seed=2).float(), vectors(2, 1, 1, 5, seed=2).float())
    cache.append(first)
    seen = cache.append(second)
    assert torch.equal(seen.keys, torch.cat([first.keys, second.keys], 2))
    assert torch.equal(seen.values, torch.cat([first.values, second.values], 2))
    assert seen.keys.data_ptr() == cache.keys.data_ptr() and seen.values.data_ptr() == cache.values.data_ptr()


def test_a_reordered_cache_continues_its_rows_and_shares_nothing():
    ours = layer()
    inputs, later = vectors(3, 4, 8), vectors(4, 2, 8, seed=2)
    rows = torch.tensor([2, 0, 0, 1])
    cache = ours.new_cache(3)
    with torch.no_grad():
        call(ours, inputs, mask=causal_mask(4), cache=cache)
        kept = cache.keys[:, :, :4].clone()
        moved = reorder(cache, rows)
        assert moved.length == cache.length == 4
        found, _ = call(ours, later, mask=causal_mask(2, 4), cache=moved)
        expected, _ = call(ours, torch.cat([inputs[rows], later], 1), mask=causal_mask(6))
        torch.testing.assert_close(found, expected[:, 4:], atol=1e-12, rtol=0)
        moved.keys.fill_(7)
        moved.values.fill_(7)
    assert cache.length == 4 and torch.equal(cache.keys[:, :, :4], kept)
    same = reorder(cache, torch.arange(3))
    assert same.keys.data_ptr() != cache.keys.data_ptr() and same.values.data_ptr() != cache.values.data_ptr()


@pytest.mark.slow
@WEIGHTS
@given(
    sentences=st.integers(1, 3),
    beams=st.integers(1, 4),
    lengths=st.tuples(st.integers(1, 3), st.integers(1, 4)),
    mask_kind=st.sampled_from(["none", "sentence", "query", "both", "head"]),
    seed=st.integers(0, 100),
)
def test_rows_that_share_a_memory_equal_a_repeated_memory(need_weights, sentences, beams, lengths, mask_kind, seed):
    ours = layer(8, 2, seed)
    length, seen = lengths
    inputs, memory = vectors(sentences * beams, length, 8, seed=seed), vectors(sentences, seen, 8, seed=seed + 1)
    shapes = {
        "sentence": (sentences, 1, 1, seen),
        "query": (length, seen),
        "both": (sentences, 1, length, seen),
        "head": (1, 2, length, 1),
    }
    mask = None if mask_kind == "none" else torch.rand(shapes[mask_kind], generator=generator(seed)) < 0.7
    per_sentence = mask is not None and mask.dim() == 4 and mask.shape[0] == sentences
    repeated_mask = mask.repeat_interleave(beams, 0) if per_sentence else mask
    repeated = memory.repeat_interleave(beams, 0)
    expected, expected_weights = call(ours, inputs, repeated, repeated_mask, need_weights=True)
    found, weights = call(ours, inputs, memory, mask, need_weights=need_weights)
    torch.testing.assert_close(found, expected, atol=1e-12, rtol=0)
    prepared, _ = call(ours, inputs, ours.keys_values(memory), mask, need_weights=need_weights)
    torch.testing.assert_close(prepared, expected, atol=1e-12, rtol=0)
    if need_weights:
        torch.testing.assert_close(weights, expected_weights, atol=1e-12, rtol=0)


def test_shared_keys_and_values_are_never_copied(monkeypatch):
    from transformer_lib.models import multi_head

    ours = layer()
    kept = ours.keys_values(vectors(2, 5, 8))
    given_keys = []
    attend = multi_head.scaled_dot_product_attention

    def watch(queries, keys, values, *rest, **more):
        given_keys.append((keys, values))
        return attend(queries, keys, values, *rest, **more)

    monkeypatch.setattr(multi_head, "scaled_dot_product_attention", watch)
    call(ours, vectors(6, 1, 8), kept)
    assert given_keys[0][0] is kept.keys and given_keys[0][1] is kept.values


def test_keys_and_values_select_rows():
    ours = layer()
    memory = vectors(4, 5, 8)
    rows = torch.tensor([3, 1, 1])
    some = select(ours.keys_values(memory), rows)
    expected = ours.keys_values(memory[rows])
    torch.testing.assert_close(some.keys, expected.keys, atol=1e-12, rtol=0)
    torch.testing.assert_close(some.values, expected.values, atol=1e-12, rtol=0)


# ---------------------------------------------------------------- where it has to run


COMPILED = """
import torch
from transformer_lib.models.masks import causal_mask
from transformer_lib.models.multi_head import MultiHeadAttention, record_attention

torch.manual_seed(0)
ours = MultiHeadAttention(8, 2).eval()
inputs, memory, mask = torch.randn(4, 3, 8), torch.randn(2, 5, 8), torch.rand(2, 1, 1, 5) < 0.7
compiled = torch.compile(ours, fullgraph=True, backend="eager")
kept = ours.keys_values(memory)
calls = ((inputs,), None), ((inputs, memory), mask), ((inputs, kept), None), ((inputs,), causal_mask(3))
for arguments, mask in calls:
    expected = ours(*arguments, mask=mask)
    torch.testing.assert_close(compiled(*arguments, mask=mask), expected, atol=1e-6, rtol=0)
    with record_attention(ours) as maps:
        torch.testing.assert_close(compiled(*arguments, mask=mask), expected, atol=1e-6, rtol=0)
        ours(*arguments, mask=mask)
    torch.testing.assert_close(*maps[""], atol=1e-6, rtol=0)
    torch.testing.assert_close(torch.jit.trace(ours, inputs)(inputs), ours(inputs), atol=1e-6, rtol=0)
exported = torch.export.export(ours, (inputs, memory)).module()
torch.testing.assert_close(exported(inputs, memory), ours(inputs, memory), atol=1e-6, rtol=0)
print("one graph")
"""


@pytest.mark.slow
def test_compiles_into_one_graph():
    """In a process of its own, as users have it: the run-time check of annotations cannot be compiled."""
    done = subprocess.run([sys.executable, "-c", COMPILED], capture_output=True, text=True, timeout=300)
    assert done.stdout.strip() == "one graph", done.stderr[-3000:]


@WEIGHTS
def test_shapes_on_the_meta_device(need_weights):
    with torch.device("meta"):
        ours = MultiHeadAttention(512, 8)
        outputs, weights = call(ours, torch.ones(6, 7, 512), torch.ones(3, 9, 512), need_weights=need_weights)
        cache = ours.new_cache(6, room=2)
        call(ours, torch.ones(6, 5, 512), mask=causal_mask(5, device="meta"), cache=cache)
    assert outputs.shape == (6, 7, 512) and outputs.is_meta
    assert weights is None or weights.shape == (6, 8, 7, 9)
    assert cache.keys.shape == (6, 8, 5, 64) and cache.keys.is_meta


@pytest.mark.parametrize("device", DEVICES)
@WEIGHTS
def test_under_bfloat16_autocast(device, need_weights):
    ours = layer().float().to(device)
    inputs, memory = vectors(2, 3, 8).float().to(device), vectors(2, 5, 8, seed=2).float().to(device)
    mask = torch.rand(2, 1, 3, 5, generator=generator(0)).to(device) < 0.7
    exact, _ = call(ours, inputs, memory, mask)
    causal, _ = call(ours, inputs, mask=causal_mask(3, device=device))
    with torch.autocast(device, dtype=torch.bfloat16):
        found, _ = call(ours, inputs, memory, mask, need_weights=need_weights)
        with torch.no_grad():
            cache = ours.new_cache(2, room=1)
            steps = [call(ours, inputs[:, t : t + 1], cache=cache, need_weights=need_weights)[0] for t in range(3)]
        found.float().square().mean().backward()
    assert found.dtype == torch.bfloat16
    torch.testing.assert_close(found.float(), exact, atol=5e-2, rtol=5e-2)
    torch.testing.assert_close(torch.cat(steps, 1).float(), causal, atol=5e-2, rtol=5e-2)
    assert all(parameter.grad.dtype == torch.float32 for parameter in ours.parameters())


def test_starts_like_torch():
    torch.manual_seed(0)
    ours, theirs = MultiHeadAttention(64, 4), nn.MultiheadAttention(64, 4)
    for mine, yours in zip(ours.parameters(), theirs.parameters(), strict=True):
        assert mine.std(unbiased=False).item() == pytest.approx(yours.std(unbiased=False).item(), rel=0.05)


def test_the_chapter_quotes_the_record_of_its_benchmark():
    rows, prose = record_of("multi-head-cost")["rows"], prose_of("transformer/multi_head_attention")
    table = prose[prose.index("| measured | ratio") :]
    assert re.findall(r"\| ([\d.]+) \|\n", table)[: len(rows)] == [f"{row['time_ratio']:.2f}" for row in rows]
    assert "python benchmarks/multi_head.py --record results/multi-head-cost.json" in prose


def test_the_chapter_draws_the_record_of_one_head_and_four():
    cells = read(ROOT / "book" / "transformer" / "multi_head_attention.ipynb")["cells"]
    (source,) = [source for cell in cells if "PRONOUNS = {" in (source := "".join(cell["source"]))]
    drawn = ast.literal_eval(re.search(r"PRONOUNS = (\{.*?\n\})", source, re.DOTALL)[1])
    rows = record_of("heads")["rows"]
    for (heads, epochs), scores in drawn.items():
        found = [row for row in rows if (row["heads"], row["epochs"]) == (heads, epochs)]
        assert [row["seed"] for row in found] == [0, 1, 2]
        assert [row["pronouns"] for row in found] == list(scores)
    prose = prose_of("transformer/multi_head_attention")
    assert "python benchmarks/heads.py --record results/heads.json" in prose
    for heads, epochs in ((4, 6), (1, 6), (1, 12), (1, 18)):
        low, high = min(drawn[heads, epochs]), max(drawn[heads, epochs])
        assert f"{low:.0f} to {high:.0f} %" in prose
    for heads, percent in ((1, 98), (4, 99)):  # of all words, after six epochs
        assert {round(row["words"]) for row in rows if (row["heads"], row["epochs"]) == (heads, 6)} == {percent}


# ---------------------------------------------------------------- bad input

ROWS, MEMORY = torch.zeros(4, 3, 8), torch.zeros(2, 5, 8)


def small(**changes) -> MultiHeadAttention:
    return MultiHeadAttention(8, 2, **changes)


def filled(rows: int = 4) -> KeyValueCache:
    return small().new_cache(rows)


BAD = {
    "width 0": (lambda: MultiHeadAttention(0, 2), "d_model=0"),
    "no heads": (lambda: MultiHeadAttention(8, 0), "n_heads=0"),
    "head count": (lambda: MultiHeadAttention(100, 8), "d_model=100 is not divisible by n_heads=8"),
    "head count, one width given": (lambda: MultiHeadAttention(10, 4, d_key=3), "d_model=10 is not divisible"),
    "key width": (lambda: small(d_key=0), "d_key=0"),
    "value width": (lambda: small(d_value=-1), "d_value=-1"),
    "dropout 1": (lambda: small(dropout=1.0), "dropout=1.0"),
    "negative dropout": (lambda: small(dropout=-0.1), "dropout=-0.1"),
    "dropout in words": (lambda: small(dropout="0.1"), "dropout='0.1'"),
    "a word for a flag": (lambda: small(bias="no"), "bias='no' must be True or False"),
    "inputs width": (lambda: small()(torch.zeros(4, 3, 6)), r"inputs is .* shape \(4, 3, 6\), expected .*D=8"),
    "inputs without batch": (lambda: small()(torch.zeros(3, 8)), r"inputs is .* shape \(3, 8\)"),
    "inputs of whole numbers": (lambda: small()(ROWS.long()), "inputs is a int64 tensor"),
    "inputs of another precision": (
        lambda: small()(ROWS.double()),
        "not one dtype: inputs: float64, the weights: float32",
    ),
    "a list for the inputs": (lambda: small()([1.0, 2.0]), r"inputs is \[1.0, 2.0\] \(list\)"),
    "a list for the cache": (lambda: small()(ROWS, cache=[]), "cache is .*list"),
    "queries, keys, values": (lambda: small()(ROWS, ROWS, ROWS), "positional arguments"),
    "memory width": (lambda: small()(ROWS, torch.zeros(4, 3, 6)), r"memory is .* shape \(4, 3, 6\)"),
    "memory without batch": (lambda: small().keys_values(torch.zeros(3, 8)), r"memory is .* shape \(3, 8\)"),
    "memory width, prepared": (lambda: small().keys_values(torch.zeros(2, 3, 6)), r"memory is .* shape \(2, 3, 6\)"),
    "rows not divisible": (lambda: small()(ROWS, torch.zeros(3, 5, 8)), "4 rows cannot share a memory of 3"),
    "more memory than rows": (lambda: small()(ROWS[:1], MEMORY), "1 rows cannot share a memory of 2"),
    "empty memory": (lambda: small()(ROWS, torch.zeros(0, 5, 8)), "memory of 0 rows"),
    "mask shape": (
        lambda: small()(ROWS, mask=torch.ones(1, 1, 3, 4, dtype=torch.bool)),
        r"mask of shape \(1, 1, 3, 4\) does not broadcast to the scores \(4, 2, 3, 3\)",
    ),
    "mask of another batch": (
        lambda: small()(ROWS, MEMORY, mask=torch.ones(3, 1, 1, 5, dtype=torch.bool)),
        r"mask of shape \(3, 1, 1, 5\) does not broadcast",
    ),
    "mask length over shared rows": (
        lambda: small()(ROWS, MEMORY, mask=torch.ones(1, 1, 2, 5, dtype=torch.bool)),
        r"does not broadcast to the scores",
    ),
    "mask of the (B, S) kind": (
        lambda: small()(ROWS, ROWS, mask=torch.ones(4, 3, dtype=torch.bool)),
        r"mask\[:, None, None, :\]",
    ),
    "mask of the (B, S) kind where B = T = S": (
        lambda: small()(ROWS[:3], mask=torch.ones(3, 3, dtype=torch.bool)),
        r"mask\[:, None, None, :\]",
    ),
    "mask of three axes": (
        lambda: small()(ROWS, MEMORY, mask=torch.ones(4, 1, 5, dtype=torch.bool)),
        "four axes",
    ),
    "float mask": (lambda: small()(ROWS, mask=torch.ones(1, 1, 3, 3)), "mask .* torch.float32"),
    "integer mask": (lambda: small()(ROWS, MEMORY, mask=torch.ones(1, 1, 3, 5).long()), "mask .* torch.int64"),
    "cache with memory": (lambda: small()(ROWS, MEMORY, cache=filled()), "a cache is for self-attention"),
    "cache of other rows": (lambda: small()(ROWS, cache=filled(3)), "do not fit a cache"),
    "cache of one row": (lambda: small()(ROWS, cache=filled(1)), "do not fit a cache"),
    "cache of other heads": (lambda: small()(ROWS, cache=MultiHeadAttention(8, 4).new_cache(4)), "do not fit a cache"),
    "cache of other widths": (lambda: small()(ROWS, cache=small(d_value=3).new_cache(4)), "do not fit a cache"),
    "no room": (lambda: small().new_cache(2, room=0), "room=0"),
    "no rows": (lambda: small().new_cache(0), "rows=0"),
    "memory of other heads": (lambda: small()(ROWS, MultiHeadAttention(8, 4).keys_values(MEMORY)), "must be .*B, T, K"),
    "memory of one head": (
        lambda: small()(ROWS, MultiHeadAttention(8, 1, d_key=4, d_value=4).keys_values(MEMORY)),
        "must be .*B, T, K",
    ),
    "memory of other keys": (lambda: small()(ROWS, small(d_key=3).keys_values(MEMORY)), r"keys is .* \(2, 2, 5, 3\)"),
    "appended rows": (
        lambda: filled().append(KeysValues(torch.zeros(1, 2, 3, 4), torch.zeros(1, 2, 3, 4))),
        r"\(1, 2, 3, 4\)",
    ),
    "appended lengths": (
        lambda: filled().append(KeysValues(torch.zeros(4, 2, 3, 4), torch.zeros(4, 2, 1, 4))),
        r"\(4, 2, 1, 4\)",
    ),
    "inputs elsewhere": (lambda: small()(ROWS.to("meta")), "meta"),
    "memory elsewhere": (lambda: small()(ROWS, MEMORY.to("meta")), "meta"),
    "mask elsewhere": (lambda: small()(ROWS, mask=causal_mask(3, device="meta")), "meta"),
    "nothing to record": (lambda: record_attention(nn.Linear(1, 1)).__enter__(), "no MultiHeadAttention"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_named(case):
    call, message = BAD[case]
    with pytest.raises((ValueError, TypeError, RuntimeError)) as caught:
        call()
    # With the annotations enforced, a wrong shape may be caught before our own check; test_errors.py runs without.
    error = caught.value
    assert TypeCheckError in (type(error), type(error.__cause__)) or re.search(message, str(caught.value))
