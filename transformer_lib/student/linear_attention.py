"""Tests for chapter "Linear attention"."""

import torch
from torch import randn, tensor
from torch.nn import functional as F

from transformer_lib.plain.linear_attention import LinearAttention, chunked, delta_rule, parallel, recurrent
from transformer_lib.student.checks import check, equal, learns, same


def triple(T: int = 6) -> tuple[torch.Tensor, ...]:
    """Queries, keys of length 1, and values."""
    return randn(T, 4), F.normalize(randn(T, 4), dim=-1), randn(T, 5)


@check(recurrent, "Take the softmax away")
def one_outer_product_a_word() -> None:
    """Output t is q_t W, where W is the sum of the outer products of all keys and values up to t, its own included."""
    q, k, v = triple()
    scores = q @ k.T
    slips = {
        "a word that does not see itself": scores.tril(-1) @ v,
        "A cumulative sum that includes the future": scores @ v,
        "the last pair only": torch.stack([(a @ b) * c for a, b, c in zip(q, k, v, strict=True)]),
    }
    equal(recurrent(q, k, v), scores.tril() @ v, slips)


@check(parallel, "Take the softmax away")
def attention_without_its_softmax() -> None:
    """Output t is the sum over s up to t of (q_t . k_s) v_s."""
    q, k, v = triple()
    slips = {
        "A cumulative sum that includes the future": q @ k.T @ v,
        "a word that does not see itself": (q @ k.T).tril(-1) @ v,
        "keys ask queries": (k @ q.T).tril() @ v,
        "softmax is still there": (q @ k.T).masked_fill(torch.ones(6, 6).triu(1) > 0, -torch.inf).softmax(-1) @ v,
    }
    equal(parallel(q, k, v), (q @ k.T).tril() @ v, slips)


@check(chunked, "In chunks")
def every_size_of_chunk() -> None:
    """Chunks of 1, 4 (with a shorter one at the end) and 9 give what the parallel form gives."""
    q, k, v = (x.requires_grad_() for x in triple())
    want = (q @ k.T).tril() @ v
    for size in (1, 4, 6, 9):
        block = torch.arange(6) // size
        inside = (q @ k.T).tril() * (block[:, None] == block)
        whole = (q @ k.T) * (block[:, None] >= block)
        slips = {
            "what was before the chunk is forgotten": inside @ v,
            "A cumulative sum that includes the future": whole @ v,
        }
        got = chunked(q, k, v, size)
        equal(got, want, {name: x for name, x in slips.items() if not same(x, want)})
        learns(got, (q @ k.T).tril() @ v, q, k, v)


def one_by_one(q, k, v, beta, gamma, *, delta=True, late=False):
    """The recurrence, one position after the other."""
    W, outputs = torch.zeros(4, v.shape[1]), []
    for t in range(len(q)):
        outputs.append(q[t] @ W)
        W = gamma[t] * W
        W = W + beta[t] * torch.outer(k[t], v[t] - (k[t] @ W if delta else 0))
        outputs[t] = outputs[t] if late else q[t] @ W
    return torch.stack(outputs)


@check(delta_rule, "The delta rule: ask first, then write the difference")
def only_the_difference_is_written() -> None:
    """Each word asks the memory with its key, writes beta times (value minus answer), and reads with its query."""
    (q, k, v), beta = triple(), torch.rand(6)
    ones = torch.ones(6)
    slips = {
        "sums instead of differences": one_by_one(q, k, v, beta, ones, delta=False),
        "beta is not used": one_by_one(q, k, v, ones, ones),
        "it reads before it writes": one_by_one(q, k, v, beta, ones, late=True),
        "the memory is asked with the query": None,
    }
    W, asked = torch.zeros(4, 5), []
    for t in range(6):
        W = W + beta[t] * torch.outer(k[t], v[t] - q[t] @ W)
        asked.append(q[t] @ W)
    slips["the memory is asked with the query"] = torch.stack(asked)
    equal(delta_rule(q, k, v, beta), one_by_one(q, k, v, beta, ones), slips)


