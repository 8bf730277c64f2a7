"""Mixture of experts: equal to a loop and to Hugging Face's layers, with gradients; the balance of the load."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from transformer_lib.models.experts import Experts

transformers = pytest.importorskip("transformers")


def numbers(*shape: int, seed: int = 1) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def experts(n: int = 6, k: int = 2, **options: bool) -> Experts:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return Experts(8, 5, n, k, **options)


def load_into(theirs: nn.Module, ours: Experts) -> None:
    """Copy our weights into one of Hugging Face's layers."""
    with torch.no_grad():
        theirs.gate.weight.copy_(ours.router.weight)
        for i, expert in enumerate(ours.experts):
            theirs.experts.gate_up_proj[i] = torch.cat([expert.gate.weight, expert.linear1.weight])
            theirs.experts.down_proj[i] = expert.linear2.weight


def same_values_and_gradients(theirs: nn.Module, ours: Experts) -> None:
    found = []
    for net in (theirs, ours):
        x = numbers(2, 7, 8).requires_grad_()
        y = net(x)
        router = net.gate if net is theirs else net.router
        inputs, routed = torch.autograd.grad(y.square().sum(), [x, router.weight], retain_graph=True)
        net.zero_grad()
        y.square().sum().backward()
        if net is theirs:
            middle, down = net.experts.gate_up_proj.grad, net.experts.down_proj.grad
        else:
            first = [torch.cat([e.gate.weight.grad, e.linear1.weight.grad]) for e in net.experts]
            middle, down = torch.stack(first), torch.stack([e.linear2.weight.grad for e in net.experts])
        found.append([y, inputs, routed, middle, down])
    for one, two in zip(*found, strict=True):
        assert one.abs().max() > 1e-3
        torch.testing.assert_close(one, two, atol=1e-5, rtol=1e-4)


def test_values_and_gradients_equal_mixtrals():
    from transformers.models.mixtral import modeling_mixtral as mixtral

    sizes = {"hidden_size": 8, "intermediate_size": 5, "num_local_experts": 6, "num_experts_per_tok": 2}
    theirs, ours = mixtral.MixtralSparseMoeBlock(mixtral.MixtralConfig(**sizes)), experts()
    load_into(theirs, ours)
    same_values_and_gradients(theirs, ours)


def test_values_and_gradients_equal_those_of_deepseeks_routed_experts():
    from transformers.models.deepseek_v3 import modeling_deepseek_v3 as deepseek

    sizes = {"hidden_size": 8, "moe_intermediate_size": 5, "n_routed_experts": 6, "num_experts_per_tok": 2}
    groups = {"n_group": 1, "topk_group": 1, "n_shared_experts": 1, "routed_scaling_factor": 1.0}
    theirs = deepseek.DeepseekV3MoE(deepseek.DeepseekV3Config(**sizes, **groups))
    ours = experts(sigmoid=True)
    load_into(theirs, ours)
    ours.bias += torch.tensor([0.3, -0.3, 0.0, 0.2, 0.0, -0.1])
    theirs.gate.e_score_correction_bias.copy_(ours.bias)
    nn.init.zeros_(theirs.shared_experts.down_proj.weight)  # a shared expert is one more layer, added to this one
    same_values_and_gradients(theirs, ours)


def test_an_expert_works_for_its_visitors_alone():
    layer, x, worked = experts(n=4, k=1), numbers(9, 8), []
    layer.bias[2] = -10.0
    for expert in layer.experts:
        expert.register_forward_hook(lambda module, inputs, output: worked.append(len(output)))
    layer(x).square().sum().backward()
    assert worked == layer.route(x)[1].sum(0).tolist() and worked[2] == 0 < min(worked[:2] + worked[3:])
    learned = [bool(expert.linear2.weight.grad.any()) for expert in layer.experts]
    assert learned == [count > 0 for count in worked]


def test_balance_raises_the_idle_and_lowers_the_busy():
    layer = experts(n=4, k=1)
    visits = torch.tensor([[1, 0, 0, 0]] * 5 + [[0, 1, 0, 0]] * 2 + [[0, 0, 1, 0]]).bool()
    layer.balance(visits, step=0.5)
    assert layer.bias.tolist() == [-0.5, 0.0, 0.5, 0.5]
    layer.balance(torch.zeros(0, 4).bool())  # no tokens
    assert layer.bias.tolist() == [-0.5, 0.0, 0.5, 0.5]


# ---------------------------------------------------------------- the edges

