"""The scores: equal to trusted references, right in every limit, clear about bad input."""

import dataclasses
import inspect
import math
import re
import subprocess
import sys

import numpy as np
import pytest
import sacrebleu
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from jaxtyping import TypeCheckError

from transformer_lib.metrics import (
    Bleu,
    alignment_error_rate,
    bleu,
    exact_match,
    perplexity,
    sequence_log_probability,
)

seeds = st.integers(0, 2**31 - 1)


def example(seed: int, B: int = 3, T: int = 5, V: int = 7, dtype: torch.dtype = torch.float64):
    """Random logits and targets, some rows padded with 0."""
    generator = torch.Generator().manual_seed(seed)
    logits = 3 * torch.randn(B, T, V, generator=generator, dtype=torch.float64)
    targets = torch.randint(1, V, (B, T), generator=generator)
    for b in range(B):
        targets[b, int(torch.randint(1, T + 1, (), generator=generator)) :] = 0
    return logits.to(dtype), targets


# ---------------------------------------------------------------- log-probability


@settings(max_examples=30, deadline=None)
@given(seed=seeds, pad=st.sampled_from([0, 3, -100]))
def test_log_probability_and_its_gradient_equal_those_of_cross_entropy(seed, pad):
    logits, targets = example(seed)
    targets = targets.masked_fill(targets == 0, pad)
    losses = F.cross_entropy(logits.requires_grad_().transpose(1, 2), targets, ignore_index=pad, reduction="none")
    found = sequence_log_probability(logits, targets, pad=pad)
    torch.testing.assert_close(found, -losses.sum(1))
    torch.testing.assert_close(*(torch.autograd.grad(x.sum(), logits) for x in (found, -losses)))


@settings(max_examples=20, deadline=None)
@given(seed=seeds, extra=st.integers(1, 4))
def test_padding_and_company_change_nothing(seed, extra):
    logits, targets = example(seed)
    filler = torch.full((3, extra, 7), math.nan, dtype=logits.dtype)  # what stands at padding must not matter
    padded = torch.cat([logits, filler], 1).requires_grad_()
    longer = sequence_log_probability(padded, F.pad(targets, (0, extra)))
    alone = torch.cat([sequence_log_probability(logits[b : b + 1], targets[b : b + 1]) for b in range(3)])
    torch.testing.assert_close(longer, sequence_log_probability(logits, targets))
    torch.testing.assert_close(alone, sequence_log_probability(logits, targets))
    (gradient,) = torch.autograd.grad(longer.sum(), padded)
    assert gradient.isfinite().all() and not gradient[:, 5:].any()


@pytest.mark.parametrize(
    ("dtype", "integers"),
    [
        (torch.float16, torch.int16),
        (torch.bfloat16, torch.int32),
        (torch.float32, torch.int64),
        (torch.float64, torch.int64),
    ],
)
def test_log_probability_in_every_precision_and_type_of_targets(dtype, integers):
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(2, 60, 4000, generator=generator).to(dtype)
    targets = torch.randint(1, 4000, (2, 60), generator=generator)
    result = sequence_log_probability(logits, targets.to(integers))
    assert result.dtype == (torch.float64 if dtype == torch.float64 else torch.float32)
    exact = sequence_log_probability(logits.double(), targets)
    torch.testing.assert_close(result.double(), exact, rtol=0, atol=1e-3)


def test_impossible_tokens_and_empty_targets():
    logits = torch.zeros(1, 2, 4)
    logits[0, 1, 3] = -math.inf
    assert sequence_log_probability(logits, torch.tensor([[1, 3]])).item() == -math.inf
    assert math.isclose(sequence_log_probability(logits, torch.tensor([[1, 2]])).item(), -math.log(12), rel_tol=1e-6)
    assert sequence_log_probability(logits, torch.tensor([[0, 0]])).item() == 0.0
    assert sequence_log_probability(torch.zeros(0, 3, 4), torch.zeros(0, 3, dtype=torch.long)).shape == (0,)
    assert sequence_log_probability(torch.zeros(2, 0, 4), torch.zeros(2, 0, dtype=torch.long)).tolist() == [0, 0]


def test_a_model_that_broke_down_is_not_hidden():
    logits, targets = example(5)
    logits[0, 0, 2] = math.nan
    assert math.isnan(sequence_log_probability(logits, targets)[0])
    assert torch.isfinite(sequence_log_probability(logits, targets)[1:]).all()


# ---------------------------------------------------------------- perplexity


