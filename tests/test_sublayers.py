"""The parts between two attentions: equal to PyTorch's, position by position, with dropout where the paper has it."""

import copy
import math
import re
import subprocess
import sys
from functools import partial

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from jaxtyping import TypeCheckError
from torch import nn
from torch.nn import functional as F

from transformer_lib.models.convert import torch_names
from transformer_lib.models.sublayers import (
    ACTIVATIONS,
    FeedForward,
    LayerNorm,
)
from transformer_lib.models.transformer import EncoderLayer, TransformerConfig

DEVICES = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]
TYPES = {torch.float32: 1e-5, torch.bfloat16: 5e-2, torch.float16: 5e-3}
PEERS = {"relu": nn.ReLU, "gelu": nn.GELU, "swish": nn.SiLU, "gelu_tanh": partial(nn.GELU, "tanh")}
FORMS = pytest.mark.parametrize("norm_first", [False, True], ids=["post", "pre"])
KINDS = pytest.mark.parametrize("activation", sorted(ACTIVATIONS))
SHAPES = st.lists(st.integers(1, 4), min_size=0, max_size=3)


def generator(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def vectors(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=generator(seed), dtype=torch.float64)


def shaken(module: nn.Module, seed: int = 0) -> nn.Module:
    """In float64, with every parameter away from where it starts, so that nothing is equal by accident."""
    module = module.double()
    draw = generator(seed)
    for parameter in module.parameters():
        parameter.data.add_(0.3 * torch.randn(parameter.shape, generator=draw, dtype=torch.float64))
    return module


def same_gradients(one: torch.Tensor, other: torch.Tensor, pairs: list, inputs: list, atol: float = 1e-10) -> None:
    """Values agree, and so do the gradients of a random combination of them."""
    torch.testing.assert_close(one, other, atol=1e-12, rtol=0)
    weights = torch.randn(one.shape, generator=generator(9), dtype=one.dtype)
    for value in (one, other):
        (value * weights).sum().backward()
    for ours, theirs in (*pairs, inputs):
        torch.testing.assert_close(ours.grad, theirs.grad, atol=atol, rtol=0)


# ---------------------------------------------------------------- feed-forward


@KINDS
@given(shape=SHAPES, d_model=st.integers(1, 6), d_ff=st.integers(1, 9), seed=st.integers(0, 100))
def test_feed_forward_equals_the_equation_and_sequential(activation, shape, d_model, d_ff, seed):
    ours = shaken(FeedForward(d_model, d_ff, activation=activation), seed)
    x = vectors(*shape, d_model, seed=seed).requires_grad_()
    other = x.detach().clone().requires_grad_()
    theirs = nn.Sequential(nn.Linear(d_model, d_ff), PEERS[activation]())
    theirs.append(nn.Linear(d_ff, d_model)).double()
    pairs = list(zip(ours.parameters(), theirs.parameters(), strict=True))
    for mine, their in pairs:
        their.data.copy_(mine.data)
    same_gradients(ours(x), theirs(other), pairs, [x, other])

    W1, b1, W2, b2 = (
        part.detach() for part in (ours.linear1.weight.T, ours.linear1.bias, ours.linear2.weight.T, ours.linear2.bias)
    )
    z = x.detach() @ W1 + b1
    inner = {"relu": z.clamp(min=0), "gelu": z * 0.5 * (1 + torch.erf(z / 2**0.5)), "swish": z / (1 + (-z).exp())}
    inner["gelu_tanh"] = z * 0.5 * (1 + torch.tanh((2 / math.pi) ** 0.5 * (z + 0.044715 * z**3)))
    torch.testing.assert_close(ours(x).detach(), inner[activation] @ W2 + b2, atol=1e-12, rtol=0)


@KINDS
@given(length=st.integers(2, 6), position=st.integers(0, 5), seed=st.integers(0, 20))
def test_feed_forward_is_position_wise(activation, length, position, seed):
    position %= length
    layer, x = shaken(FeedForward(5, 7, activation=activation), seed), vectors(2, length, 5, seed=seed)
    changed = x.clone()
    changed[:, position] += 1
    moved = (layer(changed) - layer(x)).abs().amax(dim=(0, 2)) > 1e-9
    assert moved.tolist() == [other == position for other in range(length)]
    order = torch.randperm(length, generator=generator(seed))
    torch.testing.assert_close(layer(x[:, order]), layer(x)[:, order], atol=1e-13, rtol=0)
    alone = torch.stack([layer(x[:, t]) for t in range(length)], dim=1)
    torch.testing.assert_close(layer(x), alone, atol=1e-13, rtol=0)


def test_dropout_inside_stands_after_the_activation_and_only_in_training():
    layer, x = shaken(FeedForward(6, 500, activation="gelu", dropout=0.5)), vectors(3, 6)
    seen = []
    layer.dropout.register_forward_hook(lambda module, inputs, output: seen.append((inputs[0], output)))
    torch.manual_seed(0)
    layer(x)
    before, after = seen.pop()
    torch.testing.assert_close(before, F.gelu(layer.linear1(x)))
    assert 0.4 < (after == 0).double().mean() < 0.6
    torch.testing.assert_close(after[after != 0], 2 * before[after != 0])
    assert torch.equal(layer.eval()(x), layer(x)) and torch.equal(*seen.pop())
    assert FeedForward(4, 8).dropout.p == 0


def test_feed_forward_starts_as_xavier_with_biases_of_zero():
    layer = FeedForward(200, 800)
    for part in (layer.linear1, layer.linear2):
        assert not part.bias.any()
        assert part.weight.var().item() == pytest.approx(2 / 1000, rel=0.05)


def test_names_in_the_state_dict_are_stable():
    linear = ["linear1.weight", "linear1.bias", "linear2.weight", "linear2.bias"]
    assert list(FeedForward(4, 8).state_dict()) == linear
    assert list(LayerNorm(4).state_dict()) == ["weight", "bias"]


# ---------------------------------------------------------------- layer norm


def by_hand(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, eps: float) -> torch.Tensor:
    """Row by row, number by number."""
    rows = []
    for row in x.reshape(-1, x.shape[-1]).tolist():
        mean = sum(row) / len(row)
        variance = sum((value - mean) ** 2 for value in row) / len(row)
        rows.append([(value - mean) / (variance + eps) ** 0.5 for value in row])
    return torch.tensor(rows, dtype=x.dtype).reshape(x.shape) * weight + bias


@given(
    shape=SHAPES,
    d_model=st.integers(1, 8),
    eps=st.sampled_from([1e-3, 1e-5, 1e-6]),
    scale=st.sampled_from([1e-4, 1.0, 1e4]),
    shift=st.sampled_from([0.0, -3.0, 100.0]),
    seed=st.integers(0, 100),
)
def test_layer_norm_equals_torch_and_the_loop(shape, d_model, eps, scale, shift, seed):
    ours, theirs = shaken(LayerNorm(d_model, eps=eps), seed), nn.LayerNorm(d_model, eps=eps).double()
    theirs.load_state_dict(ours.state_dict())
    x = (scale * vectors(*shape, d_model, seed=seed) + shift).requires_grad_()
    other = x.detach().clone().requires_grad_()
    expected = by_hand(x.detach(), ours.weight.detach(), ours.bias.detach(), eps)
    torch.testing.assert_close(ours(x).detach(), expected, atol=1e-8, rtol=0)
    pairs = list(zip(ours.parameters(), theirs.parameters(), strict=True))
    same_gradients(ours(x), theirs(other), pairs, [x, other])


@pytest.mark.parametrize("value", [0.0, 3.0, -1e4])
def test_a_constant_row_becomes_the_bias_and_its_gradient_is_finite(value):
    norm = shaken(LayerNorm(6))
    x = torch.full((2, 6), value, dtype=torch.float64, requires_grad=True)
    torch.testing.assert_close(norm(x), norm.bias.expand(2, 6), atol=1e-9, rtol=0)
    (norm(x) * vectors(2, 6)).sum().backward()
    assert x.grad.isfinite().all() and norm.weight.grad.isfinite().all()


def test_the_unbiased_deviation_is_another_function():
    x, norm = vectors(5, 6), LayerNorm(6).double()
    slip = (x - x.mean(-1, keepdim=True)) / (x.std(-1, keepdim=True) + 1e-5)
    assert (norm(x) - slip).abs().max() > 0.05


@given(scale=st.floats(0.1, 1000), shift=st.floats(-100, 100), seed=st.integers(0, 50))
def test_layer_norm_forgets_scale_and_shift(scale, shift, seed):
    norm, x = LayerNorm(16, eps=1e-12).double(), vectors(3, 16, seed=seed)
    torch.testing.assert_close(norm(scale * x + shift), norm(x), atol=1e-6, rtol=0)
    torch.testing.assert_close(norm(x).mean(-1), torch.zeros(3).double(), atol=1e-12, rtol=0)
    torch.testing.assert_close(norm(x).var(-1, unbiased=False), torch.ones(3).double(), atol=1e-9, rtol=0)


@pytest.mark.parametrize("training", [False, True])
def test_layer_norm_sees_neither_padding_nor_company(training):
    norm = shaken(LayerNorm(4)).train(training)
    x = vectors(3, 5, 4)
    longer = F.pad(x[:1], (0, 0, 0, 6))
    torch.testing.assert_close(norm(longer)[0, :5], norm(x)[0], atol=1e-14, rtol=0)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", TYPES)
def test_layer_norm_in_other_precisions(device, dtype):
    exact, x = shaken(LayerNorm(64)), vectors(3, 64)
    for scale in (1.0, 1000.0):  # in float16 the squares alone would overflow at 256
        found = copy.deepcopy(exact).to(device, dtype)((scale * x).to(device, dtype))
        assert found.dtype == dtype
        torch.testing.assert_close(found.cpu().double(), exact(scale * x), atol=3 * TYPES[dtype], rtol=0)


def test_gradients_agree_with_finite_differences():
    for module in (LayerNorm(4), FeedForward(4, 5, activation="gelu"), FeedForward(4, 5)):
        assert torch.autograd.gradcheck(shaken(module), (vectors(2, 3, 4).requires_grad_(),))


# ---------------------------------------------------------------- residual


class Fixed(nn.Module):
    """Dropout whose masks are given: one for each call."""

    def __init__(self, *masks: torch.Tensor) -> None:
        super().__init__()
        self.masks = list(masks)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.masks.pop(0)


def encoder_layer(norm_first: bool, activation: str = "relu", **changes) -> EncoderLayer:
    sizes = {"d_model": 8, "n_heads": 2, "d_ff": 12, "dropout": 0.0, **changes}
    return shaken(EncoderLayer(TransformerConfig(**sizes, norm_first=norm_first, activation=activation)))


@FORMS
@KINDS
@pytest.mark.parametrize("dropped", [False, True], ids=["no dropout", "dropout"])
def test_a_layer_equals_torch_in_training_mode(norm_first, activation, dropped):
    ours = encoder_layer(norm_first, activation).train()
    form = {"activation": ACTIVATIONS[activation], "batch_first": True, "norm_first": norm_first}
    theirs = nn.TransformerEncoderLayer(8, 2, 12, dropout=0.0, **form).double()
    names = torch_names(ours)
    theirs.load_state_dict({names[name]: tensor for name, tensor in ours.state_dict().items()})
    pairs = [(parameter, theirs.get_parameter(names[name])) for name, parameter in ours.named_parameters()]
    if dropped:
        masks = [2.0 * (torch.rand(3, 5, width, generator=generator(width)) < 0.5) for width in (8, 12, 8)]
        masks[2] = masks[2].flip(1)
        ours.dropout, ours.feed_forward.dropout = Fixed(masks[0], masks[2]), Fixed(masks[1])
        theirs.dropout1, theirs.dropout, theirs.dropout2 = map(Fixed, masks)
    x = vectors(3, 5, 8).requires_grad_()
    other = x.detach().clone().requires_grad_()
    same_gradients(ours(x), theirs.train()(other), pairs, [x, other])


def test_the_two_forms_are_two_functions():
    post, x = encoder_layer(False), vectors(2, 3, 8)
    pre = copy.deepcopy(post)
    pre.norm_first = True
    assert (post(x) - pre(x)).abs().max() > 0.1
    for layer in (post, pre):  # with silent sublayers only the main road is left
        for last in (layer.self_attn.out_proj, layer.feed_forward.linear2):
            nn.init.zeros_(last.weight)
            nn.init.zeros_(last.bias)
    torch.testing.assert_close(post(x), post.norm2(post.norm1(x)))
    assert torch.equal(pre(x), x)


@FORMS
def test_dropout_falls_on_the_sublayers_outputs_and_on_nothing_else(norm_first):
    layer, x = encoder_layer(norm_first, d_model=400, dropout=0.3).train(), vectors(2, 3, 400)
    seen, norms = [], []
    layer.dropout.register_forward_hook(lambda module, inputs, output: seen.append((inputs[0], output)))
    layer.norm2.register_forward_hook(lambda module, inputs, output: norms.append(inputs[0]))
    torch.manual_seed(0)
    layer(x)
    for before, after in seen:
        assert 0.25 < (after == 0).double().mean() < 0.35
        torch.testing.assert_close(after[after != 0], before[after != 0] / 0.7)
    attended = layer.self_attn(layer.norm1(x) if norm_first else x)
    torch.testing.assert_close(seen[0][0], attended)
    total = x + seen[0][1] if norm_first else layer.norm1(x + seen[0][1]) + seen[1][1]
    torch.testing.assert_close(norms[0], total)
    assert torch.equal(layer.eval()(x), layer(x))


@FORMS
def test_inputs_are_left_alone(norm_first):
    x = vectors(2, 3, 8)
    before = x.clone()
    encoder_layer(norm_first)(x)
    assert torch.equal(x, before)


@FORMS
@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", TYPES)
def test_a_layer_in_other_precisions(norm_first, device, dtype):
    exact, x = encoder_layer(norm_first, "swish", d_model=16), vectors(2, 5, 16)
    found = copy.deepcopy(exact).to(device, dtype)(x.to(device, dtype))
    assert found.dtype == dtype
    torch.testing.assert_close(found.cpu().double(), exact(x), atol=8 * TYPES[dtype], rtol=4 * TYPES[dtype])


@FORMS
@pytest.mark.parametrize("device", DEVICES)
def test_under_bfloat16_autocast(norm_first, device):
    layer = encoder_layer(norm_first, d_model=16).float().to(device)
    x = vectors(2, 5, 16).float().to(device).requires_grad_()
    with torch.autocast(device, dtype=torch.bfloat16):
        found = layer(x)
    torch.testing.assert_close(found.float(), layer(x), atol=0.1, rtol=0.05)
    found.float().square().sum().backward()
    assert x.grad.isfinite().all() and layer.feed_forward.linear1.weight.grad.dtype == torch.float32


def test_shapes_on_the_meta_device():
    with torch.device("meta"):
        found = LayerNorm(512)(FeedForward(512, 2048)(torch.ones(2, 7, 512)))
    assert found.shape == (2, 7, 512) and found.is_meta


COMPILED = """
import torch
from transformer_lib import EncoderLayer, TransformerConfig
torch.manual_seed(0)
x = torch.randn(2, 3, 8)
for norm_first in (False, True):
    for activation in ("relu", "gelu", "swish"):
        torch.compiler.reset()
        form = {"norm_first": norm_first, "activation": activation}
        layer = EncoderLayer(TransformerConfig(d_model=8, n_heads=2, d_ff=16, **form)).eval()
        compiled = torch.compile(layer, fullgraph=True, backend="eager")
        torch.testing.assert_close(compiled(x), layer(x), atol=1e-6, rtol=0)
print("one graph")
"""


@pytest.mark.slow
def test_compiles_into_one_graph():
    """In a process of its own, as users have it: the run-time check of annotations cannot be compiled."""
    done = subprocess.run([sys.executable, "-c", COMPILED], capture_output=True, text=True, timeout=300)
    assert done.stdout.strip() == "one graph", done.stderr[-3000:]


# ---------------------------------------------------------------- bad input

X = torch.zeros(2, 3, 4)
BAD = {
    "width of 0": (lambda: FeedForward(0, 4), "d_model=0"),
    "inner width of 0": (lambda: FeedForward(4, -2), "d_ff=-2"),
    "a width of None": (lambda: FeedForward(4, None), "d_ff=None must be a whole number"),
    "unknown activation": (
        lambda: FeedForward(4, 8, activation="tanh"),
        "activation='tanh' is unknown; choose from relu, gelu, swish",
    ),
    "dropout 1 inside": (lambda: FeedForward(4, 8, dropout=1.0), "dropout=1.0 must be"),
    "negative dropout": (lambda: FeedForward(4, 8, dropout=-0.1), "dropout=-0.1 must be"),
    "dropout nan": (lambda: FeedForward(4, 8, dropout=float("nan")), "dropout=nan must be"),
    "dropout in words": (lambda: FeedForward(4, 8, dropout="0.1"), "dropout='0.1' must be"),
    "another width": (lambda: FeedForward(5, 8)(X), r"inputs is .* shape \(2, 3, 4\), expected .* D=5"),
    "another device": (lambda: FeedForward(4, 8)(X.to("meta")), "meta"),
    "norm on another device": (lambda: LayerNorm(4)(X.to("meta")), "meta"),
    "a list": (lambda: LayerNorm(4)([1.0]), "inputs is .*list"),
    "a number": (lambda: FeedForward(1, 8)(torch.tensor(1.0)), r"shape \(\), expected"),
    "norm of width 0": (lambda: LayerNorm(0), "d_model=0"),
    "eps 0": (lambda: LayerNorm(4, eps=0.0), "eps=0.0 must be .* above 0"),
    "negative eps": (lambda: LayerNorm(4, eps=-1e-5), "eps=-1e-05 must be"),
    "eps nan": (lambda: LayerNorm(4, eps=float("nan")), "eps=nan must be"),
    "eps infinite": (lambda: LayerNorm(4, eps=float("inf")), "eps=inf must be"),
    "norm of another width": (lambda: LayerNorm(3)(X), r"inputs is .* shape \(2, 3, 4\), expected .* D=3"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_named(case):
    call, message = BAD[case]
    with pytest.raises((ValueError, TypeError, RuntimeError)) as caught:
        call()
    # With the annotations enforced, a wrong shape may be caught before our own check; test_errors.py runs without.
    error = caught.value
    assert TypeCheckError in (type(error), type(error.__cause__)) or re.search(message, str(caught.value))
