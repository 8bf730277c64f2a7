"""Self-attention: equal to plain loops and to PyTorch's, blind to order and padding, zero where nobody may be asked."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional as F

from transformer_lib.models.self_attention import (
    SelfAttention,
    plain_self_attention,
    soft_lookup,
)

SEEDS = st.integers(0, 1000)


def generator(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def vectors(*shape: int, seed: int = 1) -> Tensor:
    return torch.randn(*shape, generator=generator(seed)).double()


def some_mask(*shape: int, seed: int = 2) -> Tensor:
    return torch.rand(*shape, generator=generator(seed)) < 0.6


def layer(d_model: int = 6, d_key: int | None = None, d_value: int | None = None, seed: int = 0) -> SelfAttention:
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return SelfAttention(d_model, d_key=d_key, d_value=d_value).double()


def lookup_in_loops(
    queries: Tensor, keys: Tensor, values: Tensor, mask: Tensor, temperature: float
) -> tuple[Tensor, Tensor]:
    """One query, one key, one number at a time; the mask has shape (B, T, S)."""
    (rows, n_queries, _), n_keys = queries.shape, keys.shape[1]
    answers = torch.zeros(rows, n_queries, values.shape[2]).double()
    weights = torch.zeros(rows, n_queries, n_keys).double()
    for b in range(rows):
        for t in range(n_queries):
            open_keys = [s for s in range(n_keys) if mask[b, t, s]]
            scores = [
                sum(q * k for q, k in zip(queries[b, t].tolist(), keys[b, s].tolist(), strict=True)) / temperature
                for s in open_keys
            ]
            top = max(scores, default=0.0)
            total = sum(math.exp(score - top) for score in scores)
            for s, score in zip(open_keys, scores, strict=True):
                weights[b, t, s] = math.exp(score - top) / total
                for d in range(values.shape[2]):
                    answers[b, t, d] += weights[b, t, s] * values[b, s, d]
    return answers, weights


def close(ours: tuple[Tensor, Tensor], expected: tuple[Tensor, Tensor], tolerance: float = 1e-12) -> None:
    for one, other in zip(ours, expected, strict=True):
        torch.testing.assert_close(one, other, atol=tolerance, rtol=0)


# ---------------------------------------------------------------- equal to a reference


@given(
    rows=st.integers(1, 3),
    lengths=st.tuples(st.integers(1, 4), st.integers(1, 4)),
    widths=st.tuples(st.integers(1, 4), st.integers(1, 4)),
    temperature=st.floats(0.05, 10),
    seed=SEEDS,
)
def test_the_lookup_equals_loops(rows, lengths, widths, temperature, seed):
    (n_queries, n_keys), (d_key, d_value) = lengths, widths
    queries, keys = vectors(rows, n_queries, d_key, seed=seed), vectors(rows, n_keys, d_key, seed=seed + 1)
    values, mask = vectors(rows, n_keys, d_value, seed=seed + 2), some_mask(rows, n_queries, n_keys, seed=seed)
    expected = lookup_in_loops(queries, keys, values, mask, temperature)
    close(soft_lookup(queries, keys, values, mask, temperature=temperature), expected)


@given(rows=st.integers(1, 3), length=st.integers(1, 5), width=st.integers(1, 5), seed=SEEDS)
def test_self_attention_equals_loops(rows, length, width, seed):
    inputs, mask = vectors(rows, length, width, seed=seed), some_mask(rows, length, length, seed=seed)
    close(plain_self_attention(inputs, mask), lookup_in_loops(inputs, inputs, inputs, mask, 1.0))
    everything = torch.ones_like(mask)
    close(plain_self_attention(inputs), lookup_in_loops(inputs, inputs, inputs, everything, 1.0))


@given(widths=st.tuples(*[st.integers(1, 5)] * 3), rows=st.integers(1, 3), length=st.integers(1, 5), seed=SEEDS)
def test_the_learned_layer_equals_loops(widths, rows, length, seed):
    attention = layer(*widths, seed=seed)
    inputs, mask = vectors(rows, length, widths[0], seed=seed), some_mask(rows, length, length, seed=seed)

    def project(weight: Tensor) -> Tensor:
        """Each vector times the matrix, number by number."""
        numbers = [
            [[sum(w * x for w, x in zip(line, word, strict=True)) for line in weight.tolist()] for word in sentence]
            for sentence in inputs.tolist()
        ]
        return torch.tensor(numbers, dtype=torch.double)

    queries, keys, values = (project(part.weight) for part in (attention.query, attention.key, attention.value))
    close(attention(inputs, mask), lookup_in_loops(queries, keys, values, mask, 1.0))


def test_values_and_gradients_equal_pytorchs_kernel():
    attention, inputs = layer(6, 4, 5), vectors(3, 7, 6)
    mask = some_mask(3, 7, 7) | torch.eye(7, dtype=torch.bool)
    ours, theirs = inputs.clone().requires_grad_(), inputs.clone().requires_grad_()
    outputs, _ = attention(ours, mask)
    parts = attention.query(theirs), attention.key(theirs), attention.value(theirs)
    expected = F.scaled_dot_product_attention(*parts, attn_mask=mask, scale=1.0)
    torch.testing.assert_close(outputs, expected, atol=1e-12, rtol=0)
    direction = vectors(*outputs.shape, seed=5)
    grads = [
        torch.autograd.grad((y * direction).sum(), (x, *attention.parameters()))
        for x, y in ((ours, outputs), (theirs, expected))
    ]
    for one, other in zip(*grads, strict=True):
        torch.testing.assert_close(one, other, atol=1e-11, rtol=0)


def test_equals_pytorchs_module_with_one_head_once_its_scale_is_undone():
    attention, inputs = layer(6), vectors(2, 5, 6)
    theirs = nn.MultiheadAttention(6, 1, bias=False, batch_first=True).double()
    scaled = attention.query.weight * math.sqrt(6)
    theirs.in_proj_weight.data = torch.cat([scaled, attention.key.weight, attention.value.weight]).data
    theirs.out_proj.weight.data = torch.eye(6).double()
    words = torch.tensor([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0]]).bool()
    close(attention(inputs, words[:, None]), theirs(inputs, inputs, inputs, key_padding_mask=~words))


@pytest.mark.slow
def test_gradients_agree_with_finite_differences():
    attention, inputs, mask = layer(3, 2, 4), vectors(2, 4, 3).requires_grad_(), some_mask(2, 4, 4)
    mask[0, 1] = False
    assert torch.autograd.gradcheck(lambda x, *weights: attention(x, mask), (inputs, *attention.parameters()))
    assert torch.autograd.gradcheck(lambda x: plain_self_attention(x, mask), (inputs,))
    parts = [vectors(2, n, 3, seed=n).requires_grad_() for n in (2, 4, 4)]
    assert torch.autograd.gradcheck(lambda q, k, v: soft_lookup(q, k, v, mask[:, :2], temperature=0.4), parts)


# ---------------------------------------------------------------- properties


@given(data=st.data(), rows=st.integers(1, 3), length=st.integers(1, 6), seed=SEEDS, learned=st.booleans())
def test_shuffled_words_get_the_same_outputs_shuffled(data, rows, length, seed, learned):
    order = torch.tensor(data.draw(st.permutations(range(length))))
    inputs, mask = vectors(rows, length, 6, seed=seed), some_mask(rows, length, length, seed=seed)
    attend = layer(6, 4, 5, seed=seed) if learned else plain_self_attention
    outputs, weights = attend(inputs, mask)
    close(attend(inputs[:, order], mask[:, order][:, :, order]), (outputs[:, order], weights[:, order][:, :, order]))
    outputs, weights = attend(inputs)
    close(attend(inputs[:, order]), (outputs[:, order], weights[:, order][:, :, order]))


@given(data=st.data(), n_keys=st.integers(1, 6), seed=SEEDS)
def test_the_order_of_the_entries_of_a_dictionary_does_not_matter(data, n_keys, seed):
    order = torch.tensor(data.draw(st.permutations(range(n_keys))))
    queries, keys, values = vectors(1, 3, 4, seed=seed), vectors(1, n_keys, 4, seed=seed + 1), vectors(1, n_keys, 2)
    answers, weights = soft_lookup(queries, keys, values)
    close(soft_lookup(queries, keys[:, order], values[:, order]), (answers, weights[:, :, order]))


@given(lengths=st.lists(st.integers(1, 5), min_size=1, max_size=4), extra=st.integers(1, 4), learned=st.booleans())
@pytest.mark.slow
def test_padding_and_company_change_nothing(lengths, extra, learned):
    attend = layer(6, 4, 5) if learned else plain_self_attention
    longest = max(lengths) + extra
    inputs = 10 * vectors(len(lengths), longest, 6)
    words = torch.arange(longest) < torch.tensor(lengths)[:, None]
    outputs, weights = attend(inputs, words[:, None])
    assert (weights.masked_select(~words[:, None].expand_as(weights)) == 0).all()
    for row, length in enumerate(lengths):
        alone = attend(inputs[row : row + 1, :length])
        close((outputs[row : row + 1, :length], weights[row : row + 1, :length, :length]), alone)


def test_who_may_look_nowhere_gets_zeros_and_a_finite_gradient():
    attention, inputs = layer(6, 4, 5), vectors(2, 4, 6).requires_grad_()
    mask = torch.ones(2, 4, 4, dtype=torch.bool)
    mask[0, 2] = False
    mask[1] = False
    for attend in (attention, plain_self_attention):
        outputs, weights = attend(inputs, mask)
        assert (outputs[0, 2] == 0).all() and (outputs[1] == 0).all() and (outputs[0, 0] != 0).any()
        assert (weights[0, 2] == 0).all() and (weights[1] == 0).all()
        (gradient,) = torch.autograd.grad(outputs.sum(), inputs)
        assert gradient.isfinite().all() and (gradient[1] == 0).all() and (gradient[0] != 0).any()


@given(seed=SEEDS)
def test_without_parameters_the_scores_are_symmetric_and_learned_ones_are_not(seed):
    inputs = vectors(1, 4, 6, seed=seed)
    inputs = F.normalize(inputs, dim=-1)
    weights = plain_self_attention(inputs)[1][0]
    assert (weights.argmax(dim=-1) == torch.arange(4)).all()
    odds = weights.log()[:, :, None] - weights.log()[:, None, :]  # differences of scores, free of the softmax's sums
    circle = odds[0, 1, 2] + odds[1, 2, 0] + odds[2, 0, 1]  # (a01 - a02) + (a12 - a10) + (a20 - a21)
    assert abs(circle.item()) < 1e-10
    learned = layer(seed=seed)(5 * inputs)[1][0].log()
    odds = learned[:, :, None] - learned[:, None, :]
    assert abs((odds[0, 1, 2] + odds[1, 2, 0] + odds[2, 0, 1]).item()) > 1e-6


@given(n_keys=st.integers(2, 6), seed=SEEDS)
def test_a_cold_lookup_is_a_hard_one_and_a_hot_one_the_mean(n_keys, seed):
    queries, keys, values = vectors(1, 3, 4, seed=seed), vectors(1, n_keys, 4, seed=seed + 1), vectors(1, n_keys, 2)
    scores = queries @ keys.transpose(1, 2)
    best = scores.topk(2, dim=-1).values
    gap = (best[..., 0] - best[..., 1]).min().item()
    cold, _ = soft_lookup(queries, keys, values, temperature=gap / 60)
    torch.testing.assert_close(cold[0], values[0][scores[0].argmax(dim=-1)], atol=1e-9, rtol=0)
    hot, _ = soft_lookup(queries, keys, values, temperature=1e12)
    torch.testing.assert_close(hot, values.mean(dim=1, keepdim=True).expand_as(hot), atol=1e-9, rtol=0)


def test_a_python_dictionary_is_a_special_case():
    price = {"pear": 3.0, "apple": 2.0, "lemon": 4.0}
    keys, values = torch.eye(3).double(), torch.tensor(list(price.values())).double()[:, None]
    answers, _ = soft_lookup(keys, keys, values, temperature=0.001)
    assert answers.flatten().tolist() == list(price.values())


def test_the_names_of_the_weights_are_stable():
    shapes = {name: tuple(weight.shape) for name, weight in SelfAttention(6, d_key=4, d_value=5).state_dict().items()}
    assert shapes == {"query.weight": (4, 6), "key.weight": (4, 6), "value.weight": (5, 6)}
    assert {tuple(weight.shape) for weight in SelfAttention(6).parameters()} == {(6, 6)}
    assert SelfAttention(6, d_key=4).value.weight.shape == (6, 6) and SelfAttention(6, d_value=4).key.weight.shape == (
        6,
        6,
    )
