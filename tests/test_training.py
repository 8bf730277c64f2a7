"""Training: losses and updates equal PyTorch's and the formulas; a run that was stopped ends bit-identical."""

import math
import random
import signal
import subprocess
import sys
import threading
from contextlib import nullcontext
from dataclasses import fields, replace
from functools import partial
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from jaxtyping import TypeCheckError
from torch import nn
from torch.nn import functional as F

import transformer_lib.training.trainer as module
from transformer_lib.data.batching import Batch, Example, batches, collate
from transformer_lib.data.tokenizer import BOS, EOS, PAD, Tokenizer
from transformer_lib.models.loss import Loss, chunked_loss, translation_loss
from transformer_lib.models.registry import build_model
from transformer_lib.models.transformer import Transformer, TransformerConfig
from transformer_lib.training.checkpoints import (
    average_checkpoints,
    load_tensors,
    load_weights,
    save_tensors,
    to_eight_bits,
)
from transformer_lib.training.loop import evaluate_loss, train_on
from transformer_lib.training.loss import minimum_risk_loss, r_drop_loss
from transformer_lib.training.run_state import Interrupt, Progress, steady
from transformer_lib.training.trainer import Trainer, TrainingConfig, rate_factor
from transformer_lib.training.transforms import BPEDropout, SpellingNoise, batch_loader

VOCABULARY = 12
CONFIG = TrainingConfig(epochs=3, max_tokens=24, learning_rate=1e-2, warmup=5, average=2, seed=3)


def examples(n: int, seed: int = 0) -> list[Example]:
    """Sentences to be copied, of 1 to 5 words."""
    rng = random.Random(seed)
    words = [[rng.randrange(4, VOCABULARY) for _ in range(rng.randrange(1, 6))] for _ in range(n)]
    return [([*row, EOS], [BOS, *row, EOS]) for row in words]


TRAIN, VALIDATION = examples(24), examples(6, seed=1)


def transformer(dropout: float = 0.1, **changes) -> Transformer:
    sizes = {"d_model": 8, "n_heads": 2, "n_encoder_layers": 1, "n_decoder_layers": 1, "d_ff": 16}
    return Transformer(TransformerConfig(VOCABULARY, VOCABULARY, **{**sizes, "dropout": dropout, **changes}))


def trainer(folder: Path | None = None, config: TrainingConfig = CONFIG, seed: int = 0, **options) -> Trainer:
    torch.manual_seed(seed)
    return Trainer(transformer(), TRAIN, VALIDATION, config, folder, **options)


def after(updates: int):
    """A watcher that stops a run after so many updates."""
    rest = iter(range(updates - 1))
    return lambda loss: next(rest, None) is None


def same(one: nn.Module, other: nn.Module) -> bool:
    pairs = zip(one.state_dict().values(), other.state_dict().values(), strict=True)
    return all(torch.equal(a, b) for a, b in pairs)


@pytest.fixture(autouse=True)
def random_state():
    with torch.random.fork_rng():
        yield


# ---------------------------------------------------------------- losses


@pytest.mark.parametrize(("bias", "smoothing"), [(True, 0.3), (False, 0.0)])
def test_the_chunked_loss_is_the_loss_of_all_logits(bias, smoothing):
    torch.manual_seed(0)
    output = nn.Linear(5, 2**19, bias=bias).double()  # two rows a chunk
    hidden = torch.randn(7, 5, dtype=torch.float64, requires_grad=True)
    target = torch.tensor([5, PAD, 7, 2**19 - 1, 2, PAD, 9])
    loss = partial(F.cross_entropy, ignore_index=PAD, label_smoothing=smoothing, reduction="sum")
    results, largest = [], []

    def watched(logits, target):
        largest.append(len(logits))
        return loss(logits, target)

    for value in (chunked_loss(watched, hidden, output, target), loss(output(hidden), target)):
        leaves = [hidden, *output.parameters()]
        results.append((value.detach(), *torch.autograd.grad(3 * value, leaves)))
    for ours, theirs in zip(*results, strict=True):
        torch.testing.assert_close(ours, theirs, atol=1e-10, rtol=1e-10)
    assert max(largest) == 2 and len(largest) == 3
    with torch.no_grad():
        assert chunked_loss(loss, hidden.float(), output.float(), target) > 0
    assert chunked_loss(loss, hidden.bfloat16(), output.bfloat16(), target).dtype == torch.float32


def test_labels_are_smoothed_in_training_alone():
    model, batch = transformer(dropout=0.0).eval(), collate(TRAIN[:5])
    torch.testing.assert_close(translation_loss(model, batch, 0.2), translation_loss(model, batch))


def test_under_bfloat16_products_are_rounded_and_gradients_are_not():
    model, batch, inside = transformer(dropout=0.0), collate(TRAIN[:5]), []
    model.output.register_forward_hook(lambda *called: inside.append("whole logits"))
    with torch.autocast("cpu", torch.bfloat16):
        loss = translation_loss(model, batch, 0.1).sum
    loss.backward()
    assert loss.dtype == torch.float32 and not inside
    assert all(p.grad.dtype == torch.float32 for p in model.parameters())
    torch.testing.assert_close(loss, translation_loss(model, batch, 0.1).sum, rtol=0.02, atol=0.1)


