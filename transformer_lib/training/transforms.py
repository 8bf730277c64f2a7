"""What changes training examples on their way into a batch: spelling noise and BPE-dropout.

Chapter: Training.
"""

import os
import random
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

from transformer_lib.data.batching import Batch, Example, SpecialIds, TokenBatches, collate, pair_lengths
from transformer_lib.data.tokenizer import Tokenizer
from transformer_lib.models.seq2seq import special_ids
from transformer_lib.training.distributed import process

__all__ = ["BPEDropout", "SpellingNoise", "Transform", "batch_loader", "misspell"]

Transform = Callable[[Example, random.Random], Example]


def misspell(text: str, rng: random.Random) -> str:
    """The text with one letter swapped, dropped, doubled or replaced inside a word of four or more letters."""
    words = list(re.finditer(r"[^\W\d_]{4,}", text))
    if not words:
        return text
    word = rng.choice(words)
    i = rng.randrange(word.start() + 1, word.end() - 1)  # neither the first letter nor the last
    a, b = text[i], text[i + 1]
    middle = rng.choice([b + a, b, a + a + b, rng.choice("aeinrst") + b])
    return text[:i] + middle + text[i + 2 :]


@dataclass(frozen=True)
class SpellingNoise:
    """Adds typing errors to sources; each argument is the probability of one kind of change."""

    tokenizer: Tokenizer
    typo: float = 0.1
    no_capital: float = 0.1
    no_full_stop: float = 0.1
    all_capitals: float = 0.0

    def __call__(self, example: Example, rng: random.Random) -> Example:
        """The pair with another spelling of its source."""
        source, target = example
        text = clean = self.tokenizer.decode(map(int, source))
        if rng.random() < self.typo:
            text = misspell(text, rng)
        draw = rng.random()
        if draw < self.no_capital:
            text = text.lower() if rng.random() < 0.25 else text[:1].lower() + text[1:]
        elif draw >= 1 - self.all_capitals:
            text = text.upper()
        if rng.random() < self.no_full_stop:
            text = text.removesuffix(".").rstrip() or text
        return example if text == clean else ([*self.tokenizer.encode(text), int(source[-1])], target)


@dataclass(frozen=True)
class BPEDropout:
    """Cuts sources into subwords at random: each merge is left out with some probability.

    Args:
        share: of the examples that are cut so.

    Source: Provilkov et al. (2020), section 3.
    """

    tokenizer: Tokenizer
    dropout: float = 0.1
    share: float = 0.5

    def __call__(self, example: Example, rng: random.Random) -> Example:
        """The pair with its source cut anew."""
        if rng.random() >= self.share:
            return example
        source, target = example
        text = self.tokenizer.decode(map(int, source))
        ids = self.tokenizer.encode(text, dropout=self.dropout, seed=rng.getrandbits(32))
        return [*ids, int(source[-1])], target


@dataclass
class Transformed(Dataset[Example]):
    """Examples after the transforms, which depend on the seed, the epoch and the example alone."""

    data: Sequence[Example]
    transforms: Sequence[Transform]
    seed: int
    longest: tuple[int, int]
    epoch: int = 0

    def __len__(self) -> int:
        return len(self.data)

    def __getitem__(self, index: int) -> Example:
        example = self.data[index]
        if not self.transforms:
            return example
        rng, changed = random.Random(f"{self.seed} {self.epoch} {index}"), example
        for transform in self.transforms:
            changed = transform(changed, rng)
        return changed if all(len(side) <= most for side, most in zip(changed, self.longest, strict=True)) else example


def _apart(worker: int) -> None:
    """Put a worker into a group of its own: who stops a run by its group still needs the workers to save it."""
    if hasattr(os, "setpgrp"):
        os.setpgrp()


def _share(examples: Sequence[Example], special: SpecialIds) -> Batch:
    """The batch of one process; an empty share becomes a pair without target tokens."""
    if examples:
        return collate(examples, special=special)
    end, start = special.eos[:1], [special.bos, special.padding]
    return Batch(torch.tensor([end]), torch.tensor([start]), special=special)


def batch_loader(
    data: Sequence[Example],
    config: Any,
    model: nn.Module,
    transforms: Sequence[Transform],
    device: torch.device,
    shuffle: bool = False,
) -> DataLoader[Any]:
    """Batches of this process, in the order of an epoch or, without shuffling, of their lengths.

    Raises:
        ValueError: if there are no examples, one is too long for a batch or for the model, or the first has not the
            beginning and end of the model.
    """
    lengths, seed = pair_lengths(data), config.seed if shuffle else None
    sampler = TokenBatches(lengths.max(axis=1), config.max_tokens, seed, *process())
    limits = [getattr(model, f"max_{side}_length", None) for side in ("source", "target")]
    for side, limit, column in zip(("source", "target"), limits, (lengths[:, 0], lengths[:, 1] - 1), strict=True):
        if limit is not None and column.max() > limit:
            raise ValueError(
                f"example {column.argmax()} has a {side} of {column.max()} tokens; the model takes {limit}"
            )
    share = partial(_share, special=special_ids(model))
    share([data[0]])  # refuses examples with other special ids now, not at the first batch
    source, target = (config.max_tokens if limit is None else limit for limit in limits)
    longest = min(source, config.max_tokens), min(target + 1, config.max_tokens)  # a target has BOS, too
    examples = Transformed(data, transforms, config.seed, longest)
    workers = config.workers if shuffle else 0
    return DataLoader(
        examples,
        batch_sampler=sampler,
        collate_fn=share,
        num_workers=workers,
        pin_memory=device.type == "cuda",
        worker_init_fn=_apart,
    )
