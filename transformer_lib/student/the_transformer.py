"""Tests for chapter "The Transformer"."""

import torch
from torch import nn, randn, tensor

from transformer_lib.models.multi_head import KVCache
from transformer_lib.models.transformer import (
    Decoder,
    DecoderLayer,
    Encoder,
    EncoderLayer,
    Layer,
    Transformer,
    TransformerConfig,
    TransformerCore,
)
from transformer_lib.student.checks import check, equal, holds, same

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


@check(Layer.add, "The layers")
def post_norm() -> None:
    """The sublayer's output is added to x, then normalised."""
    layer, x, f = Layer(SIZES), randn(2, 4, 8), nn.Linear(8, 8)
    slip = x + f(layer.norm1(x))
    equal(layer.add(x, layer.norm1, f), layer.norm1(x + f(x)), {"Post-norm in the text, pre-norm in the code": slip})


@check(EncoderLayer.forward, "The layers")
def encoder_layer() -> None:
    """An encoder layer equals nn.TransformerEncoderLayer, padding included."""
    layer, x = EncoderLayer(SIZES), randn(2, 4, 8)
    theirs = pytorch(layer, nn.TransformerEncoderLayer, {"feed_forward.": ""})
    got, want = (y * MASK[:, 0, 0, :, None] for y in (layer(x, MASK), theirs(x, src_key_padding_mask=~MASK[:, 0, 0])))
    equal(
        got,
        want,
        {
            "the mask is not used": layer(x) * MASK[:, 0, 0, :, None],
            "True means the opposite": layer(x, ~MASK) * MASK[:, 0, 0, :, None],
        },
    )


@check(DecoderLayer.forward, "The layers")
def decoder_layer() -> None:
    """A decoder layer equals nn.TransformerDecoderLayer: causal self-attention, cross-attention, feed-forward."""
    layer, x, memory = DecoderLayer(SIZES), randn(2, 3, 8), randn(2, 4, 8)
    theirs = pytorch(layer, nn.TransformerDecoderLayer, {"feed_forward.": "", "cross_attn": "multihead_attn"})
    causal = torch.ones(3, 3, dtype=torch.bool).triu(1)
    want, leaks = (theirs(x, memory, tgt_mask=m, memory_key_padding_mask=~MASK[:, 0, 0]) for m in (causal, None))
    unmasked = theirs(x, memory, tgt_mask=causal)
    slips = {
        "A decoder that sees the answer during evaluation": leaks,
        "the padding of the memory is not masked": unmasked,
    }
    equal(layer(x, memory, MASK), want, slips)


@check(DecoderLayer.forward, "The layers")
def a_cache_changes_nothing() -> None:
    """Word by word with a cache, a decoder layer gives the same as for the whole target."""
    layer, x, memory, cache = DecoderLayer(SIZES), randn(2, 3, 8), randn(2, 4, 8), KVCache()
    equal(torch.cat([layer(word, memory, MASK, cache) for word in x.split(1, 1)], 1), layer(x, memory, MASK))


@check(Encoder.forward, "The layers")
def encoder_stack() -> None:
    """Vectors pass through all layers in order, with the mask, and then through the last norm."""
    stack, x = (
        Encoder(TransformerConfig(11, 11, d_model=8, n_heads=2, n_encoder_layers=2, d_ff=16, norm_first=True)).eval(),
        randn(2, 4, 8),
    )
    inside = stack.layers[1](stack.layers[0](x, MASK), MASK)
    equal(stack(x, MASK), stack.norm(inside), {"the last norm of a pre-norm stack is missing": inside})


@check(Decoder.forward, "The layers")
def decoder_stack() -> None:
    """Every layer attends to the same memory, and has a cache of its own."""
    stack, x, memory = Decoder(SIZES).eval(), randn(2, 3, 8), randn(2, 4, 8)
    want, caches = stack.layers[1](stack.layers[0](x, memory, MASK), memory, MASK), [KVCache(), KVCache()]
    equal(stack(x, memory, MASK), want)
    equal(torch.cat([stack(word, memory, MASK, caches) for word in x.split(1, 1)], 1), want)
    equal(stack(x, [layer.cross_attn.project(memory, 1) for layer in stack.layers], MASK), want)


def translator() -> Transformer:
    """A small model."""
    return Transformer(SIZES).eval()


