"""Greedy decoding and sampling: one loop that writes a token for each row, step by step.

Chapter: An encoder-decoder: the sentence in one vector.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from transformer_lib.data.text import one_line
from transformer_lib.data.tokenizer import Tokenizer
from transformer_lib.models.seq2seq import (
    SPECIAL,
    SpecialIds,
    check_ids,
    eval_mode,
    reorder,
    special_ids,
    vocab_size,
    without_autograd,
)


def penalize_repetition(
    logits: Float[Tensor, "N V"], written: Int[Tensor, "N T"], penalty: float
) -> Float[Tensor, "N V"]:
    """Logits with a penalty for tokens already written: positive ones are divided by it, negative ones multiplied.

    Source: Keskar et al. (2019), section 4.1, for positive logits.
    """
    if not penalty > 0:
        raise ValueError(f"repetition_penalty={penalty} must be positive")
    if penalty == 1 or not written.shape[1]:
        return logits
    repeated = logits.gather(1, written.long())
    smaller = torch.where(repeated > 0, repeated / penalty, repeated * penalty)
    return logits.scatter(1, written.long(), smaller)


def rule_out_(
    scores: Float[Tensor, "N V"], written: Int[Tensor, "N T"], min_length: int, special: SpecialIds
) -> Float[Tensor, "N V"]:
    """Set forbidden ids to minus infinity, in place, and the ends too among the first `min_length` tokens."""
    for token in special.forbidden + special.eos * (written.shape[1] < min_length):
        scores[:, token] = -torch.inf
    return scores


def force(
    scores: Float[Tensor, "N V"], token: Int[Tensor, " N"], special: SpecialIds = SPECIAL
) -> Float[Tensor, "N V"]:
    """Scores in which only the given token of each row is possible; with PAD, a row is left unchanged.

    Without BOS, nothing says how likely a prompt is: the scores of its tokens are 0.
    """
    given = (token != special.padding)[:, None]
    others = torch.arange(scores.shape[1], device=scores.device) != token[:, None]
    scores = scores.masked_fill(given & others, -torch.inf)
    return scores if special.bos is not None else scores.masked_fill(given & ~others, 0)


@lru_cache
def block_width(vocab_size: int) -> int:
    """The divisor of a vocabulary's size, from 16 to 512, that is nearest to 128; all of it if there is none."""
    divisors = (width for width in range(16, 513) if vocab_size % width == 0)
    return min(divisors, key=lambda width: abs(width - 128), default=vocab_size)


