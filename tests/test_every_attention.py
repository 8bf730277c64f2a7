"""Laws of every attention of the library, in every type: later words, company and padding change nothing."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from transformer_lib.models.attention import attention, attention_weights
from transformer_lib.models.bahdanau import AdditiveScore, AlignedMemory, Attention
from transformer_lib.models.gpt import CausalAttention
from transformer_lib.models.hard_attention import HardAttention
from transformer_lib.models.latent_attention import LatentAttention, PlainAttention
from transformer_lib.models.linear_attention import RULES, GatedDeltaNet, LinearAttention
from transformer_lib.models.llama import LlamaConfig, RotaryAttention
from transformer_lib.models.luong import DotScore, GeneralScore, LocalAttention, LocationScore
from transformer_lib.models.multi_head import KVCache, MultiHeadAttention
from transformer_lib.models.sparse_attention import IndexedAttention, Indexer

D, T = 16, 13
TYPES = {torch.float64: 1e-9, torch.float32: 3e-5, torch.bfloat16: 0.06, torch.float16: 0.01}
Call = Callable[[Tensor, Tensor], Tensor]  # from x (B, T, D), and a mask (B, T) that is False at padding


class Formula(nn.Module):
    """Keys, queries and values are the vectors themselves."""

    def __init__(self, fused: bool) -> None:
        super().__init__()
        self.fused, self.scale = fused, nn.Parameter(torch.ones(D))

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        x, mask = x * self.scale, mask[:, None]
        if self.fused:
            return attention(x[:, None], x[:, None], x[:, None], mask[:, None], causal=True)[:, 0]
        return attention_weights(x, x, mask, causal=True) @ x


class Multi(nn.Module):
    """Multi-head attention, called in three ways."""

    def __init__(self, layer: MultiHeadAttention) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        four = mask[:, None, None]
        if isinstance(self.layer, CausalAttention | RotaryAttention):
            return self.layer(x, torch.arange(x.shape[1]), mask=four)
        return self.layer(x, mask=four, causal=True)


class Recurrent(nn.Module):
    """Linear attention without its state."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        return self.layer(x, mask=mask)[0]


def rotary(**options: object) -> Multi:
    return Multi(RotaryAttention(LlamaConfig(9, D, 4, 1, n_kv_heads=2, **options)))


MAKE: dict[str, Callable[[], nn.Module]] = {
    "attention_weights": lambda: Formula(fused=False),
    "attention": lambda: Formula(fused=True),
    "multi-head": lambda: Multi(MultiHeadAttention(D, 4)),
    "multi-head, shared keys": lambda: Multi(MultiHeadAttention(D, 4, n_kv_heads=2, d_key=3, d_value=5, bias=False)),
    "GPT": lambda: Multi(CausalAttention(D, 4)),
    "Llama": rotary,
    "Qwen3": lambda: rotary(qk_norm=True, d_head=6),
    "Mistral": lambda: rotary(window=3),
    "indexed": lambda: IndexedAttention(D, 2, Indexer(D, 2, 4, d_rotary=2), 3),
    "indexed, one": lambda: IndexedAttention(D, 2, Indexer(D, 4, 8), 1),
    "indexed, all": lambda: IndexedAttention(D, 2, Indexer(D)),
    **{f"linear, {rule}": (lambda rule=rule: Recurrent(LinearAttention(D, 2, rule=rule))) for rule in RULES},
    "gated delta net": lambda: Recurrent(GatedDeltaNet(D, 4, 2, 3, 5)),
}


def made(name: str, dtype: torch.dtype) -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return MAKE[name]().to(dtype).eval()


def vectors(batch: int, length: int, dtype: torch.dtype, seed: int = 1) -> Tensor:
    return torch.randn(batch, length, D, generator=torch.Generator().manual_seed(seed)).to(dtype)


def true(x: Tensor) -> Tensor:
    return torch.ones(x.shape[:2], dtype=torch.bool)


def near(one: Tensor, other: Tensor, tolerance: float) -> None:
    assert one.isfinite().all()
    assert (one - other).abs().max().item() <= tolerance * max(1.0, other.abs().max().item())


every = pytest.mark.parametrize("name", MAKE)
every_type = pytest.mark.parametrize(("dtype", "tolerance"), TYPES.items(), ids=map(str, TYPES))


