"""The decoder of today: equal to Llama and Qwen3, rotated by distances, with its norm, windows and groups."""

import pytest
import torch
from torch import nn
from transformers import LlamaConfig as TheirConfig
from transformers import LlamaForCausalLM, MistralConfig, MistralForCausalLM, Qwen3Config, Qwen3ForCausalLM
from transformers.models.llama import modeling_llama
from transformers.models.qwen3 import modeling_qwen3

from transformer_lib.models.convert import from_hf, to_hf
from transformer_lib.models.llama import Llama, LlamaConfig, RMSNorm, RotaryAttention, rotate

SIZES = {"vocab_size": 13, "d_model": 16, "n_heads": 4, "n_kv_heads": 2, "n_layers": 2, "d_ff": 24, "max_length": 24}
THEIRS = {
    "vocab_size": 13, "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "max_position_embeddings": 64,
}  # fmt: skip
KINDS = {
    "llama": (TheirConfig, LlamaForCausalLM, {}),
    "llama, tied, other base": (
        TheirConfig,
        LlamaForCausalLM,
        {"tie_word_embeddings": True, "rope_parameters": {"rope_type": "default", "rope_theta": 500_000.0}},
    ),
    "llama, one key head": (TheirConfig, LlamaForCausalLM, {"num_key_value_heads": 1}),
    "qwen3": (Qwen3Config, Qwen3ForCausalLM, {"head_dim": 6}),
    "qwen3, tied": (Qwen3Config, Qwen3ForCausalLM, {"head_dim": 4, "tie_word_embeddings": True}),
}
IDS = torch.tensor([[0, 5, 0, 12, 7, 1, 2], [3, 3, 4, 11, 10, 9, 0]])


def theirs(kind: str, dtype: torch.dtype = torch.float32, **options: object) -> nn.Module:
    """A small model of Hugging Face with random weights, norms too."""
    config, model, extra = KINDS[kind]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        made = model(config(**THEIRS | extra | options)).eval()
        with torch.no_grad():
            for weights in made.parameters():
                weights.add_(0.1 * torch.randn_like(weights))
    return made.to(dtype)


def build(**options: object) -> Llama:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return Llama(LlamaConfig(**SIZES | options)).double().eval()


