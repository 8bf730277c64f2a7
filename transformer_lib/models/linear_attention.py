"""Linear attention: attention without a softmax, with decay and the delta rule, as functions and layers.

``transformer_lib.plain.linear_attention`` is the same layer word by word, as its chapter builds it.
"""

__all__ = [
    "linear_attention",
    "features",
    "kernel_attention",
    "RULES",
    "LinearAttention",
    "GatedDeltaNetState",
    "CausalConv",
    "unit",
    "GatedDeltaNet",
]

from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from transformer_lib.models.seq2seq import wide


def linear_attention(
    q: Float[Tensor, "*B T K"],
    k: Float[Tensor, "*B T K"],
    v: Float[Tensor, "*B T V"],
    *,
    beta: Float[Tensor, "*#B #T"] | None = None,
    log_decay: Float[Tensor, "*#B #T"] | None = None,
    delta: bool = False,
    mask: Bool[Tensor, "*#B T"] | None = None,
    state: Float[Tensor, "*B K V"] | None = None,
    chunk: int = 64,
) -> tuple[Float[Tensor, "*B T V"], Float[Tensor, "*B K V"]]:
    """Causal attention without a softmax, in chunks: outputs and the last state.

    A chunk of 1 is the recurrent form, and a chunk of T the parallel form. Both
    give the same result.
    Source: Katharopoulos et al. (2020), section 3.3; Yang et al. (2025),
    section 3.3.

    Args:
        beta: how strongly each position writes; None: 1.
        log_decay: logarithm of the factor by which older entries fade, down to minus
            infinity, which forgets all of them; None: 0.
        delta: write the difference between the value and the answer to the key;
            keys should have length 1.
        mask: False where there is no word: nothing fades there, nothing is written,
            and the output is 0.
    """
    dtype, q, k, v = q.dtype, wide(q), wide(k), wide(v)
    beta = k.new_ones(k.shape[:-1]) if beta is None else beta.to(k.dtype)
    decay = k.new_zeros(k.shape[-2]) if log_decay is None else log_decay.to(k.dtype)
    # one number for all positions counts at each of them
    beta, decay = (x.expand(torch.broadcast_shapes(x.shape, k.shape[-2:-1])) for x in (beta, decay))
    inputs = [q, k, v, beta[..., None], decay[..., None]]
    if mask is not None:
        inputs = [torch.where(mask[..., None], x, 0) for x in inputs]
    start = k.new_zeros(*k.shape[:-2], k.shape[-1], v.shape[-1])
    W = start if state is None else state.to(k.dtype)
    outputs = []
    chunks = zip(*(x.split(chunk, -2) for x in inputs), strict=True)
    half = torch.is_autocast_enabled(q.device.type)  # which would lose too much here
    with torch.autocast(q.device.type, enabled=False) if half else nullcontext():
        for Q, K, V, b, g in chunks if k.shape[-2] else ():  # C rows each
            left = g.cumsum(-2).exp()  # (*B, C, 1): what is left since the chunk began
            pairs = g.expand(*g.shape[:-1], g.shape[-2])  # (*B, C, C)
            since = pairs.tril(-1).cumsum(-2)  # log decay since s, at t
            fade = since.exp().tril()  # (*B, C, C)
            U = b * V  # (*B, C, V): what each word writes
            # Of the delta rule, each difference depends on those before it in the chunk, and W is the state before it:
            # u_t = b_t (v_t - k_t W - sum over s < t of (k_t . k_s) u_s), so (I + tril(b K K', -1)) U = b (V - K W).
            if delta:
                U = U - b * left * (K @ W)
                A = b * (K @ K.mT) * fade
                U = torch.linalg.solve_triangular(A, U, upper=False, unitriangular=True)
            outputs.append(left * (Q @ W) + (Q @ K.mT * fade) @ U)
            # for the last word, `left` and `fade` say what is left after the chunk
            W = left[..., -1:, :] * W + (K.mT * fade[..., -1:, :]) @ U
    return (torch.cat(outputs, -2) if outputs else v).to(dtype), W


