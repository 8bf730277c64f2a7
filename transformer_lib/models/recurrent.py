"""Recurrent networks: a GRU for padded batches, and an encoder-decoder made of it.

``transformer_lib.plain.encoder_decoder`` is the same translator as its chapter builds it.
"""

__all__ = [
    "run_gru",
    "GRU",
    "RecurrentSizes",
    "RecurrentConfig",
    "RecurrentEncoder",
    "tied_output",
    "RecurrentState",
    "RecurrentSeq2Seq",
    "reverse_padded",
]

from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from transformer_lib.data.batching import SPECIAL
from transformer_lib.models.seq2seq import Memory, Seq2Seq, State, check_tokens, embedding
from transformer_lib.settings import Probability, Size, settings


def run_gru(
    inputs: Float[Tensor, "B S D"],
    mask: Bool[Tensor, "B S"] | None,
    h: Float[Tensor, "B H"],
    weights: list[Tensor],
    *,
    backward: bool = False,
) -> tuple[Float[Tensor, "B S H"], Float[Tensor, "B H"]]:
    """One GRU layer in one direction: all states, and the last.

    Source: Cho et al. (2014), section 2.3; reset gate as in cuDNN.
    """
    W, U, b, b_h = weights
    xs = F.linear(inputs, W, b).unbind(1)  # all steps at once
    states = list(xs)
    steps = range(len(xs))
    for s in reversed(steps) if backward else steps:
        r_x, z_x, n_x = xs[s].chunk(3, -1)
        r_h, z_h, n_h = F.linear(h, U, b_h).chunk(3, -1)
        r, z = torch.sigmoid(r_x + r_h), torch.sigmoid(z_x + z_h)
        n = torch.tanh(n_x + r * n_h)
        new = n + z * (h - n)  # (1 - z) n + z h
        if mask is not None:
            new = torch.where(mask[:, s, None], new, h)
        states[s] = h = new
    outputs = torch.stack(states, 1)
    if mask is not None:
        outputs = outputs * mask[:, :, None]
    return outputs, h


class GRU(nn.GRU):
    """The layers of ``torch.nn.GRU``, for padded batches.

    A masked step leaves the state as it is, and its output is zero.

    Args:
        d_input: width of the vectors that go in.
        d_hidden: width of the state; with two directions, twice this comes out.
        n_layers: layers, one above the other.
        dropout: between layers, in training.
        bidirectional: whether each layer also reads from the end.

    Source: Schuster and Paliwal (1997), for two directions.
    """

    def __init__(
        self,
        d_input: int,
        d_hidden: int,
        n_layers: int = 1,
        *,
        dropout: float = 0.0,
        bidirectional: bool = False,
    ) -> None:
        super().__init__(d_input, d_hidden, n_layers, bidirectional=bidirectional)
        self.dropout = dropout  # between layers

    def forward(  # type: ignore[override]
        self,
        inputs: Float[Tensor, "B S D"],
        mask: Bool[Tensor, "B S"] | None = None,
        state: Float[Tensor, "B L H"] | None = None,
    ) -> tuple[Float[Tensor, "B S H"], Float[Tensor, "B L H"]]:
        """The top layer's states, and each layer's last state."""
        ways, (B, S) = 1 + self.bidirectional, inputs.shape[:2]
        shape = (B, self.num_layers, ways * self.hidden_size)
        state = inputs.new_zeros(shape) if state is None else state
        if state.shape != shape or (mask is not None and mask.shape != (B, S)):
            given = None if mask is None else tuple(mask.shape), tuple(state.shape)
            raise ValueError(f"mask and state, with a row for each sentence, are {given}; expected {(B, S)}, {shape}")
        finals: list[Tensor] = []
        weights: Any = iter(self.all_weights)
        for layer in range(self.num_layers):
            if layer:
                inputs = F.dropout(inputs, self.dropout, self.training)
            runs = [
                run_gru(inputs, mask, h, next(weights), backward=way == 1)
                for way, h in enumerate(state[:, layer].chunk(ways, -1))
            ]
            inputs = torch.cat([outputs for outputs, _ in runs], -1)
            finals.append(torch.cat([final for _, final in runs], -1))
        return inputs, torch.stack(finals, 1)


@settings
class RecurrentSizes:
    """The sizes that all recurrent models share."""

    source_vocab_size: Size
    target_vocab_size: Size
    d_model: Size = 256  # width D of the embeddings
    d_hidden: Size = 512  # width H of the recurrent states
    n_layers: Size = 1  # recurrent layers on each side
    dropout: Probability = 0.1