@every
@every_type
@torch.no_grad()
def test_later_words_change_nothing_and_a_prefix_is_read_as_in_the_whole(name, dtype, tolerance):
    layer, x = made(name, dtype), vectors(2, T, dtype)
    x[:, 6:8] = x[:, 2:4]  # the same words again
    whole = layer(x, true(x))
    for length in (1, 2, 5, 12):
        near(layer(x[:, :length], true(x[:, :length])), whole[:, :length], tolerance)
        other = torch.cat([x[:, :length], 3 * vectors(2, T - length, dtype, seed=9)], 1)
        near(layer(other, true(x))[:, :length], whole[:, :length], tolerance)


@every
@every_type
@torch.no_grad()
def test_company_and_its_order_change_nothing(name, dtype, tolerance):
    layer, x = made(name, dtype), vectors(4, T, dtype)
    order, together = torch.tensor([2, 0, 3, 1]), layer(x, true(x))
    near(layer(x[order], true(x)), together[order], tolerance)
    near(layer(x[1:2], true(x[:1])), together[1:2], tolerance)


@every
@every_type
@torch.no_grad()
@pytest.mark.parametrize(("front", "behind"), [(0, 5), (4, 2)])
def test_padding_changes_nothing(name, dtype, tolerance, front, behind):
    layer, x = made(name, dtype), vectors(2, T, dtype)
    rows = torch.cat([vectors(2, front, dtype, seed=5), x, vectors(2, behind, dtype, seed=6)], 1)
    mask = torch.tensor([[0] * front + [1] * T + [0] * behind]).bool().expand(2, -1).clone()
    near(layer(rows, mask)[:, front : front + T], layer(x, true(x)), tolerance)
    mask[0] = True  # beside a row without padding
    near(layer(rows, mask)[1:, front : front + T], layer(x, true(x))[1:], tolerance)


@every
@every_type
def test_gradients_are_finite_and_none_comes_from_later_or_hidden_words(name, dtype, tolerance):
    layer, x = made(name, dtype), vectors(2, T, dtype).requires_grad_()
    mask = true(x)
    mask[:, -2:], mask[1, :2] = False, False
    y = layer(x, mask)
    weights = [weight for weight in layer.parameters() if weight.requires_grad]
    gradients = torch.autograd.grad(y[:, 5].float().sin().sum(), [x, *weights], allow_unused=True)
    assert all(one is None or one.isfinite().all() for one in gradients)
    assert not gradients[0][:, 6:].any() and not gradients[0][1, :2].any() and gradients[0].any()
    everything = torch.autograd.grad(layer(10 * x, mask & False).float().sum(), [x, *weights], allow_unused=True)
    assert all(one is None or one.isfinite().all() for one in everything)


def confirm_gradients(layer: nn.Module, inputs: list[Tensor], mask: Tensor) -> None:
    """A small step of all inputs and weights in a random direction changes the outputs as their gradients say."""
    weights = [weight for weight in layer.parameters() if weight.requires_grad]
    moved = [*inputs, *weights]
    factors = torch.randn_like(layer(*inputs, mask))
    gradients = torch.autograd.grad((layer(*inputs, mask) * factors).sum(), moved, allow_unused=True)
    directions, ends = [torch.randn_like(x) for x in moved], []
    with torch.no_grad():
        for step in (1e-6, -2e-6):
            for x, direction in zip(moved, directions, strict=True):
                x += step * direction
            ends.append((layer(*inputs, mask) * factors).sum().item())
    expected = sum((g * d).sum().item() for g, d in zip(gradients, directions, strict=True) if g is not None)
    assert (ends[0] - ends[1]) / 2e-6 == pytest.approx(expected, rel=1e-5, abs=1e-5)


@every
def test_gradients_are_confirmed_by_finite_differences(name):
    torch.manual_seed(3)
    mask = true(x := vectors(2, T, torch.float64).requires_grad_())
    mask[0, -2:], mask[1] = False, False
    confirm_gradients(made(name, torch.float64), [x], mask)


