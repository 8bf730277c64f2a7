"""What a loss is, a sum and a number of tokens; and that of a translator, which never holds all logits at once.

Chapter: Training.
"""

__all__ = ["Loss", "add_up", "chunked_loss", "hidden_states", "translation_loss"]

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from transformer_lib.data.batching import SPECIAL, Batch, special_ids

LossOfRows = Callable[[Tensor, Tensor], Tensor]


class Loss(NamedTuple):
    """What ``model.loss(batch)`` returns, for every model.

    Sums can be added up over batches and processes. To get a mean,
    divide once, at the end. A batch without target tokens has a sum
    of zero, with zero gradients.
    """

    sum: Float[Tensor, ""]  # over the tokens to predict, in nats
    n_tokens: Int[Tensor, ""]  # the number of these tokens

    @property
    def mean(self) -> Float[Tensor, ""]:
        """Nats per token."""
        return self.sum / self.n_tokens.clamp(min=1)


def add_up(losses: Iterable[Loss]) -> tuple[float, int]:
    """The sum and the number of tokens of all batches, of which there must be one."""
    losses = [*losses]
    if not losses:
        raise ValueError("there are no batches, and so no losses to add up")
    sums, counts = (torch.stack(x) for x in zip(*losses, strict=True))
    nats, n_tokens = torch.stack([sums, counts.to(sums.dtype)]).tolist()
    return sum(nats), int(sum(n_tokens))


class _ChunkedLoss(torch.autograd.Function):
    """The loss and its gradients, a few rows at a time.

    The logits of all rows never exist at once.
    """

    @staticmethod
    def forward(
        ctx: Any, loss: LossOfRows, hidden: Tensor, weight: Tensor, bias: Tensor | None, target: Tensor, rows: int
    ) -> Tensor:
        """The sum of the losses; the gradients are kept for ``backward``."""
        hidden, weight = hidden.detach().requires_grad_(), weight.detach().requires_grad_()
        bias = None if bias is None else bias.detach().requires_grad_()
        dtype = torch.promote_types(hidden.dtype, torch.float32)
        total = hidden.new_zeros((), dtype=dtype)
        with torch.enable_grad():
            for h, t in zip(hidden.split(rows), target.split(rows), strict=True):
                part = loss(F.linear(h, weight, bias).to(dtype), t)
                part.backward()
                total += part.detach()
        ctx.save_for_backward(hidden.grad, weight.grad, None if bias is None else bias.grad)
        return total

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        """The gradients that ``forward`` has kept, scaled."""
        scaled = (None if x is None else x * gradient for x in ctx.saved_tensors)
        return None, *scaled, None, None


def chunked_loss(
    loss: LossOfRows,
    hidden: Float[Tensor, "... D"],
    output: nn.Linear,
    target: Int[Tensor, " N"],
    padding: int = SPECIAL.padding,
) -> Float[Tensor, ""]:
    """``loss(output(hidden), target)``, a sum over the rows, in chunks.

    A chunk has about a million logits, or 67 million on a GPU. Whatever a row of padding holds, no loss gets to see it.
    """
    # a compiled model calls it as it is
    nats: Tensor = torch.compiler.disable(_in_chunks)(loss, hidden, output, target, padding)
    return nats


def _in_chunks(loss: LossOfRows, hidden: Tensor, output: nn.Linear, target: Tensor, padding: int) -> Tensor:
    valid = target != padding
    if target.device.type == "cpu":
        hidden, target = hidden[valid], target[valid]
    else:  # where the count of rows would make the host wait
        hidden = hidden.where(valid.view(-1, *[1] * (hidden.dim() - 1)), 0)
    limit = 2**20 if hidden.device.type == "cpu" else 2**26  # logits at a time
    rows = max(1, limit // output.out_features)
    if torch.is_grad_enabled():
        nats: Tensor = _ChunkedLoss.apply(loss, hidden, output.weight, output.bias, target, rows)  # type: ignore[no-untyped-call]
        return nats
    dtype = torch.promote_types(hidden.dtype, torch.float32)
    parts = zip(hidden.split(rows), target.split(rows), strict=True)
    return torch.stack([loss(output(h).to(dtype), t) for h, t in parts]).sum()


def hidden_states(model: nn.Module, batch: Batch) -> Float[Tensor, "B T D"]:
    """The decoder's hidden states under teacher forcing."""
    states: Tensor = model.hidden(batch.target_input, model.encode(batch.source))  # type: ignore[operator]
    return states


def translation_loss(model: nn.Module, batch: Batch, smoothing: float = 0.0) -> Loss:
    """The cross-entropy of the target tokens, in nats.

    Labels are smoothed in training mode only. A translator without a loss of its own has this one as its ``loss``.
    What is padding, the model says.

    Source: Szegedy et al. (2016), section 7; Vaswani et al. (2017), section 5.4.
    """
    smoothing = smoothing if model.training else 0.0
    padding = special_ids(model).padding
    entropy = partial(F.cross_entropy, reduction="sum", ignore_index=padding, label_smoothing=smoothing)
    target = batch.target_output.flatten().long()
    hidden = hidden_states(model, batch).flatten(0, 1)
    nats = chunked_loss(entropy, hidden, model.output, target, padding)  # type: ignore[arg-type]
    return Loss(nats, (target != padding).sum())
