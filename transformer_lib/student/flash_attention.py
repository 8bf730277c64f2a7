"""Tests for chapter "FlashAttention: attention in blocks"."""

import torch
from torch import Tensor, randn
from torch.utils._python_dispatch import TorchDispatchMode

from transformer_lib.plain.flash_attention import flash_backward, flash_forward
from transformer_lib.student.checks import check, equal, holds

FORWARD, BACKWARD = "The forward pass", "The backward pass"
Inputs = tuple[Tensor, Tensor, Tensor]


def inputs(times: float = 1.0) -> Inputs:
    """Seven queries, and ten keys and values of another width."""
    return times * randn(7, 4).double(), times * randn(10, 4).double(), randn(10, 3).double()


def formula(q: Tensor, k: Tensor, v: Tensor, scale: float = 0.5) -> tuple[Tensor, Tensor]:
    """The context and the log-sum-exps, with the whole table."""
    scores = scale * q @ k.T
    return scores.softmax(-1) @ v, scores.logsumexp(-1, keepdim=True)


class Largest(TorchDispatchMode):
    """Remembers the size of the largest tensor that is computed."""

    def __init__(self) -> None:
        super().__init__()
        self.size = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **kwargs or {})
        if isinstance(result, Tensor):
            self.size = max(self.size, result.numel())
        return result


@check(flash_forward, FORWARD)
def the_context_of_the_formula() -> None:
    """The context is that of the formula, also where the last block is shorter than the others."""
    q, k, v = inputs()
    want = formula(q, k, v)[0]
    slips = {"the scores aren't divided by the root of the width": formula(q, k, v, 1.0)[0]}
    for size in (1, 4, 5, 16):
        equal(flash_forward(q, k, v, size)[0], want, slips)


@check(flash_forward, FORWARD)
def one_number_for_each_query() -> None:
    """The second result (T, 1) is the logarithm of each query's sum of exponentials, m + log of the running sum."""
    q, k, v = inputs()
    want = formula(q, k, v)[1]
    sums = {"the logarithm is missing": want.exp(), "the maximum isn't added": want - (0.5 * q @ k.T).amax(-1, True)}
    equal(flash_forward(q, k, v, 4)[1], want, sums)


@check(flash_forward, FORWARD)
def large_scores() -> None:
    """Scores of a thousand and more don't overflow: each block subtracts the largest score so far."""
    q, k, v = inputs(100.0)
    context = flash_forward(q, k, v, 3)[0]
    holds(context.isfinite().all(), "the context has NaN or infinity", {"no maximum is subtracted": True})
    equal(context, formula(q, k, v)[0])


@check(flash_forward, FORWARD)
def one_tile_at_a_time() -> None:
    """No tensor is larger than an input: a table of all scores is never computed."""
    q, k, v = (randn(60, 2) for _ in range(3))
    with Largest() as seen:
        flash_forward(q, k, v, 5)
    holds(seen.size <= 120, f"a tensor of {seen.size} numbers was computed, and the whole table has 3600")


def gradients(q: Tensor, k: Tensor, v: Tensor, g: Tensor, scale: float = 0.5) -> list[Tensor]:
    """What autograd finds."""
    leaves = [x.clone().requires_grad_() for x in (q, k, v)]
    return list(torch.autograd.grad(formula(*leaves, scale)[0], leaves, g))


@check(flash_backward, BACKWARD)
def the_gradients_of_autograd() -> None:
    """The gradients of queries, keys and values are autograd's, for every size of the tiles."""
    (q, k, v), g = inputs(), randn(7, 3).double()
    context, lse = formula(q, k, v)
    want, weights = gradients(q, k, v, g), (0.5 * q @ k.T - lse).exp()
    whole = 0.5 * weights * (g @ v.T)  # without delta
    twice = [2 * want[0], 2 * want[1], want[2]]
    slips = {"delta isn't subtracted": [whole @ k, whole.T @ q, want[2]], "the scale is missing once": twice}
    for size in (1, 4, 5, 16):
        equal([*flash_backward(q, k, v, context, lse, g, size)], want, slips)


@check(flash_backward, BACKWARD)
def no_table_on_the_way_back() -> None:
    """No tensor is larger than an input here either."""
    q, k, v, g = (randn(60, 2) for _ in range(4))
    context, lse = formula(q, k, v, 2**-0.5)
    with Largest() as seen:
        flash_backward(q, k, v, context, lse, g, 5)
    holds(seen.size <= 120, f"a tensor of {seen.size} numbers was computed, and the whole table has 3600")
