"""What pages build plainly equals the library: parameter names, logits, translations, for all that is shipped."""

from __future__ import annotations

import ast
import inspect
import math
import os
import random
import sys
from collections import Counter
from collections.abc import Callable
from functools import cache, partial
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import pad, scaled_dot_product_attention
from torch.nn.utils.rnn import pad_sequence

from transformer_lib import Translator, plain
from transformer_lib.data.batching import Batch
from transformer_lib.data.bpe import join_at_random
from transformer_lib.data.captions import make_captions
from transformer_lib.data.everyday import load_everyday
from transformer_lib.data.multi30k import load_multi30k
from transformer_lib.data.tokenizer import PAD, Tokenizer
from transformer_lib.decoding.beam_search import beam_search
from transformer_lib.decoding.greedy import greedy_decode
from transformer_lib.decoding.sampling import sample, sampling_probabilities
from transformer_lib.metrics import bleu, sequence_log_probability
from transformer_lib.models import layers as library
from transformer_lib.models.attention import attention as kernel
from transformer_lib.models.attention import attention_weights
from transformer_lib.models.bahdanau import BahdanauSeq2Seq
from transformer_lib.models.bert import Bert, BertClassifier, BertConfig, mask_tokens
from transformer_lib.models.experts import Experts
from transformer_lib.models.gpt import GPT, GPTConfig
from transformer_lib.models.hard_attention import HardConfig, HardSeq2Seq
from transformer_lib.models.latent_attention import IfThenConfig, IfThenModel
from transformer_lib.models.linear_attention import LinearAttention as FastLinearAttention
from transformer_lib.models.linear_attention import linear_attention
from transformer_lib.models.llama import Llama, LlamaConfig, rotate
from transformer_lib.models.luong import LuongConfig, LuongSeq2Seq
from transformer_lib.models.multi_head import MultiHeadAttention
from transformer_lib.models.recurrent import RecurrentConfig, RecurrentSeq2Seq
from transformer_lib.models.seq2seq import SpecialIds
from transformer_lib.models.sparse_attention import IndexedAttention, Indexer, choose
from transformer_lib.models.transformer import Transformer, TransformerConfig
from transformer_lib.plain import (
    bahdanau,
    bert,
    encoder_decoder,
    experts,
    gpt,
    layers,
    luong,
    mask_predict,
    multi_head,
    positions,
    prediction,
    scale,
    self_attention,
    subwords,
    transformer,
    trust,
)
from transformer_lib.plain import beam_search as plain_search
from transformer_lib.plain import bleu as plain_bleu
from transformer_lib.plain import hard_attention as hard
from transformer_lib.plain import latent_attention as latent
from transformer_lib.plain import linear_attention as linear
from transformer_lib.plain import llama as plain_llama
from transformer_lib.plain import preferences as plain_preferences
from transformer_lib.plain import sampling as plain_sampling
from transformer_lib.plain import sparse_attention as sparse
from transformer_lib.plain import training as plain_training
from transformer_lib.plain import vision_transformer as vision
from transformer_lib.plain.attention import attention as plain_attention
from transformer_lib.plain.deep_translator import DeepTranslator
from transformer_lib.plain.depth import AttentionResiduals, HyperConnections, ManifoldHyperConnections, Residuals
from transformer_lib.plain.flash_attention import Flash
from transformer_lib.training import preferences
from transformer_lib.training.loss import minimum_risk_loss
from transformer_lib.training.trainer import Trainer, TrainingConfig, rate_factor
from transformer_lib.translation.translator import pretrained_names

FILES = sorted(set(Path(next(iter(plain.__path__))).glob("*.py")) - {Path(plain.__file__)})


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_plain_file_is_short_and_needs_torch_alone(path):
    text = path.read_text(encoding="utf-8")
    _, _, code = text.partition("__all__ = [")[2].partition("]")  # what the page shows
    code = code or text
    assert sum(bool(line) and not line.startswith("#") for line in map(str.strip, code.splitlines())) <= 120
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            found = {name.name.split(".")[0] for name in node.names}
            assert found <= {"torch", *sys.stdlib_module_names}
        if isinstance(node, ast.ImportFrom):
            first = (node.module or "").split(".")[0]
            assert first in {"torch", *sys.stdlib_module_names} or node.module.startswith("transformer_lib.plain")


def sources(name: str) -> list[str]:
    """Fifty test sentences of a shipped translator."""
    if name.startswith("captions"):
        return [pair.source for pair in make_captions(1500, 0, simple=0.2)[500:550]]
    if name.startswith("everyday"):
        return [pair.source for pair in load_everyday("test")[:50]]
    return [pair.source for pair in load_multi30k("test_2016_flickr", *name.split("-")[1:3])[:50]]


@cache
def shipped(name: str) -> tuple[Translator, Tensor]:
    """A translator, and fifty test sentences as it reads them."""
    ours = Translator.from_pretrained(name, device="cpu")
    texts = [ours.text.prepare(text, ours.source_tokenizer) for text in sources(name)]
    return ours, pad_sequence([torch.tensor([*ours.source_tokenizer.encode(text), 2]) for text in texts], True)


def cut(rows: Tensor) -> list[list[int]]:
    """Each row up to its end."""
    return [[*row, 2][: [*row, 2].index(2) + 1] for row in rows.tolist()]


def read_again(written: Tensor) -> Tensor:
    """What was written, behind BOS and up to its end, to be read by teacher forcing."""
    target = torch.cat([torch.ones(len(written), 1, dtype=torch.long), written], 1)[:, :-1]
    return target.masked_fill((target == 2).cumsum(1) - (target == 2).long() > 0, 0)


@torch.no_grad()
def differ_by(model: nn.Module, ours: nn.Module, source: Tensor, target: Tensor) -> Tensor:
    """How far the logits are from each other, in double precision."""
    difference = (model.double()(source, target) - ours.double()(source, target))[target != 0]
    ours.float()
    return difference.abs().max()


# ---- Every model of a page ----


def plain_transformer(c: TransformerConfig) -> transformer.Transformer:
    sizes = c.source_vocab_size, c.target_vocab_size, c.d_model, c.n_heads, c.d_ff
    options = {"dropout": c.dropout, "norm_first": c.norm_first, "shared": c.tie_embeddings == "all"}
    return transformer.Transformer(*sizes, c.n_encoder_layers, c.n_decoder_layers, **options)


def recurrent(kind: type[nn.Module]) -> Callable[[RecurrentConfig], nn.Module]:
    return lambda c: kind(c.source_vocab_size, c.target_vocab_size, c.d_model, c.d_hidden)


def plain_luong(c: LuongConfig) -> luong.Luong:
    model = recurrent(luong.Luong)(c)
    if c.score == "general":
        model.attention = luong.Attention(luong.General(c.d_hidden))
    return model


