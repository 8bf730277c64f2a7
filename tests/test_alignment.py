"""Additive attention: equal to plain loops, blind to padding, safe where there is nothing to see."""

import itertools
import math
import re
from dataclasses import replace
from functools import partial

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from jaxtyping import TypeCheckError
from small import SIZES, generator, ragged, small
from torch import nn

from transformer_lib.data.batching import Pair, collate, encode_pairs
from transformer_lib.data.captions import make_captions
from transformer_lib.data.tokenizer import BOS, EOS, Tokenizer
from transformer_lib.decoding.greedy import greedy_decode
from transformer_lib.metrics import best_links
from transformer_lib.models.attention import attend, masked_softmax
from transformer_lib.models.bahdanau import (
    AdditiveScore,
    AlignedMemory,
    BahdanauSeq2Seq,
    attention_maps,
)
from transformer_lib.models.recurrent import RecurrentConfig, RecurrentSeq2Seq, RecurrentState
from transformer_lib.models.seq2seq import reorder, shares_memory
from transformer_lib.training.loop import evaluate_loss, train_on

DEVICES = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]
MODES = pytest.mark.parametrize("training", [False, True], ids=["eval", "train"])
HALVES = [torch.float16, torch.bfloat16]


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


@given(seed=st.integers(0, 10_000), sizes=st.tuples(*[st.integers(1, 5)] * 3))
@pytest.mark.slow
def test_masked_softmax_equals_loops(seed, sizes):
    scores, mask = random_case(seed, *sizes)
    weights = masked_softmax(scores, mask)
    torch.testing.assert_close(weights, softmax_loops(scores, mask), atol=1e-12, rtol=0)
    assert not weights[~mask].any()
    torch.testing.assert_close(weights.sum(-1), mask.any(-1).double(), atol=1e-12, rtol=0)


@given(seed=st.integers(0, 1000), kept=st.tuples(*[st.booleans()] * 3), dropped=st.integers(0, 2))
@pytest.mark.slow
def test_a_mask_may_be_broadcast(seed, kept, dropped):
    scores, _ = random_case(seed, 2, 3, 4)
    shape = [size if keep else 1 for size, keep in zip(scores.shape, kept, strict=True)][dropped:]
    mask = torch.rand(shape, generator=generator(seed)) < 0.6
    expected = softmax_loops(scores, mask.expand_as(scores))
    torch.testing.assert_close(masked_softmax(scores, mask), expected, atol=1e-12, rtol=0)


@pytest.mark.slow
def test_without_a_mask_it_is_the_softmax():
    scores, _ = random_case(0)
    torch.testing.assert_close(masked_softmax(scores), scores.softmax(-1), atol=0, rtol=0)
    everywhere = torch.ones_like(scores, dtype=torch.bool)
    torch.testing.assert_close(masked_softmax(scores, everywhere), scores.softmax(-1), atol=1e-15, rtol=0)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, *HALVES])
def test_nothing_to_see_gives_zeros_and_a_gradient_of_zero(device, dtype):
    scores = torch.tensor([[3.0, -2.0, 1.0], [1.0, 2.0, 3.0]], dtype=dtype, device=device, requires_grad=True)
    mask = torch.tensor([[False, False, False], [True, False, True]], device=device)
    weights = masked_softmax(scores, mask)
    assert weights.dtype == dtype and not weights[0].any()
    (weights * torch.tensor([1.0, 2.0, 4.0], dtype=dtype, device=device)).sum().backward()
    assert scores.grad.isfinite().all()
    assert not scores.grad[0].any() and scores.grad[1, 1] == 0 and scores.grad[1, 0] != 0


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", HALVES)
def test_huge_scores_in_half_precision(device, dtype):
    largest = torch.finfo(dtype).max
    scores = torch.tensor([[largest, largest, largest], [-largest / 2, -largest / 2, 0.0]], dtype=dtype, device=device)
    mask = torch.tensor([True, True, False], device=device)
    weights = masked_softmax(scores, mask)
    assert weights.tolist() == [[0.5, 0.5, 0.0], [0.5, 0.5, 0.0]]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, *HALVES])
def test_the_lowest_score_of_a_type_is_a_score_like_any_other(device, dtype):
    lowest = torch.finfo(dtype).min
    scores = torch.tensor([[lowest, 5.0, lowest], [lowest, lowest, 0.0]], dtype=dtype, device=device)
    mask = torch.tensor([[True, False, False], [True, True, False]], device=device)
    assert masked_softmax(scores, mask).tolist() == [[1.0, 0.0, 0.0], [0.5, 0.5, 0.0]]


def test_no_step_on_the_way_is_not_a_number():
    scores = torch.randn(2, 3, requires_grad=True)
    with torch.autograd.set_detect_anomaly(True):  # fails on the first NaN of the way back
        weights = masked_softmax(scores, torch.tensor([[False] * 3, [True] * 3]))
        (weights * torch.arange(3.0)).sum().backward()
    assert not scores.grad[0].any() and scores.grad[1].all()


