"""Training: loss and Adam equal PyTorch's, averages are averages, a training that was stopped ends bit-identical."""

import ast
import itertools
import json
import math
import os
import random
import re
import signal
import subprocess
import sys
import threading
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from jaxtyping import TypeCheckError
from pages import code_of, prose_of, record_of
from torch import Tensor, nn
from torch.nn import functional as F

from transformer_lib.data.batching import Batch, Example, batches, collate
from transformer_lib.data.captions import Pair, make_captions
from transformer_lib.data.tokenizer import BOS, EOS, PAD, Tokenizer
from oracles import NoCache as WithoutCache  # bridge
from transformer_lib.models.alignment import AlignedSeq2Seq
from transformer_lib.models.hard_attention import HardConfig, HardSeq2Seq
from transformer_lib.models.recurrent import RecurrentConfig, RecurrentSeq2Seq
from transformer_lib.models.scores import LuongConfig, LuongSeq2Seq
from transformer_lib.models.seq2seq import Seq2Seq
from transformer_lib.models.transformer import Transformer, TransformerConfig
from transformer_lib.training.checkpoints import (
    average_checkpoints,
    load_tensors,
    load_weights,
    save_tensors,
)
from transformer_lib.training.loop import evaluate_loss, train_on, train_step
from transformer_lib.training.loss import output_loss, smoothed_loss
from transformer_lib.training.schedule import (
    TrainingConfig,
    peak_rate,
    rate_factor,
)
from transformer_lib.training.trainer import Interrupt, Progress, Trainer

ROOT = Path(__file__).resolve().parents[1]
VOCABULARY = 12
CONFIG = TrainingConfig(epochs=3, max_tokens=24, learning_rate=1e-2, warmup=5, average=2, seed=3)
PAPERS = replace(CONFIG, learning_rate=None)


def examples(n: int, seed: int = 0) -> list[Example]:
    """Sentences to be copied, of 1 to 5 words."""
    chance = random.Random(seed)
    words = [[chance.randrange(4, VOCABULARY) for _ in range(chance.randrange(1, 6))] for _ in range(n)]
    return [([*row, EOS], [BOS, *row, EOS]) for row in words]


TRAIN, VALIDATION = examples(24), examples(6, seed=1)
SHORT = [([4, EOS], [BOS, 4, 5, 6, 7, EOS])]
LONG = [*SHORT, ([4, EOS], [BOS, 4, 5, 6, 7, 8, EOS])]


def transformer(dropout: float = 0.1, **changes) -> Transformer:
    sizes = {"d_model": 8, "n_heads": 2, "n_encoder_layers": 1, "n_decoder_layers": 1, "d_ff": 16}
    return Transformer(TransformerConfig(VOCABULARY, VOCABULARY, **{**sizes, "dropout": dropout, **changes}))


def gru(dropout: float = 0.1) -> RecurrentSeq2Seq:
    return RecurrentSeq2Seq(RecurrentConfig(VOCABULARY, VOCABULARY, 6, 8, dropout=dropout))


def bahdanau() -> AlignedSeq2Seq:
    return AlignedSeq2Seq(RecurrentConfig(VOCABULARY, VOCABULARY, 6, 8, dropout=0.1))


def luong() -> LuongSeq2Seq:
    return LuongSeq2Seq(LuongConfig(VOCABULARY, VOCABULARY, 6, 8, dropout=0.1))


def located(places: int) -> LuongSeq2Seq:
    """With a location score, which has so many places."""
    return LuongSeq2Seq(LuongConfig(VOCABULARY, VOCABULARY, 6, 8, score="location", max_source_length=places))


def located_hard(places: int) -> HardSeq2Seq:
    return HardSeq2Seq(HardConfig(VOCABULARY, VOCABULARY, 6, 8, score="location", max_source_length=places))


def hard() -> HardSeq2Seq:
    return HardSeq2Seq(HardConfig(VOCABULARY, VOCABULARY, 6, 8, dropout=0.1))


MODELS = {"transformer": transformer, "gru": gru, "bahdanau": bahdanau, "luong": luong, "hard": hard}
QUICK = ["transformer", *(pytest.param(name, marks=pytest.mark.slow) for name in MODELS if name != "transformer")]


def trainer(folder: Path | None = None, config: TrainingConfig = CONFIG, make=transformer, seed: int = 0) -> Trainer:
    """A training from the same start each time; the random state is left where the model's start leaves it."""
    torch.manual_seed(seed)
    return Trainer(make(), TRAIN, VALIDATION, config, folder)


def after(updates: int):
    """A wish to stop after so many updates."""
    left = iter(range(updates - 1))
    return lambda: next(left, None) is None


def same(one: nn.Module, other: nn.Module) -> bool:
    pairs = zip(one.state_dict().items(), other.state_dict().items(), strict=True)
    return all(name == also and torch.equal(a, b) for (name, a), (also, b) in pairs)


@pytest.fixture(autouse=True)
def random_state():
    with torch.random.fork_rng():
        yield


# ---------------------------------------------------------------- smoothed loss


def by_hand(logits: Tensor, target: Tensor, smoothing: float) -> Tensor:
    """The formula, one position and one token at a time."""
    total, n_tokens = 0, 0
    for row, wanted in zip(logits.flatten(0, 1), target.flatten(), strict=True):
        if wanted == PAD:
            continue
        log_sum = row.exp().sum().log()
        for token in range(len(row)):
            share = smoothing / len(row) + (1 - smoothing) * (token == int(wanted))
            total = total - share * (row[token] - log_sum)
        n_tokens += 1
    return total / n_tokens


def drawn(shape: tuple[int, int, int], seed: int) -> tuple[Tensor, Tensor]:
    draw = torch.Generator().manual_seed(seed)
    logits = 3 * torch.randn(*shape, generator=draw, dtype=torch.float64)
    target = torch.randint(0, shape[-1], shape[:2], generator=draw)
    target[0, 0] = shape[-1] - 1  # at least one that is there
    return logits.requires_grad_(), target


@settings(max_examples=15)
@given(
    shape=st.tuples(st.integers(1, 3), st.integers(1, 4), st.integers(2, 6)),
    smoothing=st.floats(0, 0.99),
    seed=st.integers(0, 1000),
)
def test_the_loss_equals_torch_and_the_formula_in_value_and_gradient(shape, smoothing, seed):
    logits, target = drawn(shape, seed)
    ours = smoothed_loss(logits, target, smoothing=smoothing)
    theirs = F.cross_entropy(logits.flatten(0, 1), target.flatten(), ignore_index=PAD, label_smoothing=smoothing)
    formula = by_hand(logits, target, smoothing)
    for other in (theirs, formula):
        torch.testing.assert_close(ours, other, atol=1e-12, rtol=1e-12)
        mine, wanted = (torch.autograd.grad(loss, logits, retain_graph=True)[0] for loss in (ours, other))
        torch.testing.assert_close(mine, wanted, atol=1e-12, rtol=1e-12)
    assert not mine[target == PAD].any()


