"""Searches: judged by exhaustive search, equal to Hugging Face's, the same with a cache, without, and in a batch."""

import ast
import math
import random
import re
from dataclasses import dataclass
from itertools import product

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from jaxtyping import TypeCheckError
from marian import marian_pair
from pages import code_of, prose_of, record_of
from torch import Tensor

from transformer_lib.data.tokenizer import BOS, EOS, PAD
from transformer_lib.decoding import search
from transformer_lib.decoding.greedy import greedy_decode
from transformer_lib.decoding.sampling import sample, sampling_probabilities
from transformer_lib.decoding.search import (
    Hypothesis,
    PrefixState,
    SearchConfig,
    WithoutCache,
    beam_search,
    exhaustive_search,
    length_normalizer,
    score_hypotheses,
)
from transformer_lib.models.alignment import AlignedSeq2Seq
from transformer_lib.models.convert import from_marian
from transformer_lib.models.hard_attention import HardConfig, HardSeq2Seq
from transformer_lib.models.multi_head import MultiHeadAttention
from transformer_lib.models.recurrent import RecurrentConfig, RecurrentSeq2Seq
from transformer_lib.models.scores import LuongConfig, LuongSeq2Seq
from transformer_lib.models.seq2seq import Memory, Seq2Seq, State, keep, reorder, select
from transformer_lib.models.transformer import Transformer, TransformerConfig

DEVICES = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]
WORDS = 3  # beside PAD, BOS and EOS: a vocabulary that can be searched to the end
SMALL = {"source_vocab_size": 9, "target_vocab_size": 3 + WORDS, "d_model": 6, "d_hidden": 6, "dropout": 0.0}
SIZES = {"d_model": 8, "n_heads": 2, "n_encoder_layers": 1, "n_decoder_layers": 2, "d_ff": 8, "dropout": 0.0}
VOCABULARIES = {"source_vocab_size": 9, "target_vocab_size": 3 + WORDS}
KINDS = {
    "gru": lambda: RecurrentSeq2Seq(RecurrentConfig(**SMALL, n_layers=2)),
    "bahdanau": lambda: AlignedSeq2Seq(RecurrentConfig(**SMALL)),
    "luong": lambda: LuongSeq2Seq(LuongConfig(**SMALL, score="general", input_feeding=True)),
    "luong local": lambda: LuongSeq2Seq(LuongConfig(**SMALL, score="dot", local="p", window=1, input_feeding=False)),
    "hard": lambda: HardSeq2Seq(HardConfig(**SMALL)),
    "transformer": lambda: Transformer(TransformerConfig(**SIZES, **VOCABULARIES, tie_embeddings="none")),
    "transformer, learned": lambda: Transformer(
        TransformerConfig(**SIZES, **VOCABULARIES, tie_embeddings="target", positions="learned", norm_first=True)
    ),
}
FAST = {"luong"}  # the others with the slow tests
EVERY_KIND = pytest.mark.parametrize(
    "kind", [pytest.param(kind, marks=[] if kind in FAST else pytest.mark.slow) for kind in KINDS]
)
NORMALIZATIONS = pytest.mark.parametrize("normalization", ["wu", pytest.param("mean", marks=pytest.mark.slow)])
STOPS = pytest.mark.parametrize(
    "stop", ["bound", pytest.param("estimate", marks=pytest.mark.slow), pytest.param("full", marks=pytest.mark.slow)]
)
SOURCE = torch.tensor([[5, 4, 8, 7, EOS], [6, EOS, PAD, PAD, PAD], [8, 8, 3, EOS, PAD], [4, 7, EOS, PAD, PAD]])


