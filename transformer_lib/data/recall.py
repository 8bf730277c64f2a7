"""Associative recall: lists of keys and values, followed by questions."""

__all__ = ["N_KEYS", "N_VALUES", "RecallBatch", "make_recall"]

from dataclasses import dataclass

import torch
from jaxtyping import Int
from torch import Tensor

N_KEYS, N_VALUES = 64, 32


@dataclass(frozen=True)
class RecallBatch:
    """Lists of pairs, each followed by a question for each of its keys, shuffled.

    Args:
        keys: a key for each position, of the pairs first and then of the questions.
        values: a value for each position; for the questions ``N_VALUES``, which
            means no value.
        answers: the right value for each question: the last that its key was given.
    """

    keys: Int[Tensor, "B T"]
    values: Int[Tensor, "B T"]
    answers: Int[Tensor, "B Q"]


def make_recall(
    rows: int,
    n_keys: int,
    *,
    times: int = 1,
    generator: torch.Generator | None = None,
) -> RecallBatch:
    """Lists in which ``n_keys`` different keys are each given ``times`` values.

    Args:
        rows: number B of lists.
        n_keys: how many of the ``N_KEYS`` keys occur in a list, and so the number
            Q of questions.
        times: how often each of them occurs.
        generator: the source of randomness.

    Raises:
        ValueError: if a number is not positive, or ``n_keys`` exceeds ``N_KEYS``.

    Example:
        >>> batch = make_recall(2, 3, times=2)
        >>> batch.keys.shape, batch.answers.shape
        (torch.Size([2, 9]), torch.Size([2, 3]))

    Source: Arora et al. (2024), section 4.
    """
    if min(rows, n_keys, times) < 1:
        raise ValueError(f"{rows=}, {n_keys=} and {times=} must be positive")
    if n_keys > N_KEYS:
        raise ValueError(f"{n_keys=}, but there are only {N_KEYS} keys")

    def shuffled(what: Tensor) -> Tensor:
        order = torch.rand(what.shape, generator=generator).argsort(dim=1)
        return what.gather(1, order)

    chosen = shuffled(torch.arange(N_KEYS).repeat(rows, 1))[:, :n_keys]
    keys = shuffled(chosen.repeat(1, times))
    values = torch.randint(N_VALUES, keys.shape, generator=generator)
    latest = torch.zeros(rows, N_KEYS, dtype=torch.long)
    for t in range(keys.shape[1]):  # in order, so that the last value stays
        latest.scatter_(1, keys[:, t : t + 1], values[:, t : t + 1])
    asked = shuffled(chosen)
    return RecallBatch(
        torch.cat([keys, asked], dim=1),
        torch.cat([values, torch.full_like(asked, N_VALUES)], dim=1),
        latest.gather(1, asked),
    )
