"""What pages build plainly equals the library: parameter names, logits, translations, for all that is shipped."""

from __future__ import annotations

import ast
import inspect
import math
import os
import random
import sys
from collections import Counter
from functools import cache, partial
from itertools import product
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, pad, scaled_dot_product_attention
from torch.nn.utils.rnn import pad_sequence

from transformer_lib import Translator, plain
from transformer_lib.data.batching import Batch
from transformer_lib.data.bpe import join_at_random
from transformer_lib.data.captions import make_captions
from transformer_lib.data.everyday import load_everyday
from transformer_lib.data.multi30k import load_multi30k
from transformer_lib.data.tokenizer import Tokenizer
from transformer_lib.decoding.beam_search import beam_search
from transformer_lib.decoding.greedy import greedy_decode
from transformer_lib.decoding.sampling import sample, sampling_probabilities
from transformer_lib.metrics import bleu, perplexity, sequence_log_probability
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
from transformer_lib.plain import mask_predict as masks
from transformer_lib.plain import preferences as plain_preferences
from transformer_lib.plain import sampling as plain_sampling
from transformer_lib.plain import sparse_attention as sparse
from transformer_lib.plain import training as plain_training
from transformer_lib.plain import vision_transformer as vision
from transformer_lib.plain.attention import attention as plain_attention
from transformer_lib.plain.deep_translator import DeepTranslator
from transformer_lib.plain.depth import AttentionResiduals, HyperConnections, ManifoldHyperConnections, Residuals
from transformer_lib.plain.flash_attention import Flash
from transformer_lib.plain.masks import sees
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


def same_gradients(model: nn.Module, ours: nn.Module, atol: float = 1e-9, rtol: float = 1e-6) -> None:
    """With the same weights, two translators have the same gradients."""
    model.load_state_dict(ours.state_dict())
    source = torch.tensor([[4, 9, 7, 5, 2], [8, 6, 2, 0, 0]])
    target = torch.tensor([[1, 11, 12, 13], [1, 14, 15, 2]])
    for one in (ours, model):
        one(source, target).logsumexp(-1).sum().backward()
    expected = dict(ours.named_parameters())
    for name, weight in model.named_parameters():
        torch.testing.assert_close(weight.grad, expected[name].grad, atol=atol, rtol=rtol)


# ---- Learning to align ----


def test_the_plain_translator_of_2014_loads_what_is_shipped(data_directory):
    """Names, logits, fifty translations, and the weights of each alignment."""
    ours, source = shipped("multi30k-de-en-bahdanau")
    c = ours.model.config
    model = bahdanau.Bahdanau(c.source_vocab_size, c.target_vocab_size, c.d_model, c.d_hidden)
    model.load_state_dict(ours.model.state_dict())
    assert {*dict(model.named_parameters())} == {*dict(ours.model.named_parameters())}
    written, maps = bahdanau.translate(model, source, max_length=50)
    assert cut(written) == cut(greedy_decode(ours.model, source, max_length=50))

    target = read_again(written)
    with torch.no_grad():
        maps = maps.masked_fill((target == 0)[..., None], 0)
        expected = ours.model.align(source, target).masked_fill((target == 0)[..., None], 0)
        difference = (model(source, target) - ours.model(source, target))[target != 0]
    assert difference.abs().max() < 1e-4  # in double precision below
    torch.testing.assert_close(maps, expected, atol=1e-5, rtol=0)
    assert differ_by(model, ours.model, source, target) < 1e-5


# ---- Luong attention ----


def plain_luong(c: LuongConfig) -> luong.Luong:
    """The plain model of the same sizes, with the same score."""
    model = luong.Luong(c.source_vocab_size, c.target_vocab_size, c.d_model, c.d_hidden)
    if c.score == "general":
        model.attention = luong.Attention(luong.General(c.d_hidden))
    return model


def test_the_plain_translator_of_2015_loads_what_is_shipped(data_directory):
    """Names, logits, fifty translations, and the weights of each alignment."""
    ours, source = shipped("multi30k-de-en-luong")
    model = plain_luong(ours.model.config)
    model.load_state_dict(ours.model.state_dict())
    assert {*dict(model.named_parameters())} == {*dict(ours.model.named_parameters())}
    written, maps = bahdanau.translate(model, source, max_length=50)
    assert cut(written) == cut(greedy_decode(ours.model, source, max_length=50))

    target = read_again(written)
    with torch.no_grad():
        maps = maps.masked_fill((target == 0)[..., None], 0)
        expected = ours.model.align(source, target).masked_fill((target == 0)[..., None], 0)
        torch.testing.assert_close(maps, expected, atol=1e-5, rtol=0)
    assert differ_by(model, ours.model, source, target) < 1e-5


@pytest.mark.parametrize("kind", ["2014", "dot", "general", "one vector"])
def test_plain_recurrent_translators_learn_as_the_librarys_do(kind):
    """With the same weights, they have the same gradients, and they start with weights of the same spread."""
    torch.manual_seed(0)
    sizes = {"d_model": 32, "d_hidden": 48, "dropout": 0.0}
    if kind in ("dot", "general"):
        ours = LuongSeq2Seq(LuongConfig(40, 40, **sizes, score=kind))
        model = plain_luong(ours.config)
    else:
        ours = {"2014": BahdanauSeq2Seq, "one vector": RecurrentSeq2Seq}[kind](RecurrentConfig(40, 40, **sizes))
        model = {"2014": bahdanau.Bahdanau, "one vector": encoder_decoder.EncoderDecoder}[kind](40, 40, 32, 48)
    for name, weight in ours.state_dict().items():
        if "bias" not in name:
            torch.testing.assert_close(model.state_dict()[name].std(), weight.std(), rtol=0.1, atol=0)
    same_gradients(model.double(), ours.double())


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