@settings
class RecurrentConfig(RecurrentSizes):
    """The sizes of a recurrent encoder-decoder."""

    reverse_source: bool = False  # from its last token to its first
    bidirectional: bool = False  # each direction gets half of the state; Bahdanau's encoder always has both


class RecurrentEncoder(nn.Module):
    """Encodes a sentence token by token.

    With ``bidirectional``, each direction fills half of the state.
    """

    def __init__(self, config: RecurrentSizes, *, bidirectional: bool = False) -> None:
        super().__init__()
        c = config
        self.reverse = getattr(c, "reverse_source", False)
        self.padding = getattr(c, "special", SPECIAL).padding
        if bidirectional and (self.reverse or c.d_hidden % 2):
            raise ValueError("a bidirectional encoder can't use reverse_source, and d_hidden must be even")
        D, H = c.d_model, c.d_hidden // (1 + bidirectional)
        options: dict[str, Any] = {"dropout": c.dropout, "bidirectional": bidirectional}
        self.embedding = embedding(c.source_vocab_size, D, self.padding)
        self.gru = GRU(D, H, c.n_layers, **options)
        self.dropout = nn.Dropout(c.dropout)

    def forward(self, source: Int[Tensor, "B S"]) -> Memory:
        """The state after each token, and each layer's last one."""
        check_tokens(source, self.embedding.num_embeddings, "source", self.padding)
        mask = source != self.padding
        if self.reverse:
            source = reverse_padded(source, mask)
        words = self.dropout(self.embedding(source))
        states, final = self.gru(words, mask)
        return Memory(states, mask, final=final)


def tied_output(table: nn.Embedding) -> nn.Linear:
    """An output layer that shares its weights with an embedding.

    Source: Press and Wolf (2017).
    """
    V, D = table.weight.shape
    output = nn.Linear(D, V, device="meta")
    output.weight = table.weight
    output.bias = nn.Parameter(table.weight.new_zeros(V))
    return output


@dataclass(frozen=True, eq=False)
class RecurrentState(State):
    """The decoder's state between two tokens: each layer's state, and c."""

    memory: Memory
    hidden: Float[Tensor, "N L H"]
    c: Float[Tensor, "N H"]


class RecurrentSeq2Seq(Seq2Seq):
    """A recurrent encoder-decoder with one vector in between.

    Source: Cho et al. (2014), section 2.2 and appendix A;
    Sutskever et al. (2014).
    """

    def __init__(self, config: RecurrentConfig) -> None:
        super().__init__()
        c = self.config = config
        D, H = c.d_model, c.d_hidden
        self.encoder = RecurrentEncoder(c, bidirectional=c.bidirectional)
        self.embedding = embedding(c.target_vocab_size, D, self.special.padding)
        self.gru = GRU(D + H, H, c.n_layers, dropout=c.dropout)
        self.read_out = nn.Linear(D + 2 * H, D)
        self.output = tied_output(self.embedding)
        self.dropout = nn.Dropout(c.dropout)

    def encode(self, source: Int[Tensor, "B S"]) -> Memory:
        """Encode the source tokens; padding is masked."""
        return self.encoder(source)

    def first_state(self, memory: Memory) -> RecurrentState:
        """The decoder begins with the encoder's last state."""
        return RecurrentState(memory, memory.final, memory.final[:, -1])  # type: ignore[arg-type, index]

    def read(self, target: Int[Tensor, "N T"], state: RecurrentState) -> tuple[Float[Tensor, "N T D"], RecurrentState]:
        """Hidden states after each token, and the last state."""
        words = self.dropout(self.embedding(target))
        c = state.c[:, None].expand(-1, target.shape[1], -1)  # (N, T, H)
        inputs = torch.cat([words, c], -1)
        outputs, last = self.gru(inputs, state=state.hidden)
        x = self.read_out(torch.cat([words, outputs, c], -1))
        state = RecurrentState(state.memory, last, state.c)
        return self.dropout(torch.tanh(x)), state


def reverse_padded(tokens: Int[Tensor, "B S"], mask: Bool[Tensor, "B S"]) -> Int[Tensor, "B S"]:
    """Each row reversed; its padding stays at the end.

    Source: Sutskever et al. (2014), section 3.3.
    """
    S = tokens.shape[1]
    position = torch.arange(S, device=tokens.device)
    mirrored = mask.sum(1, keepdim=True) - 1 - position  # (B, S)
    return tokens.gather(1, torch.where(mask, mirrored, position))
