"""Scaled dot-product attention: equal to plain loops and to PyTorch, explicit and fused, in value and gradient."""

import math
import re
import subprocess
import sys

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from jaxtyping import TypeCheckError
from pages import prose_of, record_of
from torch import Tensor
from torch.nn import functional as F

from transformer_lib.models.attention import (
    explicit_attention,
    scaled_dot_product_attention,
    softmax_jacobian,
)
from transformer_lib.models.multi_head import MultiHeadAttention
from transformer_lib.models.self_attention import SelfAttention

DEVICES = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]
LEADS = [(), (2,), (2, 3), (1, 3), (2, 1, 2), (0, 2)]


def generator(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def draw_inputs(lead=(2, 3), lengths=(4, 6), widths=(5, 3), seed=0, dtype=torch.float64) -> list[Tensor]:
    """Queries, keys and values."""
    draw, (t, s), (k, v) = generator(seed), lengths, widths
    return [
        torch.randn(*lead, n, w, generator=draw, dtype=torch.float64).to(dtype) for n, w in ((t, k), (s, k), (s, v))
    ]


def explicit(*given, **settings) -> Tensor:
    return explicit_attention(*given, **settings)[0]


VERSIONS = pytest.mark.parametrize("attention", [explicit, scaled_dot_product_attention], ids=["explicit", "fused"])


def loops(queries: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None, scale: float) -> tuple[Tensor, Tensor]:
    """The formula for one matrix of queries, entry by entry, in Python's own floats."""
    context, weights = torch.zeros(len(queries), values.shape[1]), torch.zeros(len(queries), len(keys))
    context, weights = context.double(), weights.double()
    for t in range(len(queries)):
        allowed = [s for s in range(len(keys)) if mask is None or mask[t, s]]
        scores = {
            s: scale * sum(a * b for a, b in zip(queries[t].tolist(), keys[s].tolist(), strict=True)) for s in allowed
        }
        total = math.fsum(math.exp(score) for score in scores.values())
        for s, score in scores.items():
            weights[t, s] = math.exp(score) / total
            for i in range(values.shape[1]):
                context[t, i] += weights[t, s] * values[s, i]
    return context, weights


@st.composite
def cases(draw):
    """Inputs with any leading axes, and a mask of any shape that broadcasts to the scores."""
    lead = tuple(draw(st.lists(st.integers(1, 3), max_size=3)))
    lengths = draw(st.tuples(st.integers(1, 5), st.integers(1, 6)))
    widths = draw(st.tuples(st.integers(1, 5), st.integers(1, 4)))
    seed = draw(st.integers(0, 10_000))
    full = (*lead, *lengths)
    axes = draw(st.integers(0, len(full)))
    shape = tuple(draw(st.sampled_from([1, size])) for size in full[len(full) - axes :])
    mask = draw(st.sampled_from([None, "mask"]))
    if mask is not None:
        mask = torch.rand(shape, generator=generator(seed)) < draw(st.sampled_from([0.2, 0.6, 1.0]))
    return draw_inputs(lead, lengths, widths, seed), mask


# ---------------------------------------------------------------- equal to a reference


@given(case=cases(), scale=st.sampled_from([None, 0.4, 2.0]))
def test_both_versions_equal_plain_loops(case, scale):
    (queries, keys, values), mask = case
    factor = queries.shape[-1] ** -0.5 if scale is None else scale
    context, weights = explicit_attention(queries, keys, values, mask, scale=scale)
    fused = scaled_dot_product_attention(queries, keys, values, mask, scale=scale)
    full = None if mask is None else mask.expand(weights.shape)
    flat = [tensor.reshape(-1, *tensor.shape[-2:]) for tensor in (queries, keys, values, context, weights, fused)]
    for row, (q, k, v, *found) in enumerate(zip(*flat, strict=True)):
        allowed = None if full is None else full.reshape(-1, *full.shape[-2:])[row]
        expected, expected_weights = loops(q, k, v, allowed, factor)
        torch.testing.assert_close(found[0], expected, atol=1e-12, rtol=0)
        torch.testing.assert_close(found[1], expected_weights, atol=1e-12, rtol=0)
        torch.testing.assert_close(found[2], expected, atol=1e-12, rtol=0)


@VERSIONS
@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-12), (torch.float32, 1e-5)])
@pytest.mark.parametrize("scale", [None, 0.3])
def test_equal_to_pytorch_in_value_and_gradient(attention, device, dtype, tolerance, scale):
    inputs = [
        tensor.to(device).requires_grad_() for tensor in draw_inputs(lengths=(17, 33), widths=(16, 8), dtype=dtype)
    ]
    mask = (torch.rand(2, 1, 17, 33, generator=generator(1)) < 0.6).to(device)
    mask[..., 0] = True  # PyTorch promises nothing for a row without a key
    pull = torch.randn(2, 3, 17, 8, generator=generator(2), dtype=torch.float64).to(device, dtype)
    ours = attention(*inputs, mask, scale=scale)
    theirs = F.scaled_dot_product_attention(*inputs, attn_mask=mask, scale=scale)
    torch.testing.assert_close(ours, theirs, atol=tolerance, rtol=0)
    one_set, other_set = (torch.autograd.grad((found * pull).sum(), inputs) for found in (ours, theirs))
    for one, other in zip(one_set, other_set, strict=True):
        torch.testing.assert_close(one, other, atol=10 * tolerance, rtol=0)


