"""BERT: a Transformer encoder that fills in masked words, and a classifier on top of it."""

__all__ = ["BertConfig", "Bert", "mask_tokens", "BertClassifier"]

from typing import Any, Literal

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from transformer_lib.data.batching import Batch
from transformer_lib.data.tokenizer import UNK
from transformer_lib.models.layers import ACTIVATIONS, LayerNorm
from transformer_lib.models.loss import Loss
from transformer_lib.models.seq2seq import SpecialIds, check_tokens, token_losses
from transformer_lib.models.transformer import Encoder, TransformerConfig
from transformer_lib.settings import Positive, Probability, Size, settings


@settings
class BertConfig:
    """Sizes of a BERT; the defaults are those of ``bert-base-uncased``.

    Source: Devlin et al. (2019), section 3.
    """

    vocab_size: Size = 30_522  # the mask token included
    d_model: Size = 768
    n_heads: Size = 12
    n_layers: Size = 12
    d_ff: Size = 3072
    dropout: Probability = 0.1  # of the embeddings and of each sublayer's output
    attention_dropout: Probability = 0.1
    activation: Literal["relu", "gelu", "gelu_tanh", "swish"] = "gelu"
    max_length: Size = 512
    n_segments: Size = 2  # kinds of segments, such as first and second sentence
    eps: Positive = 1e-12  # of the norms
    special: SpecialIds = SpecialIds()  # the id of padding

    def encoder(self) -> TransformerConfig:
        """The same sizes, for the Transformer's encoder."""
        same = "d_model n_heads d_ff dropout attention_dropout activation eps"
        sizes = {name: getattr(self, name) for name in same.split()}
        V = self.vocab_size
        return TransformerConfig(V, V, n_encoder_layers=self.n_layers, **sizes)


class Bert(nn.Module):
    """Encoder that predicts, at every position, the word that belongs there.

    Example:
        >>> model = Bert(BertConfig(20, d_model=8, n_heads=2, n_layers=1, d_ff=16))
        >>> model(torch.tensor([[1, 7, 19, 8, 2]])).shape
        torch.Size([1, 5, 20])

    Source: Devlin et al. (2019), section 3.
    """

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        c, D = config, config.d_model
        self.config = c
        padding = None if c.special.padding < 0 else c.special.padding
        self.token_embedding = nn.Embedding(c.vocab_size, D, padding_idx=padding)
        self.segment_embedding = nn.Embedding(c.n_segments, D)
        self.positions = nn.Embedding(c.max_length, D)
        self.norm, self.dropout = LayerNorm(D, eps=c.eps), nn.Dropout(c.dropout)
        self.encoder = Encoder(c.encoder())
        # the upper part
        self.transform, self.activation = nn.Linear(D, D), ACTIVATIONS[c.activation]
        self.transform_norm = LayerNorm(D, eps=c.eps)
        self.output = nn.Linear(D, c.vocab_size)
        for table in (self.token_embedding, self.segment_embedding, self.positions):
            nn.init.normal_(table.weight, std=D**-0.5)
        self.output.weight = self.token_embedding.weight
        nn.init.zeros_(self.output.bias)

    def encode(
        self,
        tokens: Int[Tensor, "B S"],
        segments: Int[Tensor, "B S"] | None = None,
        mask: Bool[Tensor, "#B #H #S #S"] | None = None,
    ) -> Float[Tensor, "B S D"]:
        """One vector for each position, made from what the mask lets it see.

        Args:
            segments: segment of each token; None: the first.
            mask: True where a position may attend; None: everywhere but to padding.
        """
        padding = self.config.special.padding
        check_tokens(tokens, self.config.vocab_size, "tokens", padding)
        if (S := tokens.shape[1]) > self.config.max_length:
            raise ValueError(f"{S} tokens, max_length={self.config.max_length}")
        positions = torch.arange(S, device=tokens.device)
        segments = torch.zeros_like(tokens) if segments is None else segments
        check_tokens(segments, self.config.n_segments, "segments", -1)
        x = self.token_embedding(tokens) + self.segment_embedding(segments)
        x = self.dropout(self.norm(x + self.positions(positions)))
        mask = (tokens != padding)[:, None, None] if mask is None else mask
        return self.encoder(x, mask)

    def logits(self, x: Float[Tensor, "*B D"]) -> Float[Tensor, "*B V"]:
        """Logits of every word, from vectors of ``encode``."""
        return self.output(self.transform_norm(self.activation(self.transform(x))))

    def forward(
        self,
        tokens: Int[Tensor, "B S"],
        segments: Int[Tensor, "B S"] | None = None,
        mask: Bool[Tensor, "#B #H #S #S"] | None = None,
    ) -> Float[Tensor, "B S V"]:
        """Logits of every word at every position; see ``encode``."""
        return self.logits(self.encode(tokens, segments, mask))

    def loss(self, batch: Batch, smoothing: float = 0.0) -> Loss:
        """The cross-entropy of the words that were chosen in the source.

        ``target_output`` holds them at their positions, and padding elsewhere.
        """
        target, padding = batch.target_output, self.config.special.padding
        logits, smoothing = self(batch.source), smoothing * self.training
        nats = token_losses(logits, target, smoothing, padding)
        return Loss(nats.sum(), (target != padding).sum())


