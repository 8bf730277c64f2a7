"""The short loop that trains the models of the first chapters, and those of the studies.

Chapter: An encoder-decoder: the sentence in one vector.
"""

__all__ = ["train_on", "evaluate_loss"]

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import nn

from transformer_lib.models.loss import Loss, add_up
from transformer_lib.models.seq2seq import eval_mode


def train_on(
    model: nn.Module,
    batches: Iterable[Any],
    optimizer: torch.optim.Optimizer,
    *,
    loss: Callable[[Any, Any], Loss] | None = None,
    clip: float = 1.0,
    check: bool = True,
) -> float:
    """Make one update per batch, and return the mean loss per token in nats.

    Batches that have a method ``to`` are moved to the model's device.

    Args:
        loss: of a model and a batch; None for ``model.loss``.
        check: stop at a gradient that is not finite. On a GPU this is never checked, because the loop would wait.

    Raises:
        ValueError: if the optimizer does not train this model, or there are no batches.
        RuntimeError: if a gradient is not finite.

    Source: Pascanu et al. (2013) for clipping.
    """
    model.train()
    groups = optimizer.param_groups
    parameters = [p for group in groups for p in group["params"]]
    trained = {id(p) for p in model.parameters() if p.requires_grad}
    if not trained.intersection(map(id, parameters)):
        raise ValueError("the optimizer trains no parameter of this model")
    device, losses = next(model.parameters()).device, []
    for batch in batches:
        if hasattr(batch, "to"):
            batch = batch.to(device, non_blocking=True)
        result = model.loss(batch) if loss is None else loss(model, batch)  # type: ignore[operator]
        optimizer.zero_grad()
        result.mean.backward()
        finite = check and device.type == "cpu"
        nn.utils.clip_grad_norm_(parameters, clip, error_if_nonfinite=finite)
        optimizer.step()
        losses.append(Loss(result.sum.detach(), result.n_tokens))
    return _mean(losses)


@torch.no_grad()
def evaluate_loss(model: nn.Module, batches: Iterable[Any]) -> float:
    """Mean loss per target token: the log of the perplexity.

    Raises:
        ValueError: if there are no batches.
    """
    device = next(model.parameters()).device
    moved = (batch.to(device, non_blocking=True) for batch in batches)
    with eval_mode(model):
        losses = [model.loss(batch) for batch in moved]  # type: ignore[operator]
    return _mean(losses)


def _mean(losses: list[Loss]) -> float:
    if not losses:
        raise ValueError("there are no batches; those of a generator can be used only once")
    total, n_tokens = add_up(losses)
    return total / n_tokens
