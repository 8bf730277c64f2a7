"""Hard attention: draws as the softmax says, and gradients that are on average those of the expected loss."""

import copy
from functools import partial
from typing import NamedTuple

import pytest
import small
import torch
from hypothesis import given
from hypothesis import strategies as st
from small import generator, ragged
from torch import nn
from torch.nn import functional as F

from transformer_lib.data.batching import Batch
from transformer_lib.data.tokenizer import BOS, PAD
from transformer_lib.models.bahdanau import AlignedMemory
from transformer_lib.models.hard_attention import (
    HardAttention,
    HardConfig,
    HardSeq2Seq,
    gumbel_like,
)
from transformer_lib.models.luong import DotScore
from transformer_lib.models.seq2seq import token_losses
from transformer_lib.training.loop import evaluate_loss


class Seen(NamedTuple):
    """What hard attention returns, by name."""

    context: torch.Tensor
    weights: torch.Tensor
    log_probability: torch.Tensor
    entropy: torch.Tensor
    queries: torch.Tensor


ESTIMATORS = pytest.mark.parametrize("estimator", ["reinforce", "gumbel"])
FEEDING = pytest.mark.parametrize("feeding", [False, True], ids=["no feeding", "feeding"])
SIZES = small.SIZES | {"dropout": 0.0}


small_model = partial(small.small, HardSeq2Seq, HardConfig)


def small_batch(sources=(4, 3), targets=(5, 3)) -> Batch:
    return Batch(ragged(list(sources), 13), ragged(list(targets), 11, first=BOS), tuple(range(len(sources))))


def scene(lengths: list[int], n_queries: int = 3, width: int = 4, seed: int = 0) -> tuple[torch.Tensor, AlignedMemory]:
    """Random queries and a memory whose rows have the given lengths; a length of 0 leaves nothing to see."""
    draw = generator(seed)
    outputs = torch.randn(len(lengths), max(*lengths, 1), width, generator=draw).double()
    mask = torch.arange(outputs.shape[1]) < torch.tensor(lengths)[:, None]
    queries = torch.randn(len(lengths), n_queries, width, generator=draw).double()
    return queries, AlignedMemory(outputs, mask, outputs)


def attention(estimator: str = "reinforce", temperature: float = 1.0) -> HardAttention:
    return HardAttention(DotScore(), estimator=estimator, temperature=temperature)


PLACES = torch.arange(3)


class Forced(HardAttention):
    """Hard attention whose choices are given: row b of a batch follows row b of ``paths``."""

    paths: torch.Tensor

    def forward(self, queries, memory, positions):
        self.here = positions
        return super().forward(queries, memory, positions)

    def perturb(self, scores):
        return F.one_hot(self.paths[:, self.here], scores.shape[-1]).to(scores.dtype)


def force(model: HardSeq2Seq) -> Forced:
    """Put forced attention into a model, and return it."""
    old = model.attention
    model.attention = Forced(old.score, estimator=old.estimator, temperature=old.temperature).train()
    return model.attention


# ---------------------------------------------------------------- one look


@ESTIMATORS
@given(lengths=st.lists(st.integers(0, 5), min_size=1, max_size=4), training=st.booleans(), seed=st.integers(0, 99))
def test_one_place_is_seen_and_never_padding(estimator, lengths, training, seed):
    queries, memory = scene(lengths, seed=seed)
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        seen = Seen(*attention(estimator).train(training)(queries, memory, PLACES))
    for row, length in enumerate(lengths):
        weights = seen.weights[row]
        if length == 0:
            assert not weights.any() and not seen.context[row].any()
            assert not seen.log_probability[row].any() and not seen.entropy[row].any()
            continue
        assert set(weights.unique().tolist()) <= {0.0, 1.0} and (weights.sum(-1) == 1).all()
        place = weights.argmax(-1)
        assert (place < length).all()
        assert torch.equal(seen.context[row], memory.outputs[row, place])


@ESTIMATORS
def test_log_probability_and_entropy_equal_those_of_torch(estimator):
    queries, memory = scene([5, 2, 4])
    for training in (False, True):
        seen = Seen(*attention(estimator).train(training)(queries, memory, PLACES))
        for row, length in enumerate([5, 2, 4]):
            scores = (queries[row] @ memory.outputs[row].T)[:, :length]
            theirs = torch.distributions.Categorical(logits=scores)
            place = seen.weights[row].argmax(-1)
            torch.testing.assert_close(seen.log_probability[row], theirs.log_prob(place), atol=1e-12, rtol=0)
            torch.testing.assert_close(seen.entropy[row], theirs.entropy(), atol=1e-12, rtol=0)


