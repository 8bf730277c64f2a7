"""GPT: a causal stack of Transformer layers as a language model, and as a translator.

Chapter: GPT.
"""

__all__ = [
    "GPTConfig",
    "CausalAttention",
    "Block",
    "GPT",
    "TextState",
    "OneStack",
    "PromptMemory",
    "PromptState",
    "GPTTranslator",
]

from copy import copy
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from transformer_lib.data.batching import Batch
from transformer_lib.models.layers import FeedForward, LayerNorm
from transformer_lib.models.loss import Loss
from transformer_lib.models.multi_head import KVCache, MultiHeadAttention
from transformer_lib.models.seq2seq import Memory, Seq2Seq, SpecialIds, State, check_tokens, reorder, token_losses
from transformer_lib.settings import Positive, Probability, Size, settings


@settings
class GPTConfig:
    """Sizes of a decoder-only model; by default, those of the smallest GPT-2.

    Source: Radford et al. (2019), section 2.3 and table 2.
    """

    vocab_size: Size = 50_257
    d_model: Size = 768
    n_heads: Size = 12
    n_layers: Size = 12
    d_ff: Size | None = None  # None: 4 D
    dropout: Probability = 0.1  # of embeddings and sublayer outputs
    max_length: Size = 1024
    eps: Positive = 1e-5  # of the norms
    tie_embeddings: bool = True  # whether input and output share one table
    attention_dropout: Probability = 0.0  # of the attention weights
    special: SpecialIds = SpecialIds()  # ids of padding, beginning and end


class CausalAttention(MultiHeadAttention):
    """Causal self-attention; learned positions are in the input already."""

    def forward(  # type: ignore[override]
        self, x: Tensor, positions: Int[Tensor, " T"], **options: Any
    ) -> Float[Tensor, "N T D"]:
        """Attend to every token up to each position."""
        return super().forward(x, causal=True, **options)


