"""Beam search over a batch of sentences, on tensors.

Chapter: Beam search and its curse.
"""

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Annotated, Any, Literal, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from pydantic import Field
from torch import Tensor, nn
from torch.nn import functional as F

from transformer_lib.decoding.greedy import (
    begin,
    check_lengths,
    check_search,
    close_gaps,
    force,
    largest,
    penalize_repetition,
    rule_out_,
)
from transformer_lib.models.seq2seq import SPECIAL, SpecialIds, eval_mode, reorder, special_ids, without_autograd
from transformer_lib.settings import Count, Positive, Size, settings

Exponent = Annotated[float, Field(ge=-10, le=10, allow_inf_nan=False)]


@settings
class SearchConfig:
    """Options of a beam search. Source: Wu et al. (2016), section 7."""

    beam_size: Size = 5  # hypotheses that go on at each step; 1 is greedy search
    length_penalty: Exponent = 0.6  # exponent: the larger, the longer the translations
    max_length: Size = 100  # the limit on the tokens, EOS included
    n_best: Size = 1  # hypotheses to return for each sentence
    min_length: Count = 0  # EOS is not allowed among the first min_length tokens
    repetition_penalty: Positive = 1.0  # above 1: repeated tokens are less likely
    normalization: Literal["wu", "mean"] = "wu"  # base of the length penalty: (5 + length) / 6, or the length
    max_ratio: Positive | None = None  # the most target tokens per source token
    lookahead: Size | None = 8  # tokens that the stopping rule looks ahead

    def __post_init__(self) -> None:
        if self.n_best > self.beam_size:
            raise ValueError(f"n_best={self.n_best} is more than beam_size={self.beam_size}")
        if self.min_length > self.max_length:
            raise ValueError(f"min_length={self.min_length} is more than max_length={self.max_length}")

    def normalizer(self, length: int | Tensor) -> Any:
        """The divisor of a log-probability. Source: Wu et al. (2016), eq. 14."""
        base = (5 + length) / 6 if self.normalization == "wu" else length
        return base**self.length_penalty


class Hypotheses(NamedTuple):
    """Hypotheses of each sentence, best first and padded.

    A score of minus infinity means that there is no hypothesis.
    """

    tokens: Int[Tensor, "B n T"]
    scores: Float[Tensor, "B n"]
    log_probs: Float[Tensor, "B n"]

    def best(self, n: int) -> tuple["Hypotheses", Int[Tensor, "B n"]]:
        """The n best of each sentence, and their indices."""
        scores, index = self.scores.sort(descending=True, stable=True)
        scores, index = scores[:, :n], index[:, :n]
        rows = index[:, :, None].expand(-1, -1, self.tokens.shape[2])
        log_probs = self.log_probs.gather(1, index)
        return Hypotheses(self.tokens.gather(1, rows), scores, log_probs), index

    def only(self, mask: Bool[Tensor, "B n"], first: int | None = None) -> "Hypotheses":
        """The first ones; those outside the mask count as missing."""
        scores = self.scores.masked_fill(~mask, -math.inf)
        tokens, log_probs = self.tokens[:, :first], self.log_probs[:, :first]
        return Hypotheses(tokens, scores[:, :first], log_probs)

    def checked(self) -> "Hypotheses":
        """The same, if every sentence has a translation.

        Raises:
            ValueError: if the logits held NaN, or no translation is possible.
        """
        good = self.scores[:, 0].isfinite().tolist()  # waits for the device
        if not all(good):
            bad = good.index(False)
            nan = "the logits hold NaN, or " * bool(self.scores[bad, 0].isnan())
            raise ValueError(f"sentence {bad}: {nan}no translation is possible")
        return self


def log_probabilities(
    logits: Float[Tensor, "N V"],
    written: Int[Tensor, "N T"],
    short: Bool[Tensor, " N"] | None,
    forced: Int[Tensor, " N"] | None,
    config: SearchConfig,
    special: SpecialIds = SPECIAL,
) -> Float[Tensor, "N V"]:
    """Log-probabilities of the next token, adjusted as the config says.

    Tokens are ruled out or forced after the softmax. Computed in float32 or better.
    """
    if config.repetition_penalty != 1:
        logits = penalize_repetition(logits, written, config.repetition_penalty, special.padding)
    precision = torch.promote_types(logits.dtype, torch.float32)
    log_p = logits.log_softmax(-1, precision)
    log_p = rule_out_(log_p, short, special)
    return log_p if forced is None else force(log_p, forced, special.padding)


def extend(live: Hypotheses, log_p: Float[Tensor, "N V"], count: int) -> tuple[Hypotheses, Int[Tensor, "M C"]]:
    """The best continuations of each sentence, and the rows that they continue."""
    (M, width), V = live.scores.shape, log_p.shape[1]
    scores, index = largest(live.scores, log_p, count)
    rows = width * torch.arange(M, device=index.device)[:, None] + index // V
    token = (index % V)[:, :, None].to(live.tokens.dtype)
    tokens = torch.cat([live.tokens.flatten(0, 1)[rows], token], 2)
    return Hypotheses(tokens, scores, scores), rows


