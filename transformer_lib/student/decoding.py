"""Tests for chapter "Beam search and its curse"."""

import math
from itertools import product

import torch
from torch import Tensor, tensor

from transformer_lib.plain.beam_search import BOS, EOS, beam_search, exhaustive, extend, greedy, lp, next_words
from transformer_lib.student.checks import check, equal, holds

V = 6
TABLE = torch.randn(10, V, V, V, generator=torch.Generator().manual_seed(3)) * 1.5
GREEDY, TWO, WHOLE = "Greedy decoding", "Several beginnings", "Beam search in twenty lines"
ANY = tensor([[4]])


def model(source: Tensor, target: Tensor) -> Tensor:
    """Logits that depend on the sentence and on the last two words."""
    before = torch.cat([torch.zeros_like(target[:, :1]), target[:, :-1]], 1)
    return TABLE[source[:, :1], before, target]


def log_p(first: int, words: tuple[int, ...]) -> float:
    """The log-probability of a translation."""
    row = [0, BOS, *words]
    return sum(float(TABLE[first, a, b].log_softmax(-1)[c]) for a, b, c in zip(row, row[1:], row[2:], strict=False))


def all_translations(longest: int) -> list[tuple[int, ...]]:
    """All translations of at most so many words; the longest needn't end."""
    bodies = [body for n in range(longest) for body in product((3, 4, 5), repeat=n)]
    return [(*body, EOS) for body in bodies] + list(product((3, 4, 5), repeat=longest))


@check(next_words, GREEDY)
def what_may_come_next() -> None:
    """A row of log-probabilities for each beginning, of what follows its last word; PAD and BOS get minus infinity."""
    got = next_words(model, ANY, [(3, 5), (4, 4)])
    logits = torch.stack([TABLE[4, 3, 5], TABLE[4, 4, 4]])
    slips = {"logits instead of log-probabilities": logits[:, 2:]}
    equal(got[:, 2:], logits.log_softmax(-1)[:, 2:], slips)
    equal(got[:, :2], torch.full((2, 2), -math.inf))
    want = torch.stack([TABLE[4, BOS, 3], TABLE[4, BOS, 5]]).log_softmax(-1)
    equal(next_words(model, ANY, [(3,), (5,)])[:, 2:], want[:, 2:], {"without BOS at the beginning": True})
    equal(next_words(model, ANY, [()])[0, 2:], TABLE[4, 0, BOS].log_softmax(-1)[2:])


@check(greedy, GREEDY)
def the_likeliest_word() -> None:
    """At each step the likeliest word, until EOS or ``max_length`` words are written; EOS is returned, BOS is not."""
    for first in range(10):
        before, word, want = 0, BOS, []
        while word != EOS and len(want) < 5:
            row = TABLE[first, before, word]
            before, word = word, 2 + int(row[2:].argmax())
            want.append(word)
        got = greedy(model, tensor([[first]]), 5)
        equal(tuple(got), tuple(want), {"without EOS at the end": tuple(got) == tuple(want[:-1])})


@check(extend, TWO)
def continuations() -> None:
    """The n best sums of old and new log-probabilities, best first, each with its words; or all, if there are fewer."""
    live = [((3,), -1.0), ((4,), -2.5)]
    every = [
        ((*words, i), total + log_p(4, (*words, i)) - log_p(4, words)) for words, total in live for i in range(2, V)
    ]
    every.sort(key=lambda c: -c[1])
    got = extend(model, ANY, live, 4)
    equal([tuple(words) for words, _ in got], [words for words, _ in every[:4]])
    equal(
        [float(total) for _, total in got],
        [total for _, total in every[:4]],
        {"the old log-probabilities are not added": float(got[0][1]) > every[0][1]},
    )
    holds(len(extend(model, ANY, live, 99)) <= 2 * V, "more candidates than there are")


@check(lp, WHOLE)
def length_penalty() -> None:
    """((5 + n) / 6) to the power of the penalty."""
    slips = {"length instead of (5 + n) / 6": 7.0**0.6, "only the 6 is raised to the power": 12 / 6.0**0.6}
    equal(lp(7, 0.6), 2.0**0.6, {"the exponent is missing": 2.0} | slips)


@check(beam_search, WHOLE)
def the_best_of_all() -> None:
    """With a wide beam, the search finds the translation with the best score of all, and returns it with its log P."""
    for first, penalty in ((4, 0.0), (7, 1.0), (9, 2.0), (1, 2.0)):
        every = {words: log_p(first, words) for words in all_translations(4)}
        want = max(every, key=lambda words: every[words] / ((5 + len(words)) / 6) ** penalty)
        words, total = beam_search(model, tensor([[first]]), 40, penalty, 4)
        plain = max(every, key=lambda words: every[words])
        equal(tuple(words), want, {"log P is not divided by the length penalty": plain})
        equal(float(total), every[want], {"the score is returned instead of log P": penalty > 0})


@check(beam_search, WHOLE)
def slots_and_stopping() -> None:
    """Narrow beams: only the first w candidates may end, the best w others go on, and no search stops too early.

    What is cut at ``max_length`` competes as if it had ended.
    """
    for first, w, penalty in product(range(10), (1, 2, 3), (0.0, 1.0, 2.0)):
        live, finished = [((), 0.0)], []
        for length in range(1, 7):
            every = [((*words, i), log_p(first, (*words, i))) for words, _ in live for i in range(2, V)]
            every.sort(key=lambda c: -c[1])
            finished += [c for c in every[:w] if c[0][-1] == EOS or length == 6]
            live = [c for c in every if c[0][-1] != EOS][:w]
        score = [total / ((5 + len(words)) / 6) ** penalty for words, total in finished]
        want = finished[score.index(max(score))]
        words, total = beam_search(model, tensor([[first]]), w, penalty, 6)
        mine = float(total) / ((5 + len(words)) / 6) ** penalty
        slips = {"A search that stops too early": mine < max(score) - 1e-6 and len(words) < len(want[0])}
        equal((tuple(words), float(total)), (want[0], want[1]), slips)


@check(exhaustive, WHOLE)
def everything() -> None:
    """The best of all translations of at most ``max_length`` words, and its log P."""
    for first, penalty in ((4, 0.0), (7, 1.0), (2, 3.0)):
        every = {words: log_p(first, words) for words in all_translations(4)}
        want = max(every, key=lambda words: every[words] / ((5 + len(words)) / 6) ** penalty)
        words, total = exhaustive(model, tensor([[first]]), penalty, 4)
        equal((tuple(words), float(total)), (want, every[want]))
