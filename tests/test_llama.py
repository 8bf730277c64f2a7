"""The decoder of today: equal to Llama and Qwen3, rotated by distances, with a cache for groups of heads."""

import copy
import math

import pytest
import torch
from torch import nn
from transformers import LlamaConfig as TheirConfig
from transformers import LlamaForCausalLM, Qwen3Config, Qwen3ForCausalLM
from transformers.models.llama import modeling_llama
from transformers.models.qwen3 import modeling_qwen3

from transformer_lib.data.batching import collate
from transformer_lib.data.tokenizer import BOS, EOS, PAD
from transformer_lib.models.llama import (
    GatedFeedForward,
    GroupedQueryAttention,
    Llama,
    LlamaConfig,
    RMSNorm,
    llama_from_hugging_face,
    llama_to_hugging_face,
    rotate,
)
from transformer_lib.models.multi_head import MultiHeadAttention, record_attention

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
EMPTY = torch.empty(2, 0, dtype=torch.long)
EXAMPLES = [([5, 6, 7, EOS], [BOS, 8, 9, EOS]), ([10, EOS], [BOS, 11, EOS])]


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


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.float64, 1e-10)], ids=str)
def test_the_same_scores_and_gradients_both_ways(
    kind: str, dtype: torch.dtype, tolerance: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    if dtype == torch.float64:
        in_double_precision(monkeypatch)
    first = theirs(kind, dtype)
    ours = llama_from_hugging_face(first)
    back = llama_to_hugging_face(ours)
    found = []
    for model, scores in ((first, first(IDS).logits), (ours, ours(EMPTY, IDS)), (back, back(IDS).logits)):
        nn.functional.cross_entropy(scores[:, :-1].flatten(0, 1), IDS[:, 1:].flatten()).backward()
        layer = model.stack.layers[0] if model is ours else model.model.layers[0]
        embedding = model.embedding if model is ours else model.model.embed_tokens
        norm = layer.norm1 if model is ours else layer.input_layernorm
        gate = layer.feed_forward.gate if model is ours else layer.mlp.gate_proj
        weights = [embedding, norm, gate, layer.self_attn.q_proj, layer.self_attn.k_proj, layer.self_attn.v_proj]
        found.append([scores.detach(), *(part.weight.grad for part in weights)])
    assert found[0][0].std() > 0.1  # there is something to compare
    for other in found[1:]:
        for one, expected in zip(other, found[0], strict=True):
            torch.testing.assert_close(one, expected, rtol=tolerance, atol=tolerance)
    names = {name: weights.shape for name, weights in first.named_parameters()}
    assert {name: weights.shape for name, weights in back.named_parameters()} == names
    assert ours.config.qk_norm == kind.startswith("qwen3")


def test_steps_continue_a_prompt_as_llama_does() -> None:
    first, prompt = theirs("qwen3"), torch.tensor([[7, 0, 5, 9]])
    ours, full = llama_from_hugging_face(first), prompt
    with torch.no_grad():
        state = ours.start(ours.encode(prompt[:, :-1], torch.ones(1, 3, dtype=torch.bool)))
        token = prompt[:, -1]
        for _ in range(5):
            logits, state = ours.step(token, state)
            torch.testing.assert_close(logits, first(full).logits[:, -1], rtol=1e-5, atol=1e-5)
            token = logits.argmax(dim=-1)
            full = torch.cat([full, token[:, None]], dim=1)


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
        llama_from_hugging_face(theirs(kind, **{option: value}))


def test_another_family_is_refused() -> None:
    first = theirs("llama")
    first.config.model_type = "mistral"
    with pytest.raises(ValueError, match="model_type='mistral'"):
        llama_from_hugging_face(first)


# Rotation -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("interleaved", [False, True])
def test_rotating_multiplies_complex_numbers(interleaved: bool) -> None:
    x, places = torch.randn(2, 3, 5, 8, dtype=torch.float64), torch.tensor([[0, 1, 2, 7, 900], [4, 5, 6, 7, 8]])
    omega = torch.tensor([100.0 ** (-2 * i / 8) for i in range(4)], dtype=torch.float64)
    turn = torch.polar(torch.ones(2, 1, 5, 4).double(), places[:, None, :, None] * omega)
    pairs = x.unflatten(-1, (4, 2)) if interleaved else x.unflatten(-1, (2, 4)).transpose(-2, -1)
    expected = torch.view_as_real(torch.view_as_complex(pairs.contiguous()) * turn)
    expected = expected.flatten(-2) if interleaved else expected.transpose(-2, -1).flatten(-2)
    found = rotate(x, places, base=100.0, interleaved=interleaved)
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("interleaved", [False, True])
def test_scores_depend_on_distances_alone(interleaved: bool) -> None:
    q, k = torch.randn(2, 1, 1, 6, 8, dtype=torch.float64)
    places = torch.arange(6)[None]
    scores = [
        rotate(q, places + shift, interleaved=interleaved) @ rotate(k, places + shift, interleaved=interleaved).mT
        for shift in (0, 5000)
    ]
    torch.testing.assert_close(*scores, rtol=1e-9, atol=1e-9)
    assert not torch.allclose(scores[0], q @ k.mT, atol=0.1)


def test_an_odd_width_is_refused() -> None:
    with pytest.raises(ValueError, match="width 5"):
        rotate(torch.randn(1, 1, 2, 5), torch.arange(2)[None])
    with pytest.raises(ValueError, match="d_head=3 must be even"):
        LlamaConfig(**SIZES | {"d_head": 3})


# The parts ------------------------------------------------------------------------------------------------------------


def test_the_norm_survives_half_precision() -> None:
    """The squares of numbers such as 300 do not fit into float16."""
    norm = RMSNorm(8).half()
    found = norm(torch.full((1, 8), 300.0, dtype=torch.float16))
    torch.testing.assert_close(found, torch.ones_like(found))


def test_the_gate_opens_and_closes() -> None:
    layer, x = GatedFeedForward(2, 3), torch.tensor([[1.0, 2.0]])
    with torch.no_grad():
        for part in (layer.linear1, layer.linear2):
            part.weight.fill_(1.0)
        layer.gate.weight.fill_(-20.0)
        assert layer(x).abs().max() < 1e-12
        layer.gate.weight.fill_(20.0)
        torch.testing.assert_close(layer(x), torch.full((1, 2), 3 * 60.0 * 3.0))


def test_as_many_key_heads_as_heads_are_multi_head_attention() -> None:
    """At positions that are all 0 nothing is rotated, and the layer of chapter 11 is what remains."""
    config = LlamaConfig(**SIZES | {"n_kv_heads": 4})
    ours, plain = GroupedQueryAttention(config).double(), MultiHeadAttention(16, 4, bias=False).double()
    with torch.no_grad():
        parts = [ours.q_proj.weight, ours.k_proj.weight, ours.v_proj.weight]
        plain.in_proj_weight.copy_(torch.cat(parts))
        plain.out_proj.weight.copy_(ours.out_proj.weight)
    x, mask = torch.randn(2, 5, 16).double(), torch.ones(1, 1, 5, 5, dtype=torch.bool).tril()
    found = ours(x, torch.zeros(1, 5, dtype=torch.long))
    torch.testing.assert_close(found, plain(x, mask=mask), rtol=1e-10, atol=1e-10)


def test_a_group_shares_its_keys() -> None:
    """Two key heads for four heads: the same as four key heads of which two and two are equal."""
    few, many = (GroupedQueryAttention(LlamaConfig(**SIZES | {"n_kv_heads": n})).double() for n in (2, 4))
    with torch.no_grad():
        many.q_proj.weight.copy_(few.q_proj.weight)
        many.out_proj.weight.copy_(few.out_proj.weight)
        for one, other in ((few.k_proj, many.k_proj), (few.v_proj, many.v_proj)):
            other.weight.copy_(one.weight.unflatten(0, (2, 4)).repeat_interleave(2, dim=0).flatten(0, 1))
    x, places = torch.randn(3, 6, 16).double(), torch.arange(6)[None]
    torch.testing.assert_close(few(x, places), many(x, places), rtol=1e-10, atol=1e-10)


def test_the_cache_holds_the_key_heads_alone() -> None:
    model = build()
    with torch.no_grad():
        state = model.start(model.encode(IDS, torch.ones_like(IDS, dtype=torch.bool)))
    assert [cache.keys.shape[:2] + cache.keys.shape[3:] for cache in state.caches] == [(2, 2, 4)] * 2
    assert state.caches[0].length == IDS.shape[1]


def test_attention_without_a_mask_is_causal_with_a_cache_too() -> None:
    layer = GroupedQueryAttention(LlamaConfig(**SIZES)).double()
    x, places = torch.randn(1, 6, 16).double(), torch.arange(6)[None]
    with torch.no_grad():
        whole, cache = layer(x, places), layer.new_cache(1)
        parts = [layer(x[:, part], places[:, part], cache=cache) for part in (slice(0, 4), slice(4, 6))]
    torch.testing.assert_close(torch.cat(parts, dim=1), whole, rtol=1e-10, atol=1e-10)


def test_company_does_not_move_positions() -> None:
    """A short source in a batch: its target's positions count on from its own end."""
    model, batch = build(), collate(EXAMPLES)
    found = model(batch.source, batch.target_input)
    for i, (source, target) in enumerate(EXAMPLES):
        alone = model(EMPTY[:1], torch.tensor([source + target[:-1]]))[0, len(source) :]
        torch.testing.assert_close(found[i, : len(alone)], alone, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("tied", [False, True])
def test_training_reaches_every_parameter(tied: bool) -> None:
    model = copy.deepcopy(build(source_loss=True, qk_norm=True, tie_embeddings=tied)).train()
    model.loss(collate(EXAMPLES)).backward()
    assert all(weights.grad is not None and weights.grad.abs().sum() > 0 for weights in model.parameters())
    count = sum(weights.numel() for weights in model.parameters())
    assert count == (13 * 16) * (1 if tied else 2) + 16 + 2 * (16 * 16 * 2 + 2 * 16 * 8 + 3 * 16 * 24 + 2 * 16 + 2 * 4)


# Wrong input ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n_kv_heads": 3}, "n_heads=4 is not divisible by n_kv_heads=3"),
        ({"n_kv_heads": 0}, "n_kv_heads=0"),
        ({"n_heads": 5, "n_kv_heads": 5}, "not divisible"),
        ({"rotary_base": 0.0}, "rotary_base"),
        ({"rotary_base": math.nan}, "rotary_base"),
        ({"qk_norm": 1}, "qk_norm"),
        ({"n_layers": 0}, "n_layers"),
        ({"max_source_length": 24}, "must leave room"),
    ],
)
def test_a_wrong_size_is_refused_and_named(options: dict[str, object], message: str) -> None:
    with pytest.raises((ValueError, TypeError), match=message):
        LlamaConfig(**SIZES | options)


