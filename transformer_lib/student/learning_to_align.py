"""Tests for chapter "Attention: learning to align"."""

import math

import torch
from torch import randn, tensor

from transformer_lib.metrics import alignment_error_rate
from transformer_lib.models.attention import attend, masked_softmax
from transformer_lib.models.bahdanau import (
    AdditiveScore,
    AlignedMemory,
    AlignedSeq2Seq,
    Attention,
    BahdanauSeq2Seq,
    Score,
    best_links,
)
from transformer_lib.models.recurrent import RecurrentConfig
from transformer_lib.student.checks import check, equal, holds, same

SIZES = RecurrentConfig(11, 11, d_model=6, d_hidden=8, dropout=0.0)
SOURCE, TARGET = tensor([[4, 5, 6, 2], [7, 2, 0, 0]]), tensor([[1, 8, 9, 2], [1, 10, 2, 0]])
MASK = tensor([[True, True, False], [True, False, False]])


@check(masked_softmax, "The formulas")
def a_softmax_of_what_is_left() -> None:
    """Masked positions get nothing, and the rest of a row is the softmax of the rest of its scores."""
    scores = randn(2, 3)
    want = torch.zeros(2, 3)
    want[0, :2], want[1, 0] = scores[0, :2].softmax(-1), 1.0
    got, low = masked_softmax(scores, MASK), torch.finfo(torch.float32).min
    slips = {
        "True means the opposite": bool((got[MASK] == 0).all()),
        "Multiplying by the mask": any(
            same(got, slip) for slip in ((scores * MASK).softmax(-1), scores.softmax(-1) * MASK)
        ),
        "Softmax along the wrong axis": scores.masked_fill(~MASK, low).softmax(0) * MASK,
    }
    equal(got, want, slips)


@check(masked_softmax, "The formulas")
def nothing_is_left() -> None:
    """A row that is masked everywhere gets zeros, not NaN and not equal weights, and a finite gradient."""
    scores = randn(2, 3, requires_grad=True)
    weights = masked_softmax(scores, tensor([[False] * 3, [True] * 3]))
    slips = {
        "Masking with minus infinity": bool(weights.isnan().any()),
        "Masking with a large negative number": math.isclose(float(weights[0].sum().detach()), 1, abs_tol=1e-4),
    }
    equal(weights[0].detach(), torch.zeros(3), slips)
    (gradient,) = torch.autograd.grad(weights[:, 0].sum(), scores)
    holds(gradient.isfinite().all(), f"gradient  {gradient.tolist()}", {"Masking with minus infinity": True})


@check(attend, "The formulas")
def averages() -> None:
    """Each context is the average of the values, weighted by the softmax of the scores; weights come second."""
    scores, values = randn(2, 4, 3), randn(2, 3, 5)
    weights = scores.softmax(-1)
    wrong = scores.softmax(1)
    equal(
        attend(scores, values), (weights @ values, weights), {"Softmax along the wrong axis": (wrong @ values, wrong)}
    )


@check(Score.forward, "The formulas")
def prepare_then_compare() -> None:
    """A score first prepares the keys, then compares the queries with them."""
    score, q, k = AdditiveScore(5, 6, 7), randn(2, 4, 5), randn(2, 3, 6)
    equal(score(q, k), score.compare(q, score.key(k)))


@check(AdditiveScore.prepare, "The formulas")
def part_of_the_keys() -> None:
    """The keys' part of the hidden layer is U k."""
    score, k = AdditiveScore(5, 6, 7), randn(2, 3, 6)
    equal(score.prepare(k), k @ score.key.weight.T)


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
    scores = attention.score.compare(q, memory.keys).masked_fill(~MASK[:, None], -1e9)
    weights = scores.softmax(-1)
    got = attention(q, memory)
    unmasked = attention.score.compare(q, memory.keys).softmax(-1)
    equal(tuple(got[:2]), (weights @ outputs, weights), {"the mask is not used": (unmasked @ outputs, unmasked)})


def translator() -> BahdanauSeq2Seq:
    """A small model."""
    return BahdanauSeq2Seq(SIZES).eval()