def plain_llama_of(c: LlamaConfig) -> plain_llama.Llama:
    sizes = c.vocab_size, c.d_model, c.n_heads, c.n_kv_heads, c.d_ff, c.n_layers
    return plain_llama.Llama(*sizes, base=c.rotary_base, window=c.window, eps=c.eps, tied=c.tie_embeddings)


PLAIN = {  # what the page builds, of the same sizes
    RecurrentSeq2Seq: recurrent(encoder_decoder.EncoderDecoder),
    BahdanauSeq2Seq: recurrent(bahdanau.Bahdanau),
    LuongSeq2Seq: plain_luong,
    Transformer: plain_transformer,
    GPT: lambda c: gpt.GPT(c.vocab_size, c.d_model, c.n_heads, c.n_layers, c.max_length, c.d_ff),
    Llama: plain_llama_of,
    HardSeq2Seq: lambda c: hard.HardTranslator(
        c.source_vocab_size, c.target_vocab_size, READS[c.estimator], c.d_model, c.d_hidden
    ),
    Bert: lambda c: bert.Bert(c.vocab_size, c.d_model, c.n_heads, c.n_layers, c.d_ff, c.max_length, c.dropout),
}
READS = {"gumbel": "straight-through", "reinforce": "reinforce"}


def plain_of(ours: nn.Module) -> nn.Module:
    return PLAIN[type(ours)](ours.config)


RECURRENT = {"d_model": 32, "d_hidden": 48, "dropout": 0.0}
TRANSFORMER = {"d_model": 32, "n_heads": 4, "d_ff": 64, "n_encoder_layers": 1, "n_decoder_layers": 2, "dropout": 0.0}
GPT_SIZES = {"max_length": 16, "dropout": 0.0, "special": SpecialIds(None, None, (), None, ())}
LLAMA = {"d_model": 32, "n_heads": 4, "d_ff": 48, "n_layers": 2, "rotary_base": 700.0, "max_length": 60, "eps": 1e-3}
HARD = {"input_feeding": False, "entropy_weight": 0.3}
MODELS = {  # the library's
    "one vector": (RecurrentSeq2Seq, RecurrentConfig(40, 40, **RECURRENT)),
    "Bahdanau": (BahdanauSeq2Seq, RecurrentConfig(40, 40, **RECURRENT)),
    "Luong, dot": (LuongSeq2Seq, LuongConfig(40, 40, **RECURRENT, score="dot")),
    "Luong, general": (LuongSeq2Seq, LuongConfig(40, 40, **RECURRENT, score="general")),
    "straight-through": (HardSeq2Seq, HardConfig(40, 40, **RECURRENT, **HARD, estimator="gumbel")),
    "reinforce": (HardSeq2Seq, HardConfig(40, 40, **RECURRENT, **HARD, estimator="reinforce")),
    "Transformer": (Transformer, TransformerConfig(40, 40, **TRANSFORMER, tie_embeddings="all")),
    "Transformer, norm first": (
        Transformer,
        TransformerConfig(40, 40, **TRANSFORMER, tie_embeddings="target", norm_first=True),
    ),
    "GPT": (GPT, GPTConfig(40, d_model=32, n_heads=4, n_layers=2, **GPT_SIZES)),
    "GPT, narrow": (GPT, GPTConfig(40, d_model=12, n_heads=3, n_layers=1, d_ff=20, **GPT_SIZES)),
    "BERT": (Bert, BertConfig(40, d_model=48, n_heads=4, n_layers=2, d_ff=64, max_length=9, dropout=0.0)),
    "Llama, one key": (Llama, LlamaConfig(40, **LLAMA, n_kv_heads=1, window=3)),
    "Llama, tied": (Llama, LlamaConfig(40, **LLAMA, n_kv_heads=2, tie_embeddings=True)),
    "Llama, tied, with a window": (Llama, LlamaConfig(40, **LLAMA, n_kv_heads=4, tie_embeddings=True, window=3)),
}


def made(name: str) -> nn.Module:
    """One of these, which draws nothing."""
    torch.manual_seed(0)
    kind, config = MODELS[name]
    return kind(config).train(kind not in (HardSeq2Seq, Bert))  # Bert has a dropout of its attention


# what begins in another way: small biases, the last layer of a baseline, and in a GPT what is added to residuals
OTHER_START = {GPT: ("out_proj.bias", "feed_forward"), Transformer: (), Bert: (), BertClassifier: ()}


def alike(model: nn.Module, ours: nn.Module, *calls: tuple[Any, ...], atol: float = 1e-9, rtol: float = 1e-6) -> None:
    """The names of the weights and their first spread are the same; with equal ones, so are outputs and gradients."""
    assert {*dict(model.named_parameters())} == {*dict(ours.named_parameters())}
    state, other = model.state_dict(), OTHER_START.get(type(ours), ("output.bias", "baseline.2"))
    for name, weight in ours.state_dict().items():
        if any(part in name for part in other):
            continue
        if (weight == weight.flatten()[0]).all():  # zeros, or the ones of a norm
            torch.testing.assert_close(state[name], weight)
        else:  # up to chance
            torch.testing.assert_close(state[name].std(), weight.std(), rtol=0.05 + 3 / weight.numel() ** 0.5, atol=0)
    for weight in ours.parameters():
        weight.data += 0.1 * torch.randn_like(weight)
    model.load_state_dict(ours.state_dict())
    for one in (model.double(), ours.double()):
        one.zero_grad()
    for arguments in calls:
        options = arguments[-1] if isinstance(arguments[-1], dict) else {}
        results = [one(*arguments[: len(arguments) - bool(options)], **options) for one in (model, ours)]
        torch.testing.assert_close(*results, atol=atol, rtol=rtol)
        for result in results:
            parts = [result] if isinstance(result, Tensor) else result
            sum(part.logsumexp(-1).sum() for part in parts).backward()
    expected = {name: weight.grad for name, weight in ours.named_parameters()}
    for name, weight in model.named_parameters():
        torch.testing.assert_close(weight.grad, expected[name], atol=atol, rtol=rtol, msg=name)


SOURCE, TARGET = torch.tensor([[4, 9, 7, 5, 2], [8, 6, 2, 0, 0]]), torch.tensor([[1, 11, 12, 13], [1, 14, 15, 2]])
WORDS = torch.tensor([[1, 5, 39, 7, 9, 2], [1, 9, 4, 2, 0, 0]])
SEGMENTS = torch.tensor([[0, 0, 0, 1, 1, 1], [0, 0, 1, 1, 0, 0]])
CAUSAL = (WORDS != 0)[:, None, None] & torch.ones(6, 6, dtype=torch.bool).tril()
CALLS = {  # what a model reads; a dictionary holds its options
    GPT: [(torch.randint(40, (3, 16), generator=torch.Generator().manual_seed(0)),)],
    Llama: [(torch.randint(3, 40, (2, 40), generator=torch.Generator().manual_seed(0)),)],
    Bert: [(WORDS,), (WORDS, {"segments": SEGMENTS}), (WORDS, {"mask": CAUSAL})],
}