def test_the_written_gradient_agrees_with_finite_differences():
    logits, target = drawn((2, 3, 5), 0)
    assert torch.autograd.gradcheck(lambda x: 7 * smoothed_loss(x, target, smoothing=0.3), logits)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
def test_the_loss_of_half_precision_is_computed_in_single(dtype):
    logits, target = drawn((2, 3, 50), 0)
    rounded = logits.detach().to(dtype).requires_grad_()
    loss = smoothed_loss(rounded, target)
    assert loss.dtype == torch.float32
    exact = smoothed_loss(rounded.detach().double(), target)
    torch.testing.assert_close(loss.double(), exact, atol=1e-6, rtol=1e-6)
    loss.backward()
    assert rounded.grad.dtype == dtype and rounded.grad.isfinite().all()


@settings(max_examples=20)
@given(smoothing=st.floats(0.01, 0.9), n_tokens=st.integers(2, 30))
def test_the_lowest_loss_is_the_entropy_of_the_smoothed_target(smoothing, n_tokens):
    target = torch.tensor([[1]])
    wanted = torch.full((n_tokens,), smoothing / n_tokens, dtype=torch.float64)
    wanted[1] += 1 - smoothing
    entropy = -(wanted * wanted.log()).sum()
    logits = wanted.log()[None, None].requires_grad_()
    loss = smoothed_loss(logits, target, smoothing=smoothing)
    torch.testing.assert_close(loss, entropy, atol=1e-12, rtol=0)
    (gradient,) = torch.autograd.grad(loss, logits)
    assert gradient.abs().max() < 1e-12
    assert smoothed_loss(logits + torch.linspace(0, 1, n_tokens), target, smoothing=smoothing) > entropy


@settings(max_examples=15)
@given(
    rows=st.integers(1, 5),
    words=st.integers(2, 9),
    smoothing=st.floats(0, 0.9),
    bias=st.booleans(),
    seed=st.integers(0, 99),
)
def test_the_loss_of_the_output_layer_is_that_of_its_logits(rows, words, smoothing, bias, seed):
    draw = torch.Generator().manual_seed(seed)
    output = nn.Linear(4, words, bias=bias, dtype=torch.float64)
    hidden = torch.randn(rows, 3, 4, generator=draw, dtype=torch.float64, requires_grad=True)
    target = torch.randint(0, words, (rows, 3), generator=draw)
    target[0, 0] = words - 1
    leaves = [hidden, *output.parameters()]
    found, gradients = [], []
    for loss in (
        output_loss(hidden, output, target, smoothing=smoothing),
        smoothed_loss(output(hidden), target, smoothing=smoothing),
    ):
        found.append(loss)
        gradients.append(torch.autograd.grad(3 * loss, leaves))
    torch.testing.assert_close(*found, atol=1e-12, rtol=1e-12)
    for one, other in zip(*gradients, strict=True):
        torch.testing.assert_close(one, other, atol=1e-12, rtol=1e-12)


def test_the_loss_of_the_output_layer_never_holds_all_logits(monkeypatch):
    from torch.utils._python_dispatch import TorchDispatchMode

    class Largest(TorchDispatchMode):
        numel = 0

        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            result = func(*args, **(kwargs or {}))
            for tensor in result if isinstance(result, (tuple, list)) else [result]:
                self.numel = max(self.numel, tensor.numel() if isinstance(tensor, Tensor) else 0)
            return result

    output, hidden = nn.Linear(4, 2**14), torch.randn(1, 2000, 4, requires_grad=True)
    target = torch.randint(4, 2**14, (1, 2000))
    with Largest() as watch:
        output_loss(hidden, output, target).backward()
    assert watch.numel <= 2**22 < 2000 * 2**14 / 7
    with Largest() as watch:
        smoothed_loss(output(hidden), target).backward()
    assert watch.numel == 2000 * 2**14


def test_the_trainer_takes_the_short_way_and_learns_the_same(monkeypatch):
    import transformer_lib.training.trainer as module

    run, other = trainer(), trainer()
    batch = next(batches(TRAIN, 24))
    for each in (run, other):
        each.model.eval()
    calls = []
    monkeypatch.setattr(module, "output_loss", lambda *given, **more: calls.append(1) or output_loss(*given, **more))
    logits = other.model(batch.source, batch.target_input)
    plain = smoothed_loss(logits, batch.target_output, smoothing=CONFIG.smoothing)
    short = run.loss(batch)
    assert calls == [1]
    short.backward()
    plain.backward()
    torch.testing.assert_close(short, plain)
    for mine, yours in zip(run.model.parameters(), other.model.parameters(), strict=True):
        torch.testing.assert_close(mine.grad, yours.grad, atol=1e-6, rtol=1e-5)


def test_extreme_logits_have_a_finite_loss_and_gradient():
    logits = torch.tensor([[[0.0, 1e4, -1e4]]], requires_grad=True)
    loss = smoothed_loss(logits, torch.tensor([[2]]))
    loss.backward()
    assert loss.isfinite() and logits.grad.isfinite().all()


@pytest.mark.parametrize(
    ("logits", "target", "smoothing", "message"),
    [
        (
            torch.zeros(1, 2, 3),
            torch.ones(1, 2).long(),
            1.0,
            "smoothing=1.0 must be a finite number at least 0 and below 1",
        ),
        (
            torch.zeros(1, 2, 3),
            torch.ones(1, 2).long(),
            -0.1,
            "smoothing=-0.1 must be a finite number at least 0 and below 1",
        ),
        (torch.zeros(1, 2, 3), torch.zeros(1, 2).long(), 0.1, "target holds only padding"),
    ],
)
def test_the_loss_refuses(logits, target, smoothing, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        smoothed_loss(logits, target, smoothing=smoothing)


@pytest.mark.slow
def test_the_loss_refuses_shapes_that_do_not_fit_also_without_run_time_checks():
    code = (
        "import torch; from transformer_lib.training.loss import smoothed_loss\n"
        "try: smoothed_loss(torch.zeros(1, 2, 3), torch.ones(1, 3).long())\n"
        "except ValueError as error: print(error)"
    )
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True)
    assert "target is a int64 tensor of shape (1, 3), expected Int[Tensor, 'B T'] with B=1, T=2" in answer.stdout


# ---------------------------------------------------------------- schedule and Adam


@settings(max_examples=40)
@given(d_model=st.integers(1, 2000), warmup=st.integers(1, 5000), step=st.integers(1, 200_000))
def test_the_schedule_is_the_paper_s(d_model, warmup, step):
    paper = d_model**-0.5 * min(step**-0.5, step * warmup**-1.5)
    assert peak_rate(d_model, warmup) * rate_factor(step, "inverse-sqrt", warmup) == pytest.approx(paper, rel=1e-12)


