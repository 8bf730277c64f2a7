"""The decoder-only model: a language model, equal to GPT-2, and a translator with one stack."""

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F
from transformers import GPT2Config, GPT2LMHeadModel

from transformer_lib.data.tokenizer import BOS, EOS, PAD
from transformer_lib.models.convert import from_hf, to_hf
from transformer_lib.models.gpt import GPT, GPTConfig, GPTTranslator, OneStack
from transformer_lib.models.registry import build_model
from transformer_lib.models.seq2seq import SpecialIds, reorder

SIZES = {"vocab_size": 13, "d_model": 8, "n_heads": 2, "n_layers": 2, "d_ff": 16, "dropout": 0.0, "max_length": 16}
IDS = torch.tensor([[0, 5, 0, 12, 7, 1, 2], [3, 3, 4, 11, 10, 9, 0]])


def build(**options: object) -> GPT:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = GPT(GPTConfig(**SIZES | options)).double().eval()
        with torch.no_grad():
            for weights in model.parameters():
                weights.add_(0.3 * torch.randn_like(weights))
    return model


def gpt2(dtype: torch.dtype = torch.float64, **options: object) -> GPT2LMHeadModel:
    """A small GPT-2 with random weights, biases and norms too."""
    sizes = {"vocab_size": 13, "n_positions": 16, "n_embd": 8, "n_head": 2, "n_layer": 2, "n_inner": 20}
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        model = GPT2LMHeadModel(GPT2Config(**sizes | options, bos_token_id=1, eos_token_id=2)).eval()
        with torch.no_grad():
            for weights in model.parameters():
                weights.add_(0.3 * torch.randn_like(weights))
    return model.to(dtype)


def same(ours: Tensor, theirs: Tensor, tolerance: float = 1e-10) -> None:
    torch.testing.assert_close(ours, theirs, rtol=tolerance, atol=tolerance)


# GPT-2 ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.float64, 1e-10)], ids=str)
def test_the_same_scores_and_gradients_as_gpt2_both_ways(dtype: torch.dtype, tolerance: float, tied: bool) -> None:
    theirs = gpt2(dtype, tie_word_embeddings=tied)
    ours = from_hf(theirs)
    back = to_hf(ours)
    results = []
    for model, scores in ((theirs, theirs(IDS).logits), (ours, ours(IDS)), (back, back(IDS).logits)):
        F.cross_entropy(scores[:, :-1].flatten(0, 1), IDS[:, 1:].flatten()).backward()
        tables = model.embedding if model is ours else model.transformer.wte
        layer = model.layers[0].norm1 if model is ours else model.transformer.h[0].ln_1
        results.append((scores.detach(), tables.weight.grad, layer.weight.grad, layer.bias.grad))
    for other in results[1:]:
        for one, expected in zip(other, results[0], strict=True):
            same(one, expected, tolerance)
    assert {n: p.shape for n, p in back.named_parameters()} == {n: p.shape for n, p in theirs.named_parameters()}


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("activation_function", "relu"),
        ("scale_attn_by_inverse_layer_idx", True),
        ("scale_attn_weights", False),
        ("add_cross_attention", True),
    ],
)
def test_a_gpt2_that_computes_something_else_is_refused(option: str, value: object) -> None:
    with pytest.raises(ValueError, match=option):
        from_hf(gpt2(**{option: value}))


# The laws of a language model -----------------------------------------------------------------------------------------


def test_dropout_acts_in_training_only() -> None:
    model = build(dropout=0.5)
    same(model(IDS), model(IDS), 0)
    assert not model.train()(IDS).equal(model(IDS))


def test_more_tokens_than_positions_are_refused() -> None:
    with pytest.raises(ValueError, match="max_length=16"):
        build()(torch.full((1, 17), 5))


def test_a_mask_and_padding_hide_together() -> None:
    model, changed, mask = build(), IDS.clone(), torch.ones(2, 1, 1, 7).bool()
    mask[..., 3], changed[:, 3], changed[0, 0] = False, 6, 6
    options = {"mask": mask, "padding": torch.tensor([1, 0])}
    one, other = (model.hidden(tokens, **options)[:, 4:] for tokens in (IDS, changed))
    same(one, other)


@pytest.mark.parametrize("kind", ["gpt-lm", "llama-lm"])
def test_of_padded_prompts_the_longest_has_to_fit(kind: str) -> None:
    more = {"n_kv_heads": 1} if kind == "llama-lm" else {}
    model = build_model(kind, SIZES | more | {"max_length": 4, "special": SpecialIds(PAD, None)})
    prompts, token = torch.tensor([[5, 6, 7, 8, 9], [5, PAD, PAD, PAD, PAD]]), torch.tensor([6])
    with pytest.raises(ValueError, match="5 tokens, max_length=4"):
        model.start(prompts)
    _, state = model.start(prompts[:, :4])
    state = reorder(state, torch.tensor([1]))
    for _ in range(3):  # the shorter one has room
        _, state = model.step(token, state)
    with pytest.raises(ValueError, match="5 tokens, max_length=4"):
        model.step(token, state)


# One stack as a translator --------------------------------------------------------------------------------------------

SOURCE = torch.tensor([[5, 6, 7, EOS], [10, EOS, PAD, PAD]])
TARGET = torch.tensor([[BOS, 8, 9], [BOS, 11, 4]])


def test_source_and_target_are_one_text() -> None:
    """A source of half of the positions leaves no gap: the language model reads both as one text."""
    model = build(max_length=8)
    translator = OneStack(model)
    source, target = SOURCE[:1], TARGET[:1]
    joined = torch.cat([source, target], dim=1)
    same(translator(source, target), model(joined)[:, 4:])


def test_target_positions_do_not_depend_on_the_length_of_the_source() -> None:
    """With attention to the source cut off by zero values, only positions could tell two sources apart."""
    translator = OneStack(build())
    for layer in translator.model.layers:
        layer.self_attn.in_proj_weight.data.zero_()
        layer.self_attn.in_proj_bias.data.zero_()
    same(translator(SOURCE[:1], TARGET[:1]), translator(SOURCE[1:, :2], TARGET[:1]), 0)


def test_a_source_of_more_than_half_of_the_positions_is_refused() -> None:
    """Its last words would have the positions of the target."""
    with pytest.raises(ValueError, match="at most 8"):
        GPTTranslator(GPTConfig(**SIZES)).encode(torch.full((1, 9), 5))


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ([[PAD, BOS, 8]], "target begins with padding"),
        ([[BOS, PAD, 8]], "target has padding before a token"),
        ([[BOS, 13]], "target holds token id 13"),
        ([[BOS, *[8] * 8]], "9 target tokens, at most 8"),
    ],
)
def test_targets_are_checked_like_sources(target: list[list[int]], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        OneStack(build())(SOURCE[:1], torch.tensor(target))


def test_a_translation_has_room_for_half_of_the_positions_and_none_need_be_written() -> None:
    translator, token = OneStack(build()), torch.tensor([BOS])
    state = translator.start(SOURCE[:1])
    for _ in range(8):
        _, state = translator.step(token, state)
    with pytest.raises(ValueError, match="9 target tokens, at most 8"):
        translator.step(token, state)
    assert translator(SOURCE[:0], TARGET[:0]).shape == (0, 3, 13)
    assert translator.step(token[:0], translator.start(SOURCE[:0]))[0].shape == (0, 13)
