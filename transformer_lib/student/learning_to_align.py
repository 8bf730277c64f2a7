"""Tests for chapter "Attention: learning to align"."""

import torch
from torch import nn, randn, tensor

from transformer_lib.models.attention import attend, masked_softmax
from transformer_lib.models.bahdanau import (
    AdditiveScore,
    AlignedMemory,
    Attention,
    BahdanauSeq2Seq,
)
from transformer_lib.models.recurrent import RecurrentConfig
from transformer_lib.student.checks import check, equal, holds, same

SIZES = RecurrentConfig(11, 11, d_model=6, d_hidden=8, n_layers=2, dropout=0.0)
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
    equal(masked_softmax(scores), scores.softmax(-1))


@check(masked_softmax, "The formulas")
def nothing_is_left() -> None:
    """A row that is masked everywhere gets zeros, not NaN and not equal weights, and a finite gradient.

    Elsewhere, a hidden score may be as large as it likes.
    """
    scores = tensor([[0.5, 1, -1], [0, 1, 2], [1, 900, 2]], requires_grad=True)
    mask = tensor([[False] * 3, [True] * 3, [True, False, True]])
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


@check(attend, "The formulas")
def averages() -> None:
    """Each context is the average of the values, weighted by the softmax of the scores; weights come second."""
    scores, values = randn(2, 2, 4, 3), randn(2, 2, 3, 5)
    weights, wrong = scores.softmax(-1), scores.softmax(-2)
    slips = {"Softmax along the wrong axis": (wrong @ values, wrong)}
    equal(attend(scores, values), (weights @ values, weights), slips)


@check(AdditiveScore.compare, "The formulas")
def each_query_with_each_key() -> None:
    """The score of query t and key s is v . tanh(W q_t + U k_s)."""
    score, q, p = AdditiveScore(5, 6, 7), randn(2, 4, 5), randn(2, 3, 7)
    rows = [[score.combine(torch.tanh(score.query(q[:, t]) + p[:, s]))[:, 0] for s in range(3)] for t in range(4)]
    equal(score.compare(q, p), torch.stack([torch.stack(row, -1) for row in rows], 1))


@check(Attention.forward, "The model")
def contexts_and_weights() -> None:
    """Contexts are averages of the memory's outputs, and padding gets no weight."""
    attention, outputs = Attention(AdditiveScore(5, 6, 7)), randn(2, 3, 6)
    memory = AlignedMemory(outputs, MASK, attention.score.key(outputs))
    q = randn(2, 4, 5)
    scores = attention.score.compare(q, memory.keys)
    weights, unmasked = scores.masked_fill(~MASK[:, None], -1e9).softmax(-1), scores.softmax(-1)
    slips = {"the mask is not used": (unmasked @ outputs, unmasked)}
    equal(tuple(attention(q, memory)[:2]), (weights @ outputs, weights), slips)


def translator() -> BahdanauSeq2Seq:
    """A small model, with weights that are large enough to see what each of them does."""
    model = BahdanauSeq2Seq(SIZES).eval()
    for weight in model.parameters():
        nn.init.normal_(weight, std=0.5)
    return model


@check(BahdanauSeq2Seq.encode, "The model")
def prepared_keys() -> None:
    """The memory holds the encoder's states, and the keys that the score has prepared from them."""
    model = translator()
    memory, plain = model.encode(SOURCE), model.encoder(SOURCE)
    keys = model.attention.score.key(plain.outputs)
    equal((memory.outputs, memory.keys, memory.final), (plain.outputs, keys, plain.final))


@check(BahdanauSeq2Seq.align, "Where it attends")
def rows_of_weights() -> None:
    """There is a row of weights for each target token: those that ``read`` leaves in the state's ``attention``."""
    model = translator()
    (want,) = model.read(TARGET, model.start(SOURCE))[1].attention
    slips = {"one row for all tokens": want[:, :1].expand(-1, 4, -1)}
    equal(model.align(SOURCE, TARGET), want, slips)


@check(BahdanauSeq2Seq.first_state, "The model")
def made_from_the_backward_half() -> None:
    """The first state is tanh of the bridge, from the backward half of the encoder's last state."""
    model = translator()
    memory = model.encode(SOURCE)
    forward, backward = (model.bridge(half).tanh() for half in memory.final.chunk(2, -1))
    equal(model.first_state(memory).hidden, backward, {"the forward half": forward})


@check(BahdanauSeq2Seq.read, "The model")
def attends_before_its_step() -> None:
    """At each token, the old state asks, and the GRU reads the word and the context that came back.

    Dropout acts on the embedded words and on the read-out, and the new state holds the weights.
    """
    model = translator()
    memory = model.encode(SOURCE)
    state = model.first_state(memory)
    word = model.dropout(model.embedding(TARGET[:, :1]))
    c, weights = model.attention(state.hidden[:, -1:], memory)
    output, h = model.gru(torch.cat([word, c], -1), state=state.hidden)
    turned, g = model.gru(torch.cat([c, word], -1), state=state.hidden)
    new, _ = model.attention(output, memory)
    rows = ([word, output, c], [word, c, output], [word, output, new], [word, turned, c])
    end = torch.stack([model.read_out(torch.cat(row, -1)) for row in rows]).tanh()
    want, swapped, late, other = model.dropout(end)
    got, after = model.read(TARGET[:, :1], state)
    slips = {
        "context and state exchanged in the read-out": (swapped, h, weights),
        "the read-out gets the new state's context, not the old one's": (late, h, weights),
        "context and word exchanged before the GRU": (other, g, weights),
    }
    equal((got, after.hidden, *after.attention), (want, h, weights), slips)


@check(BahdanauSeq2Seq.read, "The model")
def the_whole_sentence() -> None:
    """A whole sentence gives what its tokens give one after the other; its weights are one tensor (N, T, S)."""
    model, rows = translator(), []
    state = model.start(SOURCE)
    whole, after = model.read(TARGET, state)
    for token in TARGET.split(1, 1):
        x, state = model.read(token, state)
        rows.append((x, *state.attention))
    parts = [torch.cat(part, 1) for part in zip(*rows, strict=True)]
    equal([whole, *after.attention], parts, names="token by token / the whole sentence")
