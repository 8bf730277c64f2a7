"""Sampling: temperature, top-k and top-p.

Chapter: Sampling: temperature, top-k and top-p.
"""

import math
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from transformer_lib.decoding.greedy import collect_tokens


def sampling_probabilities(
    logits: Float[Tensor, "N V"],
    *,
    temperature: float = 1.0,
    top_k: int | None = None,
    top_p: float = 1.0,
) -> Float[Tensor, "N V"]:
    """The probabilities from which the next token is drawn.

    Args:
        top_k: only this many tokens, the most likely ones; None for all.
        top_p: only the fewest most likely tokens that have at least this
            probability together.

    Source: Fan et al. (2018), section 5, for top-k; Holtzman et al. (2020),
    section 3.1, for top-p.
    """
    allowed = 0 < temperature < math.inf and 0 < top_p <= 1
    if not (allowed and (top_k is None or top_k > 0)):
        raise ValueError(f"{temperature=}, {top_k=}, {top_p=}: each must be positive, top_p <= 1")
    logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
    temperature = min(max(temperature, 1e-30), 1e30)  # others are 0 or infinite in single precision
    # with a maximum of 0 no temperature can overflow
    logits = (logits - logits.amax(-1, keepdim=True)) / temperature
    p, tokens = logits.softmax(-1).sort(descending=True, stable=True)
    p[:, top_k or p.shape[1] :] = 0
    p = p / p.sum(-1, keepdim=True)
    if top_p < 1:  # rounded, the sums reach 1 too early
        p = p.masked_fill(p.cumsum(-1) - p >= top_p, 0)  # enough before it
    return torch.zeros_like(p).scatter(-1, tokens, p / p.sum(-1, keepdim=True))


def sample(
    model: nn.Module,
    source: Int[Tensor, "B S"],
    *,
    temperature: float = 1.0,
    top_k: int | None = None,
    top_p: float = 1.0,
    generator: torch.Generator | None = None,
    **options: Any,
) -> Int[Tensor, "B T"]:
    """Draw each token at random, from `sampling_probabilities`.

    `collect_tokens` takes the drawing function as ``choose``: from logits (N, V)
    to tokens (N). For the other options see `generate`.

    Args:
        generator: on the model's device; None for PyTorch's own.
    """
    shape: dict[str, Any] = {"temperature": temperature, "top_k": top_k, "top_p": top_p}

    def draw(logits: Tensor) -> Tensor:
        p = sampling_probabilities(logits, **shape)
        # as `multinomial` draws, without its checks, which wait for a GPU
        noise = torch.empty_like(p).exponential_(generator=generator)
        return (p / noise).argmax(-1)

    return collect_tokens(model, source, choose=draw, **options)
