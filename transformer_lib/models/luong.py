"""Luong attention: scores that need no network, windows on the source, and a decoder that updates, then attends.

``transformer_lib.plain.luong`` is the same model as its chapter builds it.
"""

__all__ = [
    "DotScore",
    "GeneralScore",
    "LocationScore",
    "window_positions",
    "attend_window",
    "LocalAttention",
    "LuongConfig",
    "make_score",
    "make_attention",
    "LuongState",
    "LuongSeq2Seq",
]

from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from transformer_lib.models.attention import masked_softmax
from transformer_lib.models.bahdanau import AdditiveScore, AlignedMemory, AlignedState, Attention, Score
from transformer_lib.models.recurrent import GRU, RecurrentEncoder, RecurrentSizes, tied_output
from transformer_lib.models.seq2seq import Seq2Seq, check_pairs, embedding, shares_memory
from transformer_lib.settings import Size, settings


class DotScore(Score):
    """The dot product of query and key: q . k.

    Source: Luong et al. (2015), section 3.1.
    """

    def compare(self, queries: Float[Tensor, "B T H"], prepared: Float[Tensor, "B S H"]) -> Float[Tensor, "B T S"]:
        """The score of each query and key."""
        return queries @ prepared.mT


class GeneralScore(DotScore):
    """The dot product of query and projected key: q W . k.

    Args:
        d_query: width of a query.
        d_key: width of a key, which W maps to that of a query.
    """

    def __init__(self, d_query: int, d_key: int) -> None:
        super().__init__()
        self.key = nn.Linear(d_key, d_query, bias=False)

    def prepare(self, keys: Float[Tensor, "B S K"]) -> Float[Tensor, "B S H"]:
        """The keys, multiplied by W."""
        return self.key(keys)


class LocationScore(Score):
    """A score for each position, from the query alone: (q W)_s.

    Args:
        d_query: width of a query.
        max_length: how many positions get a score; longer sources are refused.
    """

    def __init__(self, d_query: int, max_length: int) -> None:
        super().__init__()
        self.max_length = max_length
        self.place = nn.Linear(d_query, max_length, bias=False)

    def compare(self, queries: Float[Tensor, "B T H"], prepared: Float[Tensor, "B S K"]) -> Float[Tensor, "B T S"]:
        """The score of each position. Only the number of keys matters."""
        if (S := prepared.shape[1]) > self.max_length:
            raise ValueError(f"{S} source tokens, at most {self.max_length}")
        return F.linear(queries, self.place.weight[:S])


def window_positions(centres: Float[Tensor, "B T"], window: int) -> Int[Tensor, "B T P"]:
    """P = 2 ``window`` + 1 source positions, from where each window begins.

    Positions count from 1. Some may lie outside the sentence, and the
    last one outside the window.
    """
    first = (centres.detach() - window).ceil().long()  # (B, T)
    steps = torch.arange(2 * window + 1, device=centres.device)  # (P,)
    return first[:, :, None] + steps


def attend_window(
    score: Score,
    queries: Float[Tensor, "B T H"],
    memory: AlignedMemory,
    centres: Float[Tensor, "B T"],
    window: int,
    gaussian: bool,
) -> tuple[Tensor, Tensor]:
    """Contexts and weights, from P = 2 ``window`` + 1 positions.

    Source: Luong et al. (2015), eqs. 7 and 10; their D is ``window``.
    """
    (B, T), S = centres.shape, memory.mask.shape[1]
    positions = window_positions(centres, window)  # (B, T, P), from 1
    distance = positions - centres[:, :, None]

    index = positions.clamp(1, S) - 1  # from 0, inside the sentence
    sentence = torch.arange(B, device=index.device)[:, None, None]
    keys = memory.keys[sentence, index]  # (B, T, P, A)
    values = memory.outputs[sentence, index]  # (B, T, P, D)
    real = memory.mask[sentence, index] & (positions == index + 1)
    visible = real & (distance.abs() <= window)  # (B, T, P)

    # each target word has keys of its own, so it counts as a batch row
    query = queries.flatten(0, 1)[:, None]  # (B T, 1, H)
    scores = score.compare(query, keys.flatten(0, 1))  # (B T, 1, P)
    weights = masked_softmax(scores.view_as(index), visible)  # (B, T, P)
    if gaussian:  # with standard deviation window / 2
        bell = (-2 * (distance / window) ** 2).exp()
        weights = weights * bell.to(weights.dtype)
    context = (weights[:, :, None] @ values).squeeze(2)  # (B, T, D)
    everywhere = weights.new_zeros(B, T, S).scatter_add(-1, index, weights)
    return context, everywhere


class LocalAttention(Attention):
    """Attention to positions at most ``window`` away from a centre.

    The centre is the position of the target word (local-m), or
    predicted from a query of width ``d_query`` (local-p).
    Positions count from 1.

    Args:
        score: how well queries match keys, for instance ``DotScore()``.
        window: how many positions on each side of the centre may be read.
        d_query: width of a query, to predict the centre from it; else the centre is the word of the same position.

    Source: Luong et al. (2015), section 3.2.
    """

    def __init__(self, score: Score, window: int, d_query: int | None = None) -> None:
        super().__init__(score)
        if isinstance(score, LocationScore):
            raise ValueError("a LocationScore needs global attention")
        self.window, self.predict = window, None
        if d_query is not None:
            hidden = nn.Linear(d_query, d_query, bias=False)
            out = nn.Linear(d_query, 1, bias=False)
            self.predict = nn.Sequential(hidden, nn.Tanh(), out)

    def centres(
        self,
        queries: Float[Tensor, "B T H"],
        mask: Bool[Tensor, "B S"],
        positions: Int[Tensor, " T"] | None,
    ) -> Float[Tensor, "B T"]:
        """The centre of each window, in single precision or better.

        In bfloat16, numbers above 256 are at least two positions apart.
        """
        if self.predict is None:
            if positions is None:
                raise ValueError("positions is None, but without d_query, a centre is the position of the target word")
            return (positions + 1).float().expand(len(queries), -1)
        logit = self.predict(queries).squeeze(-1)  # (B, T)
        precise = torch.promote_types(logit.dtype, torch.float32)
        return mask.sum(1, keepdim=True) * logit.to(precise).sigmoid()

    @shares_memory
    def forward(
        self,
        queries: Float[Tensor, "B T H"],
        memory: AlignedMemory,
        positions: Int[Tensor, " T"] | None = None,
    ) -> tuple[Tensor, ...]:
        """Contexts (B, T, D), and weights (B, T, S)."""
        centres = self.centres(queries, memory.mask, positions)
        gaussian = self.predict is not None
        return attend_window(self.score, queries, memory, centres, self.window, gaussian)


