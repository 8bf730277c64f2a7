"""What a sublayer reads of those before it: their sum, a mean weighted by attention, or several sums.

Source: Kimi Team (2026) for attention residuals; Zhu et al. (2024) for hyper-connections, Xie et al. (2025) for their
manifold.
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

__all__ = ["AttentionResiduals", "HyperConnections", "Residuals"]

Sublayer = Callable[[int, Tensor], Tensor]  # number, input (B, T, D), output (B, T, D)


class Residuals(nn.Module):
    """Each sublayer reads the sum of all before it, with equal weights."""

    def forward(self, x: Tensor, sublayer: Sublayer, n: int) -> Tensor:
        """What stands behind n sublayers (B, T, D)."""
        for i in range(n):
            x = x + sublayer(i, x)
        return x


class AttentionResiduals(nn.Module):
    """Each sublayer attends to all before it: one learned query a sublayer, and the directions of outputs as keys."""

    def __init__(self, n: int, d_model: int) -> None:
        super().__init__()
        self.query = nn.Parameter(torch.zeros(n + 1, d_model))  # zeros: at first a plain mean

    def forward(self, x: Tensor, sublayer: Sublayer, n: int) -> Tensor:
        """What stands behind n sublayers (B, T, D)."""
        seen = [x]
        for i in range(n):
            seen.append(sublayer(i, self.look(i, seen)))
        return self.look(n, seen)

    def look(self, i: int, seen: list[Tensor]) -> Tensor:
        """The mean (B, T, D) of what was seen, weighted for reader i."""
        values = torch.stack(seen)  # (n, B, T, D)
        return (self.weights(i, values)[..., None] * values).sum(0)

    def weights(self, i: int, values: Tensor) -> Tensor:
        """How much reader i takes of each value (n, B, T)."""
        keys = F.rms_norm(values, values.shape[-1:])
        return (keys @ self.query[i]).softmax(0)


class HyperConnections(nn.Module):
    """Several streams: each sublayer reads a mixture of them and writes to all; then the streams mix."""

    def __init__(self, n: int, n_streams: int = 4, constrained: bool = False) -> None:
        super().__init__()
        self.constrained = constrained
        turn = F.one_hot(torch.arange(n) % n_streams, n_streams).float()  # each sublayer prefers another stream
        self.read = nn.Parameter(2 * turn - 1 if constrained else turn)
        self.write = nn.Parameter(torch.zeros_like(turn) if constrained else torch.ones_like(turn))
        self.mix = nn.Parameter(torch.eye(n_streams).repeat(n, 1, 1) * (5.0 if constrained else 1.0))

    def weights(self, i: int) -> tuple[Tensor, Tensor, Tensor]:
        """What sublayer i reads (N), where it writes (N), and how the streams mix (N, N)."""
        read, write, mix = self.read[i], self.write[i], self.mix[i]
        if self.constrained:  # nothing negative, and a mixture that neither grows nor shrinks
            read, write, mix = read.sigmoid(), 2 * write.sigmoid(), mix.exp()
            for _ in range(10):  # Sinkhorn: rows and columns add up to one
                mix = mix / mix.sum(1, keepdim=True)
                mix = mix / mix.sum(0, keepdim=True)
        return read, write, mix

    def forward(self, x: Tensor, sublayer: Sublayer, n: int) -> Tensor:
        """What stands behind n sublayers (B, T, D)."""
        streams = x.expand(self.mix.shape[-1], *x.shape)  # (N, B, T, D)
        for i in range(n):
            read, write, mix = self.weights(i)
            y = sublayer(i, torch.einsum("s,sbtd->btd", read, streams))
            streams = torch.einsum("rs,sbtd->rbtd", mix, streams) + torch.einsum("s,btd->sbtd", write, y)
        return streams.sum(0)
