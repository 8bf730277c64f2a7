"""The Transformer: an encoder and a decoder made of attention.

Chapter: The Transformer.
"""

__all__ = [
    "TransformerConfig",
    "Layer",
    "EncoderLayer",
    "DecoderLayer",
    "Stack",
    "Encoder",
    "Decoder",
    "Transformer",
    "AttentionWeights",
    "TransformerMemory",
    "TransformerState",
]

import copy
import math
from dataclasses import dataclass
from typing import Any, Literal

from jaxtyping import Float, Int
from torch import Tensor, nn

from transformer_lib.data.batching import SpecialIds
from transformer_lib.models.layers import FeedForward, LayerNorm, LearnedPositions, SinusoidalPositions
from transformer_lib.models.multi_head import KVCache, Mask, MultiHeadAttention, record_attention
from transformer_lib.models.seq2seq import Memory, Seq2Seq, State, check_tokens, embedding
from transformer_lib.settings import Positive, Probability, Size, settings


@settings
class TransformerConfig:
    """The sizes of a Transformer; the defaults are those of the paper's base model.

    Source: Vaswani et al. (2017), table 3.
    """

    source_vocab_size: Size = 37_000
    target_vocab_size: Size = 37_000
    d_model: Size = 512
    n_heads: Size = 8
    n_encoder_layers: Size = 6
    n_decoder_layers: Size = 6
    d_ff: Size = 2048
    dropout: Probability = 0.1  # of the embeddings and of each sublayer's output
    attention_dropout: Probability = 0.0  # of the weights; none in the paper
    activation_dropout: Probability = 0.0  # after the activation; none in the paper
    activation: Literal["relu", "gelu", "swish", "gelu_tanh"] = "relu"
    norm_first: bool = False  # pre-norm; the paper has post-norm
    final_norm: bool | None = None  # after the last layer; None: if pre-norm
    positions: Literal["sinusoidal", "learned"] = "sinusoidal"
    max_length: Size = 1024  # of a sequence, in tokens
    # the output's table: shared with target and source, with the target, or its own
    tie_embeddings: Literal["all", "target", "none"] = "all"
    d_key: Size | None = None  # of one head; None: d_model / n_heads
    d_value: Size | None = None
    bias: bool = True  # in the attention projections; none in the paper
    eps: Positive = 1e-5  # of the norms
    output_bias: bool = False  # a bias for each token; none in the paper
    special: SpecialIds = SpecialIds()  # ids of padding, beginning and end

    def __post_init__(self) -> None:
        both = self.source_vocab_size, self.target_vocab_size
        if self.tie_embeddings == "all" and both[0] != both[1]:
            raise ValueError(f"tie_embeddings=all needs one vocabulary, not {both}")
        if self.special.bos is None or self.special.padding < 0:
            raise ValueError(f"a translator needs BOS and PAD, not {self.special}")
        read = self.special.padding, self.special.bos, *self.special.eos
        for ids, size in ((read, min(both)), (self.special.forbidden, both[1])):
            if max(ids, default=0) >= max(3, size):
                raise ValueError(f"special ids outside of a vocabulary of {size}: {self.special}")

    @classmethod
    def tiny(cls, **changes: Any) -> "TransformerConfig":
        """A small model for data such as Multi30k: 4 + 4 layers, 128 wide."""
        sizes = dict(d_model=128, n_heads=4, d_ff=256, dropout=0.3)
        sizes |= dict(source_vocab_size=10_000, target_vocab_size=10_000)
        return cls(**sizes | dict(n_encoder_layers=4, n_decoder_layers=4) | changes)

    @classmethod
    def base(cls, **changes: Any) -> "TransformerConfig":
        """The base model of the paper."""
        return cls(**changes)

    @classmethod
    def big(cls, **changes: Any) -> "TransformerConfig":
        """The big model of the paper."""
        sizes = dict(d_model=1024, n_heads=16, d_ff=4096, dropout=0.3)
        return cls(**sizes | changes)


