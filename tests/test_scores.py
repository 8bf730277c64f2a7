"""Luong's scores and windows: equal to loops from the paper, blind to padding, the same in one go and in steps."""

import copy
import math
from functools import partial

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from small import SIZES, generator, ragged, small
from torch import Tensor

from transformer_lib.data.batching import Batch
from transformer_lib.data.captions import make_captions
from transformer_lib.data.tokenizer import BOS, Tokenizer
from transformer_lib.models.bahdanau import AdditiveScore, AlignedMemory, Attention, Score, attention_maps
from transformer_lib.models.luong import (
    DotScore,
    GeneralScore,
    LocalAttention,
    LocationScore,
    LuongConfig,
    LuongSeq2Seq,
    attend_window,
    make_attention,
)
from transformer_lib.training.loop import evaluate_loss, train_on

SCORES = ["dot", "general", "concat", "location"]
DEVICES = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]
H, K, A, PLACES = 4, 5, 7, 12
KINDS = """dot general-unfed-deep concat concat-deep location location-unfed-deep dot-m10-unfed general-m1-deep
concat-m1 general-p1 general-p10 concat-p10-deep general-p1-unfed-deep general-p10-unfed-deep"""


def look_of(name: str) -> dict[str, object]:
    """What a name such as ``general-p10-unfed-deep`` asks for."""
    score, *rest = name.split("-")
    local = next((part for part in rest if part[0] in "mp"), None)
    return {
        "score": score,
        "local": local and local[0],
        "window": int(local[1:]) if local else 1,
        "input_feeding": "unfed" not in rest,
        "n_layers": 2 if "deep" in rest else 1,
        "max_source_length": PLACES,
    }


LOOKS = {name: look_of(name) for name in KINDS.split()}


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


@pytest.mark.slow
@pytest.mark.parametrize("kind", SCORES)
def test_gradients_of_scores_agree_with_finite_differences(kind):
    score = make_score(kind)
    queries, keys = normal(2, 3, H).requires_grad_(), keys_for(kind, 2, 4).requires_grad_()
    assert torch.autograd.gradcheck(score, (queries, keys))
    for name, parameter in score.named_parameters():

        def of_weights(weights, name=name):
            return torch.func.functional_call(score, {name: weights}, (queries.detach(), keys.detach()))

        assert torch.autograd.gradcheck(of_weights, (parameter.detach().clone().requires_grad_(),))


def test_general_with_the_identity_is_dot():
    general = GeneralScore(H, H).double()
    general.key.weight.data = torch.eye(H, dtype=torch.float64)
    queries, keys = normal(2, 3, H), normal(2, 5, H, seed=1)
    torch.testing.assert_close(general(queries, keys), DotScore()(queries, keys), atol=1e-12, rtol=0)


def test_only_location_is_blind_to_content():
    order = torch.tensor([2, 0, 3, 1])
    queries = normal(2, 3, H)
    for kind in SCORES:
        score, keys = make_score(kind), keys_for(kind, 2, 4)
        before, after = score(queries, keys), score(queries, keys[:, order])
        if kind == "location":
            assert torch.equal(before, after)
        else:
            torch.testing.assert_close(after, before[..., order], atol=1e-12, rtol=0)
            assert (after - before).abs().max() > 1e-3


def test_location_serves_sentences_up_to_its_length():
    score = make_score("location")
    assert score(normal(1, 2, H), normal(1, PLACES, K)).shape == (1, 2, PLACES)
    longest = score(normal(1, 2, H), normal(1, PLACES, K))
    shorter = score(normal(1, 2, H), normal(1, 3, K))
    torch.testing.assert_close(shorter, longest[..., :3], atol=1e-12, rtol=0)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.bfloat16, 8e-2), (torch.float16, 8e-3)])
@pytest.mark.parametrize("kind", SCORES)
def test_scores_in_other_precisions(kind, device, dtype, tolerance):
    exact = make_score(kind)
    queries, keys = normal(2, 3, H), keys_for(kind, 2, 4)
    found = copy.deepcopy(exact).to(device, dtype)(queries.to(device, dtype), keys.to(device, dtype))
    assert found.dtype == dtype
    torch.testing.assert_close(found.cpu().double(), exact(queries, keys), atol=tolerance, rtol=tolerance)


