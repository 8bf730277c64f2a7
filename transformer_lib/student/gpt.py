"""Tests for chapter "GPT"."""

import torch
from torch import Tensor, nn, randn, tensor
from torch.nn.functional import scaled_dot_product_attention as kernel

from transformer_lib.plain.gpt import GPT, Attention, Layer, train, write
from transformer_lib.student.checks import check, equal, holds, same

TOKENS = tensor([[1, 5, 6, 7, 2], [1, 8, 9, 4, 2]])


@check(Attention.forward, "Half a Transformer")
def attention() -> None:
    """Every position attends to itself and to all before it, in each head, and ``out_proj`` joins the heads."""
    layer, x = Attention(8, 2), randn(2, 5, 8)
    nn.init.normal_(layer.in_proj_bias)
    wide = [
        y.unflatten(2, (2, -1)).transpose(1, 2) for y in (x @ layer.in_proj_weight.T + layer.in_proj_bias).chunk(3, 2)
    ]
    q, k, v = wide
    want, leaks = (layer.out_proj(kernel(q, k, v, is_causal=on).transpose(1, 2).flatten(2)) for on in (True, False))
    narrow = [y.reshape(2, 2, 5, 4) for y in (x @ layer.in_proj_weight.T + layer.in_proj_bias).chunk(3, 2)]
    cut = layer.out_proj(kernel(*narrow, is_causal=True).transpose(1, 2).flatten(2))
    upside = layer.out_proj(kernel(q, k, v, torch.ones(5, 5, dtype=torch.bool).triu()).transpose(1, 2).flatten(2))
    slips = {
        "the causal mask is missing": leaks,
        "True means the opposite": upside,
        "Heads cut without the transpose": cut,
        "the scores aren't divided by the root of d_k": layer.out_proj(
            kernel(q, k, v, is_causal=True, scale=1.0).transpose(1, 2).flatten(2)
        ),
    }
    equal(layer(x), want, slips)


@check(Layer.forward, "Half a Transformer")
def pre_norm() -> None:
    """The norms come before attention and feed-forward, and both results are added to x."""
    layer, x = Layer(8, 2, 16), randn(2, 5, 8)
    for norm in (layer.norm1, layer.norm2):
        nn.init.normal_(norm.bias)
    y = x + layer.self_attn(layer.norm1(x))
    post = layer.norm1(x + layer.self_attn(x))
    want, both = (y + layer.feed_forward(layer.norm2(z)) for z in (y, x))
    slips = {"the norms come after the sums": layer.norm2(post + layer.feed_forward(post))}
    equal(layer(x), want, slips | {"both parts read x": both})


@check(GPT.forward, "Half a Transformer")
def logits() -> None:
    """Vectors of tokens and positions are added, pass through all layers and the last norm, and become logits."""
    model = GPT(12, 8, 2, 2, 12, 16)
    nn.init.normal_(model.norm.bias)
    x = model.embedding(TOKENS) + model.positions(torch.arange(5))
    for layer in model.layers:
        x = layer(x)
    equal(model(TOKENS), model.output(model.norm(x)), {"the last norm is missing": model.output(x)})


@check(GPT.forward, "Half a Transformer")
@check(Attention.forward, "Half a Transformer")
def no_leak() -> None:
    """If the last token changes, no earlier logit does."""
    model, other = GPT(12, 8, 2, 2, 12), torch.cat([TOKENS[:, :-1], TOKENS[:, :1]], 1)
    equal(model(other)[:, :-1], model(TOKENS)[:, :-1])


@check(write, "Half a Transformer")
def writes() -> None:
    """The list that comes back begins with the tokens, and goes on with draws from softmax(logits / temperature).

    The draws are those of ``torch.multinomial``, one by one.
    """
    torch.manual_seed(0)
    model = GPT(12, 8, 2, 2, 6)
    model.embedding.weight.data *= 2
    begin = [1, 5, 6]
    for temperature in (1.0, 0.5):
        tokens, rng = list(begin), torch.Generator().manual_seed(0)
        for _ in range(20):
            last = model(tensor([tokens[-6:]]))[0, -1].detach()
            tokens.append(int(torch.multinomial((last / temperature).softmax(-1), 1, generator=rng)))
        equal(write(model, begin, 20, temperature, torch.Generator().manual_seed(0)), tokens)
    equal(begin, [1, 5, 6], names="the list that was given / afterwards")
    holds(len(write(model, list(range(10)), 3)) == 13, "it sees at most as many tokens as the model has positions")


@check(train, "Learning by guessing")
def learns() -> None:
    """A text without surprises is learned: after each token, the next one is nearly certain."""
    torch.manual_seed(0)
    model, ids, seen = GPT(4, 16, 2, 1, 8), torch.arange(200) % 4, []
    before = {name: weight.clone() for name, weight in model.state_dict().items()}
    train(model, ids, 100, 0.01, seen.append, rows=8)
    right = model(ids[None, :8])[0].softmax(-1)[range(1, 8), ids[2:9]]
    holds(bool((right > 0.9).all()), f"the probabilities of the right tokens are {right.tolist()}")
    equal(seen, [*range(101)], names="updates before which watch should be called, and the end / is called")
    holds(
        not same(before["layers.0.self_attn.in_proj_weight"], model.state_dict()["layers.0.self_attn.in_proj_weight"]),
        "the attention learned nothing",
    )


def steps_of(model: GPT, ids: Tensor, updates: int, rate: float) -> list[tuple[float, tuple[float, float], float]]:
    """Rate, betas, and the gradient's norm at every step of a training."""
    seen, adam = [], torch.optim.Adam
    step = adam.step

    def watched(self: torch.optim.Adam, *arguments: object, **options: object) -> object:
        (group,) = self.param_groups
        norm = sum(float(p.grad.square().sum()) for p in group["params"]) ** 0.5
        seen.append((float(group["lr"]), tuple(group["betas"]), norm))
        return step(self, *arguments, **options)

    adam.step = watched  # type: ignore[method-assign, assignment]
    try:
        train(model, ids, updates, rate)
    finally:
        adam.step = step  # type: ignore[method-assign]
    return seen


@check(train, "Learning by guessing")
def follows_the_recipe() -> None:
    """Adam with betas 0.9 and 0.98, 50 updates of warm-up, a linear decay, and gradients of norm 1 at most."""
    rates, betas, norms = zip(*steps_of(GPT(4, 8, 2, 1, 8), torch.arange(100) % 4, 100, 0.1), strict=True)
    equal({*betas}, {(0.9, 0.98)})
    holds(max(norms) < 1.001, f"a gradient has the norm {max(norms):.2f}")
    slip = tensor([0.1 * min(u / 50, 1 - u / 100) for u in range(100)])
    want = tensor([0.1 * min((u + 1) / 50, 1 - u / 100) for u in range(100)])
    equal(tensor(rates), want, {"The first update is number zero": slip})


@check(train, "Learning by guessing")
def forgets_old_gradients() -> None:
    """Where all windows are alike and the rate is zero, the gradient is the same at every update."""
    model, ids = GPT(4, 8, 2, 1, 8), torch.zeros(100, dtype=torch.long)
    train(model, ids, 100, 0.01)  # so that no gradient is clipped
    model.zero_grad()
    *_, first, _, third = (norm for *_, norm in steps_of(model, ids, 3, 0.0))
    slips = {"gradients of earlier updates are still there": third > 1.5 * first}
    equal(third / first, 1.0, slips, "third norm over first, expected / got")