def small_model(kind: str, seed: int = 0) -> Seq2Seq:
    """A model of double precision with random weights large enough for it to have opinions."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = KINDS[kind]()
        for parameter in model.parameters():
            parameter.data.add_(0.4 * torch.randn_like(parameter))
    return model.double().eval()


class Oracle(Seq2Seq):
    """Any distribution at all: the scores after each prefix are drawn at random, from a seed made of the prefix."""

    def __init__(self, seed: int = 0, words: int = WORDS) -> None:
        super().__init__()
        self.seed, self.words = seed, words
        self.drawn: dict[tuple, list[float]] = {}

    def after(self, read: tuple[int, ...], prefix: tuple[int, ...]) -> list[float]:
        if (read, prefix) not in self.drawn:
            chance = random.Random(f"{self.seed} {read} {prefix}")
            self.drawn[read, prefix] = [chance.gauss(0, 2) for _ in range(3 + self.words)]
        return self.drawn[read, prefix]

    def encode(self, source: Tensor, source_mask: Tensor) -> Memory:
        return Memory(source.double().unsqueeze(-1), source_mask)

    def decode(self, target: Tensor, memory: Memory) -> Tensor:
        read = [tuple(row[row != PAD].tolist()) for row in memory.outputs.squeeze(-1).int()]
        rows = zip(read, target[:, 1:].tolist(), strict=True)
        scores = [[self.after(words, tuple(row[:end])) for end in range(len(row) + 1)] for words, row in rows]
        return torch.tensor(scores, dtype=torch.float64)

    def start(self, memory: Memory) -> PrefixState:
        return PrefixState(memory, torch.empty(len(memory.mask), 0, dtype=torch.long))

    def step(self, token: Tensor, state: PrefixState) -> tuple[Tensor, PrefixState]:
        prefix = torch.cat([state.prefix, token[:, None]], dim=1)
        rows = torch.arange(len(state.memory.mask)).repeat_interleave(len(token) // len(state.memory.mask))
        return self.decode(prefix, select(state.memory, rows))[:, -1], PrefixState(state.memory, prefix)


class Table(Oracle):
    """A model written down by hand: the probabilities of EOS and the words after each beginning."""

    def __init__(self, table: dict[tuple[int, ...], list[float]]) -> None:
        super().__init__(words=len(next(iter(table.values()))) - 1)
        self.table = table

    def after(self, read: tuple[int, ...], prefix: tuple[int, ...]) -> list[float]:
        row = self.table.get(prefix, [1.0, *[0.0] * self.words])  # nothing written down: it ends
        return [math.log(p) if p else -math.inf for p in (0.0, 0.0, *row)]


@pytest.mark.parametrize("stop", ["bound", "estimate", "full"])
def test_what_a_model_calls_impossible_is_never_returned(stop, monkeypatch):
    certain = {(): [0.0, 1.0, 0.0, 0.0], (3,): [0.25, 0.75, 0.0, 0.0]}  # then EOS: two translations are possible
    model = Table(certain | {(3, 3): [1.0, 0.0, 0.0, 0.0]})
    steps, step = [], model.step
    monkeypatch.setattr(model, "step", lambda *arguments: steps.append(1) or step(*arguments))
    (found,) = beam_search(model, SOURCE[:1], beam_size=4, length_penalty=0.0, max_length=50, n_best=4, stop=stop)
    assert len(steps) <= 4  # nothing is left to go on with
    assert tokens_of([found]) == [[(3, 3, EOS), (3, EOS)]]
    assert [math.exp(hypothesis.log_probability) for hypothesis in found] == pytest.approx([0.75, 0.25])


@pytest.mark.parametrize("beam_size", [1, 3])
def test_a_model_that_gives_no_numbers_is_refused(beam_size):
    class Broken(Oracle):
        def after(self, read, prefix):
            return [math.nan if len(prefix) == 2 else 0.0 for _ in range(3 + self.words)]

    with pytest.raises(ValueError, match="logits hold NaN"):
        beam_search(Broken(), SOURCE, beam_size=beam_size)
    with pytest.raises(ValueError, match="logits at token 3 hold NaN"):
        sample(Broken(), SOURCE, generator=torch.Generator().manual_seed(0))


def test_what_a_prefix_decides_needs_no_numbers():
    class Broken(Oracle):
        def after(self, read, prefix):
            return super().after(read, prefix) if prefix else [math.nan] * (3 + self.words)

    forced = torch.full((len(SOURCE), 1), 3)
    assert (greedy_decode(Broken(), SOURCE, prefix=forced, max_length=4)[:, 0] == 3).all()
    forced[-1] = PAD  # this row is free
    with pytest.raises(ValueError, match="logits at token 1 hold NaN"):
        greedy_decode(Broken(), SOURCE, prefix=forced, max_length=4)


def test_a_model_that_leaves_no_token_possible_is_refused():
    nothing = Table({(): [0.0, 0.0], (3,): [0.0, 0.0]})
    for call in (lambda: beam_search(nothing, SOURCE), lambda: sample(nothing, SOURCE)):
        with pytest.raises(ValueError, match="leave no token possible"):
            call()


@pytest.mark.parametrize("cached", [True, False])
def test_no_search_writes_more_than_the_model_has_room_for(cached):
    torch.manual_seed(0)
    sizes = {"d_model": 8, "n_heads": 2, "n_encoder_layers": 1, "n_decoder_layers": 1, "d_ff": 8, "max_length": 6}
    model = Transformer(TransformerConfig(10, 10, **sizes, tie_embeddings="none")).eval()
    with torch.no_grad():  # EOS never scores best
        model.output.weight[EOS] = 0
        model.output.weight[4:] += 5 * model.output.weight[4:]
    model = model if cached else WithoutCache(model)
    assert model.max_target_length == model.max_source_length == 6
    for max_length in (5, 6, 7, 100):
        assert greedy_decode(model, SOURCE, max_length=max_length).shape[1] == min(max_length, 6)
        assert sample(model, SOURCE, top_k=1, max_length=max_length).shape[1] == min(max_length, 6)
        found = beam_search(model, SOURCE, beam_size=3, length_penalty=0.6, max_length=max_length)
        assert max(len(best.tokens) for (best,) in found) == min(max_length, 6)


def tokens_of(found: list[list[Hypothesis]]) -> list[list[tuple[int, ...]]]:
    return [[hypothesis.tokens for hypothesis in sentence] for sentence in found]


def assert_same(found: list[list[Hypothesis]], expected: list[list[Hypothesis]]) -> None:
    assert tokens_of(found) == tokens_of(expected)
    for mine, yours in zip(found, expected, strict=True):
        for one, other in zip(mine, yours, strict=True):
            assert one.log_probability == pytest.approx(other.log_probability, abs=1e-9)
            assert one.score == pytest.approx(other.score, abs=1e-9)


def as_tokens(written: Tensor) -> list[tuple[int, ...]]:
    return [tuple(token for token in row if token != PAD) for row in written.tolist()]


# ---------------------------------------------------------------- the referee


@pytest.mark.slow
@settings(max_examples=25)
@given(
    seed=st.integers(0, 10**6),
    max_length=st.integers(1, 4),
    words=st.integers(1, 3),
    alpha=st.sampled_from([-1.0, 0.0, 0.6, 1.0, 2.5]),
    normalization=st.sampled_from(["wu", "mean"]),
    stop=st.sampled_from(["bound", "estimate", "full"]),
    best=st.integers(1, 5),
)
def test_a_beam_as_wide_as_the_space_finds_the_best(seed, max_length, words, alpha, normalization, stop, best):
    model = Oracle(seed, words=words)
    size = sum(words**length for length in range(max_length + 1))
    expected = exhaustive_search(
        model, SOURCE[:2], max_length=max_length, length_penalty=alpha, n_best=best, normalization=normalization
    )
    found = beam_search(
        model,
        SOURCE[:2],
        beam_size=max(size, best),
        length_penalty=alpha,
        max_length=max_length,
        n_best=best,
        normalization=normalization,
        stop=stop,
    )
    if stop != "estimate" or alpha <= 0:  # the estimate may stop too early, but not before the beam is full
        assert_same(found, expected)
    else:
        for mine, best_of_all in zip(found, expected, strict=True):
            assert mine[0].score <= best_of_all[0].score + 1e-9


@EVERY_KIND
@NORMALIZATIONS
def test_every_translator_agrees_with_exhaustive_search(kind, normalization):
    model = small_model(kind)
    for alpha in (0.0, 0.6):
        expected = exhaustive_search(
            model, SOURCE, max_length=4, length_penalty=alpha, n_best=3, normalization=normalization
        )
        assert_same(
            beam_search(
                model, SOURCE, beam_size=121, length_penalty=alpha, max_length=4, n_best=3, normalization=normalization
            ),
            expected,
        )


def test_exhaustive_search_tries_everything_once():
    (found,) = exhaustive_search(Oracle(3), SOURCE[:1], max_length=4, length_penalty=0, n_best=10_000)
    assert len(found) == len({hypothesis.tokens for hypothesis in found}) == 1 + 3 + 9 + 27 + 81
    table = {(): [0.2, 0.5, 0.3], (3,): [0.6, 0.1, 0.3], (3, 3): [0.5, 0.25, 0.25], (3, 4): [0.1, 0.0, 0.9]}
    (found,) = exhaustive_search(Table(table), SOURCE[:1], max_length=2, length_penalty=0, n_best=100)
    assert sum(math.exp(hypothesis.log_probability) for hypothesis in found) == pytest.approx(1)
    assert found[0].tokens == (3, EOS) and math.exp(found[0].log_probability) == pytest.approx(0.3)


@pytest.mark.slow
@settings(max_examples=25)
@given(
    seed=st.integers(0, 10**6),
    beam=st.integers(2, 4),
    alpha=st.sampled_from([-0.5, 0.0, 0.6, 1.0, 3.0]),
    normalization=st.sampled_from(["wu", "mean"]),
)
def test_the_bound_stops_early_and_loses_nothing(seed, beam, alpha, normalization):
    model = Oracle(seed)
    found = beam_search(
        model, SOURCE[:2], beam_size=beam, length_penalty=alpha, max_length=6, n_best=2, normalization=normalization
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(search, "_is_done", lambda *_: False)
        assert_same(
            found,
            beam_search(
                model,
                SOURCE[:2],
                beam_size=beam,
                length_penalty=alpha,
                max_length=6,
                n_best=2,
                normalization=normalization,
            ),
        )


@pytest.mark.slow
@settings(max_examples=20)
@given(seed=st.integers(0, 10**6), beam=st.integers(2, 5), stop=st.sampled_from(["bound", "estimate", "full"]))
def test_the_best_is_the_first_of_the_best_few(seed, beam, stop):
    model = Oracle(seed)
    several = beam_search(model, SOURCE[:2], beam_size=beam, length_penalty=0.6, max_length=5, n_best=beam, stop=stop)
    assert_same(
        beam_search(model, SOURCE[:2], beam_size=beam, length_penalty=0.6, max_length=5, stop=stop),
        [sentence[:1] for sentence in several],
    )
    for sentence in several:
        assert 1 <= len(sentence) <= beam and len({hypothesis.tokens for hypothesis in sentence}) == len(sentence)
        scores = [hypothesis.score for hypothesis in sentence]
        assert scores == sorted(scores, reverse=True)
        for hypothesis in sentence:
            assert PAD not in hypothesis.tokens and BOS not in hypothesis.tokens
            assert EOS not in hypothesis.tokens[:-1]
            assert hypothesis.tokens[-1] == EOS or len(hypothesis.tokens) == 5


# ---------------------------------------------------------------- how a translation begins, ends and repeats

PREFIX = torch.tensor([[4, 3], [5, PAD], [PAD, PAD], [3, 3]])


@pytest.mark.parametrize("options", [{}, {"min_length": 3}, {"repetition_penalty": 3.0}, {"min_length": 9}])
def test_a_beam_keeps_the_rules_as_exhaustive_search_does(options):
    config = SearchConfig(beam_size=121, n_best=5, max_length=4) if options != {"min_length": 9} else None
    if config is None:
        with pytest.raises(ValueError, match="min_length=9 is more than max_length=4"):
            SearchConfig(max_length=4, **options)
        return
    prefix = PREFIX if "min_length" not in options else PREFIX[:, :1]
    for seed in range(5):
        expected = exhaustive_search(Oracle(seed), SOURCE, config, prefix=prefix, **options)
        assert_same(beam_search(Oracle(seed), SOURCE, config, prefix=prefix, **options), expected)
        plain = beam_search(Oracle(seed), SOURCE, config)
        assert tokens_of(plain) != tokens_of(expected)


@pytest.mark.parametrize("kind", ["gru", pytest.param("transformer", marks=pytest.mark.slow)])
def test_greedy_beam_and_samples_begin_as_they_are_told(kind):
    model, options = small_model(kind), {"prefix": PREFIX, "max_length": 7, "min_length": 4, "repetition_penalty": 1.5}
    greedy = greedy_decode(model, SOURCE, **options)
    assert [found[0].tokens for found in beam_search(model, SOURCE, beam_size=1, **options)] == as_tokens(greedy)
    assert torch.equal(sample(model, SOURCE, top_k=1, **options), greedy)
    drawn = sample(model, SOURCE, generator=torch.Generator().manual_seed(0), **options)
    for written in (greedy, drawn):
        assert written[0, :2].tolist() == [4, 3] and written[1, 0] == 5
        assert all(EOS not in tokens[:4] for tokens in as_tokens(written))


@dataclass(frozen=True, eq=False)
class Before(State):
    """The token before the one that is read."""

    token: Tensor


class Trigrams(torch.nn.Module):
    """A decoder-only model: what comes next depends on the two tokens before, and on nothing else."""

    def __init__(self) -> None:
        super().__init__()
        self.table = torch.nn.Embedding(49, 7, dtype=torch.float64)
        torch.nn.init.normal_(self.table.weight, std=3, generator=torch.Generator().manual_seed(0))

    def clamp_length(self, max_length: int) -> int:
        return max_length

    def start(self, rows: int) -> Before:
        return Before(None, torch.full((rows,), PAD))

    def step(self, token: Tensor, state: Before) -> tuple[Tensor, Before]:
        return self.table(7 * state.token + token), Before(None, token)


def test_a_model_without_an_encoder_goes_on_from_its_prompt():
    model, prompt = Trigrams(), torch.tensor([[4, 6], [5, PAD]])
    table = model.table.weight.detach().log_softmax(-1)

    def worth(tokens: tuple[int, ...]) -> float:
        read = zip((PAD, BOS, *tokens), (BOS, *tokens), tokens, strict=False)
        return sum(table[7 * a + b, c].item() for a, b, c in read)

    every = [(*body, EOS) for n in range(4) for body in product(range(3, 7), repeat=n)]
    every += list(product(range(3, 7), repeat=4))
    found = beam_search(model, prompt, beam_size=100, length_penalty=0, max_length=4)
    for (best,), begins in zip(found, ((4, 6), (5,)), strict=True):
        expected = max((words for words in every if words[: len(begins)] == begins), key=worth)
        assert best.tokens == expected and best.log_probability == pytest.approx(worth(expected))
    greedy = as_tokens(greedy_decode(model, prompt, max_length=6))
    assert [best.tokens for (best,) in beam_search(model, prompt, beam_size=1, max_length=6)] == greedy
    assert as_tokens(sample(model, prompt, top_k=1, max_length=6)) == greedy


@settings(max_examples=30)
@given(
    rows=st.integers(1, 4),
    size=st.integers(2, 3000),
    count=st.integers(1, 12),
    dtype=st.sampled_from([torch.float32, torch.float64, torch.bfloat16]),
    seed=st.integers(0, 10**6),
)
def test_the_largest_without_sorting_everything(rows, size, count, dtype, seed):
    scores = torch.randn(rows, size, generator=torch.Generator().manual_seed(seed)).to(dtype)
    count = min(count, size)
    values, places = search._largest(scores, count)
    assert torch.equal(values, scores.topk(count).values) and torch.equal(scores.gather(1, places), values)
    assert all(len(set(row)) == count for row in places.tolist())
    scores[0, size // 2] = math.nan
    assert search._largest(scores, count)[0][0].isnan().any()


# ---------------------------------------------------------------- equal to other ways


@EVERY_KIND
@pytest.mark.parametrize("alpha", [0.0, pytest.param(0.6, marks=pytest.mark.slow)])
@STOPS
def test_a_beam_of_one_is_greedy(kind, alpha, stop):
    for seed in range(3):
        model = small_model(kind, seed)
        found = beam_search(model, SOURCE, beam_size=1, length_penalty=alpha, max_length=7, stop=stop)
        assert [sentence[0].tokens for sentence in found] == as_tokens(greedy_decode(model, SOURCE, max_length=7))


@EVERY_KIND
def test_scores_are_those_of_the_model(kind):
    model = small_model(kind)
    for normalization, alpha in (("wu", 0.6), ("mean", 1.0)):
        found = beam_search(
            model, SOURCE, beam_size=4, length_penalty=alpha, max_length=6, n_best=4, normalization=normalization
        )
        for sentence, scores in zip(found, score_hypotheses(model, SOURCE, found), strict=True):
            assert len(sentence) == len(scores) == 4
            for hypothesis, score in zip(sentence, scores, strict=True):
                assert hypothesis.log_probability == pytest.approx(score, abs=1e-9)
                length = len(hypothesis.tokens)
                divisor = ((5 + length) / 6) ** 0.6 if normalization == "wu" else length
                assert hypothesis.score == pytest.approx(hypothesis.log_probability / divisor, abs=1e-9)


@EVERY_KIND
@pytest.mark.parametrize("beam", [1, 3, pytest.param(8, marks=pytest.mark.slow)])
def test_with_a_cache_and_without(kind, beam):
    model = small_model(kind)
    found = beam_search(model, SOURCE, beam_size=beam, length_penalty=0.6, max_length=20, n_best=min(beam, 2))
    assert_same(
        found,
        beam_search(
            WithoutCache(model), SOURCE, beam_size=beam, length_penalty=0.6, max_length=20, n_best=min(beam, 2)
        ),
    )
    assert torch.equal(
        greedy_decode(model, SOURCE, max_length=9), greedy_decode(WithoutCache(model), SOURCE, max_length=9)
    )


def test_a_transformer_with_a_cache_and_without():
    model = small_model("transformer")
    found = beam_search(model, SOURCE, beam_size=3, length_penalty=0.6, max_length=6, n_best=2)
    assert_same(
        found, beam_search(WithoutCache(model), SOURCE, beam_size=3, length_penalty=0.6, max_length=6, n_best=2)
    )


@EVERY_KIND
@STOPS
def test_a_batch_is_its_sentences_one_by_one(kind, stop):
    model = small_model(kind, seed=1)
    together = beam_search(model, SOURCE, beam_size=3, length_penalty=0.6, max_length=8, n_best=3, stop=stop)
    for row, found in zip(SOURCE, together, strict=True):
        assert_same(
            beam_search(
                model, row[row != PAD][None], beam_size=3, length_penalty=0.6, max_length=8, n_best=3, stop=stop
            ),
            [found],
        )
    order = torch.tensor([2, 0, 3, 1])
    assert_same(
        beam_search(model, SOURCE[order], beam_size=3, length_penalty=0.6, max_length=8, n_best=3, stop=stop),
        [together[i] for i in order],
    )


@EVERY_KIND
def test_a_state_keeps_some_of_its_sentences(kind):
    for model in (small_model(kind), WithoutCache(small_model(kind))):
        rows = torch.arange(4).repeat_interleave(2)
        first, second = torch.arange(8) % 3 + 3, torch.arange(8) % 2 + 3
        state = reorder(model.start(model.encode(SOURCE, SOURCE != PAD)), rows)
        _, state = model.step(torch.full((8,), BOS), state)
        _, state = model.step(first, state)
        kept = torch.tensor([3, 0, 1])
        some = keep(state, kept)
        assert len(some.memory.mask) == 3 and len(state.memory.mask) == 4
        lines = torch.tensor([6, 7, 0, 1, 2, 3])
        mine, _ = model.step(second[lines], some)
        logits, _ = model.step(second, state)
        torch.testing.assert_close(mine, logits[lines], atol=1e-12, rtol=1e-12)


def test_rows_that_cannot_be_shared_out_are_refused():
    memory = Memory(torch.zeros(2, 3, 4), torch.ones(2, 3, dtype=torch.bool))
    kept = keep(PrefixState(memory, torch.arange(6)[:, None]), torch.tensor([1, 0]))
    assert kept.prefix.flatten().tolist() == [3, 4, 5, 0, 1, 2]
    for rows in (5, 1):
        with pytest.raises(ValueError, match=f"{rows} rows, which cannot be shared out among 2 sentences"):
            keep(PrefixState(memory, torch.zeros(rows, 1, dtype=torch.long)), torch.tensor([0]))


def noisy_task(rows: int, seed: int) -> tuple[Tensor, Tensor]:
    """Sources, and targets that cannot be foreseen: some words of the source, more or fewer."""
    draw = torch.Generator().manual_seed(seed)
    source, target = torch.zeros(rows, 8, dtype=torch.long), torch.zeros(rows, 12, dtype=torch.long)
    for row in range(rows):
        length = int(torch.randint(2, 8, (1,), generator=draw))
        words = torch.randint(4, 20, (length,), generator=draw)
        source[row, :length], source[row, length] = words, EOS
        written = min(10, max(1, length + int(torch.randint(-2, 3, (1,), generator=draw))))
        target[row, 0], target[row, written + 1] = BOS, EOS
        target[row, 1 : written + 1] = words[torch.randint(0, length, (written,), generator=draw)]
    return source, target


@pytest.fixture(scope="module")
def marian() -> tuple[Transformer, torch.nn.Module]:
    """Two models with the same weights, trained a little so that they end their sentences now and then."""
    pytest.importorskip("transformers")
    with torch.random.fork_rng():
        torch.manual_seed(0)
        ours, theirs = marian_pair(20, 16, 4, (2, 3), 32, max_length=40, init_std=0.3)
    optimizer = torch.optim.Adam(theirs.parameters(), lr=3e-3)
    for step in range(100):
        source, target = noisy_task(32, step)
        mask = (source != PAD).long()
        logits = theirs(input_ids=source, attention_mask=mask, decoder_input_ids=target[:, :-1]).logits
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), target[:, 1:].flatten(), ignore_index=PAD)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    ours = from_marian(theirs.config.to_dict(), theirs.state_dict()).eval()
    return ours, theirs


@pytest.mark.slow
@pytest.mark.parametrize(("stop", "early"), [("full", True), ("estimate", False), ("bound", "never")])
@pytest.mark.parametrize("beam", [2, 3, 4, 8])
def test_equal_to_hugging_face(marian, beam, stop, early):
    ours, theirs = marian
    source, _ = noisy_task(8, 1000)
    lengths = set()
    for alpha, n_best in [*((alpha, beam) for alpha in (-0.5, 0.0, 0.6, 1.0, 2.0)), (0.6, 1)]:
        written = theirs.generate(
            input_ids=source,
            attention_mask=(source != PAD).long(),
            num_beams=beam,
            length_penalty=alpha,
            early_stopping=early,
            num_return_sequences=n_best,
            max_new_tokens=12,
            do_sample=False,
            bad_words_ids=[[PAD], [BOS]],
            return_dict_in_generate=True,
            output_scores=True,
        )
        found = beam_search(
            ours,
            source,
            beam_size=beam,
            length_penalty=alpha,
            max_length=12,
            n_best=n_best,
            normalization="mean",
            stop=stop,
        )
        flat = [hypothesis for sentence in found for hypothesis in sentence]
        expected = [tuple(row[1:].tolist()) for row in written.sequences]  # theirs are filled up with EOS
        expected = [row[: row.index(EOS) + 1] if EOS in row else row for row in expected]
        assert [hypothesis.tokens for hypothesis in flat] == [
            tuple(token for token in row if token != PAD) for row in expected
        ]
        scores = torch.tensor([hypothesis.score for hypothesis in flat])
        torch.testing.assert_close(scores, written.sequences_scores, atol=1e-4, rtol=1e-4)
        lengths |= {len(hypothesis.tokens) for hypothesis in flat}
    assert len(lengths) > 2  # or the comparison would say little about penalties and stopping


@pytest.mark.slow
def test_greedy_is_equal_to_hugging_face(marian):
    ours, theirs = marian
    source, _ = noisy_task(8, 1000)
    options = {"max_new_tokens": 12, "do_sample": False, "bad_words_ids": [[PAD], [BOS]]}
    written = theirs.generate(input_ids=source, attention_mask=(source != PAD).long(), **options)
    assert as_tokens(written[:, 1:]) == as_tokens(greedy_decode(ours, source, max_length=12))


# ---------------------------------------------------------------- made by hand

FORK = {  # greedy takes 3; but after 4 everything is certain
    (): [0.0, 0.6, 0.4],
    (3,): [0.4, 0.3, 0.3],
    (4,): [0.9, 0.1, 0.0],
}


def test_greedy_misses_what_a_beam_finds():
    model = Table(FORK)
    assert as_tokens(greedy_decode(model, SOURCE[:1], max_length=3)) == [(3, EOS)]
    for found in (
        beam_search(model, SOURCE[:1], beam_size=2, length_penalty=0, max_length=3),
        exhaustive_search(model, SOURCE[:1], max_length=3, length_penalty=0),
    ):
        assert found[0][0].tokens == (4, EOS)
        assert math.exp(found[0][0].log_probability) == pytest.approx(0.36)


def test_the_first_to_end_need_not_be_the_best():
    table = {(): [0.4, 0.6], (3,): [0.0, 1.0], (3, 3): [0.05, 0.95], (3, 3, 3): [1.0, 0.0]}
    model = Table(table)
    (found,) = beam_search(
        model, SOURCE[:1], beam_size=2, length_penalty=1.0, max_length=6, n_best=2, normalization="mean"
    )
    assert [hypothesis.tokens for hypothesis in found] == [(3, 3, 3, EOS), (EOS,)]
    (found,) = beam_search(model, SOURCE[:1], beam_size=2, length_penalty=0.0, max_length=6)
    assert found[0].tokens == (3, 3, 3, EOS)


def test_the_estimate_may_stop_too_early_and_the_bound_not():
    table = {(): [0.5, 0.5, 0.0], (3,): [0.5, 0.5, 0.0], (3, 3): [0.0, 1.0, 0.0], (3, 3, 3): [0.0, 1.0, 0.0]}
    table[3, 3, 3, 3] = [1.0, 0.0, 0.0]
    (bound,) = beam_search(
        Table(table), SOURCE[:1], beam_size=2, length_penalty=1.0, max_length=8, normalization="mean"
    )
    (full,) = beam_search(
        Table(table), SOURCE[:1], beam_size=2, length_penalty=1.0, max_length=8, normalization="mean", stop="full"
    )
    assert bound[0].tokens == (3, 3, 3, 3, EOS)
    assert full[0].tokens in {(EOS,), (3, EOS)} and full[0].score < bound[0].score
    assert (
        exhaustive_search(Table(table), SOURCE[:1], max_length=6, length_penalty=1.0, normalization="mean")[0][0].score
        == bound[0].score
    )


def test_hypotheses_that_end_leave_room_for_others():
    """Both of a beam of two prefer to end; what goes on comes from behind them, and wins."""
    table = {(): [0.0, 0.5, 0.5], (3,): [0.5, 0.3, 0.2], (4,): [0.5, 0.3, 0.2], (3, 3): [0.0, 1.0, 0.0]}
    table |= {(3, 3, 3): [0.0, 1.0, 0.0], (3, 3, 3, 3): [0.0, 0.0, 1.0]}
    (found,) = beam_search(Table(table), SOURCE[:1], beam_size=2, length_penalty=2.0, max_length=8, n_best=2)
    assert found[0].tokens == (3, 3, 3, 3, 4, EOS)
    assert found[0].log_probability == pytest.approx(math.log(0.15))


def test_a_candidate_that_ends_outside_the_beam_is_not_set_aside():
    table = {(): [0.1, 0.5, 0.4], (3,): [1.0, 0.0, 0.0], (4,): [1.0, 0.0, 0.0]}
    (found,) = beam_search(Table(table), SOURCE[:1], beam_size=2, length_penalty=0.0, max_length=4, n_best=2)
    assert [hypothesis.tokens for hypothesis in found] == [(3, EOS), (4, EOS)]  # EOS alone was the third
    (found,) = beam_search(Table(table), SOURCE[:1], beam_size=3, length_penalty=0.0, max_length=4, n_best=3)
    assert [hypothesis.tokens for hypothesis in found] == [(3, EOS), (4, EOS), (EOS,)]


@pytest.mark.slow
def test_the_penalty_makes_translations_longer():
    for seed in range(3):
        best = [
            exhaustive_search(Oracle(seed), SOURCE, max_length=4, length_penalty=alpha)
            for alpha in (-1.0, 0.0, 0.6, 1.5, 4.0)
        ]
        lengths = torch.tensor([[len(sentence[0].tokens) for sentence in found] for found in best])
        assert (lengths.diff(dim=0) >= 0).all() and lengths[-1].sum() > lengths[0].sum()


def test_the_penalty_of_the_paper():
    assert length_normalizer(1, 5.0) == 1 and length_normalizer(7) == pytest.approx(2**0.6)
    assert length_normalizer(7, 0) == 1 and length_normalizer(25, 1) == pytest.approx(5)


def test_a_vocabulary_without_words():
    found = beam_search(Oracle(0, words=0), SOURCE[:2], beam_size=3, length_penalty=0.6, max_length=5, n_best=3)
    assert tokens_of(found) == [[(EOS,)], [(EOS,)]]


def test_no_sentences():
    model, nothing = small_model("gru"), SOURCE[:0]
    assert (
        beam_search(model, nothing)
        == exhaustive_search(model, nothing, max_length=2)
        == score_hypotheses(model, nothing, [])
        == []
    )
    assert sample(model, nothing).shape == (0, 0)


# ---------------------------------------------------------------- what is computed, and how often


@dataclass
class Counts:
    encoded: int = 0
    projected: int = 0
    rows: list[int] | None = None
    memories: list[int] | None = None


def counted(model: Seq2Seq, monkeypatch: pytest.MonkeyPatch) -> Counts:
    """Count the calls of a model."""
    counts = Counts(rows=[], memories=[])
    encode, step, keys_values = model.encode, model.step, MultiHeadAttention.keys_values

    def counting_encode(*given: object) -> Memory:
        counts.encoded += 1
        return encode(*given)

    def counting_step(token: Tensor, state: object) -> object:
        counts.rows.append(len(token))
        counts.memories.append(len(state.memory.mask))
        if isinstance(model, Transformer):
            assert all(len(source.keys) == len(source.values) == counts.memories[-1] for source in state.memory.layers)
            assert all(len(cache.keys) == len(token) for cache in state.caches)
        return step(token, state)

    def counting_projection(layer: MultiHeadAttention, memory: Tensor) -> object:
        counts.projected += 1
        return keys_values(layer, memory)

    monkeypatch.setattr(model, "encode", counting_encode)
    monkeypatch.setattr(model, "step", counting_step)
    monkeypatch.setattr(MultiHeadAttention, "keys_values", counting_projection)
    return counts


@pytest.mark.slow
@EVERY_KIND
@STOPS
def test_finished_sentences_leave_the_batch(kind, stop, monkeypatch):
    model = small_model(kind, seed=2)
    alone = []
    for row in SOURCE:
        with monkeypatch.context() as patch:
            alone.append(counted(model, patch))
            beam_search(model, row[row != PAD][None], beam_size=3, length_penalty=0.6, max_length=12, stop=stop)
    counts = counted(model, monkeypatch)
    beam_search(model, SOURCE, beam_size=3, length_penalty=0.6, max_length=12, stop=stop)
    steps = [len(single.rows) for single in alone]
    assert sum(counts.rows) == sum(sum(single.rows) for single in alone)  # no row is carried that is not needed
    assert counts.memories == [sum(length > t for length in steps) for t in range(max(steps))]
    assert counts.encoded == 1


def test_cross_attention_is_neither_computed_again_nor_copied(monkeypatch):
    model = small_model("transformer")
    counts, seen = counted(model, monkeypatch), []
    step = model.step

    def watching(token: Tensor, state: object) -> object:
        seen.append((len(token), [source.keys.data_ptr() for source in state.memory.layers]))
        return step(token, state)

    monkeypatch.setattr(model, "step", watching)
    monkeypatch.setattr(search, "_is_done", lambda *_: False)  # so that nobody leaves
    beam_search(model, SOURCE, beam_size=3, length_penalty=0.6, max_length=12)
    assert counts.encoded == 1 and counts.projected == 2  # once for each decoder layer
    assert [rows for rows, _ in seen] == [4, *[12] * 11]
    assert all(places == seen[0][1] for _, places in seen)  # the same memory from the first step to the last


@EVERY_KIND
def test_the_mode_is_kept(kind):
    model = small_model(kind).train()
    for module in model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.5
    found = [beam_search(model, SOURCE, beam_size=3, max_length=6) for _ in range(2)]
    assert found[0] == found[1] and model.training
    score_hypotheses(model, SOURCE, found[0])
    exhaustive_search(model, SOURCE[:1], max_length=2)
    sample(model, SOURCE, max_length=3, generator=torch.Generator())
    assert model.training
    for bad in (lambda: beam_search(model, SOURCE + 90), lambda: sample(model, SOURCE + 90)):
        with pytest.raises(ValueError, match="source holds token id"):
            bad()
        assert model.training
    assert type(found[0][0][0].log_probability) is float and torch.is_grad_enabled()


@pytest.mark.slow
@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-4), (torch.bfloat16, 0.5), (torch.float16, 0.05)])
@pytest.mark.parametrize("kind", ["gru", "transformer"])
def test_other_precisions_and_devices(kind, dtype, tolerance, device):
    exact = small_model(kind)
    model = small_model(kind).to(device, dtype)
    found = beam_search(model, SOURCE.to(device), beam_size=3, length_penalty=0.6, max_length=6, n_best=3)
    back = [[Hypothesis(h.tokens, h.log_probability, h.score) for h in sentence] for sentence in found]
    for sentence, scores in zip(found, score_hypotheses(exact, SOURCE, back), strict=True):
        assert [hypothesis.log_probability for hypothesis in sentence] == pytest.approx(scores, abs=tolerance, rel=0.05)
    written = sample(
        model,
        SOURCE.to(device),
        temperature=0.8,
        top_k=3,
        top_p=0.9,
        max_length=6,
        generator=torch.Generator(device).manual_seed(0),
    )
    assert written.device.type == device and written.dtype == SOURCE.dtype


# ---------------------------------------------------------------- sampling


@EVERY_KIND
def test_cold_samples_are_greedy(kind):
    model = small_model(kind)
    expected = greedy_decode(model, SOURCE, max_length=8)
    for settings_ in ({"temperature": 1e-6}, {"top_k": 1}, {"top_p": 1e-9}):
        assert torch.equal(sample(model, SOURCE, max_length=8, **settings_), expected)


@pytest.mark.slow
def test_samples_follow_the_model():
    model = Oracle(5)
    (space,) = exhaustive_search(model, SOURCE[:1], max_length=3, length_penalty=0, n_best=1000)
    many = SOURCE[:1].expand(1500, -1)
    for temperature in (1.0, 0.5):
        drawn = as_tokens(
            sample(model, many, temperature=temperature, max_length=3, generator=torch.Generator().manual_seed(0))
        )
        expected = {}
        for hypothesis in space:
            probability = 1.0
            for end in range(len(hypothesis.tokens)):
                target = torch.tensor([[BOS, *hypothesis.tokens[:end]]])
                memory = model.encode(SOURCE[:1], SOURCE[:1] != PAD)
                logits = model.decode(target, memory)[0, -1]
                logits[[PAD, BOS]] = -torch.inf
                probability *= (logits / temperature).softmax(-1)[hypothesis.tokens[end]].item()
            expected[hypothesis.tokens] = probability
        assert sum(expected.values()) == pytest.approx(1) and set(drawn) <= set(expected)
        surprise = sum((drawn.count(key) - 1500 * p) ** 2 / (1500 * p) for key, p in expected.items())
        assert surprise < len(expected) + 5 * math.sqrt(2 * len(expected))
    assert len(space) == 1 + 3 + 9 + 27


@pytest.mark.slow
def test_a_seed_makes_samples_again_and_leaves_the_rest_of_chance_alone():
    model = small_model("transformer")
    before = torch.random.get_rng_state()
    one, two, other = (
        sample(model, SOURCE, max_length=9, generator=torch.Generator().manual_seed(s)) for s in (1, 1, 2)
    )
    assert torch.equal(one, two) and not torch.equal(one, other)
    assert torch.equal(torch.random.get_rng_state(), before)


@EVERY_KIND
def test_what_is_sampled_is_well_formed(kind, monkeypatch):
    model = small_model(kind)
    counts = counted(model, monkeypatch)
    written = sample(model, SOURCE, temperature=2.0, max_length=9, generator=torch.Generator().manual_seed(3))
    for row, tokens in zip(written.tolist(), as_tokens(written), strict=True):
        assert row[: len(tokens)] == list(tokens) and BOS not in tokens and EOS not in tokens[:-1]
        assert tokens[-1] == EOS or len(tokens) == 9
    lengths = [len(tokens) for tokens in as_tokens(written)]
    assert counts.rows == [sum(length > t for length in lengths) for t in range(max(lengths))]


@settings(max_examples=60)
@given(
    seed=st.integers(0, 10**6),
    temperature=st.floats(0.2, 3.0),
    top_k=st.none() | st.integers(1, 12),
    top_p=st.none() | st.floats(0.01, 1.0),
)
def test_probabilities_of_sampling(seed, temperature, top_k, top_p):
    logits = 2 * torch.randn(3, 9, generator=torch.Generator().manual_seed(seed)).double()
    found = sampling_probabilities(logits, temperature=temperature, top_k=top_k, top_p=top_p)
    torch.testing.assert_close(found.sum(-1), torch.ones(3).double())
    for row, scores in zip(found.tolist(), (logits / temperature).exp().tolist(), strict=True):
        order = sorted(range(9), key=lambda i: -scores[i])[:top_k]
        total, kept, mass = sum(scores[i] for i in order), [], 0.0
        for i in order:
            if top_p is None or mass < top_p * total:
                kept.append(i)
            mass += scores[i]
        expected = [scores[i] / sum(scores[j] for j in kept) if i in kept else 0.0 for i in range(9)]
        assert row == pytest.approx(expected, abs=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("top_k", [None, 1, 5])
@pytest.mark.parametrize("top_p", [None, 0.3, 0.9])
def test_probabilities_of_sampling_are_hugging_faces(top_k, top_p):
    process = pytest.importorskip("transformers.generation.logits_process")
    logits = torch.randn(20, 50, generator=torch.Generator().manual_seed(0)).double()
    expected = process.TemperatureLogitsWarper(0.7)(None, logits)
    if top_k is not None:
        expected = process.TopKLogitsWarper(top_k)(None, expected)
    if top_p is not None:
        expected = process.TopPLogitsWarper(top_p)(None, expected)
    found = sampling_probabilities(logits, temperature=0.7, top_k=top_k, top_p=top_p)
    torch.testing.assert_close(found, expected.softmax(-1), atol=1e-12, rtol=1e-9)


def test_all_of_the_probability_is_all_tokens():
    logits = torch.randn(8, 10_000, generator=torch.Generator().manual_seed(0)) * 4
    torch.testing.assert_close(sampling_probabilities(logits, top_p=1.0), logits.softmax(-1))
    cold = sampling_probabilities(logits, temperature=1e-39)
    assert torch.equal(cold.argmax(-1), logits.argmax(-1)) and (cold.max(-1).values == 1).all()


def test_every_part_comes_back_in_the_mode_it_was_found_in():
    model = gru()
    model.eval()
    beam_search(WithoutCache(model), SOURCE, beam_size=2, max_length=3)
    assert not model.training
    model.train()
    model.encoder.eval()  # frozen by its owner
    beam_search(model, SOURCE, beam_size=2, max_length=3)
    assert model.training and not model.encoder.training


# ---------------------------------------------------------------- the record


def test_the_chapter_quotes_the_record_of_its_benchmark():
    rows, prose = record_of("decoding")["rows"], prose_of("translation/decoding")
    for row in rows:
        rates = f"{row['tokens_per_second']:,} | {row['peer_tokens_per_second']:,}"
        ratio = f"{row['times_as_fast']:.2f}"
        assert f"| {row['measured']} | {rates} | {ratio} |" in prose
    assert "python benchmarks/decoding.py" in prose
    twice = [
        row["tokens_per_second"] for row in rows if row["measured"].startswith("beam of 4")
    ]  # one and the same call
    assert f"{min(twice)} and {max(twice)} tokens per second" in prose


def test_the_chapter_shows_the_beam_curse_as_it_was_recorded():
    record = record_of("beam-width")
    code = re.search(r"RECORD = (\{.*?^\})", code_of("translation/decoding"), re.MULTILINE | re.DOTALL).group(1)
    expected: dict[float, list[tuple]] = {0.0: [], 1.0: []}
    for row in record["rows"]:
        measured = (row[name] for name in ("relative_length", "empty", "search_errors"))
        expected[row["alpha"]].append((row["bleu"], *row["difference"], *measured))
    assert ast.literal_eval(code) == expected
    rows, prose = {row["beta"]: row for row in record["coverage"]}, prose_of("translation/decoding")
    chosen, lengths = rows[0.2], [f"{100 * rows[beta]['relative_length']:.0f}" for beta in (0.0, 0.2)]
    assert f"chosen for {chosen['other_choice']} of them" in prose and " to ".join(lengths) + " percent" in prose
    assert f"{chosen['bleu']} against {rows[0.0]['bleu']}" in prose
    assert f"from ${chosen['difference'][0]}$ to {chosen['difference'][1]}" in prose
    assert "({}, the interval from ${}$ to ${}$)".format(rows[0.8]["bleu"], *rows[0.8]["difference"]) in prose
    free = {row["beam"]: row["bleu"] for row in record["rows"] if row["alpha"] == 0}
    assert f"a beam of 16 has {free[4] - free[16]:.1f} BLEU less than a beam of 4" in prose


# ---------------------------------------------------------------- bad input


def gru() -> Seq2Seq:
    return small_model("gru")


BAD = {
    "no beam": (lambda: beam_search(gru(), SOURCE, beam_size=0), "beam_size=0"),
    "no length": (lambda: beam_search(gru(), SOURCE, max_length=0), "max_length=0"),
    "a penalty that is no number": (
        lambda: beam_search(gru(), SOURCE, length_penalty=float("nan")),
        "length_penalty=nan must be a finite number",
    ),
    "a penalty without end": (lambda: beam_search(gru(), SOURCE, length_penalty=1e4), "length_penalty=10000"),
    "no best": (lambda: beam_search(gru(), SOURCE, n_best=0), "n_best=0"),
    "more than the beam": (
        lambda: beam_search(gru(), SOURCE, beam_size=3, n_best=4),
        "n_best=4 is more than beam_size=3",
    ),
    "penalty": (
        lambda: beam_search(gru(), SOURCE, normalization="length"),
        "normalization='length' is unknown; choose from wu",
    ),
    "stop": (lambda: beam_search(gru(), SOURCE, stop="first"), "stop='first' is unknown; choose from bound, estimate"),
    "token": (lambda: beam_search(gru(), SOURCE + 9), "source holds token id"),
    "empty sentence": (lambda: beam_search(gru(), torch.zeros(1, 3, dtype=torch.long)), "row 0 of source"),
    "length 0": (lambda: length_normalizer(0), "length=0"),
    "exhaustive length": (lambda: exhaustive_search(gru(), SOURCE, max_length=0), "max_length=0"),
    "exhaustive penalty": (
        lambda: exhaustive_search(gru(), SOURCE, max_length=2, normalization="x"),
        "normalization='x'",
    ),
    "exhaustive penalty that is no number": (
        lambda: exhaustive_search(gru(), SOURCE, max_length=2, length_penalty=float("nan")),
        "length_penalty=nan must be a finite number",
    ),
    "exhaustive best": (lambda: exhaustive_search(gru(), SOURCE, max_length=2, n_best=0), "n_best=0"),
    "too many": (
        lambda: exhaustive_search(gru(), SOURCE, max_length=20),
        "max_length=20 with 3 words makes 5230176601 sequences",
    ),
    "other sentences": (lambda: score_hypotheses(gru(), SOURCE, [[]]), "hypotheses of 1 sentences for 4 sources"),
    "nothing written": (
        lambda: score_hypotheses(gru(), SOURCE[:1], [[Hypothesis((), 0.0, 0.0)]]),
        "hypotheses hold one without tokens",
    ),
    "unknown option": (lambda: beam_search(gru(), SOURCE, alpha=1), "alpha"),
    "a beam for a configuration": (
        lambda: beam_search(gru(), SOURCE, 4),
        "config is 4 (int), expected SearchConfig | None",
    ),
    "too short": (
        lambda: beam_search(gru(), SOURCE, min_length=5, max_length=4),
        "min_length=5 is more than max_length=4",
    ),
    "negative length": (lambda: beam_search(gru(), SOURCE, min_length=-1), "min_length=-1 must be at least 0"),
    "no repetition": (lambda: beam_search(gru(), SOURCE, repetition_penalty=0.0), "repetition_penalty=0.0 must be"),
    "length penalty of nothing": (lambda: length_normalizer(3, math.nan), "length_penalty=nan"),
    "prefixes of others": (
        lambda: beam_search(gru(), SOURCE, prefix=SOURCE[:2]),
        "of shape (2, 5)",
    ),
    "an impossible prefix": (
        lambda: beam_search(gru(), SOURCE, prefix=SOURCE + 90),
        "no translation of sentence 0 is possible",
    ),
    "temperature": (lambda: sample(gru(), SOURCE, temperature=0.0), "temperature=0.0"),
    "endless temperature": (lambda: sample(gru(), SOURCE, temperature=math.inf), "temperature=inf"),
    "top_k": (lambda: sample(gru(), SOURCE, top_k=0), "top_k=0"),
    "top_p 0": (lambda: sample(gru(), SOURCE, top_p=0.0), "top_p=0.0"),
    "top_p above 1": (lambda: sampling_probabilities(torch.zeros(1, 5), top_p=1.1), "top_p=1.1"),
    "sample length": (lambda: sample(gru(), SOURCE, max_length=0), "max_length=0"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_named(case):
    call, message = BAD[case]
    with pytest.raises((ValueError, TypeError)) as caught:
        call()
    assert isinstance(caught.value, TypeCheckError) or message in str(caught.value)
