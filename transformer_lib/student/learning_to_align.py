"""Tests for chapter "Attention: learning to align"."""

import torch
from torch import Tensor, nn, randn, tensor

from transformer_lib.plain.bahdanau import Attention, Bahdanau, Encoder, Score, masked_softmax, translate
from transformer_lib.student.checks import check, equal, holds, same

SOURCE, TARGET = tensor([[4, 5, 6, 2], [7, 2, 0, 0]]), tensor([[1, 8, 9, 2], [1, 10, 2, 0]])
MASK = tensor([[True, True, False], [True, False, False]])


@check(masked_softmax, "The formulas")
def a_softmax_of_what_is_left() -> None:
    """Masked positions get nothing, and the rest of a row is the softmax of the rest of its scores."""
    scores, mask = randn(2, 4, 3), MASK[:, None]
    want = torch.zeros(2, 4, 3)
    want[0, :, :2], want[1, :, 0] = scores[0, :, :2].softmax(-1), 1.0
    got, low = masked_softmax(scores, mask), torch.finfo(torch.float32).min
    multiplied = ((scores * mask).softmax(-1), scores.softmax(-1) * mask)
    across = (scores.masked_fill(~mask, low).softmax(axis) * mask for axis in (0, 1))
    slips = {
        "True means the opposite": bool((got[mask.expand(2, 4, 3)] == 0).all()),
        "Multiplying by the mask": any(same(got, slip) for slip in multiplied),
        "Softmax along the wrong axis": any(same(got, slip) for slip in across),
    }
    equal(got, want, slips)


@check(masked_softmax, "The formulas")
def nothing_is_left() -> None:
    """A row that is masked everywhere gets zeros, not NaN and not equal weights, and a finite gradient.

    Elsewhere, a hidden score may be as large as it likes, and a visible one as small.
    """
    scores = tensor([[0.5, 1, -1], [0, 1, 2], [1, 900, 2], [-2e4, 5, -2e4]], requires_grad=True)
    mask = tensor([[False] * 3, [True] * 3, [True, False, True], [True, False, False]])
    weights, want = masked_softmax(scores, mask), scores.masked_fill(~mask, -1e9).softmax(-1) * mask
    slips = {
        "a hidden score is still in an exponential": bool(weights[1:].isnan().any()),
        "Masking with minus infinity": bool(weights[0].isnan().any()),
        "Masking with a large negative number": same(weights[1:], want[1:]),
        "Multiplying by the mask": (scores * mask).softmax(-1),
    }
    equal(weights, want, slips)
    (gradient,) = torch.autograd.grad(weights[:, 0].sum(), scores)
    slips = {"Masking with minus infinity": True}
    holds(gradient.isfinite().all(), f"gradient  {gradient.tolist()}", slips)


@check(Score.forward, "The formulas")
def the_state_with_each_vector() -> None:
    """The score of a state q and a vector k is tanh(q W + k U) . v: one number for each vector, (B, S)."""
    score, q, k = Score(6), randn(2, 6), randn(2, 3, 6)
    query, key = score.query.weight.T, score.key.weight.T
    rows = [torch.tanh(q @ query + k[:, s] @ key) @ score.combine.weight[0] for s in range(3)]
    equal(score(q, k), torch.stack(rows, 1), {"the last axis is left": torch.stack(rows, 1)[..., None]})


@check(Attention.forward, "The formulas")
def context_and_weights() -> None:
    """The average of the vectors, weighted by the masked softmax of their scores; the weights come second."""
    attention, q, k = Attention(6), randn(2, 6), randn(2, 3, 6)
    scores = attention.score(q, k)
    weights, unmasked = scores.masked_fill(~MASK, -1e9).softmax(-1), scores.softmax(-1)
    slips = {"the mask is not used": ((unmasked[..., None] * k).sum(1), unmasked)}
    equal(tuple(attention(q, k, MASK)), ((weights[..., None] * k).sum(1), weights), slips)


def translator() -> Bahdanau:
    """A small model, with weights that are large enough to see what each of them does."""
    model = Bahdanau(11, 11, d_model=6, d_hidden=8).eval()
    for weight in model.parameters():
        nn.init.normal_(weight, std=0.5)
    return model