class Layer(nn.Module):
    """The common part of both layers: sublayers inside residual connections."""

    def __init__(self, c: TransformerConfig, *, cross: bool = False) -> None:
        super().__init__()
        options: dict[str, Any] = {"dropout": c.attention_dropout, "bias": c.bias}
        options |= {"d_key": c.d_key, "d_value": c.d_value}
        self.self_attn = MultiHeadAttention(c.d_model, c.n_heads, **options)
        if cross:
            self.cross_attn = MultiHeadAttention(c.d_model, c.n_heads, **options)
        inside: dict[str, Any] = {"activation": c.activation, "dropout": c.activation_dropout}
        self.feed_forward = FeedForward(c.d_model, c.d_ff, **inside)
        self.norm1 = LayerNorm(c.d_model, eps=c.eps)
        self.norm2 = LayerNorm(c.d_model, eps=c.eps)
        self.dropout, self.norm_first = nn.Dropout(c.dropout), c.norm_first


class EncoderLayer(Layer):
    """Self-attention, then a feed-forward layer.

    Source: Vaswani et al. (2017), section 3.1.
    """

    def forward(self, x: Float[Tensor, "B S D"], mask: Mask = None) -> Float[Tensor, "B S D"]:
        """Attend where the mask is True, then transform each position."""
        drop = self.dropout
        if self.norm_first:
            x = x + drop(self.self_attn(self.norm1(x), mask=mask))
            return x + drop(self.feed_forward(self.norm2(x)))
        x = self.norm1(x + drop(self.self_attn(x, mask=mask)))
        return self.norm2(x + drop(self.feed_forward(x)))


class DecoderLayer(Layer):
    """Causal self-attention, attention to the memory, then a feed-forward layer.

    Source: Vaswani et al. (2017), section 3.1.
    """

    def __init__(self, c: TransformerConfig) -> None:
        super().__init__(c, cross=True)
        self.norm3 = LayerNorm(c.d_model, eps=c.eps)

    def forward(
        self,
        x: Float[Tensor, "N T D"],
        memory: Float[Tensor, "B S D"] | list[Tensor],
        memory_mask: Mask = None,
        cache: KVCache | None = None,
    ) -> Float[Tensor, "N T D"]:
        """Attend to the target so far and the memory, then transform positions."""
        drop = self.dropout
        if self.norm_first:
            x = x + drop(self.self_attn(self.norm1(x), causal=True, cache=cache))
            x = x + drop(self.cross_attn(self.norm2(x), memory, mask=memory_mask))
            return x + drop(self.feed_forward(self.norm3(x)))
        x = self.norm1(x + drop(self.self_attn(x, causal=True, cache=cache)))
        x = self.norm2(x + drop(self.cross_attn(x, memory, mask=memory_mask)))
        return self.norm3(x + drop(self.feed_forward(x)))


class Stack(nn.Module):
    """Layers one after the other, and a last norm if they are pre-norm."""

    def __init__(self, c: TransformerConfig, layers: list[Layer]) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layers)
        final_norm = c.norm_first if c.final_norm is None else c.final_norm
        self.norm = LayerNorm(c.d_model, eps=c.eps) if final_norm else nn.Identity()


class Encoder(Stack):
    """A stack of encoder layers."""

    def __init__(self, c: TransformerConfig) -> None:
        super().__init__(c, [EncoderLayer(c) for _ in range(c.n_encoder_layers)])

    def forward(self, x: Float[Tensor, "B S D"], mask: Mask = None) -> Float[Tensor, "B S D"]:
        """Pass vectors through all layers."""
        for layer in self.layers:
            x = layer(x, mask)
        return self.norm(x)


class Decoder(Stack):
    """A stack of decoder layers, which all attend to the same memory."""

    def __init__(self, c: TransformerConfig) -> None:
        super().__init__(c, [DecoderLayer(c) for _ in range(c.n_decoder_layers)])

    def forward(
        self,
        x: Float[Tensor, "N T D"],
        memory: Float[Tensor, "B S D"] | list[list[Tensor]],
        memory_mask: Mask = None,
        caches: list[KVCache] | None = None,
    ) -> Float[Tensor, "N T D"]:
        """Pass vectors through all layers.

        A memory may be each layer's keys and values.
        """
        for i, layer in enumerate(self.layers):
            source = memory if isinstance(memory, Tensor) else memory[i]
            x = layer(x, source, memory_mask, caches[i] if caches else None)
        return self.norm(x)