@pytest.mark.parametrize("name", MODELS)
def test_the_model_of_a_page_is_the_librarys(name: str) -> None:
    ours = made(name)
    model, calls = plain_of(ours).train(ours.training), CALLS.get(type(ours), [(SOURCE, TARGET)])
    single = isinstance(ours, (Transformer, Llama))  # positions are computed in single precision
    alike(model, ours, *calls, **({"atol": 1e-4, "rtol": 1e-3} if single else {}))


def test_the_classifier_of_a_page_is_the_librarys() -> None:
    ours = BertClassifier(made("BERT"), 3).eval()
    alike(bert.BertClassifier(plain_of(ours.bert), 3).eval(), ours, (WORDS,), (WORDS, {"segments": SEGMENTS}))


@pytest.mark.parametrize("name", pretrained_names())
def test_the_translator_of_a_page_loads_what_is_shipped(name: str, request: pytest.FixtureRequest) -> None:
    """Names, logits, translations, and the weights of each alignment."""
    if not name.startswith("captions"):
        request.getfixturevalue("data_directory")
    ours, source = shipped(name)
    model, source = plain_of(ours.model).eval(), source if os.environ.get("CI") else source[::3]
    model.load_state_dict(ours.model.state_dict())
    assert {*dict(model.named_parameters())} == {*dict(ours.model.named_parameters())}
    aligns = isinstance(ours.model, (BahdanauSeq2Seq, LuongSeq2Seq))
    recurs = encoder_decoder if isinstance(ours.model, RecurrentSeq2Seq) and not aligns else bahdanau
    translate = transformer.translate if isinstance(ours.model, Transformer) else recurs.translate
    written = translate(model, source, max_length=50)
    written, maps = written if aligns else (written, None)
    assert cut(written) == cut(greedy_decode(ours.model, source, max_length=50))
    target = read_again(written)
    if aligns:
        ended = (target == 0)[..., None]
        with torch.no_grad():
            expected = ours.model.align(source, target).masked_fill(ended, 0)
        torch.testing.assert_close(maps.masked_fill(ended, 0), expected, atol=1e-5, rtol=0)
    assert differ_by(model, ours.model, source, target) < 1e-5


# ---- Self-attention ----


def test_plain_self_attention_is_one_head_of_the_librarys_layer():
    """With the scale taken back, no bias, and an output projection that changes nothing."""
    torch.manual_seed(0)
    layer, theirs = self_attention.SelfAttention(8, 8).double(), MultiHeadAttention(8, 1).double()
    parts = [layer.query.weight * 8**0.5, layer.key.weight, layer.value.weight]
    with torch.no_grad():
        theirs.in_proj_weight.copy_(torch.cat(parts))
        theirs.out_proj.weight.copy_(torch.eye(8))
    x, mask = torch.randn(3, 5, 8).double(), torch.rand(3, 5, 5) > 0.3
    mask[:, :, 0] = True
    outputs, weights = layer(x, mask)
    torch.testing.assert_close(outputs, theirs(x, mask=mask[:, None]))
    torch.testing.assert_close(weights @ layer.value(x), outputs)
    for row in range(3):  # and word by word
        one, alone = self_attention.self_attention(x[row], *(part.weight.T for part in layer.children()))
        torch.testing.assert_close(one, layer(x[row : row + 1], mask[row : row + 1] | True)[0][0])
        torch.testing.assert_close(alone.sum(-1), torch.ones(5).double())


# ---- Scaled dot products, and what the scale does ----


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("lead", [(), (3,), (2, 4)], ids=str)
def test_plain_attention_equals_the_librarys_kernel_and_its_formula(lead, dtype):
    """With and without a mask, and with axes in front; a mask of ones is no mask."""
    rng = torch.Generator().manual_seed(0)
    q, k, v = (torch.randn(*lead, n, d, generator=rng).to(dtype) for n, d in ((5, 8), (7, 8), (7, 6)))
    mask = torch.rand(5, 7, generator=rng) > 0.4
    mask[:, 0] = True
    close = partial(torch.testing.assert_close, **({"atol": 0.02, "rtol": 0.02} if dtype == torch.bfloat16 else {}))
    for one in (None, mask):
        got = plain_attention(q, k, v, one)
        close(got, attention_weights(q, k, one) @ v)
        if lead:
            close(got, kernel(q, k, v, one))
        close(got, scaled_dot_product_attention(q, k, v, one))
    close(plain_attention(q, k, v, mask | True), plain_attention(q, k, v))


def test_a_scale_is_a_small_start_with_small_steps():
    """With plain Adam, the two learn the same, up to its epsilon."""
    root = 64**-0.5
    options = {"rate": 0.02, "width": 64, "updates": 40, "seed": 3}
    scaled = scale.learn(root, **options)
    assert scaled == pytest.approx(scale.learn(1.0, root, query_rate=root, **options), abs=1e-3)
    assert abs(scaled - scale.learn(1.0, root, **options)) > 0.02
    assert abs(scaled - scale.learn(1.0, query_rate=root, **options)) > 0.2


# ---- Positional encoding ----


@pytest.mark.parametrize(("length", "width"), [(1, 2), (7, 6), (96, 64), (50, 512)])
def test_the_page_s_sinusoids_are_the_library_s(length, width):
    """Up to single precision, in which the page computes angles; added to words, too."""
    expected = library.sinusoids(length, width)
    torch.testing.assert_close(positions.sinusoids(length, width), expected, atol=1e-5, rtol=0)
    torch.testing.assert_close(transformer.sinusoids(length, width), expected, atol=1e-5, rtol=0)
    x = torch.randn(2, length, width)
    added = library.SinusoidalPositions(width, max_length=length)(x)
    torch.testing.assert_close(added, x + positions.sinusoids(length, width), atol=1e-5, rtol=0)


def test_the_page_s_learned_positions_load_the_library_s():
    ours, model = library.LearnedPositions(8, 20), positions.LearnedPositions(8, 20)
    torch.testing.assert_close(model.table.std(), ours.table.std(), rtol=0.3, atol=0)
    model.load_state_dict(ours.state_dict())
    x = torch.randn(2, 6, 8)
    for start in (0, 5, 14):
        assert torch.equal(model(x, start), ours(x, start))


@pytest.mark.parametrize("start", [0, 1, 40])
def test_the_page_turns_queries_and_keys_as_the_library_does(start):
    x = torch.randn(2, 3, 5, 8)
    expected = rotate(x, torch.arange(start, start + 5), interleaved=True)
    torch.testing.assert_close(positions.rotate(x, start), expected, atol=1e-5, rtol=0)


# ---- Residual connections, layer norm and feed-forward layers ----


