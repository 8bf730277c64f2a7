"""Tests for chapter "GPT"."""

import torch
from torch import nn, randn, tensor

from transformer_lib.models.gpt import GPT, Block, CausalAttention, GPTConfig
from transformer_lib.models.multi_head import KVCache
from transformer_lib.student.checks import check, equal, holds, refuses, same

SIZES = GPTConfig(vocab_size=12, d_model=8, n_heads=2, n_layers=2, d_ff=16, dropout=0.0, max_length=12)
TOKENS = tensor([[1, 5, 6, 7, 2], [1, 8, 9, 4, 2]])


@check(CausalAttention.forward, "Half a Transformer")
def causal() -> None:
    """No position attends to a later one."""
    layer, x = CausalAttention(8, 2), randn(2, 5, 8)
    whole, part = layer(x, torch.arange(5)), layer(x[:, :4], torch.arange(4))
    equal(whole[:, :4], part, {"A decoder that sees the answer during evaluation": not same(whole[:, :4], part)})


@check(Block.forward, "Half a Transformer")
@check(CausalAttention.forward, "Half a Transformer")
def options_go_along() -> None:
    """A mask and a cache are handed on to the attention."""
    attention, x = CausalAttention(8, 2), randn(1, 5, 8)
    layer = Block(attention, nn.Linear(8, 8), (nn.LayerNorm(8), nn.LayerNorm(8))).eval()
    for part in (attention, layer):
        mask, other, cache = torch.arange(5)[None, None, None] != 1, x + (torch.arange(5) == 1)[:, None], KVCache()
        one, two = (part(y, torch.arange(5), mask=mask)[:, 2:] for y in (x, other))
        equal(two, one, names="a masked word / the same, changed")
        words = [part(word, torch.tensor([t]), cache=cache) for t, word in enumerate(x.split(1, 1))]
        equal(torch.cat(words, 1), part(x, torch.arange(5)), names="the whole text / word by word with a cache")


@check(Block.forward, "Half a Transformer")
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


@check(GPT.forward, "Half a Transformer")
def logits() -> None:
    """There are logits of the next token at each position."""
    model = language_model()
    equal(model(TOKENS), model.output(model.hidden(TOKENS)))


@check(GPT.hidden, "Half a Transformer")
def through_all_blocks() -> None:
    """Vectors of tokens and positions pass through a dropout, all blocks, and then through the last norm."""
    model, at = language_model(), torch.arange(5)
    x = model.dropout(model.embedding(TOKENS) + model.positions(at))
    for layer in model.layers:
        x = layer(x, at)
    equal(model.hidden(TOKENS), model.norm(x), {"the last norm is missing": x})


@check(GPT.hidden, "Half a Transformer")
def no_leak() -> None:
    """If the last token changes, no earlier logit does."""
    model, other = language_model(), torch.cat([TOKENS[:, :-1], TOKENS[:, :1]], 1)
    equal(model(other)[:, :-1], model(TOKENS)[:, :-1])


@check(GPT.hidden, "Half a Transformer")
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


@check(GPT.hidden, "Half a Transformer")
def where_and_what_to_read() -> None:
    """``first`` moves the positions, a mask hides tokens, and a text beyond ``max_length`` raises a ValueError."""
    model, other = language_model(), TOKENS.clone()
    other[:, 1] = 11
    mask = torch.arange(5)[None, None, None] != 1
    one, two = (model.hidden(tokens, mask=mask)[:, 2:] for tokens in (TOKENS, other))
    equal(two, one, names="a masked token / the same, changed")
    moved = language_model()
    moved.load_state_dict(model.state_dict())
    moved.positions.weight.data = model.positions.weight.data.roll(-3, 0)
    equal(model.hidden(TOKENS, first=3), moved.hidden(TOKENS))
    equal(model.hidden(TOKENS, first=7).shape, torch.Size([2, 5, 8]))
    refuses(ValueError, lambda: model.hidden(TOKENS, first=8))


@check(GPT.start, "Write faster")
def prompt_at_once() -> None:
    """BOS and the whole prompt are read in one pass: logits of the next token, and a full cache for each layer."""
    model = language_model()
    logits, state = model.start(TOKENS[:, 1:4])
    slips = {"without BOS at the beginning": model(TOKENS[:, 1:4])[:, -1]}
    equal(logits, model(TOKENS[:, :4])[:, -1], slips)
    equal([len(cache) for cache in state.caches], [4, 4])
    holds(state.caches[0] is not state.caches[1], "both layers share one cache")


@check(GPT.start, "Write faster")
@check(GPT.step, "Write faster")
@check(GPT.hidden, "Half a Transformer")
def prompts_of_two_lengths() -> None:
    """Shorter prompts end with padding, and go on as each alone: `padding` masks columns, and moves positions."""
    model, nine = language_model(), tensor([9])
    logits, state = model.start(tensor([[5, 6, 7], [8, 0, 0]]))
    following, _ = model.step(tensor([9, 9]), state)
    for row, prompt in enumerate(([5, 6, 7], [8])):
        alone, own = model.start(tensor([prompt]))
        equal(logits[row], alone[0], names="alone / beside another")
        equal(following[row], model.step(nine, own)[0][0], names="a step alone / a step beside another")


@check(GPT.step, "Write faster")
def step_by_step() -> None:
    """Token by token, the logits are those of the whole text, and the old state stays as it was."""
    model = language_model()
    one, state = model.start(TOKENS[:, 1:2])
    rows = [one]
    for token in TOKENS[:, 2:].unbind(1):
        old = len(state.caches[0])
        one, after = model.step(token, state)
        equal(len(state.caches[0]), old)
        rows.append(one)
        state = after
    equal(torch.stack(rows, 1), model(TOKENS)[:, 1:])


@check(GPT.embed, "Half a Transformer")
def tokens_and_positions() -> None:
    """Vectors of positions are added to those of tokens."""
    model, at = language_model(), torch.arange(3, 8)
    want = model.embedding(TOKENS) + model.positions.weight[3:8]
    equal(
        model.embed(TOKENS, at),
        want,
        {"Every cached token at position zero": model.embedding(TOKENS) + model.positions.weight[:5]},
    )