@every
@torch.no_grad()
def test_half_precision_is_near_double(name):
    exact = made(name, torch.float64)(vectors(2, T, torch.bfloat16).double(), true(vectors(2, T, torch.float32)))
    for dtype, tolerance in ((torch.float32, 1e-4), (torch.bfloat16, 0.1), (torch.float16, 0.02)):
        layer, x = made(name, dtype), vectors(2, T, torch.bfloat16).to(dtype)
        if name.startswith("indexed, one") and dtype.itemsize == 2:
            continue  # a single position is read, and rounding may choose another
        apart = (layer(x, true(x)).double() - exact).abs().amax(-1) / exact.abs().max()
        share = 0.9 if name == "indexed" else 1.0  # of the positions: a few choices are close
        assert (apart < tolerance).double().mean() >= share


@torch.no_grad()
def test_with_a_cache_and_word_by_word_it_is_the_same():
    for name in ("multi-head", "multi-head, shared keys", "GPT", "Llama", "Qwen3", "Mistral"):
        for dtype, tolerance in TYPES.items():
            layer, x = made(name, dtype), vectors(2, T, dtype)
            whole = layer(x, true(x))
            for cuts in ([1] * T, [5, 1, 7]):
                cache, parts, first = KVCache(), [], 0
                for part in x.split(cuts, 1):
                    where = torch.arange(first, first + part.shape[1])
                    positions = () if name.startswith("multi") else (where,)
                    parts.append(layer.layer(part, *positions, cache=cache))
                    first += part.shape[1]
                near(torch.cat(parts, 1), whole, tolerance)


@every
@torch.no_grad()
def test_an_empty_text_and_an_empty_batch_stay_empty(name):
    layer = made(name, torch.float32)
    for batch, length in ((2, 0), (0, 4)):
        x = vectors(batch, length, torch.float32)
        assert layer(x, true(x)).shape == (batch, length, D)


# ---------------------------------------------------------------- attention to a source, one query for each target word


class Cross(nn.Module):
    """Attention of a recurrent decoder; the queries are called with what is attended to, and its mask."""

    def __init__(self, attention: nn.Module) -> None:
        super().__init__()
        self.attention = attention

    def forward(self, queries: Tensor, source: Tensor, mask: Tensor) -> Tensor:
        memory = AlignedMemory(source, mask, self.attention.score.prepare(source))
        return self.attention(queries, memory, torch.arange(queries.shape[1]))[0]


class Latent(nn.Module):
    """What the attention of an If-Then model reads; its queries are its own, so the given ones only say how many."""

    def __init__(self, attention: nn.Module) -> None:
        super().__init__()
        self.attention = attention

    def forward(self, queries: Tensor, source: Tensor, mask: Tensor) -> Tensor:
        read = self.attention(source, mask).weights @ source
        return read[:, : queries.shape[1]]


class Multiple(nn.Module):
    """Multi-head attention, and PyTorch's kernel by itself, with other keys than queries."""

    def __init__(self, layer: MultiHeadAttention) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, queries: Tensor, source: Tensor, mask: Tensor) -> Tensor:
        return self.layer(queries, source, mask=mask[:, None, None])


CROSS: dict[str, Callable[[], nn.Module]] = {
    "Bahdanau": lambda: Cross(Attention(AdditiveScore(D, D, 6))),
    "Luong, dot": lambda: Cross(Attention(DotScore())),
    "Luong, general": lambda: Cross(Attention(GeneralScore(D, D))),
    "Luong, location": lambda: Cross(Attention(LocationScore(D, 40))),
    "Luong, local-m": lambda: Cross(LocalAttention(DotScore(), 2)),
    "Luong, local-p": lambda: Cross(LocalAttention(GeneralScore(D, D), 3, D)),
    "hard": lambda: Cross(HardAttention(GeneralScore(D, D))),
    "plain": lambda: Latent(PlainAttention(D, T)),
    "latent": lambda: Latent(LatentAttention(D, T, 40)),
    "multi-head": lambda: Multiple(MultiHeadAttention(D, 4)),
}
BY_PLACE = {"Luong, location", "Luong, local-m", "Luong, local-p", "latent"}  # where a word stands, counted from 1
S = 9
every_cross = pytest.mark.parametrize("name", CROSS)


def made_cross(name: str, dtype: torch.dtype) -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return CROSS[name]().to(dtype).eval()


def both(dtype: torch.dtype, batch: int = 2) -> tuple[Tensor, Tensor]:
    return vectors(batch, T, dtype), vectors(batch, S, dtype, seed=2)


