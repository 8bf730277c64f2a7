"""Tests for chapter "The Transformer"."""

from dataclasses import replace
from functools import partial

import torch
from torch import nn, randn, tensor

from transformer_lib.models.multi_head import KVCache
from transformer_lib.models.transformer import (
    Decoder,
    DecoderLayer,
    Encoder,
    EncoderLayer,
    Transformer,
    TransformerConfig,
)
from transformer_lib.student.checks import check, equal, holds, refuses, same

SIZES = TransformerConfig(11, 11, d_model=8, n_heads=2, n_encoder_layers=2, n_decoder_layers=2, d_ff=16, dropout=0.0)
SOURCE, TARGET = tensor([[4, 5, 6, 2], [7, 2, 0, 0]]), tensor([[1, 8, 9, 2], [1, 10, 2, 0]])
MASK = (SOURCE != 0)[:, None, None]


def pytorch(layer: nn.Module, kind: type, names: dict[str, str]) -> nn.Module:
    """PyTorch's layer with the weights of ours."""
    theirs = kind(8, 2, 16, 0.0, batch_first=True)
    state = layer.state_dict()
    for ours, new in names.items():
        state = {key.replace(ours, new): value for key, value in state.items()}
    theirs.load_state_dict(state)
    return theirs


@check(EncoderLayer.forward, "The layers")
def norms() -> None:
    """What comes out of a sublayer's dropout is added to x, then normalised; with ``norm_first``, x is before."""
    for first in (False, True):
        layer, x = EncoderLayer(replace(SIZES, norm_first=first)).train(first), randn(2, 4, 8)
        attend, transform, drop = partial(layer.self_attn, mask=MASK), layer.feed_forward, layer.dropout
        drop.forward = lambda y: y / 2  # stands for dropout
        post, late = layer.norm1(x + drop(attend(x))), drop(layer.norm1(x + attend(x)))
        post, late = layer.norm2(post + drop(transform(post))), drop(layer.norm2(late + transform(late)))
        pre = x + drop(attend(layer.norm1(x)))
        pre = pre + drop(transform(layer.norm2(pre)))
        slips = {"always post-norm": post, "Post-norm in the text, pre-norm in the code": pre}
        equal(layer(x, MASK), pre if first else post, slips | {"Dropout in another place": late})


@check(EncoderLayer.forward, "The layers")
def encoder_layer() -> None:
    """An encoder layer equals nn.TransformerEncoderLayer, padding included."""
    layer, x = EncoderLayer(SIZES), randn(2, 4, 8)
    theirs = pytorch(layer, nn.TransformerEncoderLayer, {"feed_forward.": ""})
    got, want = (y * MASK[:, 0, 0, :, None] for y in (layer(x, MASK), theirs(x, src_key_padding_mask=~MASK[:, 0, 0])))
    plain, inverse = (layer(x, mask) * MASK[:, 0, 0, :, None] for mask in (None, ~MASK))
    equal(got, want, {"the mask is not used": plain, "True means the opposite": inverse})


@check(DecoderLayer.forward, "The layers")
def decoder_layer() -> None:
    """A decoder layer equals nn.TransformerDecoderLayer: causal self-attention, cross-attention, feed-forward."""
    layer, x, memory = DecoderLayer(SIZES), randn(2, 3, 8), randn(2, 4, 8)
    theirs = pytorch(layer, nn.TransformerDecoderLayer, {"feed_forward.": "", "cross_attn": "multihead_attn"})
    causal = torch.ones(3, 3, dtype=torch.bool).triu(1)
    want, leaks = (theirs(x, memory, tgt_mask=m, memory_key_padding_mask=~MASK[:, 0, 0]) for m in (causal, None))
    unmasked = theirs(x, memory, tgt_mask=causal)
    slips = {"self-attention is not causal": leaks, "the memory's padding is not masked": unmasked}
    equal(layer(x, memory, MASK), want, slips)