def test_a_cut_of_the_plain_reader_is_a_mask():
    """Without its only way to a word, the answer no longer depends on that word; no cut, no change."""
    torch.manual_seed(0)
    model = self_attention.Reader(20, 1).double()
    words, it, far = torch.tensor([[4, 5, 6, 7], [8, 9, 3, 0]]), torch.tensor([1, 0]), torch.tensor([3, 2])
    others = words.clone()
    others[torch.arange(2), far] = 12
    assert not torch.allclose(model(words, it)[0], model(others, it)[0])
    cut = [(1, it, far)]
    torch.testing.assert_close(model(words, it, cut)[0], model(others, it, cut)[0])


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


def test_the_jacobian_of_the_softmax_is_autograds():
    scores = torch.randn(2, 3, 6).double()
    found = scale.softmax_jacobian(scores.softmax(-1))
    for index in product(range(2), range(3)):
        expected = torch.autograd.functional.jacobian(lambda a: a.softmax(-1), scores[index])
        torch.testing.assert_close(found[index], expected)


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


# ---- The Transformer ----

TRANSFORMERS = ["captions-en-de", "multi30k-de-en-transformer", "multi30k-de-en"]
TRANSFORMERS += ["multi30k-en-de", "multi30k-en-fr", "everyday-en-de"]


def plain_transformer(c: TransformerConfig) -> transformer.Transformer:
    """The plain model of the same sizes, in evaluation mode."""
    sizes = c.source_vocab_size, c.target_vocab_size, c.d_model, c.n_heads, c.d_ff
    options = {"dropout": c.dropout, "norm_first": c.norm_first, "shared": c.tie_embeddings == "all"}
    return transformer.Transformer(*sizes, c.n_encoder_layers, c.n_decoder_layers, **options).eval()


@pytest.mark.parametrize("name", TRANSFORMERS)
def test_the_plain_transformer_loads_what_is_shipped(name, request):
    if not name.startswith("captions"):
        request.getfixturevalue("data_directory")
    ours, source = shipped(name)
    model = plain_transformer(ours.model.config)
    model.load_state_dict(ours.model.state_dict())
    assert {*dict(model.named_parameters())} == {*dict(ours.model.named_parameters())}

    written = greedy_decode(ours.model, source, max_length=50)
    assert cut(transformer.translate(model, source)) == cut(written)
    target = torch.cat([torch.ones(len(source), 1, dtype=torch.long), written], 1)
    assert differ_by(model, ours.model, source, target) < 1e-5


@pytest.mark.parametrize("norm_first", [False, True])
@pytest.mark.parametrize("tied", ["all", "target"])
def test_the_plain_transformer_learns_as_the_librarys_does(norm_first, tied):
    """The same initial spread, and with the same weights the same gradients."""
    torch.manual_seed(0)
    sizes = {"d_model": 32, "n_heads": 4, "d_ff": 64, "n_encoder_layers": 1, "n_decoder_layers": 2, "dropout": 0.0}
    ours = Transformer(TransformerConfig(40, 40, norm_first=norm_first, tie_embeddings=tied, **sizes)).double()
    model = plain_transformer(ours.config).double()
    for name, weight in ours.state_dict().items():
        torch.testing.assert_close(model.state_dict()[name].std(), weight.std(), rtol=0.1, atol=1e-9)
    same_gradients(model.train(), ours.train(), atol=1e-4, rtol=1e-3)


def test_plain_greedy_search_stops_where_all_rows_have_ended():
    """It writes no PAD and no BOS, however likely; an end in each row ends it, or the limit does."""

    def model(source, target):
        scores = torch.zeros(*target.shape, 6)
        scores[..., :2] = 9
        scores[0, :, 2 if target.shape[1] == 2 else 4] = 1
        scores[1, :, 2 if target.shape[1] == 3 else 5] = 1
        return scores

    model.eval = lambda: model
    source = torch.tensor([[3, 2], [4, 2]])
    assert transformer.translate(model, source).tolist() == [[4, 2, 4], [5, 5, 2]]
    assert transformer.translate(model, source, max_length=2).tolist() == [[4, 2], [5, 5]]


# ---- Multi-head attention ----


def test_the_transformers_plain_attention_is_that_of_its_own_page():
    """One plain class, not two that differ."""
    assert inspect.getsource(transformer.Attention) == inspect.getsource(multi_head.Attention)


@pytest.mark.parametrize("name", TRANSFORMERS)
def test_plain_heads_load_the_layers_of_what_is_shipped(name):
    """Every layer of attention: its names, its outputs and weights in all three uses, and its gradients."""
    model = Translator.from_pretrained(name, device="cpu").model.double()
    layers = {n: part for n, part in model.named_modules() if isinstance(part, MultiHeadAttention)}
    assert len(layers) == model.config.n_encoder_layers + 2 * model.config.n_decoder_layers
    draw = torch.Generator().manual_seed(0)
    x, other = (torch.randn(2, n, model.config.d_model, generator=draw).double() for n in (5, 7))
    padding = (torch.arange(7) < torch.tensor([[7], [4]]))[:, None, None]
    causal = torch.ones(5, 5, dtype=torch.bool).tril()
    for path, theirs in layers.items():
        layer = multi_head.Attention(model.config.d_model, theirs.n_heads).double()
        layer.load_state_dict(theirs.state_dict())
        assert [*dict(layer.named_parameters())] == [*dict(theirs.named_parameters())]
        if "cross" in path:
            got, want = layer(x, other, padding), theirs(x, other, mask=padding)
        elif path.startswith("decoder"):
            got, want = layer(x, x, causal), theirs(x, causal=True)
        else:
            got, want = layer(other, other, padding), theirs(other, mask=padding)
        torch.testing.assert_close(got, want)
        for one, its in ((got, layer), (want, theirs)):
            its.zero_grad()
            one.square().sum().backward()
        torch.testing.assert_close(layer.in_proj_weight.grad, theirs.in_proj_weight.grad)
    model.float()