@settings(max_examples=25)
@given(
    schedule=st.sampled_from(["inverse-sqrt", "linear", "plateau", "constant"]),
    warmup=st.integers(0, 40),
    total=st.integers(41, 90),
)
def test_every_schedule_rises_to_one_and_never_rises_again(schedule, warmup, total):
    shares = [rate_factor(step, schedule, warmup, total) for step in range(1, total + 1)]
    top = max(warmup, 1) - 1
    assert all(0 < share <= 1 for share in shares) and shares[top] == 1
    assert all(one < other for one, other in itertools.pairwise(shares[: top + 1]))
    assert all(one >= other for one, other in itertools.pairwise(shares[top:]))
    if warmup:
        assert shares[0] == pytest.approx(1 / warmup)  # counted from 1: the first update moves
    if schedule == "linear":
        steps = {round(a - b, 12) for a, b in itertools.pairwise(shares[top:])}
        assert len(steps) == 1 and shares[-1] == pytest.approx(steps.pop())  # one more step would be zero
        assert rate_factor(total + 5, schedule, warmup, total) == 0
    if schedule in ("plateau", "constant"):
        assert set(shares[top:]) == {1.0}


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: rate_factor(0, "constant"), "step=0 must be at least 1"),
        (lambda: rate_factor(1, "linear", 5), "total=None must be above warmup=5"),
        (lambda: rate_factor(1, "linear", 5, 5), "total=5 must be above warmup=5"),
        (lambda: TrainingConfig(epochs=0), "epochs=0 must be at least 1"),
        (lambda: TrainingConfig(max_tokens=0), "max_tokens=0 must be at least 1"),
        (lambda: TrainingConfig(accumulate=0), "accumulate=0 must be at least 1"),
        (lambda: TrainingConfig(warmup=-1), "warmup=-1 must be at least 0"),
        (lambda: TrainingConfig(average=-1), "average=-1 must be at least 0"),
        (lambda: TrainingConfig(patience=0), "patience=0 must be at least 1"),
        (lambda: TrainingConfig(epochs=2.5), "epochs=2.5 must be a whole number"),
        (lambda: TrainingConfig(epochs=math.nan), "epochs=nan must be a whole number"),
        (lambda: TrainingConfig(patience=1.5), "patience=1.5 must be a whole number"),
        (lambda: TrainingConfig(average=True), "average=True must be a whole number"),
        (lambda: TrainingConfig(seed=-1), "seed=-1 must be at least 0"),
        (lambda: TrainingConfig(learning_rate=0.0), "learning_rate=0.0 must be a finite number above 0"),
        (lambda: TrainingConfig(eps=0.0), "eps=0.0 must be a finite number above 0"),
        (lambda: TrainingConfig(clip=math.inf), "clip=inf must be a finite number above 0"),
        (lambda: TrainingConfig(smoothing=1.0), "smoothing=1.0 must be a finite number at least 0 and below 1"),
        (lambda: TrainingConfig(betas=(0.9, 1.0)), "betas=1.0 must be a finite number at least 0 and below 1"),
        (lambda: TrainingConfig(schedule="cosine"), "schedule='cosine' is unknown"),
        (lambda: TrainingConfig(precision="float16"), "precision='float16' is unknown; choose from float32, bfloat16"),
        (lambda: TrainingConfig(schedule="constant"), "learning_rate=None is the paper's rate"),
        (lambda: TrainingConfig(warmup=0), "learning_rate=None is the paper's rate"),
        (lambda: trainer(config=replace(CONFIG, max_tokens=3)), "max_tokens=3 is less than"),
        (
            lambda: trainer(config=replace(CONFIG, schedule="linear", warmup=10**6)),
            "warmup=1000000 must be shorter than the training, which has",
        ),
        (lambda: trainer(make=hard), "HardSeq2Seq has a loss of its own: it needs smoothing=0"),
        (lambda: trainer().fit(save_every=0), "save_every=0 must be at least 1"),
        (lambda: trainer().resume(), "folder is None"),
        (lambda: trainer(make=lambda: torch.compile(gru(), backend="eager")), "expected"),
        (lambda: trainer(make=lambda: WithoutCache(gru()), config=PAPERS), "has no config with a d_model"),
        (lambda: trainer(make=lambda: transformer(max_length=5)), "has a source of 6 tokens; the model has room for 5"),
        (lambda: trainer(make=lambda: located(4)), "tokens; the model has room for 4"),
        (lambda: trainer(make=lambda: located_hard(4), config=replace(CONFIG, smoothing=0.0)), "has room for 4"),
        (lambda: Trainer(transformer(max_length=5), SHORT, LONG, CONFIG), "validation[1] has a target of 6 tokens"),
        (lambda: trainer(Path("/nowhere")).resume(), "there is no file"),
        (lambda: average_checkpoints([]), "paths=[] must be a list of at least one file"),
        (lambda: TrainingConfig(betas=(0.9,)), "betas=(0.9,) must be two numbers"),
        (lambda: TrainingConfig(learning_rate="0.1"), "learning_rate='0.1' must be a finite number above 0"),
        (lambda: TrainingConfig(clip=0), "clip=0 must be a finite number above 0"),
        (lambda: trainer(config=TrainingConfig(max_tokens=24)), "warmup=4000 must be shorter than the training"),
        (lambda: Trainer(transformer(), TRAIN, VALIDATION, None), "config is None, expected TrainingConfig"),
        (lambda: Trainer(transformer(), TRAIN, [], CONFIG), "validation is empty"),
        (lambda: Trainer(transformer(), batches(TRAIN, 24), VALIDATION, CONFIG), "train can be read only once"),
        (lambda: smoothed_loss(torch.zeros(1, 2, 3), torch.tensor([[1, 3]])), "target holds token ids from 1 to 3"),
        (
            lambda: smoothed_loss(torch.zeros(1, 2, 3), torch.tensor([[1, -100]])),
            "target holds token ids from -100 to 1",
        ),
        (lambda: save_tensors("x", {"a": torch.zeros(2, device="meta")}, {}), "tensors['a'] holds no ordinary numbers"),
    ],
)
def test_bad_input_is_refused(call, message):
    with pytest.raises((ValueError, TypeError)) as caught:
        call()
    # With the annotations enforced, a wrong type may be caught before our own check; test_errors.py runs without.
    assert isinstance(caught.value, TypeCheckError) or message in str(caught.value)


def adam_by_hand(model: nn.Module, group: list[Batch], rates: list[float], config: TrainingConfig) -> None:
    """The formulas of Adam, on the gradient of the mean over all tokens, clipped by its norm."""
    (one, two), parameters = config.betas, list(model.parameters())
    means, squares = ([torch.zeros_like(p) for p in parameters] for _ in range(2))
    for t, rate in enumerate(rates, start=1):
        model.zero_grad()
        logits = [model(batch.source, batch.target_input).flatten(0, 1) for batch in group]
        wanted = torch.cat([batch.target_output.flatten() for batch in group])
        F.cross_entropy(torch.cat(logits), wanted, ignore_index=PAD, label_smoothing=config.smoothing).backward()
        norm = math.sqrt(sum(p.grad.square().sum().item() for p in parameters))
        with torch.no_grad():
            for p, m, v in zip(parameters, means, squares, strict=True):
                g = p.grad * min(1, config.clip / norm)
                m.mul_(one).add_((1 - one) * g)
                v.mul_(two).add_((1 - two) * g * g)
                p -= rate * (m / (1 - one**t)) / ((v / (1 - two**t)).sqrt() + config.eps)


