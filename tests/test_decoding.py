"""Searches: judged by exhaustive and by plain ones, equal to Hugging Face's, with a cache and without, in a batch."""

import math
import threading
from dataclasses import replace
from itertools import chain, product

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from marian import marian_pair
from oracles import (
    Hypothesis,
    Oracle,
    Uncached,
    as_lists,
    as_tokens,
    exhaustive_search,
    log_probability,
    plain_beam_search,
)
from torch import Tensor, nn

from transformer_lib.data.tokenizer import BOS, EOS, PAD, Tokenizer
from transformer_lib.decoding.beam_search import Hypotheses, SearchConfig, Step, beam_search, log_probabilities
from transformer_lib.decoding.greedy import generate, greedy_decode, largest, penalize_repetition, translate
from transformer_lib.decoding.sampling import sample, sampling_probabilities
from transformer_lib.models.convert import from_hf
from transformer_lib.models.gpt import GPT, GPTConfig
from transformer_lib.models.recurrent import RecurrentConfig, RecurrentSeq2Seq
from transformer_lib.models.transformer import Transformer, TransformerConfig

SIZES = {"d_model": 8, "n_heads": 2, "n_encoder_layers": 1, "n_decoder_layers": 2, "d_ff": 8, "dropout": 0.0}
KINDS = {
    "gru": lambda: RecurrentSeq2Seq(RecurrentConfig(9, 6, d_model=6, d_hidden=6, dropout=0.0, n_layers=2)),
    "transformer": lambda: Transformer(TransformerConfig(9, 6, **SIZES, tie_embeddings="none")),
}
EVERY_SEARCH = [greedy_decode, sample, beam_search]
SOURCE = torch.tensor([[5, 4, 8, 7, EOS], [6, EOS, PAD, PAD, PAD], [8, 8, 3, EOS, PAD], [4, 7, EOS, PAD, PAD]])
PREFIX = torch.tensor([[4, 3], [5, PAD], [PAD, PAD], [3, PAD]])


def tokens_of(found: Tensor | Hypotheses) -> Tensor:
    """The tokens that any search has found."""
    return found.tokens[:, 0] if isinstance(found, Hypotheses) else found