@every_cross
@every_type
@torch.no_grad()
def test_each_query_reads_for_itself_and_each_row_its_own_source(name, dtype, tolerance):
    layer, (q, x) = made_cross(name, dtype), both(dtype, 4)
    whole = layer(q, x, true(x))
    for length in (1, 5):
        near(layer(q[:, :length], x, true(x)), whole[:, :length], tolerance)
    order = torch.tensor([2, 0, 3, 1])
    near(layer(q[order], x[order], true(x)), whole[order], tolerance)
    near(layer(q[1:2], x[1:2], true(x[:1])), whole[1:2], tolerance)
    if isinstance(layer, Cross):  # several rows of queries for each source
        near(layer(q.repeat_interleave(3, 0), x, true(x)), whole.repeat_interleave(3, 0), tolerance)


@every_type
@torch.no_grad()
@pytest.mark.parametrize(
    ("name", "front", "behind"),
    [(name, *pad) for name in CROSS for pad in ((0, 5), (4, 2)) if not pad[0] or name not in BY_PLACE],
)
def test_padding_of_a_source_changes_nothing(name, dtype, tolerance, front, behind):
    layer, (q, x) = made_cross(name, dtype), both(dtype)
    rows = torch.cat([vectors(2, front, dtype, seed=5), x, vectors(2, behind, dtype, seed=6)], 1)
    mask = torch.tensor([[0] * front + [1] * S + [0] * behind]).bool().expand(2, -1).clone()
    expected = layer(q, x, true(x))
    near(layer(q, rows, mask), expected, tolerance)
    near(layer(q, rows.where(mask[..., None], 1e4), mask), expected, tolerance)
    mask[0] = True  # beside a row without padding
    near(layer(q, rows, mask)[1:], expected[1:], tolerance)


@every_cross
@every_type
def test_no_gradient_comes_from_a_hidden_word_and_nothing_to_read_is_nothing(name, dtype, tolerance):
    layer, parts = made_cross(name, dtype), [x.requires_grad_() for x in both(dtype)]
    weights = [weight for weight in layer.parameters() if weight.requires_grad]
    mask = true(parts[1])
    mask[:, -2:] = False
    read = layer(*parts, mask)
    gradients = torch.autograd.grad(read[:, :3].float().sin().sum(), [*parts, *weights], allow_unused=True)
    assert all(one is None or one.isfinite().all() for one in gradients)
    assert not gradients[1][:, -2:].any() and gradients[1][:, :-2].any()
    nothing = layer(10 * parts[0], 10 * parts[1], mask & False)
    assert name == "multi-head" or not nothing.any()  # whose last layer has a bias
    everything = torch.autograd.grad(nothing.float().sum(), [*parts, *weights], allow_unused=True)
    assert all(one is None or one.isfinite().all() for one in everything)


@every_cross
def test_gradients_of_a_cross_attention_are_confirmed_by_finite_differences(name):
    torch.manual_seed(3)
    layer, (q, x) = made_cross(name, torch.float64), both(torch.float64)
    mask = true(x)
    mask[0, -2:], mask[1] = False, False
    confirm_gradients(layer, [q.requires_grad_(), x.requires_grad_()], mask)


@every_cross
@torch.no_grad()
def test_half_precision_of_a_cross_attention_is_near_double(name):
    q, x = both(torch.bfloat16)
    exact = made_cross(name, torch.float64)(q.double(), x.double(), true(x))
    for dtype, tolerance in ((torch.float32, 1e-4), (torch.bfloat16, 0.1), (torch.float16, 0.02)):
        apart = made_cross(name, dtype)(q.to(dtype), x.to(dtype), true(x)).double() - exact
        apart = apart.abs().amax(-1) / exact.abs().max()
        share = 0.9 if name in ("hard", "Luong, local-p") else 1.0  # a choice, and the edge of a window, may be close
        assert (apart < tolerance).double().mean() >= share


@every_cross
@torch.no_grad()
def test_a_cross_attention_without_queries_or_sentences_stays_empty(name):
    layer = made_cross(name, torch.float32)
    for batch, length in ((2, 0), (0, 4)):
        q, x = vectors(batch, length, torch.float32), vectors(batch, S, torch.float32)
        assert layer(q, x, true(x)).shape == (batch, length, D)