@pytest.mark.slow
@pytest.mark.parametrize("clip", [0.05, 1e3], ids=["clipped", "not clipped"])
@pytest.mark.parametrize(
    "size", [pytest.param(1, id="one batch"), pytest.param(3, id="three batches", marks=pytest.mark.slow)]
)
def test_an_update_equals_the_formulas(size, clip):
    config = replace(CONFIG, clip=clip, smoothing=0.2, accumulate=size)
    torch.manual_seed(0)
    ours, theirs = transformer(dropout=0.0).double(), transformer(dropout=0.0).double()
    theirs.load_state_dict(ours.state_dict())
    run = Trainer(ours, TRAIN, VALIDATION, config)
    group = list(batches(TRAIN, config.max_tokens, 0, 0))[:size]
    assert size == 1 or len({batch.n_tokens for batch in group}) > 1
    rates = []
    for _ in range(8):
        rates.append(run.learning_rate())
        run.update(group)
        run.progress.step += 1
    assert rates == [pytest.approx(1e-2 * min(step / 5, (5 / step) ** 0.5)) for step in range(1, 9)]
    adam_by_hand(theirs, group, rates, config)
    for mine, yours in zip(ours.parameters(), theirs.parameters(), strict=True):
        # the lazy weight of Adam's eps lets noise of 1e-16 in a zero gradient grow to a whole step
        torch.testing.assert_close(mine[yours.grad.abs() > 1e-8], yours[yours.grad.abs() > 1e-8], atol=1e-7, rtol=1e-7)


@pytest.mark.slow
@settings(max_examples=5)
@given(sizes=st.lists(st.integers(1, 4), min_size=1, max_size=4), seed=st.integers(0, 100))
def test_many_small_batches_equal_one_large(sizes, seed):
    torch.manual_seed(seed)
    model, rows = transformer(dropout=0.0).double(), examples(sum(sizes), seed)
    run = Trainer(model, rows, rows, replace(CONFIG, max_tokens=1000, warmup=1))
    ends = [sum(sizes[: i + 1]) for i in range(len(sizes))]
    parts = [collate(rows[end - size : end]) for end, size in zip(ends, sizes, strict=True)]
    gradients = []
    for group in (parts, [collate(rows)]):
        loss, n_tokens = train_step(run.loss, group, torch.optim.SGD(model.parameters(), lr=0.0), clip=math.inf)
        gradients.append((loss.item(), n_tokens, [p.grad.clone() for p in model.parameters()]))
    (loss, n_tokens, small), (whole_loss, whole_tokens, large) = gradients
    assert n_tokens == whole_tokens == sum(len(target) - 1 for _, target in rows)
    assert loss == pytest.approx(whole_loss, rel=1e-5)
    for one, other in zip(small, large, strict=True):
        torch.testing.assert_close(one, other, atol=1e-12, rtol=1e-9)


def test_without_smoothing_and_schedule_the_trainer_is_the_loop_of_chapter_3():
    config = replace(CONFIG, smoothing=0.0, schedule="constant", warmup=0, epochs=1)
    run, plain = trainer(config=config, make=gru), gru(0.1)
    plain.load_state_dict(run.model.state_dict())
    optimizer = torch.optim.Adam(plain.parameters(), lr=1e-2, betas=(0.9, 0.98), eps=1e-9)
    torch.manual_seed(5)
    assert run.fit()
    torch.manual_seed(5)
    train_on(plain, batches(TRAIN, config.max_tokens, config.seed, 0), optimizer)
    assert same(run.model, plain)


def test_bfloat16_keeps_weights_and_moments_in_single_precision():
    run = trainer(config=replace(CONFIG, precision="bfloat16", epochs=1))
    seen = []
    run.model.decoder.layers[0].feed_forward.register_forward_hook(lambda *given: seen.append(given[-1].dtype))
    exact = trainer(config=replace(CONFIG, epochs=1))
    batch = next(batches(TRAIN, 24, 0, 0))
    for state in (run, exact):
        state.model.eval()
    rounded, single = (state.loss(batch).item() for state in (run, exact))
    assert torch.bfloat16 in seen and rounded == pytest.approx(single, rel=0.02) and rounded != single
    assert run.fit()
    assert all(p.dtype == p.grad.dtype == torch.float32 for p in run.model.parameters())
    moments = [t for slots in run.optimizer.state.values() for t in slots.values()]
    assert all(tensor.dtype == torch.float32 for tensor in moments)


# ---------------------------------------------------------------- the trainer


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.slow
def test_every_model_learns(name):
    config = replace(CONFIG, smoothing=0.0 if name == "hard" else 0.1, epochs=6)
    run = trainer(config=config, make=MODELS[name])
    before = evaluate_loss(run.model, batches(VALIDATION, 24))
    lines = []
    assert run.fit(report=lines.append) and run.finished()
    assert len(lines) == len(run.progress.log) == 6
    assert run.progress.log[-1]["validation_loss"] < before - 0.05
    assert run.progress.best == pytest.approx(min(e["validation_loss"] for e in run.progress.log), abs=1e-4)
    assert run.progress.step == run.total == run.progress.log[-1]["updates"]


def test_a_pass_ends_with_a_smaller_group_and_counts_every_token():
    config = replace(CONFIG, accumulate=4, epochs=1, warmup=1)
    run = trainer(config=config)
    n_batches = len(list(batches(TRAIN, config.max_tokens)))
    assert n_batches % 4
    groups = []
    update = run.update
    run.update = lambda group: groups.append(len(group)) or update(group)
    run.fit()
    assert sum(groups) == n_batches and len(groups) == math.ceil(n_batches / 4) == run.total
    order = [example for batch in batches(TRAIN, config.max_tokens, config.seed, 0) for example in batch.indices]
    assert sorted(order) == list(range(len(TRAIN)))


@pytest.mark.slow
def test_every_pass_takes_the_batches_of_its_own_shuffle():
    run, seen = trainer(config=replace(CONFIG, epochs=2)), []
    update = run.update
    run.update = lambda group: seen.extend(batch.indices for batch in group) or update(group)
    run.fit()
    passes = [[batch.indices for batch in batches(TRAIN, 24, CONFIG.seed, epoch)] for epoch in range(2)]
    assert seen == passes[0] + passes[1] and passes[0] != passes[1]


@pytest.mark.slow
def test_what_a_folder_holds(tmp_path):
    run = trainer(tmp_path, replace(CONFIG, epochs=4, average=2))
    kept = {}
    close = run._close_epoch

    def watched() -> str:
        line = close()
        kept[run.progress.epoch] = {name: tensor.clone() for name, tensor in run.model.state_dict().items()}
        return line

    run._close_epoch = watched
    assert run.fit()
    names = {path.name for path in tmp_path.iterdir()}
    weights = {"last.safetensors", "best.safetensors", "epoch-3.safetensors", "epoch-4.safetensors"}
    assert names == weights | {"averaged.safetensors", "log.jsonl"}
    log = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines()]
    assert log == run.progress.log and [line["epoch"] for line in log] == [1, 2, 3, 4]
    best, notes = load_tensors(tmp_path / "best.safetensors")
    lowest = min(log, key=lambda line: line["validation_loss"])
    assert notes == lowest
    assert all(torch.equal(best[name], tensor) for name, tensor in kept[lowest["epoch"]].items())
    mean, notes = load_tensors(tmp_path / "averaged.safetensors")
    assert notes == {"epochs": [3, 4]}
    for name, tensor in mean.items():
        torch.testing.assert_close(tensor, ((kept[3][name].double() + kept[4][name].double()) / 2).float())


