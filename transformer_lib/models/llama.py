"""Llama: a decoder with rotary positions, RMSNorm, SwiGLU and grouped-query attention.

``transformer_lib.plain.llama`` is the same model as its chapter builds it.
"""

__all__ = ["rotate", "RMSNorm", "SwiGLU", "LlamaConfig", "RotaryAttention", "Llama", "LlamaTranslator"]

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from transformer_lib.models.gpt import GPT, Block, GPTConfig, OneStack
from transformer_lib.models.multi_head import KVCache, MultiHeadAttention
from transformer_lib.settings import Positive, Probability, Size, settings


def rotate(
    x: Float[Tensor, "*B T K"],
    positions: Int[Tensor, " T"],
    *,
    base: float = 10_000.0,
    interleaved: bool = False,
) -> Float[Tensor, "*B T K"]:
    """Rotary positions (RoPE): turn each pair by an angle that grows with position.

    Pair i turns by ``base ** (-2 i / K)`` radians at each position; angles have
    single precision at least.
    Source: Su et al. (2021), section 3.2.

    Args:
        interleaved: pair column 0 with 1, as the paper does; otherwise i with
            i + K / 2, as Hugging Face does.
    """
    if x.shape[-1] % 2:  # a width of 3 would broadcast
        raise ValueError(f"width {x.shape[-1]} must be even")
    work = torch.promote_types(x.dtype, torch.float32)
    even = torch.arange(0, x.shape[-1], 2, dtype=work, device=x.device)
    angle = positions[:, None] * base ** -(even / x.shape[-1])  # (T, K / 2)
    c, s = angle.cos().to(x.dtype), angle.sin().to(x.dtype)
    if interleaved:
        a, b = x[..., 0::2], x[..., 1::2]
        return torch.stack([a * c - b * s, a * s + b * c], dim=-1).flatten(-2)
    a, b = x.chunk(2, dim=-1)
    return torch.cat([a * c - b * s, a * s + b * c], dim=-1)


class RMSNorm(nn.Module):
    """RMSNorm: division by the root mean square, then a learned gain.

    In single precision, it gives the same result as ``torch.nn.RMSNorm`` with the
    same eps. In half precision, it rounds before the gain, as Hugging Face does.

    Args:
        width: width of the vectors.
        eps: what is added to the mean square.

    Source: Zhang and Sennrich (2019), eq. 4.
    """

    def __init__(self, width: int, *, eps: float = 1e-6) -> None:
        super().__init__()
        self.eps, self.weight = eps, nn.Parameter(torch.ones(width))

    def forward(self, x: Float[Tensor, "*B D"]) -> Float[Tensor, "*B D"]:
        """Normalise each vector, in single precision at least."""
        y = x.to(torch.promote_types(x.dtype, torch.float32))
        y = y * (y.square().mean(-1, keepdim=True) + self.eps).rsqrt()
        return self.weight * y.to(x.dtype)


class SwiGLU(nn.Module):
    """Gated feed-forward layer without biases. Source: Shazeer (2020), eq. 6.

    Args:
        d_model: width of the vectors that go in and come out.
        d_ff: width between the maps.
    """

    def __init__(self, d_model: int, d_ff: int) -> None:
        super().__init__()
        self.gate = nn.Linear(d_model, d_ff, bias=False)
        self.linear1 = nn.Linear(d_model, d_ff, bias=False)
        self.linear2 = nn.Linear(d_ff, d_model, bias=False)
        for layer in (self.gate, self.linear1, self.linear2):
            nn.init.xavier_uniform_(layer.weight)

    def forward(self, x: Float[Tensor, "*B D"]) -> Float[Tensor, "*B D"]:
        """Transform each position."""
        return self.linear2(F.silu(self.gate(x)) * self.linear1(x))


