"""The masked softmax, and the weighted average that attention is."""

__all__ = ["masked_softmax", "attend"]

import torch
from jaxtyping import Bool, Float
from torch import Tensor


def masked_softmax(scores: Float[Tensor, "*B S"], mask: Bool[Tensor, "*#B #S"] | None = None) -> Float[Tensor, "*B S"]:
    """Softmax over visible positions; zeros if there are none.

    Source: Bahdanau et al. (2015), section 3.1.
    """
    if mask is None:
        return scores.softmax(-1)
    # any finite number may be a visible score; only where none is visible, minus infinity would be NaN
    hidden = scores.new_zeros(()).where(~mask.any(-1, keepdim=True), -torch.inf)
    return scores.where(mask, hidden).softmax(-1) * mask


def attend(
    scores: Float[Tensor, "*B T S"],
    values: Float[Tensor, "*B S D"],
    mask: Bool[Tensor, "*#B #T #S"] | None = None,
) -> tuple[Float[Tensor, "*B T D"], Float[Tensor, "*B T S"]]:
    """Weighted averages of the values, and the weights.

    Source: Bahdanau et al. (2015), eqs. 5 and 6.
    """
    weights = masked_softmax(scores, mask)  # (B, T, S)
    return weights @ values, weights