@check(DecoderLayer.forward, "The layers")
def norms_of_the_decoder() -> None:
    """With ``norm_first``, each of the three sublayers reads what its own norm gives, and x is added as it is."""
    layer, x, memory = DecoderLayer(replace(SIZES, norm_first=True)).eval(), randn(2, 3, 8), randn(2, 4, 8)
    want = x + layer.dropout(layer.self_attn(layer.norm1(x), causal=True))
    want = want + layer.dropout(layer.cross_attn(layer.norm2(want), memory, mask=MASK))
    want = want + layer.dropout(layer.feed_forward(layer.norm3(want)))
    got, layer.norm_first = layer(x, memory, MASK), False
    equal(got, want, {"always post-norm": layer(x, memory, MASK)})


@check(DecoderLayer.forward, "The layers")
def a_cache_changes_nothing() -> None:
    """Word by word with a cache, a decoder layer gives the same as for the whole target."""
    for first in (False, True):
        layer, x, memory = DecoderLayer(replace(SIZES, norm_first=first)), randn(2, 3, 8), randn(2, 4, 8)
        cache = KVCache()
        words = torch.cat([layer(word, memory, MASK, cache) for word in x.split(1, 1)], 1)
        equal(words, layer(x, memory, MASK), names="the whole target / word by word")


@check(Encoder.forward, "The layers")
def encoder_stack() -> None:
    """Vectors pass through all layers in order, with the mask, and then through the last norm."""
    stack, x = Encoder(replace(SIZES, norm_first=True)).eval(), randn(2, 4, 8)
    inside = stack.layers[1](stack.layers[0](x, MASK), MASK)
    equal(stack(x, MASK), stack.norm(inside), {"the last norm of a pre-norm stack is missing": inside})


@check(Decoder.forward, "The layers")
def decoder_stack() -> None:
    """Every layer attends to the same memory, and has a cache of its own; then comes the last norm."""
    stack, x, memory = Decoder(replace(SIZES, norm_first=True)).eval(), randn(2, 3, 8), randn(2, 4, 8)
    inside, caches = stack.layers[1](stack.layers[0](x, memory, MASK), memory, MASK), [KVCache(), KVCache()]
    want = stack.norm(inside)
    equal(stack(x, memory, MASK), want, {"the last norm of a pre-norm stack is missing": inside})
    equal(torch.cat([stack(word, memory, MASK, caches) for word in x.split(1, 1)], 1), want)
    equal(stack(x, [layer.cross_attn.project(memory, 1) for layer in stack.layers], MASK), want)


def translator() -> Transformer:
    """A small model, whose two embeddings are two tables, and its positions, too."""
    return Transformer(replace(SIZES, tie_embeddings="target", positions="learned")).eval()


@check(Transformer.encode, "The model")
def encoding() -> None:
    """Embeddings are scaled by the root of D before positions are added, then comes a dropout; padding is masked.

    The result is a ``Memory(outputs, mask)``. A token outside the vocabulary raises a ValueError.
    """
    model = translator()
    words = model.source_embedding(SOURCE)
    x, plain = (model.dropout(model.source_positions(y)) for y in (words * 8**0.5, words))
    late = model.source_positions(words) * 8**0.5
    got = model.encode(SOURCE)
    slips = {
        "the embeddings are not scaled": model.encoder(plain, MASK),
        "the padding is not masked": model.encoder(x),
        "the positions are scaled, too": model.encoder(late, MASK),
    }
    equal(got.outputs, model.encoder(x, MASK), slips)
    equal(got.mask, SOURCE != 0)
    refuses(ValueError, model.encode, SOURCE + 9)


@check(Transformer.hidden, "The model")
def decoding() -> None:
    """The target's embeddings go the same way, and then through the decoder with the memory and its mask.

    A token outside the vocabulary raises a ValueError.
    """
    model = translator()
    memory, words = model.encode(SOURCE), model.target_embedding(TARGET)
    x, y = (model.dropout(model.target_positions(z)) for z in (words * 8**0.5, words))
    slips = {
        "the embeddings are not scaled": model.decoder(y, memory.outputs, MASK),
        "the padding of the memory is not masked": model.decoder(x, memory.outputs),
    }
    want = model.decoder(x, memory.outputs, MASK)
    equal(model.hidden(TARGET, memory), want, slips)
    refuses(ValueError, model.hidden, TARGET + 9, memory)


