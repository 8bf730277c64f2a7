"""Tests for chapter "Self-attention: queries, keys and values"."""

import torch
from torch import nn, randn, tensor

from transformer_lib.plain.self_attention import Reader, SelfAttention, self_attention
from transformer_lib.student.checks import check, equal, holds

SEEN = tensor([[[True, True, False], [True, False, True], [True, True, True]]])
WORDS, IT = tensor([[4, 5, 6, 7], [8, 9, 0, 0]]), tensor([2, 1])


@check(self_attention, "Queries, keys and values")
def every_word_asks() -> None:
    """Each word's output averages all values, weighted by the softmax of its query's products with the keys."""
    X, W_Q, W_K, W_V = randn(4, 5), randn(5, 3), randn(5, 3), randn(5, 2)
    Q, K, V = X @ W_Q, X @ W_K, X @ W_V
    scores = Q @ K.T
    weights, divided = scores.softmax(-1), (scores / 3**0.5).softmax(-1)
    slips = {
        "Softmax along the wrong axis": (scores.softmax(0) @ V, scores.softmax(0)),
        "queries and keys are exchanged": (scores.T.softmax(-1) @ V, scores.T.softmax(-1)),
        "the scores are already divided by the root of the width": (divided @ V, divided),
        "the weights come first": (weights, weights @ V),
    }
    equal(tuple(self_attention(X, W_Q, W_K, W_V)), (weights @ V, weights), slips)


@check(self_attention, "Queries, keys and values")
def the_numbers_of_the_page() -> None:
    """For *dog*, *tired* and *it*, the weights of *it* are 0.67, 0.24 and 0.09, and its output is (0.76, 0.33)."""
    W_Q, W_K = tensor([[0.0, 1.0], [1.0, 0.0], [1.0, 0.5]]), tensor([[2.0, 0.0], [0.0, 2.0], [0.0, 0.0]])
    outputs, weights = self_attention(torch.eye(3), W_Q, W_K, tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]]))
    equal((weights[2] * 100).round(), tensor([67.0, 24.0, 9.0]))
    equal((outputs[2] * 100).round(), tensor([76.0, 33.0]))


@check(SelfAttention.forward, "The formula")
def all_words_at_once() -> None:
    """The weights (B, S, S) have a row for each query, zero where the mask is False, and average the values."""
    layer, x = SelfAttention(6, 4), randn(2, 3, 6)
    q, k, v = layer.query(x), layer.key(x), layer.value(x)
    scores = 3 * q @ k.mT
    layer.query.weight.data *= 3
    got = layer(x, SEEN)

    def of(weights: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return weights @ v, weights

    hidden = scores.masked_fill(~SEEN, -torch.inf)
    slips = {
        "the mask is not used": of(scores.softmax(-1)),
        "True means the opposite": of(scores.masked_fill(SEEN, -torch.inf).softmax(-1)),
        "Multiplying by the mask": of((scores * SEEN).softmax(-1)),
        "the weights are multiplied by the mask, so they no longer add up to 1": of(scores.softmax(-1) * SEEN),
        "Softmax along the wrong axis": of(hidden.softmax(-2)),
        "queries and keys are exchanged": of(scores.mT.masked_fill(~SEEN, -torch.inf).softmax(-1)),
        "the scores are already divided by the root of the width": of((hidden / 2).softmax(-1)),
        "the weights come first": (hidden.softmax(-1), of(hidden.softmax(-1))[0]),
    }
    equal(tuple(got), of(hidden.softmax(-1)), slips)


@check(SelfAttention.forward, "The formula")
def the_order_of_the_words() -> None:
    """If the words are shuffled, the outputs are shuffled in the same way."""
    layer, x, order = SelfAttention(6, 4), randn(1, 5, 6), tensor([3, 0, 4, 1, 2])
    seen = torch.ones(1, 5, 5, dtype=torch.bool)
    equal(layer(x[:, order], seen)[0], layer(x, seen)[0][:, order], names="shuffled after / shuffled before")


def reader(n_layers: int = 2, **options: bool) -> Reader:
    """A small network, with weights that are large enough to see what each of them does."""
    model = Reader(11, n_layers, **options)
    for weight in model.parameters():
        nn.init.normal_(weight, std=0.3)
    return model


@check(Reader.forward, "Which word does *it* refer to?")
def one_layer_after_the_other() -> None:
    """Words and positions are added, and so are each layer's input and output; the last layer's output at *it* decides.

    The weights of each layer come second.
    """
    for options in ({}, {"hidden": True}):
        model = reader(**options)
        mask = (WORDS != 0)[:, None].expand(2, 4, 4)
        x = model.words(WORDS) + model.positions.weight[:4]
        y, first = model.layers[0](x, mask)
        z, second = model.layers[1](x + y, mask)
        rows, maps = torch.arange(2), [first, second]
        bare, others = model.layers[1](y, mask)
        open_, _ = model.layers[1](x + model.layers[0](x, mask | True)[0], mask | True)
        slips = {
            "the residual connection is missing": (model.output(bare[rows, IT]), [first, others]),
            "the last layer's input is added, too": (model.output((x + y + z)[rows, IT]), maps),
            "the last word decides": (model.output(z[:, -1]), maps),
            "the first layer's output decides": (model.output(y[rows, IT]), maps),
            "the mask is not used": False,
        }
        logits, weights = model(WORDS, IT)
        slips["the mask is not used"] = bool((logits - model.output(open_[rows, IT])).abs().max() < 1e-5)
        equal((logits, [*weights]), (model.output(z[rows, IT]), maps), slips)


@check(Reader.forward, "Which word does *it* refer to?")
def padding_changes_nothing() -> None:
    """More padding changes no logit."""
    model = reader()
    wide = torch.cat([WORDS, torch.zeros(2, 3, dtype=torch.long)], 1)
    equal(model(wide, IT)[0], model(WORDS, IT)[0], names="as before / with more padding")


@check(Reader.forward, "Which word does *it* refer to?")
def a_wire_is_cut() -> None:
    """A cut (layer, query, key) hides this key from this query in this layer, and nothing else."""
    model, whole = reader(), reader()
    whole.load_state_dict(model.state_dict())
    query, key = tensor([3, 1]), tensor([0, 0])
    _, maps = model(WORDS, IT, [(1, query, key)])
    _, before = whole(WORDS, IT)
    rows = torch.arange(2)
    holds(
        bool((maps[0][rows, query, key] == 0).all()),
        f"weights that were cut  {maps[0][rows, query, key].tolist()}",
        {"key and query are exchanged": bool((maps[0][rows, key, query] == 0).all())},
    )
    other = torch.ones(2, 4, dtype=torch.bool)
    other[rows, query] = False
    equal(maps[0][other], before[0][other], names="the other queries, as before / now")
    holds(bool((maps[1][rows, query, key] > 0).all()), "the cut in layer 1 is also made in layer 2")
    for cuts in ([(2, IT, tensor([0, 0]))], [(1, IT, tensor([0, 0])), (2, IT, tensor([0, 0]))]):
        _, maps = model(WORDS, IT, cuts)
        cut = [bool((one[rows, IT, 0] == 0).all()) for one in maps]
        equal(cut, [len(cuts) == 2, True], names="whether each layer should be cut / is cut")
