"""Tests for chapter "Decoding"."""

import math
from dataclasses import replace
from itertools import product

import torch
from torch import Tensor, nn, randn, tensor

from transformer_lib.decoding.beam_search import (
    Hypotheses,
    SearchConfig,
    beam_search,
    extend,
    finish,
    log_probabilities,
    unfinished,
)
from transformer_lib.decoding.sampling import sample, sampling_probabilities
from transformer_lib.student.checks import check, equal, holds, refuses

V, EOS = 6, 2
BOOK = (beam_search,)  # in a tuple, where no learner's function takes its place


class Chain(nn.Module):
    """A model whose next token depends on the sentence and on the last two tokens: its state must follow its row."""

    def __init__(self) -> None:
        super().__init__()
        self.table = randn(10, V, V, V) * 1.5

    def encode(self, source: Tensor) -> Tensor:
        """There is nothing to encode."""
        return source

    def start(self, source: Tensor) -> list[Tensor]:
        """The sentence's first token, and the token before the last."""
        return [source[:, 0], torch.zeros_like(source[:, 0])]

    def step(self, token: Tensor, state: list[Tensor]) -> tuple[Tensor, list[Tensor]]:
        """Logits of the next token."""
        first, before = state
        return self.table[first, before, token].clone(), [first, token]

    def score(self, first: int, tokens: tuple[int, ...]) -> float:
        """The log-probability of a translation."""
        row, total = [0, 1, *tokens], 0.0
        for a, b, c in zip(row, row[1:], row[2:], strict=False):
            total += float(self.table[first, a, b].log_softmax(-1)[c])
        return total


def hypotheses(tokens: list, scores: list) -> Hypotheses:
    """Some hypotheses, whose log-probabilities are their scores."""
    return Hypotheses(tensor(tokens), tensor(scores), tensor(scores))


@check(SearchConfig.normalizer, "The library's beam search")
def length_penalty() -> None:
    """A log-probability is divided by ((5 + length) / 6) to the power of the length penalty."""
    slips = {
        "the exponent is missing": 2.0,
        "length instead of (5 + length) / 6": 7.0**0.6,
        "a power of 6 alone": 12 / 6.0**0.6,
    }
    equal(SearchConfig(length_penalty=0.6).normalizer(7), 2.0**0.6, slips)
    equal(SearchConfig(length_penalty=1.0, normalization="mean").normalizer(7), 7.0)


@check(Hypotheses.best, "The library's beam search")
def sorted_by_score() -> None:
    """The two best of three come best first, each with its own tokens, and their indices are returned."""
    got, index = hypotheses([[[4, 5], [3, 3], [5, 2]]], [[-2.0, -3.0, -1.0]]).best(2)
    equal((got.tokens, got.scores, index), (tensor([[[5, 2], [4, 5]]]), tensor([[-1.0, -2.0]]), tensor([[2, 0]])))


@check(Hypotheses.only, "The library's beam search")
def others_count_as_none() -> None:
    """Outside the mask, scores are minus infinity; ``first`` keeps so many."""
    three = hypotheses([[[4], [3], [5]]], [[-2.0, -3.0, -1.0]])
    got = three.only(tensor([[True, False, True]]), 2)
    equal((got.scores, got.tokens), (tensor([[-2.0, -math.inf]]), tensor([[[4], [3]]])))


@check(log_probabilities, "The library's beam search")
def what_may_come_next() -> None:
    """`rule_out_` makes PAD and BOS impossible, and EOS before the minimal length; the rest are log-probabilities."""
    logits, written = randn(2, V), tensor([[3], [4]])
    want = logits.log_softmax(-1)
    got = log_probabilities(logits.clone(), written, None, SearchConfig(min_length=2))
    equal(got[:, 3:], want[:, 3:], {"logits instead of log-probabilities": logits[:, 3:]})
    equal(got[:, :3], torch.full((2, 3), -math.inf))
    equal(log_probabilities(logits.clone(), written, None, SearchConfig())[:, 2], want[:, 2])


@check(log_probabilities, "The library's beam search")
def forced_tokens() -> None:
    """With `force`, a forced token is the only possible one in all rows of its sentence; 0 forces nothing.

    The order is: repetition penalty, softmax, `rule_out_`, `force`. Nothing is normalised again.
    """
    got = log_probabilities(randn(4, V), tensor([[3]] * 4), tensor([4, 0]), SearchConfig())
    equal(got.isfinite()[:, 2:], tensor([[False, False, True, False]] * 2 + [[True] * 4] * 2), names="possible / got")


