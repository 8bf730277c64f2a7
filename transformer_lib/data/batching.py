"""Padded batches of sentence pairs, cut by a budget of tokens and shared by processes.

Chapter: Translation as prediction: one token at a time.
"""

import random
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Int
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import Sampler

from transformer_lib.data.text import one_line
from transformer_lib.data.tokenizer import BOS, EOS, PAD, UNK, Tokenizer
from transformer_lib.settings import Count, settings

__all__ = [
    "SPECIAL", "Batch", "Example", "Pair", "SpecialIds", "TokenBatches", "batches", "collate", "encode_pairs",
    "pair_lengths", "special_ids", "unwrapped",
]  # fmt: skip


@dataclass(frozen=True)
class Pair:
    """A sentence and its translation, and which words translate each other.

    Args:
        source: the sentence, its words separated by spaces.
        target: its translation.
        alignment: (source word, target word) for words that translate each other, counted from 0.
        referents: (the word "it", the word it stands for) in the source.

    Raises:
        TypeError: a sentence is not text.
        ValueError: the alignment or the referents name a word outside the sentences.

    Example:
        >>> Pair("a small dog", "ein kleiner Hund", ((0, 0), (1, 1), (2, 2))).target
        'ein kleiner Hund'
    """

    source: str
    target: str
    alignment: tuple[tuple[int, int], ...] = ()
    referents: tuple[tuple[int, int], ...] = ()

    def __post_init__(self) -> None:
        for name, text in (("source", self.source), ("target", self.target)):
            if not isinstance(text, str):
                raise TypeError(f"{name} is {text!r}, not a string")
        n, m = len(self.source.split()), len(self.target.split())
        links = [("alignment", *link, m) for link in self.alignment]
        links += [("referents", *link, n) for link in self.referents]
        for name, i, j, last in links:
            if not (0 <= i < n and 0 <= j < last):
                raise ValueError(f"{name} holds {(i, j)}, but the sentences have {n} and {m} words")


@settings
class SpecialIds:
    """The ids with a meaning of their own; the defaults are those of the library's tokenizers."""

    pad: Count | None = PAD  # fills up rows; None: there is none
    bos: Count | None = BOS  # read before anything is written; None: a prompt needs no beginning
    eos: tuple[Count, ...] = (EOS,)  # each of them ends a row
    unk: Count | None = UNK
    forbidden: tuple[Count, ...] = (PAD, BOS)  # never written

    @property
    def padding(self) -> int:
        """The id that marks padding; -1 if none does, because a model may fill up rows with its end."""
        return -1 if self.pad is None or self.pad in self.eos else self.pad

    @property
    def fill(self) -> int:
        """What follows the end of a row."""
        return self.pad if self.pad is not None else (*self.eos, PAD)[0]

    def written(self, tokens: Int[Tensor, "*N T"]) -> Bool[Tensor, "*N T"]:
        """False at padding; where an end fills up rows, at what follows the first one."""
        if self.padding >= 0:
            return tokens != self.padding
        ends = self.ends(tokens).int()
        return ends.cumsum(-1) == ends

    def ends(self, tokens: Int[Tensor, "*N"]) -> Bool[Tensor, "*N"]:
        """True at each end."""
        found = torch.zeros_like(tokens, dtype=torch.bool)
        for end in self.eos:
            found = found | (tokens == end)
        return found


SPECIAL = SpecialIds()


def unwrapped(model: nn.Module) -> nn.Module:
    """The model inside what ``torch.compile`` or a parallel wrapper made of it."""
    while isinstance(model, nn.parallel.DistributedDataParallel | nn.DataParallel) or hasattr(model, "_orig_mod"):
        inner: Any = getattr(model, "_orig_mod", None) or model.module
        model = inner
    return model


def special_ids(model: nn.Module) -> SpecialIds:
    """The special ids in a model's configuration; the library's own if it has none."""
    return getattr(getattr(unwrapped(model), "config", None), "special", SPECIAL)