@settings(max_examples=30, deadline=None)
@given(vocabulary=st.integers(1, 500), length=st.integers(1, 60))
def test_a_uniform_model_has_the_perplexity_of_its_vocabulary(vocabulary, length):
    assert math.isclose(perplexity(-length * math.log(vocabulary), length), vocabulary, rel_tol=1e-9)


def test_perplexity_of_certain_and_impossible_sentences():
    assert perplexity(0.0, 4) == 1.0
    assert perplexity(-math.inf, 4) == math.inf
    assert perplexity(-5000.0, 1) == math.inf
    assert perplexity(1e-7, 1) == pytest.approx(1.0)  # rounding may end a little above zero


# ---------------------------------------------------------------- exact match


def test_exact_match_counts_whole_sentences():
    references = ["she gets up early", "they get up", "he is here", "wo ?"]
    assert exact_match(references, references) == 1.0
    assert exact_match(["she gets up early", "They get up", "he is here.", ""], references) == 0.25
    assert exact_match(["", "x"], ["", "y"]) == 0.5
    assert exact_match(("a", "b"), ["b", "a"]) == 0.0


# ---------------------------------------------------------------- BLEU


def test_the_example_worked_by_hand():
    result = bleu(
        ["she gets up early on sunday", "the the the dog sleeps"],
        ["she gets up early every day", "the little dog sleeps in the garden"],
        tokenize="none",
    )
    assert result.score == pytest.approx(100 * math.exp(1 - 13 / 11) * (8 / 11 * 4 / 9 * 2 / 7 * 1 / 5) ** 0.25)
    assert result.precisions == pytest.approx((800 / 11, 400 / 9, 200 / 7, 100 / 5))
    assert result.brevity_penalty == pytest.approx(math.exp(1 - 13 / 11))
    assert (result.hypothesis_length, result.reference_length) == (11, 13)


WRITTEN = ["When it rains, we stay at home.", "The dog doesn't like the well-known cat!", "She left at 7.30."]
WANTED = ["When it's raining, we stay home.", "the dog does not like the well-known cat.", "She left at 7.30!"]


@pytest.mark.parametrize(
    ("tokenize", "lowercase"),
    [("13a", False), ("13a", True), ("none", True), ("intl", False), ("char", True), ("zh", False)],
)
def test_bleu_equals_sacrebleu(tokenize, lowercase):
    result = bleu(WRITTEN, WANTED, tokenize=tokenize, lowercase=lowercase)
    theirs = sacrebleu.corpus_bleu(WRITTEN, [WANTED], tokenize=tokenize, lowercase=lowercase)
    assert result.score == pytest.approx(theirs.score)
    assert result.precisions == pytest.approx(tuple(theirs.precisions))
    for part in (f"tok:{tokenize}", "case:lc" if lowercase else "case:mixed", "nrefs:1", sacrebleu.__version__):
        assert part in result.signature


def test_bleu_of_output_that_is_empty_or_shares_nothing():
    assert bleu([""], ["the dog sleeps"]).score == 0
    assert bleu(["one two three four"], ["five six seven eight"]).score == 0
    assert bleu(["", "the dog sees a tree"], ["a cat", "the dog sees a tree"], tokenize="none").score == pytest.approx(
        100 * math.exp(1 - 7 / 5)
    )


def test_uneven_numbers_of_references():
    result = bleu(["a b c d e", "f g h i"], [["a b c d e", "x y"], ["f g h j"]], tokenize="none")
    assert "nrefs:var" in result.signature and result.reference_length == 5 + 4
    assert result.score == pytest.approx(100 * (8 / 9 * 6 / 7 * 4 / 5 * 2 / 3) ** 0.25)


def test_bleu_prints_score_and_signature():
    result = bleu(["the dog sees a tree"], ["the dog sees a tree"])
    assert str(result) == f"BLEU = 100.00 ({result.signature})"
    assert isinstance(result, Bleu)
    with pytest.raises(dataclasses.FrozenInstanceError):
        result.score = 1.0


def test_text_cut_at_spaces_is_scored_without_complaint(caplog):
    text = ["the dog sees a tree ."] * 120
    assert bleu(text, text, tokenize="none").score == pytest.approx(100)
    assert not caplog.records
    bleu(text, text)  # but text that should have been plain is remarked upon
    assert "forgot to detokenize" in caplog.text


@pytest.mark.slow
def test_sacrebleu_is_imported_only_when_it_is_needed():
    code = "import sys, transformer_lib.metrics; sys.exit('sacrebleu' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], timeout=120).returncode == 0


# ---------------------------------------------------------------- alignment error rate

