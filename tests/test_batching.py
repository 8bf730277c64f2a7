"""Batches: every example once, within the budget, filled up with padding and nothing else."""

import re

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from jaxtyping import TypeCheckError
from texts import BPE, WORDS

from transformer_lib.data.batching import Pair, batches, collate, encode_pairs
from transformer_lib.data.tokenizer import BOS, EOS, PAD

LENGTHS = st.lists(st.tuples(st.integers(1, 12), st.integers(2, 12)), min_size=1, max_size=40)


def make_examples(lengths):
    """Examples of given lengths; every one has ids of its own."""
    return [([10 + i] * (s - 1) + [EOS], [BOS] + [10 + i] * (t - 2) + [EOS]) for i, (s, t) in enumerate(lengths)]


@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@given(LENGTHS, st.integers(12, 80), st.none() | st.integers(0, 5), st.integers(0, 3))
def test_batches_hold_every_example_once_within_the_budget(lengths, max_tokens, seed, epoch):
    examples = make_examples(lengths)
    made = list(batches(examples, max_tokens, seed=seed, epoch=epoch))
    assert sorted(index for batch in made for index in batch.indices) == list(range(len(examples)))
    for batch in made:
        assert len(batch) * max(batch.source.shape[1], batch.target.shape[1]) <= max_tokens
        for row, index in enumerate(batch.indices):
            source, target = examples[index]
            assert batch.source[row].tolist() == source + [PAD] * (batch.source.shape[1] - len(source))
            assert batch.target[row].tolist() == target + [PAD] * (batch.target.shape[1] - len(target))
    again = list(batches(examples, max_tokens, seed=seed, epoch=epoch))
    assert [batch.indices for batch in made] == [batch.indices for batch in again]


@pytest.mark.slow
@settings(max_examples=50, deadline=None)
@given(LENGTHS)
def test_without_a_seed_short_examples_come_first(lengths):
    examples = make_examples(lengths)
    order = [index for batch in batches(examples, 30) for index in batch.indices]
    assert order == sorted(range(len(examples)), key=lambda index: max(lengths[index]))


def test_seeds_and_epochs_differ_and_are_pinned():
    examples = make_examples([(1 + i % 7, 2 + i % 5) for i in range(60)])

    def order(**options):
        return [index for batch in batches(examples, 40, **options) for index in batch.indices]

    orders = [tuple(order(seed=seed, epoch=epoch)) for seed in (0, 1) for epoch in (0, 1, 2)]
    assert len(set(orders)) == 6
    assert order(seed=7, epoch=3)[:12] == [57, 22, 2, 42, 45, 17, 52, 37, 31, 10, 20, 27]


def test_shuffling_lets_different_sentences_meet():
    examples = make_examples([(5, 5)] * 40)
    meetings = {frozenset(batch.indices) for epoch in range(5) for batch in batches(examples, 20, seed=1, epoch=epoch)}
    assert len(meetings) > 40  # ten batches in each of five epochs, nearly all of them new


def test_bucketing_saves_padding():
    generator = torch.Generator().manual_seed(0)
    sizes = torch.randint(3, 40, (500,), generator=generator).tolist()
    examples = make_examples([(size, size + 1) for size in sizes])
    share = {}
    plain = [collate(examples[k : k + 32]) for k in range(0, 500, 32)]
    for name, made in (("plain", plain), ("bucketed", list(batches(examples, 32 * 20, seed=0)))):
        padding = sum(int((batch.source == PAD).sum()) for batch in made)
        share[name] = padding / sum(batch.source.numel() for batch in made)
    assert share["bucketed"] < share["plain"] / 3


def test_errors_of_batches_come_at_once_not_at_the_first_batch():
    with pytest.raises(ValueError, match="max_tokens=5: example 1 has 9 tokens"):
        batches(make_examples([(2, 3), (9, 4), (3, 3)]), 5)


def test_collate():
    batch = collate([([5, 6, EOS], [BOS, 7, EOS]), ([8, EOS], [BOS, 9, 9, EOS])], indices=[4, 2])
    assert batch.source.tolist() == [[5, 6, EOS], [8, EOS, PAD]]
    assert batch.target.tolist() == [[BOS, 7, EOS, PAD], [BOS, 9, 9, EOS]]
    assert batch.source.dtype == batch.target.dtype == torch.long
    assert batch.target_input.tolist() == [[BOS, 7, EOS], [BOS, 9, 9]]
    assert batch.target_output.tolist() == [[7, EOS, PAD], [9, 9, EOS]]
    assert batch.n_tokens == 5
    assert batch.indices == (4, 2) and len(batch) == 2
    assert collate([([EOS], [BOS, EOS])]).indices == (0,)
    moved = batch.to("meta")
    assert moved.source.device.type == moved.target.device.type == "meta" and moved.indices == (4, 2)
    assert batch.source.device.type == "cpu"


@pytest.mark.parametrize(
    "kind", [Pair, lambda *texts: texts, lambda *texts: list(texts)], ids=["Pair", "tuple", "list"]
)
def test_encode_pairs(kind):
    pairs = (kind(text, text.upper()) for text in ("the dog", "dog"))
    assert encode_pairs(pairs, WORDS, BPE) == [
        ([*WORDS.encode("the dog"), EOS], [BOS, *BPE.encode("THE DOG"), EOS]),
        ([*WORDS.encode("dog"), EOS], [BOS, *BPE.encode("DOG"), EOS]),
    ]


EXAMPLES = make_examples([(3, 4), (2, 2)])


# ---- bad input


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: encode_pairs([Pair("a", "b"), Pair("", "b")], WORDS, WORDS), r"source of pairs\[1\]"),
        (lambda: encode_pairs([Pair("a", " \t")], BPE, BPE), r"target of pairs\[0\]"),
        (lambda: encode_pairs(["ab"], WORDS, WORDS), r"pairs\[0\] is 'ab', expected"),
        (lambda: encode_pairs([("a", "b", "c")], WORDS, WORDS), r"pairs\[0\] is"),
        (lambda: encode_pairs([("a", 3)], WORDS, WORDS), r"pairs.* 3"),
        (lambda: encode_pairs([{"en": "a dog", "de": "ein Hund"}], WORDS, WORDS), r"pairs\[0\] is \{'en'"),
        (lambda: encode_pairs([("a", "b"), 5], WORDS, WORDS), r"pairs\[1\] is 5"),
        (lambda: collate([]), "examples is empty"),
        (lambda: collate([([EOS], [BOS])]), r"examples\[0\] is no source with EOS"),
        (lambda: collate([([], [BOS, EOS])]), r"examples\[0\]"),
        (lambda: collate([EXAMPLES[0], ([5], [BOS, EOS])]), r"examples\[1\]"),
        (lambda: collate([([5, EOS], [7, EOS])]), r"examples\[0\]"),
        (lambda: collate([([5, EOS], [BOS, 7])]), r"examples\[0\]"),
        (lambda: batches([], 100), "no examples"),
        (lambda: batches(EXAMPLES, 3), r"max_tokens=3: example 0 has 4 tokens"),
    ],
)
def test_bad_input_names_the_thing(call, message):
    with pytest.raises((ValueError, TypeError, FileNotFoundError)) as caught:
        call()
    if not isinstance(caught.value, TypeCheckError) and not isinstance(caught.value.__cause__, TypeCheckError):
        assert re.search(message, str(caught.value))  # test_errors.py asks again, where annotations are not checked