@ESTIMATORS
def test_draws_follow_the_softmax(estimator):
    queries, memory = scene([5, 3])
    many = queries[:, :1].expand(-1, 20_000, -1)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        seen = Seen(*attention(estimator).train()(many, memory))
    scores = (queries[:, :1] @ memory.outputs.mT).masked_fill(~memory.mask.unsqueeze(1), -torch.inf)
    torch.testing.assert_close(seen.weights.mean(1), scores.softmax(-1)[:, 0], atol=0.015, rtol=0)


@ESTIMATORS
def test_evaluation_takes_the_best_place_every_time(estimator):
    queries, memory = scene([5, 2, 4])
    hard = attention(estimator).eval()
    state = torch.get_rng_state()
    seen = Seen(*hard(queries, memory, PLACES))
    assert torch.equal(torch.get_rng_state(), state)  # nothing is drawn
    scores = (queries @ memory.outputs.mT).masked_fill(~memory.mask.unsqueeze(1), -torch.inf)
    assert torch.equal(seen.weights.argmax(-1), scores.argmax(-1))
    assert not seen.weights.requires_grad


def test_padding_is_not_drawn_even_when_its_noise_is_infinite():
    class Loud(HardAttention):
        def perturb(self, scores):
            return scores.index_fill(-1, torch.tensor([4]), torch.inf)

    queries, memory = scene([5, 3, 0])
    for estimator in ("reinforce", "gumbel"):
        seen = Seen(*Loud(DotScore(), estimator=estimator).train()(queries, memory))
        assert not seen.weights[1, :, 3:].any() and not seen.weights[2].any()


def test_reinforce_weights_carry_no_gradient():
    queries, memory = scene([5, 2])
    seen = Seen(*attention().train()(queries.requires_grad_(), memory))
    assert not seen.weights.requires_grad
    (gradient,) = torch.autograd.grad(seen.log_probability.sum(), queries)
    assert gradient.abs().min() > 0


@pytest.mark.parametrize("temperature", [0.3, 1.0, 4.0])
def test_gumbel_gradient_is_that_of_the_relaxed_draw(temperature):
    queries, memory = scene([5, 2])
    queries.requires_grad_()
    target = torch.randn(2, 3, 5, generator=generator(1)).double()
    with torch.random.fork_rng():
        torch.manual_seed(3)
        seen = Seen(*attention("gumbel", temperature).train()(queries, memory))
        torch.manual_seed(3)
        scores = queries @ memory.outputs.mT
        noisy = scores + gumbel_like(scores)
    relaxed = (noisy / temperature).masked_fill(~memory.mask.unsqueeze(1), -torch.inf).softmax(-1)
    assert set(seen.weights.unique().tolist()) == {0.0, 1.0}  # exactly, not nearly
    ours, theirs = (torch.autograd.grad((w * target).sum(), queries)[0] for w in (seen.weights, relaxed))
    torch.testing.assert_close(ours, theirs, atol=1e-12, rtol=0)


@ESTIMATORS
def test_huge_scores_beside_padding_stay_finite(estimator):
    queries, memory = scene([5, 2])
    outputs = 1e18 * memory.outputs.float()
    memory = AlignedMemory(outputs, memory.mask, outputs)
    seen = Seen(*attention(estimator).train()(1e18 * queries.float(), memory))
    assert torch.isfinite(seen.entropy).all() and torch.isfinite(seen.log_probability).all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@ESTIMATORS
def test_one_look_in_other_precisions(dtype, estimator):
    queries, memory = scene([5, 2, 0])
    outputs = (50 * memory.outputs).to(dtype)  # large scores
    memory = AlignedMemory(outputs, memory.mask, outputs)
    queries = queries.to(dtype).requires_grad_()
    seen = Seen(*attention(estimator, 0.1).train()(queries, memory))
    assert seen.context.dtype == seen.weights.dtype == dtype
    assert seen.log_probability.dtype == seen.entropy.dtype == torch.float32
    assert (seen.weights.sum(-1)[:2] == 1).all() and not seen.weights[2].any()
    (seen.context.sum() + seen.log_probability.sum() + seen.entropy.sum()).backward()
    assert torch.isfinite(queries.grad).all()


# ---------------------------------------------------------------- the estimators against the exact gradient