@given(case=cases())
def test_explicit_equals_fused_in_the_gradient(case):
    inputs, mask = case
    grads = []
    for attention in (explicit, scaled_dot_product_attention):
        leaves = [tensor.clone().requires_grad_() for tensor in inputs]
        found = attention(*leaves, mask)
        pull = torch.linspace(-1, 2, found.numel(), dtype=found.dtype).reshape(found.shape)
        grads.append(torch.autograd.grad((found * pull).sum(), leaves))
    for one, other in zip(*grads, strict=True):
        torch.testing.assert_close(one, other, atol=1e-11, rtol=0)


@VERSIONS
def test_gradients_agree_with_finite_differences(attention):
    inputs = [tensor.requires_grad_() for tensor in draw_inputs((2,), (3, 4), (2, 2))]
    mask = torch.tensor([[True, False, True, True], [False] * 4, [True] * 4])
    assert torch.autograd.gradcheck(lambda *given: attention(*given, mask), inputs)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@given(shape=st.lists(st.integers(1, 4), min_size=1, max_size=3), seed=st.integers(0, 1000))
def test_the_jacobian_equals_autograd(dtype, shape, seed):
    scores = 2 * torch.randn(*shape, generator=generator(seed), dtype=torch.float64).to(dtype)
    found = softmax_jacobian(scores.softmax(dim=-1))
    assert found.dtype == dtype and found.shape == (*shape, shape[-1])
    rows = scores.reshape(-1, shape[-1])
    for row, ours in zip(rows, found.reshape(-1, shape[-1], shape[-1]), strict=True):
        expected = torch.autograd.functional.jacobian(lambda z: z.softmax(dim=-1), row)
        torch.testing.assert_close(ours, expected, atol=1e-12 if dtype == torch.float64 else 1e-6, rtol=0)


def test_scores_of_fresh_vectors_have_variance_one():
    queries, keys = (torch.randn(300, n, 64, generator=generator(n)) for n in (5, 40))
    _, weights = explicit_attention(queries, keys, keys)
    centred = weights.log() - weights.log().mean(dim=-1, keepdim=True)  # the scores, but for a constant in each row
    assert centred.var().item() == pytest.approx(39 / 40, rel=0.05)