@check(extend, "The library's beam search")
def continuations() -> None:
    """The best sums of old and new log-probabilities win, in each sentence; scores and log-probabilities are sums."""
    live = hypotheses([[[3], [4]], [[5], [3]]], [[-1.0, -2.0], [-1.0, -4.0]])
    log_p = torch.full((4, V), -9.0)
    log_p[0, 3], log_p[0, 4], log_p[1, 5], log_p[2, 2], log_p[3, 4] = -2.0, -3.0, -0.5, -1.0, -0.1
    got, rows = extend(live, log_p, 2)
    equal(got.tokens, tensor([[[4, 5], [3, 3]], [[5, 2], [3, 4]]]))
    equal(
        got.scores,
        tensor([[-2.5, -3.0], [-2.0, -4.1]]),
        {"the old scores are not added": tensor([[-0.5, -2.0], [-1.0, -0.1]])},
    )
    equal(rows, tensor([[1, 0], [2, 3]]), {"rows are counted within the sentence": tensor([[1, 0], [0, 1]])})


@check(finish, "The library's beam search")
def finished_ones_are_set_aside() -> None:
    """What has just ended is divided by the divisor, and competes with the best of its sentence, padded to its length.

    ``left`` holds the numbers of the sentences that ``ended`` is about; as many results are kept as there were.
    """
    best = hypotheses([[[4]], [[5]], [[3]]], [[-2.0], [-0.5], [-7.0]])
    ended = hypotheses([[[3, 2]], [[4, 2]]], [[-3.0], [-3.0]])
    every, top = finish(best, tensor([0, 1]), ended, 2.0)
    equal(top.scores, tensor([[-1.5], [-0.5]]), {"not divided by the length": tensor([[-2.0], [-0.5]])})
    two = finish(hypotheses([[[4], [5]]], [[-2.0, -3.0]]), tensor([0]), hypotheses([[[3, 2]]], [[-5.0]]), 2.0)[1]
    equal(two.scores, tensor([[-2.0, -2.5]]), {"only one of several results is kept": two.scores.shape[1] == 1})
    equal((every.tokens, every.scores), (tensor([[[3, 2]], [[5, 0]], [[3, 0]]]), tensor([[-1.5], [-0.5], [-7.0]])))


@check(unfinished, "The library's beam search")
def what_may_still_win() -> None:
    """A sentence goes on while its best live hypothesis, divided by the largest divisor to come, may still win.

    With a beam of one, the first hypothesis to end is the result; a score of minus infinity means none has ended.
    """
    top, live = hypotheses([[[4]], [[4]]], [[-1.5], [-1.5]]), hypotheses([[[4]], [[4]]], [[-2.0], [-4.0]])
    none, config = tensor([], dtype=torch.long), SearchConfig(length_penalty=1.0)  # the divisor of 7 tokens is 2
    equal(unfinished(top, live, 1, tensor([7, 7]), config), tensor([0]), {"A search that stops too early": none})
    near = replace(config, lookahead=5)  # 1.5 is the divisor of 6 tokens, no farther away
    slips = {"tokens beyond `lookahead` count": tensor([0])}
    equal(unfinished(top, live, 1, tensor([99, 99]), replace(near, lookahead=1)), none, slips)
    slips = {"`lookahead` counts from the beginning": none}
    equal(unfinished(top, live, 1, tensor([99, 99]), replace(near, lookahead=3)), tensor([0]), slips)
    short = SearchConfig(length_penalty=-1.0)  # the largest divisor is that of the next token, 6 / 7
    live = hypotheses([[[4]], [[4]]], [[-1.2], [-1.4]])
    equal(
        unfinished(top, live, 1, tensor([7, 7]), short),
        tensor([0]),
        {"the divisor of the longest is not the largest": none},
    )
    top, live = hypotheses([[[4]], [[0]]], [[-1.5], [-math.inf]]), hypotheses([[[4]], [[4]]], [[-2.0], [-4.0]])
    equal(unfinished(top, live, 1, tensor([7, 7]), SearchConfig(beam_size=1, length_penalty=1.0)), tensor([1]))


@check(beam_search, "The library's beam search")
def everything_at_once() -> None:
    """Prefixes are kept, n_best results come back, and hypotheses cut at the limit compete as if they had ended.

    Each step asks for 2 K candidates: only the first K may end, and of those that don't end, the best K go on.
    """
    model, source = Chain(), torch.arange(10)[:, None]
    cases = {
        "hypotheses that are cut at the limit": {"beam_size": 1, "max_length": 2},
        "a prefix": {"beam_size": 1, "prefix": tensor([[3, 4], [5, 0]] * 5), "max_length": 6},
        "several results, or with who may end and who goes on": {"beam_size": 3, "n_best": 3, "max_length": 6},
    }
    cases["a configuration"] = {"config": SearchConfig(beam_size=2, max_length=3), "n_best": 2}
    for what, options in cases.items():
        (got, scores, _), (want, best, _) = (f(model, source, **options) for f in (beam_search, *BOOK))
        equal((got, scores), (want, best), {f"a mistake with {what}": True})