def test_masked_scores_do_not_matter_even_if_they_are_not_numbers():
    mask = torch.tensor([True, True, False])
    scores = torch.tensor([1.0, 2.0, torch.nan], requires_grad=True)
    weights = masked_softmax(scores, mask)
    torch.testing.assert_close(weights[:2], torch.tensor([1.0, 2.0]).softmax(-1))
    weights[0].backward()
    assert scores.grad.isfinite().all()


def test_gradient_of_masked_softmax_agrees_with_finite_differences():
    scores, mask = random_case(3)
    mask[0, 0] = False
    assert torch.autograd.gradcheck(lambda s: masked_softmax(s, mask), scores.requires_grad_())


# ---------------------------------------------------------------- attend, and the additive score


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


def test_attend_takes_more_axes():
    scores, values = torch.randn(2, 3, 4, 5), torch.randn(2, 3, 5, 6)
    mask = torch.rand(2, 1, 1, 5, generator=generator(0)) < 0.5
    contexts, weights = attend(scores, values, mask)
    for head in range(3):
        alone = attend(scores[:, head], values[:, head], mask[:, 0])
        torch.testing.assert_close((contexts[:, head], weights[:, head]), alone)


@given(seed=st.integers(0, 1000), sizes=st.tuples(*[st.integers(1, 4)] * 3), widths=st.tuples(*[st.integers(1, 5)] * 3))
def test_additive_score_equals_a_triple_loop(seed, sizes, widths):
    (B, T, S), (H, K, A), draw = sizes, widths, generator(seed)
    score = AdditiveScore(H, K, A).double()
    queries, keys = torch.randn(B, T, H, generator=draw).double(), torch.randn(B, S, K, generator=draw).double()
    W, U, v = score.query.weight, score.key.weight, score.combine.weight[0]
    expected = torch.zeros(B, T, S).double()
    for b, t, s in itertools.product(range(B), range(T), range(S)):
        expected[b, t, s] = v @ torch.tanh(W @ queries[b, t] + U @ keys[b, s])
    torch.testing.assert_close(score(queries, keys), expected, atol=1e-12, rtol=0)
    torch.testing.assert_close(score.compare(queries, score.prepare(keys)), expected, atol=1e-12, rtol=0)
    assert sum(parameter.numel() for parameter in score.parameters()) == A * (H + K + 1)


def test_gradients_of_the_additive_score_agree_with_finite_differences():
    score = AdditiveScore(3, 2, 4).double()
    queries, keys = torch.randn(2, 2, 3).double().requires_grad_(), torch.randn(2, 3, 2).double().requires_grad_()

    def run(queries, keys, *weights):
        named = dict(zip(dict(score.named_parameters()), weights, strict=True))
        return torch.func.functional_call(score, named, (queries, keys))

    assert torch.autograd.gradcheck(run, (queries, keys, *score.parameters()))


# ---------------------------------------------------------------- the decoder


def test_logits_and_weights_equal_the_equations_step_by_step():
    model = small_model()
    source, target = ragged([4, 2], 13), ragged([3, 3], 11, first=BOS)
    logits = model(source, target)
    for b, length in enumerate((4, 2)):
        memory = model.encoder(source[b : b + 1, :length])
        h, backward = memory.outputs[0], memory.outputs[0, 0, 4:]  # the backward state at the first word
        s = torch.tanh(model.bridge.weight @ backward + model.bridge.bias)
        score, cell = model.attention.score, nn.GRUCell(14, 8).double()
        cell.load_state_dict({name.removesuffix("_l0"): value for name, value in model.gru.state_dict().items()})
        for i, token in enumerate(target[b]):
            e = [score.combine.weight[0] @ torch.tanh(score.query.weight @ s + score.key.weight @ hj) for hj in h]
            alpha = torch.stack(e).softmax(0)
            c, word = sum(a * hj for a, hj in zip(alpha, h, strict=True)), model.embedding.weight[token]
            s = cell(torch.cat([word, c])[None], s[None])[0]
            read = torch.tanh(model.read_out(torch.cat([word, s, c])))
            expected = model.embedding.weight @ read + model.output.bias
            torch.testing.assert_close(logits[b, i], expected, atol=1e-12, rtol=0)
            torch.testing.assert_close(model.align(source, target)[b, i, :length], alpha, atol=1e-12, rtol=0)


def test_with_one_position_it_is_the_decoder_of_chapter_3():
    config = RecurrentConfig(**SIZES, dropout=0.0)
    new, old = BahdanauSeq2Seq(config).double(), RecurrentSeq2Seq(config).double()
    decoder = {k: v for k, v in new.state_dict().items() if k in old.state_dict() and not k.startswith("encoder")}
    old.load_state_dict({**old.state_dict(), **decoder})
    vector, hidden = torch.randn(2, 1, 8).double(), torch.randn(2, 1, 8).double()
    keys = new.attention.score.prepare(vector)
    memory = AlignedMemory(vector, torch.ones(2, 1, dtype=torch.bool), keys, final=vector)
    target = ragged([4, 3], 11, first=BOS)
    one, after = new.read(target, replace(new.first_state(memory), hidden=hidden))
    other, before = old.read(target, RecurrentState(memory, hidden, vector[:, 0]))
    torch.testing.assert_close(one, other, atol=1e-12, rtol=0)
    torch.testing.assert_close(after.hidden, before.hidden, atol=1e-12, rtol=0)