def test_heads_of_this_library_start_with_scores_of_variance_a_quarter():
    """What chapter 9 says of the variance is true of the layers that chapters 8 and 11 build, not only of the ideal."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        x, layer, head = torch.randn(1, 400, 512), MultiHeadAttention(512, 8), SelfAttention(512, d_key=64)
        projected = F.linear(x, layer.in_proj_weight)[..., :1024]
        queries, keys = (part.unflatten(-1, (8, 64)).transpose(1, 2) for part in projected.chunk(2, dim=-1))
        assert queries.var().item() == pytest.approx(0.5, rel=0.05)
        assert (queries @ keys.transpose(-2, -1) / 8).var().item() == pytest.approx(0.25, rel=0.05)
        assert (head.query(x) @ head.key(x).transpose(-2, -1)).std().item() == pytest.approx(8 / 3, rel=0.1)


# ---------------------------------------------------------------- half precision


@VERSIONS
@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(("dtype", "epsilon"), [(torch.float16, 2**-11), (torch.bfloat16, 2**-8)])
@given(case=cases())
def test_half_precision_within_its_rounding(attention, device, dtype, epsilon, case):
    inputs, mask = case
    rounded = [tensor.to(dtype) for tensor in inputs]  # the same numbers in both precisions
    exact = explicit(*(tensor.double() for tensor in rounded), mask)
    found = attention(*(tensor.to(device) for tensor in rounded), None if mask is None else mask.to(device))
    assert found.dtype == dtype and found.isfinite().all()
    torch.testing.assert_close(found.cpu().double(), exact, atol=16 * epsilon, rtol=0)


@VERSIONS
def test_large_queries_and_keys_do_not_overflow_in_half_precision(attention):
    queries, keys, values = draw_inputs(widths=(256, 4))
    queries, keys = (18 * tensor.sign() for tensor in (queries, keys))
    keys[..., 0, :] = queries[..., 0, :]  # a dot product of 256 * 18 ** 2, more than float16 can hold
    found = attention(*(tensor.half() for tensor in (queries, keys, values)))
    torch.testing.assert_close(found.double(), explicit(queries, keys, values), atol=1e-2, rtol=0)


@pytest.mark.parametrize("device", DEVICES)
@VERSIONS
def test_autocast_takes_mixed_types(attention, device):
    queries, keys, values = (tensor.to(device) for tensor in draw_inputs(dtype=torch.float32))
    with torch.autocast(device, dtype=torch.bfloat16):
        found = attention(queries.bfloat16(), keys, values.bfloat16())
    torch.testing.assert_close(found.float(), explicit(queries, keys, values), atol=0.05, rtol=0)


# ---------------------------------------------------------------- rows that may look nowhere


@VERSIONS
@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("shape", [(4, 6), (2, 1, 4, 6), (1, 3, 1, 1), (2, 1, 1, 6), ()], ids=str)
def test_nowhere_to_look_gives_zero_and_a_finite_gradient(attention, device, dtype, shape):
    inputs = [(30 * tensor).to(device).requires_grad_() for tensor in draw_inputs(dtype=dtype)]
    mask = torch.rand(shape, generator=generator(0)).to(device) < 0.5
    row = (Ellipsis, 1, slice(None)) if len(shape) > 1 and shape[-2] > 1 else Ellipsis
    mask[row] = False
    found = attention(*inputs, mask)
    grads = torch.autograd.grad(found.sum(), inputs)
    assert found.dtype == dtype and found.isfinite().all() and all(grad.isfinite().all() for grad in grads)
    assert not found[row].any() and not grads[0][row].any()
    assert found.any() or row is Ellipsis


@VERSIONS
def test_no_key_at_all_gives_zero(attention):
    for mask in (None, torch.ones(4, 0, dtype=torch.bool)):
        found = attention(*draw_inputs(lengths=(4, 0)), mask)
        assert found.shape == (2, 3, 4, 3) and not found.any()


def test_weights_are_zero_where_a_query_may_not_look_and_sum_to_one():
    inputs, mask = draw_inputs(), torch.rand(4, 6, generator=generator(3)) < 0.5
    mask[2] = False
    _, weights = explicit_attention(*inputs, mask)
    assert not weights[..., ~mask].any()
    torch.testing.assert_close(weights.sum(dim=-1), mask.any(dim=-1).double().expand(2, 3, 4))


# ---------------------------------------------------------------- properties


@VERSIONS
@given(case=cases(), position=st.integers(0, 5))
def test_what_is_masked_has_no_influence(attention, case, position):
    (queries, keys, values), _ = case
    position %= keys.shape[-2]
    mask = torch.arange(keys.shape[-2]) != position
    before = attention(queries, keys, values, mask)
    keys, values = keys.clone(), values.clone()
    keys[..., position, :], values[..., position, :] = 50, -1000
    torch.testing.assert_close(attention(queries, keys, values, mask), before, atol=0, rtol=0)


@VERSIONS
@given(lead=st.sampled_from(LEADS), length=st.integers(1, 6), seed=st.integers(0, 100))
def test_order_of_keys_does_not_matter(attention, lead, length, seed):
    queries, keys, values = draw_inputs(lead, (3, length), seed=seed)
    order = torch.randperm(length, generator=generator(seed))
    moved = attention(queries, keys[..., order, :], values[..., order, :])
    torch.testing.assert_close(moved, attention(queries, keys, values), atol=1e-12, rtol=0)


@pytest.mark.parametrize("lead", LEADS, ids=str)
@pytest.mark.parametrize("lengths", [(5, 5), (3, 6), (6, 3)], ids=str)
def test_the_causal_flag_is_the_lower_triangle(lead, lengths):
    inputs = draw_inputs(lead, lengths)
    triangle = torch.ones(lengths, dtype=torch.bool).tril()
    found = scaled_dot_product_attention(*inputs, causal=True)
    torch.testing.assert_close(found, explicit(*inputs, triangle), atol=1e-12, rtol=0)


@VERSIONS
def test_inputs_that_are_views_and_expanded_masks(attention):
    packed = torch.randn(2, 5, 3 * 8, generator=generator(0), dtype=torch.float64)
    queries, keys, values = (part.unflatten(-1, (2, 4)).transpose(1, 2) for part in packed.chunk(3, dim=-1))
    mask = (torch.rand(2, 1, 1, 5, generator=generator(1)) < 0.7).expand(2, 2, 5, 5)
    expected = explicit(*(tensor.contiguous() for tensor in (queries, keys, values)), mask.contiguous())
    torch.testing.assert_close(attention(queries, keys, values, mask), expected, atol=1e-12, rtol=0)


def kept(attention, inputs: list[Tensor], mask: Tensor | None = None, **settings) -> int:
    """How many numbers autograd keeps for the backward pass."""
    seen: dict[int, int] = {}

    def put_aside(tensor: Tensor) -> Tensor:
        seen[tensor.data_ptr()] = tensor.numel()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(put_aside, lambda tensor: tensor):
        _found = attention(*inputs, mask, **settings)
    return sum(seen.values())


@pytest.mark.parametrize("lead", [(), (2,), (2, 3), (2, 1, 3)], ids=str)
@pytest.mark.parametrize("mask", [None, (), (256,), (1, 256), "batch"], ids=str)
@pytest.mark.parametrize("causal", [False, True])
def test_the_fused_version_never_keeps_the_weights(lead, mask, causal):
    if causal and mask is not None:
        return
    inputs = [tensor.requires_grad_() for tensor in draw_inputs(lead, (256, 256), (8, 8), dtype=torch.float32)]
    shape = (*lead, 1, 256) if mask == "batch" else mask
    allowed = None if shape is None else torch.rand(shape, generator=generator(0)) < 0.5
    n, weights = inputs[0].numel(), inputs[0].numel() // 8 * 256
    assert kept(scaled_dot_product_attention, inputs, allowed, causal=causal) <= 5 * n < weights
    assert kept(explicit, inputs, allowed) >= weights


# ---------------------------------------------------------------- dropout


@VERSIONS
def test_dropout_keeps_the_mean_and_scales_the_rest(attention):
    torch.manual_seed(0)
    queries, keys, _ = draw_inputs((1,), (200, 50), dtype=torch.float32)
    values = torch.eye(50).expand(1, 50, 50)  # so that the context is the dropped weights
    _, weights = explicit_attention(queries, keys, values)
    found = attention(queries, keys, values, dropout=0.3)
    dropped = found == 0
    assert dropped.float().mean().item() == pytest.approx(0.3, abs=0.02)
    torch.testing.assert_close(found[~dropped], (weights / 0.7)[~dropped], atol=1e-5, rtol=0)
    assert found.sum(dim=-1).mean().item() == pytest.approx(1.0, abs=0.03)


def test_dropout_draws_the_mask_that_pytorch_draws_and_returns_the_weights_before_it():
    inputs = draw_inputs()
    expected, clean = explicit_attention(*inputs)
    torch.manual_seed(1)
    context, weights = explicit_attention(*inputs, dropout=0.5)
    torch.manual_seed(1)
    fixed = F.dropout(torch.ones_like(clean), 0.5)
    torch.testing.assert_close(weights, clean)
    torch.testing.assert_close(context, (clean * fixed) @ inputs[2], atol=1e-12, rtol=0)
    assert not torch.allclose(context, expected)


@VERSIONS
def test_no_dropout_is_deterministic_and_draws_nothing(attention):
    inputs, state = draw_inputs(), torch.random.get_rng_state()
    assert torch.equal(attention(*inputs), attention(*inputs, dropout=0.0))
    assert torch.equal(torch.random.get_rng_state(), state)


@VERSIONS
def test_a_row_that_may_look_nowhere_stays_zero_under_dropout(attention):
    mask = torch.ones(4, 6, dtype=torch.bool)
    mask[3] = False
    with torch.random.fork_rng():
        assert not attention(*draw_inputs(), mask, dropout=0.5)[..., 3, :].any()


# ---------------------------------------------------------------- compiled, and without numbers


COMPILED = """
import torch
from transformer_lib.models.attention import explicit_attention, scaled_dot_product_attention