def test_r_drop_is_two_passes_and_their_divergence():
    model, batch = transformer(dropout=0.3).double(), collate(TRAIN[:5])
    torch.manual_seed(1)
    ours = r_drop_loss(model, batch, smoothing=0.1, weight=3.0)
    torch.manual_seed(1)
    twice = Batch(batch.source.repeat(2, 1), batch.target.repeat(2, 1))
    logits = model(twice.source, twice.target_input)
    valid = batch.target_output != PAD
    p, q = (part[valid].log_softmax(-1) for part in logits.chunk(2))
    nll = F.cross_entropy(
        logits.flatten(0, 1), twice.target_output.flatten(), ignore_index=PAD, label_smoothing=0.1, reduction="sum"
    )
    kl = F.kl_div(p, q, log_target=True, reduction="sum") + F.kl_div(q, p, log_target=True, reduction="sum")
    torch.testing.assert_close(ours.sum, nll / 2 + 1.5 * kl)
    assert kl > 0
    torch.testing.assert_close(r_drop_loss(model.eval(), batch), translation_loss(model, batch))


def test_minimum_risk_weighs_costs_by_probability():
    model, batch = transformer(dropout=0.0).double(), collate([([4, 5, EOS], [BOS, 4, 5, EOS])])
    samples = torch.tensor([[[BOS, 4, 5, EOS], [BOS, 6, EOS, PAD]]])
    costs = torch.tensor([[0.0, 1.0]], dtype=torch.float64)
    log_probs = model(batch.source.repeat(2, 1), samples[0, :, :-1]).log_softmax(-1)
    one = log_probs[0, 0, 4] + log_probs[0, 1, 5] + log_probs[0, 2, EOS]
    two = log_probs[1, 0, 6] + log_probs[1, 1, EOS]
    expected = 3 * torch.stack([one, two]).mul(0.5).softmax(0)[1]
    found = minimum_risk_loss(model, batch, lambda *_: samples, lambda *_: costs, sharpness=0.5)
    torch.testing.assert_close(found.sum, expected)
    for wrong in (costs[0], costs.T, costs[:, :1]):
        with pytest.raises((ValueError, TypeCheckError), match="cost"):
            minimum_risk_loss(model, batch, lambda *_: samples, lambda *_, wrong=wrong: wrong)
    with pytest.raises((ValueError, TypeCheckError), match="sample"):
        minimum_risk_loss(model, batch, lambda *_: samples[0], lambda *_: costs)
    single = minimum_risk_loss(model.float(), batch, lambda *_: samples, lambda *_: costs, sharpness=0.5)
    torch.testing.assert_close(single.sum, expected.float())


def test_losses_take_tokens_of_32_bits_and_compute_no_narrower_than_single_precision():
    batch, costs = collate(TRAIN[:5]), torch.rand(5, 2)
    short = Batch(batch.source.int(), batch.target.int())

    def risk(model, batch):
        return minimum_risk_loss(model, batch, lambda *_: batch.target[:, None].repeat(1, 2, 1), lambda *_: costs)

    for loss in (translation_loss, r_drop_loss, risk):
        model = transformer(dropout=0.0)
        torch.testing.assert_close(loss(model, short), loss(model, batch))
        assert loss(model.bfloat16(), batch).sum.dtype == torch.float32


