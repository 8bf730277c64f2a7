"""The beam search under its old name and with its old results."""  # bridge

from dataclasses import dataclass
from typing import Any

from transformer_lib.data.tokenizer import PAD
from transformer_lib.decoding.beam_search import SearchConfig as SearchConfig
from transformer_lib.decoding.beam_search import beam_search as tensors


@dataclass(frozen=True)
class Hypothesis:
    """A translation that a search has found."""

    tokens: tuple[int, ...]
    log_probability: float
    score: float


def beam_search(model: Any, source: Any, config: Any = None, **options: Any) -> list[list[Hypothesis]]:
    """The hypotheses of each sentence as lists."""
    found = tensors(model, source, config, **options)
    return [
        [
            Hypothesis(tuple(t for t in row if t != PAD), p, score)
            for row, score, p in zip(*sentence, strict=True)
            if score > float("-inf")
        ]
        for sentence in zip(found.tokens.tolist(), found.scores.tolist(), found.log_probs.tolist(), strict=True)
    ]