def features(x: Float[Tensor, "*B K"]) -> Float[Tensor, "*B K"]:
    """elu(x) + 1, written so that tiny features don't round to 0."""
    return x.clamp(max=0).exp() + x.relu()


def kernel_attention(
    q: Float[Tensor, "*B T K"],
    k: Float[Tensor, "*B T K"],
    v: Float[Tensor, "*B T V"],
    *,
    mask: Bool[Tensor, "*#B T"] | None = None,
    state: Float[Tensor, "*B K W"] | None = None,
    chunk: int = 64,
) -> tuple[Float[Tensor, "*B T V"], Float[Tensor, "*B K W"]]:
    """Causal attention with the features elu(x) + 1, and weights that sum to 1.

    The last column of the state adds up the features of the keys. Where all of them
    are as good as 0 (below 2e-31 in single precision), the output is 0.
    Source: Katharopoulos et al. (2020), eqs. 7 and 9.
    """
    dtype, q, k, v = q.dtype, wide(q), wide(k), F.pad(wide(v), (0, 1), value=1.0)
    # the features of a query may have any common factor: let the largest be 1 or more
    q = features(q - q.detach().amax(-1, keepdim=True).clamp(max=0))
    sums, state = linear_attention(q, features(k), v, mask=mask, state=state, chunk=chunk)
    total = sums[..., -1:]
    total = total.where(total > 2**24 * torch.finfo(total.dtype).tiny, 1)
    return (sums[..., :-1] / total).to(dtype), state


RULES = ("kernel", "sum", "decay", "delta", "gated")


class LinearAttention(nn.Module):
    """Causal linear attention as a layer, called like a GRU.

    The rule says how a head writes: with positive features and a normaliser
    (kernel), by sums, with decay, by the delta rule, or by both (gated).

    Args:
        d_model: width of the vectors that go in and come out.
        n_heads: how many memories, each with its own keys and values.
        rule: how a head writes: kernel, sum, decay, delta or gated.
        d_key: width of a head's queries and keys; d_model / n_heads unless given.
        d_value: width of a head's values; d_model / n_heads unless given.

    Source: Schlag et al. (2021), section 4.
    """

    def __init__(
        self,
        d_model: int,
        n_heads: int = 1,
        *,
        rule: str = "gated",
        d_key: int | None = None,
        d_value: int | None = None,
    ) -> None:
        super().__init__()
        if rule not in RULES:
            raise ValueError(f"{rule=} is none of {', '.join(RULES)}")
        if d_model % n_heads and None in (d_key, d_value):
            raise ValueError(f"{d_model=} is not divisible by {n_heads=}")
        d_key, d_value = d_key or d_model // n_heads, d_value or d_model // n_heads
        self.n_heads, self.rule = n_heads, rule
        self.sizes = [n_heads * d_key, n_heads * d_key, n_heads * d_value]
        self.in_proj = nn.Linear(d_model, sum(self.sizes), bias=False)
        self.gates = nn.Linear(d_model, 2 * n_heads)  # to write and to keep
        self.out_proj = nn.Linear(n_heads * d_value, d_model, bias=False)
        # at first, a write strength of about 0.5, and about 2 % decays
        bias = torch.tensor([0.0, 4.0]).repeat_interleave(n_heads)
        self.gates.bias.data.copy_(bias)

    def forward(
        self,
        x: Float[Tensor, "B T D"],
        state: Float[Tensor, "B H K W"] | None = None,
        *,
        mask: Bool[Tensor, "B T"] | None = None,
    ) -> tuple[Float[Tensor, "B T D"], Float[Tensor, "B H K W"]]:
        """Write and read at every position, from an earlier or an empty state.

        Args:
            mask: False at padding, which is skipped, wherever it stands.
        """
        if mask is not None:
            x, mask = x.masked_fill(~mask[..., None], 0), mask[:, None]
        parts = self.in_proj(x).split(self.sizes, -1)
        q, k, v = (
            y.unflatten(2, (self.n_heads, -1)).transpose(1, 2) for y in parts
        )  # (B, H, T, K) twice, and (B, H, T, V)
        if self.rule == "kernel":
            y, state = kernel_attention(q, k, v, mask=mask, state=state)
            return self.out_proj(y.transpose(1, 2).flatten(2)), state
        q, k = F.normalize(wide(q), dim=-1), F.normalize(wide(k), dim=-1)
        write, keep = wide(self.gates(x)).mT.chunk(2, 1)  # (B, H, T)
        decay = F.logsigmoid(keep) if self.rule in ("decay", "gated") else None
        options: dict[str, Any] = {"beta": write.sigmoid(), "log_decay": decay, "state": state}
        delta = self.rule in ("delta", "gated")
        y, state = linear_attention(q, k, v, delta=delta, mask=mask, **options)
        return self.out_proj(y.to(v.dtype).transpose(1, 2).flatten(2)), state