def test_the_page_s_feed_forward_layer_and_norm_load_the_library_s():
    for ours, model in (
        (library.FeedForward(8, 32), layers.FeedForward(8, 32)),
        (library.LayerNorm(8, eps=1e-3), layers.LayerNorm(8, eps=1e-3)),
    ):
        if isinstance(ours, library.FeedForward):
            torch.testing.assert_close(model.linear1.weight.std(), ours.linear1.weight.std(), rtol=0.2, atol=0)
        for weight in ours.parameters():
            torch.nn.init.normal_(weight)
        model.load_state_dict(ours.state_dict())
        x = torch.randn(2, 3, 8)
        torch.testing.assert_close(model(x), ours(x), atol=1e-5, rtol=1e-5)
        assert model(torch.full((8,), 3.0)).isfinite().all()


@pytest.mark.parametrize("norm_first", [False, True])
def test_the_page_s_encoder_layer_loads_the_plain_transformer_s_and_the_library_s(norm_first):
    """Those of the whole model have the same names, and give the same vectors, padding included."""
    config = TransformerConfig(11, 11, d_model=8, n_heads=2, d_ff=16, norm_first=norm_first, dropout=0.0)
    ours = Transformer(config).double().encoder.layers[0]
    for weight in ours.parameters():
        torch.nn.init.normal_(weight, std=0.5)
    model = layers.EncoderLayer(8, 2, 16, 0.0, norm_first).double()
    other = transformer.EncoderLayer(8, 2, 16, 0.0, norm_first).double()
    model.load_state_dict(ours.state_dict())
    other.load_state_dict(model.state_dict())
    x, mask = torch.randn(2, 4, 8).double(), torch.tensor([[True] * 4, [True, True, False, False]])[:, None, None]
    torch.testing.assert_close(model(x, mask), ours(x, mask), atol=1e-10, rtol=0)
    torch.testing.assert_close(model(x, mask), other(x, mask), atol=1e-10, rtol=0)


# ---- Multi-head attention ----


def test_the_transformers_plain_attention_is_that_of_its_own_page():
    """One plain class, not two that differ."""
    assert inspect.getsource(transformer.Attention) == inspect.getsource(multi_head.Attention)


# ---- All words at once, and attention over depth ----


def rows(*lengths, seed=0):
    """Random words, filled up."""
    generator = torch.Generator().manual_seed(seed)
    words = torch.randint(4, 20, (len(lengths), max(lengths)), generator=generator)
    return words.masked_fill(torch.arange(max(lengths)) >= torch.tensor(lengths)[:, None], PAD)


def test_of_equally_certain_words_the_same_are_hidden_beside_longer_sentences():
    class Sure(nn.Module):
        def read(self, source):
            lengths = nn.functional.one_hot((source != PAD).sum(1), 64)
            return source[..., None].float(), lengths.float()

        def write(self, memory, source, tokens):  # a word is the number of those that are hidden before it
            return 99.0 * nn.functional.one_hot(4 + (tokens == mask_predict.MASK).cumsum(1), 64)

    source = rows(5, 12, 40)
    together = mask_predict.mask_predict(Sure(), source, 4, n_lengths=1)
    for row, words in zip(source, together, strict=True):
        alone = mask_predict.mask_predict(Sure(), row[row != PAD][None], 4, n_lengths=1)[0]
        assert torch.equal(words[words != PAD], alone)


WIRINGS = {
    "residuals": Residuals,
    "attention": lambda: AttentionResiduals(6, 8),
    "hyper": lambda: HyperConnections(6, 3),
    "manifold": lambda: ManifoldHyperConnections(6, 3),
}


def deep(wiring, **changed):
    """Three layers of width 8."""
    torch.manual_seed(0)
    sizes = {"d_model": 8, "n_heads": 2, "n_layers": 3, "dropout": 0.0} | changed
    return DeepTranslator(20, WIRINGS[wiring](), **sizes)


