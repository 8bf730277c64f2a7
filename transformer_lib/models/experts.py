"""Mixture of experts: feed-forward layers of which each token visits a few, and their load balance.

``transformer_lib.plain.experts`` is the same as its chapter builds it.
"""

__all__ = ["Experts"]

from collections.abc import Callable

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from transformer_lib.models.llama import SwiGLU
from transformer_lib.models.seq2seq import wide
from transformer_lib.models.sparse_attention import choose


class Experts(nn.Module):
    """Feed-forward layers of which each token visits the k with the best scores.

    Source: Shazeer et al. (2017), section 2; for the biases and ``sigmoid``,
    DeepSeek-AI (2024b), section 2.1.2.

    Args:
        sigmoid: score each expert by itself instead of with a softmax over all.
    """

    bias: Tensor

    def __init__(self, d_model: int, d_ff: int, n: int, k: int, *, sigmoid: bool = False) -> None:
        super().__init__()
        if k < 1:
            raise ValueError(f"{k=}: each token must visit an expert")
        self.router = nn.Linear(d_model, n, bias=False)
        self.experts = nn.ModuleList(SwiGLU(d_model, d_ff) for _ in range(n))
        bias = torch.zeros(n, dtype=torch.float32)  # only for the choice
        self.register_buffer("bias", bias)
        self.k, self.sigmoid = k, sigmoid

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> "Experts":
        """What ``to``, ``half`` and ``bfloat16`` call: the bias stays in float32.

        Its steps are too small for half precision.
        """
        bias = self.bias
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        if self.bias.dtype != torch.float32:
            self.bias = bias.to(self.bias.device)
        return self

    def route(self, x: Float[Tensor, "N D"]) -> tuple[Tensor, Tensor]:
        """Scores of all experts, and True at those that are visited: (N, n) each."""
        logits = wide(self.router(x))
        scores = logits.sigmoid() if self.sigmoid else logits.softmax(-1)
        scores = scores.clamp(min=1e-30)  # a score of 0 could not be divided by
        return scores, choose(scores + self.bias, self.k)

    def forward(self, x: Float[Tensor, "*B D"]) -> Float[Tensor, "*B D"]:
        """Add up what the visited experts compute, weighted by their scores."""
        tokens = x.reshape(-1, x.shape[-1])  # (N, D)
        scores, visits = self.route(tokens)
        weights = scores * visits
        weights = (weights / weights.sum(-1, keepdim=True)).to(x.dtype)
        y = torch.zeros_like(tokens)
        for i, expert in enumerate(self.experts):
            rows = visits[:, i].nonzero()[:, 0]  # the tokens that visit it
            y = y.index_add(0, rows, weights[rows, i, None] * expert(tokens[rows]))
        return y.view_as(x)

    @torch.no_grad()
    def balance(self, visits: Bool[Tensor, "N n"], step: float = 0.001) -> None:
        """Raise the bias of experts with few visits and lower that of busy ones.

        Args:
            visits: of the tokens that count: leave out padding.
        """
        load = visits.sum(0)
        # in single precision, even if it was loaded in half
        self.bias = wide(self.bias) + step * (load.sum() - len(load) * load).sign()