# ---------------------------------------------------------------- windows

CENTRES = st.one_of(
    st.integers(-4, 16).map(float),
    st.integers(-4, 32).map(lambda n: n / 2),
    st.integers(-4 * 1024, 16 * 1024).map(lambda n: n / 1024),  # exact: no edge is a matter of rounding
)


@pytest.mark.slow
@given(
    lengths=st.lists(st.integers(1, 8), min_size=1, max_size=3),
    padding=st.integers(0, 4),
    reach=st.integers(1, 12),
    centres=st.lists(CENTRES, min_size=1, max_size=4),
    gaussian=st.booleans(),
    seed=st.integers(0, 100),
)
@settings(max_examples=50)
def test_a_window_equals_the_paper(lengths, padding, reach, centres, gaussian, seed):
    score = make_score("general", seed)
    outputs = normal(len(lengths), max(lengths) + padding, K, seed=seed)
    memory, queries = memory_of(score, outputs, lengths), normal(len(lengths), len(centres), H, seed=seed + 1)
    p = torch.tensor(centres).expand(len(lengths), -1)
    numbers = score.compare(queries, memory.keys)
    expected = torch.tensor(
        [
            [
                local_weights(numbers[b, t].tolist(), length, p[b, t].item(), reach, gaussian)
                for t in range(len(centres))
            ]
            for b, length in enumerate(lengths)
        ],
        dtype=torch.float64,
    )
    context, weights = attend_window(score, queries, memory, p, reach, gaussian)
    torch.testing.assert_close(weights, expected, atol=1e-6, rtol=0)
    torch.testing.assert_close(context, expected @ outputs, atol=1e-5, rtol=0)


def attend_everything(score, queries, memory, centres, reach, gaussian):
    """The same by scoring every position, and masking those outside the window."""
    distance = torch.arange(1, memory.mask.shape[1] + 1) - centres[:, :, None]
    mask = memory.mask[:, None] & (distance.abs() <= reach)
    scores = score.compare(queries, memory.keys).masked_fill(~mask, -1e30)
    weights = scores.softmax(-1) * mask
    if gaussian:
        weights = weights * (-((distance) ** 2) / (2 * (reach / 2) ** 2)).exp()
    return weights @ memory.outputs, weights


@pytest.mark.slow
@given(
    lengths=st.lists(st.integers(1, 9), min_size=1, max_size=3),
    reach=st.integers(1, 6),
    asked=st.integers(1, 4),
    kind=st.sampled_from(["dot", "general", "concat"]),
    predictive=st.booleans(),
    seed=st.integers(0, 100),
)
@settings(max_examples=50)
def test_values_and_gradients_are_those_of_a_mask(lengths, reach, asked, kind, predictive, seed):
    torch.manual_seed(seed)
    attention = LocalAttention(make_score(kind, seed), reach, H if predictive else None).double()
    outputs = keys_for(kind, len(lengths), max(lengths) + 1, seed)
    queries, results = normal(len(lengths), asked, H, seed=seed + 1), []
    for way in (attend_window, attend_everything):
        inputs = (outputs.clone().requires_grad_(), queries.clone().requires_grad_())
        memory = memory_of(attention.score, inputs[0], lengths)
        centres = attention.centres(inputs[1], memory.mask, torch.arange(asked))
        context, weights = way(attention.score, inputs[1], memory, centres, reach, predictive)
        loss = (context.sin() * 3).sum() + (weights**2).sum()
        gradients = torch.autograd.grad(loss, (*inputs, *attention.parameters()), allow_unused=True)
        results.append([weights, context, *(g for g in gradients if g is not None)])
    assert len(results[0]) == len(results[1])
    for one, other in zip(*results, strict=True):
        torch.testing.assert_close(one, other, atol=1e-10, rtol=0)


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


