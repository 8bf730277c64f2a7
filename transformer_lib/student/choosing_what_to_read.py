"""Tests for chapter "Sparse attention"."""

import math

import torch
from torch import randn, tensor
from torch.nn import functional as F

from transformer_lib.plain.multi_head import Attention
from transformer_lib.plain.sparse_attention import IndexedAttention, Indexer, choose
from transformer_lib.student.checks import check, equal, holds

SCORES = tensor([[0.3, -1.0, 2.0, 0.1], [5.0, 4.0, 3.0, 6.0]])
MASK = tensor([[True, True, False, True], [False, True, False, False]])


@check(choose, "How much must a head read?")
def the_best_of_each_row() -> None:
    """The k largest scores of each row are True, all others False; a large k chooses everything."""
    want = tensor([[True, False, True, False], [True, False, False, True]])
    equal(choose(SCORES.clone(), 2), want, {"the smallest ones": ~want})
    equal(choose(SCORES.clone(), 9), torch.ones(2, 4, dtype=torch.bool))


@check(choose, "How much must a head read?")
def never_what_is_masked() -> None:
    """Where the mask is False, nothing is chosen, even if fewer than k are left."""
    want = tensor([[True, False, False, True], [False, True, False, False]])
    late = choose(SCORES.clone(), 2) & MASK
    equal(choose(SCORES.clone(), 2, MASK), want, {"masked after the choice only": late})
    equal(choose(SCORES - 9, 2, MASK), want, {"masked scores become 0, and the others are negative": True})


@check(choose, "How much must a head read?")
def of_equal_scores_the_earliest() -> None:
    """Of equal scores, the earliest are chosen: never more than k, and what follows a row changes nothing."""
    scores = tensor([[0.0, 2, 0, 0, 1, 0], [0, 0, 0, 0, 0, 0], [3, 1, 3, 3, 0, 3]])
    want = tensor([[0, 1, 0, 0, 1, 0], [1, 1, 0, 0, 0, 0], [1, 0, 1, 0, 0, 0]]).bool()
    for k in (2, 3):
        none, best = torch.zeros_like(scores, dtype=torch.bool), scores.topk(k)
        first = none.scatter(-1, scores.argsort(dim=-1, descending=True, stable=True)[:, :k], True)
        last = none.scatter(-1, 5 - scores.flip(-1).argsort(dim=-1, descending=True, stable=True)[:, :k], True)
        slips = {
            "all scores that equal the k-th are chosen, so more than k": scores >= best.values[:, -1:],
            "of equal scores, those that topk happens to give (sort with stable=True keeps their order)": none.scatter(
                -1, best.indices, True
            ),
            "of equal scores, the last": last,
        }
        equal(choose(scores, k), want if k == 2 else first, slips)
    many = choose(torch.zeros(1, 99), 3)
    equal(many, torch.arange(99)[None] < 3, {"sorted without stable=True, which long rows need": many.sum() == 3})
    mask = tensor([True, True, True, True, False, False])
    equal(choose(scores, 2, mask)[:, :4], choose(scores[:, :4], 2), names="the row alone / with more behind it, hidden")


@check(choose, "How much must a head read?")
def scores_stay_as_they_are() -> None:
    """The scores and the mask that are given are not changed."""
    scores, mask = tensor([[3.0, 1.0, 2.0]]), tensor([[True, True, False]])
    choose(scores, 2, mask)
    slip = {"a method that ends in _ writes into the tensor that was given": True}
    want = tensor([[3.0, 1.0, 2.0]]), tensor([[True, True, False]])
    equal((scores, mask), want, slip, names="the scores and the mask before / after")