def test_plain_heads_keep_the_weights_and_start_like_the_librarys():
    torch.manual_seed(0)
    layer, ours = multi_head.Attention(64, 4), MultiHeadAttention(64, 4)
    for key, value in ours.state_dict().items():
        torch.testing.assert_close(layer.state_dict()[key].std(), value.std(), rtol=0.05, atol=1e-9)
    theirs = torch.nn.MultiheadAttention(64, 4, batch_first=True)
    theirs.load_state_dict(layer.state_dict())
    x, causal = torch.randn(2, 5, 64), torch.ones(5, 5, dtype=torch.bool).tril()
    want, weights = theirs(x, x, x, attn_mask=~causal, average_attn_weights=False)
    torch.testing.assert_close(layer(x, x, causal), want)
    torch.testing.assert_close(layer.weights, weights)


# ---- Masks ----


@pytest.mark.parametrize("layers", [1, 2, 3])
def test_what_a_model_sees_is_what_its_masks_allow(layers):
    """Layers of plain heads under random masks: the powers of the mask, for each sentence."""
    draw = torch.Generator().manual_seed(0)
    for share in (0.0, 0.1, 0.3, 1.0):
        mask = (torch.rand(7, 7, generator=draw) < share) | torch.eye(7, dtype=torch.bool)
        table = torch.randn(11, 12, generator=draw)
        stack = [multi_head.Attention(12, 3) for _ in range(layers)]

        def model(tokens, mask=mask, table=table, stack=stack):
            x = table[tokens]
            for layer in stack:
                x = x + layer(x, x, mask)
            return x

        expected = torch.linalg.matrix_power(mask.double(), layers) > 0
        found = sees(model, torch.randint(11, (2, 7), generator=draw), 11)
        assert found.tolist() == [expected.tolist()] * 2


@pytest.mark.parametrize("training", [False, True])
def test_no_position_of_a_shipped_decoder_sees_a_later_word(training):
    ours, source = shipped("captions-en-de")
    model = plain_transformer(ours.model.config)
    model.load_state_dict(ours.model.state_dict())
    for part in model.train(training).modules():
        if isinstance(part, torch.nn.Dropout):
            part.p = 0.0
    target = torch.tensor([[1, 9, 8, 7, 6, 5]])
    found = sees(lambda tokens: model(source[:1], tokens), target, len(ours.target_tokenizer))
    assert found[0].tolist() == torch.ones(6, 6, dtype=torch.bool).tril().tolist()


# ---- All words at once ----

PAD, MASK = masks.PAD, masks.MASK


def small_translator(**sizes):
    """Eight-wide, without dropout."""
    torch.manual_seed(0)
    return masks.MaskPredict(20, **{"d_model": 8, "n_heads": 2, "d_ff": 16, "n_layers": 2, "dropout": 0.0} | sizes)


def rows(*lengths, seed=0):
    """Random words, filled up."""
    generator = torch.Generator().manual_seed(seed)
    words = torch.randint(4, 20, (len(lengths), max(lengths)), generator=generator)
    return words.masked_fill(torch.arange(max(lengths)) >= torch.tensor(lengths)[:, None], PAD)


def test_every_number_of_hidden_words_is_as_likely():
    torch.manual_seed(0)
    target = rows(*[4] * 4000, 6)
    hidden = masks.hide(target)
    assert torch.equal(hidden == PAD, target == PAD)
    assert torch.equal(hidden[hidden != MASK], target[hidden != MASK])
    counts = torch.bincount((hidden[:-1] == MASK).sum(1), minlength=7)
    assert counts[0] == 0 and counts[5:].sum() == 0 and (counts[1:5] > 880).all()
    places = (hidden[:-1, :4] == MASK).float().mean(0)
    torch.testing.assert_close(places, torch.full((4,), 0.625), atol=0.04, rtol=0)


def test_a_hidden_word_sees_the_words_behind_it_but_no_padding():
    model = small_translator().eval()
    source, target = rows(5, 3), rows(4, 6, seed=1)
    target[:, 0] = MASK
    logits = model(source, target)
    other = target.clone()
    other[0, 3] = 4 if target[0, 3] != 4 else 5
    assert not torch.allclose(model(source, other)[0, 0], logits[0, 0])
    longer = [torch.cat([x, torch.full((2, 3), PAD)], 1) for x in (source, target)]
    torch.testing.assert_close(model(*longer)[:, :6], logits)
    alone = model(source[1:, :3], target[1:])
    torch.testing.assert_close(alone[0], logits[1])
    torch.testing.assert_close(model.read(longer[0])[1], model.read(source)[1])


def test_loss_is_that_of_the_hidden_words_and_of_the_length():
    model = small_translator().eval()
    source, target = rows(5, 3), rows(4, 6, seed=1)
    hidden = target.clone()
    hidden[0, 1] = hidden[1, 5] = MASK
    logits, lengths = model(source, hidden).log_softmax(-1), model.read(source)[1].log_softmax(-1)
    words = logits[0, 1, target[0, 1]] + logits[1, 5, target[1, 5]]
    expected = -words / 2 - 0.1 * (lengths[0, 4] + lengths[1, 6]) / 2
    torch.testing.assert_close(masks.mask_predict_loss(model, source, target, hidden, smoothing=0.0), expected)