@check(Encoder.forward, "The model")
def both_ways() -> None:
    """Each word gets the states of both networks, padding zeros; the second result is the second network's last state.

    Padding must not change anything, however much of it there is.
    """
    encoder = translator().encoder
    (vectors, last), padding = encoder.gru(encoder.embedding(SOURCE[1:, :2])), torch.zeros(1, 2, 8)
    got, state = encoder(SOURCE)
    run_on, states = encoder.gru(encoder.embedding(SOURCE))
    slips = {
        "States that run on over the padding": (run_on[1:], states[1, 1:]),
        "the first network's last state": (torch.cat([vectors, padding], 1), last[0]),
    }
    equal((got[1:], state[1:]), (torch.cat([vectors, padding], 1), last[1]), slips)
    wide, _ = encoder(torch.cat([SOURCE, 0 * SOURCE], 1))
    equal(wide, torch.cat([got, 0 * got], 1), names="as before, and zeros / with more padding")
    equal(encoder(SOURCE.flip(0))[0], got.flip(0), names="as before / with the short sentence first")


@check(Bahdanau.start, "The model")
def made_from_the_second_network() -> None:
    """The vectors, a mask that is True at words, and the first state, (1, B, H): tanh of the bridge."""
    model = translator()
    vectors, last = model.encoder(SOURCE)
    slips = {"True means the opposite": (vectors, SOURCE == 0, model.bridge(last).tanh()[None])}
    equal(tuple(model.start(SOURCE)), (vectors, SOURCE != 0, model.bridge(last).tanh()[None]), slips)


@check(Bahdanau.step, "The model")
def attends_before_its_step() -> None:
    """The old state asks; the GRU reads the word and the context; the read-out gets word, new state and context."""
    model = translator()
    vectors, mask, state = model.start(SOURCE)
    c, weights = model.attention(state[0], vectors, mask)
    word = model.embedding(TARGET[:, 0])
    _, h = model.gru(torch.cat([word, c], -1)[:, None], state)
    _, g = model.gru(torch.cat([c, word], -1)[:, None], state)
    new, late = model.attention(h[0], vectors, mask)
    rows = [word, h[0], c], [word, c, h[0]], [word, state[0], c], [word, g[0], c], [word, h[0], new]
    want, swapped, early, other, asked = (model.output(model.read_out(torch.cat(row, -1)).tanh()) for row in rows)
    slips = {
        "context and state exchanged in the read-out": (swapped, h, weights),
        "the read-out gets the old state": (early, h, weights),
        "context and word exchanged before the GRU": (other, g, weights),
        "the new state asks for the read-out's context": (asked, h, weights),
        "the weights are those of the new state": (want, h, late),
    }
    equal(tuple(model.step(TARGET[:, 0], vectors, mask, state)), (want, h, weights), slips)


@check(Bahdanau.forward, "The model")
def step_by_step() -> None:
    """Each target word is read in turn, and the logits after it are (B, T, V)."""
    model, want = translator(), []
    vectors, mask, state = model.start(SOURCE)
    for word in TARGET.unbind(1):
        logits, state, _ = model.step(word, vectors, mask, state)
        want.append(logits)
    equal(model(SOURCE, TARGET), torch.stack(want, 1), {"time comes first": torch.stack(want)})


class Scripted:
    """Gives the highest scores to PAD and BOS, and the next to a fixed text; the state counts its steps."""

    def __init__(self) -> None:
        self.read: list[list[int]] = []

    def start(self, source: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Vectors, mask and state (1, B, 1)."""
        return torch.zeros(2, 4, 1), source != 0, torch.zeros(1, 2, 1)

    def step(self, word: Tensor, vectors: Tensor, mask: Tensor, state: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Scores (B, 11), the next state, and weights (B, 4) of the position that the step counts."""
        self.read.append(word.tolist())
        t, scores = int(state[0, 0, 0]), torch.zeros(2, 11)
        for row, text in enumerate(([7, 8, 2], [9, 2, 5])):
            scores[row, text[t] if t < 3 else 6] = 1
        scores[:, :2] = 3
        return scores, state + 1, torch.eye(4)[[min(t, 3)] * 2]


@check(translate, "The model")
def the_most_probable_word() -> None:
    """Words begin after BOS, are never PAD or BOS, and stop when each row has its EOS, or after ``max_length``.

    Each step reads the word before it, and the state after it; the weights have a row for each word.
    """
    model = Scripted()
    words, maps = translate(model, SOURCE)
    slips = {
        "padding or BOS is written": bool((words < 2).any()),
        "it goes on after EOS": words.shape[1] > 3,
        "it ends when the first row does": words.shape[1] == 2,
    }
    equal(words, tensor([[7, 8, 2], [9, 2, 5]]), slips)
    equal(tensor(model.read), tensor([[1, 1], [7, 9], [8, 2]]), names="words that are read, from BOS on / got")
    equal(maps, torch.eye(4)[:3].expand(2, 3, 4))
    equal(translate(Scripted(), SOURCE, max_length=2)[0], tensor([[7, 8], [9, 2]]))
