"""Slow and simple searches and models, to judge the fast ones by."""

import random
from itertools import product
from typing import NamedTuple

import torch
from torch import Tensor, nn

from transformer_lib.data.tokenizer import BOS, EOS, PAD
from transformer_lib.decoding.beam_search import Hypotheses, SearchConfig
from transformer_lib.decoding.greedy import penalize_repetition


class Uncached(nn.Module):
    """Base of models that read everything again at each step; their state is a plain dictionary."""

    max_target_length: int | None = None

    def start(self, source: Tensor) -> dict[str, Tensor]:
        return {"source": source, "written": source[:, :0]}

    def step(self, token: Tensor, state: dict[str, Tensor]) -> tuple[Tensor, dict[str, Tensor]]:
        written = torch.cat([state["written"], token[:, None]], 1)
        return self(state["source"], written)[:, -1], {**state, "written": written}


class NoCache(Uncached):
    """Another model without its cache."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model, self.config = model, model.config
        self.max_target_length = model.max_target_length
        if hasattr(model, "encode"):
            self.encode = model.encode

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        return self.model(source, target) if hasattr(self, "encode") else self.model(target)


class Oracle(Uncached):
    """Any distribution at all: the scores after each prefix are drawn from a seed made of source and prefix."""

    def __init__(self, seed: int = 0, words: int = 3) -> None:
        super().__init__()
        self.seed, self.words = seed, words

    def encode(self, source: Tensor) -> Tensor:
        return source

    def after(self, source: tuple[int, ...], prefix: tuple[int, ...]) -> list[float]:
        rng = random.Random(f"{self.seed} {source} {prefix}")
        return [rng.gauss(0, 2) for _ in range(3 + self.words)]

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        rows = zip(source.tolist(), target[:, 1:].tolist(), strict=True)
        return torch.tensor(
            [[self.after(tuple(t for t in s if t), tuple(row[:n])) for n in range(len(row) + 1)] for s, row in rows],
            dtype=torch.float64,
        )


class Hypothesis(NamedTuple):
    tokens: tuple[int, ...]
    score: float
    log_prob: float


def as_lists(hypotheses: Hypotheses) -> list[list[Hypothesis]]:
    """The hypotheses of each sentence, without padding."""
    rows = zip(*(part.tolist() for part in hypotheses), strict=True)
    return [
        [Hypothesis(tuple(t for t in h[0] if t), *h[1:]) for h in zip(*row, strict=True) if h[1] > -torch.inf]
        for row in rows
    ]


def as_tokens(written: Tensor) -> list[tuple[int, ...]]:
    return [tuple(token for token in row if token != PAD) for row in written.tolist()]


@torch.no_grad()
def log_probability(model: nn.Module, row: Tensor, tokens: tuple[int, ...], penalty: float = 1.0) -> float:
    """The log-probability of a translation, by teacher forcing."""
    target = row.new_tensor([[BOS, *tokens]])
    logits, total = model(row[row != PAD][None], target[:, :-1]), 0.0
    for t, token in enumerate(tokens):
        total += penalize_repetition(logits[:, t], target[:, 1 : t + 1], penalty).log_softmax(-1)[0, token].item()
    return total


def length_limit(row: Tensor, config: SearchConfig) -> int:
    """The most tokens that the translation of a source may have."""
    ratio = config.max_ratio or config.max_length
    return max(1, min(config.max_length, int(ratio * int((row != PAD).sum()))))


def exhaustive_search(
    model: nn.Module, source: Tensor, config: SearchConfig, prefix: Tensor | None = None
) -> list[list[Hypothesis]]:
    """The best of all translations of at most `max_length` tokens, for tiny vocabularies."""
    results = []
    for number, row in enumerate(source):
        longest = max(length_limit(row, config), 0 if prefix is None else int((prefix[number] != PAD).sum()))
        words = range(EOS + 1, model(row[None], row.new_tensor([[BOS]])).shape[-1])
        every = [(*body, EOS) for n in range(config.min_length, longest) for body in product(words, repeat=n)]
        every += product(words, repeat=longest)
        if prefix is not None:
            begin = [token for token in prefix[number].tolist() if token != PAD]
            every = [tokens for tokens in every if list(tokens[: len(begin)]) == begin]
        log_probs = [log_probability(model, row, tokens, config.repetition_penalty) for tokens in every]
        ranked = [Hypothesis(t, p / config.normalizer(len(t)), p) for t, p in zip(every, log_probs, strict=True)]
        results.append(sorted(ranked, key=lambda h: -h.score)[: config.n_best])
    return results


def plain_beam_search(model: nn.Module, row: Tensor, config: SearchConfig) -> list[Hypothesis]:
    """Beam search in lists, for one sentence, that never stops before the longest translation."""
    live: list[tuple[tuple[int, ...], float]] = [((), 0.0)]
    finished: list[Hypothesis] = []
    longest = length_limit(row, config)
    for length in range(1, longest + 1):
        candidates = []
        for tokens, total in live:
            logits = model(row[None], row.new_tensor([[BOS, *tokens]]))[:, -1]
            written = row.new_tensor([tokens])
            log_p = penalize_repetition(logits, written, config.repetition_penalty).log_softmax(-1)[0].tolist()
            first = EOS + (length <= config.min_length)
            candidates += [((*tokens, token), total + log_p[token]) for token in range(first, len(log_p))]
        candidates.sort(key=lambda candidate: -candidate[1])
        for tokens, total in candidates[: config.beam_size]:
            if tokens[-1] == EOS or length == longest:
                finished.append(Hypothesis(tokens, total / config.normalizer(length), total))
        live = [candidate for candidate in candidates if candidate[0][-1] != EOS][: config.beam_size]
    return sorted(finished, key=lambda h: -h.score)[: config.n_best]