@pytest.mark.parametrize("wiring", WIRINGS)
def test_every_wiring_begins_as_plain_residuals(wiring):
    source, target = rows(5, 3), rows(4, 6, seed=1)
    torch.testing.assert_close(deep(wiring)(source, target), deep("residuals")(source, target), atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("wiring", WIRINGS)
def test_a_deep_translator_sees_the_source_and_no_later_word(wiring):
    model, source, target = deep(wiring), rows(5, 3), rows(4, 6, seed=1)
    for parameter in model.wiring.parameters():
        torch.nn.init.normal_(parameter)
    logits = model(source, target)
    later, other = target.clone(), source.clone()
    later[1, 4] = other[1, 2] = 19 if target[1, 4] != 19 != source[1, 2] else 18
    changed = model(source, later)
    torch.testing.assert_close(changed[1, :4], logits[1, :4])
    assert not torch.allclose(changed[1, 4], logits[1, 4]) and not torch.allclose(model(other, target)[1], logits[1])
    padded = pad(source, (0, 3)), pad(target, (0, 2))
    torch.testing.assert_close(model(*padded)[:, :6], logits, atol=1e-5, rtol=1e-4)


def test_a_source_that_would_take_the_positions_of_its_target_is_refused():
    with pytest.raises(ValueError, match="65 source tokens, at most 64"):
        deep("residuals")(rows(65, 3), rows(4, 6))


def test_value_residuals_change_later_layers_only():
    source, target = rows(5, 3), rows(4, 6, seed=1)
    for n_layers, same in ((1, True), (2, False)):
        logits = [deep("residuals", n_layers=n_layers, value_residual=kind)(source, target) for kind in (False, True)]
        assert torch.allclose(*logits, atol=1e-6) == same
    model = deep("residuals", value_residual=True)
    for attention in model.sublayers[::2]:
        torch.nn.init.ones_(attention.share)  # only its own
    torch.testing.assert_close(model(source, target), deep("residuals")(source, target))


# ---- Beam search and sampling ----

SEARCHES = [(1, 0.0), (2, 0.0), (3, 1.0), (5, 0.6)]  # widths and length penalties
N_SEARCHED = 10 if os.environ.get("CI") else 2  # sentences; captions with every search


@pytest.mark.slow
@pytest.mark.parametrize("name", pretrained_names())
def test_plain_searches_translate_as_the_library_does(name: str, request) -> None:
    if not name.startswith("captions"):
        request.getfixturevalue("data_directory")
    ours, source = shipped(name)
    model, small = ours.model, name.startswith("captions")
    for row in source[:: len(source) // N_SEARCHED]:
        row = row[None, row != PAD]
        (written,) = greedy_decode(model, row, max_length=30).tolist()
        assert plain_search.greedy(model, row, 30) == tuple(written)
        for width, penalty in SEARCHES if small else SEARCHES[2:3]:
            words, total = plain_search.beam_search(model, row, width, penalty, 20)
            options = {"beam_size": width, "length_penalty": penalty, "max_length": 20, "lookahead": None}
            found = beam_search(model, row, **options)
            assert words == tuple(token for token in found.tokens[0, 0].tolist() if token != PAD)
            assert total == pytest.approx(found.log_probs[0, 0].item(), abs=1e-4)


SHAPES = [{}, {"temperature": 0.3}, {"temperature": 3.0}, {"top_k": 1}, {"top_k": 3}, {"top_p": 0.5}, {"top_p": 0.95}]
SHAPES += [{"temperature": 0.7, "top_k": 4, "top_p": 0.8}]


@pytest.mark.parametrize("options", SHAPES, ids=str)
def test_both_draw_from_the_same_probabilities(options: dict) -> None:
    logits = 3 * torch.randn(40, 9, generator=torch.Generator().manual_seed(0))
    logits[:, 2] = -math.inf
    logits[0] = 0.0  # ties
    mine, theirs = plain_sampling.probabilities(logits, **options), sampling_probabilities(logits, **options)
    torch.testing.assert_close(mine[1:], theirs[1:])
    assert ((mine > 0) == (theirs > 0))[1:].all()  # nor does either cut off more
    torch.testing.assert_close(mine[0].sort().values, theirs[0].sort().values)


def test_plain_samples_of_one_row_are_those_of_the_library() -> None:
    translator, source = shipped("captions-en-de")
    for seed, row in enumerate(source[:4]):
        row, options = row[None, row != PAD], {"temperature": 1.5, "top_p": 0.95, "max_length": 20}
        mine, theirs = (
            draw(translator.model, row, generator=torch.Generator().manual_seed(seed), **options)
            for draw in (plain_sampling.sample, sample)
        )
        assert torch.equal(mine, theirs)


# ---- Translation as prediction ----


@pytest.mark.parametrize("name", ["captions-en-de", "multi30k-de-en-one-vector"])
def test_plain_translation_of_one_sentence_is_greedy_search(name, request):
    if not name.startswith("captions"):
        request.getfixturevalue("data_directory")
    ours, source = shipped(name)
    written = cut(greedy_decode(ours.model, source[:10], max_length=30))
    for row, expected in zip(source[:10], written, strict=True):
        found = prediction.translate(ours.model, row[row != PAD].tolist(), longest=30)
        assert found == [token for token in expected if token > 2]


# ---- Hard attention ----


@pytest.mark.parametrize("name", ["straight-through", "reinforce"])
def test_hard_attention_learns_from_the_same_draws_as_the_librarys(name: str) -> None:
    ours = made(name)
    model = plain_of(ours)
    for weight in ours.parameters():
        weight.data += 0.2 * torch.randn_like(weight)
    model.load_state_dict(ours.state_dict())
    for one in (model.train(), ours.train()):
        torch.manual_seed(1)
        (one.loss(SOURCE, TARGET, 0.3) if one is model else one.loss(Batch(SOURCE, TARGET)).mean).backward()
    theirs = dict(ours.named_parameters())
    for key, mine in model.named_parameters():
        torch.testing.assert_close(mine.grad, theirs[key].grad, atol=1e-6, rtol=1e-4)


def test_soft_attention_is_luongs() -> None:
    torch.manual_seed(0)
    ours = LuongSeq2Seq(LuongConfig(40, 40, score="general", input_feeding=False, **RECURRENT))
    alike(hard.HardTranslator(40, 40, "soft", 32, 48), ours, (SOURCE, TARGET))


# ---- Latent attention ----


@pytest.mark.parametrize("kind", ["latent", "plain"])
def test_plain_latent_attention_is_the_librarys(kind: str) -> None:
    torch.manual_seed(0)
    ours = IfThenModel(IfThenConfig(300, (7, 5), "dictionary", kind, d_model=48, dropout=0.1)).eval()
    attention = latent.LatentAttention(48, 2) if kind == "latent" else latent.OneStep(48, 2)
    tokens = torch.tensor([[4, 9, 7, 5, 2], [8, 6, 2, 0, 0], [299, 2, 0, 0, 0]])
    alike(latent.IfThen(300, (7, 5), attention, d_model=48).eval(), ours, (tokens,))


def test_no_choice_of_weights_reads_four_short_sentences_in_one_step() -> None:
    """The page's proof: with positions, the numerators of two mirrored pairs of sentences have the same sum."""
    torch.manual_seed(0)
    place, one = latent.AddPositions(8).double(), latent.OneStep(8, 1).double()
    words, v = torch.randn(4, 8).double(), torch.randn(8).double()  # photos, files, to, from

    def numerator(*line: int) -> Tensor:
        x = place(words[list(line)][None], None)
        return ((one.query @ x.mT).exp()[0, 0] * (x @ v)[0]).sum()

    photos, files = numerator(0, 2, 1) + numerator(1, 3, 0), numerator(0, 3, 1) + numerator(1, 2, 0)
    torch.testing.assert_close(photos, files)


# ---- BERT ----


def test_plain_masks_hide_the_same_words() -> None:
    rows = torch.randint(0, 39, (40, 12), generator=torch.Generator().manual_seed(0))
    plain_rng, rng = (torch.Generator().manual_seed(1) for _ in range(2))
    for mine, theirs in zip(bert.mask_tokens(rows, 39, rng=plain_rng), mask_tokens(rows, 39, rng=rng), strict=True):
        assert torch.equal(mine, theirs)


# ---- Vision transformers ----


def test_the_plain_vision_transformer_is_hugging_faces() -> None:
    """Outputs and gradients, with their weights under our names."""
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "num_attention_heads": 4, "intermediate_size": 48, "num_hidden_layers": 2}
    config = transformers.ViTConfig(image_size=8, patch_size=2, num_channels=1, **sizes)
    theirs = transformers.ViTModel(config, add_pooling_layer=False).double().eval()
    for weight in theirs.parameters():
        weight.data += 0.1 * torch.randn_like(weight)
    names = {
        "self_attn.out_proj": "attention.o_proj", "feed_forward.linear1": "mlp.fc1", "feed_forward.linear2": "mlp.fc2",
        "norm1": "layernorm_before", "norm2": "layernorm_after", "class_token": "embeddings.cls_token",
        "positions": "embeddings.position_embeddings", "patch.": "embeddings.patch_embeddings.projection.",
    }  # fmt: skip
    model, weights = vision.VisionTransformer(2, 16, 10, 32, 4, 2, 48).double().eval(), theirs.state_dict()

    def find(name: str) -> Tensor:
        if "in_proj_" in name:
            start, kind = name.split("self_attn.in_proj_")
            return torch.cat([weights[f"{start}attention.{one}_proj.{kind}"] for one in "qkv"])
        for ours, other in names.items():
            name = name.replace(ours, other)
        return weights[f"layernorm{name.removeprefix('norm')}" if name.startswith("norm.") else name]

    state = model.state_dict()
    heads = {name: weight for name, weight in state.items() if name.startswith("head.")}
    model.load_state_dict({name: find(name).view(state[name].shape) for name in state if name not in heads} | heads)
    images = torch.rand(5, 8, 8).double().requires_grad_()
    twins = images.detach().clone().requires_grad_()
    found, expected = model.encode(images), theirs(twins[:, None]).last_hidden_state
    torch.testing.assert_close(found, expected, atol=1e-10, rtol=0)
    found.tanh().square().sum().backward()
    expected.tanh().square().sum().backward()
    torch.testing.assert_close(images.grad, twins.grad, atol=1e-10, rtol=0)


# ---- Linear attention ----


@pytest.mark.parametrize("n_heads", [1, 3])
@pytest.mark.parametrize("rule", ["sum", "decay", "delta", "gated"])
def test_plain_linear_attention_is_the_librarys_word_by_word(rule: str, n_heads: int) -> None:
    torch.manual_seed(0)
    fast = FastLinearAttention(12, n_heads, rule=rule, d_key=5, d_value=5)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        mine = linear.LinearAttention(12, n_heads, rule=rule, d_head=5)
    for name, weights in fast.state_dict().items():  # they begin alike, too
        torch.testing.assert_close(mine.state_dict()[name], weights, atol=0, rtol=0)
    fast.gates.weight.data.normal_()
    mine.load_state_dict(fast.state_dict())
    x = torch.randn(2, 70, 12, requires_grad=True)  # more than one of the library's chunks
    for found, expected in zip(*(gradients_of(layer, x) for layer in (mine, fast)), strict=True):
        torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-4)