Example = tuple[Sequence[int] | np.ndarray, Sequence[int] | np.ndarray]
"""A source that ends with EOS, and a target between BOS and EOS."""


def encode_pairs(
    pairs: Iterable[Pair | tuple[str, str]],
    source_tokenizer: Tokenizer,
    target_tokenizer: Tokenizer,
    *,
    special: SpecialIds = SPECIAL,
) -> list[Example]:
    """The ids of sentence pairs, with their special tokens.

    Raises:
        ValueError: for something that is no pair, or an empty sentence.

    Example:
        >>> words = Tokenizer.train(["a dog", "ein Hund"], level="word")
        >>> encode_pairs([("a dog", "ein Hund")], words, words)
        [([5, 6, 2], [1, 7, 4, 2])]
    """
    return encode_from(0, pairs, source_tokenizer, target_tokenizer, special=special)


def encode_from(
    first: int,
    pairs: Iterable[Pair | tuple[str, str]],
    source_tokenizer: Tokenizer,
    target_tokenizer: Tokenizer,
    *,
    special: SpecialIds = SPECIAL,
) -> list[Example]:
    """``encode_pairs`` of a part of the pairs, which errors count from ``first``."""
    sides: tuple[list[str], list[str]] = ([], [])
    for i, pair in enumerate(pairs, start=first):
        both: Any = (pair.source, pair.target) if isinstance(pair, Pair) else pair
        if isinstance(both, str | Mapping | Set) or not hasattr(both, "__len__") or len(both) != 2:
            raise ValueError(f"pairs[{i}] is {pair!r}, expected (source, target)")
        for name, side, text in zip(("source", "target"), sides, both, strict=True):
            if not isinstance(text, str) or not one_line(text):
                raise ValueError(f"the {name} of pairs[{i}] is {text!r}: expected a sentence")
            side.append(one_line(text))
    encoded = source_tokenizer.encode_batch(sides[0]), target_tokenizer.encode_batch(sides[1])
    start, end = () if special.bos is None else (special.bos,), special.eos[:1]
    return [([*x, *end], [*start, *y, *end]) for x, y in zip(*encoded, strict=True)]


@dataclass(frozen=True, eq=False)
class Batch:
    """A batch of sentence pairs in two tensors, padded on the right.

    Example:
        >>> batch = collate([([5, 6, 2], [1, 7, 2]), ([5, 2], [1, 8, 9, 2])])
        >>> batch.source.tolist(), batch.target_input.tolist()
        ([[5, 6, 2], [5, 2, 0]], [[1, 7, 2], [1, 8, 9]])
    """

    source: Int[Tensor, "B S"]
    target: Int[Tensor, "B T1"]
    indices: tuple[int, ...] = ()
    """Positions of the rows in the list that the batch was made from."""
    special: SpecialIds = SPECIAL

    def __len__(self) -> int:
        return len(self.source)

    @property
    def target_input(self) -> Int[Tensor, "B T"]:
        """The decoder's input: the target without its last column."""
        return self.target[:, :-1]

    @property
    def target_output(self) -> Int[Tensor, "B T"]:
        """The tokens to predict: the target without BOS."""
        return self.target[:, 1:]

    @property
    def n_tokens(self) -> int:
        """The number of tokens to predict."""
        return int((self.target_output != self.special.padding).sum())

    def to(self, device: torch.device | str, non_blocking: bool = False) -> "Batch":
        """The same batch on another device."""
        source, target = (side.to(device, non_blocking=non_blocking) for side in (self.source, self.target))
        return replace(self, source=source, target=target)

    def pin_memory(self) -> "Batch":
        """The same batch in page-locked memory, which a GPU copies from while it computes."""
        return replace(self, source=self.source.pin_memory(), target=self.target.pin_memory())


