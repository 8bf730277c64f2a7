"""Masks: equal to plain loops, combined by the laws of logic, on the device they will be used on, and free of leaks."""

import functools
import itertools
import re
import subprocess
import sys

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from jaxtyping import TypeCheckError

from transformer_lib.data.tokenizer import PAD
from transformer_lib.models.attention import (
    explicit_attention,
    scaled_dot_product_attention,
)
from transformer_lib.models.masked_softmax import masked_softmax
from transformer_lib.models.masks import causal_mask, combine_masks, padding_mask

DEVICES = ["cpu", "meta", *(["cuda"] if torch.cuda.is_available() else [])]


def generator(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def ragged(lengths: list[int], seed: int = 0) -> torch.Tensor:
    """Rows of random tokens, filled up with padding."""
    tokens = torch.randint(4, 20, (len(lengths), max(lengths)), generator=generator(seed))
    return tokens.masked_fill(torch.arange(max(lengths)) >= torch.tensor(lengths)[:, None], PAD)


@st.composite
def broadcasting_masks(draw):
    """Two or three masks whose shapes broadcast to each other, and perhaps None among them."""
    full = draw(st.tuples(*[st.integers(1, 3)] * 4))
    found = []
    for _ in range(draw(st.integers(1, 3))):
        axes = draw(st.integers(0, 4))
        shape = [draw(st.sampled_from([1, size])) for size in full[4 - axes :]]
        found.append(torch.rand(shape, generator=generator(draw(st.integers(0, 99)))) < 0.7)
    return draw(st.permutations([*found, *[None] * draw(st.integers(0, 2))]))


# ---------------------------------------------------------------- equal to loops


@given(
    tokens=st.lists(st.lists(st.integers(0, 5), min_size=4, max_size=4), min_size=1, max_size=3), pad=st.integers(0, 5)
)
def test_padding_mask_equals_loops(tokens, pad):
    mask = padding_mask(torch.tensor(tokens), pad=pad)
    assert mask.shape == (len(tokens), 1, 1, 4) and mask.dtype == torch.bool
    assert mask[:, 0, 0].tolist() == [[token != pad for token in row] for row in tokens]


def test_padding_is_what_the_data_call_padding():
    tokens = ragged([3, 1, 4])
    assert torch.equal(padding_mask(tokens)[:, 0, 0], tokens != PAD)
    assert torch.equal(padding_mask(tokens.int()), padding_mask(tokens))


@given(length=st.integers(0, 7), past=st.integers(0, 5))
def test_causal_mask_equals_loops(length, past):
    mask = causal_mask(length, past)
    assert mask.shape == (1, 1, length, past + length)
    mask = mask[0, 0]
    assert mask.shape == (length, past + length) and mask.dtype == torch.bool
    assert mask.tolist() == [[s <= past + t for s in range(past + length)] for t in range(length)]


@given(length=st.integers(1, 8), first=st.integers(0, 7))
def test_the_past_moves_the_triangle(length, first):
    first %= length
    assert torch.equal(causal_mask(length - first, past=first), causal_mask(length)[:, :, first:])


@given(masks=broadcasting_masks())
def test_combined_masks_equal_loops(masks):
    combined = combine_masks(*masks)
    given_masks = [mask for mask in masks if mask is not None]
    wide = torch.broadcast_tensors(*given_masks)
    assert combined.shape == wide[0].shape and combined.dtype == torch.bool
    for place in itertools.product(*map(range, combined.shape)):
        assert combined[place].item() == all(mask[place].item() for mask in wide)


# ---------------------------------------------------------------- laws


@given(masks=broadcasting_masks())
def test_order_and_grouping_do_not_matter(masks):
    expected = combine_masks(*masks)
    for order in itertools.islice(itertools.permutations(masks), 24):
        assert torch.equal(combine_masks(*order), expected)
    assert torch.equal(functools.reduce(combine_masks, masks, None), expected)
    assert torch.equal(combine_masks(*masks, *masks), expected)


def test_none_forbids_nothing():
    mask = causal_mask(4)[0, 0]
    assert combine_masks() is None and combine_masks(None, None) is None
    assert torch.equal(combine_masks(None, mask), mask) and torch.equal(combine_masks(mask, None), mask)
    assert torch.equal(combine_masks(mask, torch.tensor(True)), mask)


def test_combining_changes_no_mask():
    padding, causal = padding_mask(ragged([2, 4])), causal_mask(4)
    copies = padding.clone(), causal.clone()
    combine_masks(padding, causal)
    assert torch.equal(padding, copies[0]) and torch.equal(causal, copies[1])


def test_shapes_of_a_batch():
    combined = combine_masks(padding_mask(ragged([3, 5])), causal_mask(5))
    assert combined.shape == (2, 1, 5, 5)
    for sentence, length in enumerate([3, 5]):
        assert combined[sentence, 0].tolist() == [[s <= t and s < length for s in range(5)] for t in range(5)]


# ---------------------------------------------------------------- where and how


@pytest.mark.parametrize("device", DEVICES)
def test_masks_are_made_where_they_are_needed(device):
    tokens = ragged([3, 5]).to(device)
    causal = causal_mask(5, past=2, device=tokens.device)
    assert padding_mask(tokens).device.type == causal.device.type == device
    assert combine_masks(padding_mask(tokens), causal_mask(5, device=device)).device.type == device


def test_without_a_device_the_default_device_is_taken():
    with torch.device("meta"):
        assert causal_mask(3).is_meta
    assert causal_mask(3).device.type == "cpu"


COMPILED = """
import torch
from transformer_lib.models.masks import causal_mask, combine_masks, padding_mask

def build(tokens):
    return combine_masks(padding_mask(tokens), None, causal_mask(tokens.shape[1], device=tokens.device))

tokens = torch.tensor([[4, 5, 0], [7, 8, 9]])
assert torch.equal(torch.compile(build, fullgraph=True, backend="eager")(tokens), build(tokens))
print("one graph")
"""


@pytest.mark.slow
def test_compiles_to_one_graph():
    """In a process of its own, as users have it: the run-time check of annotations cannot be compiled."""
    done = subprocess.run([sys.executable, "-c", COMPILED], capture_output=True, text=True, timeout=300)
    assert done.stdout.strip() == "one graph", done.stderr[-3000:]


# ---------------------------------------------------------------- what they are for


@pytest.mark.parametrize("fused", [False, True])
@given(lengths=st.lists(st.integers(1, 5), min_size=1, max_size=3), extra=st.integers(0, 3), seed=st.integers(0, 99))
@pytest.mark.slow
def test_neither_padding_nor_the_future_has_an_influence(fused, lengths, extra, seed):
    tokens = torch.nn.functional.pad(ragged(lengths, seed), (0, extra), value=PAD)
    length = tokens.shape[1]
    table = torch.randn(20, 3, 4, generator=generator(seed), dtype=torch.float64)  # two heads, and the values

    def attend(tokens):
        queries, keys, values = (table[tokens][:, :, i].unsqueeze(1).expand(-1, 2, -1, -1) for i in range(3))
        mask = combine_masks(padding_mask(tokens), causal_mask(tokens.shape[1]))
        if fused:
            return scaled_dot_product_attention(queries, keys, values, mask)
        return explicit_attention(queries, keys, values, mask)[0]

    together = attend(tokens)
    for row, own in enumerate(lengths):
        torch.testing.assert_close(together[row, :, :own], attend(tokens[row : row + 1, :own])[0], atol=1e-12, rtol=0)
    for position in range(1, length):
        changed = tokens.clone()
        changed[:, position] = 4 + (changed[:, position] + 1) % 16
        torch.testing.assert_close(attend(changed)[:, :, :position], together[:, :, :position], atol=1e-12, rtol=0)


@given(lengths=st.lists(st.integers(1, 5), min_size=1, max_size=3), seed=st.integers(0, 99))
def test_the_opposite_convention_of_multihead_attention(lengths, seed):
    tokens = ragged(lengths, seed)
    theirs = torch.nn.MultiheadAttention(4, 1, bias=False, batch_first=True).double()
    with torch.no_grad():
        theirs.in_proj_weight.copy_(torch.eye(4).repeat(3, 1))
        theirs.out_proj.weight.copy_(torch.eye(4))
    x = torch.randn(*tokens.shape, 4, generator=generator(seed), dtype=torch.float64)
    padding, causal = padding_mask(tokens)[:, 0], causal_mask(tokens.shape[1])[0]
    expected, expected_weights = theirs(x, x, x, key_padding_mask=~padding[:, 0], attn_mask=~causal[0])
    found, weights = explicit_attention(x, x, x, combine_masks(padding, causal))
    torch.testing.assert_close(found, expected, atol=1e-12, rtol=0)
    torch.testing.assert_close(weights, expected_weights, atol=1e-12, rtol=0)


# ---------------------------------------------------------------- with which number to fill

SCORES = torch.tensor([[1.0, 2.0, 3.0], [1.0, 2.0, 3.0]])
ALLOWED = torch.tensor([[True, True, False], [False, False, False]])  # the second row may attend to nothing
HALF, BRAIN, SINGLE = torch.float16, torch.bfloat16, torch.float32


def filled(fill: float, dtype: torch.dtype, times: int) -> torch.Tensor:
    """Weights with forbidden scores filled (times 0), or with the number added to them so many times."""
    scores = SCORES.to(dtype)
    if not times:
        return scores.masked_fill(~ALLOWED, fill).softmax(dim=-1)
    penalty = torch.zeros(2, 3).masked_fill(~ALLOWED, fill).to(dtype)
    return sum([penalty] * times, start=scores).softmax(dim=-1)


@pytest.mark.parametrize("dtype", [SINGLE, HALF, BRAIN], ids=str)
@pytest.mark.parametrize("name", ["-inf", "-1e9", "lowest"])
@pytest.mark.parametrize("times", [0, 1, 2], ids=["filled", "added", "added twice"])
def test_every_filling_number_fails_somewhere_and_ours_nowhere(name, times, dtype):
    """As chapter 10 says: NaN where the number is infinite or becomes so, else attention to padding."""
    number = torch.finfo(dtype).min if name == "lowest" else float(name)
    if (name, times, dtype) == ("-1e9", 0, HALF):
        with pytest.raises(RuntimeError, match="overflow"):
            filled(number, dtype, times)
    else:
        first, nothing = filled(number, dtype, times)
        torch.testing.assert_close(first.float(), torch.tensor([0.2689, 0.7311, 0]), atol=5e-3, rtol=0)
        infinite = name == "-inf" or (name, dtype) == ("-1e9", HALF) or (name, times) == ("lowest", 2)
        if infinite:
            assert nothing.isnan().all()
        elif name == "lowest":
            torch.testing.assert_close(nothing.float(), torch.full((3,), 1 / 3), atol=2e-3, rtol=0)
        else:
            assert nothing.isfinite().all() and nothing.sum() > 0.9
    first, nothing = masked_softmax(SCORES.to(dtype), ALLOWED)
    assert first[2] == 0 and first.isfinite().all() and not nothing.any()
    x = SCORES.to(dtype)
    assert not scaled_dot_product_attention(x, x, x, torch.zeros(2, 2, dtype=torch.bool)).any()


# ---------------------------------------------------------------- bad input

BAD = {
    "tokens of one row": (lambda: padding_mask(torch.ones(3, dtype=torch.long)), r"shape \(3,\) .* must be \(B, S\)"),
    "tokens that are vectors": (lambda: padding_mask(torch.ones(2, 3, 4, dtype=torch.long)), r"\(2, 3, 4\)"),
    "tokens of floats": (lambda: padding_mask(torch.ones(2, 3)), "torch.float32 must be"),
    "a mask for tokens": (lambda: padding_mask(torch.ones(2, 3, dtype=torch.bool)), "torch.bool must be"),
    "negative length": (lambda: causal_mask(-1), "length=-1"),
    "a length of half words": (lambda: causal_mask(2.5), "length=2.5 must be a whole number"),
    "no padding id": (lambda: padding_mask(torch.ones(2, 3).long(), pad=None), "pad is None"),
    "a list for tokens": (lambda: padding_mask([[1, 2]]), "tokens is .*list"),
    "negative past": (lambda: causal_mask(3, past=-2), "past=-2"),
    "mask of numbers": (lambda: combine_masks(torch.ones(3, 3)), "a mask has dtype torch.float32"),
    "second mask of numbers": (lambda: combine_masks(causal_mask(3), torch.ones(3, dtype=torch.long)), "torch.int64"),
    "shapes": (lambda: combine_masks(causal_mask(3), causal_mask(4)), "must match the size"),
    "third shape": (
        lambda: combine_masks(causal_mask(3), None, torch.ones(2, 1, 1, 2, dtype=torch.bool)),
        "must match the size",
    ),
    "devices": (
        lambda: combine_masks(causal_mask(3), causal_mask(3, device="meta")),
        "meta",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_named(case):
    call, message = BAD[case]
    with pytest.raises((ValueError, TypeError, RuntimeError)) as caught:
        call()
    # With the annotations enforced, a wrong shape may be caught before our own check; test_errors.py runs without.
    error = caught.value
    assert TypeCheckError in (type(error), type(error.__cause__)) or re.search(message, str(caught.value))
