"""Tests for chapter "Masks"."""

from collections.abc import Callable

import torch
from torch import Tensor, randn, tensor
from torch.nn import functional as F

from transformer_lib.models.attention import causal_mask, padding_mask
from transformer_lib.plain.masks import sees
from transformer_lib.student.checks import check, equal

TOKENS = tensor([[4, 5, 6, 2], [7, 2, 0, 0]])


@check(padding_mask, "The axes of a mask")
def true_at_tokens() -> None:
    """The mask is True at tokens and False at ``pad``; its axes are sentences, heads, queries, keys: (B, 1, 1, S)."""
    want = (TOKENS != 0).view(2, 1, 1, 4)
    slips = {"True means the opposite": ~want, "A mask without its middle axes": TOKENS != 0}
    equal(padding_mask(TOKENS), want, slips | {"one middle axis is missing": want[:, 0]})
    equal(padding_mask(TOKENS, 7), (TOKENS != 7).view(2, 1, 1, 4), {"`pad` is not used": want})


@check(padding_mask, "The axes of a mask")
def padding_is_never_read() -> None:
    """If the vectors at the padding change, nothing else does."""
    q, k = randn(2, 1, 4, 8), randn(2, 1, 4, 8)
    other = k.clone()
    other[1, :, 2:] += 1
    one, two = (F.scaled_dot_product_attention(q, x, x, padding_mask(TOKENS)) for x in (k, other))
    equal(two, one, {"True means the opposite": bool(padding_mask(TOKENS)[1].flatten()[-1])})


@check(causal_mask, "The axes of a mask")
def a_lower_triangle() -> None:
    """Query t may attend to the keys up to t, itself included; the axes are (1, 1, T, S), and the numbers boolean."""
    want = torch.ones(1, 1, 4, 4, dtype=torch.bool).tril()
    slips = {
        "True means the opposite": ~want,
        "a word that does not see itself": want.tril(-1),
        "the triangle is upside down": want.mT,
    }
    equal(causal_mask(4), want, slips | {"A mask without its middle axes": want[0, 0]})
    equal(causal_mask(4, device="meta").device.type, "meta")  # a device that every machine has


@check(causal_mask, "The axes of a mask")
def positions_before() -> None:
    """After three earlier positions, the first of two queries sees four keys, and the second all five."""
    want = tensor([[[[True, True, True, True, False], [True] * 5]]])
    first = torch.ones(1, 1, 2, 5, dtype=torch.bool).tril()
    equal(causal_mask(2, 3), want, {"the first query is at the first key": first})


@check(causal_mask, "The axes of a mask")
def no_leak() -> None:
    """If the last vector changes, no earlier output does."""
    x = randn(1, 1, 5, 8)
    other = x.clone()
    other[..., -1, :] += 1
    one, two = (F.scaled_dot_product_attention(y, y, y, causal_mask(5)) for y in (x, other))
    equal(two[..., :-1, :], one[..., :-1, :])


def mixer(mask: Tensor, layers: int = 1) -> Callable[[Tensor], Tensor]:
    """A model of 7 words whose outputs are sums over what a mask (T, T) lets them see, layer by layer."""
    table, weights = randn(7, 4), randn(layers, *mask.shape) * mask

    def model(tokens: Tensor) -> Tensor:
        x = table[tokens]
        for one in weights:
            x = x + (one @ x).tanh()
        return x

    return model


def square(*cells: tuple[int, int]) -> Tensor:
    """A causal mask of five words with some wrong cells."""
    mask = torch.ones(5, 5, dtype=torch.bool).tril()
    for cell in cells:
        mask[cell] = True
    return mask


@check(sees, "A test that finds leaks")
def what_a_layer_sees() -> None:
    """Through one layer, the result is the mask (T, T) for every sentence: row t is what the output at t depends on."""
    tokens = torch.tensor([[1, 2, 3, 4, 5], [6, 5, 4, 3, 2]])
    for mask in (square(), square((1, 3)), square((0, 4), (2, 3))):
        want = mask.expand(2, 5, 5)
        equal(sees(mixer(mask), tokens, 7), want, {"rows and columns are exchanged": want.mT})


@check(sees, "A test that finds leaks")
def leaks_add_up() -> None:
    """Through two layers, whoever sees the first leak sees what it sees."""
    mask = square((1, 3))
    want = ((mask.long() @ mask.long()) > 0)[None]
    equal(sees(mixer(mask, 2), torch.tensor([[1, 2, 3, 4, 5]]), 7), want)


@check(sees, "A test that finds leaks")
def every_sentence_by_itself() -> None:
    """The sentences of a batch get tables of their own, also for the last word of the vocabulary."""
    table = randn(7, 4)

    def model(tokens: Tensor) -> Tensor:  # the first sentence sees itself alone, the second the first word, too
        x = table[tokens]
        return x + torch.tensor([0.0, 1.0])[:, None, None] * x[:, :1]

    want = torch.eye(3, dtype=torch.bool).repeat(2, 1, 1)
    want[1, :, 0] = True
    equal(sees(model, torch.tensor([[6, 6, 6], [6, 1, 0]]), 7), want)


@check(sees, "A test that finds leaks")
def every_change_counts() -> None:
    """Outputs that only fall have moved, and so have outputs whose sum stays the same."""
    tokens, want = torch.tensor([[1, 2, 3]]), torch.eye(3, dtype=torch.bool)[None]
    equal(sees(lambda rows: -rows.float()[..., None].expand(-1, -1, 2), tokens, 7), want)
    slips = {"changes that cancel are overlooked": ~want & want}
    equal(sees(lambda rows: torch.stack([rows.float(), -rows.float()], -1), tokens, 7), want, slips)


@check(sees, "A test that finds leaks")
def nothing_is_changed_and_nan_is_no_proof() -> None:
    """The tokens stay as they were, no gradient is kept, and outputs that are NaN count as outputs that move."""
    tokens, table = torch.tensor([[1, 2, 3]]), randn(7, 4, requires_grad=True)
    seen: list[Tensor] = []

    def model(tokens: Tensor) -> Tensor:
        seen.append(table[tokens])
        return seen[-1] / torch.tensor([1.0, 1.0, 0.0])[:, None] * 0

    got = sees(model, tokens, 7)
    equal(tokens, torch.tensor([[1, 2, 3]]))
    equal(any(one.requires_grad for one in seen), False)
    equal(got[0, 2], torch.tensor([True, True, True]))
