"""Latent attention for If-Then programs: one attention finds the words that decide, and these point to the positions
that are read.

``transformer_lib.plain.latent_attention`` is the same model, on word vectors, as its chapter builds it.
"""

__all__ = ["LatentWeights", "PlainAttention", "LatentAttention", "IfThenConfig", "read_both_ways", "IfThenModel"]

from dataclasses import dataclass
from typing import Annotated, Any, Literal

import torch
from jaxtyping import Bool, Float, Int
from pydantic import Field
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from transformer_lib.data.recipes import UNSEEN, RecipeBatch
from transformer_lib.models.attention import masked_softmax
from transformer_lib.models.loss import Loss
from transformer_lib.models.seq2seq import check_tokens, embedding, wide
from transformer_lib.settings import Probability, Size, settings


@dataclass(frozen=True, eq=False)
class LatentWeights:
    """The weights of each word, for every head, and what they are made of."""

    weights: Float[Tensor, "B H S"]
    latent: Float[Tensor, "B H S"] | None = None  # how much each word decides
    active: Float[Tensor, "B H S S"] | None = None  # a column per word


class PlainAttention(nn.Module):
    """Attention with one learned query for each head.

    Source: Chen et al. (2016), section 3, the first step.
    """

    def __init__(self, d_model: int, n_heads: int) -> None:
        super().__init__()
        query = torch.empty(n_heads, d_model).normal_(std=d_model**-0.5)
        self.query = nn.Parameter(query)

    def forward(self, words: Float[Tensor, "B S D"], mask: Bool[Tensor, "B S"]) -> LatentWeights:
        """The softmax of the words' scores."""
        return LatentWeights(masked_softmax(self.query @ words.mT, mask[:, None]))


class LatentAttention(PlainAttention):
    """Attention in two steps: which words decide, and where they point to.

    Source: Chen et al. (2016), section 3.
    """

    def __init__(self, d_model: int, n_heads: int, max_length: int) -> None:
        super().__init__(d_model, n_heads)
        positions = torch.empty(n_heads, max_length, d_model)
        self.positions = nn.Parameter(positions.normal_(std=d_model**-0.5))

    def forward(self, words: Float[Tensor, "B S D"], mask: Bool[Tensor, "B S"]) -> LatentWeights:
        """Weights over the words; the columns of the active weights sum to one."""
        if (S := words.shape[1]) > (most := self.positions.shape[1]):
            raise ValueError(f"{S} tokens, max_length={most}")
        latent = super().forward(words, mask).weights  # (B, H, S)
        positions = self.positions[:, :S]  # (H, K, D)
        scores = torch.einsum("bsd,hkd->bhsk", words, positions)
        active = masked_softmax(scores, mask[:, None, None]).mT  # (B, H, K, S)
        return LatentWeights((active @ latent[..., None])[..., 0], latent, active)


@settings
class IfThenConfig:
    """The sizes and the parts of an ``IfThenModel``."""

    vocab_size: Size
    n_labels: Annotated[tuple[Size, ...], Field(min_length=1)]  # of each head
    encoder: Literal["dictionary", "lstm"] = "lstm"
    attention: Literal["latent", "plain", "none"] = "latent"
    d_model: Size = 64  # width of the word vectors
    d_hidden: Size = 128  # of the LSTM, half for each direction
    max_length: Size = 64  # in tokens, EOS included
    dropout: Probability = 0.3

    def __post_init__(self) -> None:
        if self.encoder == "lstm" and self.d_hidden % 2:
            raise ValueError(f"d_hidden={self.d_hidden} must be even: half is for each direction")


def read_both_ways(
    lstm: nn.LSTM, inputs: Float[Tensor, "B S D"], mask: Bool[Tensor, "B S"]
) -> tuple[Float[Tensor, "B S H"], Float[Tensor, "B H"]]:
    """Outputs of a bidirectional LSTM over a padded batch; its last states."""
    packed, (final, _) = lstm(pack_padded_sequence(inputs, mask.sum(1).cpu(), batch_first=True, enforce_sorted=False))
    outputs, _ = pad_packed_sequence(packed, batch_first=True, total_length=inputs.shape[1])
    return outputs, torch.cat([*final], -1)


class IfThenModel(nn.Module):
    """A model that reads a description and scores each part of its program.

    Source: Chen et al. (2016), sections 3 and 4.
    """

    def __init__(self, config: IfThenConfig) -> None:
        super().__init__()
        c = self.config = config
        D, heads = c.d_model, len(c.n_labels)
        self.embedding = embedding(c.vocab_size, D)
        self.lstm = self.attention = None
        if c.encoder == "lstm":
            D, width = c.d_hidden, c.d_hidden // 2
            self.lstm = nn.LSTM(c.d_model, width, batch_first=True, bidirectional=True)
        if c.attention == "plain":
            self.attention = PlainAttention(D, heads)
        if c.attention == "latent":
            self.attention = LatentAttention(D, heads, c.max_length)
        self.classifiers = nn.ModuleList(nn.Linear(D, n) for n in c.n_labels)
        self.dropout = nn.Dropout(c.dropout)

    def read(self, tokens: Int[Tensor, "B S"]) -> tuple[Float[Tensor, "B H D"], LatentWeights | None]:
        """What each head reads, and the weights of the words."""
        check_tokens(tokens, self.config.vocab_size, "tokens")
        mask: Any = tokens != self.embedding.padding_idx
        words = self.dropout(self.embedding(tokens)) * mask[:, :, None]
        summary = words.sum(1)
        if self.lstm is not None:
            both = read_both_ways(self.lstm, words, mask)
            words, summary = (self.dropout(x) for x in both)
        if self.attention is None:
            return summary[:, None].expand(-1, len(self.classifiers), -1), None
        seen = self.attention(words, mask)
        return F.normalize(seen.weights, dim=-1) @ words, seen

    def forward(self, tokens: Int[Tensor, "B S"]) -> tuple[Float[Tensor, "B _"], ...]:
        """The logits of each head."""
        outputs, _ = self.read(tokens)
        return tuple(f(outputs[:, i]) for i, f in enumerate(self.classifiers))

    def loss(self, batch: RecipeBatch) -> Loss:
        """The cross-entropy of the labels, without unseen ones, and their number."""
        pairs = zip(self(batch.tokens), batch.labels.unbind(1), strict=True)
        options: dict[str, Any] = {"ignore_index": UNSEEN, "reduction": "sum"}
        nats = [F.cross_entropy(wide(logits), one, **options) for logits, one in pairs]
        return Loss(torch.stack(nats).sum(), (batch.labels != UNSEEN).sum())