@check(beam_search, "Beam search in twelve lines")
def greedy() -> None:
    """With a beam of one, the most likely token is taken at each step, in each sentence of the batch."""
    model, source = Chain(), tensor([[4], [7], [9]])
    got = beam_search(model, source, beam_size=1, max_length=5).tokens[:, 0]
    for row, (first,) in zip(got.tolist(), source.tolist(), strict=True):
        before, token, want = 0, 1, []
        while token != EOS and len(want) < 5:
            logits = model.table[first, before, token]
            before, token = token, 2 + int(logits[2:].argmax())
            want.append(token)
        equal(row[: len(want)], want, {"Greedy decoding for one sentence only": EOS not in row})


@check(beam_search, "The library's beam search")
def the_best_of_all() -> None:
    """With a wide beam, the search finds the best of all translations, as an exhaustive one does."""
    model, source = Chain(), tensor([[4], [7], [9]])
    got = beam_search(model, source, beam_size=40, max_length=4)
    endings = [(*body, EOS) for n in range(4) for body in product((3, 4, 5), repeat=n)]
    endings += list(product((3, 4, 5), repeat=4))
    divide = SearchConfig().normalizer
    for row, (first,) in enumerate(source.tolist()):
        ranked = sorted(endings, key=lambda t, f=first: -model.score(f, t) / divide(len(t)))
        found = tuple(t for t in got.tokens[row, 0].tolist() if t)
        plain = max(endings, key=lambda t, f=first: model.score(f, t))
        equal(found, ranked[0], {"scores are not divided by the length": plain})


@check(beam_search, "The library's beam search")
def states_follow_their_hypotheses() -> None:
    """The log-probability of a result is that of its tokens: each hypothesis keeps its own state."""
    model, source = Chain(), tensor([[4], [7], [9]])
    got = beam_search(model, source, beam_size=3, max_length=6)
    want = [
        model.score(first, tuple(t for t in row if t))
        for (first,), row in zip(source.tolist(), got.tokens[:, 0].tolist(), strict=True)
    ]
    equal(got.log_probs[:, 0], tensor(want), {"the states stay in their old rows": True})


@check(sampling_probabilities, "Sampling")
def temperature() -> None:
    """Logits are divided by the temperature before the softmax; numbers that make no sense raise a ValueError."""
    logits = randn(2, V)
    slips = {
        "multiplied by the temperature": (logits / 2).softmax(-1),
        "divided after the softmax": logits.softmax(-1) / 0.5,
    }
    equal(sampling_probabilities(logits, temperature=0.5), (logits * 2).softmax(-1), slips)
    for wrong in ({"temperature": 0.0}, {"top_k": 0}, {"top_p": 0.0}, {"top_p": 1.5}):
        refuses(ValueError, lambda options=wrong: sampling_probabilities(logits, **options))


@check(sampling_probabilities, "Sampling")
def top_k_and_top_p() -> None:
    """Top-k leaves the k likeliest tokens, top-p the fewest that have the probability p; what is left sums to 1.

    Of both, top-k comes first, and top-p counts probabilities of what it left.
    """
    logits = tensor([[0.5, 0.3, 0.15, 0.05]]).log()
    equal(
        sampling_probabilities(logits, top_k=2),
        tensor([[0.625, 0.375, 0, 0]]),
        {"what is left does not sum to 1": tensor([[0.5, 0.3, 0, 0]])},
    )
    slips = {"the token that reaches p is dropped": tensor([[0.625, 0.375, 0, 0]])}
    equal(sampling_probabilities(logits, top_p=0.85), tensor([[0.5, 0.3, 0.15, 0]]) / 0.95, slips)
    equal(sampling_probabilities(logits, top_k=2, top_p=0.6), tensor([[1.0, 0, 0, 0]]))


@check(sample, "Sampling")
def drawn() -> None:
    """Tokens are drawn as often as their probabilities say; with top_k=1, the likeliest always is.

    `collect_tokens` takes a function from logits (N, V) to tokens (N) as ``choose``.
    """
    model = Chain()
    p = model.table[4, 0, 1].clone()
    p[:2] = -math.inf
    source = torch.full((4000, 1), 4)
    got = (
        sample(model, source, max_length=1, generator=torch.Generator().manual_seed(0))[:, 0].bincount(minlength=V)
        / 4000
    )
    holds(
        (got - p.softmax(-1)).abs().max() < 0.04,
        f"probabilities {p.softmax(-1).tolist()}, share of draws {got.tolist()}",
    )
    equal(sample(model, source[:1], top_k=1, max_length=1)[0, 0], p.argmax())
    holds(sample(model, source[:99], max_length=2).shape[1] == 2, "the option max_length is not handed on")
    one, two = (sample(model, source[:9], max_length=6, generator=torch.Generator().manual_seed(0)) for _ in range(2))
    equal(two, one, {"the generator is not used": True}, "the first time / again")