DTYPES = [torch.float64, torch.float32, torch.bfloat16, torch.float16]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("built", ["converted", "built so", "half and back"])
def test_the_bias_takes_small_steps_in_every_type(dtype, built):
    before = torch.get_default_dtype()
    if built == "built so":
        torch.set_default_dtype(dtype)
    layer = experts(n=4, k=1)
    torch.set_default_dtype(before)
    layer.bias += 0.3
    layer = layer.to(dtype)
    layer = layer.float() if built == "half and back" else layer
    assert layer.bias.dtype == torch.float32 and layer.bias[0].item() == pytest.approx(0.3)
    busy = torch.tensor([[True, False, False, False]])
    for _ in range(1000):
        layer.balance(busy)
    torch.testing.assert_close(layer.bias, 0.3 + torch.tensor([-1.0, 1, 1, 1]), atol=1e-3, rtol=0)
    assert "bias" in layer.state_dict()
    again = experts(n=4, k=1).to(dtype)
    again.load_state_dict(layer.state_dict())
    assert torch.equal(again.bias, layer.bias)


def test_a_bias_that_was_loaded_in_half_precision_takes_small_steps():
    layer = experts(n=4, k=1)
    layer.load_state_dict({name: x.bfloat16() for name, x in layer.state_dict().items()}, assign=True)
    for _ in range(1000):
        layer.balance(torch.tensor([[True, False, False, False]]))
    torch.testing.assert_close(layer.bias, torch.tensor([-1.0, 1, 1, 1]), atol=1e-3, rtol=0)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@given(
    k=st.integers(1, 9),
    sigmoid=st.booleans(),
    scale=st.sampled_from([0.0, 1.0, 100.0, 1000.0]),
    seed=st.integers(0, 99),
)
def test_every_type_and_size_is_near_a_loop_in_double_precision(dtype, k, sigmoid, scale, seed):
    layer, x = experts(k=k, sigmoid=sigmoid).to(dtype), numbers(5, 8, seed=seed).to(dtype)
    layer.router.weight.data *= scale  # at 0 all scores are equal, and at 1000 almost all of them round to 0
    x.requires_grad_()
    y, (scores, visits) = layer(x), layer.route(x)
    assert y.dtype == dtype and scores.dtype == torch.promote_types(dtype, torch.float32)
    assert visits.sum(1).tolist() == [min(k, 6)] * 5
    exact = experts(k=k, sigmoid=sigmoid).double()
    exact.load_state_dict(layer.state_dict())
    for t in range(5):
        logits = layer.router(x[t]).double()
        log_scores = torch.nn.functional.logsigmoid(logits) if sigmoid else logits.log_softmax(-1)
        best = visits[t].nonzero()[:, 0]
        weights = log_scores[best].clamp(min=math.log(1e-30)).softmax(0)
        expected = sum(w * exact.experts[i](x[t].double()) for i, w in zip(best.tolist(), weights, strict=True))
        tolerance = {torch.float64: 1e-9, torch.float32: 1e-4}.get(dtype, 0.05)
        torch.testing.assert_close(y[t].double(), expected, atol=tolerance, rtol=tolerance)
    gradients = torch.autograd.grad(y.double().sum(), [x, layer.router.weight])
    assert all(gradient.isfinite().all() for gradient in gradients)


def test_a_token_that_is_no_number_stays_alone():
    layer, x = experts(), numbers(4, 8)
    expected = layer(x)
    x[1] = float("nan")
    y = layer(x)
    assert y[1].isnan().all()
    torch.testing.assert_close(y[[0, 2, 3]], expected[[0, 2, 3]])


def test_no_tokens_and_equal_scores():
    layer = experts()
    assert layer(numbers(0, 8)).shape == (0, 8) and layer(numbers(2, 0, 8)).shape == (2, 0, 8)
    layer.router.weight.data.zero_()
    assert layer.route(numbers(3, 8))[1].tolist() == [[True, True, False, False, False, False]] * 3  # the first


@torch.no_grad()
def test_the_order_of_tokens_company_and_the_shape_of_a_batch_change_nothing():
    for dtype in DTYPES:
        layer, x = experts().to(dtype), numbers(40, 8).to(dtype)
        order = torch.randperm(40, generator=torch.Generator().manual_seed(0))
        tolerance = 1e-6 if dtype.itemsize > 2 else 0.02
        torch.testing.assert_close(layer(x[order]), layer(x)[order], atol=tolerance, rtol=tolerance)
        torch.testing.assert_close(layer(x[:3]), layer(x)[:3], atol=tolerance, rtol=tolerance)
        assert torch.equal(layer(x.view(4, 10, 8)), layer(x).view(4, 10, 8))


def test_a_token_that_visits_no_expert_is_refused():
    with pytest.raises(ValueError, match="k=0: each token must visit an expert"):
        experts(k=0)