for attention in (explicit_attention, scaled_dot_product_attention):
    for lead in ((), (2, 3), (2, 1, 2)):
        inputs = [torch.randn(*lead, n, 5, dtype=torch.float64) for n in (4, 6, 6)]
        for mask in (None, torch.rand(4, 6) < 0.5, torch.rand(6) < 0.5):
            torch.compiler.reset()
            compiled = torch.compile(attention, fullgraph=True, backend="eager")
            found, expected = compiled(*inputs, mask), attention(*inputs, mask)
            torch.testing.assert_close(found, expected, atol=1e-12, rtol=0)
compiled = torch.compile(scaled_dot_product_attention, fullgraph=True, backend="eager")
torch.testing.assert_close(compiled(*inputs, causal=True), scaled_dot_product_attention(*inputs, causal=True))
print("one graph")
"""


@pytest.mark.slow
def test_compiles_to_one_graph():
    """In a process of its own, as users have it: the run-time check of annotations cannot be compiled."""
    done = subprocess.run([sys.executable, "-c", COMPILED], capture_output=True, text=True, timeout=300)
    assert done.stdout.strip() == "one graph", done.stderr[-3000:]


@VERSIONS
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.slow
def test_shapes_on_the_meta_device(attention, masked):
    inputs = [tensor.to("meta") for tensor in draw_inputs()]
    mask = torch.ones(2, 1, 1, 6, dtype=torch.bool, device="meta") if masked else None
    found = attention(*inputs, mask)
    assert found.shape == (2, 3, 4, 3) and found.is_meta


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("autocast", [False, True])
def test_on_a_cpu_half_precision_is_rounded_once(dtype, autocast):
    draw = torch.Generator().manual_seed(3)
    queries, keys, values = (torch.randn(2, 2, 6, 8, generator=draw).to(dtype).requires_grad_() for _ in range(3))
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=autocast):
        found = scaled_dot_product_attention(queries, keys, values, causal=True)
    exact = scaled_dot_product_attention(queries.float(), keys.float(), values.float(), causal=True)
    assert found.dtype == dtype and torch.equal(found, exact.to(dtype))


# ---------------------------------------------------------------- bad input

QUERIES, KEYS, VALUES = draw_inputs()
MASK = torch.ones(4, 6, dtype=torch.bool)
FAULTS = {
    "widths differ": ((QUERIES[..., :4], KEYS, VALUES), {}, r"keys is .* \(2, 3, 6, 5\), expected .*B S d_k"),
    "lengths differ": ((QUERIES, KEYS, VALUES[..., :5, :]), {}, r"values is .* \(2, 3, 5, 3\), expected"),
    "a batch of one": ((QUERIES, KEYS[:1], VALUES[:1]), {}, r"must be \(\*B, T, d_k\)"),
    "heads of values": ((QUERIES, KEYS, VALUES[:, :1]), {}, r"must be \(\*B, T, d_k\)"),
    "another number of axes": ((QUERIES[0], KEYS, VALUES), {}, r"must be \(\*B, T, d_k\)"),
    "one vector": ((QUERIES[0, 0, 0], KEYS[0, 0], VALUES[0, 0]), {}, r"\(5,\).* must be|queries is .*\(5,\)"),
    "numbers that are no floats": (
        (QUERIES.long(), KEYS.long(), VALUES.long()),
        {},
        "queries is a int64 tensor",
    ),
    "scale that is no number": ((QUERIES, KEYS, VALUES), {"scale": float("nan")}, "scale=nan must be"),
    "types differ": ((QUERIES, KEYS.float(), VALUES), {}, "not one dtype: queries: float64, keys: float32"),
    "mask of numbers": (
        (QUERIES, KEYS, VALUES, MASK.double()),
        {},
        "mask.*float64",
    ),
    "mask of whole numbers": ((QUERIES, KEYS, VALUES, MASK.long()), {}, "mask.*int64"),
    "mask too long": ((QUERIES, KEYS, VALUES, MASK.new_ones(4, 7)), {}, r"mask of shape \(4, 7\) .* \(2, 3, 4, 6\)"),
    "mask turned": ((QUERIES, KEYS, VALUES, MASK.T), {}, r"mask of shape \(6, 4\) does not broadcast"),
    "mask with the batch last": ((QUERIES, KEYS, VALUES, MASK.new_ones(2, 6)), {}, r"mask of shape \(2, 6\)"),
    "mask with an axis too many": ((QUERIES, KEYS, VALUES, MASK.new_ones(1, 1, 1, 4, 6)), {}, "does not broadcast"),
    "mask elsewhere": ((QUERIES, KEYS, VALUES, MASK.to("meta")), {}, "not one device: .*mask: meta"),
    "dropout of one": ((QUERIES, KEYS, VALUES), {"dropout": 1.0}, "dropout=1.0"),
    "negative dropout": ((QUERIES, KEYS, VALUES), {"dropout": -0.1}, "dropout=-0.1"),
}
BAD = {
    **{
        f"{name}, {version}": (lambda f=f, given=given, settings=settings: f(*given, **settings), message)
        for name, (given, settings, message) in FAULTS.items()
        for version, f in (("explicit", explicit_attention), ("fused", scaled_dot_product_attention))
    },
    "causal and a mask": (
        lambda: scaled_dot_product_attention(QUERIES, KEYS, VALUES, MASK, causal=True),
        "put both into one mask",
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_named(case):
    call, message = BAD[case]
    with pytest.raises((ValueError, TypeError, RuntimeError)) as caught:
        call()
    # With the annotations enforced, a wrong shape may be caught before our own check; test_errors.py runs without.
    error = caught.value
    assert TypeCheckError in (type(error), type(error.__cause__)) or re.search(message, str(caught.value))


# ---------------------------------------------------------------- the record


def test_the_chapter_quotes_the_record():
    record, prose = record_of("attention-cost"), prose_of("transformer/scaled_dot_product_attention")
    shown = [re.findall(r"[\d.,]+", line) for line in prose.splitlines() if line.startswith("| ") and " MB |" in line]
    names = ("length", "explicit_ms", "fused_ms", "time_ratio", "explicit_mb", "fused_mb", "memory_ratio")
    assert len(shown) == len(record["rows"]) >= 4
    for cells, row in zip(shown, record["rows"], strict=True):
        for cell, name in zip(cells, names, strict=True):
            assert float(cell.replace(",", "")) == pytest.approx(
                row[name], abs=0.05 if name == "memory_ratio" else 1e-9
            )
    assert record["command"] in prose