def test_nothing_is_kept_without_a_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    trainer(config=replace(CONFIG, epochs=1)).fit()
    assert not list(tmp_path.iterdir())


def measured(run: Trainer, losses: list[float], monkeypatch) -> None:
    left = iter(losses)
    monkeypatch.setattr("transformer_lib.training.trainer.evaluate_loss", lambda *_: next(left))


@pytest.mark.slow
def test_early_stopping_and_plateau(monkeypatch):
    run = trainer(config=replace(CONFIG, epochs=9, patience=2, schedule="plateau", warmup=0))
    measured(run, [3.0, 2.0, 2.5, 1.9, 1.9, 2.0, 0.1], monkeypatch)
    rates = []
    assert run.fit(report=lambda _: rates.append(run.learning_rate()))
    assert run.progress.epoch == 6 and run.progress.best == 1.9 and run.progress.bad_epochs == 2 and run.finished()
    assert rates == [pytest.approx(1e-2 * share) for share in (1, 1, 0.5, 0.5, 0.25, 0.125)]


def test_a_loss_beyond_all_bounds_is_reported(monkeypatch):
    run = trainer(config=replace(CONFIG, epochs=1))
    measured(run, [1e4], monkeypatch)
    assert run.fit()


def test_a_gradient_that_is_not_finite_is_refused_before_it_does_harm():
    run = trainer()
    before = {name: tensor.clone() for name, tensor in run.model.state_dict().items()}
    with torch.no_grad():
        run.model.decoder.layers[0].feed_forward.linear1.weight[0, 0] = math.nan
    with pytest.raises(ValueError, match=r"update 1: the gradient is not finite .*lower learning rate"):
        run.fit()
    after_it = run.model.state_dict()
    changed = [name for name in before if not torch.equal(before[name], after_it[name])]
    assert changed == ["decoder.layers.0.feed_forward.linear1.weight"] and run.progress.step == 0


# ---------------------------------------------------------------- files


def tensors_to_keep() -> dict[str, Tensor]:
    tied = torch.arange(6.0).reshape(2, 3)
    return {"a": tied, "tied": tied, "turned": tied.T, "empty": torch.zeros(0, 2), "step": torch.tensor(3.0),
            "bits": torch.arange(5, dtype=torch.uint8), "half": torch.tensor([1.5]).bfloat16()}  # fmt: skip


def test_tensors_come_back_as_they_were(tmp_path):
    kept, notes = tensors_to_keep(), {"best": math.inf, "text": "größer", "list": [1, 2.5, None]}
    save_tensors(tmp_path / "x.safetensors", kept, notes)
    found, read = load_tensors(tmp_path / "x.safetensors")
    assert read == notes and found.keys() == kept.keys()
    for name, tensor in kept.items():
        assert found[name].dtype == tensor.dtype and torch.equal(found[name], tensor)
    assert found["tied"].data_ptr() == found["a"].data_ptr()  # stored once
    assert [path.name for path in tmp_path.iterdir()] == ["x.safetensors"]


@pytest.mark.parametrize("every", [23, pytest.param(1, marks=pytest.mark.slow)])
def test_a_file_that_is_cut_or_altered_by_one_bit_is_refused(tmp_path, every):
    path = tmp_path / "x.safetensors"
    save_tensors(path, {"a": torch.arange(3.0)}, {"n": 1})
    whole = path.read_bytes()
    for length in range(0, len(whole), every):
        path.write_bytes(whole[:length])
        with pytest.raises(ValueError, match="is not a readable checkpoint"):
            load_tensors(path)
    for bit in range(0, 8 * len(whole), every):
        altered = bytearray(whole)
        altered[bit // 8] ^= 1 << bit % 8
        path.write_bytes(bytes(altered))
        with pytest.raises(ValueError, match="is not a readable checkpoint"):
            load_tensors(path)


def test_saving_does_not_read_the_corpus_again(tmp_path, monkeypatch):
    trained, written, dumps = trainer(tmp_path), [], json.dumps
    corpus = dumps(trained.train, default=list)[1:-1]

    def watched(*args, **options):
        written.append(dumps(*args, **options))
        return written[-1]

    monkeypatch.setattr(json, "dumps", watched)
    for _ in range(3):
        trained.save(tmp_path / "last.safetensors")
    assert sum(corpus in text for text in written) == 1


REPLACING = """
import itertools, os, sys
*sources, path = sys.argv[1:]
for source in itertools.cycle(sources):
    os.link(source, path + ".new")
    os.replace(path + ".new", path)
"""


@pytest.mark.slow
def test_a_checkpoint_can_be_read_while_a_training_replaces_it(tmp_path):
    path, sources = tmp_path / "last.safetensors", [tmp_path / "0", tmp_path / "1"]
    for number, source in enumerate(sources):
        save_tensors(source, {"a": torch.full((50,), float(number))}, {"number": number})
    with subprocess.Popen([sys.executable, "-c", REPLACING, *map(str, sources), str(path)]) as process:
        try:
            while not path.exists():
                assert process.poll() is None
            seen = [load_tensors(path) for _ in range(2000)]
        finally:
            process.kill()
    assert all(tensors["a"].eq(notes["number"]).all() for tensors, notes in seen)
    assert {notes["number"] for _, notes in seen} == {0, 1}


def test_files_of_others_are_refused(tmp_path):
    from safetensors.torch import save_file

    save_file({"a": torch.zeros(2)}, tmp_path / "theirs.safetensors")
    with pytest.raises(ValueError, match="is not a readable checkpoint"):
        load_tensors(tmp_path / "theirs.safetensors")
    with pytest.raises(ValueError, match="there is no file"):
        load_tensors(tmp_path / "missing.safetensors")


def test_weights_must_be_the_model_s_own():
    model, path = nn.Linear(2, 3), Path("x")
    before = model.weight.clone()
    for weights, message in (
        ({"weight": torch.ones(3, 2)}, "x: bias has shape None, but the model has (3,)"),
        ({"weight": torch.ones(2, 3), "bias": torch.ones(3)}, "x: weight has shape (2, 3), but the model has (3, 2)"),
        ({**{n: t + 1 for n, t in model.state_dict().items()}, "c": torch.ones(1)}, "x: c has shape (1,), but"),
    ):
        with pytest.raises(ValueError, match=re.escape(message)):
            load_weights(model, weights, path)
    for wrong, message in (
        (torch.full((3, 2), math.nan), "x: weight holds NaN or an infinite number"),
        (torch.ones(3, 2, dtype=torch.long), "x: weight is torch.int64, but the model has torch.float32"),
    ):
        with pytest.raises(ValueError, match=re.escape(message)):
            load_weights(model, {"weight": wrong, "bias": torch.zeros(3)}, path)
    assert torch.equal(model.weight, before)
    load_weights(model, {"weight": torch.ones(3, 2), "bias": torch.zeros(3)}, path)
    assert model.weight.sum() == 6


@settings(max_examples=10)
@given(n=st.integers(1, 5), seed=st.integers(0, 100))
def test_an_average_is_the_mean_of_each_tensor(n, seed):
    import tempfile

    draw = torch.Generator().manual_seed(seed)
    many = [{"a": torch.randn(2, 3, generator=draw), "b": torch.randn(4, generator=draw).half()} for _ in range(n)]
    with tempfile.TemporaryDirectory() as folder:
        paths = [Path(folder) / f"{i}.safetensors" for i in range(n)]
        for path, tensors in zip(paths, many, strict=True):
            save_tensors(path, tensors, {})
        mean = average_checkpoints(paths)
        back = average_checkpoints(paths[::-1])
        for name in mean:
            torch.testing.assert_close(mean[name], back[name], atol=1e-6 if name == "a" else 1e-3, rtol=1e-3)
    for name in ("a", "b"):
        exact = torch.stack([tensors[name].double() for tensors in many]).mean(0)
        assert mean[name].dtype == many[0][name].dtype
        assert torch.equal(mean[name], exact.to(mean[name].dtype)) or torch.allclose(mean[name].double(), exact, 1e-3)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16])
