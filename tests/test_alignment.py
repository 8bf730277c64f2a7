"""Additive attention: equal to plain loops, blind to padding, safe where there is nothing to see."""

import itertools
import math
import re
from functools import partial

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from jaxtyping import TypeCheckError
from small import generator, ragged, small
from torch import nn

from transformer_lib.data.batching import encode_pairs
from transformer_lib.data.captions import make_captions
from transformer_lib.data.tokenizer import BOS, Tokenizer
from transformer_lib.metrics import best_links
from transformer_lib.models.attention import attend, masked_softmax
from transformer_lib.models.bahdanau import (
    BahdanauSeq2Seq,
    attention_maps,
)
from transformer_lib.models.recurrent import RecurrentConfig

small_model = partial(small, BahdanauSeq2Seq, RecurrentConfig)


def random_case(seed: int, B: int = 2, T: int = 3, S: int = 5) -> tuple[torch.Tensor, torch.Tensor]:
    """Scores, and a mask in which some rows may be empty."""
    draw = generator(seed)
    scores = 5 * torch.randn(B, T, S, generator=draw).double()
    return scores, torch.rand(B, T, S, generator=draw) < 0.5


# ---------------------------------------------------------------- the masked softmax


def softmax_loops(scores: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """One row at a time, over the visible positions only."""
    weights = torch.zeros_like(scores)
    for index in itertools.product(*map(range, scores.shape[:-1])):
        there = [j for j in range(scores.shape[-1]) if mask[index][j]]
        highest = max((scores[index][j].item() for j in there), default=0.0)
        total = sum(math.exp(scores[index][j].item() - highest) for j in there)
        for j in there:
            weights[index][j] = math.exp(scores[index][j].item() - highest) / total
    return weights


@given(seed=st.integers(0, 1000), kept=st.tuples(*[st.booleans()] * 3), dropped=st.integers(0, 2))
@pytest.mark.slow
def test_a_mask_may_be_broadcast(seed, kept, dropped):
    scores, _ = random_case(seed, 2, 3, 4)
    shape = [size if keep else 1 for size, keep in zip(scores.shape, kept, strict=True)][dropped:]
    mask = torch.rand(shape, generator=generator(seed)) < 0.6
    expected = softmax_loops(scores, mask.expand_as(scores))
    torch.testing.assert_close(masked_softmax(scores, mask), expected, atol=1e-12, rtol=0)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16])
def test_hidden_scores_do_not_matter_and_nothing_to_see_gives_zeros(dtype):
    scores = torch.tensor([[3.0, -2.0, 1.0], [1.0, torch.nan, 3.0]], dtype=dtype, requires_grad=True)
    mask = torch.tensor([[False, False, False], [True, False, True]])
    with torch.autograd.set_detect_anomaly(True):  # fails on the first NaN of the way back
        weights = masked_softmax(scores, mask)
        (weights * torch.tensor([1.0, 2.0, 4.0], dtype=dtype)).sum().backward()
    assert weights.dtype == dtype and not weights[0].any() and weights[1].sum().item() == pytest.approx(1, abs=1e-2)
    assert not scores.grad[0].any() and scores.grad[1, 1] == 0 and scores.grad[1, 0] != 0


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16])
def test_the_lowest_and_the_largest_score_of_a_type_are_scores_like_any_other(dtype):
    lowest, largest = torch.finfo(dtype).min, torch.finfo(dtype).max
    scores = [[lowest, 5, lowest], [lowest, lowest, 0], [largest, largest, largest], [lowest / 2, lowest / 2, 0]]
    mask = torch.tensor([[True, False, False], *[[True, True, False]] * 3])
    weights = masked_softmax(torch.tensor(scores, dtype=dtype), mask)
    assert weights.tolist() == [[1.0, 0.0, 0.0], *[[0.5, 0.5, 0.0]] * 3]


# ---------------------------------------------------------------- attend


@given(seed=st.integers(0, 1000), sizes=st.tuples(*[st.integers(1, 4)] * 3), width=st.integers(1, 4))
def test_attend_equals_loops(seed, sizes, width):
    scores, mask = random_case(seed, *sizes)
    values = torch.randn(sizes[0], sizes[2], width, generator=generator(seed)).double()
    contexts, weights = attend(scores, values, mask)
    expected = softmax_loops(scores, mask)
    torch.testing.assert_close(weights, expected, atol=1e-12, rtol=0)
    for b, t in itertools.product(range(sizes[0]), range(sizes[1])):
        by_hand = sum(expected[b, t, j] * values[b, j] for j in range(sizes[2]))
        torch.testing.assert_close(contexts[b, t], by_hand, atol=1e-12, rtol=0)
        if not mask[b, t].any():
            assert not contexts[b, t].any()


