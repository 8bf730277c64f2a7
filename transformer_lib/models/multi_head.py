"""Multi-head attention, its KV cache, and a recorder of its weights.

``transformer_lib.plain.multi_head`` is the same layer as its chapter builds it.
"""

__all__ = ["Mask", "MultiHeadAttention", "RECORDED", "record_attention", "KVCache"]

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from threading import local
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn import functional as F

from transformer_lib.models.attention import attention, attention_weights

Mask = Bool[Tensor, "#B #H #T #S"] | None
PYTORCH = (
    "MultiHeadAttention makes queries, keys and values itself: write layer(x) for PyTorch's layer(x, x, x), and "
    "layer(x, memory) for layer(x, memory, memory); it returns no weights, and its masks are True where a query may "
    "attend. With queries, keys and values of your own, call attention(q, k, v)"
)


class MultiHeadAttention(nn.Module):
    """Several attentions side by side, as in ``torch.nn.MultiheadAttention``.

    Args:
        d_model: width of the vectors that go in and come out.
        n_heads: how many attentions; a divisor of d_model, unless both widths below are given.
        n_kv_heads: heads of keys and values, shared by neighbouring heads of queries; n_heads unless given.
        d_key: width of a head's queries and keys; d_model / n_heads unless given.
        d_value: width of a head's values; d_model / n_heads unless given.
        dropout: of the attention weights, in training.
        bias: whether the projections add a vector.

    Source: Vaswani et al. (2017), section 3.2.2; for n_kv_heads, Ainslie et al.
    (2023).
    """

    def __init__(
        self,
        d_model: int,
        n_heads: int,
        *,
        n_kv_heads: int | None = None,
        d_key: int | None = None,
        d_value: int | None = None,
        dropout: float = 0.0,
        bias: bool = True,
    ) -> None:
        super().__init__()
        if d_model % n_heads and None in (d_key, d_value):
            raise ValueError(f"{d_model=} is not divisible by {n_heads=}")
        d_key, d_value = d_key or d_model // n_heads, d_value or d_model // n_heads
        groups = n_kv_heads or n_heads  # heads of keys and values
        self.n_heads, self.dropout = n_heads, dropout
        self.widths = [d_key, d_key, d_value]  # of one head's q, k, v
        self.sizes = [n_heads * d_key, groups * d_key, groups * d_value]
        in_proj = nn.Linear(d_model, sum(self.sizes), bias=bias)
        self.in_proj_weight, self.in_proj_bias = in_proj.weight, in_proj.bias
        self.out_proj = nn.Linear(n_heads * d_value, d_model, bias=bias)
        nn.init.xavier_uniform_(self.in_proj_weight)
        for vector in (self.in_proj_bias, self.out_proj.bias) if bias else ():
            nn.init.zeros_(vector)

    def project(self, x: Float[Tensor, "N T D"], first: int = 0, last: int = 3) -> list[Tensor]:
        """Queries (0), keys (1), values (2): from first up to but not including last."""
        rows = slice(sum(self.sizes[:first]), sum(self.sizes[:last]))
        bias = None if self.in_proj_bias is None else self.in_proj_bias[rows]
        projected = F.linear(x, self.in_proj_weight[rows], bias)
        parts = [*projected.split(self.sizes[first:last], -1)]
        for i, width in enumerate(self.widths[first:last]):
            parts[i] = parts[i].unflatten(2, (-1, width)).transpose(1, 2)
        return parts

    def forward(
        self,
        x: Float[Tensor, "N T D"],
        memory: Float[Tensor, "B S D"] | list[Tensor] | None = None,
        *values: Tensor,
        mask: Mask = None,
        causal: bool = False,
        cache: "KVCache | None" = None,
    ) -> Float[Tensor, "N T D"]:
        """Attend to x, or to a memory whose rows N / B neighbouring rows of x share.

        Args:
            x: the vectors that ask.
            memory: vectors, or their keys and values, ``project(vectors, 1)``.
            mask: True where a query may attend; a mask for padding is (B, 1, 1, S).
            causal: no position attends to a later one.
            cache: keys and values of the positions before x; implies causal.

        Raises:
            ValueError: a mask without four axes; a memory with a cache or causal.
            TypeError: queries, keys and values, as PyTorch's layer takes them.
        """
        if values:  # and would return two results
            raise TypeError(PYTORCH)
        if mask is not None and mask.dim() != 4:  # (B, S) could pass as (T, S)
            raise ValueError(f"mask {tuple(mask.shape)}, expected (B, H, T, S)")
        if memory is not None and (causal or cache is not None):
            raise ValueError("causal and cache can't be combined with a memory")
        if memory is None:
            (q, k, v), beams = self.project(x), 1
            if cache is not None:
                (k, v), causal = cache.append(k, v), True
        else:
            k, v = self.project(memory, 1) if isinstance(memory, Tensor) else memory
            beams = x.shape[0] // k.shape[0] if k.shape[0] else 1
            shared = x.reshape(k.shape[0], beams * x.shape[1], x.shape[2])  # one row for each
            (q,) = self.project(shared, 0, 1)
        context = self.attend(q, k, v, beams, mask=mask, causal=causal)
        return self.out_proj(context.transpose(1, 2).flatten(2)).view_as(x)

    def attend(self, q: Tensor, k: Tensor, v: Tensor, beams: int = 1, **options: Any) -> Tensor:
        """``attention`` with this layer's dropout, seen by ``record_attention``.

        The queries of a sentence's ``beams`` are consecutive.
        """
        maps = getattr(RECORDED, "maps", {})
        if self in maps:
            weights = attention_weights(q, k, **options).unflatten(2, (beams, -1))
            maps[self].append(weights.transpose(1, 2).flatten(0, 1))  # (N, H, T, S)
        return attention(q, k, v, dropout=self.dropout * self.training, **options)


RECORDED = local()  # of each thread: the lists that layers add their weights to


@contextmanager
def record_attention(model: nn.Module) -> Iterator[dict[str, list[Tensor]]]:
    """Record the weights (N, H, T, S) of the calls in the ``with`` block, by layer.

    Only calls from the current thread are recorded. What a block inside this one records, this one does not.
    """
    parts = model.named_modules()
    layers = {n: part for n, part in parts if isinstance(part, MultiHeadAttention)}
    if not layers:
        raise ValueError(f"{type(model).__name__} has no MultiHeadAttention in it")
    before = getattr(RECORDED, "maps", {})
    maps: dict[nn.Module, list[Tensor]] = {p: [] for p in layers.values()}
    RECORDED.maps = before | maps
    try:
        yield {name: maps[layer] for name, layer in layers.items()}
    finally:
        RECORDED.maps = before


@dataclass(eq=False)
class KVCache:
    """Keys and values of the positions so far."""

    k: Float[Tensor, "N G S d_k"] | None = None
    v: Float[Tensor, "N G S d_v"] | None = None

    def __len__(self) -> int:
        return 0 if self.k is None else self.k.shape[2]

    def append(self, k: Float[Tensor, "N G T d_k"], v: Float[Tensor, "N G T d_v"]) -> list[Tensor]:
        """Append new positions, and return all keys and values so far."""
        if self.k is not None and self.v is not None:
            k, v = torch.cat([self.k, k], 2), torch.cat([self.v, v], 2)
        self.k, self.v = k, v
        return [k, v]
