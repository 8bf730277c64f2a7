"""A deep, narrow translator, for trying what its sublayers should read of those before them.

Source: Zhou et al. (2024) for value residuals.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

__all__ = ["DeepTranslator"]

PAD = 0
LONGEST = 64  # tokens of a sentence


class Attention(nn.Module):
    """Self-attention, to whose values those of the first layer may be added."""

    def __init__(self, d_model: int, n_heads: int, value_residual: bool) -> None:
        super().__init__()
        self.norm, self.n_heads = nn.RMSNorm(d_model), n_heads
        self.project = nn.Linear(d_model, 3 * d_model, bias=False)
        self.output = nn.Linear(d_model, d_model, bias=False)
        self.share = nn.Parameter(torch.tensor(0.5)) if value_residual else None

    def forward(self, x: Tensor, mask: Tensor, values: list[Tensor]) -> Tensor:
        """What each position (B, T, D) gathers where the mask (B, 1, T, T) is True; adds its values to the list."""
        q, k, v = (x.unflatten(-1, (self.n_heads, -1)).transpose(1, 2) for x in self.project(self.norm(x)).chunk(3, -1))
        values.append(v)
        if self.share is not None:
            v = self.share * v + (1 - self.share) * values[0]
        return self.output(F.scaled_dot_product_attention(q, k, v, mask).transpose(1, 2).flatten(2))


class FeedForward(nn.Module):
    """Two layers with a ReLU, the same for each position."""

    def __init__(self, d_model: int) -> None:
        super().__init__()
        self.norm = nn.RMSNorm(d_model)
        self.enter, self.output = nn.Linear(d_model, 4 * d_model), nn.Linear(4 * d_model, d_model)

    def forward(self, x: Tensor, mask: Tensor, values: list[Tensor]) -> Tensor:
        """(B, T, D) to (B, T, D); needs neither mask nor values."""
        return self.output(self.enter(self.norm(x)).relu())


class DeepTranslator(nn.Module):
    """A single stack that reads the source both ways and writes the target behind it.

    Its wiring, one of those in `depth`, decides what each sublayer reads. A value residual is a matter of attention.
    """

    def __init__(
        self,
        vocab_size: int,
        wiring: nn.Module,
        d_model: int = 64,
        n_heads: int = 4,
        n_layers: int = 12,
        dropout: float = 0.1,
        value_residual: bool = False,
    ) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocab_size, d_model)
        self.position = nn.Embedding(2 * LONGEST, d_model)  # those of a source, and those of a target
        self.sublayers = nn.ModuleList()
        for _ in range(n_layers):
            self.sublayers += [Attention(d_model, n_heads, value_residual), FeedForward(d_model)]
        self.wiring, self.norm, self.dropout = wiring, nn.RMSNorm(d_model), nn.Dropout(dropout)
        for table in (self.embedding, self.position):
            nn.init.normal_(table.weight, std=0.5)
        for sublayer in self.sublayers:  # 2 n sublayers together write about as much as there was
            nn.init.normal_(sublayer.output.weight, std=0.5 * (2 * n_layers * d_model) ** -0.5)

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        """Logits (B, T, V) of the words that follow those of the target (B, T), from the source (B, S)."""
        n = source.shape[1]
        if n > LONGEST:  # whose last positions would be those of the target
            raise ValueError(f"{n} source tokens, at most {LONGEST}")
        tokens = torch.cat([source, target], 1)
        places = torch.arange(tokens.shape[1], device=tokens.device)
        # everybody sees the source; of the target, only what is not later
        visible = (places <= places[:, None]) | (places < n)
        mask = visible & (tokens != PAD)[:, None, None]  # (B, 1, S + T, S + T)
        x = self.embedding(tokens) + self.position(torch.where(places < n, places, places - n + LONGEST))
        values: list[Tensor] = []

        def sublayer(i: int, x: Tensor) -> Tensor:
            return self.dropout(self.sublayers[i](x, mask, values))

        x = self.wiring(self.dropout(x), sublayer, len(self.sublayers))
        return self.norm(x[:, n:]) @ self.embedding.weight.T / x.shape[-1] ** 0.5