@dataclass
class GatedDeltaNetState:
    """The state of a GatedDeltaNet, of the same size for a text of any length."""

    recent: Float[Tensor, "B R C"]  # last inputs of the convolution
    memory: Float[Tensor, "B H K V"]


class CausalConv(nn.Conv1d):
    """Convolution of each channel over the last few positions, then Swish."""

    def __init__(self, channels: int, window: int) -> None:
        super().__init__(channels, channels, window, groups=channels, bias=False)

    def forward(  # type: ignore[override]
        self,
        x: Float[Tensor, "B T C"],
        recent: Float[Tensor, "B R C"] | None,
        lengths: Int[Tensor, " B"] | None = None,
    ) -> tuple[Float[Tensor, "B T C"], Float[Tensor, "B R C"]]:
        """Outputs, and the last inputs before padding, which the next call needs."""
        T, reach = x.shape[1], self.kernel_size[0] - 1
        if recent is None:
            recent = x.new_zeros(len(x), reach, x.shape[2])
        x = torch.cat([recent, x], 1)  # (B, R + T, C)
        y = F.silu(super().forward(x.mT)).mT if T else x[:, :0]
        if lengths is None:
            return y, x[:, T:]
        last = lengths[:, None] + torch.arange(reach, device=x.device)
        return y, x.take_along_dim(last[..., None], 1)


def unit(x: Float[Tensor, "*B K"]) -> Float[Tensor, "*B K"]:
    """Vectors of length 1; a little is added under the root, as in Qwen3-Next."""
    y = wide(x)
    return (y * (y.square().sum(-1, keepdim=True) + 1e-6).rsqrt()).to(x.dtype)