def expected_objective(model: HardSeq2Seq, batch: Batch) -> torch.Tensor:
    """The expectation of cross-entropy minus entropy bonus, summed over every path of choices; by brute force."""
    total = torch.zeros((), dtype=torch.float64)
    forced = force(model)
    for row in range(len(batch)):
        n_words = int((batch.target_output[row] != PAD).sum())
        length = int((batch.source[row] != PAD).sum())
        forced.paths = torch.cartesian_prod(*[torch.arange(length)] * n_words).view(-1, n_words)
        source = batch.source[row, :length].expand(len(forced.paths), -1)
        target = batch.target[row, : n_words + 1].expand(len(forced.paths), -1)
        hidden, state = model.read(target[:, :-1], model.start(source))
        logits, (_, log_p, entropy, _) = model.output(hidden), state.attention
        nats = F.cross_entropy(logits.mT, target[:, 1:], reduction="none")
        probability = log_p.sum(1).exp()
        assert probability.sum().item() == pytest.approx(1)
        total = total + (probability * (nats - model.config.entropy_weight * entropy).sum(1)).sum()
    return total / batch.n_tokens


def trained_weights(model: HardSeq2Seq) -> list[nn.Parameter]:
    return [parameter for name, parameter in model.named_parameters() if not name.startswith("baseline")]


def estimates(model: HardSeq2Seq, batch: Batch) -> tuple[torch.Tensor, torch.Tensor]:
    """For one sentence: each path's probability, and the gradient that ``loss`` gives when it is drawn."""
    forced, gradients, log_p = force(model), [], []
    length, n_words = int((batch.source != PAD).sum()), batch.n_tokens
    for path in torch.cartesian_prod(*[torch.arange(length)] * n_words).view(-1, n_words):
        forced.paths = path.unsqueeze(0)
        gradient = torch.autograd.grad(model.loss(batch).mean, trained_weights(model))
        gradients.append(torch.cat([g.flatten() for g in gradient]))
        _, state = model.read(batch.target_input, model.start(batch.source))
        log_p.append(state.attention[1].sum())
    return torch.stack(log_p).exp().detach(), torch.stack(gradients)


@FEEDING
@pytest.mark.parametrize("baseline", [False, True], ids=["no baseline", "baseline"])
@pytest.mark.parametrize("score", ["general", "concat"])
@pytest.mark.slow
def test_reinforce_is_unbiased_by_enumeration(feeding, baseline, score):
    changes = {"input_feeding": feeding, "baseline": baseline, "entropy_weight": 0.3, "score": score}
    model, batch = small_model(d_hidden=4, **changes).train(), small_batch([3], [4])
    exact = torch.autograd.grad(expected_objective(model, batch), trained_weights(model), allow_unused=True)
    exact = torch.cat([g.flatten() for g in exact])
    probability, gradients = estimates(model, batch)
    mean = (probability[:, None] * gradients).sum(0)
    torch.testing.assert_close(mean, exact, atol=1e-5 * exact.abs().max().item(), rtol=1e-5)  # the loss is float32


@FEEDING
@pytest.mark.parametrize("baseline", [False, True], ids=["no baseline", "baseline"])
def test_the_gradient_equals_the_formula_written_as_loops(feeding, baseline):
    """Also that a choice gets the credit of what it bears on and no more, and that the baseline learns just that."""
    model = small_model(input_feeding=feeding, entropy_weight=0.3, baseline=baseline).train()
    batch = small_batch([4, 3], [5, 3])
    force(model).paths = torch.tensor([[0, 3, 1, 2], [2, 0, 1, 1]])
    hidden, state = model.read(batch.target_input, model.start(batch.source))
    logits, (_, log_p, entropy, queries) = model.output(hidden), state.attention
    total = torch.zeros((), dtype=torch.float64)
    for row, n_words in enumerate((4, 2)):
        words = batch.target_output[row, :n_words]
        earned = [logits[row, t].log_softmax(-1)[words[t]] for t in range(n_words)]
        for t in range(n_words):
            reach = range(t, n_words if feeding else t + 1)
            reward = sum((earned[u] + 0.3 * entropy[row, u]).item() for u in reach)
            known = torch.cat([queries[row, t], model.embedding.weight[words[t]]]).detach()
            guess = model.baseline(known)[0] if baseline else torch.zeros(())
            error = 0 if not baseline else 0.1 * (guess - reward / len(reach)) ** 2
            advantage = reward - len(reach) * guess.item()
            total = total - earned[t] - 0.3 * entropy[row, t] - advantage * log_p[row, t] + error
    ours = torch.autograd.grad(model.loss(batch).mean, list(model.parameters()))
    theirs = torch.autograd.grad(total / 6, list(model.parameters()))
    for (name, _), one, other in zip(model.named_parameters(), ours, theirs, strict=True):
        torch.testing.assert_close(one, other, atol=2e-6, rtol=1e-5, msg=lambda text, name=name: f"{name}: {text}")


