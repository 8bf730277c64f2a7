"""Tests for chapter "Translation as prediction"."""

import math

import torch
from torch import randn, tensor

from transformer_lib.plain.prediction import Words, batches, evaluate, log_probability, loss, pad, translate
from transformer_lib.student.checks import check, equal, holds


@check(Words.encode, "From words to batches")
def words_and_their_ids() -> None:
    """Four special ids come first, then the words; a word that was not in the training data is UNK, 3."""
    words = Words(["the dog", "the cat sleeps"])
    equal(len(words), 8)
    ids = words.encode("the giraffe sleeps")
    holds(ids[1] == 3, f"expected  3 for an unknown word\ngot       {ids[1]}")
    holds(min(ids[0], ids[2]) > 3 and ids[0] != ids[2], f"two words have the ids {ids[0]} and {ids[2]}")
    equal(words.decode(words.encode("the cat sleeps")), "the cat sleeps")


@check(pad, "From words to batches")
def a_rectangle() -> None:
    """Shorter rows are filled up with PAD on the right."""
    want = tensor([[9, 4, 7, 2], [9, 2, 0, 0]])
    equal(pad([[9, 4, 7, 2], [9, 2]]), want, {"the padding stands in front": tensor([[9, 4, 7, 2], [0, 0, 9, 2]])})


@check(batches, "From words to batches")
def each_pair_once() -> None:
    """Every pair stands in one batch, padded, beside pairs of similar length; another seed gives another order."""
    pairs = [([*[4 + n % 5] * (n % 7), 2], [1, 4 + n, 2]) for n in range(30)]
    found = list(batches(pairs, 8, 0))
    equal(sorted(row[1].item() for _, target in found for row in target), list(range(4, 34)))
    equal(sorted(len(source) for source, _ in found), [6, 8, 8, 8])
    for source, target in found:
        for row, (_, word, _) in zip(source, target.tolist(), strict=True):
            equal([k for k in row.tolist() if k], pairs[word - 4][0], names="the source / another target's source")
    widths = sum((source != 0).float().mean().item() for source, _ in found) / len(found)
    holds(widths > 0.8, f"{1 - widths:.0%} of the sources are padding: sentences of similar length belong together")
    orders = [[target[:, 1].tolist() for _, target in batches(pairs, 8, seed)] for seed in (0, 0, 1)]
    holds(orders[0] == orders[1], "the same seed gives another order")
    holds(orders[0] != orders[2], "another seed gives the same order")
    widths = [source.shape[1] for source, _ in batches(pairs, 3, 0)]
    holds(widths != sorted(widths), "the batches come in the order of their length, the short sentences first")


@check(log_probability, "The loss")
def sum_of_log_probabilities() -> None:
    """The log-probability of a sentence is the sum of its tokens' ones: one number for each sentence."""
    logits, targets = randn(2, 3, 7), tensor([[4, 5, 2], [6, 3, 2]])
    log_p = logits.log_softmax(-1)
    loop = torch.stack([sum(log_p[b, t, targets[b, t]] for t in range(3)) for b in range(2)])
    wrong = torch.stack([sum(logits.log_softmax(1)[b, t, targets[b, t]] for t in range(3)) for b in range(2)])
    slips = {"Softmax along the wrong axis": wrong, "a mean, not a sum": loop / 3, "a sum over the batch": loop.sum()}
    equal(log_probability(logits, targets), loop, slips)


@check(log_probability, "The loss")
def padding_adds_nothing() -> None:
    """Padding behind a sentence does not change its log-probability, even if the model finds it impossible."""
    logits = randn(1, 5, 7)
    targets, log_p = tensor([[4, 2, 0, 0, 0]]), logits.log_softmax(-1)
    chosen = log_p[0, range(5), targets[0]]
    slips = {"the log-probabilities of PAD are added, too": chosen.sum()[None]}
    equal(log_probability(logits, targets), chosen[:2].sum()[None], slips)
    logits[..., 0] = -math.inf
    got = log_probability(logits, targets)
    holds(got.isfinite().all(), f"with -inf at PAD, it is {got.item()}: multiplying by a mask is not enough")


@check(loss, "The loss")
def shifted_by_one() -> None:
    """The model reads all but the last token and is scored on all but the first; the mean is over real tokens."""
    target, read = tensor([[1, 4, 5, 2], [1, 6, 2, 0]]), []
    logits = randn(2, 3, 7)

    def model(source, given):
        read.append(given)
        return logits

    log_p = logits.log_softmax(-1)
    right = log_p.gather(-1, target[:, 1:, None])[..., 0] * (target[:, 1:] != 0)
    given = log_p.gather(-1, target[:, :-1, None])[..., 0]
    slips = {
        "The answer among the inputs": -given.mean(),
        "divided by all positions, padding too": -right.sum() / 6,
        "a mean of means": -(right.sum(1) / tensor([3, 2])).mean(),
        "a forgotten minus sign": right.sum() / 5,
    }
    equal(loss(model, target, target), -right.sum() / 5, slips)
    equal(read[0], target[:, :-1], {"the model reads the whole target": target}, "what the model should read / reads")


@check(evaluate, "A model that learns")
def of_all_tokens_together() -> None:
    """A model that finds seven tokens equally likely has perplexity 7, and so has a corpus, whatever its padding.

    Log-probabilities and tokens of all sentences are added up before they are divided.
    """
    pairs = [([4, 2], [1, 4, 5, 6, 4, 2])] * 150 + [([4, 4, 4, 2], [1, 2])] * 50

    def even(source, target):
        return torch.zeros(*target.shape, 7)

    got = evaluate(even, pairs)
    slips = {"a forgotten minus sign": 1 / 7, "a power of 2 instead of e": 2 ** math.log(7)}
    equal(got, 7.0, slips)

    def unsure(source, target):
        return 3.0 * torch.nn.functional.one_hot(torch.where(target == 1, 2, target), 7)

    parts = [math.log(math.exp(3) + 6) - 3, math.log(math.exp(3) + 6)]  # nats of a token it expects, of another one
    n, nats = 150 * 5 + 50, 150 * 5 * parts[1] + 50 * parts[0]
    slips = {"A mean of means": math.exp((11 * parts[1] + parts[0]) / 12)}  # of two batches
    slips["a mean of the sentences' means"] = math.exp((3 * parts[1] + parts[0]) / 4)
    equal(evaluate(unsure, pairs), math.exp(nats / n), slips)


@check(translate, "A model that learns")
def one_word_after_another() -> None:
    """The best token is fed back until EOS, or until ``longest`` tokens are written; PAD and BOS are never written."""

    def model(source, target):
        logits = torch.zeros(1, target.shape[1], 9)
        logits[0, :, :2] = 9.0
        best = 2 if target[0, -1] == 6 else 4 if target.shape[1] == 1 else target[0, -1] + 1
        logits[0, -1, best] = 5.0
        return logits

    equal(translate(model, [4, 2]), [4, 5, 6], {"the result still ends in EOS": [4, 5, 6, 2]})
    equal(translate(model, [4, 2], longest=2), [4, 5])