class GatedDeltaNet(nn.Module):
    """The gated delta rule as in Qwen3-Next, with the same parameter names.

    Args:
        d_model: width of the vectors that go in and come out.
        n_heads: heads of values, each with its own memory.
        n_key_heads: heads of queries and keys, shared by neighbouring heads of values.
        d_key: width of a head's queries and keys.
        d_value: width of a head's values.
        window: positions that the convolution sees.
        eps: what is added to the mean square in the norm.

    Source: Yang et al. (2025), section 3.4.
    """

    def __init__(
        self,
        d_model: int,
        n_heads: int,
        n_key_heads: int,
        d_key: int,
        d_value: int,
        *,
        window: int = 4,
        eps: float = 1e-6,
    ) -> None:
        super().__init__()
        if n_heads % n_key_heads:
            raise ValueError(f"{n_heads=} is not divisible by {n_key_heads=}")
        self.heads, self.groups = (n_heads, -1), (n_key_heads, -1)
        keys, values = n_key_heads * d_key, n_heads * d_value
        self.sizes = [keys, keys, values]
        self.in_proj_qkvz = nn.Linear(d_model, 2 * keys + 2 * values, bias=False)
        self.in_proj_ba = nn.Linear(d_model, 2 * n_heads, bias=False)
        self.conv1d = CausalConv(sum(self.sizes), window)
        self.dt_bias = nn.Parameter(torch.ones(n_heads))
        self.A_log = nn.Parameter(torch.empty(n_heads).uniform_(0.01, 16).log())
        self.norm = nn.RMSNorm(d_value, eps=eps)
        self.out_proj = nn.Linear(values, d_model, bias=False)

    def forward(
        self,
        x: Float[Tensor, "B T D"],
        state: GatedDeltaNetState | None = None,
        *,
        mask: Bool[Tensor, "B T"] | None = None,
    ) -> tuple[Float[Tensor, "B T D"], GatedDeltaNetState]:
        """Write and read at every position, from an earlier or an empty state.

        Args:
            mask: False at padding, which is skipped, wherever it stands.
        """
        if mask is not None:  # the words side by side, then the padding
            order = mask.int().argsort(dim=1, descending=True, stable=True)[..., None]
            x = x.masked_fill(~mask[..., None], 0).take_along_dim(order, 1)
            mask = mask.take_along_dim(order[..., 0], 1)[:, None]  # (B, 1, T)
        recent, memory = (state.recent, state.memory) if state else (None, None)
        lengths = None if mask is None else mask.sum((1, 2))
        inputs, z = self.project(x)
        mixed, recent = self.conv1d(inputs, recent, lengths)
        q, k, v = mixed.split(self.sizes, -1)
        q, k = self.share(q), self.share(k)  # (B, H, T, K)
        v = v.unflatten(2, self.heads).transpose(1, 2)  # (B, H, T, V)
        write, log_decay = self.gates(x)
        options: dict[str, Any] = {"beta": write, "log_decay": log_decay, "delta": True}
        q = q * q.shape[-1] ** -0.5
        y, memory = linear_attention(q, k, v, mask=mask, state=memory, **options)
        scale, eps = wide(self.norm.weight), self.norm.eps
        y = F.rms_norm(wide(y).transpose(1, 2), scale.shape, scale, eps)  # (B, T, H, V)
        y = self.out_proj((y * F.silu(wide(z))).to(x.dtype).flatten(2))
        y = y if mask is None else y.take_along_dim(order.argsort(1), 1)
        return y, GatedDeltaNetState(recent, memory)

    def project(self, x: Float[Tensor, "B T D"]) -> tuple[Tensor, Tensor]:
        """Queries, keys and values in a row (B, T, C), and what gates (B, T, H, V)."""
        G = self.groups[0]
        widths = [size // G for size in (*self.sizes, self.sizes[2])]
        *qkv, z = self.in_proj_qkvz(x).unflatten(2, self.groups).split(widths, -1)
        inputs = torch.cat([y.flatten(2) for y in qkv], -1)
        return inputs, z.flatten(2).unflatten(2, self.heads)

    def share(self, y: Float[Tensor, "B T GK"]) -> Float[Tensor, "B H T K"]:
        """Queries or keys of length 1; the heads of a group get the same ones."""
        y = unit(y.unflatten(2, self.groups))  # (B, T, G, K)
        copies = self.heads[0] // self.groups[0]
        return y.repeat_interleave(copies, 2).transpose(1, 2)

    def gates(self, x: Float[Tensor, "B T D"]) -> tuple[Tensor, Tensor]:
        """Write strength and log decay of each head: (B, H, T) each."""
        write, a = self.in_proj_ba(x).unflatten(2, self.groups).chunk(2, -1)
        a = F.softplus(wide(a.flatten(2)) + wide(self.dt_bias))
        log_decay = -wide(self.A_log).exp() * a
        return wide(write.flatten(2)).sigmoid().mT, log_decay.mT
