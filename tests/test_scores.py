"""Luong's scores and windows: equal to loops from the paper, blind to padding, the same in one go and in steps."""

import math
from functools import partial

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from small import SIZES, generator, ragged, small
from torch import Tensor

from transformer_lib.data.tokenizer import BOS
from transformer_lib.models.bahdanau import AdditiveScore, AlignedMemory, Attention, Score
from transformer_lib.models.luong import (
    DotScore,
    GeneralScore,
    LocalAttention,
    LocationScore,
    LuongConfig,
    LuongSeq2Seq,
    make_attention,
)

SCORES = ["dot", "general", "concat", "location"]
H, K, A, PLACES = 4, 5, 7, 12


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=generator(seed), dtype=torch.float64)


def make_score(kind: str, seed: int = 0) -> Score:
    """A score in double precision for queries of width H and keys of width K (dot: H)."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        made = {
            "dot": DotScore,
            "general": lambda: GeneralScore(H, K),
            "concat": lambda: AdditiveScore(H, K, A),
            "location": lambda: LocationScore(H, PLACES),
        }[kind]()
    return made.double()


def keys_for(kind: str, rows: int, length: int, seed: int = 1) -> Tensor:
    return normal(rows, length, H if kind == "dot" else K, seed=seed)


def one_score(score: Score, q: Tensor, k: Tensor, s: int) -> Tensor:
    """Section 3.1 of the paper, for one query and one key; s counts from 0."""
    if isinstance(score, GeneralScore):
        return sum(q[i] * score.key.weight[i, j] * k[j] for i in range(H) for j in range(K))
    if isinstance(score, AdditiveScore):
        joined = torch.cat([score.query.weight, score.key.weight], dim=1)
        return score.combine.weight[0] @ torch.tanh(joined @ torch.cat([q, k]))
    if isinstance(score, LocationScore):
        return sum(score.place.weight[s, i] * q[i] for i in range(H))
    return sum(q[i] * k[i] for i in range(H))


def local_weights(numbers: list[float], length: int, p: float, reach: int, gaussian: bool) -> list[float]:
    """Section 3.2 of the paper for one query: positions count from 1, of which ``length`` are words."""
    window = [s for s in range(1, length + 1) if p - reach <= s <= p + reach]
    weights = [0.0] * len(numbers)
    if window:
        highest = max(numbers[s - 1] for s in window)
        total = sum(math.exp(numbers[s - 1] - highest) for s in window)
        for s in window:
            weights[s - 1] = math.exp(numbers[s - 1] - highest) / total
            if gaussian:
                weights[s - 1] *= math.exp(-((s - p) ** 2) / (2 * (reach / 2) ** 2))
    return weights


def memory_of(score: Score, outputs: Tensor, lengths: list[int]) -> AlignedMemory:
    mask = torch.arange(outputs.shape[1]) < torch.tensor(lengths)[:, None]
    return AlignedMemory(outputs, mask, score.prepare(outputs))


small_model = partial(small, LuongSeq2Seq, LuongConfig)


# ---------------------------------------------------------------- scores


@pytest.mark.slow
@pytest.mark.parametrize("kind", SCORES)
@given(rows=st.integers(1, 3), asked=st.integers(1, 3), length=st.integers(1, 6), seed=st.integers(0, 100))
@settings(max_examples=15)
def test_scores_equal_the_formulas(kind, rows, asked, length, seed):
    score, queries = make_score(kind, seed), normal(rows, asked, H, seed=seed)
    keys = keys_for(kind, rows, length, seed + 1)
    found = score(queries, keys)
    assert found.shape == (rows, asked, length)
    for b in range(rows):
        for t in range(asked):
            for s in range(length):
                expected = one_score(score, queries[b, t], keys[b, s], s)
                torch.testing.assert_close(found[b, t, s], expected, atol=1e-12, rtol=0)


# ---------------------------------------------------------------- windows


@pytest.mark.slow
@given(
    lengths=st.lists(st.integers(1, 30), min_size=1, max_size=3),
    reach=st.integers(1, 3),
    predictive=st.booleans(),
    start=st.integers(0, 30),
    seed=st.integers(0, 50),
)
@settings(max_examples=50)
def test_local_attention_equals_the_paper(lengths, reach, predictive, start, seed):
    torch.manual_seed(seed)
    attention = LocalAttention(make_score("general", seed), reach, H if predictive else None).double()
    outputs, queries = normal(len(lengths), max(lengths), K, seed=seed), 3 * normal(len(lengths), 3, H, seed=seed)
    memory = memory_of(attention.score, outputs, lengths)
    context, weights = attention(queries, memory, torch.arange(start, start + 3))
    for b, length in enumerate(lengths):
        for t in range(3):
            p = float(start + t + 1)  # local-m: the first target word looks at the first source word
            if predictive:  # eq. 9
                hidden = torch.tanh(attention.predict[0].weight @ queries[b, t])
                p = length * torch.sigmoid(attention.predict[2].weight[0] @ hidden).item()
            numbers = attention.score.compare(queries, memory.keys)[b, t].tolist()
            expected = torch.tensor(local_weights(numbers, length, p, reach, predictive), dtype=torch.float64)
            torch.testing.assert_close(weights[b, t], expected, atol=1e-9, rtol=0)
            torch.testing.assert_close(context[b, t], expected @ outputs[b], atol=1e-9, rtol=0)


def test_centres_of_long_sources_are_exact_in_half_precision():
    attention = LocalAttention(GeneralScore(H, K), 2).half()
    mask = torch.ones(1, 5000, dtype=torch.bool)
    places = torch.tensor([2100, 4098])
    assert attention.centres(torch.zeros(1, 2, H).half(), mask, places).tolist() == [[2101.0, 4099.0]]
    predictive = LocalAttention(GeneralScore(H, K), 2, H).half()
    middle = predictive.centres(torch.zeros(1, 1, H).half(), mask[:, :4999], places[:1])
    assert middle.tolist() == [[2499.5]]


# ---------------------------------------------------------------- the translator


@pytest.mark.parametrize("feeding", [True, False])
def test_input_feeding_is_the_attentional_vector_of_the_step_before(feeding):
    model = small_model(input_feeding=feeding, n_layers=2).eval()
    source, target = ragged([5, 3], 13), ragged([4, 4], 11, first=BOS)
    decoder, memory = model, model.encode(source)
    hidden, fed, logits = memory.final, torch.zeros(2, 6).double(), []
    for word in decoder.embedding(target).unbind(1):  # section 3.3, by hand
        inputs = torch.cat([word, fed], dim=-1) if feeding else word
        outputs, hidden = decoder.gru(inputs.unsqueeze(1), state=hidden)
        state = outputs[:, 0]
        weights = []
        for row in range(2):
            numbers = torch.stack([state[row] @ decoder.attention.score.key.weight @ h for h in memory.outputs[row]])
            weights.append(numbers.masked_fill(~memory.mask[row], -torch.inf).softmax(0))
        context = torch.stack([w @ h for w, h in zip(weights, memory.outputs, strict=True)])
        fed = torch.tanh(torch.cat([context, state], dim=-1) @ decoder.attentional.weight.T)  # eq. 5
        logits.append(fed @ decoder.embedding.weight.T + decoder.output.bias)  # eq. 6
    torch.testing.assert_close(model(source, target), torch.stack(logits, dim=1), atol=1e-12, rtol=0)


@pytest.mark.parametrize(("feeding", "expected"), [(True, 5), (False, 1)])
def test_without_input_feeding_all_questions_are_asked_at_once(feeding, expected):
    model, calls = small_model(input_feeding=feeding), []
    model.attention.register_forward_hook(lambda *_: calls.append("look"))
    model(ragged([4, 3], 13), ragged([5, 5], 11, first=BOS))
    assert len(calls) == expected


@pytest.mark.parametrize(
    ("settings", "kinds"),
    [
        ({}, (Attention, GeneralScore)),
        ({"score": "dot"}, (Attention, DotScore)),
        ({"score": "concat"}, (Attention, AdditiveScore)),
        ({"score": "location"}, (Attention, LocationScore)),
        ({"local": "m"}, (LocalAttention, GeneralScore)),
        ({"local": "p", "score": "dot"}, (LocalAttention, DotScore)),
    ],
)
def test_the_configuration_makes_the_attention_it_names(settings, kinds):
    attention = make_attention(LuongConfig(**SIZES, **settings))
    assert (type(attention), type(attention.score)) == kinds
    if kinds[0] is LocalAttention:
        assert attention.window == 10 and (attention.predict is not None) == (settings["local"] == "p")


# ---------------------------------------------------------------- settings

QUERIES = normal(1, 2, H)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: LocalAttention(LocationScore(3, 4), 2), "LocationScore"),
        (lambda: LocalAttention(DotScore(), 2)(QUERIES, memory_of(DotScore(), QUERIES, [2])), "positions is None"),
        (lambda: LuongConfig(5, 5, score="location", local="m"), "score='location'"),
        (lambda: LuongConfig(5, 5, score="cosine"), "score"),
        (lambda: LuongConfig(5, 5, window=0), "window"),
        (lambda: LuongSeq2Seq(LuongConfig(5, 5, d_hidden=7)), "d_hidden must be even"),
    ],
)
def test_what_makes_no_sense_is_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_a_source_longer_than_the_location_score_is_refused():
    for most in (1, 2):  # a single score would stretch
        model = small_model(score="location", max_source_length=most)
        assert model.max_source_length == most and small_model().max_source_length is None
        with pytest.raises(ValueError, match=f"3 source tokens, at most {most}"):
            model(ragged([3], 13), ragged([3], 11, first=BOS))
