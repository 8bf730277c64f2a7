"""Tests for chapter "Sampling"."""

import torch
from torch import Tensor, randn, tensor

from transformer_lib.plain.sampling import BOS, EOS, PAD, probabilities, sample
from transformer_lib.student.checks import check, equal, holds

V = 6


def model(source: Tensor, target: Tensor) -> Tensor:
    """Logits of the next token that depend on the sentence and on the last token: never BOS or PAD by themselves."""
    table = torch.randn(10, V, V, generator=torch.Generator().manual_seed(5)) * 1.5
    return table[source[:, :1], target]


@check(probabilities, "Where does the nonsense come from?")
def temperature() -> None:
    """Logits are divided by the temperature before the softmax."""
    logits = randn(2, V)
    slips = {
        "multiplied by the temperature": (logits / 2).softmax(-1),
        "divided after the softmax": logits.softmax(-1) / 0.5,
    }
    equal(probabilities(logits, temperature=0.5), (logits * 2).softmax(-1), slips)


@check(probabilities, "Where does the nonsense come from?")
def top_k_and_top_p() -> None:
    """Top-k leaves the k likeliest words, top-p the fewest that have the probability p; what is left sums to 1.

    Of both, top-k comes first, and top-p counts probabilities of what it left.
    """
    logits = tensor([[0.5, 0.3, 0.15, 0.05]]).log()
    unsorted, want = logits[:, [2, 0, 3, 1]], tensor([[0, 0.625, 0, 0.375]])
    slips = {"the probabilities stay in their sorted order": tensor([[0.625, 0.375, 0, 0]])}
    equal(
        probabilities(unsorted, top_k=2), want, slips | {"what is left does not sum to 1": tensor([[0, 0.5, 0, 0.3]])}
    )
    slips = {"the word that reaches p is dropped": tensor([[0.625, 0.375, 0, 0]])}
    equal(probabilities(logits, top_p=0.85), tensor([[0.5, 0.3, 0.15, 0]]) / 0.95, slips)
    equal(probabilities(logits, top_k=2, top_p=0.6), tensor([[1.0, 0, 0, 0]]))


@check(probabilities, "Where does the nonsense come from?")
def no_more_than_k() -> None:
    """Of equal words, too, top-k leaves only k: compare places in the sorted order, not probabilities.

    Top-p leaves no more than it needs: of four with a probability of 0.25, two have 0.5.
    """
    kept = int((probabilities(torch.zeros(1, V), top_k=2) > 0).sum())
    holds(kept == 2, f"top_k=2 left {kept} of {V} words that are equally likely")
    kept = int((probabilities(torch.zeros(1, 4), top_p=0.5) > 0).sum())
    holds(kept == 2, f"top_p=0.5 left {kept} of 4 words that are equally likely")


@check(sample, "Drawing whole sentences")
def drawn() -> None:
    """Words are drawn as often as their probabilities say, PAD and BOS never; with top_k=1, the likeliest always is."""
    source = torch.full((4000, 1), 4)
    p = model(source[:1], tensor([[BOS]]))[0, 0]
    p[[PAD, BOS]] = -torch.inf
    got = sample(model, source, max_length=1, generator=torch.Generator().manual_seed(0))[:, 0]
    share = got.bincount(minlength=V) / 4000
    holds(
        (share - p.softmax(-1)).abs().max() < 0.04,
        f"probabilities {p.softmax(-1).tolist()}, share of draws {share.tolist()}",
        {"it may draw BOS or PAD": bool(share[PAD] + share[BOS] > 0)},
    )
    again = sample(model, source, max_length=1, generator=torch.Generator().manual_seed(0))[:, 0]
    equal(again, got, {"the generator is not used": True}, names="drawn with a generator / with the same one again")


@check(sample, "Drawing whole sentences")
def whole_rows() -> None:
    """It begins with BOS and ``begin``, which are read; BOS isn't returned. After EOS comes PAD, also in a long row."""
    source = torch.arange(9)[:, None]
    rows = sample(model, source, begin=[4, 3], max_length=8, generator=torch.Generator().manual_seed(0))
    equal(rows[:, :2], tensor([[4, 3]] * 9), {"the beginning is left out, or BOS is returned": True})
    holds(rows.shape[1] <= 8, f"max_length=8, but rows of {rows.shape[1]} words")
    for row in rows.tolist():
        if EOS in row:
            after = set(row[row.index(EOS) + 1 :])
            holds(after <= {PAD}, f"after EOS comes {row[row.index(EOS) + 1 :]}")
    holds(any(EOS in row[:-1] for row in rows.tolist()), f"no row ends before the others: {rows.tolist()}")


@check(sample, "Drawing whole sentences")
def the_likeliest_words() -> None:
    """With top_k=1 the likeliest word always comes next, given the last one; when every row has ended, it stops."""
    source = torch.arange(9)[:, None]
    target = torch.full((9, 1), BOS)
    for _ in range(4):
        scores = model(source, target)[:, -1]
        scores[:, [PAD, BOS]] = -torch.inf
        word = scores.argmax(-1).masked_fill((target == EOS).any(1), PAD)
        target = torch.cat([target, word[:, None]], 1)
    want = target[:, 1:]
    slips = {"it reads the logits after BOS at every step": want[:, :1].expand(-1, 4)}
    equal(sample(model, source, top_k=1, max_length=4), want, slips)

    def ends(source: Tensor, target: Tensor) -> Tensor:
        return 99.0 * torch.eye(V)[EOS].expand(*target.shape, V)

    equal(sample(ends, source), torch.full((9, 1), EOS), {"it goes on when every row has ended": True})
