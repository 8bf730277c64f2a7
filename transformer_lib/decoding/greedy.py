"""Greedy decoding and sampling: one loop that writes a token for each row, step by step.

Chapter: An encoder-decoder: the sentence in one vector.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from transformer_lib.data.text import check_texts, one_line
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
    logits: Float[Tensor, "N V"], written: Int[Tensor, "N T"], penalty: float, padding: int = -1
) -> Float[Tensor, "N V"]:
    """Logits with a penalty for tokens already written: positive ones are divided by it, negative ones multiplied.

    Padding, which a row has from its company, is no token.

    Source: Keskar et al. (2019), section 4.1, for positive logits.
    """
    if not 0 < penalty < math.inf:
        raise ValueError(f"repetition_penalty={penalty} must be positive and finite")
    if penalty == 1 or not written.shape[1]:
        return logits
    repeated = logits.gather(1, written.long())
    smaller = torch.where(repeated > 0, repeated / penalty, repeated * penalty)
    smaller = smaller.where(written != padding, repeated)
    return logits.scatter(1, written.long(), smaller)


def rule_out_(
    scores: Float[Tensor, "N V"], short: Bool[Tensor, " N"] | None, special: SpecialIds
) -> Float[Tensor, "N V"]:
    """Set forbidden ids to minus infinity, in place, and in rows that are too ``short`` to end, the ends."""
    for token in special.forbidden:
        scores[:, token] = -torch.inf
    if short is not None:
        for token in special.eos:
            scores[:, token].masked_fill_(short, -torch.inf)
    return scores


def force(
    scores: Float[Tensor, "N V"], token: Int[Tensor, " N"], padding: int = SPECIAL.padding
) -> Float[Tensor, "N V"]:
    """Scores in which only the given token of each row is possible; with padding, a row is left unchanged."""
    others = torch.arange(scores.shape[1], device=scores.device) != token[:, None]
    return scores.masked_fill((token != padding)[:, None] & others, -torch.inf)


@lru_cache
def block_width(vocab_size: int) -> int:
    """The divisor of a vocabulary's size, from 16 to 512, that is nearest to 128; all of it if there is none."""
    for distance in range(512 - 128 + 1):
        for width in (128 - distance, 128 + distance):
            if width >= 16 and vocab_size % width == 0:
                return width
    return vocab_size