@pytest.mark.parametrize("length", [6, 20], ids=["whole", "windowed"])
@pytest.mark.slow
def test_gradients_of_the_window_agree_with_finite_differences(length):
    torch.manual_seed(0)
    attention = LocalAttention(make_score("general"), 2, H).double()
    outputs, queries = normal(2, length, K), normal(2, 3, H, seed=5)
    first, second = attention.predict[0].weight, attention.predict[2].weight

    def context(outputs, queries, first, second):
        weights = {"predict.0.weight": first, "predict.2.weight": second}
        memory = memory_of(attention.score, outputs, [length, length - 2])
        return torch.func.functional_call(attention, weights, (queries, memory, torch.arange(3)))[0]

    inputs = [tensor.detach().clone().requires_grad_() for tensor in (outputs, queries, first, second)]
    assert torch.autograd.gradcheck(context, inputs)
    gradients = torch.autograd.grad(context(*inputs).square().sum(), inputs)
    assert all(gradient.abs().max() > 1e-6 for gradient in gradients)


@pytest.mark.slow
@given(lengths=st.lists(st.integers(1, 9), min_size=1, max_size=3), extra=st.integers(0, 3))
@settings(max_examples=50)
def test_a_window_longer_than_the_sentence_is_global(lengths, extra):
    score = make_score("concat")
    memory = memory_of(score, normal(len(lengths), max(lengths), K), lengths)
    queries, places = normal(len(lengths), 4, H), torch.arange(4)
    found = LocalAttention(score, max(*lengths, 4) + extra)(queries, memory, places)
    expected = Attention(score)(queries, memory, places)
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, atol=1e-12, rtol=0)


@pytest.mark.parametrize("gaussian", [False, True])
def test_a_window_outside_the_sentence_gives_zeros_and_finite_gradients(gaussian):
    score = make_score("general")
    outputs, queries = normal(1, 5, K).requires_grad_(), normal(1, 3, H).requires_grad_()
    centres = torch.tensor([[-9.0, 30.0, 3.0]], requires_grad=True)
    context, weights = attend_window(score, queries, memory_of(score, outputs, [4]), centres, 2, gaussian)
    assert not weights[0, :2].any() and not context[0, :2].any() and weights[0, 2].any()
    context.square().sum().backward()
    for tensor in (outputs, queries, score.key.weight, *([centres] if gaussian else [])):
        assert torch.isfinite(tensor.grad).all()


def test_local_m_past_the_end_of_a_short_source():
    attention = LocalAttention(make_score("general"), 1).double()
    memory = memory_of(attention.score, normal(2, 14, K), [14, 3])
    _, weights = attention(normal(2, 10, H), memory, torch.arange(10))
    sees = [[s + 1 for s in range(14) if row[s] > 0] for row in weights[1]]
    assert sees == [[1, 2], [1, 2, 3], [2, 3], [3], [], [], [], [], [], []]
    assert [s + 1 for s in range(14) if weights[0, 9, s] > 0] == [9, 10, 11]


def test_the_gaussian_takes_away_and_local_m_has_none():
    queries, places = normal(2, 3, H), torch.arange(3)
    for d_query in (None, H):
        torch.manual_seed(0)
        attention = LocalAttention(make_score("general"), 3, d_query).double()
        totals = attention(queries, memory_of(attention.score, normal(2, 6, K), [6, 6]), places)[1].sum(-1)
        if d_query is None:
            torch.testing.assert_close(totals, torch.ones_like(totals))
        else:
            assert (totals < 0.999).all() and (totals > 0).all()