def gradients_of(layer: torch.nn.Module, x: Tensor) -> tuple[Tensor, ...]:
    """Outputs, and the gradients of their squares by the input and all weights."""
    y = layer(x)
    y = y[0] if isinstance(y, tuple) else y
    return y, *torch.autograd.grad(y.square().mean(), (x, *layer.parameters()))


def test_the_forms_of_linear_attention_are_the_librarys() -> None:
    q, k, v = (torch.randn(20, n) for n in (4, 4, 5))
    beta, unit = torch.rand(20), torch.nn.functional.normalize(k, dim=-1)
    expected, _ = linear_attention(q, k, v)
    for found in (linear.recurrent(q, k, v), linear.parallel(q, k, v), linear.chunked(q, k, v, 6)):
        torch.testing.assert_close(found, expected, atol=1e-4, rtol=1e-4)
    expected, _ = linear_attention(q, unit, v, beta=beta, delta=True)
    torch.testing.assert_close(linear.delta_rule(q, unit, v, beta), expected, atol=1e-5, rtol=1e-4)


# ---- Sparse attention ----


def numbers(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("k", [1, 3, 7, 9])
def test_both_choose_the_same(k: int) -> None:
    scores, mask = numbers(4, 5, 7).round(), numbers(5, 7, seed=1) > 0  # rounded: many are equal
    scores[0, 0, 2] = -torch.inf
    for allowed in (None, mask):
        assert torch.equal(sparse.choose(scores, k, allowed), choose(scores, k, allowed))


@pytest.mark.parametrize("k", [None, 1, 3])
def test_plain_indexed_attention_loads_the_librarys(k: int | None) -> None:
    theirs = IndexedAttention(8, 2, Indexer(8, n_heads=3, width=4), k)
    mine = sparse.IndexedAttention(8, 2, sparse.Indexer(8, n_heads=3, width=4), k)
    mine.load_state_dict(theirs.state_dict())
    x = numbers(2, 9, 8)
    for found, expected in zip(mine.pick(x), theirs.pick(x), strict=True):
        torch.testing.assert_close(found, expected)
    torch.testing.assert_close(mine(x), theirs(x), atol=1e-5, rtol=1e-5)
    losses = [layer.index_loss(x) for layer in (mine, theirs)]
    torch.testing.assert_close(*losses, atol=1e-5, rtol=1e-5)
    found, expected = (
        torch.autograd.grad(loss, tuple(layer.indexer.parameters()))
        for loss, layer in zip(losses, (mine, theirs), strict=True)
    )
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-4)


# ---- Mixture of experts ----


@pytest.mark.parametrize("k", [1, 2, 5])
def test_plain_experts_load_the_librarys(k: int) -> None:
    theirs, mine = Experts(6, 4, n=5, k=k), experts.Experts(6, 4, n=5, k=k)
    mine.load_state_dict(theirs.state_dict())
    x = numbers(2, 9, 6).requires_grad_()
    for step in (0.5, 0.1):  # the second time with biases
        found, expected = (gradients_of(layer, x) for layer in (mine, theirs))
        torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-4)
        for layer in (mine, theirs):
            layer.balance(layer.route(x.flatten(0, 1))[1], step)
        assert torch.equal(mine.bias, theirs.bias) and mine.bias.any() == (k < 5)


# ---- Today's layer, 2026 ----


@pytest.mark.parametrize("name", [one for one in MODELS if one.startswith("Llama")])
def test_the_plain_llama_writes_the_library_s_text(name: str) -> None:
    theirs = made(name).eval()
    ours = plain_of(theirs)
    ours.load_state_dict(theirs.state_dict())
    prompt = torch.randint(3, 40, (1, 5))
    prompt[:, 0] = theirs.config.special.bos
    written = plain_llama.write(ours, prompt, 20)
    logits, state = theirs.start(prompt[:, 1:])  # which puts the beginning in front, and keeps a cache
    for token in written[:, 5:].unbind(1):
        assert token.equal(logits.argmax(-1))
        logits, state = theirs.step(token, state)
    assert plain_llama.write(ours, prompt, 20, end=written[0, 8].item()).shape[1] <= 9


# ---- FlashAttention ----


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("size", [1, 7, 32, 100])
def test_attention_in_tiles_has_the_results_and_gradients_of_the_librarys(size, dtype):
    torch.manual_seed(0)
    q, k, v = (torch.randn(n, w).to(dtype).requires_grad_() for n, w in ((33, 8), (50, 8), (50, 5)))
    ours, expected = Flash.apply(q, k, v, size), kernel(q[None, None], k[None, None], v[None, None])[0, 0]
    g = torch.randn(33, 5).to(dtype)
    tolerance = {"atol": 1e-12 if dtype == torch.float64 else 1e-5, "rtol": 0}
    torch.testing.assert_close(ours, expected, **tolerance)
    for found, right in zip(*(torch.autograd.grad(x, (q, k, v), g) for x in (ours, expected)), strict=True):
        torch.testing.assert_close(found, right, **tolerance)


# ---- Subword tokenization ----


@pytest.mark.parametrize("name", [one for one in pretrained_names() if not one.startswith("captions")])
def test_plain_pieces_are_those_of_every_shipped_translator(name):
    tokenizer = shipped(name)[0].source_tokenizer
    vocabulary = [*sorted(subwords.BYTES), *map("".join, tokenizer.merges)]
    ids = {piece: 4 + i for i, piece in enumerate(dict.fromkeys(vocabulary))}
    assert tuple(ids) == tokenizer.pieces
    rng = random.Random(name)
    odd = [*map(chr, range(32, 600)), *"\t\n\r\u3000我在 🐕\u0301²½Ⅷ"]
    texts = [*sources(name), *("".join(rng.choices(odd, k=rng.randint(0, 40))) for _ in range(200))]
    for text in texts:
        pieces = subwords.cut(text, tokenizer.merges)
        assert [ids[piece] for piece in pieces] == tokenizer.encode(text)
        assert subwords.text_of(pieces) == text == tokenizer.decode([ids[piece] for piece in pieces])


