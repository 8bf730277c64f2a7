"""Greedy decoding and sampling: one loop that writes a token for each row, step by step.

Chapter: An encoder-decoder: the sentence in one vector.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from transformer_lib.data.tokenizer import BOS, EOS, PAD, Tokenizer
from transformer_lib.models.seq2seq import eval_mode, reorder


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


def rule_out_(scores: Float[Tensor, "N V"], written: Int[Tensor, "N T"], min_length: int = 0) -> Float[Tensor, "N V"]:
    """Set PAD and BOS to minus infinity, in place, and EOS too among the first `min_length` tokens."""
    scores[:, : EOS + (written.shape[1] < min_length)] = -torch.inf  # PAD, BOS, EOS are 0, 1, 2
    return scores


def force(scores: Float[Tensor, "N V"], token: Int[Tensor, " N"]) -> Float[Tensor, "N V"]:
    """Scores in which only the given token of each row is possible; with PAD, a row is left unchanged."""
    others = torch.arange(scores.shape[1], device=scores.device) != token[:, None]
    return scores.masked_fill(others & (token != PAD)[:, None], -torch.inf)


def check_search(
    model: nn.Module,
    source: Int[Tensor, "B S"],
    max_length: int,
    prefix: Int[Tensor, "B P"] | None,
) -> tuple[int, Int[Tensor, "B P"]]:
    """The length limit and the prefix of a search, after checking that they fit.

    Raises:
        TypeError: if the prefix holds no integers.
        ValueError: if the limit is below 1, or the prefix is longer, of another batch, not padded
            on the right, or holds BOS or EOS.
    """
    max_length = min(max_length, getattr(model, "max_target_length", None) or max_length)
    if not hasattr(model, "encode"):  # a language model
        if prefix is not None:
            raise ValueError("the prompt of a language model is its prefix: give one of them")
        prefix = source
    prefix = source[:, :0] if prefix is None else prefix
    if prefix.dtype not in (torch.uint8, torch.int16, torch.int32, torch.int64):
        raise TypeError(f"prefix is {prefix.dtype}, expected token ids")
    if prefix.dim() != 2 or len(prefix) != len(source):
        raise ValueError(f"prefix of shape {tuple(prefix.shape)} for {len(source)} sentences")
    if max_length < max(1, prefix.shape[1]):
        raise ValueError(f"{max_length=} for a prefix of {prefix.shape[1]} tokens")
    valid = prefix != PAD
    if (valid[:, 1:] & ~valid[:, :-1]).any():
        raise ValueError("prefix must be padded on the right")
    if ((prefix == BOS) | (prefix == EOS)).any():
        raise ValueError("prefix holds BOS or EOS: BOS is added, and nothing follows EOS")
    return max_length, prefix


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
) -> Iterator[tuple[Int[Tensor, " N"], Int[Tensor, " N"]]]:
    """Generate token by token: yields the unfinished rows and a token for each.

    Args:
        model: anything with `start` and `step`; the source of a language model is its prompt.
        choose: picks a token for each row; tokens that are ruled out score minus infinity.
        max_length: the limit on the tokens of a row, prefix and EOS included.
        prefix: first tokens of each row, without BOS and EOS, padded on the right.
        min_length: no EOS among the first so many tokens.
        repetition_penalty: above 1, tokens already written become less likely.

    Raises:
        ValueError: in training mode, for a bad prefix, logits with NaN, or if no token is possible.
    """
    max_length, prefix = check_search(model, source, max_length, prefix)
    rows = torch.arange(len(source), device=source.device)
    token = source.new_full((len(rows),), BOS)
    written = token[:, None][:, :0]
    state = model.start(source) if len(rows) else None
    for length in range(max_length if len(rows) else 0):
        if model.training:
            raise ValueError("the model is in training mode: call model.eval() first")
        logits, state = model.step(token, state)
        logits = penalize_repetition(logits, written, repetition_penalty)
        scores = rule_out_(logits, written, min_length)
        if length < prefix.shape[1]:
            scores = force(scores, prefix[rows, length])
        if not scores.amax(-1).isfinite().all():
            raise ValueError(f"token {length + 1}: logits with NaN, or no token is possible")
        token = choose(scores).to(source.dtype)
        left = (token != EOS).nonzero()[:, 0]  # waits for the device
        yield rows, token
        written = torch.cat([written, token[:, None]], 1)
        if not len(left):
            return
        if len(left) < len(rows):  # finished sentences leave the batch
            state = reorder(state, left, left)
            rows, token, written = rows[left], token[left], written[left]


def collect_tokens(model: nn.Module, source: Int[Tensor, "B S"], **options: Any) -> Int[Tensor, "B T"]:
    """All tokens that `generate` yields, padded; each row ends with EOS unless it was cut off."""
    with eval_mode(model):
        columns = [
            source.new_full((len(source),), PAD).index_copy(0, rows, tokens)
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
    batch_size: int = 64,
    max_length: int = 100,
) -> list[str]:
    """Translate sentences greedily, in batches of similar length."""
    device = next(model.parameters()).device
    ids = [torch.tensor([*source_tokenizer.encode(text), EOS]) for text in sentences]
    order = sorted(range(len(ids)), key=lambda index: len(ids[index]))
    translations = [""] * len(ids)
    for first in range(0, len(order), batch_size):
        group = order[first : first + batch_size]
        source = nn.utils.rnn.pad_sequence([ids[i] for i in group], True, PAD)
        tokens = greedy_decode(model, source.to(device), max_length=max_length)
        for index, row in zip(group, tokens.tolist(), strict=True):
            translations[index] = target_tokenizer.decode(row)
    return translations
