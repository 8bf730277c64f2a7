"""Tests for chapter "Luong attention"."""

import torch
from torch import randn, tensor

from transformer_lib.models.bahdanau import AlignedMemory
from transformer_lib.models.luong import (
    DotScore,
    GeneralScore,
    LocalAttention,
    LocationScore,
    LuongConfig,
    LuongSeq2Seq,
    attend_window,
    window_positions,
)
from transformer_lib.student.checks import check, equal, holds

SOURCE, TARGET = tensor([[4, 5, 6, 2], [7, 2, 0, 0]]), tensor([[1, 8, 9, 2], [1, 10, 2, 0]])
SIZES = LuongConfig(11, 11, d_model=6, d_hidden=8, dropout=0.0)
MASK = tensor([[True] * 6, [True] * 4 + [False] * 2])


def memory() -> AlignedMemory:
    """Six source positions, of which the second sentence fills four."""
    outputs = randn(2, 6, 8)
    return AlignedMemory(outputs, MASK, outputs)


@check(DotScore.compare, "Four scores, one line each")
def dot_products() -> None:
    """The score of query t and key s is their dot product."""
    q, k = randn(2, 4, 8), randn(2, 3, 8)
    equal(
        DotScore().compare(q, k),
        torch.stack([torch.stack([(q[:, t] * k[:, s]).sum(-1) for s in range(3)], -1) for t in range(4)], 1),
    )


@check(GeneralScore.prepare, "Four scores, one line each")
def projected_keys() -> None:
    """The keys are projected by W before they meet a query."""
    score, k = GeneralScore(8, 5), randn(2, 3, 5)
    equal(score.prepare(k), k @ score.key.weight.T)


@check(LocationScore.compare, "Four scores, one line each")
def scores_of_positions() -> None:
    """The scores come from the query alone: as many of q W as there are keys."""
    score, q = LocationScore(8, 10), randn(2, 4, 8)
    equal(score.compare(q, randn(2, 3, 8)), score.place(q)[:, :, :3])


@check(window_positions, "A window on the source")
def positions_in_a_window() -> None:
    """The first position is the first one inside the window; they count from 1 and may lie outside the sentence."""
    got = window_positions(tensor([[1.0, 4.3]]), 2)
    want = tensor([[[-1, 0, 1, 2, 3], [3, 4, 5, 6, 7]]])
    equal(
        got,
        want,
        {"positions that count from 0": want - 1, "a rounded centre": tensor([[[-1, 0, 1, 2, 3], [2, 3, 4, 5, 6]]])},
    )


@check(attend_window, "A window on the source")
def a_softmax_within_the_window() -> None:
    """Weights are the softmax over the window's words, zero elsewhere; positions count from 1."""
    m, q = memory(), randn(2, 2, 8)
    context, got = attend_window(DotScore(), q, m, torch.full((2, 2), 3.0), 1, False)
    scores, want = q @ m.keys.mT, torch.zeros(2, 2, 6)
    want[:, :, 1:4] = scores[:, :, 1:4].softmax(-1)
    shifted = torch.zeros(2, 2, 6)
    shifted[:, :, 2:5] = scores.masked_fill(~MASK[:, None], -1e9)[:, :, 2:5].softmax(-1)
    equal(got, want, {"positions that count from 0": shifted})
    equal(context, want @ m.outputs)


@check(attend_window, "A window on the source")
def at_the_edges() -> None:
    """A window that reaches over the end of a sentence holds the words that there are, and no padding."""
    m, q = memory(), randn(2, 1, 8)
    context, got = attend_window(DotScore(), q, m, tensor([[1.0], [4.0]]), 2, False)
    scores, want = q @ m.keys.mT, torch.zeros(2, 1, 6)
    want[0, :, :3], want[1, :, 1:4] = scores[0, :, :3].softmax(-1), scores[1, :, 1:4].softmax(-1)
    equal((context, got), (want @ m.outputs, want))


@check(attend_window, "A window on the source")
def the_bell() -> None:
    """With a bell, each weight is multiplied by exp(-(s - p)^2 / (2 sigma^2)), where sigma is half the window."""
    m, q, p = memory(), randn(2, 1, 8), 2.6
    scores, plain = (q @ m.keys.mT)[:, :, :4], torch.zeros(2, 1, 6)
    plain[:, :, :4] = scores.softmax(-1)  # words 1 to 4 are at most 2 away, but word 5 is 2.4 away
    equal(attend_window(DotScore(), q, m, torch.full((2, 1), p), 2, False)[1], plain)
    _, got = attend_window(DotScore(), q, m, torch.full((2, 1), p), 2, True)
    s = torch.arange(1, 7)
    slips = {
        f"sigma is {d}": plain * torch.exp(-((s - p) ** 2) / (2 * v))
        for d, v in (("the window", 4.0), ("its square root", 2.0))
    }
    equal(
        got,
        plain * torch.exp(-((s - p) ** 2) / 2),
        slips | {"A window that no gradient can move": plain * torch.exp(-((s - 3) ** 2) / 2)},
    )