def mask_tokens(
    tokens: Int[Tensor, "B S"],
    mask_token: int,
    *,
    words: range | None = None,
    share: float = 0.15,
    rng: torch.Generator | None = None,
) -> tuple[Int[Tensor, "B S"], Bool[Tensor, "B S"]]:
    """Choose words to predict, and hide 80 % of them, swap 10 %, leave 10 %.

    Returns the tokens to read, and True where a word was chosen.
    Source: Devlin et al. (2019), section 3.1.

    Args:
        words: the ids that are no special tokens; None: from 4 up to the mask token,
            as here. In ``bert-base-uncased``: 999 to 30,521.

    Example:
        >>> rng = torch.Generator().manual_seed(0)
        >>> row = torch.tensor([[1, 5, 6, 7, 2]])
        >>> hidden, chosen = mask_tokens(row, 9, share=0.99, rng=rng)
        >>> hidden.tolist(), chosen[0].tolist()
        ([[1, 9, 6, 9, 2]], [False, True, True, True, False])
    """
    if words is None and (tokens > mask_token).any():
        raise ValueError(f"there are ids above {mask_token=}: say which ids are words")
    words = range(UNK + 1, mask_token) if words is None else words
    options: dict[str, Any] = {"generator": rng, "device": tokens.device}
    known = (tokens >= words.start) & (tokens < words.stop)
    chosen = (torch.rand(tokens.shape, **options) < share) & known  # 15 %
    dice = torch.rand(tokens.shape, **options)
    other = torch.randint(words.start, words.stop, tokens.shape, **options)
    hidden = tokens.masked_fill(chosen & (dice < 0.8), mask_token)  # 80 % of these
    return torch.where(chosen & (dice >= 0.9), other, hidden), chosen  # and 10 %


class BertClassifier(nn.Module):
    """Encoder that classifies a sentence, or a pair, by its first position.

    Example:
        >>> bert = Bert(BertConfig(20, d_model=8, n_heads=2, n_layers=1, d_ff=16))
        >>> BertClassifier(bert, 2)(torch.tensor([[1, 7, 19, 8, 2]])).shape
        torch.Size([1, 2])

    Source: Devlin et al. (2019), section 4.
    """

    def __init__(self, bert: Bert, n_classes: int) -> None:
        super().__init__()
        D = bert.config.d_model
        self.bert = bert
        self.pooler, self.dropout = nn.Linear(D, D), bert.dropout
        self.classifier = nn.Linear(D, n_classes)

    def forward(self, tokens: Int[Tensor, "B S"], segments: Int[Tensor, "B S"] | None = None) -> Float[Tensor, "B C"]:
        """Logits of every class; see ``Bert.encode``."""
        first = self.bert.encode(tokens, segments)[:, 0]
        return self.classifier(self.dropout(self.pooler(first).tanh()))
