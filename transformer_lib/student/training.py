"""Tests for chapter "Training"."""

import random
from dataclasses import replace

import torch
from torch import nn, tensor
from torch.nn import functional as F

from transformer_lib.data.batching import Batch
from transformer_lib.models.loss import hidden_states, translation_loss
from transformer_lib.models.transformer import Transformer, TransformerConfig
from transformer_lib.student.checks import check, equal, holds
from transformer_lib.training.trainer import Trainer, TrainingConfig, rate_factor

SOURCE, TARGET = tensor([[4, 5, 6, 2], [7, 2, 0, 0]]), tensor([[1, 8, 9, 2], [1, 10, 0, 0]])
BATCHES = [Batch(SOURCE, TARGET), Batch(SOURCE[1:, :2], TARGET[1:, :2])]
CONFIG = TrainingConfig(epochs=2, max_tokens=24, learning_rate=1e-2, warmup=3, average=0, smoothing=0.0)


def model(dropout: float = 0.0) -> Transformer:
    """A small model."""
    sizes = {"d_model": 8, "n_heads": 2, "n_encoder_layers": 1, "n_decoder_layers": 1, "d_ff": 16}
    return Transformer(TransformerConfig(12, 12, dropout=dropout, **sizes))


def trainer(config: TrainingConfig = CONFIG, dropout: float = 0.0) -> Trainer:
    """A run that learns to copy short sentences."""
    rng = random.Random(0)
    rows = [[rng.randrange(4, 12) for _ in range(rng.randrange(1, 5))] for _ in range(24)]
    pairs = [([*row, 2], [1, *row, 2]) for row in rows]
    return Trainer(model(dropout), pairs[:18], pairs[18:], config)


@check(rate_factor, "The library's trainer")
def warm_up() -> None:
    """Over the warm-up the rate rises in equal steps; the first update is number 1 and has a rate above zero."""
    config = TrainingConfig(learning_rate=1.0, warmup=4)
    got = [rate_factor(step, config, 100) for step in (1, 2, 3, 4)]
    equal(got, [0.25, 0.5, 0.75, 1.0], {"The first update is number zero": got[0] == 0})


@check(rate_factor, "The library's trainer")
def inverse_square_root() -> None:
    """After four times the warm-up, the rate is half of the highest."""
    config = TrainingConfig(learning_rate=1.0, warmup=4)
    equal(
        [rate_factor(16, config, 100), rate_factor(64, config, 100)],
        [0.5, 0.25],
        {"1 / step without the root": [0.25, 1 / 16]},
    )


@check(rate_factor, "The library's trainer")
def linear_and_constant() -> None:
    """The schedule "linear" falls in equal steps and would be zero after the last update; "constant" stays.

    With a cooldown, any schedule falls like this in its last epochs.
    """
    linear = TrainingConfig(learning_rate=1.0, warmup=4, schedule="linear")
    equal([rate_factor(step, linear, 9) for step in (4, 7, 9)], [1.0, 0.5, 1 / 6])
    constant = TrainingConfig(learning_rate=1.0, warmup=4, schedule="constant", epochs=2)
    equal(rate_factor(9, constant, 9), 1.0)
    falling = replace(constant, cooldown=1)  # the last epoch of two, so the last 10 of 20 updates
    equal([rate_factor(step, falling, 20) for step in (9, 15, 20)], [1.0, 6 / 11, 1 / 11])


@check(Trainer.learning_rate, "The library's trainer")
def of_the_next_update() -> None:
    """The first update has the rate of update 1; without a learning rate, the highest is the paper's.

    All rates are multiplied by `progress.lr_scale`.
    """
    run = trainer()
    equal(run.learning_rate(), 0.01 / 3, {"The first update is number zero": 0.0})
    run.progress.step, run.progress.lr_scale = 1, 0.5
    equal(run.learning_rate(), 0.01 / 3, {"the scale is ignored": 0.02 / 3, "always the rate of the first": 0.01 / 6})
    run = trainer()
    run.config = TrainingConfig(warmup=3)
    equal(run.learning_rate(), (8 * 3) ** -0.5 / 3)


@check(Trainer.batch_loss, "The library's trainer")
def a_sum() -> None:
    """The loss of a batch is the sum over its target tokens."""
    run = trainer()
    equal(run.batch_loss(BATCHES[0]).sum.detach(), translation_loss(run.model, BATCHES[0]).sum.detach())