def test_the_baseline_starts_at_what_a_fresh_model_earns():
    torch.manual_seed(0)
    model = HardSeq2Seq(HardConfig(**SIZES))
    guess = model.baseline(torch.randn(5, 14))
    torch.testing.assert_close(guess, -torch.log(torch.tensor(11.0)).expand(5, 1))
    assert evaluate_loss(model, [small_batch()]) == pytest.approx(-guess[0].item(), abs=0.3)
    assert HardSeq2Seq(HardConfig(**SIZES, baseline=False)).baseline is None
    assert HardSeq2Seq(HardConfig(**SIZES, estimator="gumbel")).baseline is None
    assert HardAttention(DotScore()).temperature == HardConfig(**SIZES).temperature == 1.0


# ---------------------------------------------------------------- the translator


@ESTIMATORS
@FEEDING
def test_the_loss_reports_the_cross_entropy(estimator, feeding):
    model, batch = small_model(estimator=estimator, input_feeding=feeding), small_batch()
    for training in (False, True):
        model.train(training)
        torch.manual_seed(1)
        loss = model.loss(batch)
        torch.manual_seed(1)
        expected = token_losses(model(batch.source, batch.target_input), batch.target_output)
        assert loss.sum.item() == expected.sum().item() and loss.n_tokens == batch.n_tokens


# ---------------------------------------------------------------- types and settings


@ESTIMATORS
def test_the_loss_takes_every_type_of_token_and_keeps_double_precision(estimator):
    losses = []
    for tokens in (torch.int64, torch.int32):
        torch.manual_seed(0)
        batch = small_batch()
        batch = Batch(batch.source.to(tokens), batch.target.to(tokens), batch.indices)
        losses.append(small_model(estimator=estimator).train().loss(batch).sum)
    assert torch.equal(*losses) and losses[0].dtype == torch.float64


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@ESTIMATORS
def test_the_loss_in_half_precision(dtype, estimator):
    exact = small_model(estimator=estimator)
    half = copy.deepcopy(exact).to(dtype)
    batch = small_batch()
    with torch.no_grad():
        expected, found = exact.eval().loss(batch).mean, half.eval().loss(batch).mean
    torch.testing.assert_close(found, expected.float(), atol=0.1, rtol=0)
    half.train().loss(batch).mean.backward()
    assert all(torch.isfinite(p.grad).all() for p in half.parameters() if p.grad is not None)
    assert half.attention.score.key.weight.grad.abs().sum() > 0


@pytest.mark.parametrize(
    "settings",
    [
        {"temperature": 0.0},
        {"estimator": "soft"},
        *({"entropy_weight": bad} for bad in (-0.1, float("nan"), float("inf"))),
        {"score": "cosine"},
        {"window": 3},
    ],
)
def test_settings_out_of_range_are_refused(settings):
    with pytest.raises(ValueError, match=next(iter(settings))):
        HardConfig(**SIZES, **settings)


@pytest.mark.parametrize(
    ("target", "message"), [([PAD, BOS, 8], "target begins with padding"), ([BOS, 99, 8], "target holds token id 99")]
)
def test_the_loss_checks_its_targets(target, message):
    with pytest.raises(ValueError, match=message):
        small_model().loss(Batch(ragged([4], 13), torch.tensor([target])))


@ESTIMATORS
@FEEDING
@pytest.mark.parametrize("bad", [float("nan"), -float("inf")])
def test_what_stands_at_padding_has_no_influence_on_the_loss(estimator, feeding, bad):
    model, batch, results = small_model(estimator=estimator, input_feeding=feeding), small_batch(), []
    target = batch.target_output
    padding = target == PAD
    assert padding.any()
    for value in (0.0, bad):
        nats = torch.randn(target.shape, generator=generator(1)).double().masked_fill(padding, 0)
        seen = [torch.randn(target.shape, generator=generator(n)).double() for n in (2, 3)]
        seen.append(torch.randn(*target.shape, 8, generator=generator(4)).double())
        for part in seen:
            part[padding] = value
        parts = [part.requires_grad_() for part in (nats, *seen)]
        terms = model.surrogate(parts[0], (parts[0], *parts[1:]), target)
        known = [*parts, *model.parameters()]
        gradients = torch.autograd.grad(terms.sum(), known, allow_unused=True)
        results.append([terms.detach(), *(one for one in gradients if one is not None)])
    for one, other in zip(*results, strict=True):
        assert torch.equal(one, other) and one.isfinite().all()