class Own(nn.Module):
    """A model with a loss of its own, which knows nothing of label smoothing: how often each token occurs."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(VOCABULARY))

    def loss(self, batch):
        nats = F.cross_entropy(self.weight.expand(batch.target_output.numel(), -1), batch.target_output.flatten(),
                               ignore_index=PAD, reduction="sum")  # fmt: skip
        return nats, batch.n_tokens


def test_a_run_without_a_folder_has_nothing_to_resume_from():
    with pytest.raises(ValueError, match="folder is None"):
        Trainer(Own(), TRAIN, TRAIN, replace(CONFIG, smoothing=0.0)).resume()


def test_a_run_is_resumed_although_its_configuration_lies_at_another_address(tmp_path):
    def begin() -> Trainer:
        model = Own()
        model.config = type("C", (), {"d_model": 8})()
        return Trainer(model, TRAIN, TRAIN, replace(CONFIG, smoothing=0.0), tmp_path)

    first, second = begin(), begin()
    assert repr(first.model.config) != repr(second.model.config)
    assert not first.fit(watch=after(1))
    second.resume()
    assert second.progress.step == 1
    assert steady([F.relu]) == "[<function relu>]"


def test_a_loss_of_its_own_is_what_a_model_is_trained_and_measured_on():
    config = replace(CONFIG, epochs=30, smoothing=0.0, learning_rate=0.1)
    run = Trainer(Own(), TRAIN, TRAIN, config)
    assert run.fit()
    counts = torch.cat([torch.tensor(target[1:]) for _, target in TRAIN]).bincount(minlength=VOCABULARY).double()
    p = counts[counts > 0] / counts.sum()
    assert run.evaluate() == pytest.approx(-(p * p.log()).sum().item(), abs=0.02)
    with pytest.raises(TypeError, match="smoothing"):  # not silently without
        Trainer(Own(), TRAIN, TRAIN, replace(config, smoothing=0.1)).fit()
    with pytest.raises(TypeError, match="a single number"):
        Trainer(Own(), TRAIN, TRAIN, config, loss=lambda model, batch: model.loss(batch)[0] / batch.n_tokens).fit()


def test_r_drop_never_replaces_a_loss_of_its_own():
    model = build_model("hard", {"source_vocab_size": VOCABULARY, "target_vocab_size": VOCABULARY, "d_model": 8})
    with pytest.raises(ValueError, match=r"consistency=1\.0 would replace HardSeq2Seq's own loss"):
        Trainer(model, TRAIN, VALIDATION, replace(CONFIG, consistency=1.0))


def test_the_papers_learning_rate_needs_a_model_with_a_width(tmp_path):
    with pytest.raises(ValueError, match="learning_rate=None"):
        Trainer(Own(), TRAIN, TRAIN, replace(CONFIG, learning_rate=None), tmp_path)


# ---------------------------------------------------------------- schedule and settings


@given(st.integers(1, 4096), st.integers(1, 8000), st.integers(1, 100_000))
def test_the_schedule_is_the_papers(d_model, warmup, step):
    config = TrainingConfig(warmup=warmup)
    share = rate_factor(step, config, 10**6)
    paper = d_model**-0.5 * min(step**-0.5, step * warmup**-1.5)
    assert (d_model * warmup) ** -0.5 * share == pytest.approx(paper, rel=1e-12)


def test_linear_and_cooldown_end_at_zero():
    linear = TrainingConfig(epochs=10, learning_rate=1.0, schedule="linear", warmup=4)
    assert [rate_factor(step, linear, 9) for step in (1, 4, 9, 10)] == pytest.approx([1 / 4, 1, 1 / 6, 0])
    late = TrainingConfig(epochs=10, learning_rate=1.0, schedule="constant", warmup=4, cooldown=2)
    shares = [rate_factor(step, late, 100) for step in range(1, 102)]
    assert shares[3:80] == [1.0] * 77 and shares[-1] == 0 and shares[80] == pytest.approx(20 / 21)
    early = TrainingConfig(epochs=2, learning_rate=1.0, schedule="constant", warmup=90, cooldown=1)
    shares = [rate_factor(step, early, 100) for step in range(1, 102)]
    assert max(abs(a - b) for a, b in pairwise(shares)) < 0.03 and shares[49] == pytest.approx(50 / 90)
    longer = TrainingConfig(epochs=1, learning_rate=1.0, schedule="constant", warmup=0, cooldown=3)
    assert [rate_factor(step, longer, 100) for step in (1, 101)] == pytest.approx([100 / 101, 0])


@pytest.mark.parametrize(
    "bad",
    [
        {"epochs": 0},
        {"epochs": True},
        {"smoothing": 1.0},
        {"schedule": "cosine"},
        {"betas": (0.9, 1.0)},
        {"clip": 0.0},
        {"learning_rate": -1.0},
        {"schedule": "linear"},
        {"warmup": 0},
        {"rate": 1},
    ],
)
def test_settings_refuse(bad):
    with pytest.raises((ValueError, TypeError), match=next(iter(bad))):
        TrainingConfig(**bad)


# ---------------------------------------------------------------- updates


@pytest.mark.parametrize(("clip", "size"), [(0.05, 1), (1e3, 3)])
def test_an_update_equals_the_formulas(size, clip):
    config = replace(CONFIG, clip=clip, smoothing=0.2, accumulate=size)
    torch.manual_seed(0)
    ours, theirs = transformer(dropout=0.0).double(), transformer(dropout=0.0).double()
    theirs.load_state_dict(ours.state_dict())
    run = Trainer(ours, TRAIN, VALIDATION, config)
    group = list(batches(TRAIN, 24, 0, 0))[:size]
    assert size == 1 or len({batch.n_tokens for batch in group}) > 1
    parameters = list(theirs.parameters())
    means, squares = ([torch.zeros_like(p) for p in parameters] for _ in range(2))
    for t in range(1, 9):
        run.update(group)
        theirs.zero_grad()
        logits = torch.cat([theirs(batch.source, batch.target_input).flatten(0, 1) for batch in group])
        target = torch.cat([batch.target_output.flatten() for batch in group])
        F.cross_entropy(logits, target, ignore_index=PAD, label_smoothing=0.2).backward()
        norm = math.sqrt(sum(p.grad.square().sum().item() for p in parameters))
        with torch.no_grad():
            for p, m, v in zip(parameters, means, squares, strict=True):
                g = p.grad * min(1, clip / norm)
                m.mul_(0.9).add_(0.1 * g)
                v.mul_(0.98).add_(0.02 * g * g)
                rate = 1e-2 * min(t / 5, (5 / t) ** 0.5)
                p -= rate * (m / (1 - 0.9**t)) / ((v / (1 - 0.98**t)).sqrt() + 1e-9)
    for mine, yours in zip(ours.parameters(), theirs.parameters(), strict=True):
        # Adam's eps lets noise of 1e-16 in a zero gradient grow to a whole step
        large = yours.grad.abs() > 1e-8
        torch.testing.assert_close(mine[large], yours[large], atol=1e-7, rtol=1e-7)


@pytest.mark.parametrize("optimizer", [None, lambda model: torch.optim.SGD(model.parameters(), lr=1.0)])
def test_a_gradient_that_is_not_finite_is_refused_before_it_does_harm(optimizer, tmp_path):
    torch.manual_seed(0)
    model = transformer()
    run = Trainer(model, TRAIN, VALIDATION, CONFIG, tmp_path, optimizer=optimizer and optimizer(model))
    run.objective.loss = lambda model, batch: Loss(translation_loss(model, batch).sum * math.nan, batch.n_tokens)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    with pytest.raises(ValueError, match=r"update 1: the gradient is not finite"):
        run.fit()
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())


def test_a_fused_optimizer_makes_no_step_with_a_gradient_that_is_not_finite():
    run = trainer()
    before = [p.clone() for p in run.parameters]
    for p in run.parameters:
        p.grad = torch.full_like(p, math.nan)
    run.optimizer.found_inf = torch.tensor(1.0)
    run.optimizer.step()
    assert all(torch.equal(a, b) for a, b in zip(before, run.parameters, strict=True))


def test_the_wrong_weights_are_refused():
    model, other = transformer(), transformer()
    with pytest.raises(ValueError, match="another model"):
        Trainer(model, TRAIN, VALIDATION, CONFIG, optimizer=torch.optim.SGD(other.parameters(), lr=1.0))
    with pytest.raises(ValueError, match="no parameter of this model"):
        train_on(model, [collate(TRAIN)], torch.optim.SGD(other.parameters(), lr=1.0))
    model.requires_grad_(False)
    for optimizer in (None, torch.optim.SGD(model.parameters(), lr=1.0)):
        with pytest.raises(ValueError, match="every parameter is frozen"):
            Trainer(model, TRAIN, VALIDATION, CONFIG, optimizer=optimizer)


def test_saving_after_every_zeroth_update_is_refused_before_the_first():
    run = trainer()
    with pytest.raises(ValueError, match="save_every=0 must be at least 1"):
        run.fit(save_every=0)
    assert run.progress.step == 0


@pytest.mark.parametrize(("limit", "side"), [({"max_length": 3}, "source"), ({}, "max_tokens")])
def test_what_does_not_fit_is_refused_before_training(limit, side):
    model = transformer(positions="learned", **limit) if limit else transformer()
    config = CONFIG if limit else replace(CONFIG, max_tokens=3)
    with pytest.raises(ValueError, match=side):
        Trainer(model, TRAIN, VALIDATION, config)


def test_the_trainer_without_extras_is_the_short_loop():
    config = TrainingConfig(
        2, max_tokens=24, learning_rate=1e-2, schedule="constant", warmup=1, smoothing=0.0, average=0
    )
    torch.manual_seed(0)
    ours, theirs = transformer(dropout=0.0).double(), transformer(dropout=0.0).double()
    theirs.load_state_dict(ours.state_dict())
    run = Trainer(ours, TRAIN, VALIDATION, config)
    assert run.fit()
    optimizer = torch.optim.Adam(theirs.parameters(), lr=1e-2, betas=config.betas, eps=config.eps)
    losses = [train_on(theirs, batches(TRAIN, 24, 0, epoch), optimizer) for epoch in range(2)]
    for mine, yours in zip(ours.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(mine, yours, atol=1e-6, rtol=1e-6)
    assert [line["loss"] for line in run.progress.log] == pytest.approx(losses, abs=1e-3)
    assert run.evaluate() == pytest.approx(evaluate_loss(ours, batches(VALIDATION, 24)), rel=1e-5)


def test_an_optimizer_of_a_part_trains_and_clips_that_part_alone():
    config = replace(CONFIG, epochs=2, schedule="constant", warmup=1, smoothing=0.0, clip=0.1)
    ours, theirs = transformer(dropout=0.0), transformer(dropout=0.0)
    theirs.load_state_dict(ours.state_dict())
    run = Trainer(ours, TRAIN, VALIDATION, config, optimizer=torch.optim.SGD(ours.output.parameters()))
    assert run.fit()
    optimizer = torch.optim.SGD(theirs.output.parameters(), lr=1e-2)
    for epoch in range(2):
        train_on(theirs, batches(TRAIN, 24, 3, epoch), optimizer, clip=0.1)
    for mine, yours in zip(ours.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(mine, yours)


def test_no_batches_have_no_mean_loss():
    model, none = transformer(), iter(())
    for call in (lambda: train_on(model, none, torch.optim.SGD(model.parameters())), lambda: evaluate_loss(model, [])):
        with pytest.raises(ValueError, match="there are no batches"):
            call()


def test_the_short_loop_lowers_any_loss_and_stops_where_it_is_not_finite():
    model, data = transformer(dropout=0.0), [collate(TRAIN)] * 3
    sgd, before = (
        torch.optim.SGD(model.parameters(), lr=0.1),
        {name: p.detach().clone() for name, p in model.named_parameters()},
    )

    def squares(model, batch):
        assert isinstance(batch, Batch)
        return Loss(sum(p.square().sum() for p in model.parameters()), torch.tensor(2))

    mean = train_on(model, data, sgd, loss=squares, clip=math.inf)
    for name, weight in model.named_parameters():  # the gradient of the mean of two is the weight itself
        torch.testing.assert_close(weight.data, 0.9**3 * before[name])
    size = sum(w.square().sum() for w in before.values()).item()
    assert mean == pytest.approx(size / 2 * sum(0.9 ** (2 * n) for n in range(3)) / 3, rel=1e-4)
    never = partial(
        train_on, model, data, sgd, loss=lambda *given: Loss(squares(*given).sum * math.nan, torch.tensor(1))
    )
    with pytest.raises(RuntimeError, match="non-finite"):
        never()
    assert math.isnan(never(check=False))


def test_the_running_average_is_the_mean_that_is_measured_and_kept(tmp_path):
    run = trainer(tmp_path, replace(CONFIG, epochs=1, ema=0.5))
    average = [p.detach().clone() for p in run.parameters]
    update = run.update

    def watched(group):
        loss, step = update(group), run.progress.step
        for a, p in zip(average, run.parameters, strict=True):
            decay = min(0.5, step / (step + 10))
            a.mul_(decay).add_(p.detach(), alpha=1 - decay)
        return loss

    run.update = watched
    run.fit()
    best = transformer()
    best.load_state_dict(load_tensors(tmp_path / "best.safetensors")[0])
    for a, p in zip(average, best.parameters(), strict=True):
        torch.testing.assert_close(a, p)
    assert run.progress.best == pytest.approx(evaluate_loss(best, batches(VALIDATION, 24)), rel=1e-5)
    assert not same(best, run.model)


def test_patience_plateau_and_a_stalled_loss(monkeypatch):
    run = trainer(config=replace(CONFIG, epochs=9, schedule="plateau", patience=2))
    measured = iter([3.0, 2.0, 2.5, 2.0, 1.0])
    monkeypatch.setattr(run, "evaluate", lambda: next(measured))
    lines: list[str] = []
    assert run.fit(lines.append) and run.progress.epoch == 4 and run.progress.lr_scale == 0.25
    assert ["(best)" in line for line in lines] == [True, True, False, False]


# ---------------------------------------------------------------- transforms


TEXTS = ["The small dog runs through the park.", "Two women are playing in the street."] * 5
WORDS = Tokenizer.train(TEXTS, 300, level="bpe")
SENTENCES = [([*WORDS.encode(text), EOS], [BOS, *WORDS.encode(text), EOS]) for text in TEXTS]


def test_transforms_change_the_source_alone():
    for example in SENTENCES:
        text = WORDS.decode(example[0])
        for seed in range(20):
            cut, target = BPEDropout(WORDS, 0.5, share=1.0)(example, random.Random(seed))
            assert WORDS.decode(cut) == text and cut != example[0] and target == example[1]
            noisy, target = SpellingNoise(WORDS, 1.0, 1.0, 1.0)(example, random.Random(seed))
            typed = WORDS.decode(noisy)
            assert typed != text and not typed.endswith(".") and typed[0].islower() and target == example[1]
            assert abs(len(typed) - len(text)) <= 2
    assert SpellingNoise(WORDS, 0.0, 0.0, 0.0)(SENTENCES[0], random.Random(0)) == SENTENCES[0]
    noise = SpellingNoise(WORDS, 0.0, 0.0, 0.0, all_capitals=0.3)
    texts = [WORDS.decode(noise(SENTENCES[0], random.Random(seed))[0]) for seed in range(500)]
    assert set(texts) == {TEXTS[0], TEXTS[0].upper()} and 120 < texts.count(TEXTS[0].upper()) < 180


def test_noise_leaves_a_full_stop_that_is_all_there_is():
    stop = [*WORDS.encode("."), EOS]
    assert SpellingNoise(WORDS, 0.0, 0.0, 1.0)((stop, [BOS, EOS]), random.Random(0))[0] == stop


def test_a_source_may_become_as_long_as_the_model_takes():
    example = [*range(4, 7), EOS], [BOS, *range(4, 9), EOS]
    model = transformer(positions="learned", max_length=6)  # the target without BOS

    def longer(example, rng):
        return [4, *example[0]], example[1]

    def first(times):
        loader = batch_loader([example], CONFIG, model, [longer] * times, torch.device("cpu"))
        return next(iter(loader)).source.shape[1]

    assert [first(times) for times in (1, 2, 3)] == [5, 6, 4]


@pytest.mark.parametrize("change", [SpellingNoise(WORDS, 1.0, 1.0, 1.0), BPEDropout(WORDS, 0.5, share=1.0)], ids=str)
def test_ids_of_a_corpus_on_disk_are_plain_numbers_after_every_transform(change):
    source, target = map(np.array, SENTENCES[0])
    changed, _ = change((source, target), random.Random(0))
    assert {type(token) for token in changed} == {int}


def test_transformed_runs_resume_exactly_whatever_the_workers(tmp_path):
    def begin(name: str, seed: int = 0, workers: int = 0) -> Trainer:
        torch.manual_seed(seed)
        model = Transformer(TransformerConfig(300, 300, d_model=8, n_heads=2, d_ff=8, n_encoder_layers=1))
        config = replace(CONFIG, max_tokens=60, workers=workers, epochs=2, consistency=1.0)
        noise = [SpellingNoise(WORDS, 0.5, 0.5, 0.5), BPEDropout(WORDS)]
        return Trainer(model, SENTENCES, SENTENCES[:2], config, tmp_path / name, transforms=noise)

    whole = begin("whole")
    whole.fit()
    assert not begin("parts").fit(watch=after(3))
    rest = begin("parts", seed=4, workers=2)
    rest.resume()
    assert rest.fit() and same(rest.model, whole.model)


# ---------------------------------------------------------------- checkpoints


def test_tensors_come_back_as_they_were(tmp_path):
    tied = torch.randn(3, 2)
    tensors = {"a": tied, "b": tied, "c": torch.arange(3), "d": torch.randn(2).half(), "e": torch.zeros(0)}
    save_tensors(tmp_path / "x", tensors, {"n": [1, "ä"]})
    loaded, notes = load_tensors(tmp_path / "x")
    assert notes == {"n": [1, "ä"]} and loaded["a"] is loaded["b"]
    assert all(torch.equal(loaded[name], tensor) for name, tensor in tensors.items())


def test_whole_numbers_and_their_scale_come_back_as_they_were_unless_they_are_weights_in_eight_bits(tmp_path):
    own = {"w": torch.ones(2, 2, dtype=torch.int8), "w_scale": torch.full((2,), 0.5)}
    save_tensors(tmp_path / "own", own, {})
    loaded, _ = load_tensors(tmp_path / "own")
    assert loaded.keys() == own.keys() and all(torch.equal(loaded[name], own[name]) for name in own)
    save_tensors(tmp_path / "small", to_eight_bits({"w": torch.eye(2)}), {})
    loaded, _ = load_tensors(tmp_path / "small")
    torch.testing.assert_close(loaded, {"w": torch.eye(2)})


def test_a_file_that_is_cut_or_altered_by_one_bit_is_refused(tmp_path):
    path = tmp_path / "x"
    save_tensors(path, {"a": torch.randn(4)}, {"n": 1})
    whole = path.read_bytes()
    for i in range(0, len(whole), 7):
        for broken in (whole[:i], whole[:i] + bytes([whole[i] ^ 1]) + whole[i + 1 :]):
            path.write_bytes(broken)
            with pytest.raises(ValueError, match="is not a readable checkpoint"):
                load_tensors(path)


def test_weights_must_be_the_models_own():
    model = transformer()
    good = {name: tensor.clone() for name, tensor in transformer().state_dict().items()}
    name = next(iter(good))
    bad = {
        "shape": {**good, name: good[name][:1]},
        "extra": {**good, "extra": torch.zeros(1)},
        "NaN": {**good, name: good[name] * math.nan},
        "int": {**good, name: good[name].long()},
    }
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    for message, weights in bad.items():
        with pytest.raises(ValueError, match=message):
            load_weights(model, weights, "file")
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())
    load_weights(model, good, "file")
    assert all(torch.equal(tensor, good[name]) for name, tensor in model.state_dict().items())


def test_an_average_is_the_mean_in_double_precision_and_tied_weights_stay_tied(tmp_path):
    paths = [tmp_path / str(i) for i in range(3)]
    for path, number in zip(paths, (2.0**25, 1.0, -(2.0**25)), strict=True):
        tied = torch.tensor([number, 3 * number])
        save_tensors(path, {"a": tied, "b": tied, "c": torch.randn(2)}, {})
    mean = average_checkpoints(paths)
    assert mean["a"].tolist() == [torch.tensor(1 / 3).item(), 1.0]
    assert mean["a"] is mean["b"] and mean["c"].dtype == torch.float32
    save_tensors(paths[0], {"a": torch.randn(2), "b": torch.randn(2), "c": torch.randn(2)}, {})
    with pytest.raises(ValueError, match="not of the same model"):
        average_checkpoints(paths)
    for wrong in ([], str(paths[0])):
        with pytest.raises(ValueError, match="must be a list"):
            average_checkpoints(wrong)


def test_what_a_folder_holds(tmp_path):
    run = trainer(tmp_path)
    assert run.fit()
    names = {path.name for path in tmp_path.iterdir()}
    files = ("last", "best", "epoch-2", "epoch-3", "averaged")
    assert names == {f"{name}.safetensors" for name in files} | {"log.jsonl"}
    mean = average_checkpoints([tmp_path / f"epoch-{n}.safetensors" for n in (2, 3)])
    kept, _ = load_tensors(tmp_path / "averaged.safetensors")
    assert all(torch.equal(kept[name], tensor) for name, tensor in mean.items())
    losses = [line["validation_loss"] for line in run.progress.log]
    assert load_tensors(tmp_path / "best.safetensors")[1]["validation_loss"] == min(losses)


# ---------------------------------------------------------------- compiled by somebody else


@pytest.mark.filterwarnings("ignore")
def test_a_compiled_model_trains_and_resumes_like_the_one_inside(tmp_path):
    torch.manual_seed(0)
    plain = trainer(tmp_path / "plain")
    assert plain.fit()
    compiled = Trainer(torch.compile(fresh(), backend="eager"), TRAIN, VALIDATION, CONFIG, tmp_path / "compiled")
    assert not compiled.fit(watch=after(3))
    again = Trainer(fresh(), TRAIN, VALIDATION, CONFIG, tmp_path / "compiled")  # not compiled any more
    again.resume()
    assert again.fit() and same(again.model, plain.model)
    for name in ("last", "best", "averaged"):
        one, other = (load_tensors(tmp_path / run / f"{name}.safetensors")[0] for run in ("plain", "compiled"))
        assert one.keys() == other.keys() and not any("_orig_mod" in key for key in one)


def fresh() -> Transformer:
    torch.manual_seed(0)
    return transformer()


# ---------------------------------------------------------------- stopped and resumed


def assert_same_end(one: Trainer, other: Trainer) -> None:
    """Weights, moments, progress and files are the same, times aside."""
    assert same(one.model, other.model)

    def timeless(run: Trainer) -> Progress:
        log = [{name: value for name, value in line.items() if "second" not in name} for line in run.progress.log]
        return replace(run.progress, seconds=0.0, log=log)

    assert timeless(one) == timeless(other)
    names = {path.name for path in one.folder.iterdir()}
    assert names == {path.name for path in other.folder.iterdir()}
    for name in names - {"log.jsonl"}:
        mine, yours = (load_tensors(run.folder / name)[0] for run in (one, other))
        assert mine.keys() == yours.keys() and all(torch.equal(mine[key], yours[key]) for key in mine)


@pytest.mark.slow
def test_stopping_after_any_update_changes_nothing(tmp_path):
    config = replace(CONFIG, epochs=2, accumulate=2, schedule="plateau", ema=0.9)
    whole = trainer(tmp_path / "whole", config)
    assert whole.fit()
    for update in range(1, whole.total + 1):
        folder = tmp_path / str(update)
        assert trainer(folder, config).fit(watch=after(update)) is False
        run = trainer(folder, config, seed=7)  # other weights, other random numbers
        run.resume()
        assert run.progress.step == update and run.fit()
        assert_same_end(whole, run)


@pytest.mark.parametrize("fault", [math.nan, None])
def test_after_an_error_in_the_midst_of_an_update_the_same_object_resumes_exactly(fault, tmp_path):
    config = replace(CONFIG, accumulate=2)
    whole, run = (trainer(tmp_path / name, config) for name in ("whole", "parts"))
    assert whole.fit()
    loss, calls = run.objective.loss, iter(range(5))

    def failing(model, batch):
        found = loss(model, batch)
        return found if next(calls, None) is not None else Loss(found.sum * fault, found.n_tokens)

    run.objective.loss = failing
    with pytest.raises((ValueError, TypeError), match=r"^update 3: .* not finite: try" if fault else "NoneType"):
        run.fit()
    run.objective.loss = loss
    run.resume()
    assert run.fit()
    assert_same_end(whole, run)


def test_a_run_whose_optimizer_holds_frozen_weights_resumes_exactly(tmp_path):
    def begin(name: str, seed: int = 0) -> Trainer:
        torch.manual_seed(seed)
        model = transformer()
        model.source_embedding.requires_grad_(False)
        adam = torch.optim.Adam(model.parameters())
        return Trainer(model, TRAIN, VALIDATION, CONFIG, tmp_path / name, optimizer=adam)

    whole = begin("whole")
    assert whole.fit() and not begin("parts").fit(watch=after(3))
    run = begin("parts", seed=5)
    run.resume()
    assert run.fit()
    assert_same_end(whole, run)


def test_only_rank_0_deletes_old_epochs(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "process", lambda: (1, 1))
    (tmp_path / "epoch-1.safetensors").touch()
    assert trainer(tmp_path).fit() and [path.name for path in tmp_path.iterdir()] == ["epoch-1.safetensors"]


STOPPED = """
import os, sys
sys.path.insert(0, sys.argv[1])
import test_training as here
assert os.getpgrp() == os.getpid()  # a group of its own
KILL = "import os, signal, sys; os.killpg(int(sys.argv[1]), signal.SIGTERM)"
run = here.trainer(here.Path(sys.argv[2]), here.replace(here.CONFIG, workers=1))
def kill(loss):
    if run.progress.step == 3:
        here.subprocess.run([sys.executable, "-c", KILL, str(os.getpid())], start_new_session=True, check=True)
    return run.progress.step == 5