@check(Trainer.update, "The library's trainer")
def gradient_of_all_tokens() -> None:
    """Two batches in one update give the gradient of the mean over all their tokens, and the mean is returned."""
    run = trainer()
    twin = model()
    twin.load_state_dict(run.model.state_dict())
    losses = [translation_loss(twin, batch).sum for batch in BATCHES]
    want, slip = sum(losses) / 5, (losses[0] / 4 + losses[1]) / 2
    equal(run.update(BATCHES), want.detach(), {"A mean of means": slip.detach()})
    want.backward()
    nn.utils.clip_grad_norm_(twin.parameters(), 1.0)
    optimizer = torch.optim.Adam(twin.parameters(), 0.01 / 3, CONFIG.betas, CONFIG.eps)
    optimizer.step()
    apart = max(
        float((a - b).detach().abs().max()) for a, b in zip(run.model.parameters(), twin.parameters(), strict=True)
    )
    holds(apart < 1e-4, f"the weights after the update are up to {apart:.2g} away from those of Adam's step")


@check(Trainer.update, "The library's trainer")
def no_gradient_is_left() -> None:
    """An update is made in training mode; after it, the gradients are cleared and the update is counted."""
    run = trainer()
    run.model.eval()
    run.update(BATCHES)
    holds(run.model.training, "the model is in evaluation mode")
    left = sum(float(p.grad.abs().sum()) for p in run.model.parameters() if p.grad is not None)
    equal((run.progress.step, left), (1, 0.0))


@check(Trainer.fit, "The library's trainer")
def to_the_end() -> None:
    """A run makes all its updates, reports each epoch, and ends with a lower loss."""
    run, lines = trainer(), []
    before = run.evaluate()
    holds(run.fit(lines.append, watch=lambda loss: False), "fit() returned False, as if it had been stopped")
    equal((run.progress.step, len(lines)), (run.total, 2))
    holds(run.evaluate() < before, f"loss before {before:.3f}, after {run.evaluate():.3f}")


@check(Trainer.fit, "The library's trainer")
def stopped() -> None:
    """If ``watch`` returns True, the run stops after that update, and fit returns False."""
    run = trainer()
    holds(run.fit(watch=lambda loss: True) is False, "fit() returned True, as if it had come to the end")
    equal(run.progress.step, 1)


@check(Trainer.evaluate, "The library's trainer")
def mean_per_token() -> None:
    """The validation loss is a mean over all tokens, whatever the batches are, and without dropout."""
    run = trainer(dropout=0.5)
    run.validation_batches = BATCHES
    losses = [float(translation_loss(run.model.eval(), batch).sum.detach()) for batch in BATCHES]
    run.model.train()
    equal(run.evaluate(), sum(losses) / 5, {"A mean of means": (losses[0] / 4 + losses[1]) / 2})


@check(hidden_states, "The loss of a translator")
def under_teacher_forcing() -> None:
    """The decoder reads the target without its last token; its states give the model's logits."""
    one = model().eval()
    equal(one.output(hidden_states(one, BATCHES[0])), one(SOURCE, TARGET[:, :-1]))


@check(translation_loss, "The loss of a translator")
def summed_cross_entropy() -> None:
    """The loss is the summed cross-entropy of the target tokens: each state predicts the next token."""
    one = model().eval()
    logits = one(SOURCE, TARGET[:, :-1]).mT
    want, shifted = (
        F.cross_entropy(logits, t, ignore_index=0, reduction="sum") for t in (TARGET[:, 1:], TARGET[:, :-1])
    )
    slips = {"a mean, not a sum": want / 4, "The answer among the inputs": shifted}
    nats, n_tokens = translation_loss(one, BATCHES[0])
    equal(nats.detach(), want.detach(), {name: x.detach() for name, x in slips.items()})
    equal(int(n_tokens), 4, {"padding is counted, too": n_tokens == 6})


@check(translation_loss, "The loss of a translator")
def smoothing_in_training_only() -> None:
    """Labels are smoothed in training, and not in evaluation."""
    one = model().train()
    logits = one(SOURCE, TARGET[:, :-1]).mT
    plain, smooth = (
        F.cross_entropy(logits, TARGET[:, 1:], ignore_index=0, reduction="sum", label_smoothing=s).detach()
        for s in (0, 0.1)
    )
    equal(translation_loss(one, BATCHES[0], 0.1).sum.detach(), smooth, {"the labels are not smoothed": plain})
    equal(translation_loss(one.eval(), BATCHES[0], 0.1).sum.detach(), plain, {"smoothed in evaluation mode": smooth})
