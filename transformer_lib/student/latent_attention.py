"""Tests for chapter "Latent attention"."""

import torch
from torch import nn, randn, tensor
from torch.nn import functional as F

from transformer_lib.data.recipes import RecipeBatch
from transformer_lib.models.latent_attention import (
    IfThenConfig,
    IfThenModel,
    LatentAttention,
    PlainAttention,
    read_both_ways,
)
from transformer_lib.student.checks import check, equal, holds, refuses

MASK = tensor([[True] * 4, [True] * 2 + [False] * 2])
TOKENS = tensor([[4, 5, 6, 2], [7, 2, 0, 0]])


@check(PlainAttention.forward, "The model")
def one_learned_query_for_each_head() -> None:
    """The weights are the softmax of the learned query's dot products with the words."""
    plain, words = PlainAttention(6, 3), randn(2, 4, 6)
    scores = torch.einsum("hd,bsd->bhs", plain.query, words)
    want = scores.masked_fill(~MASK[:, None], -1e9).softmax(-1)
    equal(
        plain(words, MASK).weights,
        want,
        {"the mask is not used": scores.softmax(-1), "Softmax along the wrong axis": scores.softmax(1)},
    )


@check(LatentAttention.forward, "The model")
def where_each_word_points() -> None:
    """Column s of the active weights is the softmax, over positions, of word s's scores: it sums to 1."""
    latent, words = LatentAttention(6, 3, 5), randn(2, 4, 6)
    active = latent(words, MASK).active
    scores = torch.einsum("bsd,hkd->bhks", words, latent.positions[:, :4]).masked_fill(~MASK[:, None, :, None], -1e9)
    equal(
        active,
        scores.softmax(2),
        {"rows and columns exchanged": scores.softmax(2).mT, "Softmax along the wrong axis": scores.softmax(3)},
    )


@check(LatentAttention.forward, "The model")
def two_steps() -> None:
    """The final weights are the active ones, averaged with the latent ones; they sum to 1."""
    got = LatentAttention(6, 3, 5)(randn(2, 4, 6), MASK)
    wrong = (got.latent[:, :, None] @ got.active)[:, :, 0]
    equal(
        got.weights,
        torch.einsum("bhks,bhs->bhk", got.active, got.latent),
        {"Active weights the wrong way round": wrong},
    )


@check(LatentAttention.forward, "The model")
def padding_gets_nothing() -> None:
    """No weight falls on padding."""
    got = LatentAttention(6, 3, 5)(randn(2, 4, 6), MASK).weights
    equal(got[1, :, 2:], torch.zeros(3, 2))
    equal(got.sum(-1), torch.ones(2, 3))


@check(read_both_ways, "The model")
def padding_changes_no_state() -> None:
    """A short sentence gives the same states alone as beside a longer one."""
    lstm, x = nn.LSTM(6, 4, batch_first=True, bidirectional=True), randn(2, 4, 6)
    outputs, last = read_both_ways(lstm, x, MASK)
    alone, (final, _) = lstm(x[1:, :2])
    over = lstm(x)[1][0].transpose(0, 1).flatten(1)[1]
    equal(last[1], final.transpose(0, 1).flatten(1)[0], {"States that run on over the padding": over})
    equal(outputs[1, :2], alone[0])
    turned = read_both_ways(lstm, F.pad(x.flip(0), (0, 0, 0, 1)), F.pad(MASK.flip(0), (0, 1)))
    equal(turned, (F.pad(outputs.flip(0), (0, 0, 0, 1)), last.flip(0)), names="so far / turned, and with more padding")


def model(**options: object) -> IfThenModel:
    """A small model."""
    return IfThenModel(IfThenConfig(11, (5, 3), d_model=6, d_hidden=8, dropout=0.0, **options)).eval()


@check(IfThenModel.read, "The model")
def weighted_words() -> None:
    """Each head reads the words with its weights, scaled to a vector of length 1.

    Dropout acts on the embedded words, and on what the LSTM gives.
    """
    one = model()
    outputs, seen = one.read(TOKENS)
    words = one.dropout(one.embedding(TOKENS))
    words = one.dropout(read_both_ways(one.lstm, words, TOKENS != 0)[0])
    equal(outputs, F.normalize(seen.weights, dim=-1) @ words, {"the weights are not scaled": seen.weights @ words})


@check(IfThenModel.read, "The model")
def without_attention() -> None:
    """Without attention, every head reads the same summary: the sum of the words, or the LSTM's last states.

    A token outside the vocabulary raises a ValueError.
    """
    one = model(encoder="dictionary", attention="none")
    outputs, seen = one.read(TOKENS)
    equal(outputs, one.dropout(one.embedding(TOKENS)).sum(1)[:, None].expand(-1, 2, -1))
    holds(seen is None, "there are weights, but no attention")
    refuses(ValueError, one.read, TOKENS + 9)


@check(IfThenModel.forward, "The model")
def a_classifier_for_each_head() -> None:
    """Head i's logits come from classifier i and what head i read."""
    one = model()
    outputs, _ = one.read(TOKENS)
    equal(tuple(one(TOKENS)), (one.classifiers[0](outputs[:, 0]), one.classifiers[1](outputs[:, 1])))


@check(IfThenModel.loss, "The model")
def a_sum_over_labels() -> None:
    """The loss is the summed cross-entropy of all labels that training knows, and their number."""
    one, labels = model(), tensor([[4, 1], [0, -1]])
    batch = RecipeBatch(TOKENS, labels, (0, 1))
    a, b = (F.cross_entropy(x, y, ignore_index=-1, reduction="sum") for x, y in zip(one(TOKENS), labels.T, strict=True))
    nats, n_labels = one.loss(batch)
    equal(nats, a + b, {"a mean, not a sum": (a + b) / 3})
    equal(int(n_labels), 3, {"unseen labels are counted": n_labels == 4})