@check(attend_window, "A window on the source")
def the_centre_learns() -> None:
    """A predicted centre gets a gradient through the bell."""
    centre = torch.full((2, 1), 2.6, requires_grad=True)
    context, _ = attend_window(DotScore(), randn(2, 1, 8), memory(), centre, 2, True)
    (gradient,) = torch.autograd.grad(context.sum(), centre, allow_unused=True) if context.requires_grad else (None,)
    moved = gradient is not None and bool((gradient != 0).all())
    holds(moved, f"the gradient of the centre is {gradient}", {"A window that no gradient can move": True})


@check(LocalAttention.centres, "A window on the source")
def centres_that_move_along() -> None:
    """Local-m: the centre is the position of the target word, counted from 1."""
    local = LocalAttention(DotScore(), 2)
    got = local.centres(randn(2, 3, 8), MASK, torch.arange(3))
    equal(got, tensor([[1.0, 2.0, 3.0]] * 2), {"positions that count from 0": tensor([[0.0, 1.0, 2.0]] * 2)})


@check(LocalAttention.centres, "A window on the source")
def predicted_centres() -> None:
    """Local-p: the centre is a share, by the sigmoid, of the sentence's own length without padding."""
    local, q = LocalAttention(DotScore(), 2, 8), randn(2, 3, 8)
    share = local.predict(q)[:, :, 0].sigmoid()
    equal(
        local.centres(q, MASK, torch.arange(3)),
        tensor([[6.0], [4.0]]) * share,
        {"the length with its padding": 6 * share},
    )


@check(LocalAttention.forward, "A window on the source")
def far_words_get_nothing() -> None:
    """Words further away than the window get no weight."""
    weights = LocalAttention(DotScore(), 1)(randn(2, 3, 8), memory(), torch.arange(3))[1]
    near = (torch.arange(6) - torch.arange(3)[:, None]).abs() <= 1
    equal(weights != 0, (near & MASK[:, None]))


@check(LocalAttention.forward, "A window on the source")
def a_bell_around_predicted_centres() -> None:
    """Local-p has a bell around its centres, and local-m has none."""
    m, q, at = memory(), randn(2, 3, 8), torch.arange(3)
    for local, bell in ((LocalAttention(DotScore(), 2, 8), True), (LocalAttention(DotScore(), 2), False)):
        centres = local.centres(q, MASK, at)
        equal(local(q, m, at)[:2], attend_window(DotScore(), q, m, centres, 2, bell))


@check(LuongSeq2Seq.first_state, "Update first, then attend")
def begins_with_the_last_state() -> None:
    """The decoder begins with the encoder's last state, and nothing (zeros) is fed."""
    model = LuongSeq2Seq(SIZES).eval()
    m = model.encode(SOURCE)
    state = model.first_state(m)
    equal((state.hidden, state.feed), (m.final, torch.zeros(2, 1, 6)))


@check(LuongSeq2Seq.read, "Update first, then attend")
@check(LuongSeq2Seq.advance, "Update first, then attend")
def attends_after_its_step() -> None:
    """The GRU takes its step first; the new state asks; context and state make the attentional vector.

    Dropout acts on the embedded words and on this vector, before it is fed.
    """
    model = LuongSeq2Seq(SIZES).eval()
    state = model.start(SOURCE)
    word = model.dropout(model.embedding(TARGET[:, :1]))
    outputs, h = model.gru(torch.cat([word, state.feed], -1), state=state.hidden)
    context, _ = model.attention(outputs, state.memory)
    early, _ = model.attention(state.hidden[:, -1:], state.memory)
    rows = ((context, outputs), (outputs, context), (early, outputs))
    end = torch.stack([model.attentional(torch.cat(row, -1)) for row in rows]).tanh()
    want, swapped, before = model.dropout(end)
    got, after = model.read(TARGET[:, :1], state)
    slips = {"state and context exchanged": (swapped, h, swapped)}
    slips |= {"attends with the old state": (before, h, before)}
    equal((got, after.hidden, after.feed), (want, h, want), slips)


@check(LuongSeq2Seq.read, "Update first, then attend")
@check(LuongSeq2Seq.advance, "Update first, then attend")
def the_whole_sentence() -> None:
    """A whole sentence gives what its tokens give one after the other, windows and weights included."""
    local = {"local": "m", "window": 1}
    for options in ({}, {"input_feeding": False}, local, {"input_feeding": False} | local):
        model, rows = LuongSeq2Seq(LuongConfig(11, 11, d_model=6, d_hidden=8, dropout=0.0, **options)).eval(), []
        state = model.start(SOURCE)
        want, end = model.read(TARGET, state)
        for token in TARGET.split(1, 1):
            x, state = model.read(token, state)
            rows.append((x, state.attention[0]))
        got, weights = (torch.cat(part, 1) for part in zip(*rows, strict=True))
        equal((got, weights), (want, end.attention[0]), names="the whole sentence / token by token")
        equal((state.position, end.position), (4, 4), names="positions / got")