@given(beam=st.integers(1, 4), steps=st.integers(1, 3), seed=st.integers(0, 100))
def test_rows_of_a_beam_attend_as_one_by_one(beam, steps, seed):
    model, source = small_model(seed), ragged([4, 2], 13)
    memory = model.encode(source)
    queries = torch.randn(2 * beam, steps, 8, generator=generator(seed)).double()
    context, weights = model.attention(queries, memory)
    assert weights.shape == (2 * beam, steps, 4)
    for row in range(2 * beam):
        alone = reorder(memory, torch.tensor([0]), torch.tensor([row // beam]))
        for one, other in zip((context, weights), model.attention(queries[row : row + 1], alone), strict=True):
            torch.testing.assert_close(one[row], other[0], atol=1e-12, rtol=0)


def test_attention_is_told_the_target_position_of_each_query():
    seen = []

    @shares_memory
    def attention(module, queries, memory, positions):
        seen.append((tuple(queries.shape), positions.tolist()))
        return (queries,)

    model, queries = small_model(), torch.randn(6, 2, 8).double()
    (same,) = attention(model, queries, model.encode(ragged([4, 2], 13)), torch.tensor([5, 6]))
    assert seen == [((2, 6, 8), [5, 6, 5, 6, 5, 6])] and torch.equal(same, queries)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.slow
def test_training_learns_to_reverse(device):
    """Words come out in the opposite order, so the attention has to run from right to left."""
    torch.manual_seed(0)
    draw = generator(0)
    rows = [torch.randint(4, 11, (int(length),), generator=draw).tolist() for length in torch.arange(64) % 3 + 2]
    data = [collate([([*row, EOS], [BOS, *row[::-1], EOS]) for row in rows])]
    model = BahdanauSeq2Seq(RecurrentConfig(11, 11, d_model=16, d_hidden=32, dropout=0.0)).to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    for _ in range(80):
        train_on(model, data, optimizer)
    assert evaluate_loss(model, data) < 0.1
    decoded = greedy_decode(model, data[0].source.to(device), max_length=6).cpu()
    assert torch.equal(decoded, data[0].target[:, 1:][:, : decoded.shape[1]])


# ---------------------------------------------------------------- maps and links


def small_translator() -> tuple[BahdanauSeq2Seq, list[Pair], Tokenizer, Tokenizer]:
    pairs = make_captions(12, seed=0, min_length=4, max_length=9)
    english = Tokenizer.train([pair.source for pair in pairs], level="word")
    german = Tokenizer.train([pair.target for pair in pairs], level="word")
    sizes = {"source_vocab_size": english.vocab_size, "target_vocab_size": german.vocab_size}
    return small_model(**sizes, dropout=0.5), pairs, english, german


@pytest.mark.slow
@MODES
@pytest.mark.parametrize("batch_size", [1, 5, 64])
def test_attention_maps_equal_one_by_one_and_restore_the_mode(training, batch_size):
    model, pairs, english, german = small_translator()
    model.train(training)
    maps = attention_maps(model, pairs, english, german, batch_size=batch_size)
    assert model.training is training and len(maps) == len(pairs)
    model.eval()
    for pair, found in zip(pairs, maps, strict=True):
        source, target = encode_pairs([pair], english, german)[0]
        alone = model.align(torch.tensor([source]), torch.tensor([target[:-1]]))[0].float()
        assert found.shape == (len(pair.target.split()) + 1, len(pair.source.split()) + 1)
        torch.testing.assert_close(found, alone.detach(), atol=1e-6, rtol=0)
        torch.testing.assert_close(found.sum(1), torch.ones(len(found)), atol=1e-5, rtol=0)
        assert not found.requires_grad


def test_the_mode_is_restored_when_the_maps_fail():
    model, pairs, english, german = small_translator()
    model.bridge = None
    with pytest.raises(TypeError):
        attention_maps(model.train(), pairs, english, german)
    assert model.training


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
    "unequal rows": (lambda: small_model()(SOURCE, TARGET[:1]), "2 sources and 1 targets"),
    "unequal rows to align": (lambda: small_model().align(SOURCE[:1], TARGET), "1 sources and 2 targets"),
}


@pytest.mark.parametrize("case", SILENT)
def test_what_would_be_silently_wrong_is_refused(case):
    call, message = SILENT[case]
    with pytest.raises((ValueError, TypeCheckError)) as caught:
        call()
    # where annotations are enforced, a wrong shape is caught before our own check
    assert isinstance(caught.value, TypeCheckError) or re.search(message, str(caught.value))