@check(TransformerCore.encode, "The model")
def encoding() -> None:
    """Embeddings are scaled by the root of D before positions are added, and padding is masked."""
    model = translator()
    words = model.source_embedding(SOURCE)
    want = model.encoder(model.source_positions(words * 8**0.5), MASK)
    got = model.encode(SOURCE)
    slips = {
        "the embeddings are not scaled": model.encoder(model.source_positions(words), MASK),
        "the padding is not masked": model.encoder(model.source_positions(words * 8**0.5)),
    }
    equal(
        got.outputs,
        want,
        slips | {"the positions are scaled, too": model.encoder(model.source_positions(words) * 8**0.5, MASK)},
    )
    equal(got.mask, SOURCE != 0)


@check(TransformerCore.hidden, "The model")
def decoding() -> None:
    """The target's embeddings go the same way, and then through the decoder with the memory and its mask."""
    model = translator()
    memory = model.encode(SOURCE)
    words = model.target_embedding(TARGET)
    want, plain = (model.decoder(model.target_positions(x), memory.outputs, MASK) for x in (words * 8**0.5, words))
    equal(model.hidden(TARGET, memory), want, {"the embeddings are not scaled": plain})


@check(TransformerCore.hidden, "The model")
def no_leak() -> None:
    """If the last target word changes, no earlier logit does, in training and in evaluation."""
    model, other = translator(), TARGET.clone()
    other[:, -1] = 5
    for mode in (True, False):
        model.train(mode)
        one, two = model(SOURCE, TARGET)[:, :-1], model(SOURCE, other)[:, :-1]
        equal(two, one, {"A decoder that sees the answer during evaluation": not same(two, one)})


@check(TransformerCore.hidden, "The model")
def padding_changes_nothing() -> None:
    """A pair gives the same logits alone as beside a longer one."""
    model = translator()
    equal(model(SOURCE, TARGET)[1:, :3], model(SOURCE[1:, :2], TARGET[1:, :3]))


@check(Transformer.start, "The model")
def projected_once() -> None:
    """The state holds each layer's keys and values of the memory, and an empty cache for each layer."""
    model = translator()
    state, memory = model.start(SOURCE), model.encode(SOURCE)
    want = [layer.cross_attn.project(memory.outputs, 1) for layer in model.decoder.layers]
    equal([part for layer in state.memory.layers for part in layer], [part for layer in want for part in layer])
    equal([len(cache) for cache in state.caches], [0, 0])


@check(Transformer.step, "The model")
def step_by_step() -> None:
    """Token by token, the model gives the same logits as for the whole target at once."""
    model, logits = translator(), []
    state = model.start(SOURCE)
    for token in TARGET.unbind(1):
        one, state = model.step(token, state)
        logits.append(one)
    zero = model.decode(TARGET[:, 1:2], model.encode(SOURCE))[:, 0]
    equal(logits[1], model(SOURCE, TARGET)[:, 1], {"Every cached token at position zero": zero})
    equal(torch.stack(logits, 1), model(SOURCE, TARGET))


@check(Transformer.step, "The model")
def the_old_state_stays() -> None:
    """A step leaves its old state as it was, so that two hypotheses can go on from it."""
    model = translator()
    state = model.start(SOURCE)
    first, _ = model.step(TARGET[:, 0], state)
    again, _ = model.step(TARGET[:, 0], state)
    equal(again, first)
    holds(
        len(state.caches[0]) == 0,
        f"expected  an empty cache in the old state\ngot       {len(state.caches[0])} positions",
    )


@check(Transformer.attention, "What it attends to")
def every_head() -> None:
    """There are weights of each layer and head, of three kinds, and they sum to 1."""
    weights = translator().attention(SOURCE, TARGET)
    equal([len(weights.encoder), len(weights.decoder), len(weights.cross)], [2, 2, 2])
    equal(weights.cross[0].sum(-1), torch.ones(2, 2, 4))
    equal(
        weights.decoder[0].triu(1),
        torch.zeros(2, 2, 4, 4),
        {"A decoder that sees the answer during evaluation": bool(weights.decoder[0].triu(1).any())},
    )


@check(Transformer.align, "What it attends to")
def the_last_layer() -> None:
    """The alignment is the mean, over the heads, of the last layer's attention to the source."""
    model = translator()
    cross = model.attention(SOURCE, TARGET).cross
    equal(model.align(SOURCE, TARGET), cross[-1].mean(1), {"the first layer": cross[0].mean(1)})
