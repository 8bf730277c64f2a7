"""Tests for chapter "Linear attention"."""

import math

import torch
from torch import nn, randn, tensor
from torch.nn import functional as F

from transformer_lib.data.recall import N_VALUES, make_recall
from transformer_lib.models.linear_attention import (
    CausalConv,
    GatedDeltaNet,
    LinearAttention,
    features,
    kernel_attention,
    linear_attention,
    unit,
)
from transformer_lib.student.checks import check, equal, holds


def triple(T: int = 6) -> tuple[torch.Tensor, ...]:
    """Queries, keys of length 1, and values."""
    return randn(2, T, 4), F.normalize(randn(2, T, 4), dim=-1), randn(2, T, 5)


@check(linear_attention, "Take the softmax away")
def sums_of_products() -> None:
    """Without decay or delta, output t is the sum over s up to t of (q_t . k_s) v_s; the state is the sum of all k v'.

    There may be any axes in front of positions and width, or none.
    """
    for shape in ((2,), (), (2, 3)):
        q, k, v = randn(*shape, 6, 4), randn(*shape, 6, 4), randn(*shape, 6, 5)
        got, state = linear_attention(q, k, v)
        slips = {
            "A cumulative sum that includes the future": q @ (k.mT @ v),
            "a word that does not see itself": (q @ k.mT).tril(-1) @ v,
        }
        equal(got, (q @ k.mT).tril() @ v, slips)
        equal(state, k.mT @ v)


@check(linear_attention, "Parallel, recurrent, chunked")
def three_forms() -> None:
    """Chunks of 1, 2, 4 and all give the same, and so do two calls that hand the state on."""
    (q, k, v), beta, decay = triple(), torch.rand(2, 6), -torch.rand(2, 6)
    for options in ({}, {"delta": True}):
        want, last = linear_attention(q, k, v, beta=beta, log_decay=decay, chunk=1, **options)
        for chunk in (2, 4, 64):
            equal(linear_attention(q, k, v, beta=beta, log_decay=decay, chunk=chunk, **options), (want, last))
        first, state = linear_attention(
            q[:, :3], k[:, :3], v[:, :3], beta=beta[:, :3], log_decay=decay[:, :3], **options
        )
        rest, end = linear_attention(
            q[:, 3:], k[:, 3:], v[:, 3:], beta=beta[:, 3:], log_decay=decay[:, 3:], state=state, **options
        )
        equal((torch.cat([first, rest], 1), end), (want, last))


def step_by_step(q, k, v, beta, decay, delta):
    """The recurrence, one position after the other."""
    W, outputs = torch.zeros(2, 4, 5), []
    for t in range(q.shape[1]):
        W = W * decay[:, t].exp()[:, None, None]
        old = (k[:, t, None] @ W)[:, 0] if delta else 0
        W = W + k[:, t, :, None] * (beta[:, t, None] * (v[:, t] - old))[:, None]
        outputs.append((q[:, t, None] @ W)[:, 0])
    return torch.stack(outputs, 1), W


@check(linear_attention, "Parallel, recurrent, chunked")
def fading() -> None:
    """Before each write, the state fades by its factor, and beta says how strongly to write."""
    (q, k, v), beta, decay = triple(), torch.rand(2, 6), -torch.rand(2, 6)
    equal(linear_attention(q, k, v, beta=beta, log_decay=decay), step_by_step(q, k, v, beta, decay, False))


@check(linear_attention, "Why sums go wrong")
def the_delta_rule() -> None:
    """With ``delta``, a write replaces what the key gave before: v - k W is written, not v."""
    (q, k, v), beta, decay = triple(), torch.rand(2, 6), -torch.rand(2, 6)
    want, plain = (step_by_step(q, k, v, beta, decay, delta) for delta in (True, False))
    equal(
        linear_attention(q, k, v, beta=beta, log_decay=decay, delta=True), want, {"sums instead of differences": plain}
    )