def collate(
    examples: Sequence[Example], *, indices: Sequence[int] | None = None, special: SpecialIds = SPECIAL
) -> Batch:
    """A batch of examples, padded on the right; fits ``collate_fn`` of a ``DataLoader``."""
    if not len(examples):
        raise ValueError("examples is empty: a batch needs at least one example")
    for i, (source, target) in enumerate(examples):
        closed = len(source) > 0 and len(target) > 1
        closed = closed and {int(source[-1]), int(target[-1])} <= {*special.eos}
        if not closed or target[0] != special.bos or special.padding < 0:
            what = "no source with EOS and target between BOS and EOS, to be padded"
            raise ValueError(f"examples[{i}] is {what}; the special ids are {special}")
    sides = zip(*examples, strict=True)
    rows = ([torch.as_tensor(row).long() for row in side] for side in sides)
    sources, targets = (pad_sequence(side, True, special.padding) for side in rows)
    return Batch(sources, targets, tuple(range(len(examples)) if indices is None else indices), special)


def pair_lengths(examples: Sequence[Example]) -> Int[np.ndarray, "N 2"]:
    """The number of source and of target tokens of every example."""
    known: Any = getattr(examples, "lengths", None)  # of a corpus on disk
    rows = [(len(source), len(target)) for source, target in examples] if known is None else known
    return np.asarray(rows, dtype=np.int64).reshape(-1, 2)


class TokenBatches(Sampler[list[int]]):
    """Batches of example indices: similar lengths together, at most ``max_tokens`` per batch, padding included.

    Every example is in exactly one batch. Of several processes, each takes every world-th example of every batch.

    Args:
        lengths: of the examples, on their longer side.
        seed: None for short ones first.

    Source: Vaswani et al. (2017), section 5.1.
    """

    def __init__(
        self,
        lengths: Sequence[int] | np.ndarray,
        max_tokens: int,
        seed: int | None = None,
        rank: int = 0,
        world: int = 1,
    ) -> None:
        self.lengths = np.asarray(lengths)
        if not len(self.lengths):
            raise ValueError("there are no examples to make batches of")
        longest = self.lengths.argmax()
        if self.lengths[longest] > max_tokens:
            raise ValueError(f"{max_tokens=}: example {longest} has {self.lengths[longest]} tokens")
        self.seed, self.rank, self.world = seed, rank, world
        self.epoch = self.start = 0  # start: the number of batches to skip
        self.cuts, first = [], 0
        for i, length in enumerate(np.sort(self.lengths).tolist()):
            if length * (i - first + 1) > max_tokens:
                self.cuts.append(i)
                first = i

    def __len__(self) -> int:
        return len(self.cuts) + 1

    def __iter__(self) -> Iterator[list[int]]:
        rng, order = random.Random(f"{self.seed} {self.epoch}"), np.arange(len(self.lengths))
        if self.seed is not None:
            shuffled = order.tolist()
            rng.shuffle(shuffled)
            order = np.array(shuffled)
        order = order[np.argsort(self.lengths[order], kind="stable")]  # equal lengths stay shuffled
        groups = np.split(order, self.cuts)
        if self.seed is not None:
            rng.shuffle(groups)
        return (group[self.rank :: self.world].tolist() for group in groups[self.start :])


def batches(
    examples: Sequence[Example],
    max_tokens: int,
    seed: int | None = None,
    epoch: int = 0,
    *,
    special: SpecialIds = SPECIAL,
) -> Iterator[Batch]:
    """Batches of examples of similar length, with a limit on their tokens; see ``TokenBatches``.

    Args:
        seed: of the shuffling, together with the epoch; None for short ones first, for evaluation.

    Example:
        >>> examples = [([5, 2], [1, 7, 2]), ([5, 6, 6, 2], [1, 8, 2]), ([6, 2], [1, 2])]
        >>> [batch.indices for batch in batches(examples, max_tokens=6)]
        [(2, 0), (1,)]

    Source: Vaswani et al. (2017), section 5.1.
    """
    sampler = TokenBatches(pair_lengths(examples).max(axis=1), max_tokens, seed)
    sampler.epoch = epoch
    return (collate([examples[i] for i in rows], indices=rows, special=special) for rows in sampler)