@check(Transformer.hidden, "The model")
def no_leak() -> None:
    """If the last target word changes, no earlier logit does, in training and in evaluation."""
    model, other = translator(), TARGET.clone()
    other[:, -1] = 5
    for mode in (True, False):
        model.train(mode)
        one, two = model(SOURCE, TARGET)[:, :-1], model(SOURCE, other)[:, :-1]
        slips = {"A decoder that sees the answer during evaluation": not same(two, one)}
        equal(two, one, slips, "before / after")


@check(Transformer.hidden, "The model")
def padding_changes_nothing() -> None:
    """A pair gives the same logits alone as beside a longer one."""
    model = translator()
    one, two = model(SOURCE, TARGET)[1:, :3], model(SOURCE[1:, :2], TARGET[1:, :3])
    equal(one, two, names="alone / beside a longer one")


@check(Transformer.start, "One token at a time")
def projected_once() -> None:
    """The state's memory holds each layer's keys and values in ``layers``, and each layer has an empty cache."""
    model = translator()
    state, memory = model.start(SOURCE), model.encode(SOURCE)
    holds(state.memory.layers, f"expected  two layers' keys and values\ngot       layers={state.memory.layers}")
    for layer, got in zip(model.decoder.layers, state.memory.layers, strict=True):
        equal(list(got), layer.cross_attn.project(memory.outputs, 1))
    equal([len(cache) for cache in state.caches], [0, 0])
    holds(state.caches[0] is not state.caches[1], "both layers share one cache")


@check(Transformer.step, "One token at a time")
def step_by_step() -> None:
    """Token by token, the model gives the same logits as for the whole target at once."""
    model, logits = translator(), []
    state = model.start(SOURCE)
    for token in TARGET.unbind(1):
        one, state = model.step(token, state)
        logits.append(one)
    zero = model.decode(TARGET[:, 1:2], model.encode(SOURCE))[:, 0]
    equal(logits[1], model(SOURCE, TARGET)[:, 1], {"Every cached token at position zero": zero})
    equal(torch.stack(logits, 1), model(SOURCE, TARGET), names="the whole target / token by token")
    state = model.start(SOURCE)
    blind = replace(state, memory=replace(state.memory, outputs=torch.zeros(2, 4, 8)))
    equal(model.step(TARGET[:, 0], blind)[0], logits[0], names="the memory's layers / its outputs")


@check(Transformer.step, "One token at a time")
def the_old_state_stays() -> None:
    """A step leaves its old state as it was, so that two hypotheses can go on from it."""
    model = translator()
    state = model.start(SOURCE)
    first, _ = model.step(TARGET[:, 0], state)
    again, _ = model.step(TARGET[:, 0], state)
    equal(again, first, names="the first time / again")
    held = len(state.caches[0])
    holds(held == 0, f"expected  an empty cache in the old state\ngot       {held} positions")


@check(Transformer.attention, "The model")
def every_head() -> None:
    """There is a tensor (B, H, T, S) of weights for each layer, of three kinds, and they sum to 1."""
    weights, shape = translator().attention(SOURCE, TARGET), torch.Size([2, 2, 4, 4])
    for kind in (weights.encoder, weights.decoder, weights.cross):
        equal([getattr(one, "shape", one) for one in kind], [shape] * 2)
    equal(weights.cross[0].sum(-1), torch.ones(2, 2, 4))
    equal(weights.decoder[0].triu(1), torch.zeros(shape), {"encoder and decoder exchanged": True})


@check(Transformer.align, "What it attends to")
def the_last_layer() -> None:
    """The alignment is the mean, over the heads, of the last layer's attention to the source."""
    model = translator()
    cross = model.attention(SOURCE, TARGET).cross
    equal(model.align(SOURCE, TARGET), cross[-1].mean(1), {"the first layer": cross[0].mean(1)})