def test_plain_merges_are_those_that_the_library_learns():
    for seed in range(3):
        texts = [one.target for one in make_captions(300, seed=seed)]
        counts = Counter(word for text in texts for word in subwords.words(text))
        learned = Tokenizer.train(texts, 4 + 256 + 120)
        assert subwords.learn_merges(counts, 120) == list(learned.merges)
    assert subwords.learn_merges({"ab": 2}, 9) == [("a", "b")]


@pytest.mark.parametrize("skip", [0.0, 0.1, 0.5, 0.9])
def test_plain_cuts_at_random_are_those_of_the_library(skip):
    tokenizer = Tokenizer.train([one.source for one in make_captions(300, seed=0)], 500)
    rank = {pair: place for place, pair in enumerate(tokenizer.merges)}
    mine, ours = random.Random(1), random.Random(1)
    for text in ("the grandmother laughs at the zebra", "ha ha ha!", "unbelievable"):
        for word in subwords.words(text):
            assert subwords.cut_at_random(word, rank, skip, mine) == join_at_random([*word], rank, skip, ours)


# ---- BLEU, and when to trust a translation ----


def test_plain_bleu_is_that_of_sacrebleu():
    rng, matched = random.Random(0), 0
    for size in (1, 3, 40):
        for _ in range(30):
            texts = [[" ".join(rng.choices("abc", k=rng.randint(4, 12))) for _ in range(size)] for _ in range(2)]
            mine, ours = plain_bleu.corpus_bleu(*texts), bleu(*texts, tokenize="none").score
            assert mine == 0 or math.isclose(mine, ours, rel_tol=1e-9)
            matched += mine > 0
    assert matched > 40


@pytest.mark.parametrize("name", ["multi30k-en-de", "everyday-en-de", "multi30k-de-en-bahdanau"])
def test_plain_probabilities_are_those_of_the_library(name):
    ours, _ = shipped(name)
    texts, eos = sources(name)[:12], [trust.EOS]
    one, other = ours.source_tokenizer, ours.target_tokenizer
    found = [best[0] for best in ours.search(texts)]
    read = pad_sequence([torch.tensor([*one.encode(ours.prepare(text)), *eos]) for text in texts], True)
    wrote = pad_sequence([torch.tensor([trust.BOS, *other.encode(best.text), *eos]) for best in found], True)
    log_p = trust.log_probabilities(ours.model, read, wrote)
    with torch.no_grad():
        expected = sequence_log_probability(ours.model(read, wrote[:, :-1]), wrote[:, 1:])
    assert torch.allclose(log_p.sum(1), expected, atol=1e-3)
    searched = torch.tensor([best.log_probability for best in found])
    same = (log_p.sum(1) - searched).abs() < 1e-3  # a model may write other pieces than its text is cut into
    assert same.sum() >= 11
    lengths = torch.tensor([len(other.encode(best.text)) + 1 for best in found])
    assert torch.allclose(trust.confidence(ours.model, read, wrote), (expected / lengths).exp(), atol=1e-4)


# ---- Training ----


