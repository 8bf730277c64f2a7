"""Two other losses for a trainer, R-Drop and minimum risk, beside that of the translators.

Chapter: Training.
"""

__all__ = ["r_drop_loss", "minimum_risk_loss"]

from collections.abc import Callable

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from transformer_lib.data.batching import Batch
from transformer_lib.models.loss import Loss, chunked_loss, hidden_states, translation_loss
from transformer_lib.models.seq2seq import special_ids, wide
from transformer_lib.training.preferences import check_shapes


def r_drop_loss(model: nn.Module, batch: Batch, smoothing: float = 0.1, weight: float = 2.0) -> Loss:
    """Cross-entropy of two passes with dropout, plus ``weight`` times a divergence.

    The passes differ in their dropout. The divergence is the mean of both
    directions.

    Source: Liang et al. (2021), eqs. 1 to 4, divided by 2: their alpha is twice ``weight``.
    """
    padding = special_ids(model).padding
    if not model.training:
        return translation_loss(model, batch)
    twice = Batch(batch.source.repeat(2, 1), batch.target.repeat(2, 1))
    hidden = torch.stack(hidden_states(model, twice).chunk(2), dim=2)  # (B, T, 2, D)

    def loss(logits: Tensor, target: Tensor) -> Tensor:  # (N, 2, V), (N,)
        entropy = F.cross_entropy(
            logits.flatten(0, 1),
            target.repeat_interleave(2),
            ignore_index=padding,
            label_smoothing=smoothing,
            reduction="sum",
        )
        p, q = logits.log_softmax(-1).unbind(1)
        apart = ((p.exp() - q.exp()) * (p - q)).sum(-1)  # KL(p, q) + KL(q, p)
        return entropy / 2 + weight / 2 * (apart * (target != padding)).sum()

    target = batch.target_output.flatten().long()
    rows = hidden.flatten(0, 1)
    nats = chunked_loss(loss, rows, model.output, target, padding)  # type: ignore[arg-type]
    return Loss(nats, (target != padding).sum())


def minimum_risk_loss(
    model: nn.Module,
    batch: Batch,
    sample: Callable[[nn.Module, Tensor], Int[Tensor, "B n T"]],
    cost: Callable[[Tensor, Tensor], Float[Tensor, "B n"]],
    sharpness: float = 0.005,
) -> Loss:
    """The expected cost of sampled translations, times each target's length.

    Args:
        sample: n translations of each source, from BOS to EOS, padded.
        cost: of translations (B, n, T) beside the references (B, T1), such as
            1 minus sentence BLEU.

    Raises:
        ValueError: if one of them returns another shape.

    Source: Shen et al. (2016), eqs. 12 to 14.
    """
    if not model.training:
        return model.loss(batch)  # type: ignore[operator]
    padding = special_ids(model).padding
    samples, B = sample(model, batch.source), len(batch.source)
    if samples.ndim != 3 or len(samples) != B:
        raise ValueError(f"sample returned {tuple(samples.shape)}, expected (B, n, T) with {B=}")
    n = samples.shape[1]
    rows = Batch(batch.source.repeat_interleave(n, dim=0), samples.flatten(0, 1))
    logits = model(rows.source, rows.target_input)
    counted = rows.target_output != padding
    logits = wide(logits).where(counted[..., None], 0).transpose(1, 2)
    nll = F.cross_entropy(logits, rows.target_output.long(), ignore_index=padding, reduction="none")
    log_probs = -nll.sum(dim=1).view(B, n)
    q = (sharpness * log_probs).softmax(dim=1)
    costs = cost(samples, batch.target).to(q)
    check_shapes(costs=costs, samples=q)
    n_tokens = (batch.target_output != padding).sum(dim=1)
    return Loss((q * costs).sum(dim=1) @ n_tokens.to(q.dtype), n_tokens.sum())
