"""Byte-pair encoding at speed, by the ``tokenizers`` library, and BPE-dropout.

Chapter: Subword tokenization: byte-pair encoding (BPE).
"""

import json
import random
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any

from transformer_lib.data.text import visible

__all__ = ["compiled", "join_at_random", "learn_merges", "split_at_random"]

Pair = tuple[str, str]


def learn_merges(
    texts: Sequence[str], n_pieces: int, letters: Iterable[str]
) -> tuple[tuple[str, ...], tuple[Pair, ...]]:
    """The pieces, at most ``n_pieces``, and the merges of byte-level BPE."""
    import tokenizers

    # a word of thousands of letters teaches nothing and takes quadratic time
    texts = [" " + text for text in map(visible, texts) if max(map(len, text.split()), default=0) < 1000]
    most = 256 + sum(len(text.encode()) for text in texts)  # a merge needs two bytes
    model = tokenizers.Tokenizer(tokenizers.models.BPE())
    model.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=min(n_pieces, most), min_frequency=2, initial_alphabet=list(letters), show_progress=False
    )
    model.train_from_iterator(texts, trainer)
    learned = json.loads(model.to_str())["model"]
    pieces = sorted(learned["vocab"], key=learned["vocab"].__getitem__)
    return tuple(pieces), tuple((left, right) for left, right in learned["merges"])


def compiled(ids: dict[str, int], merges: Sequence[Pair]) -> Any:
    """An encoder that applies merges in compiled code."""
    import tokenizers

    model = tokenizers.Tokenizer(tokenizers.models.BPE(ids, list(merges)))
    model.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    return model


def split_at_random(
    lines: Iterable[str], model: Any, rank: dict[Pair, int], dropout: float, seed: int
) -> list[list[str]]:
    """The pieces of each line with BPE-dropout: each possible merge is skipped with this probability."""
    rng, words = random.Random(seed), model.pre_tokenizer.pre_tokenize_str
    return [
        [piece for word, _ in words(line) for piece in join_at_random([*word], rank, dropout, rng)] for line in lines
    ]


def join_at_random(pieces: list[str], rank: dict[Pair, int], dropout: float, rng: random.Random) -> list[str]:
    """Apply the merges to a word; each is skipped with probability ``dropout``.

    Source: Provilkov et al. (2020), algorithm 1.
    """
    while True:
        pairs = enumerate(pairwise(pieces))
        joins = [(rank[pair], i) for i, pair in pairs if pair in rank and rng.random() >= dropout]
        if not joins:
            return pieces
        _, i = min(joins)
        pieces = [*pieces[:i], pieces[i] + pieces[i + 1], *pieces[i + 2 :]]