def largest(
    scores: Float[Tensor, "M K"], log_p: Float[Tensor, "N V"], count: int
) -> tuple[Float[Tensor, "M C"], Int[Tensor, "M C"]]:
    """The largest sums of a row's score and one of its log-probabilities, over K rows together, and their indices.

    They are in the blocks with the largest maxima, which a CPU finds in a fraction of the time that ``topk`` takes.
    Where a score is minus infinity, so are all its sums.
    """
    M, V = len(scores), log_p.shape[1]
    width = block_width(V)
    blocks, row = log_p.reshape(M, -1, width), torch.arange(M, device=log_p.device)[:, None]
    scores = scores.repeat_interleave(V // width, 1)  # of each block
    missing = scores.isneginf()
    block = (blocks.amax(2) + scores).masked_fill(missing, -torch.inf).topk(min(count, scores.shape[1]))[1]
    sums = blocks[row, block] + scores[row, block][:, :, None]
    sums = sums.masked_fill(missing[row, block][:, :, None], -torch.inf).flatten(1)
    top, index = sums.topk(min(count, sums.shape[1]))
    return top, block.gather(1, index // width) * width + index % width


def check_search(
    model: nn.Module,
    source: Int[Tensor, "B S"],
    max_length: int,
    prefix: Int[Tensor, "B P"] | None,
    max_ratio: float | None,
) -> tuple[Int[Tensor, "B Q"], Int[Tensor, "B F"], Int[Tensor, " B"]]:
    """What a search begins with, after checking that it fits: prompts, prefixes, and the most tokens to write.

    The source of a language model is its prompt, which is read and not written. The prefix of a translation is written.

    Raises:
        ValueError: if the limit is below 1, or a prefix or prompt is longer, of another batch, not padded
            on the right, or holds BOS or EOS; if a prompt is empty, and the model has no BOS; for a ratio that is not
            positive; on a device, also for ids outside the vocabulary, which a model can only refuse on the CPU.
    """
    special, none = special_ids(model), source[:, :0]
    padding = special.padding
    longest = min(max_length, getattr(model, "max_target_length", None) or max_length, 10**9)
    text = not hasattr(model, "encode")  # a language model
    if text and prefix is not None:
        raise ValueError("the prompt of a language model is its prefix: give one of them")
    given, name = (source, "prompt") if text else (none if prefix is None else prefix, "prefix")
    if given.dim() != 2 or len(given) != len(source):
        raise ValueError(f"{name} of shape {tuple(given.shape)} for {len(source)} sentences")
    if longest < max(1, given.shape[1] + text):
        raise ValueError(f"max_length={longest} for a {name} of {given.shape[1]} tokens")
    if max_ratio is not None and not max_ratio > 0:
        raise ValueError(f"max_ratio={max_ratio} must be positive; None: no limit")
    if source.device.type != "cpu":
        check_ids(source, vocab_size(model, "source"), "source")
    valid, ids = given != padding, given.shape[1] > 0  # without any, nothing waits for the device
    if ids and (valid[:, 1:] & ~valid[:, :-1]).any():
        raise ValueError(f"{name} must be padded on the right")
    if text and special.bos is None and not (ids and valid[:, 0].all()):
        raise ValueError("a prompt is empty, and this model has no BOS to begin with")
    if ids and special.bos is not None and ((given == special.bos) | special.ends(given)).any():
        raise ValueError(f"{name} holds BOS or EOS: BOS is added, and nothing follows EOS")
    sizes = (source != padding).sum(1).clamp(min=1) * float(max_ratio or longest)
    limits = torch.maximum(sizes.clamp(1, longest).long(), valid.sum(1))
    return (given, none, (limits - valid.sum(1)).clamp(min=1)) if text else (none, given, limits)


def check_lengths(min_length: int, limits: Int[Tensor, " B"]) -> None:
    """Refuse a smallest length above the largest of a row, which is that of the options, the model or the ratio.

    Raises:
        ValueError: with the first such row.
    """
    if min_length and len(short := (limits < min_length).nonzero()):  # without one, nothing waits for the device
        row = int(short[0])
        raise ValueError(f"{min_length=} for sentence {row}, which may have {int(limits[row])} tokens at most")


def begin(model: nn.Module, source: Int[Tensor, "B S"], special: SpecialIds) -> tuple[Float[Tensor, "B V"], Any]:
    """Logits of the first token to write, and the state behind a language model's prompt, or a translator's BOS.

    Raises:
        TypeError: for a language model whose `start` does not read the prompt.
    """
    state: Any = model.start(source)  # type: ignore[operator]
    if hasattr(model, "encode"):
        bos: Any = special.bos
        return model.step(source.new_full((len(source),), bos), state)  # type: ignore[operator]
    if not (isinstance(state, tuple) and len(state) == 2 and isinstance(state[0], Tensor)):
        raise TypeError(
            f"{type(model).__name__}.start must read the prompt, and return logits and a state as step does"
        )
    return state


def close_gaps(tokens: Int[Tensor, "*B T"], size: int, padding: int) -> Int[Tensor, "*B W"]:
    """Rows without padding between a prompt, their first columns, and what follows it, which may be padding itself."""
    gap = F.pad(tokens[..., :size] == padding, (0, tokens.shape[-1] - size))
    tokens = tokens.gather(-1, gap.byte().argsort(dim=-1, stable=True))
    columns = torch.arange(1, tokens.shape[-1] + 1, device=tokens.device)
    return tokens[..., : int((columns * (tokens != padding)).max())] if tokens.numel() else tokens


@torch.no_grad()
def generate(
    model: nn.Module,
    source: Int[Tensor, "B S"],
    choose: Callable[[Tensor], Tensor] = lambda scores: scores.max(-1)[1],  # argmax takes three times as long
    *,
    max_length: int = 100,
    prefix: Int[Tensor, "B P"] | None = None,
    min_length: int = 0,
    repetition_penalty: float = 1.0,
    max_ratio: float | None = None,
) -> Iterator[tuple[Int[Tensor, " N"], Int[Tensor, " N"]]]:
    """Generate token by token: yields the unfinished rows and a token for each.

    Args:
        model: anything with `start` and `step`; the source of a language model is its prompt, which is not yielded.
        choose: picks a token for each row; tokens that are ruled out score minus infinity.
        max_length: the limit on the tokens of a row, prefix and EOS included.
        prefix: first tokens of each row, without BOS and EOS, padded on the right.
        min_length: no EOS among the first so many tokens.
        repetition_penalty: above 1, tokens already written become less likely.
        max_ratio: most tokens for each token of the source.

    Raises:
        ValueError: in training mode, for a bad prefix or option, logits with NaN, or if no token is possible.
    """
    if not 0 <= min_length <= max_length:
        raise ValueError(f"{min_length=} must be from 0 to {max_length=}")
    written, prefix, limits = check_search(model, source, max_length, prefix, max_ratio)
    special, rows = special_ids(model), torch.arange(len(source), device=source.device)
    given, quick = (written != special.padding).sum(1), without_autograd(model)
    check_lengths(min_length, limits + given)
    token: Any = None
    state: Any = None
    for length in range(1, max_length + 1 if len(rows) else 0):
        if model.training:
            raise ValueError("the model is in training mode: call model.eval() first")
        with quick:  # only the model: what is yielded may be trained on
            logits, state = begin(model, source, special) if length == 1 else model.step(token, state)  # type: ignore[operator]
        logits = penalize_repetition(logits, written, repetition_penalty, special.padding)
        short = given[rows] + length <= min_length if length <= min_length else None
        # the logits may still be the model's
        scores = rule_out_(logits.clone(), short, special)
        if length <= prefix.shape[1]:
            scores = force(scores, prefix[rows, length - 1], special.padding)
        possible, token = scores.amax(-1).isfinite(), choose(scores).to(source.dtype)
        goes = ~special.ends(token) & (length < limits[rows])
        fate = torch.where(possible, goes.long(), -1).tolist()  # waits for the device, once a step
        if -1 in fate:
            raise ValueError(f"token {length}: logits with NaN, or no token is possible")
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
    """The prompt of a language model and all that `generate` yields, padded; each row ends with EOS or was cut off."""
    special = special_ids(model)
    with eval_mode(model):
        columns = [
            source.new_full((len(source),), special.fill).index_copy(0, rows, tokens)
            for rows, tokens in generate(model, source, **options)
        ]
    written = torch.stack(columns, 1) if columns else source[:, :0]
    if hasattr(model, "encode"):
        return written
    return close_gaps(torch.cat([source, written], 1), source.shape[1], special.padding)


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
    sentences = check_texts(sentences)
    if not sentences:
        return []
    device, special = next(model.parameters()).device, special_ids(model)
    ids = [[*source_tokenizer.encode(one_line(text)), *special.eos[:1]] for text in sentences]
    source = nn.utils.rnn.pad_sequence(list(map(torch.tensor, ids)), True, special.fill)
    tokens = greedy_decode(model, source.to(device), max_length=max_length)
    return [target_tokenizer.decode(row) for row in tokens.tolist()]
