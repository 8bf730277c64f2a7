"""Additive attention: a decoder that attends to every source word, and the alignments that its weights make.

``transformer_lib.plain.bahdanau`` is the same model as its chapter builds it.
"""

__all__ = [
    "Score",
    "AdditiveScore",
    "AlignedMemory",
    "AlignedState",
    "Attention",
    "BahdanauSeq2Seq",
    "attention_maps",
]

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from transformer_lib.data.batching import Pair, collate, encode_pairs, special_ids
from transformer_lib.data.tokenizer import Tokenizer
from transformer_lib.metrics import best_links  # noqa: F401  # as before
from transformer_lib.models.attention import attend
from transformer_lib.models.recurrent import GRU, RecurrentConfig, RecurrentEncoder, tied_output
from transformer_lib.models.seq2seq import Memory, Seq2Seq, State, check_pairs, embedding, eval_mode, shares_memory


class Score(nn.Module):
    """How well queries match keys; ``prepare`` needs no query."""

    def prepare(self, keys: Float[Tensor, "B S K"]) -> Float[Tensor, "B S A"]:
        """The keys' part of the score."""
        return keys

    def compare(self, queries: Float[Tensor, "B T H"], prepared: Float[Tensor, "B S A"]) -> Float[Tensor, "B T S"]:
        """The score of each query and prepared key. Each subclass defines its own."""
        raise NotImplementedError

    def forward(self, queries: Float[Tensor, "B T H"], keys: Float[Tensor, "B S K"]) -> Float[Tensor, "B T S"]:
        """The score of each query and key."""
        return self.compare(queries, self.prepare(keys))


class AdditiveScore(Score):
    """A network with one hidden layer: v . tanh(W q + U k).

    Args:
        d_query: width of a query, here the state of the decoder.
        d_key: width of a key, here an output of the encoder.
        d_attention: width of the hidden layer.

    Source: Bahdanau et al. (2015), section 3.1 and appendix A.1.2.
    """

    def __init__(self, d_query: int, d_key: int, d_attention: int) -> None:
        super().__init__()
        self.query = nn.Linear(d_query, d_attention, bias=False)
        self.key = nn.Linear(d_key, d_attention, bias=False)
        self.combine = nn.Linear(d_attention, 1, bias=False)

    def prepare(self, keys: Float[Tensor, "B S K"]) -> Float[Tensor, "B S A"]:
        """The keys' part of the hidden layer, U k."""
        return self.key(keys)

    def compare(self, queries: Float[Tensor, "B T H"], prepared: Float[Tensor, "B S A"]) -> Float[Tensor, "B T S"]:
        """The score of each query and each prepared key."""
        hidden = torch.tanh(self.query(queries)[:, :, None] + prepared[:, None])
        return self.combine(hidden).squeeze(-1)  # (B, T, S, A) to (B, T, S)


@dataclass(frozen=True, eq=False)
class AlignedMemory(Memory):
    """A memory whose keys are prepared for the score."""

    keys: Float[Tensor, "B S A"]


@dataclass(frozen=True, eq=False)
class AlignedState(State):
    """The state of a decoder with attention, between two tokens."""

    memory: AlignedMemory
    hidden: Float[Tensor, "N L H"]
    attention: tuple[Tensor, ...] = ()  # weights, (N, T, S)


class Attention(nn.Module):
    """Attention to all source positions.

    Source: Bahdanau et al. (2015), eqs. 5 and 6.
    """

    def __init__(self, score: Score) -> None:
        super().__init__()
        self.score = score

    @shares_memory
    def forward(
        self,
        queries: Float[Tensor, "B T H"],
        memory: AlignedMemory,
        positions: Int[Tensor, " T"] | None = None,
    ) -> tuple[Tensor, ...]:
        """Contexts (B, T, D), and weights (B, T, S)."""
        scores = self.score.compare(queries, memory.keys)
        return attend(scores, memory.outputs, memory.mask[:, None])