@settings
class LuongConfig(RecurrentSizes):
    """The sizes of Luong's translator, and the kind of attention."""

    score: Literal["dot", "general", "concat", "location"] = "general"
    local: Literal["m", "p"] | None = None  # local-m, local-p, or global
    window: Size = 10  # positions to either side of the centre
    input_feeding: bool = True  # each step reads the last attentional vector
    max_source_length: Size = 100  # in tokens; for the location score only

    def __post_init__(self) -> None:
        if self.local and self.score == "location":
            raise ValueError("score='location' needs global attention (local=None)")


def make_score(c: Any) -> Score:
    """The score that a configuration names ("concat" is additive)."""
    H = c.d_hidden
    if c.score == "dot":
        return DotScore()
    if c.score == "general":
        return GeneralScore(H, H)
    if c.score == "concat":
        return AdditiveScore(H, H, H)
    return LocationScore(H, c.max_source_length)


def make_attention(c: LuongConfig) -> Attention:
    """Attention to all positions or to a window."""
    if c.local is None:
        return Attention(make_score(c))
    return LocalAttention(make_score(c), c.window, c.d_hidden if c.local == "p" else None)


@dataclass(frozen=True, eq=False)
class LuongState(AlignedState):
    """The state of Luong's decoder."""

    position: int = 0  # tokens read so far
    feed: Float[Tensor, "N 1 D"] | None = None  # the last vector


class LuongSeq2Seq(Seq2Seq):
    """A translator that updates its state, then attends with it.

    Source: Luong et al. (2015), section 3.
    """

    def __init__(self, config: Any, attention: Attention | None = None) -> None:
        super().__init__()
        c = self.config = config
        D, H = c.d_model, c.d_hidden
        self.attention = attention or make_attention(c)
        score = self.attention.score  # only a LocationScore has a limit
        self.max_source_length = getattr(score, "max_length", None)
        self.encoder = RecurrentEncoder(c, bidirectional=True)
        self.embedding = embedding(c.target_vocab_size, D, self.special.padding)
        width = 2 * D if c.input_feeding else D
        self.gru = GRU(width, H, c.n_layers, dropout=c.dropout)
        self.attentional = nn.Linear(2 * H, D, bias=False)
        self.output = tied_output(self.embedding)
        self.dropout = nn.Dropout(c.dropout)

    def encode(self, source: Int[Tensor, "B S"]) -> AlignedMemory:
        """Encode the source tokens, and prepare their keys."""
        m = self.encoder(source)
        keys = self.attention.score.prepare(m.outputs)
        return AlignedMemory(m.outputs, m.mask, keys, final=m.final)

    def first_state(self, memory: AlignedMemory) -> LuongState:
        """The encoder's last state, with nothing to feed."""
        B, D = len(memory.mask), self.config.d_model
        feed = memory.final.new_zeros(B, 1, D)  # type: ignore[union-attr]
        return LuongState(memory, memory.final, feed=feed)  # type: ignore[arg-type]

    def advance(self, words: Float[Tensor, "N T D"], state: LuongState) -> tuple[Float[Tensor, "N T D"], LuongState]:
        """Attentional vectors of embedded words."""
        inputs, T = words, words.shape[1]
        if self.config.input_feeding:
            inputs = torch.cat([words, state.feed], -1)  # type: ignore[list-item]  # (N, 1, 2 D)
        s, last = self.gru(inputs, state=state.hidden)  # s: (N, T, H)

        positions = state.position + torch.arange(T, device=s.device)
        context, *weights = self.attention(s, state.memory, positions)
        joined = torch.cat([context, s], -1)  # (N, T, 2 H)
        x = self.dropout(torch.tanh(self.attentional(joined)))  # (N, T, D)

        end, feed = state.position + T, x[:, -1:]
        return x, LuongState(state.memory, last, tuple(weights), end, feed)

    def read(self, target: Int[Tensor, "N T"], state: LuongState) -> tuple[Float[Tensor, "N T D"], LuongState]:
        """Attentional vectors after each token, and the last state."""
        words = self.dropout(self.embedding(target))  # (N, T, D)
        if not self.config.input_feeding:
            return self.advance(words, state)
        steps = []
        for word in words.split(1, dim=1):  # (N, 1, D)
            x, state = self.advance(word, state)
            steps.append((x, *state.attention))
        parts = zip(*steps, strict=True)
        vectors, *weights = (torch.cat(part, dim=1) for part in parts)
        return vectors, replace(state, attention=tuple(weights))

    def align(self, source: Int[Tensor, "B S"], target: Int[Tensor, "B T"]) -> Float[Tensor, "B T S"]:
        """The attention weights behind the logits after each target token."""
        check_pairs(source, target)
        _, state = self.read(target, self.start(source))
        return state.attention[0]