@settings
class LlamaConfig(GPTConfig):
    """Sizes and choices of today's decoder; the defaults are those of Llama 3 8B.

    Source: Grattafiori et al. (2024), table 3.
    """

    vocab_size: Size = 128_256
    d_model: Size = 4096
    n_heads: Size = 32
    n_layers: Size = 32
    d_ff: Size | None = 14_336
    dropout: Probability = 0.0
    max_length: Size = 8192
    tie_embeddings: bool = False
    n_kv_heads: Size | None = 8  # of keys and values; None: as many as n_heads
    d_head: Size | None = None  # None: d_model / n_heads
    rotary_base: Positive = 500_000.0
    qk_norm: bool = False  # RMSNorm of queries and keys, as in Qwen3
    window: Size | None = None  # attend only to this many of the latest tokens

    def __post_init__(self) -> None:
        if self.head_width % 2:
            raise ValueError(f"d_head={self.head_width} must be even: RoPE rotates pairs")
        if self.n_heads % self.kv_heads:
            raise ValueError(f"n_heads={self.n_heads} is not divisible by n_kv_heads={self.kv_heads}")

    @property
    def head_width(self) -> int:
        """Width K of a head."""
        return self.d_head or self.d_model // self.n_heads

    @property
    def kv_heads(self) -> int:
        """Number of heads of keys and values."""
        return self.n_kv_heads or self.n_heads


class RotaryAttention(MultiHeadAttention):
    """Causal grouped-query attention with rotary positions, and a window if set.

    Source: Su et al. (2021); Ainslie et al. (2023); for the window, Jiang et al.
    (2023).
    """

    def __init__(self, config: LlamaConfig) -> None:
        c = config
        widths = {"d_key": c.d_head, "d_value": c.d_head}
        super().__init__(
            c.d_model,
            c.n_heads,
            n_kv_heads=c.kv_heads,
            dropout=c.attention_dropout,
            bias=False,
            **widths,
        )
        self.base, self.window = c.rotary_base, c.window
        self.q_norm, self.k_norm = (RMSNorm(c.head_width, eps=c.eps) if c.qk_norm else nn.Identity() for _ in range(2))

    def forward(  # type: ignore[override]
        self,
        x: Float[Tensor, "N T D"],
        positions: Int[Tensor, " T"],
        *,
        mask: Bool[Tensor, "#N 1 #T S"] | None = None,
        cache: KVCache | None = None,
    ) -> Float[Tensor, "N T D"]:
        """Attend to the tokens so far; the keys in the cache are already rotated."""
        q, k, v = self.project(x)
        q = rotate(self.q_norm(q), positions, base=self.base)
        k = rotate(self.k_norm(k), positions, base=self.base)
        k, v = (k, v) if cache is None else cache.append(k, v)
        if self.window is not None:
            T, S = q.shape[2], k.shape[2]
            if mask is None:
                mask = torch.ones(1, 1, 1, S, dtype=torch.bool, device=x.device)
            number = mask.any(-2, keepdim=True).cumsum(-1)  # padding isn't counted
            distance = number[..., S - T :].mT - number  # of a query from each key
            mask = mask & (distance < self.window)
        y = self.attend(q, k, v, mask=mask, causal=True)
        return self.out_proj(y.transpose(1, 2).flatten(2))


class Llama(GPT):
    """Today's decoder: GPT with rotary positions, RMSNorm, SwiGLU, grouped queries.

    It has no biases.

    Example:
        >>> sizes = {"d_model": 8, "n_heads": 2, "n_kv_heads": 1, "n_layers": 1}
        >>> model = Llama(LlamaConfig(vocab_size=20, d_ff=16, **sizes))
        >>> model(torch.tensor([[1, 7, 8, 2]])).shape
        torch.Size([1, 4, 20])

    Source: Touvron et al. (2023), section 2.2.
    """

    Norm = RMSNorm
    config: LlamaConfig

    def block(self) -> Block:
        """One layer of the stack."""
        c, D = self.config, self.config.d_model
        attention, feed_forward = RotaryAttention(c), SwiGLU(D, c.d_ff or 4 * D)
        norms = self.Norm(D, eps=c.eps), self.Norm(D, eps=c.eps)
        return Block(attention, feed_forward, norms, c.dropout)

    def add_positions(self) -> None:
        """No table: the attention rotates queries and keys instead."""

    def embed(self, tokens: Tensor, positions: Tensor) -> Float[Tensor, "N T D"]:
        """Token vectors."""
        return self.embedding(tokens)


class LlamaTranslator(OneStack):
    """Llama as a translator, built from a configuration."""

    def __init__(self, config: LlamaConfig) -> None:
        super().__init__(Llama(config))