@torch.no_grad()
def one_by_one(model, source, steps, n_lengths):
    """Mask-predict of one sentence with plain lists of words and of how certain each was when it was written."""
    found = []
    logits = model.read(source[None])[1][0]
    for n in sorted(range(1, len(logits)), key=lambda n: -float(logits[n]))[:n_lengths]:
        words, sure = [MASK] * n, [0.0] * n
        for step in range(steps):
            log_p = model(source[None], torch.tensor([words]))[0].log_softmax(-1)
            for i in range(n):
                if words[i] == MASK:
                    words[i] = max(range(4, 20), key=lambda word: float(log_p[i, word]))
                    rest = log_p[i, 4:].exp().sum().log()  # four ids are no words
                    sure[i] = float(log_p[i, words[i]] - rest)
            if step + 1 < steps:
                for i in sorted(range(n), key=sure.__getitem__)[: n * (steps - 1 - step) // steps]:
                    words[i] = MASK
        found.append((sum(sure) / n, words))
    return max(found)[1]


def test_batches_are_written_as_each_sentence_alone():
    model = small_translator().eval()
    torch.nn.init.normal_(model.length.weight)
    model.length.bias.data[8:] = -100.0  # short ones
    source = rows(5, 3, 7, 1, 4, 6)
    for steps in (1, 2, 3, 5):
        for n_lengths in (1, 3):
            found = masks.mask_predict(model, source, steps, n_lengths)
            for row, words in zip(source, found.tolist(), strict=True):
                expected = one_by_one(model, row[row != PAD], steps, n_lengths)
                assert [word for word in words if word != PAD] == expected


def test_of_equally_certain_words_the_same_are_hidden_beside_longer_sentences():
    class Sure(torch.nn.Module):
        def read(self, source):
            lengths = torch.nn.functional.one_hot((source != PAD).sum(1), 64)
            return source[..., None].float(), lengths.float()

        def write(self, memory, source, tokens):  # a word is the number of those that are hidden before it
            return 99.0 * torch.nn.functional.one_hot(4 + (tokens == MASK).cumsum(1), 64)

    source = rows(5, 12, 40)
    together = masks.mask_predict(Sure(), source, 4, n_lengths=1)
    for row, words in zip(source, together, strict=True):
        alone = masks.mask_predict(Sure(), row[row != PAD][None], 4, n_lengths=1)[0]
        assert torch.equal(words[words != PAD], alone)


def test_a_few_sentences_are_learned_by_heart():
    model = small_translator(d_model=32, d_ff=64)
    source, target = rows(5, 3, 7, 4), rows(4, 6, 5, 3, seed=1)
    adam = torch.optim.Adam(model.parameters(), 0.003)
    for _ in range(300):
        loss = masks.mask_predict_loss(model, source, target, masks.hide(target), smoothing=0.0)
        adam.zero_grad()
        loss.backward()
        adam.step()
    model.eval()
    for steps in (1, 4):
        found = masks.mask_predict(model, source, steps, n_lengths=1)
        assert torch.equal(found[:, : target.shape[1]], target) and not found[:, target.shape[1] :].any()


# ---- Attention over depth ----

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


def test_a_deep_translator_learns_a_few_sentences_with_every_wiring():
    source, target = rows(5, 3, 7, 4), rows(4, 6, 5, 3, seed=1)
    for wiring in WIRINGS:
        model = deep(wiring, d_model=8)
        adam = torch.optim.Adam(model.parameters(), 0.02)
        for _ in range(150):
            loss = cross_entropy(model(source, target[:, :-1]).flatten(0, 1), target[:, 1:].flatten(), ignore_index=PAD)
            adam.zero_grad()
            loss.backward()
            adam.step()
        assert loss < 0.1, wiring
        assert all(parameter.grad.abs().sum() > 0 for parameter in model.parameters()), wiring


def square(i, x):
    """A sublayer that depends on its number."""
    return (x + i).sin()


def test_attention_residuals_are_weighted_means_of_all_that_came_before():
    torch.manual_seed(0)
    wiring, x = AttentionResiduals(3, 4), torch.randn(2, 5, 4)
    torch.nn.init.normal_(wiring.query)
    found = wiring(x, square, 3)
    for b in range(2):
        for t in range(5):
            seen = [x[b, t]]
            for i in range(4):
                scores = [wiring.query[i] @ one / (one.square().mean() + 1.2e-7).sqrt() for one in seen]
                powers = [score.exp() for score in scores]
                mean = sum(power / sum(powers) * one for power, one in zip(powers, seen, strict=True))
                seen.append(square(i, mean))
            torch.testing.assert_close(found[b, t], mean, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("kind", [HyperConnections, ManifoldHyperConnections])
def test_hyper_connections_read_write_and_mix_streams(kind):
    torch.manual_seed(0)
    wiring, x = kind(3, 2), torch.randn(2, 5, 4)
    for parameter in wiring.parameters():
        torch.nn.init.normal_(parameter)
    one, two = x, x
    for i in range(3):
        read, write, mix = wiring.weights(i)
        y = square(i, read[0] * one + read[1] * two)
        one, two = (mix[j, 0] * one + mix[j, 1] * two + write[j] * y for j in range(2))
        if kind is ManifoldHyperConnections:
            assert min(read.min(), write.min(), mix.min()) >= 0 and read.max() <= 1 and write.max() <= 2
            torch.testing.assert_close(torch.cat([mix.sum(0), mix.sum(1)]), torch.ones(4), atol=1e-3, rtol=0)
    torch.testing.assert_close(wiring(x, square, 3), one + two)


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
N_SEARCHED = 10 if os.environ.get("CI") else 2  # sentences; twice as many captions, with every search


@pytest.mark.slow
@pytest.mark.parametrize("name", pretrained_names())
def test_plain_searches_translate_as_the_library_does(name: str, request) -> None:
    if not name.startswith("captions"):
        request.getfixturevalue("data_directory")
    ours, source = shipped(name)
    model, small = ours.model, name.startswith("captions")
    for row in source[:: len(source) // (2 * N_SEARCHED if small else N_SEARCHED)]:
        row = row[None, row != PAD]
        (written,) = greedy_decode(model, row, max_length=30).tolist()
        assert plain_search.greedy(model, row, 30) == tuple(written)
        for width, penalty in SEARCHES if small else SEARCHES[2:3]:
            words, total = plain_search.beam_search(model, row, width, penalty, 20)
            options = {"beam_size": width, "length_penalty": penalty, "max_length": 20, "lookahead": None}
            found = beam_search(model, row, **options)
            assert words == tuple(token for token in found.tokens[0, 0].tolist() if token != PAD)
            assert total == pytest.approx(found.log_probs[0, 0].item(), abs=1e-4)


def table_model(seed: int, sharp: float = 2.0) -> object:
    """A translator of three words, PAD, BOS and EOS: its logits depend on the source and on the last two words."""
    table = sharp * torch.randn(9, 6, 6, 6, generator=torch.Generator().manual_seed(seed))

    def model(source: Tensor, target: Tensor) -> Tensor:
        before = torch.cat([torch.zeros_like(target[:, :1]), target[:, :-1]], 1)
        return table[source[:, :1], before, target]

    return model


@pytest.mark.parametrize("penalty", [0.0, 0.6, 2.0])
def test_a_plain_beam_that_is_wide_enough_finds_what_trying_everything_finds(penalty: float) -> None:
    for seed, first in product(range(5), (3, 8)):
        model, source = table_model(seed), torch.tensor([[first]])
        best, total = plain_search.exhaustive(model, source, penalty, max_length=4)
        found, found_total = plain_search.beam_search(model, source, 81, penalty, max_length=4)
        assert found == best and found_total == pytest.approx(total, abs=1e-5)


def test_the_referee_tries_every_translation_that_there_is() -> None:
    model, source = table_model(1), torch.tensor([[4]])
    every = [(*body, 2) for n in range(3) for body in product((3, 4, 5), repeat=n)] + [*product((3, 4, 5), repeat=3)]

    def log_p(words: tuple[int, ...]) -> float:
        logits = model(source, torch.tensor([[1, *words]]))[0, :-1].log_softmax(-1)
        return sum(logits[t, word].item() for t, word in enumerate(words))

    for penalty in (0.0, 1.0, 3.0):
        best = max(every, key=lambda words, power=penalty: log_p(words) / ((5 + len(words)) / 6) ** power)
        words, total = plain_search.exhaustive(model, source, penalty, max_length=3)
        assert words == best and total == pytest.approx(log_p(best), abs=1e-5)


@pytest.mark.parametrize("width", [1, 2, 3])
@pytest.mark.parametrize("penalty", [0.0, 1.0, 3.0])
def test_a_plain_search_stops_no_earlier_than_it_may(width: int, penalty: float) -> None:
    for seed in range(20):
        model, source = table_model(seed), torch.tensor([[seed % 9]])
        live, finished = [((), 0.0)], []
        for length in range(1, 9):  # without any stopping rule
            candidates = plain_search.extend(model, source, live, 10**6)
            finished += [c for c in candidates[:width] if c[0][-1] == 2 or length == 8]
            live = [c for c in candidates if c[0][-1] != 2][:width]
        best = max(finished, key=lambda c: c[1] / plain_search.lp(len(c[0]), penalty))
        assert plain_search.beam_search(model, source, width, penalty, 8) == best


SHAPES = [{}, {"temperature": 0.3}, {"temperature": 3.0}, {"top_k": 1}, {"top_k": 3}, {"top_p": 0.5}, {"top_p": 0.95}]
SHAPES += [{"temperature": 0.7, "top_k": 4, "top_p": 0.8}]


@pytest.mark.parametrize("options", SHAPES, ids=str)
def test_both_draw_from_the_same_probabilities(options: dict) -> None:
    logits = 3 * torch.randn(40, 9, generator=torch.Generator().manual_seed(0))
    logits[:, 2] = -math.inf
    logits[0] = 0.0  # ties
    mine, theirs = plain_sampling.probabilities(logits, **options), sampling_probabilities(logits, **options)
    torch.testing.assert_close(mine[1:], theirs[1:])
    torch.testing.assert_close(mine[0].sort().values, theirs[0].sort().values)


def test_plain_samples_of_one_row_are_those_of_the_library() -> None:
    translator, source = shipped("captions-en-de")
    for seed, row in enumerate(source[:10]):
        row, options = row[None, row != PAD], {"temperature": 1.5, "top_p": 0.95, "max_length": 20}
        mine, theirs = (
            draw(translator.model, row, generator=torch.Generator().manual_seed(seed), **options)
            for draw in (plain_sampling.sample, sample)
        )
        assert torch.equal(mine, theirs)


# ---- Translation as prediction ----


def test_plain_loss_and_perplexity_are_those_of_the_library():
    generator = torch.Generator().manual_seed(0)
    logits, target = torch.randn(3, 6, 9, generator=generator).double(), rows(7, 4, 5) % 9
    target = target.masked_fill((target == 0) & (rows(7, 4, 5) != 0), 4)
    own = prediction.loss(lambda source, given: logits, target, target)
    expected = cross_entropy(logits.mT, target[:, 1:], ignore_index=PAD)
    torch.testing.assert_close(own, expected)
    together = sequence_log_probability(logits, target[:, 1:])
    torch.testing.assert_close(prediction.log_probability(logits, target[:, 1:]), together)
    pairs = [([4, 2], [token for token in row if token != PAD]) for row in target.tolist()]

    def model(source, given):
        return torch.stack([logits[target[:, : given.shape[1]].eq(row).all(1).nonzero()[0, 0]] for row in given])

    n_tokens = int((target[:, 1:] != PAD).sum())
    assert prediction.evaluate(model, pairs) == pytest.approx(perplexity(together.sum().item(), n_tokens))


def test_plain_words_are_numbered_as_the_librarys_are():
    texts = ["the dog sleeps", "a dog and a cat"]
    plain_words, ours = prediction.Words(texts), Tokenizer.train(texts, level="word")
    assert len(plain_words) == len(ours)
    for text in (*texts, "the cat and a giraffe"):
        ids = plain_words.encode(text)
        assert [k == 3 for k in ids] == [k == 3 for k in ours.encode(text)]
        assert "giraffe" in text or plain_words.decode(ids) == ours.decode(ours.encode(text)) == text


def test_plain_batches_hold_every_pair_once_and_little_padding():
    pairs = [([5] * n + [2], [1, 4 + k, 2]) for k, n in enumerate(torch.arange(200).mul(7).remainder(23).tolist())]
    found = list(prediction.batches(pairs, 16, seed=0))
    assert sorted(word for _, target in found for word in target[:, 1].tolist()) == list(range(4, 204))
    assert sum((source == PAD).sum() for source, _ in found) / sum(source.numel() for source, _ in found) < 0.1


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

HARD = {"straight-through": "gumbel", "reinforce": "reinforce", "soft": None}


@pytest.mark.parametrize("reads", HARD)
def test_plain_hard_attention_equals_the_librarys(reads: str) -> None:
    """Names, the spread of the first weights, logits, fifty translations, and the gradient of the same draws."""
    torch.manual_seed(0)
    sizes = {"d_model": 32, "d_hidden": 48, "dropout": 0.0, "input_feeding": False}
    if reads == "soft":  # Luong's model
        ours = LuongSeq2Seq(LuongConfig(40, 40, score="general", **sizes))
    else:
        ours = HardSeq2Seq(HardConfig(40, 40, estimator=HARD[reads], entropy_weight=0.3, **sizes))
    model = hard.HardTranslator(40, 40, reads, 32, 48)
    for name in ("encoder.embedding.weight", "embedding.weight", "gru.weight_hh_l0", "attention.score.key.weight"):
        torch.testing.assert_close(model.state_dict()[name].std(), ours.state_dict()[name].std(), rtol=0.1, atol=0)
    for weight in ours.parameters():
        weight.data.add_(0.2 * torch.randn_like(weight))
    model.load_state_dict(ours.state_dict())

    source = torch.randint(4, 40, (50, 9))
    for row, length in zip(source, torch.randint(1, 10, (50,)), strict=True):
        row[length - 1 :] = PAD
        row[length - 1] = 2
    expected = greedy_decode(ours.eval(), source, max_length=12)
    written = torch.ones(50, 1, dtype=torch.long)
    with torch.no_grad():
        for _ in range(12):
            written = torch.cat([written, model.eval()(source, written)[:, -1:, 2:].argmax(-1) + 2], 1)
    assert cut(written[:, 1:]) == cut(expected)

    target = torch.cat([written[:, :7], torch.full((50, 1), 2)], 1)
    target = target.masked_fill(torch.arange(8) > 5 + source[:, :1] % 3, PAD)
    torch.testing.assert_close(model(source, target), ours(source, target), atol=1e-5, rtol=0)
    if reads == "soft":
        return
    for one in (model.train(), ours.train()):
        torch.manual_seed(1)
        (one.loss(source, target, 0.3) if one is model else one.loss(Batch(source, target)).mean).backward()
    theirs = dict(ours.named_parameters())
    for name, mine in model.named_parameters():
        torch.testing.assert_close(mine.grad, theirs[name].grad, atol=1e-6, rtol=1e-4)


@pytest.mark.parametrize("reads", HARD)
def test_padding_is_never_drawn(reads: str) -> None:
    layer = hard.Attention(8, reads)
    mask = torch.arange(6) < torch.tensor([[6], [1], [3]])
    _, weights, _ = layer(5 * torch.randn(3, 2000, 8), 5 * torch.randn(3, 6, 8), mask)
    assert not weights.detach().masked_fill(mask[:, None], 0).any() and (weights.sum(-1) - 1).abs().max() < 1e-5


# ---- Latent attention ----


@pytest.mark.parametrize("kind", ["latent", "plain"])
def test_plain_latent_attention_loads_the_weights_of_the_librarys_model(kind: str) -> None:
    """Names, logits, gradients, and the spread of the first weights."""
    torch.manual_seed(0)
    ours = IfThenModel(IfThenConfig(300, (7, 5), "dictionary", kind, d_model=48, dropout=0.1)).double().eval()
    attention = latent.LatentAttention(48, 2) if kind == "latent" else latent.OneStep(48, 2)
    model = latent.IfThen(300, (7, 5), attention, d_model=48).double().eval()
    for name, weight in ours.state_dict().items():
        torch.testing.assert_close(model.state_dict()[name].std(), weight.std(), rtol=0.4, atol=0)
    model.load_state_dict(ours.state_dict())
    tokens = torch.tensor([[4, 9, 7, 5, 2], [8, 6, 2, 0, 0], [299, 2, 0, 0, 0]])
    for mine, theirs in zip(model(tokens), ours(tokens), strict=True):
        torch.testing.assert_close(mine, theirs, atol=1e-12, rtol=0)
        mine.logsumexp(-1).sum().backward(retain_graph=True)
        theirs.logsumexp(-1).sum().backward(retain_graph=True)
    expected = dict(ours.named_parameters())
    for name, weight in model.named_parameters():
        torch.testing.assert_close(weight.grad, expected[name].grad, atol=1e-12, rtol=0)


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


@pytest.mark.parametrize("encoder", [latent.AddPositions, latent.SelfAttention, None])
@pytest.mark.parametrize("kind", [latent.OneStep, latent.LatentAttention])
def test_recipes_are_read_alone_as_beside_longer_ones(kind: type, encoder: type | None) -> None:
    torch.manual_seed(0)
    model = latent.IfThen(20, (7, 5), kind(16, 2), encoder and encoder(16), d_model=16).double().eval()
    together = model(torch.tensor([[4, 9, 7, 5, 2], [8, 6, 2, 0, 0]]))
    for mine, both in zip(model(torch.tensor([[8, 6, 2]])), together, strict=True):
        torch.testing.assert_close(mine[0], both[1], atol=1e-12, rtol=0)


# ---- BERT ----


@pytest.mark.parametrize("classify", [False, True])
def test_plain_bert_loads_the_weights_of_the_librarys(classify: bool) -> None:
    """Names, logits, gradients, and the spread of the first weights, with segments, padding and a causal mask."""
    torch.manual_seed(0)
    sizes = BertConfig(90, d_model=48, n_heads=4, n_layers=2, d_ff=64, max_length=9)
    ours, model = Bert(sizes), bert.Bert(90, 48, 4, 2, 64, max_length=9)
    if classify:
        ours, model = BertClassifier(ours, 3), bert.BertClassifier(model, 3)
    ours, model = ours.double().eval(), model.double().eval()
    for name, weight in ours.state_dict().items():
        if weight.numel() > 400:  # with fewer, chance decides
            torch.testing.assert_close(model.state_dict()[name].std(), weight.std(), rtol=0.1, atol=0)
        elif name.endswith(("in_proj_bias", "out_proj.bias", "linear1.bias", "output.bias")):
            assert not model.state_dict()[name].any() and not weight.any()
    for weight in ours.parameters():
        weight.data += 0.1 * torch.randn_like(weight)
    model.load_state_dict(ours.state_dict())
    tokens = torch.tensor([[1, 5, 80, 7, 9, 2], [1, 9, 4, 2, 0, 0]])
    options = [{}, {"segments": torch.tensor([[0, 0, 0, 1, 1, 1], [0, 0, 1, 1, 0, 0]])}]
    if not classify:
        options.append({"mask": (tokens != PAD)[:, None, None] & torch.ones(6, 6, dtype=torch.bool).tril()})
    for option in options:
        mine, theirs = model(tokens, **option), ours(tokens, **option)
        torch.testing.assert_close(mine, theirs, atol=1e-10, rtol=0)
        mine.logsumexp(-1).sum().backward()
        theirs.logsumexp(-1).sum().backward()
    expected = dict(ours.named_parameters())
    for name, weight in model.named_parameters():
        if weight.grad is not None:  # a classifier guesses no words
            torch.testing.assert_close(weight.grad, expected[name].grad, atol=1e-9, rtol=1e-6)


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


def test_a_vision_transformer_without_positions_reads_a_bag_and_leaves_patches_out() -> None:
    """Shuffled patches give the same answer; with positions, so does any order of those that are kept."""
    torch.manual_seed(0)
    model = vision.VisionTransformer(2, 16, 10).double().eval()
    images, order = torch.rand(3, 8, 8).double(), torch.randperm(16)
    kept = order[:9].expand(3, -1)
    torch.testing.assert_close(model(images, kept), model(images, kept.flip(1)))
    torch.testing.assert_close(model(images, order.expand(3, -1)), model(images))
    model.positions.data.zero_()
    tiles = vision.patches(images, 2)[:, order].view(3, 4, 4, 2, 2)
    torch.testing.assert_close(model(tiles.transpose(2, 3).reshape(3, 8, 8)), model(images))


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


def test_the_balance_loss_is_one_if_all_shares_are_equal_and_grows_with_a_crowd() -> None:
    visits = torch.eye(4, dtype=torch.bool) | torch.eye(4, dtype=torch.bool).roll(1, 1)
    assert experts.balance_loss(torch.full((4, 4), 0.25), visits).item() == 1
    crowd = torch.tensor([True, True, False, False]).expand(4, 4)
    assert experts.balance_loss(torch.tensor([[0.4, 0.4, 0.1, 0.1]]).expand(4, 4), crowd).item() > 1.5


# ---- An encoder-decoder ----


def test_the_plain_translator_with_one_vector_loads_what_is_shipped(data_directory):
    ours, source = shipped("multi30k-de-en-one-vector")
    c = ours.model.config
    model = encoder_decoder.EncoderDecoder(c.source_vocab_size, c.target_vocab_size, c.d_model, c.d_hidden)
    model.load_state_dict(ours.model.state_dict())
    assert {*dict(model.named_parameters())} == {*dict(ours.model.named_parameters())}
    written = encoder_decoder.translate(model, source, max_length=50)
    assert cut(written) == cut(greedy_decode(ours.model, source, max_length=50))
    target = read_again(written)
    with torch.no_grad():
        vector = ours.model.encode(source).final[:, 0]
        torch.testing.assert_close(model.encoder(source), vector, atol=1e-5, rtol=0)
    assert differ_by(model, ours.model, source, target) < 1e-5


def test_a_plain_step_of_a_gru_is_pytorchs():
    torch.manual_seed(0)
    cell, x, h = torch.nn.GRUCell(5, 7).double(), torch.randn(3, 5).double(), torch.randn(3, 7).double()
    torch.testing.assert_close(encoder_decoder.gru_step(x, h, *cell.parameters()), cell(x, h))


def test_a_vector_is_found_from_which_a_decoder_writes_another_sentence():
    torch.manual_seed(0)
    model, source = encoder_decoder.EncoderDecoder(12, 12, 16, 32), torch.tensor([[4, 5, 2], [6, 2, 0]])
    target = torch.tensor([[1, 7, 8, 2], [1, 9, 2, 0]])
    adam = torch.optim.Adam(model.parameters(), 0.02)
    for _ in range(60):
        loss = cross_entropy(model(source, target[:, :-1]).mT, target[:, 1:], ignore_index=PAD)
        adam.zero_grad()
        loss.backward()
        adam.step()
    c = encoder_decoder.find_vector(model, target.flip(0))
    assert c.abs().max() <= 1 and cut(encoder_decoder.write(model, c)) == [[9, 2], [7, 8, 2]]


# ---- Today's layer, 2026 ----


@pytest.mark.parametrize("window", [None, 3])
@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("groups", [1, 2, 4])
def test_the_plain_llama_loads_the_library_s_and_gives_its_logits_and_its_text(window, tied, groups):
    torch.manual_seed(0)
    sizes = {"d_model": 32, "n_heads": 4, "n_kv_heads": groups, "d_ff": 48, "n_layers": 2}
    config = LlamaConfig(
        vocab_size=50, **sizes, rotary_base=700.0, window=window, tie_embeddings=tied, max_length=60, eps=1e-3
    )
    theirs = Llama(config).eval()
    for name, weights in theirs.named_parameters():  # norms begin as ones
        if "norm" in name:
            torch.nn.init.normal_(weights)
    ours = plain_llama.Llama(50, *sizes.values(), base=700.0, window=window, eps=1e-3, tied=tied)
    ours.load_state_dict(theirs.state_dict())
    tokens = torch.randint(3, 50, (2, 40))
    torch.testing.assert_close(ours(tokens), theirs(tokens), rtol=0, atol=1e-5)
    prompt, steps = tokens[:1, :5], 20
    prompt[:, 0] = theirs.config.special.bos
    written = plain_llama.write(ours, prompt, steps)
    logits, state = theirs.start(prompt[:, 1:])  # which puts the beginning in front, and keeps a cache
    for token in written[:, 5:].unbind(1):
        assert token.equal(logits.argmax(-1))
        logits, state = theirs.step(token, state)
    assert plain_llama.write(ours, prompt, steps, end=written[0, 8].item()).shape[1] <= 9


def test_the_plain_llama_starts_like_the_library_s():
    deviations = []
    for make in (
        lambda: plain_llama.Llama(500, 64, 4, 2, 176, 2),
        lambda: Llama(LlamaConfig(500, d_model=64, n_heads=4, n_kv_heads=2, d_ff=176, n_layers=2, max_length=9)),
    ):
        torch.manual_seed(0)
        deviations.append({name: weights.std().item() for name, weights in make().named_parameters()})
    assert deviations[0].keys() == deviations[1].keys()
    for name, spread in deviations[0].items():
        assert spread == pytest.approx(deviations[1][name], rel=0.1, abs=1e-6), name


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


@pytest.mark.parametrize("schedule", ["linear", "inverse-sqrt", "constant"])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
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

SIZES_OF_GPT = [(8, 2, 1, None), (12, 3, 2, 20), (16, 4, 3, 16), (6, 1, 2, None)]
NO_SPECIAL_IDS = SpecialIds(None, None, (), None, ())


def both_gpts(d_model: int, n_heads: int, n_layers: int, d_ff: int | None) -> tuple[GPT, gpt.GPT]:
    """The library's, with random biases and norms too, and the page's with its weights."""
    torch.manual_seed(d_model)
    sizes = {"d_model": d_model, "n_heads": n_heads, "n_layers": n_layers, "d_ff": d_ff, "max_length": 16}
    ours = GPT(GPTConfig(11, **sizes, special=NO_SPECIAL_IDS)).double().eval()
    for weight in ours.parameters():
        weight.data += 0.3 * torch.randn_like(weight)
    model = gpt.GPT(11, d_model, n_heads, n_layers, 16, d_ff).double()
    model.load_state_dict(ours.state_dict())
    return ours, model


@pytest.mark.parametrize("sizes", SIZES_OF_GPT, ids=str)
def test_the_plain_gpt_loads_the_librarys_of_any_size(sizes):
    """Parameter names, logits and gradients."""
    ours, model = both_gpts(*sizes)
    assert {*dict(model.named_parameters())} == {*dict(ours.named_parameters())}
    tokens = torch.randint(11, (3, 16))
    torch.testing.assert_close(model(tokens), ours(tokens), atol=1e-10, rtol=0)
    torch.testing.assert_close(model.float()(tokens), ours.float()(tokens), atol=1e-5, rtol=1e-5)
    for one in (model, ours):
        cross_entropy(one(tokens[:, :-1]).mT, tokens[:, 1:]).backward()
    expected = dict(ours.named_parameters())
    for name, weight in model.named_parameters():
        torch.testing.assert_close(weight.grad, expected[name].grad, atol=1e-5, rtol=1e-3)


@pytest.mark.parametrize("sizes", SIZES_OF_GPT, ids=str)
def test_the_plain_writer_goes_on_as_the_library_does(sizes):
    """Greedily, from each of several prompts; the library reads each at once and then token by token."""
    ours, model = both_gpts(*sizes)
    for prompt in ([3], [5, 1, 10, 2], [7, 7, 7, 0, 4, 9]):
        expected = greedy_decode(ours, torch.tensor([prompt]), max_length=10)[0]
        assert len(expected) >= 10
        assert gpt.write(model, prompt, len(expected) - len(prompt), temperature=1e-6) == expected.tolist()


def test_the_plain_gpt_starts_as_the_librarys_does():
    torch.manual_seed(0)
    ours, model = GPT(GPTConfig(90, 64, 4, 2, max_length=80)).state_dict(), gpt.GPT(90, 64, 4, 2, 80).state_dict()
    for name in ("embedding.weight", "positions.weight", "layers.1.self_attn.in_proj_weight"):
        torch.testing.assert_close(model[name].std(), ours[name].std(), rtol=0.1, atol=0)
    assert all((model[name] == ours[name]).all() for name in model if "norm" in name or name.endswith("in_proj_bias"))
    assert gpt.GPT(90, 64, 4, 2, 80).output.weight.shape == (90, 64)


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