def finish(
    best: Hypotheses,
    left: Int[Tensor, " M"],
    ended: Hypotheses,
    divisor: float,
    fill: int = SPECIAL.fill,
) -> tuple[Hypotheses, Hypotheses]:
    """The best translations, updated with those that have just ended.

    For all sentences, and for those with the indices ``left``.
    """
    tokens, scores, log_probs = best
    tokens = F.pad(tokens, (0, 1), value=fill)
    pool = Hypotheses(
        torch.cat([tokens[left], ended.tokens], 1),
        torch.cat([scores[left], ended.scores / divisor], 1),
        torch.cat([log_probs[left], ended.log_probs], 1),
    )
    top, _ = pool.best(scores.shape[1])
    tokens = tokens.index_copy(0, left, top.tokens)
    scores = scores.to(top.scores).index_copy(0, left, top.scores)
    log_probs = log_probs.to(top.scores).index_copy(0, left, top.log_probs)
    return Hypotheses(tokens, scores, log_probs), top


def unfinished(
    top: Hypotheses,
    live: Hypotheses,
    length: int,
    limits: Int[Tensor, " M"],
    config: SearchConfig,
) -> Int[Tensor, " G"]:
    """The sentences whose live hypotheses may still reach a better score.

    Within ``lookahead`` more tokens, even if each of them had probability 1.
    """
    if config.lookahead is not None:
        limits = limits.clamp(max=length + config.lookahead)
    largest = config.normalizer(limits).clamp(min=config.normalizer(length + 1))
    going = top.scores[:, -1] < live.scores[:, 0] / largest
    if config.beam_size == 1:  # greedy search: the first to end is the result
        going &= top.scores[:, 0].isneginf()
    return going.nonzero()[:, 0]  # waits for the device, once a step


class Step(NamedTuple):
    """One step of a beam search, as `on_step` gets it.

    There are M sentences with C candidates each.
    """

    sentences: Int[Tensor, " M"]
    candidates: Hypotheses
    ended: Bool[Tensor, "M C"]
    live: Bool[Tensor, "M C"]
    best: Hypotheses  # of all sentences, so far


def beam_search(
    model: nn.Module,
    source: Int[Tensor, "B S"],
    config: SearchConfig | None = None,
    *,
    prefix: Int[Tensor, "B P"] | None = None,
    on_step: Callable[[Step], object] | None = None,
    **options: Any,
) -> Hypotheses:
    """Beam search over a batch of sentences.

    A sentence leaves the batch when nothing can improve within `lookahead` tokens.

    Args:
        model: anything with `start` and `step`; the source of a language model is
            its prompt.
        prefix: first tokens of each row, without BOS and EOS, padded on the right.
        options: fields of the config that differ, such as `beam_size=8`.

    Source: Graves (2012), section 2; Wu et al. (2016), section 7.
    """
    config = replace(config or SearchConfig(), **options)
    prompt, prefix, limits = check_search(model, source, config.max_length, prefix, config.max_ratio)
    B, K, n, least = len(source), config.beam_size, config.n_best, config.min_length
    special = special_ids(model)
    fill = special.fill
    given, left = (prompt != special.padding).sum(1), torch.arange(B, device=source.device)
    check_lengths(least, limits + given)
    live = Hypotheses(prompt[:, None], *torch.zeros(2, B, 1, device=left.device))
    none = torch.full((2, B, n), -math.inf, device=left.device)
    best = Hypotheses(prompt[:, None].expand(-1, n, -1), *none)
    quick = without_autograd(model)
    with torch.no_grad(), eval_mode(model):
        with quick:
            logits, state = begin(model, source, special) if B else (torch.empty(0), None)
        for length in range(1, config.max_length + 1 if B else 0):
            written, limit = live.tokens.flatten(0, 1), limits[left]
            each = left.repeat_interleave(live.scores.shape[1])  # of every hypothesis
            short = given[each] + length <= least if length <= least else None
            forced = prefix[each, length - 1] if length <= prefix.shape[1] else None
            log_p = log_probabilities(logits, written, short, forced, config, special)
            possible = ~logits.amax(-1).isneginf().view_as(live.scores)  # the softmax of nothing is NaN
            candidates, rows = extend(live.only(possible), log_p, (1 + len(special.eos)) * K)
            # NaN ends a hypothesis, and `checked` refuses it
            ends = special.ends(candidates.tokens[:, :, -1]) | candidates.scores.isnan()
            ends |= (length >= limit)[:, None]
            ended, divisor = candidates.only(ends, K), config.normalizer(length)
            best, top = finish(best, left, ended, divisor, fill)
            live, rank = candidates.only(~ends).best(K)
            if on_step is not None:
                on = torch.zeros_like(ends).scatter(1, rank, live.scores.isfinite())
                on_step(Step(left, candidates, ends, on, best))
            going = unfinished(top, live, length, limit, config)
            if not len(going):
                break
            kept = going if len(going) < len(left) else None
            if K > 1 or kept is not None:
                state = reorder(state, rows.gather(1, rank)[going].flatten(), kept)
            tokens, scores, log_probs = live
            live, left = Hypotheses(tokens[going], scores[going], log_probs[going]), left[going]
            with quick:
                logits, state = model.step(live.tokens[:, :, -1].flatten(), state)  # type: ignore[operator]
    if prompt.shape[1]:
        best = best._replace(tokens=close_gaps(best.tokens, prompt.shape[1], special.padding))
    return best.checked()