def test_tied_weights_count_once_in_an_average(tmp_path, dtype):
    for value in (1.0, 3.0):
        tied = torch.full((2,), value, dtype=dtype)
        save_tensors(str(tmp_path / f"{value}"), {"a": tied, "b": tied}, {})
    mean = average_checkpoints([str(tmp_path / "1.0"), tmp_path / "3.0"])
    assert all(tensor.dtype == dtype and tensor.tolist() == [2, 2] for tensor in mean.values())
    assert mean["a"] is mean["b"]  # still tied: the table is written once
    save_tensors(tmp_path / "loose", {"a": torch.ones(2, dtype=dtype), "b": torch.ones(2, dtype=dtype)}, {})
    with pytest.raises(ValueError, match="are not of the same model"):
        average_checkpoints([tmp_path / "1.0", tmp_path / "loose"])


def test_only_checkpoints_of_one_model_are_averaged(tmp_path):
    for name, tensors in (("a", {"w": torch.zeros(2)}), ("b", {"w": torch.zeros(3)}), ("c", {"v": torch.zeros(2)})):
        save_tensors(tmp_path / name, tensors, {})
    for other in ("b", "c"):
        with pytest.raises(ValueError, match="are not of the same model: their names or shapes differ"):
            average_checkpoints([tmp_path / "a", tmp_path / other])


# ---------------------------------------------------------------- resume


def test_folders_may_be_strings(tmp_path):
    assert not trainer(str(tmp_path / "run")).fit(stop=after(2))
    again = trainer(str(tmp_path / "run"))
    again.resume()
    assert again.progress.step == 2


def finished_run(folder: Path, config: TrainingConfig = CONFIG, make=transformer) -> Trainer:
    run = trainer(folder, config, make)
    assert run.fit()
    return run


def assert_same_end(one: Trainer, other: Trainer) -> None:
    """Weights, moments, progress, random numbers and files are the same, times aside."""
    assert same(one.model, other.model)
    for index, slots in one.optimizer.state_dict()["state"].items():
        for name, tensor in slots.items():
            assert torch.equal(tensor, other.optimizer.state_dict()["state"][index][name])

    def timeless(run: Trainer) -> Progress:
        log = [{name: value for name, value in line.items() if "second" not in name} for line in run.progress.log]
        return replace(run.progress, seconds=0.0, log=log)

    assert timeless(one) == timeless(other)
    names = {path.name for path in one.folder.iterdir()}
    assert names == {path.name for path in other.folder.iterdir()}
    for name in names - {"log.jsonl"}:
        mine, yours = (load_tensors(run.folder / name)[0] for run in (one, other))
        assert mine.keys() == yours.keys() and all(torch.equal(mine[key], yours[key]) for key in mine)