@check(linear_attention, "One function for all the rules")
def after_a_strong_decay() -> None:
    """Plumbing: after a decay that clears the memory, even minus infinity, weaker decays keep their digits."""
    ones = torch.ones(1, 4, 1)
    for strong in (-1e8, -torch.inf):
        decay, last = tensor([[0.0, strong, -0.3, -0.3]]), [1.0, 1.0, 1.7408182, 2.2896299]
        for chunk in (1, 4):
            got, _ = linear_attention(ones, ones, ones, log_decay=decay, chunk=chunk)
            lost = torch.allclose(got.flatten(), tensor([1.0, 1, 2, 3])) or bool(got.isnan().any())
            slip = {"a difference of two large sums has lost the small numbers in them": lost}
            equal(got.flatten(), tensor(last), slip)


@check(linear_attention, "One function for all the rules")
def words_that_are_masked() -> None:
    """Plumbing: where the mask is False, nothing fades and nothing is written, and the output is 0."""
    (q, k, v), beta, decay = triple(), torch.rand(2, 6), -torch.rand(2, 6)
    mask = tensor([True, False, True, True, False, False])
    options = {"beta": beta, "log_decay": decay, "delta": True}
    got, state = linear_attention(q, k, v, mask=mask.expand(2, 6), **options)
    few = {"beta": beta[:, mask], "log_decay": decay[:, mask], "delta": True}
    want, last = linear_attention(q[:, mask], k[:, mask], v[:, mask], **few)
    equal((got[:, mask], state), (want, last), names="without these words / with them, masked")
    equal(got[:, ~mask], torch.zeros(2, 3, 5))


@check(features, "Positive features: the linear attention of 2020")
def positive_features() -> None:
    """The features are elu(x) + 1, also where this is tiny."""
    x = tensor([[-3.0, -0.5, 0.0, 2.0]])
    equal(features(x), F.elu(x) + 1, {"elu without the 1": F.elu(x)})
    low = tensor([[-40.0, -60.0]])
    equal(features(low) * 1e20, low.exp() * 1e20, {"1 is added to -1, which rounds to 0": torch.zeros(1, 2)})


@check(kernel_attention, "Positive features: the linear attention of 2020")
def tiny_features() -> None:
    """Plumbing: queries whose features are too small for a number still get weights that sum to 1."""
    for low in (-18.0, -200.0):
        q, k, v = torch.full((1, 3, 2), low), randn(1, 3, 2), randn(1, 3, 4)
        got = kernel_attention(q, k, v)[0]
        weights = ((F.elu(k) + 1).sum(-1, keepdim=True).mT.expand(1, 3, 3)).tril()
        equal(got, weights / weights.sum(-1, keepdim=True) @ v, {"zero is divided by zero": bool(got.isnan().any())})
    equal(kernel_attention(torch.zeros(1, 2, 1), torch.full((1, 2, 1), -1e4), randn(1, 2, 1))[0], torch.zeros(1, 2, 1))


@check(kernel_attention, "Positive features: the linear attention of 2020")
def weights_that_sum_to_one() -> None:
    """The features are elu(x) + 1, and the weights of a query sum to 1."""
    q, k, v = (x[:, None] for x in triple())  # one head
    scores = ((F.elu(q) + 1) @ (F.elu(k) + 1).mT).tril()
    want = scores / scores.sum(-1, keepdim=True) @ v
    full = (F.elu(q) + 1) @ (F.elu(k) + 1).mT
    slips = {
        "the weights do not sum to 1": scores @ v,
        "A cumulative sum that includes the future": full / full.sum(-1, keepdim=True) @ v,
    }
    equal(kernel_attention(q, k, v)[0], want, slips)
    _, state = kernel_attention(q[:, :, :2], k[:, :, :2], v[:, :, :2])
    rest, _ = kernel_attention(q[:, :, 2:], k[:, :, 2:], v[:, :, 2:], state=state)
    equal(rest, want[:, :, 2:], names="at once / in two calls, with the state")