class BahdanauSeq2Seq(Seq2Seq):
    """An encoder-decoder that computes a new context for each target token.

    Source: Bahdanau et al. (2015), section 3 and appendix A.2.
    """

    def __init__(self, config: RecurrentConfig) -> None:
        super().__init__()
        c = self.config = config
        D, H = c.d_model, c.d_hidden
        self.encoder = RecurrentEncoder(c, bidirectional=True)
        self.embedding = embedding(c.target_vocab_size, D, self.special.padding)
        self.gru = GRU(D + H, H, c.n_layers, dropout=c.dropout)
        self.read_out = nn.Linear(D + 2 * H, D)
        self.output = tied_output(self.embedding)
        self.dropout = nn.Dropout(c.dropout)
        self.attention = Attention(AdditiveScore(H, H, H))
        self.bridge = nn.Linear(H // 2, H)

    def encode(self, source: Int[Tensor, "B S"]) -> AlignedMemory:
        """Encode the source tokens, and prepare their keys."""
        m = self.encoder(source)
        keys = self.attention.score.prepare(m.outputs)
        return AlignedMemory(m.outputs, m.mask, keys, final=m.final)

    def first_state(self, memory: AlignedMemory) -> AlignedState:
        """Made from the last state of the encoder's backward half."""
        backward = memory.final.chunk(2, -1)[1]  # type: ignore[union-attr]  # (B, L, H / 2)
        return AlignedState(memory, torch.tanh(self.bridge(backward)))

    def read(self, target: Int[Tensor, "N T"], state: AlignedState) -> tuple[Float[Tensor, "N T D"], AlignedState]:
        """Hidden states after each token, and the last state."""
        words = self.dropout(self.embedding(target))
        s, steps = state.hidden, []
        for word in words.split(1, 1):
            query = s[:, -1:]  # the top layer's old state
            c, weights = self.attention(query, state.memory)
            output, s = self.gru(torch.cat([word, c], -1), state=s)
            steps.append((output, c, weights))
        parts = zip(*steps, strict=True)
        outputs, contexts, weights = (torch.cat(part, 1) for part in parts)
        x = self.read_out(torch.cat([words, outputs, contexts], -1))
        state = AlignedState(state.memory, s, (weights,))
        return self.dropout(torch.tanh(x)), state

    def align(self, source: Int[Tensor, "B S"], target: Int[Tensor, "B T"]) -> Float[Tensor, "B T S"]:
        """The attention weights behind the logits after each target token."""
        check_pairs(source, target)
        _, state = self.read(target, self.start(source))
        return state.attention[0]


def attention_maps(
    model: nn.Module,
    pairs: Sequence[Pair | tuple[str, str]],
    source_tokenizer: Tokenizer,
    target_tokenizer: Tokenizer,
    *,
    batch_size: int = 64,
) -> list[Float[Tensor, "T S"]]:
    """The attention weights of each pair, with a model that can ``align``.

    Both EOS tokens are included.
    Source: Bahdanau et al. (2015), section 5.2.1.
    """
    if batch_size < 1:
        raise ValueError(f"{batch_size=} must be at least 1")
    device, special = next(model.parameters()).device, special_ids(model)
    examples = encode_pairs(pairs, source_tokenizer, target_tokenizer, special=special)
    lengths = [len(target) for _, target in examples]
    order = sorted(range(len(examples)), key=lengths.__getitem__)
    maps = [torch.empty(0, 0)] * len(examples)
    with eval_mode(model):
        for first in range(0, len(order), batch_size):
            group = order[first : first + batch_size]
            batch = collate([examples[i] for i in group], special=special).to(device)
            weights = model.align(batch.source, batch.target_input)  # type: ignore[operator]
            for i, rows in zip(group, weights.float().cpu(), strict=True):
                source, target = examples[i]
                maps[i] = rows[: len(target) - 1, : len(source)]
    return maps