@check(delta_rule, "The delta rule: ask first, then write the difference")
def a_value_is_replaced() -> None:
    """After a second write under the same key of length 1, with strength 1, the key returns the second value."""
    keys, values = tensor([[1.0, 0], [1, 0]]), tensor([[3.0], [5]])
    equal(delta_rule(keys, keys, values, torch.ones(2)), values, {"sums instead of differences": tensor([[3.0], [8]])})


def by_hand(layer: LinearAttention, x: torch.Tensor, **changes) -> torch.Tensor:
    """The layer, head by head and word by word, with some of its parts changed."""
    H, (q, k, v) = layer.n_heads, layer.in_proj(x).chunk(3, -1)
    beta, gamma = layer.gates(x).sigmoid().chunk(2, -1)
    rule = changes.get("rule", layer.rule)
    decay, delta = rule in ("decay", "gated"), rule in ("delta", "gated")
    rows = []
    for b in range(len(x)):
        heads = []
        for h in range(H):
            one = [y[b].chunk(H, -1)[h] for y in (q, k, v)]
            if changes.get("mixed"):
                one = [y[b].unflatten(1, (-1, H))[..., h] for y in (q, k, v)]
            unit = [F.normalize(y, dim=-1) for y in one[:2]] if changes.get("unit", True) else one[:2]
            write, keep = (gamma, beta) if changes.get("swapped") else (beta, gamma)
            keep = keep[b, :, h] if decay else torch.ones(x.shape[1])
            heads.append(one_by_one(*unit, one[2], write[b, :, h], keep, delta=delta, late=changes.get("late", False)))
        rows.append(torch.cat(heads, -1))
    return layer.out_proj(torch.stack(rows))


@check(LinearAttention.forward, "The layer")
def the_gated_rule() -> None:
    """Queries and keys have length 1; beta and gamma are sigmoids of the gates, in this order; W fades, is asked, and
    gets the difference; then the query reads.
    """
    layer, x = LinearAttention(8, 2, d_head=4), randn(3, 6, 8)
    want = by_hand(layer, x)
    slips = {
        "Keys whose length isn't 1": by_hand(layer, x, unit=False),
        "beta and gamma are exchanged": by_hand(layer, x, swapped=True),
        "it reads before it writes": by_hand(layer, x, late=True),
        "nothing fades": by_hand(layer, x, rule="delta"),
        "sums instead of differences": by_hand(layer, x, rule="decay"),
        "the heads are cut the wrong way": by_hand(layer, x, mixed=True),
    }
    equal(layer(x), want, slips)
    learns(layer(x), want, *layer.parameters())


@check(LinearAttention.forward, "The layer")
def the_other_rules() -> None:
    """With the rule "decay" or "gated", W fades; with "delta" or "gated", the difference is written."""
    for rule in ("sum", "decay", "delta"):
        layer, x = LinearAttention(8, 2, rule=rule, d_head=4), randn(2, 6, 8)
        others = {f"the rule {rule} does what {one} should": one for one in ("sum", "decay", "delta", "gated")}
        slips = {told: by_hand(layer, x, rule=one) for told, one in others.items() if one != rule}
        equal(layer(x), by_hand(layer, x), slips)


@check(LinearAttention.split, "The layer")
def heads_beside_words() -> None:
    """(B, T, H V) becomes (B, H, T, V): each head gets neighbouring numbers."""
    layer, x = LinearAttention(8, 2, d_head=4), randn(2, 6, 8)
    want = torch.stack(x.chunk(2, -1), 1)
    slips = {
        "(B, T, H, V): the axes are not exchanged": x.unflatten(2, (2, 4)),
        "each head gets every second number": x.unflatten(2, (4, 2)).permute(0, 3, 1, 2),
    }
    equal(layer.split(x), want, slips)