@pytest.mark.parametrize(("schedule", "smoothing"), [("linear", 0.1), ("inverse-sqrt", 0.0), ("constant", 0.1)])
def test_the_plain_loop_trains_as_the_librarys_trainer(schedule, smoothing):
    """The same batches give the same fifty losses, and the same weights after them."""
    torch.manual_seed(0)
    words = torch.randint(4, 12, (60, 6), generator=torch.Generator().manual_seed(0)).tolist()
    pairs = [([*row[: 1 + i % 6], 2], [1, *row[: 1 + i % 6], 2]) for i, row in enumerate(words)]
    sizes = {"d_model": 8, "n_heads": 2, "n_encoder_layers": 1, "n_decoder_layers": 1, "d_ff": 16}
    ours = Transformer(TransformerConfig(12, 12, dropout=0.0, tie_embeddings="target", **sizes)).double()
    model = transformer.Transformer(12, 12, 8, 2, 16, 1, 1, dropout=0.0).double()
    model.load_state_dict(ours.state_dict())
    config = TrainingConfig(
        epochs=10, max_tokens=48, learning_rate=0.01, warmup=12, schedule=schedule, smoothing=smoothing, average=0,
        betas=(0.9, 0.98), eps=1e-9,
    )  # fmt: skip
    trainer, seen, expected = Trainer(ours, pairs, pairs[:6], config), [], []
    trainer.update = lambda group: seen.extend(group) or Trainer.update(trainer, group)
    trainer.fit(watch=lambda loss: expected.append(loss.item()) or len(expected) == 50)
    found = plain_training.train(
        model,
        [plain_training.AdamW(model.parameters())],
        [(batch.source, batch.target) for batch in seen],
        lambda update, updates: rate_factor(update, config, updates),
        peak=0.01,
        updates=trainer.total,
        smoothing=smoothing,
    )
    torch.testing.assert_close(list(found), expected, atol=1e-6, rtol=1e-6)
    assert len(expected) == 50
    weights = dict(ours.named_parameters())
    for name, weight in model.named_parameters():
        torch.testing.assert_close(weight, weights[name], atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("updates", [1, 9, 40])
def test_the_page_s_warm_up_is_the_library_s(updates):
    config = TrainingConfig(epochs=1, warmup=10, schedule="linear", learning_rate=1.0)
    assert plain_training.warmup(updates, 40, 10) == pytest.approx(rate_factor(updates, config, 40))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
@pytest.mark.parametrize("decay", [0.0, 0.1])
def test_plain_adamw_is_pytorchs(decay, dtype):
    rng = torch.Generator().manual_seed(0)
    start = torch.randn(4, 3, generator=rng).to(dtype)
    ours, theirs = (torch.nn.Parameter(start.clone()) for _ in range(2))
    mine = plain_training.AdamW([ours], decay=decay)
    adam = torch.optim.AdamW([theirs], lr=0.01, betas=(0.9, 0.98), eps=1e-9, weight_decay=decay)
    for _ in range(30):
        gradient = torch.randn(4, 3, generator=rng).to(dtype) * 10 ** torch.randn(1, generator=rng).to(dtype)
        ours.grad, theirs.grad = gradient.clone(), gradient.clone()
        mine.step(0.01)
        adam.step()
        torch.testing.assert_close(ours, theirs)


@pytest.mark.skipif(not hasattr(torch.optim, "Muon"), reason="PyTorch has Muon since 2.9")
@pytest.mark.parametrize("shape", [(6, 6), (12, 4), (4, 12)], ids=str)
@pytest.mark.parametrize("decay", [0.0, 0.1])
def test_plain_muon_is_pytorchs(shape, decay):
    """Up to bfloat16, in which PyTorch computes the five steps."""
    rng = torch.Generator().manual_seed(0)
    start = torch.randn(shape, generator=rng)
    ours, theirs = (torch.nn.Parameter(start.clone()) for _ in range(2))
    mine = plain_training.Muon([ours], decay=decay)
    muon = torch.optim.Muon([theirs], lr=0.01, weight_decay=decay, adjust_lr_fn="match_rms_adamw")
    for _ in range(10):
        gradient = torch.randn(shape, generator=rng) + 3 * torch.eye(*shape)
        before = ours.detach().clone()
        ours.grad, theirs.grad = gradient.clone(), gradient.clone()
        mine.step(0.01)
        muon.step()
        assert (ours - theirs).norm() < 0.06 * (ours - before).norm()
        theirs.data.copy_(ours.data)


# ---- GPT ----


@pytest.mark.parametrize("name", ["GPT", "GPT, narrow"])
def test_the_plain_writer_goes_on_as_the_library_does(name: str) -> None:
    """Greedily, from each of several prompts; the library reads each at once and then token by token."""
    ours = made(name).eval()
    for weight in ours.parameters():
        weight.data += 0.3 * torch.randn_like(weight)
    model = plain_of(ours)
    model.load_state_dict(ours.state_dict())
    for prompt in ([3], [5, 1, 10, 2], [7, 7, 7, 0, 4, 9]):
        expected = greedy_decode(ours, torch.tensor([prompt]), max_length=10)[0]
        assert len(expected) >= 10
        assert gpt.write(model, prompt, len(expected) - len(prompt), temperature=1e-6) == expected.tolist()


def test_a_plain_gpt_learns_a_text():
    """It knows what comes next where one letter says it, and is told of every update."""
    torch.manual_seed(1)
    model, seen = gpt.GPT(5, 16, 2, 2, 10), []
    gpt.train(model, torch.arange(300) % 5, 80, 0.01, seen.append)
    assert seen == [*range(81)]
    assert gpt.write(model, [2], 12, temperature=0.01) == [(2 + i) % 5 for i in range(13)]


# ---- From prediction to assistant ----


@pytest.mark.parametrize("seed", range(3))
def test_plain_losses_of_preferences_and_rewards_are_the_librarys(seed: int) -> None:
    rng = torch.Generator().manual_seed(seed)
    model = GPT(GPTConfig(vocab_size=12, d_model=8, n_heads=2, n_layers=2, dropout=0.0, max_length=12)).eval()
    copied = gpt.GPT(12, 8, 2, 2, 12)
    copied.load_state_dict(model.state_dict())
    prompts = torch.randint(3, 12, (6, 3), generator=rng)
    tokens = plain_preferences.answer(copied, prompts, rng, longest=8)
    assert torch.equal(tokens[:, :3], prompts) and tokens.shape[1] <= 11
    ours, written = plain_preferences.answer_log_probs(copied, tokens, 3)
    log_probs, counted = preferences.answer_log_probs(model, tokens, 3)
    assert torch.equal(written, counted)
    torch.testing.assert_close(ours, log_probs)

    old, reference = (ours + torch.randn(ours.shape, generator=rng) / 3 for _ in range(2))
    rewards = torch.randint(3, (2, 3), generator=rng).float()
    advantages = plain_preferences.group_advantages(rewards)
    torch.testing.assert_close(advantages, preferences.group_advantages(rewards))
    for beta, clip in ((0.0, 0.2), (0.3, 0.1)):
        given = ours, old, reference, advantages.flatten(), written
        torch.testing.assert_close(
            plain_preferences.grpo_loss(*given, clip=clip, beta=beta),
            preferences.grpo_loss(*given, clip=clip, beta=beta),
        )
    four = [ours.sum(1)[:3], ours.sum(1)[3:], old.sum(1)[:3], old.sum(1)[3:]]
    torch.testing.assert_close(plain_preferences.dpo_loss(*four, 0.3), preferences.dpo_loss(*four, 0.3))
    for correct, k in product(range(8), range(1, 8)):
        assert plain_preferences.pass_at_k(7, correct, k) == pytest.approx(preferences.pass_at_k(7, correct, k))


@pytest.mark.parametrize("temperature", [0.5, 1.0, 200.0])
def test_plain_minimum_risk_is_the_librarys(temperature: float) -> None:
    rng = torch.Generator().manual_seed(0)
    sizes = {"source_vocab_size": 9, "target_vocab_size": 9, "dropout": 0.0}
    model = Transformer(TransformerConfig.tiny(**sizes))  # in training, where the risk counts
    source, samples = torch.randint(3, 9, (4, 5), generator=rng), torch.randint(3, 9, (4, 3, 6), generator=rng)
    samples[..., 0], costs = 1, torch.rand(4, 3, generator=rng)
    batch = Batch(source, samples[:, 0])  # five words to predict in each
    found = minimum_risk_loss(model, batch, lambda *_: samples, lambda *_: costs, 1 / temperature)
    repeated = source.repeat_interleave(3, 0), samples.flatten(0, 1)
    log_p = model(repeated[0], repeated[1][:, :-1]).log_softmax(-1)
    log_p = log_p.gather(2, repeated[1][:, 1:, None])[..., 0].sum(1).view(4, 3)
    torch.testing.assert_close(plain_preferences.minimum_risk(log_p, costs, temperature), found.mean)


def test_a_student_that_is_its_teacher_has_nothing_to_learn() -> None:
    """The divergence of equal models is 0 with a gradient of 0, and every other teacher changes the student."""
    torch.manual_seed(0)
    model, other = gpt.GPT(12, 8, 2, 1, 32), gpt.GPT(12, 8, 2, 1, 32)
    prompts, seen = torch.tensor([[1, 5, 3], [1, 6, 3]]), []
    plain_preferences.distil(model, model, prompts, 1, lambda n, student: seen.append(student))
    assert all(p.grad.abs().max() < 1e-6 for p in seen[-1].parameters())
    plain_preferences.distil(model, other, prompts, 1, lambda n, student: seen.append(student))
    assert max(p.grad.abs().max() for p in seen[-1].parameters()) > 1e-3


def test_rewards_that_are_all_equal_change_nothing() -> None:
    torch.manual_seed(0)
    model, seen = gpt.GPT(12, 8, 2, 1, 32), []
    reward, prompts = (lambda tokens: tokens[:, 1] * 0 + 2), torch.tensor([[1, 5, 3], [1, 6, 3]])
    plain_preferences.improve(model, prompts, reward, 0.5, 1, lambda n, trained: seen.append(trained))
    assert all(p.grad.abs().max() < 1e-6 for p in seen[-1].parameters())