class Block(nn.Module):
    """Layer of a decoder-only model: a pre-norm decoder layer, no cross-attention.

    Source: Radford et al. (2019), section 2.3.
    """

    def __init__(
        self,
        self_attn: MultiHeadAttention,
        feed_forward: nn.Module,
        norms: tuple[nn.Module, nn.Module],
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.self_attn, self.feed_forward = self_attn, feed_forward
        self.norm1, self.norm2 = norms
        self.dropout = nn.Dropout(dropout)

    def forward(
        self,
        x: Float[Tensor, "N T D"],
        positions: Int[Tensor, " T"],
        **options: Any,
    ) -> Float[Tensor, "N T D"]:
        """Attend, then transform each position."""
        x = x + self.dropout(self.self_attn(self.norm1(x), positions, **options))
        return x + self.dropout(self.feed_forward(self.norm2(x)))


class GPT(nn.Module):
    """Decoder-only language model with learned positions, as GPT-2.

    Example:
        >>> model = GPT(GPTConfig(vocab_size=20, d_model=8, n_heads=2, n_layers=1))
        >>> model(torch.tensor([[1, 7, 8, 2]])).shape
        torch.Size([1, 4, 20])

    Source: Radford et al. (2019), section 2.3.
    """

    Norm: type[nn.Module] = LayerNorm

    def __init__(self, config: GPTConfig) -> None:
        super().__init__()
        self.config, D = config, config.d_model
        # the search functions ask how long a text can get
        self.max_source_length = self.max_target_length = config.max_length
        blocks = [self.block() for _ in range(config.n_layers)]
        self.embedding = nn.Embedding(config.vocab_size, D)
        self.dropout = nn.Dropout(config.dropout)
        self.layers, self.norm = nn.ModuleList(blocks), self.Norm(D, eps=config.eps)
        self.output = nn.Linear(D, config.vocab_size, bias=False)
        for table in (self.embedding, self.output):
            nn.init.normal_(table.weight, std=D**-0.5)
        if config.tie_embeddings:
            self.output.weight = self.embedding.weight
        self.add_positions()

    def block(self) -> Block:
        """One layer of the stack."""
        c, D = self.config, self.config.d_model
        attention = CausalAttention(D, c.n_heads, dropout=c.attention_dropout)
        feed_forward = FeedForward(D, c.d_ff or 4 * D, activation="gelu_tanh")
        norms = self.Norm(D, eps=c.eps), self.Norm(D, eps=c.eps)
        return Block(attention, feed_forward, norms, c.dropout)

    def add_positions(self) -> None:
        """A table with a learned vector for each position."""
        self.positions = nn.Embedding(self.config.max_length, self.config.d_model)
        nn.init.normal_(self.positions.weight, std=self.config.d_model**-0.5)

    def embed(self, tokens: Tensor, positions: Tensor) -> Float[Tensor, "N T D"]:
        """Token vectors plus position vectors."""
        return self.embedding(tokens) + self.positions(positions)

    def forward(self, tokens: Int[Tensor, "B T"]) -> Float[Tensor, "B T V"]:
        """Logits of the token that follows each position."""
        return self.output(self.hidden(tokens))

    def hidden(
        self,
        tokens: Int[Tensor, "N T"],
        caches: list[KVCache] | None = None,
        *,
        first: int | None = None,
        mask: Bool[Tensor, "N 1 1 S"] | None = None,
        padding: Int[Tensor, " N"] | None = None,
    ) -> Float[Tensor, "N T D"]:
        """Hidden states before the output projection; the caches get the new keys and values.

        Args:
            first: position of the first token; None: the first one after the cache.
            mask: False where a token, cached or new, is to be ignored.
            padding: how many columns of padding each row begins with.
        """
        if first is None:
            first = len(caches[0]) if caches else 0
        last = longest = first + tokens.shape[1]
        if padding is not None:  # on a device, the host would wait
            longest = last - min(padding.tolist(), default=last) if padding.device.type == "cpu" else 0
        if longest > self.config.max_length:
            raise ValueError(f"{longest} tokens, max_length={self.config.max_length}")
        columns = positions = torch.arange(first, last, device=tokens.device)
        if padding is not None:  # each row counts from its own first token
            positions = (columns - padding[:, None]).clamp(min=0)
            own = (torch.arange(last, device=tokens.device) >= padding[:, None])[:, None, None]
            mask = own if mask is None else mask & own
        x = self.dropout(self.embed(tokens, positions))
        each: Any = caches or [None] * len(self.layers)
        for layer, cache in zip(self.layers, each, strict=True):
            x = layer(x, columns, mask=mask, cache=cache)
        return self.norm(x)

    def start(self, prompt: Int[Tensor, "B S"]) -> tuple[Float[Tensor, "B V"], "TextState"]:
        """Read BOS, if there is one, and the prompt: logits of the next token, a state.

        Shorter prompts are padded on the right; the state has their padding on the left.
        """
        special, padding = self.config.special, None
        if special.bos is not None:
            prompt = F.pad(prompt, (1, 0), value=special.bos)
        check_tokens(prompt, self.config.vocab_size, "prompt", special.padding)
        if (prompt == special.padding).any():
            padding, S = (prompt == special.padding).sum(1), prompt.shape[1]
            columns = torch.arange(S, device=prompt.device) - padding[:, None]
            prompt = prompt.gather(1, columns % S)  # now all end in the last column
        caches = [KVCache() for _ in self.layers]
        x = self.hidden(prompt, caches, padding=padding)
        return self.output(x[:, -1]), TextState(caches, padding)

    def step(self, token: Int[Tensor, " N"], state: "TextState") -> tuple[Float[Tensor, "N V"], "TextState"]:
        """Read one token for each row: logits of the next, and the new state."""
        caches = [copy(cache) for cache in state.caches]  # the old state stays
        x = self.hidden(token[:, None], caches, padding=state.padding)
        return self.output(x[:, 0]), TextState(caches, state.padding)

    def loss(self, batch: Batch, smoothing: float = 0.0) -> Loss:
        """The cross-entropy of the targets; a language model reads no sources."""
        target, padding = batch.target_output, self.config.special.padding
        logits, smoothing = self(batch.target_input), smoothing * self.training
        nats = token_losses(logits, target, smoothing, padding)
        return Loss(nats.sum(), (target != padding).sum())


@dataclass(frozen=True, eq=False)
class TextState:
    """Keys and values of the tokens read so far, one cache for each layer."""

    caches: list[KVCache]
    padding: Int[Tensor, " N"] | None = None  # columns before each row's first token


@dataclass(frozen=True, eq=False)
class PromptMemory(Memory):
    """A source as a language model has read it: each layer's keys and values."""

    caches: list[KVCache]


@dataclass(frozen=True, eq=False)
class PromptState(State):
    """Source and target so far, as keys and values of every layer."""

    caches: list[KVCache]


class OneStack(Seq2Seq):
    """Language model as a translator: reads the source, continues with the target.

    The first half of the positions belongs to the source, the second to the target.
    Source: Liu et al. (2018), section 4.2.3.
    """

    config: Any
    model: Any
    max_source_length: int
    max_target_length: int

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        config: Any = model.config
        self.config, self.model, special = config, model, config.special
        if special.bos is None or special.padding < 0:  # such as GPT-2's
            raise ValueError(f"a translator needs BOS and PAD, not {special}")
        half = config.max_length // 2
        self.max_source_length, self.max_target_length = half, config.max_length - half

    @property
    def output(self) -> nn.Linear:  # type: ignore[override]
        """The projection to logits."""
        return self.model.output

    def encode(self, source: Int[Tensor, "B S"]) -> PromptMemory:
        """Read the source."""
        padding = self.config.special.padding
        check_tokens(source, self.config.vocab_size, "source", padding)
        if source.shape[1] > (most := self.max_source_length):
            raise ValueError(f"{source.shape[1]} source tokens, at most {most}")
        caches = [KVCache() for _ in self.model.layers]
        outputs = self.model.hidden(source, caches)
        return PromptMemory(outputs, source != padding, caches=caches)

    def read_on(self, target: Tensor, caches: list[KVCache], memory: Any) -> Tensor:
        """Hidden states of more target tokens; their mask hides source padding."""
        B, S = memory.mask.shape
        written = len(caches[0]) - S
        if (T := written + target.shape[1]) > (most := self.max_target_length):
            raise ValueError(f"{T} target tokens, at most {most}")
        mask = F.pad(memory.mask, (0, T), value=True)
        mask = mask.repeat_interleave(len(target) // max(B, 1), 0)[:, None, None]
        first = self.max_source_length + written
        return self.model.hidden(target, caches, first=first, mask=mask)

    def hidden(self, target: Int[Tensor, "N T"], memory: Any) -> Float[Tensor, "N T D"]:
        """Hidden states of the target."""
        check_tokens(target, self.config.vocab_size, "target", self.config.special.padding)
        rows = torch.arange(len(memory.mask), device=target.device)
        rows = rows.repeat_interleave(len(target) // max(len(rows), 1))
        return self.read_on(target, reorder(memory.caches, rows), memory)

    def start(self, source: Int[Tensor, "B S"]) -> PromptState:
        """Read the source."""
        memory = self.encode(source)
        return PromptState(Memory(memory.outputs, memory.mask), memory.caches)

    def step(self, token: Int[Tensor, " N"], state: PromptState) -> tuple[Float[Tensor, "N V"], PromptState]:
        """Read one token for each row: logits of the next, and the new state."""
        caches = [copy(cache) for cache in state.caches]
        x = self.read_on(token[:, None], caches, state.memory)
        return self.output(x[:, 0]), PromptState(state.memory, caches)


class GPTTranslator(OneStack):
    """GPT as a translator, built from a configuration."""

    def __init__(self, config: GPTConfig) -> None:
        super().__init__(GPT(config))