@pytest.mark.parametrize("name", QUICK)
@pytest.mark.slow
def test_a_training_that_was_stopped_ends_bit_identical(tmp_path, name):
    config = replace(CONFIG, smoothing=0.0 if name == "hard" else 0.1, accumulate=2, schedule="plateau")
    whole = finished_run(tmp_path / "whole", config, MODELS[name])
    stopped = trainer(tmp_path / "parts", config, MODELS[name])
    assert stopped.fit(stop=after(1)) is False
    stopped = trainer(tmp_path / "parts", config, MODELS[name], seed=9)  # another start, other random numbers
    stopped.resume()
    assert stopped.progress.step == 1
    assert stopped.fit(stop=after(stopped.total // 2)) is False
    stopped = trainer(tmp_path / "parts", config, MODELS[name], seed=8)
    stopped.resume()
    assert stopped.fit() is True
    assert_same_end(whole, stopped)


@pytest.mark.slow
def test_stopping_after_any_update_changes_nothing(tmp_path):
    config = replace(CONFIG, epochs=2, max_tokens=50)
    whole = finished_run(tmp_path / "whole", config)
    for update in range(1, whole.total + 1):
        folder = tmp_path / str(update)
        assert trainer(folder, config).fit(stop=after(update)) is False
        run = trainer(folder, config, seed=7)
        run.resume()
        assert run.fit()
        assert_same_end(whole, run)


@pytest.mark.slow
@pytest.mark.parametrize("crash", ["save_tensors", "write_atomically", "evaluate_loss"])
def test_a_crash_while_writing_or_measuring_is_harmless(tmp_path, monkeypatch, crash):
    import transformer_lib.training.trainer as module

    whole = finished_run(tmp_path / "whole")
    for number in range(1, 4):  # dies at the first, second, ... call
        folder, run = tmp_path / str(number), trainer(tmp_path / str(number))
        calls, call = iter(range(number - 1)), getattr(module, crash)
        with monkeypatch.context() as patch:

            def dying(*given, calls=calls, call=call):
                if next(calls, None) is None:
                    raise OSError("the disk is full")
                return call(*given)

            patch.setattr(module, crash, dying)
            with pytest.raises(OSError, match="disk is full"):
                run.fit(save_every=2)
        again = trainer(folder, seed=0 if number == 1 and crash != "evaluate_loss" else 5)
        if (folder / "last.safetensors").exists():
            again.resume()
        assert again.fit(save_every=3)
        assert_same_end(whole, again)


def test_there_is_something_to_resume_from_before_the_first_update(tmp_path):
    run = trainer(tmp_path)
    run.update = lambda group: 1 / 0
    with pytest.raises(ZeroDivisionError):
        run.fit()
    again = trainer(tmp_path, seed=5)
    again.resume()
    assert same(again.model, trainer().model)


def test_whoever_forgets_to_resume_loses_nothing(tmp_path):
    trainer(tmp_path).fit(stop=after(2))
    before = (tmp_path / "last.safetensors").read_bytes()
    with pytest.raises(ValueError, match=r"last\.safetensors is of a training that has begun: resume\(\)"):
        trainer(tmp_path, seed=3).fit()
    assert (tmp_path / "last.safetensors").read_bytes() == before


def test_resume_restores_the_random_numbers(tmp_path):
    run = trainer(tmp_path)
    run.fit(stop=after(2))
    expected = torch.rand(3)
    again = trainer(tmp_path, seed=4)
    again.resume()
    assert torch.equal(torch.rand(3), expected)


def test_resume_sweeps_up_what_a_killed_process_was_writing(tmp_path):
    run = trainer(tmp_path)
    run.fit(stop=after(1))
    (tmp_path / "last.safetensors.0123.part").write_bytes(b"half")
    (tmp_path / "notes.part").write_bytes(b"not ours")
    trainer(tmp_path).resume()
    assert {path.name for path in tmp_path.iterdir()} == {"last.safetensors", "notes.part"}


@pytest.mark.slow
def test_a_finished_training_can_go_on_with_more_passes(tmp_path):
    more = replace(CONFIG, epochs=5)
    whole = finished_run(tmp_path / "whole", more)
    finished_run(tmp_path / "parts")
    run = trainer(tmp_path / "parts", more, seed=6)
    run.resume()
    assert not run.finished() and run.fit()
    assert_same_end(whole, run)


@pytest.mark.slow
@pytest.mark.parametrize(
    "change",
    [
        lambda: trainer(config=replace(CONFIG, learning_rate=0.02)),
        lambda: trainer(config=replace(CONFIG, accumulate=2)),
        lambda: trainer(config=replace(CONFIG, seed=4)),
        lambda: trainer(make=lambda: transformer(d_ff=8)),
        lambda: trainer(make=lambda: transformer(dropout=0.2)),
        lambda: trainer(make=gru),
        lambda: Trainer(transformer(), TRAIN[1:], VALIDATION, CONFIG),
        lambda: Trainer(transformer(), TRAIN, VALIDATION[1:], CONFIG),
        lambda: Trainer(transformer(), TRAIN[::-1], VALIDATION, CONFIG),
    ],
)
def test_a_checkpoint_continues_only_its_own_training(tmp_path, change):
    run = trainer(tmp_path)
    run.fit(stop=after(1))
    other = change()
    before = {name: tensor.clone() for name, tensor in other.model.state_dict().items()}
    with pytest.raises(ValueError, match="belongs to a training with another model, other data or another"):
        other.restore(tmp_path / "last.safetensors")
    assert other.progress == Progress()
    assert all(torch.equal(tensor, before[name]) for name, tensor in other.model.state_dict().items())


def test_a_broken_checkpoint_changes_nothing(tmp_path):
    run = trainer(tmp_path)
    run.fit(stop=after(2))
    path = tmp_path / "last.safetensors"
    whole = path.read_bytes()
    for broken in (whole[:-1], whole[:1000], whole[:-5] + bytes([whole[-5] ^ 1]) + whole[-4:]):
        path.write_bytes(broken)
        fresh = trainer(tmp_path, seed=2)
        before = {name: tensor.clone() for name, tensor in fresh.model.state_dict().items()}
        state = torch.get_rng_state()
        with pytest.raises(ValueError, match="is not a readable checkpoint"):
            fresh.resume()
        assert all(torch.equal(tensor, before[name]) for name, tensor in fresh.model.state_dict().items())
        assert fresh.progress == Progress() and not fresh.optimizer.state and torch.equal(state, torch.get_rng_state())


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_first_ctrl_c_saves_and_stops_and_the_second_stops_at_once(tmp_path, number):
    run, handler = trainer(tmp_path), signal.getsignal(number)
    update = run.update

    def interrupted(group: list[Batch]) -> tuple[float, int]:
        if run.progress.step == 2:
            signal.raise_signal(number)
        return update(group)

    run.update = interrupted
    assert run.fit() is False and run.progress.step == 3
    assert load_tensors(tmp_path / "last.safetensors")[1]["progress"]["step"] == 3
    assert signal.getsignal(number) is handler
    with pytest.raises(KeyboardInterrupt), Interrupt() as interrupt:
        signal.raise_signal(number)
        signal.raise_signal(number)  # at once: the same, repeated
        assert interrupt.requested
        interrupt._since -= 2
        signal.raise_signal(number)
    assert signal.getsignal(number) is handler


def test_training_works_outside_the_main_thread():
    run, answers = trainer(config=replace(CONFIG, epochs=1)), []
    thread = threading.Thread(target=lambda: answers.append(run.fit()))
    thread.start()
    thread.join()
    assert answers == [True]


@pytest.mark.slow
def test_progress_is_drawn_on_standard_error_only_if_asked(capsys):
    trainer(config=replace(CONFIG, epochs=1)).fit()
    assert capsys.readouterr() == ("", "")
    trainer(config=replace(CONFIG, epochs=1)).fit(progress_bar=True)
    drawn_there = capsys.readouterr()
    assert drawn_there.out == "" and "epoch 1 of 1" in drawn_there.err


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")
def test_killed_at_random_moments(tmp_path):
    script = [sys.executable, str(ROOT / "benchmarks" / "kill.py"), "--kills", "2", "--seed", "1"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    answer = subprocess.run(script, capture_output=True, text=True, cwd=tmp_path, env=environment, timeout=300)
    assert answer.returncode == 0, answer.stderr
    assert "2 of 2 kills left no trace" in answer.stdout


# ---------------------------------------------------------------- other data, other optimisers


def loaded(examples: list[Example]) -> torch.utils.data.DataLoader:
    return torch.utils.data.DataLoader(examples, batch_size=4, shuffle=True, collate_fn=collate)


@pytest.mark.parametrize("data", ["loader", "list"])
def test_batches_that_come_ready_are_trained_on_and_resumed(tmp_path, data):
    def begin(name: str, seed: int = 0) -> Trainer:
        torch.manual_seed(seed)
        made = loaded(TRAIN) if data == "loader" else list(batches(TRAIN, 24))
        return Trainer(transformer(), made, [collate(VALIDATION)], CONFIG, tmp_path / name)

    whole = begin("whole")
    assert whole.total == 3 * len(whole.train) and whole.fit()
    assert not begin("parts").fit(stop=after(len(whole.train) + 2))  # in the middle of an epoch
    again = begin("parts", seed=7)
    again.resume()
    assert again.fit()
    assert_same_end(whole, again)


def test_data_of_unknown_length_have_no_linear_schedule():
    class Endless(torch.utils.data.IterableDataset):
        def __iter__(self):
            return iter(TRAIN)

    data = torch.utils.data.DataLoader(Endless(), batch_size=4, collate_fn=collate)
    run = Trainer(transformer(), data, VALIDATION, replace(CONFIG, epochs=2))
    assert run.total is None and run.fit() and run.progress.step == 12
    with pytest.raises(ValueError, match="total=None must be above warmup=5"):
        run = Trainer(transformer(), data, VALIDATION, replace(CONFIG, schedule="linear"))
        run.progress.step = 5
        run.learning_rate()


@pytest.mark.parametrize("make", [torch.optim.AdamW, lambda p, lr: torch.optim.SGD(p, lr=lr, momentum=0.9)])
def test_another_optimizer_trains_and_is_resumed(tmp_path, make):
    def begin(name: str, seed: int = 0) -> Trainer:
        torch.manual_seed(seed)
        model = transformer()
        optimizer = make(model.parameters(), lr=1.0)
        return Trainer(model, TRAIN, VALIDATION, CONFIG, tmp_path / name, optimizer=optimizer)

    whole = begin("whole")
    assert whole.fit() and not begin("parts").fit(stop=after(3))
    assert whole.optimizer.param_groups[0]["lr"] < 0.01  # the schedule's
    again = begin("parts", seed=5)
    again.resume()
    assert again.fit()
    assert_same_end(whole, again)
    with pytest.raises(ValueError, match="another configuration"):
        trainer().restore(tmp_path / "whole" / "last.safetensors")


def test_without_a_clip_the_gradient_is_left_as_it_is():
    free, bound = trainer(config=replace(CONFIG, clip=None)), trainer(config=replace(CONFIG, clip=1e-3))
    norms = []
    for run in (free, bound):
        run.update(list(batches(TRAIN, 24))[:1])
        norms.append(torch.stack([p.grad.norm() for p in run.model.parameters()]).norm().item())
    assert norms[0] > 0.1 and norms[1] == pytest.approx(1e-3, rel=1e-3)


def test_a_linear_schedule_is_stretched_when_more_epochs_are_asked_for(tmp_path):
    config = replace(CONFIG, schedule="linear", epochs=2)
    finished_run(tmp_path, config)
    more = trainer(tmp_path, replace(config, epochs=4))
    more.resume()
    assert more.fit() and more.progress.epoch == 4 and more.progress.step == more.total


# ---------------------------------------------------------------- what was recorded


def test_the_chapter_shows_the_ablations_as_they_were_recorded():
    rows = record_of("ablations")["rows"]
    names = {
        "no division by the root of K": r"no division by $\sqrt{d_k}$",
        "the second beta 0.999": r"$\beta_2 = 0.999$",
    }
    lines = []
    for row in rows:
        loss = f"{row['validation_loss']:.2f} ({row['lowest']:.2f} to {row['highest']:.2f})"
        score = f"{row['bleu']:.1f} ({row['bleu_lowest']:.1f} to {row['bleu_highest']:.1f})"
        others = (f"{row[name]:.1f}" for name in ("exact_match", "right", "confidence"))
        variant = names.get(row["variant"], row["variant"])
        lines.append(f"| {' | '.join([variant, loss, score, *others])} |")
    assert "\n".join(lines) in prose_of("translation/training")
    code = re.search(r"ABLATIONS = (\{.*?^\})", code_of("translation/training"), re.MULTILINE | re.DOTALL).group(1)
    measures = ("validation_loss", "lowest", "highest", "bleu_lowest", "bleu_highest")
    assert ast.literal_eval(code) == {row["variant"]: tuple(row[m] for m in measures) for row in rows}
    losses = {row["variant"]: row["validation_loss"] for row in rows}
    assert losses["no warm-up"] > 3 * losses["the recipe"]
    assert losses["no division by the root of K"] > 1.5 * losses["the recipe"]


def test_the_chapter_compares_with_counts_of_neighbours():
    pairs = make_captions(2500, seed=0, min_length=4, max_length=7)
    seen = {pair.source for pair in pairs}
    others = [p for p in make_captions(2000, seed=1, min_length=4, max_length=7) if p.source not in seen][:300]
    german = Tokenizer.train([pair.target for pair in pairs], level="word")

    def neighbours(captions: list[Pair]) -> list[tuple[int, int]]:
        lines = ([BOS, *german.encode(pair.target), EOS] for pair in captions)
        return [two for line in lines for two in itertools.pairwise(line)]

    train, held_out = neighbours(pairs), neighbours(others)
    both, before, words = Counter(train), Counter(one for one, _ in train), Counter(two for _, two in train)
    word = {token: (words[token] + 1) / (len(train) + len(german)) for token in range(len(german))}
    loss = -sum(math.log((both[one, two] + word[two]) / (before[one] + 1)) for one, two in held_out) / len(held_out)
    alone = -sum(math.log(word[two]) for _, two in held_out) / len(held_out)
    best = {one: two for (one, two), _ in reversed(both.most_common())}  # the most frequent comes last and stays
    right = 100 * sum(best.get(one) == two for one, two in held_out) / len(held_out)
    prose = prose_of("translation/training")
    assert f"gives a loss of about {loss:.1f} and {right:.0f} percent right" in prose
    assert f"(The frequencies of words alone give {alone:.1f}.)" in prose


def test_the_two_trainings_of_the_chapter_change_places_at_update_30():
    rises, falls = ([rate_factor(u, "linear", warmup, 111) for u in range(1, 112)] for warmup in (40, 0))
    first = next(u for u, (up, down) in enumerate(zip(rises, falls, strict=True), start=1) if up > down)
    assert all(up > down for up, down in zip(rises[first - 1 :], falls[first - 1 :], strict=True))
    assert f"the higher of the two up to update {first - 1} and the lower" in prose_of("translation/training")


def test_the_chapter_says_how_far_a_long_memory_overshoots():
    size = torch.ones(1400)
    size[300:900] = 0.1
    gradients = size * (1 + 0.3 * torch.randn(1400, generator=torch.Generator().manual_seed(0)))
    highest, after = {}, {}
    for beta in (0.98, 0.999):
        theta = torch.zeros(1, requires_grad=True)
        optimizer, path = torch.optim.Adam([theta], lr=1.0, betas=(0.9, beta), eps=1e-9), [0.0]
        for gradient in gradients:
            theta.grad = gradient[None]
            optimizer.step()
            path.append(theta.item())
        smooth = -torch.tensor(path).diff().unfold(0, 20, 1).mean(-1)
        highest[beta], after[beta] = smooth[900:].max().item(), smooth[1000:1300].mean().item()
    told = f"rise to {highest[0.999]:.1f} times the learning rate", f"they rise to {highest[0.98]:.1f} times"
    assert all(text in prose_of("translation/training") for text in told)
    assert after[0.999] > 1.2 and abs(after[0.98] - 1) < 0.05


def test_the_chapter_says_how_many_kills_left_no_trace():
    rows = record_of("kill")["rows"]
    killed = sum(row["killed"] for row in rows)
    kept = sum(row["killed"] for row in rows if row["identical"])
    assert kept == killed == 20 and f"Of {killed} kills, {kept} left no trace" in " ".join(
        prose_of("translation/training").split()
    )


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_resume_on_a_gpu(tmp_path):
    def on_gpu() -> Seq2Seq:
        return transformer(0.3).cuda()

    whole = finished_run(tmp_path / "whole", make=on_gpu)
    trainer(tmp_path / "parts", make=on_gpu).fit(stop=after(3))
    run = trainer(tmp_path / "parts", make=on_gpu, seed=2)
    torch.cuda.manual_seed(77)
    run.resume()
    assert run.fit()
    assert_same_end(whole, run)
