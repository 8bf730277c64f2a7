"""Linear attention: one layer in three forms, equal to plain loops and to Hugging Face's, and causal."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional as F

from transformer_lib.data.recall import N_VALUES, make_recall
from transformer_lib.models.linear_attention import (
    RULES,
    GatedDeltaNet,
    LinearAttention,
    kernel_attention,
    linear_attention,
)

SEEDS = st.integers(0, 1000)


def vectors(*shape: int, seed: int = 1) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).double()


def written_and_read(seed: int, *batch: int, length: int = 9) -> tuple[Tensor, ...]:
    """Queries, keys of length 1, values, how strongly to write, how much fades, and a memory to begin with."""
    q, k, v = (vectors(*batch, length, width, seed=seed + width) for width in (3, 4, 5))
    q, k = vectors(*batch, length, 4, seed=seed + 7), F.normalize(k, dim=-1)
    beta, fade = (torch.sigmoid(vectors(*batch, length, seed=seed + n)) for n in (11, 12))
    return q, k, v, beta, fade.log(), vectors(*batch, 4, 5, seed=seed + 13)


def in_a_loop(
    q: Tensor, k: Tensor, v: Tensor, beta: Tensor, fade: Tensor, state: Tensor, delta: bool
) -> tuple[Tensor, Tensor]:
    """One list, one position at a time, as the formulas of the chapter read."""
    outputs = []
    for t in range(len(q)):
        state = fade[t].exp() * state
        known = k[t] @ state if delta else torch.zeros_like(v[t])
        state = state + beta[t] * torch.outer(k[t], v[t] - known)
        outputs.append(q[t] @ state)
    return torch.stack(outputs), state


def same(ours: Tensor, theirs: Tensor, tolerance: float = 1e-10) -> None:
    torch.testing.assert_close(ours, theirs, rtol=tolerance, atol=tolerance)


# ---------------------------------------------------------------- one layer, three forms


def test_without_options_it_is_attention_without_a_softmax():
    q, k, v, beta, fade, state = written_and_read(0)
    found, last = linear_attention(q, k, v)
    same(found, (q @ k.T).tril() @ v)
    same(last, k.T @ v)
    ones, zeros = torch.ones_like(beta), torch.zeros_like(fade)
    same(linear_attention(q, k, v, beta=ones, log_decay=zeros, state=torch.zeros_like(state))[0], found, 0)


def test_one_number_for_all_positions_counts_at_each():
    q, k, v, _, _, _ = written_and_read(1, length=9)
    one, each = ({"beta": x * 0.3, "log_decay": x * -0.5} for x in (torch.ones(1), torch.ones(9)))
    for found, right in zip(linear_attention(q, k, v, **one), linear_attention(q, k, v, **each), strict=True):
        same(found, right)


# ---------------------------------------------------------------- the edges of the formulas

DTYPES = {torch.float64: 1e-9, torch.float32: 3e-5, torch.bfloat16: 0.03, torch.float16: 0.005}
DECAYS = [0.0, -1e-3, -0.3, -5.0, -80.0, -1e4, -1e6, -1e8, -1e30, -math.inf]  # from nothing to a border between texts
every_type = pytest.mark.parametrize(("dtype", "tolerance"), DTYPES.items(), ids=map(str, DTYPES))


def close(ours: Tensor, exact: Tensor, tolerance: float) -> None:
    largest = max(1.0, float(exact.abs().max())) if exact.numel() else 1.0
    assert ours.isfinite().all() and (ours.double() - exact).abs().max().item() <= tolerance * largest


@every_type
@settings(max_examples=25)
@given(data=st.data(), delta=st.booleans(), chunk=st.integers(1, 10), seed=SEEDS)
def test_chunks_equal_the_loop_in_double_precision_after_any_decay(dtype, tolerance, data, delta, chunk, seed):
    q, k, v, beta, _, state = (x.to(dtype) for x in written_and_read(seed))
    fade = torch.tensor(data.draw(st.lists(st.sampled_from(DECAYS), min_size=9, max_size=9)), dtype=dtype)
    parts = [x.requires_grad_() for x in (q, k, v, beta, fade, state)]
    options = {"beta": beta, "log_decay": fade, "state": state, "delta": delta, "chunk": chunk}
    found, exact = linear_attention(q, k, v, **options), in_a_loop(*(x.double() for x in parts), delta)
    assert found[0].dtype == dtype and found[1].dtype == torch.promote_types(dtype, torch.float32)
    for one, two in zip(found, exact, strict=True):
        close(one.detach(), two.detach(), tolerance)
    gradients = [torch.autograd.grad(y.double().sin().sum() + W.double().sin().sum(), parts) for y, W in (found, exact)]
    for name, one, two in zip(["q", "k", "v", "beta", "log_decay", "state"], *gradients, strict=True):
        close(one, two.double(), 3 * tolerance)
        assert one.isfinite().all(), name


def by_kernel_in_a_loop(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """One query at a time, with logarithms of the features, which cannot underflow."""
    phi = [torch.where(x < 0, x, x.clamp(min=0).log1p()) for x in (q, k)]
    logits = (phi[0][:, None] + phi[1][None]).logsumexp(-1)
    future = torch.ones(len(q), len(q), dtype=torch.bool).triu(1)
    return logits.masked_fill(future, -math.inf).softmax(-1) @ v


@every_type
@pytest.mark.parametrize("scale", [1, 6.25, 8.5, 18, 38, 69, 1000])
def test_features_that_underflow_still_weigh_the_values(dtype, tolerance, scale):
    low = -scale * torch.ones(1, 1, dtype=dtype)
    zero, one = torch.zeros(1, 1, dtype=dtype), torch.ones(1, 1, dtype=dtype)
    for q, k in ((low, zero), (low, -low), (zero, low), (low, low)):
        found, _ = kernel_attention(q, k, one)
        seen = scale < 70 or k[0] >= 0  # below 1e-30, a key is as good as none
        assert found.item() == pytest.approx(1.0 if seen else 0.0, rel=tolerance, abs=1e-20)
    for seed in range(5):
        q, k, v = (vectors(9, 3, seed=seed + n) for n in (1, 2, 3))
        q, k, v = (x.to(dtype).requires_grad_() for x in (-scale + q, -min(scale, 60) + k, v))
        for chunk in (1, 4, 64):
            found, _ = kernel_attention(q, k, v, chunk=chunk)
            exact = by_kernel_in_a_loop(q.double(), k.double(), v.double())
            close(found.detach(), exact.detach(), tolerance)
            ours, theirs = (torch.autograd.grad(y.double().sin().sum(), (q, k, v)) for y in (found, exact))
            for one_gradient, other in zip(ours, theirs, strict=True):
                close(one_gradient, other.double(), 3 * tolerance)


@every_type
@pytest.mark.parametrize("low", [-100.0, -1e4])
def test_where_no_key_can_be_seen_outputs_are_zero_and_gradients_finite(dtype, tolerance, low):
    q, k, v = (vectors(5, 2, seed=n).to(dtype) for n in (1, 2, 3))
    k = (0 * k + low).requires_grad_()
    found, state = kernel_attention(q.requires_grad_(), k, v)
    if low > -700 and dtype is torch.float64:
        close(found.detach(), by_kernel_in_a_loop(q, k, v).detach(), tolerance)
    else:
        assert found.double().abs().max() < 1e-20 and state.isfinite().all()
    assert all(gradient.isfinite().all() for gradient in torch.autograd.grad(found.double().sum(), (q, k)))


def test_inputs_of_any_size_are_finite_in_half_precision():
    for name in (*RULES, "net"):
        for dtype in (torch.bfloat16, torch.float16):
            made = layer(name).to(dtype)
            for x in (10 * vectors(2, 400, 8), torch.zeros(2, 400, 8), 1000 * vectors(2, 70, 8)):
                x = x.to(dtype).requires_grad_()
                found, _ = made(x)
                (gradient,) = torch.autograd.grad(found.float().mean(), x)
                assert found.dtype == dtype and found.isfinite().all(), (name, dtype)
                if dtype is torch.bfloat16 or x.abs().max() < 100:  # float16 ends at 65,504, for gradients too
                    assert gradient.isfinite().all(), (name, dtype)


def test_what_stands_at_hidden_positions_has_no_influence():
    q, k, v, beta, fade, state = written_and_read(4)
    mask = torch.tensor([0, 1, 1, 0, 1, 0, 0, 1, 0]).bool()
    seen = [x[mask] for x in (q, k, v, beta, fade)]
    q, k, v, beta, fade = (x.masked_fill(~mask.view(-1, *[1] * (x.dim() - 1)), math.nan) for x in (q, k, v, beta, fade))
    options = {"delta": True, "state": state, "chunk": 4}
    found, last = linear_attention(q, k, v, beta=beta, log_decay=fade, mask=mask, **options)
    expected, end = linear_attention(*seen[:3], beta=seen[3], log_decay=seen[4], **options)
    same(found[mask], expected)
    same(last, end)


def test_autocast_computes_as_without():
    q, k, v, beta, fade, _ = (one.float() for one in written_and_read(3))
    alone = linear_attention(q, k, v, beta=beta, log_decay=fade, delta=True)
    with torch.autocast("cpu", torch.bfloat16):
        inside = linear_attention(q, k, v, beta=beta, log_decay=fade, delta=True)
    for one, other in zip(alone, inside, strict=True):
        assert torch.equal(one, other)


# ---------------------------------------------------------------- the layers


def layer(name: str) -> torch.nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        made = GatedDeltaNet(8, 4, 2, 3, 5) if name == "net" else LinearAttention(8, 2, rule=name, d_key=3, d_value=5)
        return made.double()


every_layer = pytest.mark.parametrize("name", [*RULES, "net"])


@every_layer
@torch.no_grad()
def test_word_by_word_and_in_parts_gives_the_same(name):
    made, x = layer(name), vectors(3, 7, 8)
    whole, end = made(x)
    for cuts in ([1] * 7, [3, 4], [2, 1, 4]):
        state, parts = None, []
        for part in x.split(cuts, dim=1):
            found, state = made(part, state)
            parts.append(found)
        same(torch.cat(parts, dim=1), whole)
    sizes = [tuple(t.shape) for t in ((end,) if isinstance(end, Tensor) else (end.recent, end.memory))]
    longer = made(vectors(3, 50, 8))[1]
    kept = (longer,) if isinstance(longer, Tensor) else (longer.recent, longer.memory)
    assert sizes == [tuple(t.shape) for t in kept], "the state does not grow"


def pieces(state) -> list[Tensor]:
    return [state] if isinstance(state, Tensor) else [state.recent, state.memory]


PADDED = {  # where words are, and what stands at the padding
    "in front": ([0] * 4 + [1] * 7, math.nan),
    "behind": ([1] * 7 + [0] * 4, math.inf),
    "both": ([0] * 2 + [1] * 7 + [0] * 70, 3.0),
    "between": ([1, 1, 0, 1, 0, 0, 1, 1, 1, 0, 1], math.nan),
    "first part only padding": ([0] * 64 + [1] * 7, 3.0),
}


@every_layer
@pytest.mark.parametrize("where", PADDED)
def test_padding_has_no_effect_wherever_it_stands(name, where):
    made, x, rest = layer(name), vectors(2, 7, 8), vectors(2, 3, 8, seed=2)
    words, value = PADDED[where]
    mask = torch.tensor([words]).bool()
    padded = torch.full((1, mask.shape[1], 8), value).double()
    padded[mask] = x[0]
    mixed = torch.ones(2, mask.shape[1], dtype=torch.bool)  # beside a row without padding
    mixed[1], other = mask, vectors(1, mask.shape[1], 8, seed=9)
    alone = made(x[:1])
    for rows, real in ((padded, mask), (torch.cat([other, padded]), mixed)):
        rows = rows.requires_grad_()
        found, state = made(rows, mask=real)
        same(found[-1:][mask], alone[0][0])
        assert not found[-1:][~mask].any()
        for one, two in zip(pieces(state), pieces(alone[1]), strict=True):
            same(one[-1:], two)
        after = made(rest[: len(rows)], state)[0]  # and later parts go on as if there were none
        same(after[-1:], made(rest[len(rows) - 1 : len(rows)], alone[1])[0])
        gradients = torch.autograd.grad(found.square().sum(), [rows, *made.parameters()], allow_unused=True)
        assert not gradients[0][-1:][~mask].any()
        assert all(one is None or one.isfinite().all() for one in gradients)


@every_layer
def test_an_empty_text_has_empty_outputs_and_leaves_the_state(name):
    made, x = layer(name), vectors(2, 5, 8)
    empty, start = made(x[:, :0])
    assert empty.shape == (2, 0, 8)
    same(made(x, start)[0], made(x)[0])
    _, state = made(x)
    for one, two in zip(pieces(made(x[:, :0], state)[1]), pieces(state), strict=True):
        same(one, two)
    assert made(x[:, :0], mask=torch.ones(2, 0).bool())[0].shape == (2, 0, 8)
    assert made(x[:0])[0].shape == (0, 5, 8)


def test_the_names_of_the_weights_are_stable():
    shapes = {name: tuple(weight.shape) for name, weight in layer("net").state_dict().items()}
    assert shapes == {
        "dt_bias": (4,), "A_log": (4,), "in_proj_qkvz.weight": (52, 8), "in_proj_ba.weight": (8, 8),
        "conv1d.weight": (32, 1, 4), "norm.weight": (5,), "out_proj.weight": (8, 20),
    }  # fmt: skip
    assert [*layer("delta").state_dict()] == ["in_proj.weight", "gates.weight", "gates.bias", "out_proj.weight"]


# ---------------------------------------------------------------- equal to Hugging Face's


def hugging_face(**changes):
    transformers = pytest.importorskip("transformers")
    sizes = {
        "vocab_size": 30, "hidden_size": 12, "num_hidden_layers": 4, "num_attention_heads": 2, "num_key_value_heads": 1,
        "head_dim": 6, "linear_num_value_heads": 4, "linear_num_key_heads": 2, "linear_key_head_dim": 6,
        "linear_value_head_dim": 5, "intermediate_size": 16, "mlp_only_layers": [0, 1, 2, 3],
    }  # fmt: skip
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = transformers.Qwen3NextForCausalLM(transformers.Qwen3NextConfig(**{**sizes, **changes})).eval()
        net = model.model.layers[0].linear_attn
        with torch.no_grad():
            for weight in net.parameters():
                weight.add_(0.1 * torch.randn_like(weight))
    return model, net


@pytest.mark.parametrize(("heads", "length"), [((4, 2), 70), ((2, 2), 1), ((3, 1), 5)])
def test_outputs_and_gradients_equal_hugging_faces(heads, length):
    _, theirs = hugging_face(linear_num_value_heads=heads[0], linear_num_key_heads=heads[1])
    ours, x = GatedDeltaNet(12, *heads, 6, 5), vectors(2, length, 12).float()
    ours.load_state_dict(theirs.state_dict())
    found = []
    for net in (theirs, ours):
        inputs = x.clone().requires_grad_()
        outputs = net(inputs) if net is theirs else net(inputs)[0]
        named = dict(net.named_parameters())
        gradients = torch.autograd.grad(outputs.square().sum(), [inputs, *named.values()])
        found.append({"outputs": outputs, **dict(zip(["inputs", *named], gradients, strict=True))})
    assert found[0].keys() == found[1].keys()
    for name, expected in found[0].items():
        largest = max(1.0, expected.abs().max().item())
        assert (found[1][name] - expected).abs().max() < 1e-5 * largest, name


# ---------------------------------------------------------------- lists to recall


@given(rows=st.integers(1, 4), n_keys=st.integers(1, 6), times=st.integers(1, 3), seed=SEEDS)
def test_the_answer_is_the_last_value(rows, n_keys, times, seed):
    batch = make_recall(rows, n_keys, times=times, generator=torch.Generator().manual_seed(seed))
    written = n_keys * times
    assert batch.keys.shape == batch.values.shape == (rows, written + n_keys)
    assert (batch.values[:, written:] == N_VALUES).all() and int(batch.values[:, :written].max()) < N_VALUES
    for row in range(rows):
        pairs = list(zip(batch.keys[row].tolist(), batch.values[row].tolist(), strict=True))
        last = dict(pairs[:written])
        assert [last[key] for key, _ in pairs[written:]] == batch.answers[row].tolist()
        assert sorted(key for key, _ in pairs[:written]) == sorted([*last] * times) and len(last) == n_keys


@pytest.mark.parametrize("sizes", [(0, 3, 1), (2, 0, 1), (2, -1, 1), (2, 3, 0), (2, 65, 1)])
def test_lists_that_cannot_be_are_refused(sizes):
    with pytest.raises(ValueError, match=r"must be positive|only 64 keys"):
        make_recall(sizes[0], sizes[1], times=sizes[2])


def test_unknown_rules_and_heads_that_cannot_share_keys_are_refused():
    with pytest.raises(ValueError, match="rule='mean' is none of kernel, sum"):
        LinearAttention(8, rule="mean")
    with pytest.raises(ValueError, match="d_model=14 is not divisible by n_heads=3"):
        LinearAttention(14, 3, d_key=4)
    with pytest.raises(ValueError, match="n_heads=3 is not divisible by n_key_heads=2"):
        GatedDeltaNet(8, 3, 2, 4, 4)


@pytest.mark.parametrize("rule", RULES)
def test_a_new_layer_writes_with_half_its_strength_and_forgets_two_percent_a_step(rule):
    layer = LinearAttention(8, 2, rule=rule)
    write, keep = layer.gates(torch.zeros(8)).sigmoid().chunk(2)
    assert write.tolist() == [0.5, 0.5]
    torch.testing.assert_close(1 - keep, torch.full((2,), 0.02), atol=0.005, rtol=0)