@check(LinearAttention.forward, "Positive features: the linear attention of 2020")
def every_rule_as_a_state() -> None:
    """With each rule, two calls that hand the state on give what one call gives; what the mask hides is skipped."""
    mask = tensor([[True, False, True, True, False, False]])
    for rule in ("kernel", "sum", "decay", "delta", "gated"):
        layer, x = LinearAttention(8, 2, rule=rule), randn(2, 6, 8)
        want, last = layer(x)
        first, state = layer(x[:, :4])
        rest, end = layer(x[:, 4:], state)
        equal((torch.cat([first, rest], 1), end), (want, last))
        got, state = layer(x.masked_fill(~mask[..., None], math.nan), mask=mask.expand(2, 6))
        want, last = layer(x[:, mask[0]])
        equal((got[:, mask[0]], state), (want, last), names="without padding / with it, masked")


@check(LinearAttention.forward, "Why sums go wrong")
def the_gated_rule() -> None:
    """Queries and keys have length 1; the gates say, by sigmoids, how much each head writes and keeps."""
    layer, x = LinearAttention(8, 2), randn(2, 6, 8)
    q, k, v = (y.unflatten(2, (2, 4)).transpose(1, 2) for y in layer.in_proj(x).split(layer.sizes, -1))
    write, keep = layer.gates(x).mT.chunk(2, 1)
    u, w = F.normalize(q, dim=-1), F.normalize(k, dim=-1)
    options = {"beta": write.sigmoid(), "log_decay": F.logsigmoid(keep), "delta": True}
    want, slip = (
        layer.out_proj(linear_attention(*parts, v, **options)[0].transpose(1, 2).flatten(2))
        for parts in ((u, w), (q, k))
    )
    equal(layer(x)[0], want, {"Keys whose length isn't 1": slip})


@check(LinearAttention.forward, "Why sums go wrong")
def the_other_rules() -> None:
    """The rule "kernel" uses the features; of the others, "decay" and "gated" fade, "delta" and "gated" subtract."""
    for rule in ("kernel", "sum", "decay", "delta"):
        layer, x = LinearAttention(8, 2, rule=rule), randn(2, 6, 8)
        q, k, v = (y.unflatten(2, (2, 4)).transpose(1, 2) for y in layer.in_proj(x).split(layer.sizes, -1))
        write, keep = layer.gates(x).mT.chunk(2, 1)
        options = {"log_decay": F.logsigmoid(keep)} if rule == "decay" else {"delta": rule == "delta"}
        y, _ = linear_attention(F.normalize(q, dim=-1), F.normalize(k, dim=-1), v, beta=write.sigmoid(), **options)
        y = kernel_attention(q, k, v)[0] if rule == "kernel" else y
        equal(layer(x)[0], layer.out_proj(y.transpose(1, 2).flatten(2)), {f"a mistake with the rule {rule}": True})


@check(make_recall, "What does it recall?")
def pairs_then_questions() -> None:
    """Each key is given so many times, then asked once; at the questions, the value is none."""
    batch = make_recall(3, 4, times=2, generator=torch.Generator().manual_seed(0))
    equal((batch.keys.shape, batch.answers.shape), (torch.Size([3, 12]), torch.Size([3, 4])))
    counts = [sorted(row.bincount()[row.unique()].tolist()) for row in batch.keys]
    equal((counts, batch.values[:, 8:]), ([[3] * 4] * 3, torch.full((3, 4), N_VALUES)))
    again = make_recall(3, 4, times=2, generator=torch.Generator().manual_seed(0))
    pairs = (again.keys, again.values), (batch.keys, batch.values)
    equal(*pairs, {"something is drawn without the generator": True}, "the first time / again")


@check(make_recall, "What does it recall?")
def the_last_value_counts() -> None:
    """The answer is the last value that the key was given."""
    batch = make_recall(3, 4, times=3, generator=torch.Generator().manual_seed(0))
    for keys, values, answers in zip(batch.keys.tolist(), batch.values.tolist(), batch.answers.tolist(), strict=True):
        given = list(zip(keys[:12], values[:12], strict=True))
        equal(
            answers,
            [dict(given)[key] for key in keys[12:]],
            {"the first value": [dict(given[::-1])[key] for key in keys[12:]]},
        )