@pytest.mark.slow
@given(extra=st.integers(1, 20), reach=st.integers(1, 4), predictive=st.booleans())
@settings(max_examples=50)
def test_padding_does_not_move_the_window(extra, reach, predictive):
    torch.manual_seed(0)
    attention = LocalAttention(make_score("general"), reach, H if predictive else None).double()
    outputs, queries, places = normal(2, 6, K), normal(2, 4, H), torch.arange(4)
    before = attention(queries, memory_of(attention.score, outputs, [6, 3]), places)
    padded = torch.cat([outputs, normal(2, extra, K, seed=9)], dim=1)
    after = attention(queries, memory_of(attention.score, padded, [6, 3]), places)
    torch.testing.assert_close(after[0], before[0], atol=1e-12, rtol=0)
    torch.testing.assert_close(after[1][..., :6], before[1], atol=1e-12, rtol=0)
    assert not after[1][..., 6:].any()


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.bfloat16, 6e-2), (torch.float16, 8e-3)])
@pytest.mark.parametrize("length", [8, 40], ids=["whole", "windowed"])
@pytest.mark.parametrize("d_query", [None, H], ids=["m", "p"])
def test_windows_in_other_precisions(length, d_query, device, dtype, tolerance):
    torch.manual_seed(0)
    exact = LocalAttention(make_score("general"), 2, d_query).double()
    outputs, queries, places = normal(2, length, K), normal(2, 3, H), torch.arange(3)

    def attend(attention, dtype, device):
        memory = memory_of(attention.score.cpu(), outputs.to(dtype), [length, length - 2])
        at = AlignedMemory(*(part.to(device) for part in (memory.outputs, memory.mask, memory.keys)))
        return attention.to(device)(queries.to(device, dtype), at, places.to(device))

    expected = attend(exact, torch.float64, "cpu")
    found = attend(copy.deepcopy(exact).to(dtype), dtype, device)
    assert found[0].dtype == found[1].dtype == dtype
    if d_query is None:  # with a predicted centre, rounding may put a position on the other side of the edge
        torch.testing.assert_close(found[1].cpu().double(), expected[1], atol=tolerance, rtol=0)
    torch.testing.assert_close(found[0].cpu().double(), expected[0], atol=4 * tolerance, rtol=0)


def test_centres_of_long_sources_are_exact_in_half_precision():
    attention = LocalAttention(GeneralScore(H, K), 2).half()
    mask = torch.ones(1, 5000, dtype=torch.bool)
    places = torch.tensor([2100, 4098])
    assert attention.centres(torch.zeros(1, 2, H).half(), mask, places).tolist() == [[2101.0, 4099.0]]
    predictive = LocalAttention(GeneralScore(H, K), 2, H).half()
    middle = predictive.centres(torch.zeros(1, 1, H).half(), mask[:, :4999], places[:1])
    assert middle.tolist() == [[2499.5]]


# ---------------------------------------------------------------- the translator


def test_the_question_is_asked_after_the_word_is_read():
    model = small_model().eval()
    source, target = ragged([5], 13), ragged([5], 11, first=BOS)
    changed = target.clone()
    changed[:, 2] = 4 + (changed[:, 2] + 1) % 7
    moved = (model.align(source, changed) - model.align(source, target)).abs().amax(dim=-1)[0]
    assert not moved[:2].any() and (moved[2:] > 1e-9).all()


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


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("look", ["dot", "location", "concat-m1", "general-p1"])
@pytest.mark.slow
def test_training_reaches_every_parameter(look, device):
    torch.manual_seed(0)
    changes = {**LOOKS[look], "d_model": 16, "d_hidden": 32, "dropout": 0.1}
    model = LuongSeq2Seq(LuongConfig(**{**SIZES, **changes})).to(device)
    rows = ragged([4, 3, 5, 2] * 8, 11)
    target = torch.cat([torch.full((32, 1), BOS), rows], dim=1)
    data = [Batch(rows, target, tuple(range(32)))]
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    before = evaluate_loss(model, data)
    for _ in range(25):
        train_on(model, data, optimizer)
    assert evaluate_loss(model, data) < 0.8 * before
    assert all(torch.isfinite(p).all() and p.dtype == torch.float32 for p in model.parameters())
    assert all(p.grad is not None and p.grad.abs().max() > 0 for p in model.attention.parameters())


def test_attention_maps_of_captions():
    pairs = make_captions(5, seed=0, min_length=4, max_length=8)
    english, german = (
        Tokenizer.train([getattr(p, side) for p in pairs], level="word") for side in ("source", "target")
    )
    model = LuongSeq2Seq(LuongConfig(english.vocab_size, german.vocab_size, d_model=8, d_hidden=8, local="p", window=2))
    for pair, weights in zip(pairs, attention_maps(model, pairs, english, german), strict=True):
        assert weights.shape == (len(pair.target.split()) + 1, len(pair.source.split()) + 1)


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


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: LocalAttention(LocationScore(3, 4), 2), "LocationScore"),
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
    model = small_model(score="location", max_source_length=2)
    assert model.max_source_length == 2 and small_model().max_source_length is None
    with pytest.raises((RuntimeError, TypeError)):
        model(ragged([3], 13), ragged([3], 11, first=BOS))


# ---------------------------------------------------------------- the page quotes its records