def by_hand(index: Indexer, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Scores of each head and the weights of the heads, without positions."""
    q = index.wq(x).unflatten(2, (index.n_heads, -1)).transpose(1, 2)
    k = index.k_norm(index.wk(x))[:, None]
    return q @ k.mT / math.sqrt(k.shape[-1]), index.weights_proj(x).mT[..., None] / math.sqrt(index.n_heads)


@check(Indexer.forward, "The indexer: a small score for each word")
def weighted_votes() -> None:
    """The score is the sum over heads of the query's weight times ReLU(q . k / sqrt(K)), over sqrt(H)."""
    index, x = Indexer(8, n_heads=3, width=4), randn(2, 5, 8)
    scores, weights = by_hand(index, x)
    want = (weights * F.relu(scores)).sum(1)
    slips = {
        "without ReLU": (weights * scores).sum(1),
        "the ReLU comes after the sum": F.relu((weights * scores).sum(1)),
        "all heads count the same": F.relu(scores).mean(1),
    }
    equal(index(x), want, slips)


@check(Indexer.forward, "The indexer: a small score for each word")
def keys_are_normalised() -> None:
    """The keys pass through their layer norm, the queries don't."""
    index, x = Indexer(8, n_heads=3, width=4), randn(2, 5, 8)
    q, k, norm = index.wq(x).unflatten(2, (3, -1)).transpose(1, 2), index.wk(x)[:, None], index.k_norm
    weights = index.weights_proj(x).mT[..., None] / math.sqrt(3)

    def votes(q: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
        return (weights * F.relu(q @ k.mT / 2)).sum(1)

    slips = {"nothing is normalised": votes(q, k), "the queries are normalised, too": votes(norm(q), norm(k))}
    slips |= {"the heads are cut the wrong way": votes(index.wq(x).unflatten(2, (-1, 3)).movedim(3, 1), norm(k))}
    equal(index(x), votes(q, norm(k)), slips)


@check(IndexedAttention.pick, "The indexer: a small score for each word")
def picks_from_the_past() -> None:
    """Each query picks its k best positions up to its own; with k None, all of them."""
    layer, x = IndexedAttention(8, 2, Indexer(8), k=2), randn(2, 5, 8)
    causal = torch.ones(5, 5, dtype=torch.bool).tril()
    scores = layer.indexer(x)
    equal(layer.pick(x), (scores, choose(scores, 2, causal)), {"the future is picked": choose(scores, 2)})
    layer.k = None
    equal(layer.pick(x)[1], causal.expand(2, 5, 5))


@check(IndexedAttention.pick, "The indexer: a small score for each word")
def a_detached_copy_is_read() -> None:
    """The indexer reads a detached copy of x: its scores have a gradient, but none that reaches x."""
    layer, x = IndexedAttention(8, 2, Indexer(8), k=2), randn(2, 5, 8, requires_grad=True)
    layer.pick(x)[0].sum().backward()
    holds(x.grad is None, "the gradient of the scores reaches x: the indexer should read a detached copy")


def attend(layer: IndexedAttention, x: torch.Tensor, mask: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Output and weights of plain multi-head attention with a mask."""
    return Attention.forward(layer, x, x, mask), layer.weights


@check(IndexedAttention.forward, "The indexer: a small score for each word")
def reads_the_picks() -> None:
    """The layer is multi-head attention with the picks as its mask, for all heads."""
    layer, x = IndexedAttention(8, 2, Indexer(8), k=2), randn(2, 5, 8)
    causal = torch.ones(5, 5, dtype=torch.bool).tril()
    want, _ = attend(layer, x, layer.pick(x)[1][:, None])
    everything, _ = attend(layer, x, causal)
    equal(layer(x), want, {"everything is read": everything})


@check(IndexedAttention.index_loss, "The indexer: a small score for each word")
def imitate_the_attention() -> None:
    """The loss is KL(attention's mean weights | softmax of the index scores), averaged over all queries.

    Both are over the positions that are picked.
    """
    layer, x = IndexedAttention(8, 2, Indexer(8), k=3), randn(2, 5, 8)
    scores, read = layer.pick(x)
    p = attend(layer, x, read[:, None])[1].mean(1)
    index = scores.masked_fill(~read, -1e9).log_softmax(-1)
    want = (torch.special.xlogy(p, p) - p * index).sum(-1).mean()
    turned = (index.exp() * (index - p.clamp(min=1e-30).log())).masked_fill(~read, 0).sum(-1).mean()
    slips = {"the two distributions are swapped": turned.detach(), "averaged over positions, too": want.detach() / 5}
    everywhere = attend(layer, x, torch.ones(5, 5, dtype=torch.bool).tril())[1].mean(1)
    all_read = (torch.special.xlogy(everywhere, everywhere) - everywhere * index).sum(-1).mean().detach()
    one = attend(layer, x, read[:, None])[1][:, 0]
    slips |= {
        "the attention reads more than the picks": all_read,
        "only the first head is imitated": (torch.special.xlogy(one, one) - one * index).sum(-1).mean().detach(),
    }
    layer.weights = torch.zeros(2, 2, 5, 5)  # of a call long ago
    equal(layer.index_loss(x).detach(), want.detach(), slips)


@check(IndexedAttention.index_loss, "The indexer: a small score for each word")
def only_the_indexer_learns() -> None:
    """No gradient of this loss reaches the attention or its input."""
    layer, x = IndexedAttention(8, 2, Indexer(8)), randn(2, 5, 8, requires_grad=True)
    layer.index_loss(x).backward()
    holds(layer.in_proj_weight.grad is None, "the attention got a gradient: the target should be a constant")
    holds(x.grad is None, "x got a gradient: in pick, the indexer should read a detached copy")
    holds(layer.indexer.wq.weight.grad is not None, "the indexer got no gradient")
