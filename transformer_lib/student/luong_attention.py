"""Tests for chapter "Luong attention"."""

import torch
from torch import nn, randn, tensor

from transformer_lib.plain.luong import Attention, Dot, Encoder, General, Luong
from transformer_lib.student.checks import check, equal

SOURCE, TARGET = tensor([[4, 5, 6, 2], [7, 2, 0, 0]]), tensor([[1, 8, 9, 2], [1, 10, 2, 0]])
MASK = tensor([[True, True, False], [True, False, False]])


@check(Dot.forward, "Three scores")
def dot_products() -> None:
    """The score of the state and a vector is their dot product: one number for each vector, (B, S)."""
    state, vectors = randn(2, 8), randn(2, 3, 8)
    want = torch.stack([(state * vectors[:, s]).sum(-1) for s in range(3)], 1)
    equal(Dot()(state, vectors), want, {"the last axis is left": want[..., None], "divided by sqrt(H)": want / 8**0.5})


@check(General.forward, "Three scores")
def a_matrix_in_between() -> None:
    """The vectors are multiplied by W first, which is the layer ``key``, and then by the state."""
    score, state, vectors = General(8), randn(2, 8), randn(2, 3, 8)
    rows = (vectors @ score.key.weight.T, vectors @ score.key.weight, vectors)
    want, turned, plain = ((row * state[:, None]).sum(-1) for row in rows)
    equal(score(state, vectors), want, {"the state is multiplied instead": turned, "the matrix is not used": plain})


@check(Attention.forward, "Three scores")
def context_and_weights() -> None:
    """The average of the vectors, weighted by the masked softmax of their scores; the weights come second."""
    attention, state, vectors = Attention(Dot()), randn(2, 6), randn(2, 3, 6)
    scores = attention.score(state, vectors)
    weights, unmasked = scores.masked_fill(~MASK, -1e9).softmax(-1), scores.softmax(-1)
    slips = {"the mask is not used": ((unmasked[..., None] * vectors).sum(1), unmasked)}
    equal(tuple(attention(state, vectors, MASK)), ((weights[..., None] * vectors).sum(1), weights), slips)


def translator() -> Luong:
    """A small model, with weights that are large enough to see what each of them does."""
    model = Luong(11, 11, d_model=6, d_hidden=8).eval()
    for weight in model.parameters():
        nn.init.normal_(weight, std=0.5)
    return model


@check(Encoder.forward, "The model")
def both_ways() -> None:
    """Each word gets the states of both networks, padding zeros; second come the last states of both, side by side.

    They are a state for the decoder's GRU, (1, B, H). Padding must not change anything, however much of it there is.
    """
    encoder = translator().encoder
    (vectors, last), padding = encoder.gru(encoder.embedding(SOURCE[1:, :2])), torch.zeros(1, 2, 8)
    got, state = encoder(SOURCE)
    run_on, states = encoder.gru(encoder.embedding(SOURCE))
    want = torch.cat([vectors, padding], 1)
    slips = {
        "States that run on over the padding": (run_on[1:], torch.cat([*states[:, 1:]], -1)[None]),
        "the directions exchanged": (want, torch.cat([last[1], last[0]], -1)[None]),
    }
    equal((got[1:], state[:, 1:]), (want, torch.cat([*last], -1)[None]), slips)
    wide, _ = encoder(torch.cat([SOURCE, 0 * SOURCE], 1))
    equal(wide, torch.cat([got, 0 * got], 1), names="as before, and zeros / with more padding")


@check(Luong.start, "The model")
def begins_with_the_last_states() -> None:
    """The vectors, a mask that is True at words, and a pair: the encoder's last states, and zeros of shape (B, D)."""
    model = translator()
    vectors, last = model.encoder(SOURCE)
    got, mask, (state, feed) = model.start(SOURCE)
    want = (vectors, SOURCE != 0, last, torch.zeros(2, 6))
    equal((got, mask, state, feed), want, {"True means the opposite": (want[0], ~want[1], *want[2:])})


@check(Luong.step, "The model")
def attends_after_its_step() -> None:
    """The GRU reads word and last attentional vector; the new state asks; context and state make the next vector."""
    model, fed = translator(), randn(2, 6)
    vectors, mask, (state, _) = model.start(SOURCE)
    word = model.embedding(TARGET[:, 0])
    _, h = model.gru(torch.cat([word, fed], -1)[:, None], state)
    _, g = model.gru(torch.cat([fed, word], -1)[:, None], state)
    _, u = model.gru(torch.cat([word, 0 * fed], -1)[:, None], state)

    def after(new: torch.Tensor, asks: torch.Tensor, turned: bool = False) -> tuple[torch.Tensor, ...]:
        """Logits, both parts of the state, and weights."""
        context, weights = model.attention(asks[0], vectors, mask)
        parts = [new[0], context] if turned else [context, new[0]]
        feed = model.attentional(torch.cat(parts, -1)).tanh()
        return model.output(feed), new, feed, weights

    slips = {
        "the old state asks, as in Bahdanau's decoder": after(h, state),
        "context and state exchanged": after(h, h, True),
        "word and attentional vector exchanged before the GRU": after(g, g),
        "the last attentional vector is not read": after(u, u),
    }
    logits, (new, feed), weights = model.step(TARGET[:, 0], vectors, mask, (state, fed))
    equal((logits, new, feed, weights), after(h, h), slips)


@check(Luong.forward, "The model")
def step_by_step() -> None:
    """Each target word is read in turn, with the last one's state, and the logits after it are (B, T, V)."""
    model, want = translator(), []
    vectors, mask, state = model.start(SOURCE)
    for word in TARGET.unbind(1):
        logits, state, _ = model.step(word, vectors, mask, state)
        want.append(logits)
    equal(model(SOURCE, TARGET), torch.stack(want, 1), {"time comes first": torch.stack(want)})
