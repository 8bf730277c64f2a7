"""Sparse attention: the positions with the best scores, and an indexer that learns these scores.

``transformer_lib.plain.sparse_attention`` is the same as its chapter builds it: without padding, rotation or options.
"""

__all__ = ["choose", "Indexer", "IndexedAttention"]

import math

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn import functional as F

from transformer_lib.models.attention import attention_weights
from transformer_lib.models.llama import rotate
from transformer_lib.models.multi_head import MultiHeadAttention
from transformer_lib.models.seq2seq import wide


def choose(
    scores: Float[Tensor, "*B S"],
    k: int,
    mask: Bool[Tensor, "*#B #S"] | None = None,
) -> Bool[Tensor, "*B S"]:
    """True at the k largest scores of each row, among those the mask allows.

    Of equal scores, the earliest are chosen, and minus infinity never is.
    """
    if k < 0:
        raise ValueError(f"{k=} must not be negative")
    if mask is not None:
        scores = scores.masked_fill(~mask, -math.inf)
    S, chosen = scores.shape[-1], torch.zeros_like(scores, dtype=torch.bool)
    best, places = scores.topk(min(k + 1, S))
    chosen.scatter_(-1, places[..., :k], best[..., :k] != -math.inf)
    if 0 < k < S:
        tied = (best[..., k - 1] == best[..., k]) & (best[..., k] > -math.inf)
        if tied.any():  # topk would choose any of the equal ones
            order = scores[tied].sort(dim=-1, descending=True, stable=True).indices
            rows = torch.zeros_like(scores[tied], dtype=torch.bool)
            chosen[tied] = rows.scatter(-1, order[..., :k], True)
    return chosen


class Indexer(nn.Module):
    """A small score for each query and each position, from narrow heads.

    Source: DeepSeek-AI (2025), eq. 1.
    """

    def __init__(self, d_model: int, n_heads: int = 4, width: int = 8, *, d_rotary: int = 0) -> None:
        super().__init__()
        self.n_heads, self.d_rotary = n_heads, d_rotary
        self.wq = nn.Linear(d_model, n_heads * width, bias=False)
        self.wk = nn.Linear(d_model, width, bias=False)  # one for all heads
        self.k_norm = nn.LayerNorm(width, eps=1e-6)
        self.weights_proj = nn.Linear(d_model, n_heads, bias=False)

    def forward(self, x: Float[Tensor, "B T D"]) -> Float[Tensor, "B T T"]:
        """Scores of all positions (columns) for all queries (rows), in float32."""
        q = self.wq(x).unflatten(2, (self.n_heads, -1)).transpose(1, 2)
        k = self.k_norm(self.wk(x))[:, None]  # (B, 1, T, K)
        q, k = self.turn(wide(q)), self.turn(wide(k))
        scores = F.relu(q @ k.mT / math.sqrt(k.shape[-1]))  # (B, H, T, T)
        weights = wide(self.weights_proj(x)).mT / math.sqrt(self.n_heads)  # (B, H, T)
        return (weights[..., None] * scores).sum(1)

    def turn(self, z: Float[Tensor, "B H T K"]) -> Float[Tensor, "B H T K"]:
        """Rotate the first columns by their position."""
        turned, rest = z[..., : self.d_rotary], z[..., self.d_rotary :]
        positions = torch.arange(z.shape[2], device=z.device)
        return torch.cat([rotate(turned, positions), rest], -1)


class IndexedAttention(MultiHeadAttention):
    """Causal attention that reads the k positions with the best index scores.

    Source: DeepSeek-AI (2025), section 2.

    Args:
        k: how many positions a query reads at most; None: all up to its own.
    """

    def __init__(self, d_model: int, n_heads: int, indexer: Indexer, k: int | None = None) -> None:
        super().__init__(d_model, n_heads)
        if k is not None and k < 1:
            raise ValueError(f"{k=} must be at least 1; None: all")
        self.indexer, self.k = indexer, k

    def pick(self, x: Float[Tensor, "B T D"], mask: Bool[Tensor, "B T"] | None = None) -> tuple[Tensor, Tensor]:
        """Index scores, and True at the positions that are read: (B, T, T) each."""
        scores = self.indexer(x.detach())  # the index loss trains the indexer only
        allowed = torch.ones_like(scores, dtype=torch.bool).tril()
        if mask is not None:
            allowed = allowed & mask[:, None]
        k = scores.shape[-1] if self.k is None else self.k
        return scores, choose(scores, k, allowed)

    def forward(  # type: ignore[override]
        self, x: Float[Tensor, "B T D"], mask: Bool[Tensor, "B T"] | None = None
    ) -> Float[Tensor, "B T D"]:
        """Attend to what the indexer picks; the mask is False at padding."""
        x = x if mask is None else x.masked_fill(~mask[..., None], 0)  # whatever stands there
        return super().forward(x, mask=self.pick(x, mask)[1][:, None])

    def index_loss(self, x: Float[Tensor, "B T D"], mask: Bool[Tensor, "B T"] | None = None) -> Float[Tensor, ""]:
        """Divergence of the index from the attention, averaged over the queries."""
        x = x if mask is None else x.masked_fill(~mask[..., None], 0)
        scores, read = self.pick(x, mask)
        with torch.no_grad():
            q, k, _ = self.project(x)
            target = wide(attention_weights(q, k, read[:, None]).mean(1))
        lowest = torch.finfo(scores.dtype).min
        index = scores.masked_fill(~read, lowest).log_softmax(-1)
        losses = F.kl_div(index, target, reduction="none").sum(-1)  # (B, T)
        counted = torch.ones_like(losses, dtype=torch.bool) if mask is None else mask
        return losses.where(counted, 0).sum() / counted.sum().clamp(min=1)