class Transformer(Seq2Seq):
    """An encoder for the source and a decoder for the target, made of attention.

    Source: Vaswani et al. (2017).
    """

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        c = self.config = config
        self.target_embedding = embedding(c.target_vocab_size, c.d_model, c.special.padding)
        self.source_embedding = self.target_embedding
        if c.tie_embeddings != "all":
            self.source_embedding = embedding(c.source_vocab_size, c.d_model, c.special.padding)
        learned = c.positions == "learned"
        positions = LearnedPositions if learned else SinusoidalPositions
        self.source_positions = positions(c.d_model, c.max_length)
        self.target_positions = positions(c.d_model, c.max_length)
        self.max_source_length = self.max_target_length = c.max_length
        self.dropout, self.scale = nn.Dropout(c.dropout), math.sqrt(c.d_model)
        self.encoder, self.decoder = Encoder(c), Decoder(c)
        self.output = nn.Linear(c.d_model, c.target_vocab_size, bias=c.output_bias)
        if c.tie_embeddings == "none":
            nn.init.normal_(self.output.weight, std=c.d_model**-0.5)
        else:
            self.output.weight = self.target_embedding.weight

    def encode(self, source: Int[Tensor, "B S"]) -> Memory:
        """Check the source tokens and encode them; padding is masked."""
        padding = self.config.special.padding
        check_tokens(source, self.config.source_vocab_size, "source", padding)
        mask = source != padding
        x = self.source_positions(self.source_embedding(source) * self.scale)
        x = self.encoder(self.dropout(x), mask[:, None, None])
        return Memory(x, mask)

    def hidden(self, target: Int[Tensor, "N T"], memory: Memory) -> Float[Tensor, "N T D"]:
        """The decoder's last vector after each target token."""
        check_tokens(target, self.config.target_vocab_size, "target", self.config.special.padding)
        mask = memory.mask[:, None, None]
        x = self.target_positions(self.target_embedding(target) * self.scale)
        return self.decoder(self.dropout(x), memory.outputs, mask)

    def attention(self, source: Int[Tensor, "B S"], target: Int[Tensor, "B T"]) -> "AttentionWeights":
        """The weights of every head while the model reads source and target."""
        with record_attention(self) as maps:
            self(source, target)
        kinds: dict[str, list[Tensor]] = {"encoder": [], "decoder": [], "cross": []}
        for name, (weights,) in maps.items():
            stack, *_, part = name.split(".")
            kinds["cross" if part == "cross_attn" else stack].append(weights)
        return AttentionWeights(**kinds)

    def align(self, source: Int[Tensor, "B S"], target: Int[Tensor, "B T"]) -> Float[Tensor, "B T S"]:
        """The last layer's mean attention to the source.

        Row t predicted token t + 1.
        """
        return self.attention(source, target).cross[-1].mean(1)

    def start(self, source: Int[Tensor, "B S"]) -> "TransformerState":
        """Encode the source; nothing is written yet."""
        x = self.encode(source)
        layers: Any = self.decoder.layers
        projected = [layer.cross_attn.project(x.outputs, 1) for layer in layers]
        memory = TransformerMemory(x.outputs, x.mask, layers=projected)
        return TransformerState(memory, [KVCache() for _ in layers])

    def step(
        self, token: Int[Tensor, " N"], state: "TransformerState"
    ) -> tuple[Float[Tensor, "N V"], "TransformerState"]:
        """Read a token in each row: logits of the next, and a new state.

        The old state stays as it is.
        """
        memory, caches = state.memory, list(map(copy.copy, state.caches))
        x = self.target_embedding(token[:, None]) * self.scale
        x = self.dropout(self.target_positions(x, len(caches[0])))
        x = self.decoder(x, memory.layers, memory.mask[:, None, None], caches)
        return self.output(x[:, 0]), TransformerState(memory, caches)


@dataclass(frozen=True, eq=False)
class AttentionWeights:
    """The weights of every head, one tensor for each layer."""

    encoder: list[Float[Tensor, "B H S S"]]
    decoder: list[Float[Tensor, "B H T T"]]
    cross: list[Float[Tensor, "B H T S"]]


@dataclass(frozen=True, eq=False)
class TransformerMemory(Memory):
    """The encoder's output, and each decoder layer's keys and values of it."""

    layers: list[list[Tensor]] | None = None


@dataclass(frozen=True, eq=False)
class TransformerState(State):
    """A decoder between two steps: the KV cache of each layer."""

    memory: TransformerMemory
    caches: list[KVCache]