def largest(
    scores: Float[Tensor, "M K"], log_p: Float[Tensor, "N V"], count: int
) -> tuple[Float[Tensor, "M C"], Int[Tensor, "M C"]]:
    """The largest sums of a row's score and one of its log-probabilities, over K rows together, and their indices.

    They are in the blocks with the largest maxima, which a CPU finds in a fraction of the time that ``topk`` takes.
    """
    M, V = len(scores), log_p.shape[1]
    width = block_width(V)
    blocks, row = log_p.reshape(M, -1, width), torch.arange(M, device=log_p.device)[:, None]
    scores = scores.repeat_interleave(V // width, 1)  # of each block
    block = (blocks.amax(2) + scores).topk(min(count, scores.shape[1]))[1]
    sums = (blocks[row, block] + scores[row, block][:, :, None]).flatten(1)
    top, index = sums.topk(min(count, sums.shape[1]))
    return top, block.gather(1, index // width) * width + index % width


def check_search(
    model: nn.Module,
    source: Int[Tensor, "B S"],
    max_length: int,
    prefix: Int[Tensor, "B P"] | None,
) -> tuple[int, Int[Tensor, "B P"]]:
    """The length limit and the prefix of a search, after checking that they fit.

    Raises:
        ValueError: if the limit is below 1, or the prefix is longer, of another batch, not padded
            on the right, or holds BOS or EOS; if a prompt is empty, and the model has no BOS; on a device, also
            for ids outside the vocabulary, which a model can only refuse on the CPU.
    """
    max_length = min(max_length, getattr(model, "max_target_length", None) or max_length)
    special = special_ids(model)
    if not hasattr(model, "encode"):  # a language model
        if prefix is not None:
            raise ValueError("the prompt of a language model is its prefix: give one of them")
        prefix = source
    prefix = source[:, :0] if prefix is None else prefix
    if prefix.dim() != 2 or len(prefix) != len(source):
        raise ValueError(f"prefix of shape {tuple(prefix.shape)} for {len(source)} sentences")
    if max_length < max(1, prefix.shape[1] + (special.bos is None)):
        raise ValueError(f"{max_length=} for a prefix of {prefix.shape[1]} tokens")
    if source.device.type != "cpu":
        check_ids(source, vocab_size(model, "source"), "source")
    given = prefix.shape[1] > 0  # without a prefix, nothing waits for the device
    valid = prefix != special.padding
    if given and (valid[:, 1:] & ~valid[:, :-1]).any():
        raise ValueError("prefix must be padded on the right")
    if special.bos is None and not (given and valid[:, 0].all()):
        raise ValueError("a prompt is empty, and this model has no BOS to begin with")
    if given and special.bos is not None and ((prefix == special.bos) | special.ends(prefix)).any():
        raise ValueError("prefix holds BOS or EOS: BOS is added, and nothing follows EOS")
    return max_length, prefix


def opening(
    source: Int[Tensor, "B S"], prefix: Int[Tensor, "B P"], longest: int, max_ratio: float | None, special: SpecialIds
) -> tuple[Int[Tensor, " B"], Int[Tensor, "B W"], Int[Tensor, " B"], Int[Tensor, " B"]]:
    """How each row begins: its first token to read, what is written by then, how many are given, the most in all.

    It reads BOS first, and nothing is written; without BOS, it is the prompt's first token.

    Raises:
        ValueError: if the ratio is not positive.
    """
    if max_ratio is not None and not max_ratio > 0:
        raise ValueError(f"max_ratio={max_ratio} must be positive; None: no limit")
    given = (prefix != special.padding).sum(1)
    sizes = (source != special.padding).sum(1).clamp(min=1) * float(max_ratio or longest)
    limits = torch.maximum(sizes.clamp(1, min(longest, 10**9)).long(), given)
    if special.bos is None:
        return source[:, 0], source[:, :1], given, limits
    return source.new_full((len(source),), special.bos), source[:, :0], given, limits


def scored_lengths(
    length: int, limits: Int[Tensor, " M"], given: Int[Tensor, " M"], special: SpecialIds
) -> tuple[int | Tensor, Int[Tensor, " M"]]:
    """How many tokens a score is about, now and at the limit: all, or without BOS those after the prompt."""
    if special.bos is not None:
        return length, limits
    return (length - given).clamp(min=1), limits - given


@torch.no_grad()
def generate(
    model: nn.Module,
    source: Int[Tensor, "B S"],
    choose: Callable[[Tensor], Tensor] = lambda scores: scores.argmax(-1),
    *,
    max_length: int = 100,
    prefix: Int[Tensor, "B P"] | None = None,
    min_length: int = 0,
    repetition_penalty: float = 1.0,
    max_ratio: float | None = None,
) -> Iterator[tuple[Int[Tensor, " N"], Int[Tensor, " N"]]]:
    """Generate token by token: yields the unfinished rows and a token for each.

    Args:
        model: anything with `start` and `step`; the source of a language model is its prompt.
        choose: picks a token for each row; tokens that are ruled out score minus infinity.
        max_length: the limit on the tokens of a row, prefix and EOS included.
        prefix: first tokens of each row, without BOS and EOS, padded on the right.
        min_length: no EOS among the first so many tokens.
        repetition_penalty: above 1, tokens already written become less likely.
        max_ratio: most tokens for each token of the source.

    Raises:
        ValueError: in training mode, for a bad prefix or option, logits with NaN, or if no token is possible.
    """
    if min_length < 0:
        raise ValueError(f"{min_length=} must not be negative")
    max_length, prefix = check_search(model, source, max_length, prefix)
    special, rows = special_ids(model), torch.arange(len(source), device=source.device)
    token, written, given, limits = opening(source, prefix, max_length, max_ratio, special)
    if written.shape[1] and len(rows):
        yield rows, token
    quick = without_autograd(model)
    with quick:  # only the model: what is yielded may be trained on
        state = model.start(source) if len(rows) else None
    for length in range(written.shape[1], max_length if len(rows) else 0):
        if model.training:
            raise ValueError("the model is in training mode: call model.eval() first")
        with quick:
            logits, state = model.step(token, state)
        logits = penalize_repetition(logits, written, repetition_penalty)
        # the logits may still be the model's
        scores = rule_out_(logits.clone(), written, min_length, special)
        if length < prefix.shape[1]:
            scores = force(scores, prefix[rows, length], special)
        possible, token = scores.amax(-1).isfinite(), choose(scores).to(source.dtype)
        ended = special.ends(token) & (length >= given[rows])  # a prompt may hold ends
        goes = ~ended & (length + 1 < limits[rows])
        fate = torch.where(possible, goes.long(), -1).tolist()  # waits for the device, once a step
        if -1 in fate:
            raise ValueError(f"token {length + 1}: logits with NaN, or no token is possible")
        yield rows, token
        written = torch.cat([written, token[:, None]], 1)
        if not any(fate):
            return
        if not all(fate):  # finished sentences leave the batch
            left = torch.tensor([row for row, on in enumerate(fate) if on])
            left = left.to(rows.device, non_blocking=True)
            state = reorder(state, left, left)
            rows, token, written = rows[left], token[left], written[left]


def collect_tokens(model: nn.Module, source: Int[Tensor, "B S"], **options: Any) -> Int[Tensor, "B T"]:
    """All tokens that `generate` yields, padded; each row ends with EOS unless it was cut off."""
    fill = special_ids(model).fill
    with eval_mode(model):
        columns = [
            source.new_full((len(source),), fill).index_copy(0, rows, tokens)
            for rows, tokens in generate(model, source, **options)
        ]
    return torch.stack(columns, 1) if columns else source.new_empty(len(source), 0)


def greedy_decode(model: nn.Module, source: Int[Tensor, "B S"], **options: Any) -> Int[Tensor, "B T"]:
    """Greedy decoding: the most likely token at each step; for the options see `generate`.

    Source: Sutskever et al. (2014), section 3.2, with a beam of one.
    """
    return collect_tokens(model, source, **options)


def translate(
    model: nn.Module,
    sentences: Sequence[str],
    source_tokenizer: Tokenizer,
    target_tokenizer: Tokenizer,
    *,
    max_length: int = 100,
) -> list[str]:
    """Translate sentences greedily, all in one batch."""
    if not sentences:
        return []
    device, special = next(model.parameters()).device, special_ids(model)
    ids = [[*source_tokenizer.encode(one_line(text)), *special.eos[:1]] for text in sentences]
    source = nn.utils.rnn.pad_sequence(list(map(torch.tensor, ids)), True, special.fill)
    tokens = greedy_decode(model, source.to(device), max_length=max_length)
    return [target_tokenizer.decode(row) for row in tokens.tolist()]