assert not run.fit(watch=kill)
"""


@pytest.mark.slow
def test_a_signal_to_all_processes_of_a_run_leaves_it_time_to_save(tmp_path):
    command = [sys.executable, "-c", STOPPED, str(Path(__file__).parent), str(tmp_path)]
    ended = subprocess.run(command, start_new_session=True, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
    assert load_tensors(tmp_path / "last.safetensors")[1]["progress"]["step"] == 3


@pytest.mark.slow
def test_a_crash_while_writing_is_harmless(tmp_path, monkeypatch):
    """The disk is full at one of the writes of an epoch, or when the log is written."""
    whole = trainer(tmp_path / "whole")
    whole.fit()
    for crash, number in (*(("save_tensors", n) for n in range(2, 8)), ("write_atomically", 2)):
        folder, calls, call = tmp_path / f"{crash} {number}", iter(range(number - 1)), getattr(module, crash)

        def dying(*args, calls=calls, call=call):
            if next(calls, None) is None:
                raise OSError("the disk is full")
            return call(*args)

        with monkeypatch.context() as patch, pytest.raises(OSError, match="disk is full"):
            patch.setattr(module, crash, dying)
            trainer(folder).fit(save_every=2)
        again = trainer(folder, seed=5)
        again.resume()
        assert again.fit(save_every=3)
        assert_same_end(whole, again)


def test_a_finished_run_can_go_on_with_more_epochs(tmp_path):
    few, more = (replace(CONFIG, epochs=epochs) for epochs in (1, 2))
    whole = trainer(tmp_path / "whole", more)
    whole.fit()
    trainer(tmp_path / "parts", few).fit()
    run = trainer(tmp_path / "parts", more, seed=6)
    run.resume()
    assert not run.finished() and run.fit()
    assert_same_end(whole, run)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (lambda: Trainer(transformer(dropout=0.2), TRAIN, VALIDATION, CONFIG), "model"),
        (lambda: Trainer(transformer(), TRAIN[1:], VALIDATION, CONFIG), "corpus"),
        (lambda: Trainer(transformer(), TRAIN, VALIDATION[1:], CONFIG), "corpus"),
        (lambda: Trainer(transformer(), TRAIN[::-1], VALIDATION, CONFIG), "corpus"),
    ],
)
def test_a_checkpoint_continues_only_its_own_run(tmp_path, change, named):
    trainer(tmp_path).fit(watch=after(1))
    other = change()
    other.folder = tmp_path
    before = {name: tensor.clone() for name, tensor in other.model.state_dict().items()}
    with pytest.raises(ValueError, match=f"is of a run with another {named}$"):
        other.resume()
    assert other.progress == Progress()
    assert all(torch.equal(tensor, before[name]) for name, tensor in other.model.state_dict().items())


def test_the_moments_of_a_layer_never_go_to_another(tmp_path):
    def begin(*frozen: int) -> Trainer:
        model = transformer(n_encoder_layers=2)
        for number in frozen:
            model.encoder.layers[number].requires_grad_(False)
        return Trainer(model, TRAIN, VALIDATION, replace(CONFIG, ema=0.5), tmp_path)

    begin(0).fit(watch=after(1))
    for frozen in ([1], [], [0, 1]):
        with pytest.raises(ValueError, match=r"is of a run with another choice of weights$"):
            begin(*frozen).resume()


OTHER = {
    "accumulate": 2, "average": 1, "betas": (0.8, 0.98), "clip": 2.0, "compile": True, "consistency": 1.0,
    "cooldown": 1, "ema": 0.5, "epochs": 4, "eps": 1e-8, "learning_rate": 0.02, "max_tokens": 30, "patience": 2,
    "precision": "bfloat16", "schedule": "linear", "seed": 4, "shard": True, "smoothing": 0.2, "warmup": 6,
    "workers": 1,
}  # fmt: skip
MAY_CHANGE = {"epochs", "patience", "workers", "compile", "shard"}  # how long, and on what, but not what is computed


def test_a_setting_that_changes_what_is_computed_cannot_change_when_a_run_is_resumed(tmp_path, monkeypatch):
    monkeypatch.setattr(nn.Module, "compile", lambda *_, **__: None)
    trainer(tmp_path).fit(watch=after(1))
    assert OTHER.keys() == {one.name for one in fields(TrainingConfig)}
    for name, value in OTHER.items():
        other = trainer(tmp_path, config=replace(CONFIG, **{name: value}))
        with nullcontext() if name in MAY_CHANGE else pytest.raises(ValueError, match=r"with another configuration$"):
            other.resume()


def test_whoever_forgets_to_resume_loses_nothing(tmp_path):
    trainer(tmp_path).fit(watch=after(2))
    before = (tmp_path / "last.safetensors").read_bytes()
    with pytest.raises(ValueError, match=r"last\.safetensors is of a run that has begun: resume\(\)"):
        trainer(tmp_path, seed=3).fit()
    assert (tmp_path / "last.safetensors").read_bytes() == before


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_first_ctrl_c_saves_and_stops_and_the_second_stops_at_once(tmp_path, number):
    run, handler, repeated = trainer(tmp_path), signal.getsignal(number), False
    assert run.fit(watch=lambda loss: run.progress.step == 3 and signal.raise_signal(number)) is False
    assert load_tensors(tmp_path / "last.safetensors")[1]["progress"]["step"] == 3
    assert signal.getsignal(number) is handler
    with pytest.raises(KeyboardInterrupt), Interrupt() as interrupt:
        signal.raise_signal(number)
        signal.raise_signal(number)  # at once: the same, repeated
        repeated = interrupt.requested
        interrupt._since -= 2
        signal.raise_signal(number)
    assert repeated
    assert signal.getsignal(number) is handler


def test_training_works_in_a_thread_and_leaves_random_numbers_alone():
    run, results = trainer(config=replace(CONFIG, epochs=1)), []
    thread = threading.Thread(target=lambda: results.append(run.fit()))
    before = torch.get_rng_state()
    thread.start()
    thread.join()
    assert results == [True] and torch.equal(before, torch.get_rng_state())


def test_evaluate_loss_leaves_each_part_in_its_mode():
    """Also if a batch raises."""
    config = TransformerConfig.tiny(source_vocab_size=9, target_vocab_size=9, d_model=8, n_heads=2)
    model = Transformer(config)
    model.train().encoder.eval()
    modes = [part.training for part in model.modules()]
    batch = collate([([4, EOS], [BOS, 5, EOS])])
    evaluate_loss(model, [batch])
    assert [part.training for part in model.modules()] == modes
    with pytest.raises(AttributeError):
        evaluate_loss(model, [batch, None])
    assert [part.training for part in model.modules()] == modes