# ---------------------------------------------------------------- the decoder


@pytest.mark.parametrize("n_layers", [1, 2])
def test_logits_and_weights_equal_the_equations_step_by_step(n_layers):
    model = small_model(n_layers=n_layers)
    source, target = ragged([4, 2], 13), ragged([3, 3], 11, first=BOS)
    logits, score, gru = model(source, target), model.attention.score, nn.GRU(14, 8, n_layers).double()
    gru.load_state_dict(model.gru.state_dict())
    for b, length in enumerate((4, 2)):
        memory = model.encoder(source[b : b + 1, :length])
        h, backward = memory.outputs[0], memory.final[0, :, 4:]  # each layer's backward state at the first word
        assert torch.equal(backward[-1], h[0, 4:])
        s = torch.tanh(backward @ model.bridge.weight.T + model.bridge.bias)
        for i, token in enumerate(target[b]):
            query = score.query.weight @ s[-1]  # the upper layer asks
            e = [score.combine.weight[0] @ torch.tanh(query + score.key.weight @ hj) for hj in h]
            alpha = torch.stack(e).softmax(0)
            c, word = sum(a * hj for a, hj in zip(alpha, h, strict=True)), model.embedding.weight[token]
            s = gru(torch.cat([word, c])[None], s)[1]
            read = torch.tanh(model.read_out(torch.cat([word, s[-1], c])))
            expected = model.embedding.weight @ read + model.output.bias
            torch.testing.assert_close(logits[b, i], expected, atol=1e-12, rtol=0)
            torch.testing.assert_close(model.align(source, target)[b, i, :length], alpha, atol=1e-12, rtol=0)


# ---------------------------------------------------------------- maps and links


@pytest.mark.parametrize(("training", "batch_size"), [(False, 64), (True, 5)])
def test_attention_maps_equal_one_by_one_and_restore_the_mode(training, batch_size):
    pairs = make_captions(12, seed=0, min_length=4, max_length=9)
    english, german = (
        Tokenizer.train([getattr(pair, side) for pair in pairs], level="word") for side in ("source", "target")
    )
    sizes = {"source_vocab_size": english.vocab_size, "target_vocab_size": german.vocab_size}
    model = small_model(**sizes, dropout=0.5).train(training)
    maps = attention_maps(model, pairs, english, german, batch_size=batch_size)
    assert model.training is training and len(maps) == len(pairs)
    model.eval()
    for pair, found in zip(pairs, maps, strict=True):
        source, target = encode_pairs([pair], english, german)[0]
        alone = model.align(torch.tensor([source]), torch.tensor([target[:-1]]))[0].float()
        assert found.shape == (len(pair.target.split()) + 1, len(pair.source.split()) + 1)
        torch.testing.assert_close(found, alone.detach(), atol=1e-6, rtol=0)
        assert not found.requires_grad


@given(seed=st.integers(0, 1000), T=st.integers(1, 5), S=st.integers(1, 5))
def test_best_links_equal_loops(seed, T, S):
    weights = torch.rand(T, S, generator=generator(seed))
    weights[torch.rand(T, generator=generator(seed + 1)) < 0.2] = 0  # rows that look nowhere
    expected = set()
    for t in range(T - 1):
        row = weights[t].tolist()
        if max(row) > 0 and row.index(max(row)) < S - 1:
            expected.add((row.index(max(row)), t))
    assert best_links(weights) == expected


# ---------------------------------------------------------------- what would be silently wrong

SOURCE, TARGET = ragged([3, 2], 13), ragged([4, 3], 11, first=BOS)
SILENT = {
    "links of NaN": (lambda: best_links(torch.full((2, 2), torch.nan)), "NaN"),
    "odd width": (lambda: BahdanauSeq2Seq(RecurrentConfig(5, 5, d_hidden=7)), "d_hidden must be even"),
    "reversed": (lambda: BahdanauSeq2Seq(RecurrentConfig(5, 5, reverse_source=True)), "reverse_source"),
    "no pair at a time": (lambda: attention_maps(small_model(), [], None, None, batch_size=-1), "batch_size=-1"),
    "unequal rows to align": (lambda: small_model().align(SOURCE[:1], TARGET), "1 sources and 2 targets"),
}


@pytest.mark.parametrize("case", SILENT)
def test_what_would_be_silently_wrong_is_refused(case):
    call, message = SILENT[case]
    with pytest.raises((ValueError, TypeCheckError)) as caught:
        call()
    # where annotations are enforced, a wrong shape is caught before our own check
    assert isinstance(caught.value, TypeCheckError) or re.search(message, str(caught.value))