links = st.frozensets(st.tuples(st.integers(0, 4), st.integers(0, 4)), max_size=8)
alignments = st.lists(st.tuples(links, links, links), min_size=1, max_size=4).filter(
    lambda rows: any(a or s for a, s, _ in rows)
)


def test_the_alignment_worked_by_hand():
    sure = {(0, 4), (2, 0), (3, 2), (4, 3), (5, 1)}
    predicted = {(0, 4), (1, 1), (2, 0), (3, 2), (4, 4)}
    assert alignment_error_rate([predicted], [sure], [sure | {(1, 1)}]) == pytest.approx(0.3)
    assert alignment_error_rate([predicted], [sure], [{(1, 1)}]) == pytest.approx(0.3)  # sure links need no repeating
    assert alignment_error_rate([predicted], [sure]) == pytest.approx(0.4)


@pytest.mark.slow
@given(rows=alignments)
def test_aer_equals_the_formula_over_the_corpus(rows):
    predicted, sure, extra = map(list, zip(*rows, strict=True))
    possible = [s | e for s, e in zip(sure, extra, strict=True)]
    common = sum(link in s for a, s in zip(predicted, sure, strict=True) for link in a)
    common += sum(link in p for a, p in zip(predicted, possible, strict=True) for link in a)
    size = sum(map(len, predicted)) + sum(map(len, sure))
    rate = alignment_error_rate(predicted, sure, possible)
    assert rate == pytest.approx(1 - common / size)
    assert 0 <= rate <= 1
    assert rate <= alignment_error_rate(predicted, sure) + 1e-12  # possible links only help


def test_aer_takes_any_collection_of_whole_numbers():
    pairs = ((0, 0), (1, 1))
    arrays = [(np.int64(0), np.int64(0)), (np.int64(1), np.int64(1))]
    plain = inspect.unwrap(alignment_error_rate)
    assert alignment_error_rate([pairs], [list(pairs)]) == 0.0
    assert alignment_error_rate([[(0, 0), (0, 0), (1, 1)]], [set(pairs)]) == 0.0  # twice is once
    assert plain([arrays], [[[0, 0], [1, 1]]]) == 0.0


# ---------------------------------------------------------------- bad input

Z = torch.zeros(2, 3, 5)
Y = torch.ones(2, 3, dtype=torch.long)
LINK = [{(0, 0)}]
BAD = {
    "short targets": (sequence_log_probability, (Z, Y[:, :2]), ValueError, r"targets \(2, 2\) do not belong together"),
    "float targets": (sequence_log_probability, (Z, Y.float()), ValueError, "float32 targets"),
    "no tokens": (perplexity, (-1.0, 0), ValueError, "n_tokens=0"),
    "a loss": (perplexity, (2.5, 1), ValueError, "log_probability=2.5.*a loss is minus"),
    "not a number": (perplexity, (math.nan, 1), ValueError, "log_probability=nan"),
    "em: unequal": (exact_match, (["a"], ["a", "b"]), ValueError, "1 hypotheses and 2 references"),
    "em: empty": (exact_match, ([], []), ValueError, "0 hypotheses"),
    "em: one string": (exact_match, ("ab", "ab"), TypeError, "'ab' is not a list"),
    "em: token lists": (exact_match, (["a"], [["a"]]), TypeError, "not a string"),
    "references on their side": (bleu, (["a", "b"], [["a", "b"]]), ValueError, "2 hypotheses and 1 references"),
    "one reference": (bleu, (["the dog"], "the dog"), TypeError, "'the dog' is not a list"),
    "a set": (bleu, ({"the dog"}, ["the dog"]), TypeError, "is not a list"),
    "None": (bleu, ([None], ["a"]), TypeError, "not a string"),
    "number among references": (bleu, (["a"], [["a", 3]]), ValueError, r"references\[0\]"),
    "empty reference": (bleu, (["a", "b"], ["a", " "]), ValueError, r"references\[1\]"),
    "invisible reference": (bleu, (["a", "b"], ["a", "\u200b"]), ValueError, r"references\[1\]"),
    "no reference": (bleu, (["a", "b"], ["a", []]), ValueError, r"references\[1\]"),
    "aer: no links": (alignment_error_rate, ([set()], [set()]), ValueError, "have no links"),
    "aer: unequal": (alignment_error_rate, (LINK, LINK * 2), ValueError, "zip"),
}


@pytest.mark.parametrize("name", BAD)
def test_what_would_give_a_wrong_score_is_refused(name):
    function, arguments, error, message = BAD[name]
    with pytest.raises((error, TypeError)) as caught:
        function(*arguments)
    assert isinstance(caught.value, TypeCheckError) or re.search(message, str(caught.value))