@check(CausalConv.forward, "Today's layer")
def a_causal_convolution() -> None:
    """Output t depends on the inputs up to t, and the last inputs, before the padding of a row, are handed on."""
    conv, x = CausalConv(3, 4), randn(2, 6, 3)
    want = F.silu(F.conv1d(F.pad(x.mT, (3, 0)), conv.weight, groups=3)).mT
    y, recent = conv(x, None)
    equal((y, recent), (want, x[:, 3:]))
    first, state = conv(x[:, :2], None)
    equal(torch.cat([first, conv(x[:, 2:], state)[0]], 1), want)
    _, recent = conv(x, None, tensor([6, 4]))
    slip = {"the inputs at the end are handed on, padding or not": x[:, 3:]}
    equal(recent, torch.stack([x[0, 3:], x[1, 1:4]]), slip)


@check(unit, "Today's layer")
def of_length_one() -> None:
    """Vectors get length 1, and a vector of zeros stays zero."""
    x = randn(2, 3, 8)
    slips = {"divided by the square, without a root": x / x.square().sum(-1, keepdim=True)}
    equal(unit(x), F.normalize(x, dim=-1), slips)
    equal(unit(torch.zeros(1, 8)), torch.zeros(1, 8))


@check(GatedDeltaNet.forward, "Today's layer")
def a_state_that_is_handed_on() -> None:
    """Two calls that hand the state on give what one call gives, and no output depends on later inputs."""
    layer, x = GatedDeltaNet(8, 4, 2, 3, 3), randn(2, 6, 8)
    want, _ = layer(x)
    first, state = layer(x[:, :4])
    rest, _ = layer(x[:, 4:], state)
    equal(torch.cat([first, rest], 1), want)


@check(GatedDeltaNet.forward, "Today's layer")
def padding_without_a_trace() -> None:
    """Plumbing: where the mask is False, x is skipped, whatever stands there."""
    layer, x, mask = GatedDeltaNet(8, 4, 2, 3, 3), randn(1, 6, 8), tensor([[False, True, True, False, True, False]])
    want, last = layer(x[:, mask[0]])
    got, state = layer(x.masked_fill(~mask[..., None], math.nan), mask=mask)
    equal((got[:, mask[0]], state.memory, state.recent), (want, last.memory, last.recent))


@check(GatedDeltaNet.forward, "Today's layer")
def read_normalised_and_gated() -> None:
    """What is read is normalised for each head, gated by swish(z), and projected."""
    layer, x = GatedDeltaNet(8, 4, 2, 3, 3), randn(2, 6, 8)
    y, _ = layer(x)
    nn.init.zeros_(layer.norm.weight)
    equal(layer(x)[0], torch.zeros(2, 6, 8))
    holds(y.abs().max() > 1e-4, "the outputs were zero before the gain was")


@check(GatedDeltaNet.forward, "Today's layer")
def one_head_by_hand() -> None:
    """Of one head: q and k have length 1, and q is divided by the root of K; the gates are as in the formula."""
    layer, x = GatedDeltaNet(8, 1, 1, 3, 3), randn(2, 6, 8)
    layer.dt_bias.data.normal_()
    mixed, (b, a) = layer.in_proj_qkvz(x), layer.in_proj_ba(x).mT.split(1, 1)
    q, k, v = layer.conv1d(mixed[..., :9], None)[0].split(3, -1)
    decay = -layer.A_log.exp()[:, None] * F.softplus(a + layer.dt_bias[:, None])
    parts = [y[:, None] for y in (unit(q) / 3**0.5, unit(k), v)]
    y, _ = linear_attention(*parts, beta=b.sigmoid(), log_decay=decay, delta=True)
    gate = F.silu(mixed[..., 9:])
    slips = {
        "not gated": layer.out_proj(layer.norm(y[:, 0])),
        "normalised after the gate": layer.out_proj(layer.norm(y[:, 0] * gate)),
        "q is not divided by the root of K": layer.out_proj(layer.norm(y[:, 0] * 3**0.5) * gate),
    }
    equal(layer(x)[0], layer.out_proj(layer.norm(y[:, 0]) * gate), slips)