def in_double_precision(monkeypatch: pytest.MonkeyPatch) -> None:
    """Their norms and angles are in single precision whatever the model is; let them follow it."""

    def norm(self: nn.Module, x: torch.Tensor) -> torch.Tensor:
        return nn.functional.rms_norm(x, x.shape[-1:], self.weight, self.variance_epsilon)

    def angles(self: nn.Module, x: torch.Tensor, position_ids: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        config = self.config
        width = config.head_dim
        omega = config.rope_parameters["rope_theta"] ** (-torch.arange(0, width, 2).double() / width)
        angle = torch.cat([position_ids[..., None] * omega] * 2, dim=-1)
        return angle.cos().to(x.dtype), angle.sin().to(x.dtype)

    for module, name in ((modeling_llama, "Llama"), (modeling_qwen3, "Qwen3")):
        monkeypatch.setattr(getattr(module, f"{name}RMSNorm"), "forward", norm)
        monkeypatch.setattr(getattr(module, f"{name}RotaryEmbedding"), "forward", angles)


# Llama and Qwen3 ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "dtype", "tolerance"),
    [*((kind, torch.float64, 1e-10) for kind in KINDS), *((kind, torch.float32, 1e-5) for kind in ("llama", "qwen3"))],
    ids=str,
)
def test_the_same_scores_and_gradients_both_ways(
    kind: str, dtype: torch.dtype, tolerance: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    if dtype == torch.float64:
        in_double_precision(monkeypatch)
    first = theirs(kind, dtype)
    ours = from_hf(first)
    back = to_hf(ours)
    found = []
    for model, scores in ((first, first(IDS).logits), (ours, ours(IDS)), (back, back(IDS).logits)):
        nn.functional.cross_entropy(scores[:, :-1].flatten(0, 1), IDS[:, 1:].flatten()).backward()
        layer = model.layers[0] if model is ours else model.model.layers[0]
        embedding = model.embedding if model is ours else model.model.embed_tokens
        norm = layer.norm1 if model is ours else layer.input_layernorm
        gate = layer.feed_forward.gate if model is ours else layer.mlp.gate_proj
        attention = layer.self_attn
        names = ["in_proj_weight"] if model is ours else [f"{part}_proj.weight" for part in "qkv"]
        grads = [attention.get_parameter(name).grad for name in names]
        parts = [part.weight.grad for part in (embedding, norm, gate)]
        found.append([scores.detach(), torch.cat(grads), *parts])
    assert found[0][0].std() > 0.1  # there is something to compare
    for other in found[1:]:
        for one, expected in zip(other, found[0], strict=True):
            torch.testing.assert_close(one, expected, rtol=tolerance, atol=tolerance)
    names = {name: weights.shape for name, weights in first.named_parameters()}
    assert {name: weights.shape for name, weights in back.named_parameters()} == names
    assert ours.config.qk_norm == kind.startswith("qwen3")


@pytest.mark.parametrize(
    ("kind", "option", "value"),
    [
        ("llama", "hidden_act", "gelu"),
        ("llama", "attention_bias", True),
        ("llama", "mlp_bias", True),
        ("llama", "rope_parameters", {"rope_type": "linear", "factor": 2.0, "rope_theta": 1e4}),
        ("qwen3", "use_sliding_window", True),
    ],
)
def test_a_model_that_computes_something_else_is_refused(kind: str, option: str, value: object) -> None:
    name = "rope_type" if option == "rope_parameters" else option
    with pytest.raises(ValueError, match=name):
        from_hf(theirs(kind, **{option: value}))


def test_another_family_is_refused() -> None:
    first = MistralForCausalLM(MistralConfig(**THEIRS))
    with pytest.raises(ValueError, match="model_type='mistral'"):
        from_hf(first)


@pytest.mark.parametrize(("option", "value"), [("window", 3), ("dropout", 0.1)])
def test_what_theirs_does_not_have_is_not_given_away(option: str, value: float) -> None:
    with pytest.raises(ValueError, match=f"{option}={value}"):
        to_hf(build(**{option: value}))


@pytest.mark.parametrize("qk_norm", [False, True], ids=["llama", "qwen3"])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_their_angles_stay_exact_in_half_precision(dtype: torch.dtype, qk_norm: bool) -> None:
    exact, half = (to_hf(build(qk_norm=qk_norm).to(one)) for one in (torch.float32, dtype))
    assert {weights.dtype for weights in half.parameters()} == {dtype}
    inside = (one.model.rotary_emb.inv_freq for one in (half, exact))
    torch.testing.assert_close(*inside, rtol=0, atol=0)  # the same type, too


# Rotation -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("interleaved", [False, True])
def test_rotating_multiplies_complex_numbers(interleaved: bool) -> None:
    x, positions = torch.randn(2, 3, 5, 8, dtype=torch.float64), torch.tensor([0, 1, 2, 7, 900])
    omega = torch.tensor([100.0 ** (-2 * i / 8) for i in range(4)], dtype=torch.float64)
    turn = torch.polar(torch.ones(5, 4).double(), positions[:, None] * omega)
    pairs = x.unflatten(-1, (4, 2)) if interleaved else x.unflatten(-1, (2, 4)).transpose(-2, -1)
    expected = torch.view_as_real(torch.view_as_complex(pairs.contiguous()) * turn)
    expected = expected.flatten(-2) if interleaved else expected.transpose(-2, -1).flatten(-2)
    found = rotate(x, positions, base=100.0, interleaved=interleaved)
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("width", [3, 5])
def test_an_odd_width_is_refused(width: int) -> None:
    with pytest.raises(ValueError, match=f"width {width}"):
        rotate(torch.randn(1, 2, width), torch.arange(2))
    with pytest.raises(ValueError, match=f"d_head={width} must be even"):
        LlamaConfig(**SIZES | {"d_head": width})


# The parts ------------------------------------------------------------------------------------------------------------


def test_the_norm_survives_half_precision() -> None:
    """The squares of numbers such as 300 do not fit into float16."""
    norm = RMSNorm(8).half()
    found = norm(torch.full((1, 8), 300.0, dtype=torch.float16))
    torch.testing.assert_close(found, torch.ones_like(found))


def test_the_norm_is_pytorchs() -> None:
    ours, theirs = RMSNorm(8, eps=1e-3).double(), nn.RMSNorm(8, eps=1e-3).double()
    x = torch.randn(3, 8).double()
    torch.testing.assert_close(ours(x), theirs(x))


def attention(**options: object) -> RotaryAttention:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(2)
        return RotaryAttention(LlamaConfig(**SIZES | options)).double()


X, POSITIONS = torch.randn(2, 6, 16, generator=torch.Generator().manual_seed(0)).double(), torch.arange(6)


@pytest.mark.parametrize("window", [1, 2, 4])
def test_a_window_reaches_so_many_tokens_back(window: int) -> None:
    layer = attention(window=window)
    before = layer(X, POSITIONS)
    for t in range(6):
        changed = X.clone()
        changed[:, t] += 1
        moved = (layer(changed, POSITIONS) - before).abs().amax(dim=(0, 2)) > 1e-9
        assert moved.tolist() == [t <= i < t + window for i in range(6)]


# The model ------------------------------------------------------------------------------------------------------------


def test_groups_that_cannot_be_equal_are_refused() -> None:
    with pytest.raises(ValueError, match="not divisible"):
        LlamaConfig(**SIZES | {"n_kv_heads": 3})


def test_heads_that_cannot_be_equally_wide_are_refused() -> None:
    sizes = SIZES | {"d_model": 14, "n_heads": 3, "n_kv_heads": 3}
    with pytest.raises(ValueError, match="d_model=14 is not divisible by n_heads=3"):
        Llama(LlamaConfig(**sizes))
    assert Llama(LlamaConfig(**sizes, d_head=6)).layers[0].self_attn.widths == [6, 6, 6]
