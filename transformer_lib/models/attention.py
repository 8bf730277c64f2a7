"""The masked softmax, weighted averages, and scaled dot-product attention by its formula and by PyTorch's kernel.

``transformer_lib.plain.attention`` is the formula as its chapter builds it.
"""

__all__ = ["masked_softmax", "attend", "with_causal", "attention_weights", "attention", "fused_attention"]

import math
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.nn import functional as F

from transformer_lib.models.masks import causal_mask as causal_mask
from transformer_lib.models.masks import padding_mask as padding_mask


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


def with_causal(mask: Bool[Tensor, "..."] | None, T: int, S: int, device: torch.device) -> Bool[Tensor, "..."]:
    """The mask, with later keys hidden. The last query belongs to the last key.

    With a cache, T is less than S: the queries are the last T positions.
    """
    causal = causal_mask(T, S - T, device=device)[0, 0]
    return causal if mask is None else mask & causal


def attention_weights(
    q: Float[Tensor, "*H T d_k"],
    k: Float[Tensor, "*G S d_k"],
    mask: Bool[Tensor, "..."] | None = None,
    *,
    causal: bool = False,
) -> Float[Tensor, "*H T S"]:
    """softmax(q k^T / sqrt(d_k)). A query that may attend to nothing gets zeros.

    The leading axes, if any, are sentences and heads. If k has fewer heads,
    neighbouring heads of q share one.

    Source: Vaswani et al. (2017), eq. 1.
    """
    if k.dim() > 3 and k.shape[-3] != q.shape[-3]:  # heads that share their keys
        k = k.repeat_interleave(q.shape[-3] // k.shape[-3], dim=-3)
    scores = q / math.sqrt(q.shape[-1]) @ k.mT  # scaled first: safer in float16
    if causal:
        mask = with_causal(mask, q.shape[-2], k.shape[-2], q.device)
    return masked_softmax(scores, mask)


def attention(
    q: Float[Tensor, "*H T d_k"],
    k: Float[Tensor, "*G S d_k"],
    v: Float[Tensor, "*G S d_v"],
    mask: Bool[Tensor, "..."] | None = None,
    *,
    causal: bool = False,
    dropout: float = 0.0,
) -> Float[Tensor, "*H T d_v"]:
    """softmax(q k^T / sqrt(d_k)) v by PyTorch's kernel.

    A query that may attend to nothing gets zeros.

    Source: Vaswani et al. (2017), eq. 1.

    Args:
        mask: True where a query may attend; broadcast to (..., H, T, S).
        causal: hide the keys after each query; the last query sees all keys.
        dropout: of the weights, whenever it is called: a layer passes 0 in evaluation.

    Raises:
        TypeError: if the mask is not boolean: the kernel adds floats to scores.
        ValueError: if there are not as many values as keys.
    """
    if mask is not None and mask.dtype != torch.bool:
        raise TypeError(f"mask is {mask.dtype}, expected torch.bool (True: may attend)")
    T, S = q.shape[-2], k.shape[-2]
    if v.shape[-2] != S:  # the kernel would read past the end of the shorter one
        raise ValueError(f"{S} keys and {v.shape[-2]} values do not pair up")
    if T == 1:  # a single query belongs to the last key, and sees all
        causal = False
    if causal and (mask is not None or T != S):
        mask, causal = with_causal(mask, T, S, q.device), False
    return fused_attention(q, k, v, mask, causal, dropout)


def fused_attention(
    q: Float[Tensor, "*H T d_k"],
    k: Float[Tensor, "*G S d_k"],
    v: Float[Tensor, "*G S d_v"],
    mask: Bool[Tensor, "..."] | None,
    causal: bool,
    dropout: float,
) -> Float[Tensor, "*H T d_v"]:
    """PyTorch's kernel for shared heads, and for half precision on a CPU.

    Its own causal flag only works without a mask, and if T equals S.
    """
    kernel = F.scaled_dot_product_attention
    shared: dict[str, Any] = {}
    if q.dim() > 3 and q.shape[-3] != k.shape[-3]:  # heads that share their keys
        shared["enable_gqa"] = True
    if q.device.type != "cpu" or q.dtype not in (torch.float16, torch.bfloat16):
        return kernel(q, k, v, mask, dropout, causal, **shared)
    with torch.autocast("cpu", enabled=False):  # slow in half precision on a CPU
        wide = q.float(), k.float(), v.float()
        return kernel(*wide, mask, dropout, causal, **shared).to(q.dtype)
