"""Sparse attention: the choice against a loop, the indexer against Hugging Face's, and attention to what was picked."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional as F

from transformer_lib.models.multi_head import MultiHeadAttention, record_attention
from transformer_lib.models.sparse_attention import IndexedAttention, Indexer, choose


def numbers(*shape: int, seed: int = 1) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def layer(k: int | None = None, n_heads: int = 2) -> IndexedAttention:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return IndexedAttention(8, n_heads, Indexer(8, n_heads=2, width=4), k)


# ---------------------------------------------------------------- the indexer


@torch.no_grad()
def test_scores_equal_the_formula():
    index, x = Indexer(8, n_heads=3, width=4), numbers(2, 6, 8)
    scores = index(x)
    for b in range(2):
        q = index.wq(x[b]).view(6, 3, 4)
        k = F.layer_norm(index.wk(x[b]), (4,), eps=1e-6)
        w = index.weights_proj(x[b])
        for t in range(6):
            for s in range(6):
                votes = [w[t, j] * max(0.0, float(q[t, j] @ k[s])) for j in range(3)]
                assert float(scores[b, t, s]) == pytest.approx(float(sum(votes)) / math.sqrt(4 * 3), abs=1e-5)


@pytest.mark.parametrize("rotary", [0, 4])
def test_it_picks_what_hugging_faces_indexer_picks(rotary):
    modeling = pytest.importorskip("transformers.models.deepseek_v32.modeling_deepseek_v32")
    sizes = {"hidden_size": 12, "q_lora_rank": 12, "index_n_heads": 3, "index_head_dim": 8, "index_topk": 4}
    config = modeling.DeepseekV32Config(qk_rope_head_dim=4, num_hidden_layers=1, **sizes)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        theirs, ours = modeling.DeepseekV32Indexer(config, 0), Indexer(12, 3, 8, d_rotary=rotary)
    weights = {name.replace("wq_b", "wq"): weight for name, weight in theirs.state_dict().items()}
    ours.load_state_dict(weights)
    x, causal = numbers(2, 20, 12), torch.ones(20, 20, dtype=torch.bool).tril()
    angles = torch.arange(20)[:, None] * 10_000 ** -torch.tensor([0.0, 0.5, 0.0, 0.5])
    angles = angles[None] * (rotary > 0)
    picked = theirs(x, x, (angles.cos(), angles.sin()), causal.expand(2, 20, 20), torch.arange(20)[None]).long()
    expected = torch.zeros(2, 20, 20, dtype=torch.bool).scatter(-1, picked, True) & causal
    scores = ours(x).masked_fill(~causal, -math.inf)
    chosen, (best, _) = choose(scores, 4), scores.topk(5)
    tied = (best[..., 3] == best[..., 4]) & best[..., 4].isfinite()  # where theirs may pick any of several zeros
    assert torch.equal(chosen[~tied], expected[~tied]) and tied.float().mean() < 0.2
    picks = (scores.masked_fill(~one, -math.inf).sort().values for one in (chosen, expected))
    assert torch.equal(*picks)


# ---------------------------------------------------------------- attention to what was picked


@torch.no_grad()
def test_reading_everything_is_ordinary_causal_attention():
    ours, x = layer(), numbers(2, 9, 8)
    expected = MultiHeadAttention.forward(ours, x, causal=True)
    for ours.k in (None, 9, 20):
        torch.testing.assert_close(ours(x), expected)


@torch.no_grad()
def test_weights_are_zero_outside_the_picks_and_do_not_see_the_future():
    ours, x = layer(k=3), numbers(2, 9, 8)
    with record_attention(ours) as maps:
        before = ours(x)
    (weights,) = maps[""]
    read = ours.pick(x)[1]
    assert torch.equal((weights > 0).any(1), read) and int(read.sum(-1).max()) == 3
    x[:, 6:] += 1
    torch.testing.assert_close(ours(x)[:, :6], before[:, :6])


def test_the_index_loss_is_a_divergence_and_trains_the_indexer_alone():
    ours, x = layer(), numbers(2, 9, 8).requires_grad_()
    loss = ours.index_loss(x)
    loss.backward()
    trained = {name for name, weight in ours.named_parameters() if weight.grad is not None and weight.grad.any()}
    assert trained == {f"indexer.{name}" for name, _ in ours.indexer.named_parameters()} and x.grad is None
    with record_attention(ours) as maps, torch.no_grad():
        ours(x)
    target = maps[""][0].mean(1)
    scores, total = ours.indexer(x).detach(), 0.0
    for b in range(2):
        for t in range(9):
            index, p = scores[b, t, : t + 1].softmax(-1), target[b, t, : t + 1]
            total += float((p * (p / index).log()).sum())
    assert loss.item() == pytest.approx(total / 18, rel=1e-4)


def test_with_a_choice_the_loss_compares_the_picks_only():
    ours, x = layer(k=1), numbers(2, 9, 8)
    assert ours.index_loss(x).item() == pytest.approx(0, abs=1e-6)  # one position: both are certain
    ours.k = 3
    assert ours.index_loss(x).item() > 1e-3


# ---------------------------------------------------------------- ties, and the edges of a row

DTYPES = [torch.float64, torch.float32, torch.bfloat16, torch.float16]
every_type = pytest.mark.parametrize("dtype", DTYPES, ids=str)


@every_type
@given(data=st.data(), k=st.integers(0, 9), masked=st.booleans())
def test_of_equal_scores_the_earliest_are_chosen(dtype, data, k, masked):
    values = st.sampled_from([-math.inf, -1.0, -0.0, 0.0, 0.0, 0.5, 2.0, math.inf])
    row = data.draw(st.lists(values, max_size=8))
    allowed = data.draw(st.lists(st.booleans(), min_size=len(row), max_size=len(row))) if masked else [True] * len(row)
    scores, mask = torch.tensor([row], dtype=dtype), torch.tensor([allowed]).bool()
    kept = [s for s in range(len(row)) if allowed[s] and row[s] > -math.inf]
    expected = sorted(sorted(kept, key=lambda s: -row[s])[:k])
    chosen = choose(scores, k, mask if masked else None)
    assert chosen.shape == scores.shape and chosen[0].nonzero()[:, 0].tolist() == expected
    for more in (0.0, 9.0):  # what stands behind a row and is hidden changes nothing
        longer = torch.cat([scores, torch.full((1, 5), more, dtype=dtype)], 1)
        assert choose(longer, k, torch.cat([mask, torch.zeros(1, 5).bool()], 1))[0].nonzero()[:, 0].tolist() == expected


def test_a_number_of_positions_below_zero_is_refused_and_a_layer_reads_one_at_least():
    for k in (-1, -2):
        with pytest.raises(ValueError, match=f"k={k} must not be negative"):
            choose(torch.zeros(1, 3), k)
    for k in (-1, 0):
        with pytest.raises(ValueError, match=f"k={k} must be at least 1"):
            layer(k)


def test_a_row_that_is_no_number_still_chooses():
    """So that what is not a number is seen, instead of becoming zero."""
    scores = torch.tensor([[math.nan] * 4, [1.0, 3.0, 2.0, 0.0]])
    assert choose(scores, 2).sum(1).tolist() == [2, 2] and choose(scores, 2)[1].tolist() == [False, True, True, False]


# ---------------------------------------------------------------- a prefix alone and in a longer text


@pytest.mark.parametrize("value", [5.0, math.nan, math.inf])
@pytest.mark.parametrize("k", [None, 1, 3])
def test_padding_in_front_and_behind_changes_nothing(k, value):
    torch.manual_seed(0)
    ours, x = IndexedAttention(8, 2, Indexer(8, 2, 4, d_rotary=2), k).double(), numbers(3, 7, 8).double()
    for front, behind in ((4, 0), (0, 4), (2, 3)):
        padded = torch.cat([x[:, :front] * 0 + value, x, x[:, :behind] * 0 + value], 1)
        mask = torch.tensor([[0] * front + [1] * 7 + [0] * behind]).bool().expand(3, -1)
        found = ours(padded, mask)
        torch.testing.assert_close(found[:, front : front + 7], ours(x), atol=1e-9, rtol=1e-9)
        loss, parts = ours.index_loss(padded, mask), [*ours.indexer.parameters()]
        torch.testing.assert_close(loss, ours.index_loss(x), atol=1e-9, rtol=1e-9)
        gradients = torch.autograd.grad(loss, parts, allow_unused=True, materialize_grads=True)
        assert found.isfinite().all() and all(gradient.isfinite().all() for gradient in gradients)
    assert ours.index_loss(padded, mask & False).item() == 0  # nothing to learn from


def test_an_empty_text_is_read_and_costs_nothing():
    for k in (None, 2):
        ours, x = layer(k), numbers(2, 0, 8).requires_grad_()
        assert ours(x).shape == (2, 0, 8) and ours.index_loss(x).item() == 0


@every_type
def test_the_index_loss_is_finite_in_every_type(dtype):
    for k in (None, 1, 3):
        ours, x = layer(k), numbers(2, 9, 8)
        expected = ours.index_loss(x).item()
        loss = layer(k).to(dtype).index_loss(x.to(dtype))
        loss.backward()
        assert loss.item() == pytest.approx(expected, abs=0.02)
        ours.to(dtype).index_loss(100 * x.to(dtype)).backward()
        assert all(p.grad.isfinite().all() for p in ours.indexer.parameters())