def small_model(kind: str, seed: int = 0) -> nn.Module:
    """A model of double precision with random weights large enough for it to have opinions."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = KINDS[kind]()
        for parameter in model.parameters():
            parameter.data.add_(0.4 * torch.randn_like(parameter))
    return model.double().eval()


class Table(Oracle):
    """The probabilities of EOS and of the words after each beginning, written down by hand."""

    def __init__(self, table: dict[tuple[int, ...], list[float]]) -> None:
        super().__init__(words=len(next(iter(table.values()))) - 1)
        self.table = table

    def after(self, source: tuple[int, ...], prefix: tuple[int, ...]) -> list[float]:
        row = self.table.get(prefix, [1.0, *[0.0] * self.words])  # nothing written down: it ends
        return [math.log(p) if p else -math.inf for p in (0.0, 0.0, *row)]


def assert_same(mine: list[list[Hypothesis]], theirs: list[list[Hypothesis]]) -> None:
    assert [[h.tokens for h in row] for row in mine] == [[h.tokens for h in row] for row in theirs]
    for one, other in zip(chain(*mine), chain(*theirs), strict=True):
        assert one[1:] == pytest.approx(other[1:], abs=1e-9)


CONFIGS = st.builds(
    lambda **options: SearchConfig(**options | {"min_length": min(options["min_length"], options["max_length"])}),
    beam_size=st.integers(1, 5),
    length_penalty=st.sampled_from([-1.0, 0.0, 0.6, 1.0, 2.5]),
    max_length=st.integers(1, 6),
    min_length=st.integers(0, 3),
    repetition_penalty=st.sampled_from([1.0, 1.0, 1.5]),
    normalization=st.sampled_from(["wu", "mean"]),
    max_ratio=st.sampled_from([None, 0.6, 1.0, 1.4]),
    lookahead=st.none(),  # the exact rule
)


def refused(config, source):
    """Does the ratio leave a sentence fewer tokens than the smallest length? Then the search has to say so."""
    lengths = (source != PAD).sum(1).clamp(min=1) * (config.max_ratio or math.inf)
    contradictory = config.min_length > max(1, int(lengths.clamp(max=99).min()))
    if contradictory:
        with pytest.raises(ValueError, match=f"min_length={config.min_length} for sentence"):
            beam_search(Oracle(0), source, config)
    return contradictory


# ---------------------------------------------------------------- the referees


@settings(max_examples=40)
@given(seed=st.integers(0, 10**6), words=st.integers(1, 3), n_best=st.integers(1, 5), forced=st.booleans(), c=CONFIGS)
def test_a_beam_as_wide_as_the_space_equals_exhaustive_search(seed, words, n_best, forced, c):
    longest = min(c.max_length, 4)
    config = replace(c, beam_size=121, n_best=n_best, max_length=longest, min_length=min(c.min_length, longest))
    if refused(config, SOURCE[:2]):
        return
    prefix = PREFIX[:2, :longest].clamp(max=2 + words) if forced else None
    expected = exhaustive_search(Oracle(seed, words), SOURCE[:2], config, prefix)
    assert_same(as_lists(beam_search(Oracle(seed, words), SOURCE[:2], config, prefix=prefix)), expected)


@settings(max_examples=60)
@given(seed=st.integers(0, 10**6), n_best=st.integers(1, 5), config=CONFIGS)
def test_it_equals_a_plain_search_that_never_stops_early(seed, n_best, config):
    model, config = Oracle(seed), replace(config, n_best=min(n_best, config.beam_size))
    if refused(config, SOURCE):
        return
    if config.beam_size == 1:  # greedy: the first translation, without a look at longer ones
        config = replace(config, max_ratio=None)
        expected = [
            as_tokens(
                greedy_decode(
                    model,
                    SOURCE,
                    max_length=config.max_length,
                    min_length=config.min_length,
                    repetition_penalty=config.repetition_penalty,
                )
            )
        ]
        assert [[h.tokens for (h,) in as_lists(beam_search(model, SOURCE, config))]] == expected
    else:
        expected = [plain_beam_search(model, row[row != PAD], config) for row in SOURCE]
        assert_same(as_lists(beam_search(model, SOURCE, config)), expected)


def test_greedy_beam_of_one_and_cold_samples_are_the_same():
    for seed, options in enumerate(({}, {"prefix": PREFIX, "min_length": 4, "repetition_penalty": 1.5})):
        model, options = small_model("transformer", seed), {"max_length": 7, **options}
        greedy = greedy_decode(model, SOURCE, **options)
        assert torch.equal(beam_search(model, SOURCE, beam_size=1, **options).tokens[:, 0], greedy)
        for cold in ({"temperature": 1e-320}, {"top_k": 1}, {"top_p": 1e-9}):
            assert torch.equal(sample(model, SOURCE, **cold, **options), greedy)


# ---------------------------------------------------------------- Hugging Face


def noisy_task(rows: int, seed: int) -> tuple[Tensor, Tensor]:
    """Sources, and targets that cannot be foreseen: some words of the source, more or fewer."""
    rng = torch.Generator().manual_seed(seed)
    source, target = torch.zeros(rows, 8, dtype=torch.long), torch.zeros(rows, 12, dtype=torch.long)
    for row in range(rows):
        length = int(torch.randint(2, 8, (1,), generator=rng))
        words = torch.randint(4, 20, (length,), generator=rng)
        source[row, :length], source[row, length] = words, EOS
        written = min(10, max(1, length + int(torch.randint(-2, 3, (1,), generator=rng))))
        target[row, 0], target[row, written + 1] = BOS, EOS
        target[row, 1 : written + 1] = words[torch.randint(0, length, (written,), generator=rng)]
    return source, target


def marian() -> tuple[Transformer, nn.Module]:
    """Two models with the same weights, trained a little so that they end their sentences now and then."""
    pytest.importorskip("transformers")
    with torch.random.fork_rng():
        torch.manual_seed(0)
        _, theirs = marian_pair(20, 16, 4, (2, 3), 32, max_length=40, init_std=0.3)
    optimizer = torch.optim.Adam(theirs.parameters(), lr=3e-3)
    for step in range(100):
        source, target = noisy_task(32, step)
        mask = (source != PAD).long()
        logits = theirs(input_ids=source, attention_mask=mask, decoder_input_ids=target[:, :-1]).logits
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), target[:, 1:].flatten(), ignore_index=PAD)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return from_hf(theirs), theirs


@pytest.mark.slow
def test_equal_to_hugging_face():
    ours, theirs = marian()
    source, _ = noisy_task(8, 1000)
    lengths = set()
    for beam, n_best, alpha in ((1, 1, 0.6), (2, 2, -0.5), (4, 1, 0.6), (4, 4, 1.0), (8, 8, 0.0), (8, 8, 2.0)):
        written = theirs.generate(
            input_ids=source,
            attention_mask=(source != PAD).long(),
            num_beams=beam,
            length_penalty=alpha,
            early_stopping="never",
            num_return_sequences=n_best,
            max_new_tokens=12,
            do_sample=False,
            bad_words_ids=[[PAD], [BOS]],
        )
        expected = [tuple(row[1:].tolist()) for row in written]  # theirs are filled up with EOS
        expected = [row[: row.index(EOS) + 1] if EOS in row else row for row in expected]
        expected = [tuple(token for token in row if token != PAD) for row in expected]
        options = {"beam_size": beam, "n_best": n_best, "length_penalty": alpha, "normalization": "mean"}
        found = as_lists(beam_search(ours, source, max_length=12, lookahead=None, **options))  # None: "never"
        mine = [h.tokens for sentence in found for h in sentence]
        assert mine == expected
        lengths |= set(map(len, mine))
    assert len(lengths) > 4  # or the comparison would say little about penalties and stopping


# ---------------------------------------------------------------- made by hand


def test_a_penalty_for_length_does_not_stop_the_search_before_the_next_token():
    model = Table({(): [0.2, 0.8], (3,): [1.0, 0.0]})
    options = {"beam_size": 2, "length_penalty": -2, "max_length": 50, "lookahead": None}
    ((best,),) = as_lists(beam_search(model, SOURCE[:1], **options))
    assert best.tokens == (3, EOS)


def test_the_search_looks_eight_tokens_ahead_or_as_far_as_one_asks():
    """After the word, 30 more are free: the translation of 32 tokens wins by far if the search gets there.

    It has to see that log(0.3) can be divided by 3.4, which is the divisor of 16 tokens, 15 more than one.
    """
    model = Table({(): [0.7, 0.3], **{(3,) * n: [0.0, 1.0] for n in range(1, 31)}})
    for options, tokens in (({}, 1), ({"lookahead": 14}, 1), ({"lookahead": 15}, 32), ({"lookahead": None}, 32)):
        ((best,),) = as_lists(beam_search(model, SOURCE[:1], length_penalty=1.0, **options))
        assert len(best.tokens) == tokens, options


def test_impossible_translations_are_not_returned_and_stop_the_search():
    table = Table({(): [0.0, 1.0, 0.0], (3,): [0.25, 0.75, 0.0], (3, 3): [1.0, 0.0, 0.0]})  # two are possible
    steps: list[Step] = []
    options = {"beam_size": 4, "length_penalty": 0.0, "max_length": 50, "n_best": 4}
    hypotheses = beam_search(table, SOURCE[:1], **options, on_step=steps.append)
    assert [h.tokens for h in as_lists(hypotheses)[0]] == [(3, 3, EOS), (3, EOS)] and len(steps) <= 4
    assert (hypotheses.tokens[0, 2:] == PAD).all() and hypotheses.scores[0, 2:].isneginf().all()


def test_a_hypothesis_that_cannot_go_on_leaves_the_others_alone():
    model = Table({(): [0.0, 0.5, 0.5], (3,): [0.0, 0.0, 0.0]})
    ((best,),) = as_lists(beam_search(model, SOURCE[:1], beam_size=2))
    assert best.tokens == (4, EOS)


def test_no_words_and_no_sentences():
    options = {"beam_size": 3, "max_length": 5, "n_best": 3}
    assert [[h.tokens for h in row] for row in as_lists(beam_search(Oracle(words=0), SOURCE[:2], **options))] == [
        [(EOS,)]
    ] * 2
    for model in (Oracle(), small_model("transformer")):
        assert beam_search(model, SOURCE[:0], **options).scores.shape == (0, 3)
        assert greedy_decode(model, SOURCE[:0]).shape == (0, 0)


@pytest.mark.parametrize("words", [5, 101, 300, 640, 5000, 50_257])  # one block for all of a row, and several
@pytest.mark.parametrize("beams", [1, 3])
def test_the_largest_sums_are_those_of_topk(words, beams):
    log_p, scores = torch.randn(2 * beams, words).double(), torch.randn(2, beams).double()
    sums = (scores.view(-1, 1) + log_p).view(2, -1)
    for ours, theirs in zip(largest(scores, log_p, 8), sums.topk(min(8, sums.shape[1])), strict=True):
        assert torch.equal(ours, theirs)


def test_penalties_by_hand():
    logits = torch.tensor([[3.0, -2.0, 1.0], [4.0, 4.0, 4.0]])
    expected = torch.tensor([[1.5, -4.0, 1.0], [4.0, 4.0, 2.0]])
    assert torch.equal(penalize_repetition(logits, torch.tensor([[0, 1], [2, 2]]), 2.0), expected)
    config = SearchConfig(length_penalty=1.0)
    assert [config.normalizer(n) for n in (1, 7, 25)] == [1, 2, 5]
    assert replace(config, normalization="mean").normalizer(7) == 7


class Bigrams(nn.Module):
    """A language model of ten lines: the next token depends on the last alone, and the state is a tensor."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(7, 7, dtype=torch.float64)
        nn.init.normal_(self.table.weight, std=3, generator=torch.Generator().manual_seed(0))

    def start(self, prompt: Tensor) -> tuple[Tensor, Tensor]:
        read = nn.functional.pad(prompt, (1, 0), value=BOS)
        last = read[torch.arange(len(read)), (prompt != PAD).sum(1)]
        return self.step(last, read.sum(1) - last)

    def step(self, token: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        return self.table(token) + 0.1 * state[:, None], state + token


class ReadsNothing(Bigrams):
    """As language models were before: their prompt went through `step`."""

    def start(self, prompt: Tensor) -> Tensor:
        return prompt.new_zeros(len(prompt))


def test_a_language_model_goes_on_from_its_prompt():
    model, prompt = Bigrams(), torch.tensor([[4, 6], [5, PAD]] * 4)
    for seed in range(10):  # rows end one before the other: the state, a plain tensor, follows
        rows = as_tokens(sample(model, prompt, generator=torch.Generator().manual_seed(seed)))
        assert all(row[: len(given)] == given for row, given in zip(rows, as_tokens(prompt), strict=True))
    with pytest.raises(ValueError, match="prompt of a language model is its prefix"):
        greedy_decode(model, prompt, prefix=prompt)
    for search in EVERY_SEARCH:
        with pytest.raises(TypeError, match=r"ReadsNothing\.start must read the prompt, and return logits and a state"):
            search(ReadsNothing(), prompt)


# ---------------------------------------------------------------- what is computed, and how often


class Counted(nn.Module):
    """Notes the rows of each step."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model, self.rows, self.starts = model, [], 0
        self.encode, self.max_target_length = model.encode, model.max_target_length

    def start(self, source: Tensor) -> object:
        self.starts += 1
        return self.model.start(source)

    def step(self, token: Tensor, state: object) -> object:
        self.rows.append(len(token))
        return self.model.step(token, state)


def test_finished_sentences_leave_the_batch():
    searches = {
        3: lambda model, rows: beam_search(model, rows, beam_size=3, max_length=12),
        1: lambda model, rows: greedy_decode(model, rows, max_length=12),
    }
    for width, search in searches.items():
        together, steps = Counted(small_model("gru", seed=3)), []
        search(together, SOURCE)
        for row in SOURCE:
            alone = Counted(together.model)
            search(alone, row[row != PAD][None])
            steps.append(len(alone.rows))
        assert len(set(steps)) > 1 and together.starts == 1
        expected = [sum(n > t for n in steps) * (width if t else 1) for t in range(max(steps))]
        assert together.rows == expected


def test_steps_tell_what_goes_on_and_what_ends():
    steps: list[Step] = []
    hypotheses = beam_search(Oracle(4), SOURCE, beam_size=3, n_best=2, max_length=6, on_step=steps.append)
    alive = {(number, ()): 0.0 for number in range(len(SOURCE))}
    for length, step in enumerate(steps, start=1):
        rows = zip(step.sentences.tolist(), *(part.tolist() for part in step.candidates[:2]), strict=True)
        following = {}
        for (number, candidates, totals), ended, live in zip(
            rows, step.ended.tolist(), step.live.tolist(), strict=True
        ):
            assert totals == sorted(totals, reverse=True) and sum(live) <= 3
            for tokens, total, end, goes_on in zip(candidates, totals, ended, live, strict=True):
                assert (number, tuple(tokens[:-1])) in alive and not (end and goes_on)
                assert end == (tokens[-1] == EOS or length == 6)
                following |= {(number, tuple(tokens)): total} if goes_on else {}
        alive = following
    assert all(torch.equal(one, other) for one, other in zip(steps[-1].best, hypotheses, strict=True))


# ---------------------------------------------------------------- what would be silently wrong


class Broken(Oracle):
    """NaN after two tokens."""

    def after(self, source: tuple[int, ...], prefix: tuple[int, ...]) -> list[float]:
        return [math.nan] * 6 if len(prefix) == 2 and len(source) > 2 else super().after(source, prefix)


@pytest.mark.parametrize("beam_size", [1, 3])
def test_a_model_that_gives_no_numbers_is_refused(beam_size):
    with pytest.raises(ValueError, match="NaN"):
        beam_search(Broken(), SOURCE, beam_size=beam_size, min_length=3)
    for search in (sample, greedy_decode):
        with pytest.raises(ValueError, match="token 3: logits with NaN"):
            search(Broken(), SOURCE, min_length=3)
    nothing = Table({(): [0.0, 0.0], (3,): [0.0, 0.0]})
    for search in (beam_search, greedy_decode):
        with pytest.raises(ValueError, match=r"no t.* possible"):
            search(nothing, SOURCE)


BAD_PREFIXES = {
    "of shape": torch.full((3, 1), 3),
    "padded on the right": torch.tensor([[PAD, 3]] * 4),
    "holds BOS or EOS": torch.tensor([[BOS, 3]] * 4),
    "BOS or EOS": torch.tensor([[3, EOS, 3]] * 4),
    "max_length=5 for a prefix of 6": torch.full((4, 6), 3),
    "possible": torch.full((4, 1), 90),
}


@pytest.mark.parametrize("message", BAD_PREFIXES)
def test_bad_prefixes_are_refused(message):
    for search in (beam_search, greedy_decode):
        with pytest.raises((ValueError, TypeError), match=f"{message}|parameter 'prefix'"):
            search(Oracle(), SOURCE, prefix=BAD_PREFIXES[message], max_length=5)


OUT_OF_RANGE = [
    {"max_length": 0},
    {"max_ratio": 0.0},
    {"max_ratio": -1.0},
    {"max_ratio": math.nan},
    {"repetition_penalty": 0.0},
    {"repetition_penalty": -1.0},
    {"repetition_penalty": math.inf},
    {"min_length": -1},
    {"min_length": 20, "max_length": 5},
    {"min_length": 101},  # the limit is 100 unless one is given
    {"min_length": 4, "max_ratio": 1.0},  # the shortest source has two tokens
    {"min_length": 2, "max_ratio": 0.1},
]
OF_BEAMS = [
    {"beam_size": 0},
    {"beam_size": True},
    {"lookahead": 0},
    {"n_best": 6},
    {"length_penalty": math.nan},
    {"normalization": "length"},
    {"beams": 3},
]
OF_SAMPLES = [{"temperature": 0.0}, {"temperature": math.inf}, {"top_k": 0}, {"top_p": 0.0}, {"top_p": 1.1}]


@pytest.mark.parametrize(
    ("search", "option"),
    [*product(EVERY_SEARCH, OUT_OF_RANGE), *product([beam_search], OF_BEAMS), *product([sample], OF_SAMPLES)],
)
def test_an_option_out_of_range_is_refused_by_every_search(search, option):
    with pytest.raises((ValueError, TypeError), match=next(iter(option))):
        search(Oracle(), SOURCE, **option)


@pytest.mark.parametrize(("temperature", "right"), [(1e-300, [0, 1.0, 0, 0]), (1e300, [1 / 3, 1 / 3, 1 / 3, 0])])
def test_no_temperature_is_too_low_or_too_high(temperature, right):
    found = sampling_probabilities(torch.tensor([[1.0, 3, 2, -math.inf]]), temperature=temperature)
    torch.testing.assert_close(found, torch.tensor([right]))


@pytest.mark.parametrize("search", EVERY_SEARCH)
@pytest.mark.parametrize("kind", ["translator", "language model"])
def test_no_search_writes_or_promises_more_tokens_than_its_model_can_write(search, kind):
    torch.manual_seed(0)
    if kind == "translator":
        config = TransformerConfig(9, 9, d_model=4, n_heads=1, d_ff=4, max_length=8, positions="learned")
        model, source = Transformer(config).eval(), torch.tensor([[4, 5, EOS]])
    else:
        model, source = GPT(GPTConfig(9, d_model=4, n_heads=1, n_layers=1, max_length=8)).eval(), torch.tensor([[4]])
    for options in ({}, {"max_length": 10**12}):
        with pytest.raises(ValueError, match="min_length=9 for sentence 0, which may have 8 tokens at most"):
            search(model, source, min_length=9, **options)
        for least in (7, 8):  # as many as there is room for is no contradiction
            assert tokens_of(search(model, source, min_length=least, **options)).shape[1] == 8
    assert tokens_of(search(model, source, min_length=5, max_length=5)).shape[1] == 5


def test_searches_run_without_dropout_and_leave_every_mode_as_it_was():
    model = small_model("transformer").train()
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.5
    model.encoder.eval()  # frozen by its owner
    first, second = (beam_search(model, SOURCE, beam_size=3, max_length=6) for _ in range(2))
    assert torch.equal(first.scores, second.scores) and model.training and not model.encoder.training
    with pytest.raises(ValueError):
        greedy_decode(model, SOURCE + 90)
    assert model.training and not model.encoder.training and torch.is_grad_enabled()
    steps = generate(model.eval(), SOURCE, min_length=4, max_length=6)
    next(steps)
    assert torch.is_grad_enabled()
    model.train()  # while the stream waits
    with pytest.raises(ValueError, match="training mode"):
        next(steps)


def test_threads_share_a_model_in_training_mode():
    model, results = small_model("transformer").train(), []
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.5

    def work() -> None:
        results.extend(beam_search(model, SOURCE, beam_size=2, max_length=5).scores for _ in range(10))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 40 and all(torch.equal(one, results[0]) for one in results) and model.training


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-4), (torch.bfloat16, 0.5), (torch.float16, 0.05)])
def test_other_precisions(dtype, tolerance):
    exact, model = small_model("gru"), small_model("gru").to(dtype)
    hypotheses = beam_search(model, SOURCE, beam_size=3, max_length=6, n_best=3)
    assert hypotheses.scores.dtype == torch.float32 and hypotheses.tokens.dtype == SOURCE.dtype
    for row, sentence in zip(SOURCE, as_lists(hypotheses), strict=True):
        for h in sentence:
            assert h.log_prob == pytest.approx(log_probability(exact, row, h.tokens), abs=tolerance, rel=0.05)
    assert sample(model, SOURCE.int(), top_p=0.9, max_length=6).dtype == torch.int32


# ---------------------------------------------------------------- sampling


def test_samples_follow_the_model():
    model = Oracle(5)
    config = SearchConfig(beam_size=1000, n_best=1000, max_length=3, length_penalty=0)
    (space,) = exhaustive_search(NoBadTokens(model), SOURCE[:1], config)
    drawn = as_tokens(
        sample(model, SOURCE[:1].expand(1500, -1), max_length=3, generator=torch.Generator().manual_seed(0))
    )
    expected = {h.tokens: math.exp(h.log_prob) for h in space}
    assert len(space) == 1 + 3 + 9 + 27 and sum(expected.values()) == pytest.approx(1) and set(drawn) <= set(expected)
    surprise = sum((drawn.count(key) - 1500 * p) ** 2 / (1500 * p) for key, p in expected.items())
    assert surprise < len(expected) + 5 * math.sqrt(2 * len(expected))  # chi-squared


class NoBadTokens(Uncached):
    """The distribution of a model without PAD and BOS."""

    def __init__(self, model: Oracle) -> None:
        super().__init__()
        self.model = model

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        return self.model(source, target).index_fill(2, torch.tensor([PAD, BOS]), -torch.inf)


def test_a_seed_leaves_other_randomness_alone_and_only_eos_is_special():
    before = torch.random.get_rng_state()
    drawn = sample(small_model("transformer"), SOURCE, max_length=9, generator=torch.Generator().manual_seed(2))
    assert torch.equal(torch.random.get_rng_state(), before)
    for tokens in as_tokens(drawn):
        assert BOS not in tokens and EOS not in tokens[:-1] and (tokens[-1] == EOS or len(tokens) == 9)


@settings(max_examples=60)
@given(
    seed=st.integers(0, 10**6),
    temperature=st.floats(0.2, 3.0),
    top_k=st.none() | st.integers(1, 12),
    top_p=st.floats(0.01, 1.0),
)
def test_probabilities_of_sampling(seed, temperature, top_k, top_p):
    logits = 2 * torch.randn(3, 9, generator=torch.Generator().manual_seed(seed)).double()
    mine = sampling_probabilities(logits, temperature=temperature, top_k=top_k, top_p=top_p)
    for row, weights in zip(mine.tolist(), (logits / temperature).exp().tolist(), strict=True):
        order = sorted(range(9), key=lambda i: -weights[i])[:top_k]
        total, nucleus, mass = sum(weights[i] for i in order), [], 0.0
        for i in order:
            if mass < top_p * total:
                nucleus.append(i)
            mass += weights[i]
        expected = [weights[i] / sum(weights[j] for j in nucleus) if i in nucleus else 0.0 for i in range(9)]
        assert row == pytest.approx(expected, abs=1e-9)


def test_all_of_the_probability_is_all_tokens_and_is_computed_in_single_precision():
    logits = torch.randn(8, 10_000, generator=torch.Generator().manual_seed(0)) * 4
    for held in (logits, logits.bfloat16()):
        torch.testing.assert_close(sampling_probabilities(held, top_p=1.0), held.float().softmax(-1))
    cold = sampling_probabilities(logits / 4, temperature=0.2, top_p=1.0)
    assert (cold > 0).all()  # however small they are
    none = torch.empty(8, 0, dtype=torch.long)
    found = log_probabilities(logits.bfloat16(), none, None, None, SearchConfig())
    torch.testing.assert_close(found[:, EOS:], logits.bfloat16().float().log_softmax(-1)[:, EOS:])


@pytest.mark.parametrize("search", EVERY_SEARCH)
def test_a_model_can_be_trained_on_what_it_has_written(search):
    """Searches run the model in inference mode, whose tensors no gradient can pass; nothing of it may stay behind."""
    model = small_model("transformer")  # in double precision: the first step computes its table of positions again
    model.train()(SOURCE, tokens_of(search(model, SOURCE, max_length=5))).sum().backward()
    assert all(parameter.grad is not None for parameter in model.parameters())


def test_a_single_string_is_no_list_of_sentences():
    words = Tokenizer.train(["a b"], level="word")
    with pytest.raises(TypeError, match="'ab', expected a list of strings"):
        translate(small_model("gru"), "ab", words, words)