@check(AlignedSeq2Seq.encode, "The model")
def prepared_keys() -> None:
    """The memory holds the encoder's states, and the keys that the score has prepared from them."""
    model = translator()
    memory, plain = model.encode(SOURCE), model.encoder(SOURCE)
    equal(
        (memory.outputs, memory.keys, memory.final),
        (plain.outputs, model.attention.score.key(plain.outputs), plain.final),
    )


@check(AlignedSeq2Seq.align, "Where it attends")
def rows_of_weights() -> None:
    """There is a row of weights for each target token, it sums to 1, and it depends on the source."""
    model = translator()
    weights = model.align(SOURCE, TARGET)
    equal(weights.sum(-1), torch.ones(2, 4))
    other = model.align(torch.cat([SOURCE[:, :1] + 1, SOURCE[:, 1:]], 1), TARGET)
    holds(
        not torch.allclose(weights, other),
        "a changed source word left all weights as they were",
        {"Attention that never read the source": True},
    )


@check(BahdanauSeq2Seq.first_state, "The model")
def made_from_the_backward_half() -> None:
    """The first state is tanh of the bridge, from the backward half of the encoder's last state."""
    model = translator()
    memory = model.encode(SOURCE)
    forward, backward = (model.bridge(half).tanh() for half in memory.final.chunk(2, -1))
    equal(model.first_state(memory).hidden, backward, {"the forward half": forward})


@check(BahdanauSeq2Seq.read, "The model")
def attends_before_its_step() -> None:
    """At each token, the old state asks, and the GRU reads the word and the context that came back."""
    model = translator()
    memory = model.encode(SOURCE)
    state = model.first_state(memory)
    word = model.embedding(TARGET[:, :1])
    c, weights = model.attend(state.hidden[:, -1:], memory)
    output, h = model.gru(torch.cat([word, c], -1), state=state.hidden)
    got, after = model.read(TARGET[:, :1], state)
    equal((got, after.hidden), (model.read_out(torch.cat([word, output, c], -1)).tanh(), h))
    equal(after.attention[0], weights)


@check(BahdanauSeq2Seq.read, "The model")
def the_whole_sentence() -> None:
    """A whole sentence gives what its tokens give one after the other."""
    model, rows = translator(), []
    state = model.start(SOURCE)
    want, _ = model.read(TARGET, state)
    for token in TARGET.split(1, 1):
        x, state = model.read(token, state)
        rows.append(x)
    equal(torch.cat(rows, 1), want)


@check(best_links, "How well does it align?")
def links() -> None:
    """Each target word but the last is linked with its heaviest source word, unless that is EOS."""
    weights = tensor([[0.7, 0.2, 0.1], [0.1, 0.8, 0.1], [0.1, 0.2, 0.7], [0.6, 0.2, 0.2]])
    equal(
        best_links(weights),
        {(0, 0), (1, 1)},
        {"(target, source) instead of (source, target)": {(0, 0), (1, 1), (2, 2)}},
    )
    equal(best_links(weights[[1, 3]]), {(1, 0)}, {"(target, source) instead of (source, target)": {(0, 1)}})


@check(alignment_error_rate, "How well does it align?")
def error_rate() -> None:
    """One right link of two is an error rate of one half, over all sentences together."""
    gold = [[(0, 0), (1, 1)], [(0, 0)]]
    equal(alignment_error_rate([[(0, 0), (1, 2)]], gold[:1]), 0.5)
    got = alignment_error_rate([[(0, 0), (1, 2)], [(0, 0)]], gold)
    equal(got, 1 / 3, {"A mean of means": 0.25, "the share of right links, not of errors": 2 / 3})


@check(alignment_error_rate, "How well does it align?")
def possible_links() -> None:
    """With possible links P, which include the sure ones S, it is 1 - (|A and S| + |A and P|) / (|A| + |S|)."""
    gold, possible = [[(0, 0), (1, 1)]], [[(1, 2)]]
    equal(alignment_error_rate([[(0, 0), (1, 1), (1, 2)]], gold, possible), 0.0)
    equal(alignment_error_rate([[(0, 0), (1, 2), (3, 3)]], gold, possible), 1 - 3 / 5)