def test_padding_in_the_middle_is_not_read() -> None:
    model, batch = build(), collate(EXAMPLES)
    other = batch.source.clone()
    other[1, other[1] == PAD] = 12
    mask = batch.source != PAD
    with torch.no_grad():
        found = [model.decode(batch.target_input, model.encode(source, mask)) for source in (batch.source, other)]
    torch.testing.assert_close(found[0][1, :2], found[1][1, :2], rtol=1e-12, atol=1e-12)


def test_the_weights_can_be_recorded_head_by_head() -> None:
    layer = GroupedQueryAttention(LlamaConfig(**SIZES)).double()
    x, places = torch.randn(2, 5, 16).double(), torch.arange(5)[None]
    with record_attention(layer) as maps:
        found = layer(x, places)
    (weights,) = maps[""]
    q, k, v = (part(x).unflatten(2, (-1, 4)).transpose(1, 2) for part in (layer.q_proj, layer.k_proj, layer.v_proj))
    base = layer.config.rotary_base
    k, v = (part.repeat_interleave(2, dim=1) for part in (rotate(k, places, base=base), v))
    scores = rotate(q, places, base=base) @ k.mT / 2
    future = torch.ones(5, 5, dtype=torch.bool).triu(1)
    torch.testing.assert_close(weights, scores.masked_fill(future, -math.inf).softmax(dim=-1))
    torch.testing.assert_close(found, layer.out_proj((weights @ v).transpose(1, 2).flatten(2)))
    torch.testing.assert_close(found, layer(x, places))
