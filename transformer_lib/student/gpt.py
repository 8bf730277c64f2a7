"""Tests for chapter "GPT"."""

import torch
from torch import nn, randn, tensor

from transformer_lib.models.gpt import GPT, Block, CausalAttention, GPTConfig, GPTTranslator, OneStack
from transformer_lib.models.multi_head import KVCache
from transformer_lib.student.checks import check, equal, holds, same

SIZES = GPTConfig(vocab_size=12, d_model=8, n_heads=2, n_layers=2, d_ff=16, dropout=0.0, max_length=12)
TOKENS = tensor([[1, 5, 6, 7, 2], [1, 8, 9, 4, 2]])
SOURCE, TARGET = tensor([[4, 5, 6, 2], [7, 2, 0, 0]]), tensor([[1, 8, 9], [1, 10, 2]])


@check(CausalAttention.forward, "The model")
def causal() -> None:
    """No position attends to a later one."""
    layer, x = CausalAttention(8, 2), randn(2, 5, 8)
    whole, part = layer(x, torch.arange(5)), layer(x[:, :4], torch.arange(4))
    equal(whole[:, :4], part, {"A decoder that sees the answer during evaluation": not same(whole[:, :4], part)})


@check(Block.forward, "The model")
def pre_norm() -> None:
    """The norms come before attention and feed-forward, and both results are added to x, after a dropout."""
    block = Block(CausalAttention(8, 2), nn.Linear(8, 8), (nn.LayerNorm(8), nn.LayerNorm(8))).eval()
    for norm in (block.norm1, block.norm2):
        nn.init.normal_(norm.bias)
    x, at = randn(2, 5, 8), torch.arange(5)
    y = x + block.dropout(block.self_attn(block.norm1(x), at))
    post = block.norm1(x + block.self_attn(x, at))
    want, both = (y + block.dropout(block.feed_forward(block.norm2(z))) for z in (y, x))
    slips = {"Post-norm in the text, pre-norm in the code": block.norm2(post + block.feed_forward(post))}
    equal(block(x, at), want, slips | {"both parts read x": both})


def language_model() -> GPT:
    """A small model."""
    return GPT(SIZES).eval()


@check(GPT.forward, "The model")
def logits() -> None:
    """There are logits of the next token at each position."""
    model = language_model()
    equal(model(TOKENS), model.output(model.hidden(TOKENS)))


@check(GPT.hidden, "The model")
def through_all_blocks() -> None:
    """Vectors of tokens and positions pass through a dropout, all blocks, and then through the last norm."""
    model, at = language_model(), torch.arange(5)
    x = model.dropout(model.embedding(TOKENS) + model.positions(at))
    for layer in model.layers:
        x = layer(x, at)
    equal(model.hidden(TOKENS), model.norm(x), {"the last norm is missing": x})


@check(GPT.hidden, "The model")
def no_leak() -> None:
    """If the last token changes, no earlier logit does."""
    model, other = language_model(), torch.cat([TOKENS[:, :-1], TOKENS[:, :1]], 1)
    equal(model(other)[:, :-1], model(TOKENS)[:, :-1])


@check(GPT.hidden, "The model")
def positions_go_on_after_the_cache() -> None:
    """Tokens that follow a cache have the positions behind it."""
    model = language_model()
    caches = [KVCache(), KVCache()]
    first, rest = model.hidden(TOKENS[:, :2], caches), model.hidden(TOKENS[:, 2:], caches)
    want = model.hidden(TOKENS)
    caches = [KVCache(), KVCache()]
    model.hidden(TOKENS[:, :2], caches)
    slip = model.hidden(TOKENS[:, 2:], caches, first=0)
    equal(torch.cat([first, rest], 1), want, {"Every cached token at position zero": torch.cat([first, slip], 1)})


@check(GPT.start, "The model")
def nothing_read() -> None:
    """At the start, each layer has an empty cache."""
    state = language_model().start(TOKENS)
    equal([len(cache) for cache in state.caches], [0, 0])
    holds(state.caches[0] is not state.caches[1], "both layers share one cache")


@check(GPT.step, "The model")
def step_by_step() -> None:
    """Token by token, the logits are those of the whole text, and the old state stays as it was."""
    model, rows = language_model(), []
    state = model.start(TOKENS)
    for token in TOKENS.unbind(1):
        old = len(state.caches[0])
        one, after = model.step(token, state)
        equal(len(state.caches[0]), old)
        rows.append(one)
        state = after
    equal(torch.stack(rows, 1), model(TOKENS))


@check(GPT.embed, "The model")
def tokens_and_positions() -> None:
    """Vectors of positions are added to those of tokens."""
    model, at = language_model(), torch.arange(3, 8)
    want = model.embedding(TOKENS) + model.positions.weight[3:8]
    equal(
        model.embed(TOKENS, at),
        want,
        {"Every cached token at position zero": model.embedding(TOKENS) + model.positions.weight[:5]},
    )


def translator() -> OneStack:
    """A small language model as a translator."""
    return GPTTranslator(SIZES).eval()


@check(OneStack.encode, "Change the positions alone")
def the_source_is_read() -> None:
    """The memory holds what each layer's cache has after the source, and a mask of its padding."""
    one = translator()
    memory = one.encode(SOURCE)
    equal([len(cache) for cache in memory.caches], [4, 4])
    equal((memory.outputs, memory.mask), (one.model.hidden(SOURCE), SOURCE != 0))


@check(OneStack.read, "Change the positions alone")
def the_target_begins_at_a_fixed_position() -> None:
    """The first target token is at the middle of all positions, however long the source is, and padding is masked."""
    one = translator()
    memory = one.encode(SOURCE)
    got = one.read(
        TARGET[1:],
        [KVCache(c.k[1:], c.v[1:]) for c in memory.caches],
        type(memory)(memory.outputs[1:], memory.mask[1:], caches=[]),
    )
    alone = one.encode(SOURCE[1:, :2])
    want = one.model.hidden(TARGET[1:], [KVCache(c.k, c.v) for c in alone.caches], first=6)
    mask = torch.cat([SOURCE[1:] != 0, TARGET[1:] != 0], 1)[:, None, None]
    sliding = one.model.hidden(TARGET[1:], [KVCache(c.k[1:], c.v[1:]) for c in memory.caches], mask=mask)
    equal(got, want, {"Positions that slide with the source": sliding})


@check(OneStack.hidden, "Change the positions alone")
def two_targets_for_each_source() -> None:
    """Rows 0 and 1 of four targets continue the first source; a pair alone gives the same."""
    one, four = translator(), torch.cat([TARGET, TARGET + 1])
    got = one.hidden(four, one.encode(SOURCE))
    want = torch.cat([one.hidden(four[i : i + 1], one.encode(SOURCE[j : j + 1])) for i, j in enumerate((0, 0, 1, 1))])
    equal(got, want)


@check(OneStack.start, "Change the positions alone")
def begins_with_the_source() -> None:
    """The state holds the source's caches, and its mask."""
    one = translator()
    state, memory = one.start(SOURCE), one.encode(SOURCE)
    equal((state.caches[1].k, state.memory.mask), (memory.caches[1].k, memory.mask))


@check(OneStack.step, "Change the positions alone")
def translated_step_by_step() -> None:
    """Token by token, the logits are those of the whole target."""
    one, rows = translator(), []
    state = one.start(SOURCE)
    for token in TARGET.unbind(1):
        row, state = one.step(token, state)
        rows.append(row)
    equal(torch.stack(rows, 1), one(SOURCE, TARGET))
