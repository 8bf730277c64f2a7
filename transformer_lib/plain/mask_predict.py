"""Mask-predict: write all words of a translation at once, hide those that are least certain, and write these again.

Source: Ghazvininejad et al. (2019).
"""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

__all__ = ["MaskPredict", "hide", "mask_predict", "mask_predict_loss"]

PAD, MASK = 0, 3
LONGEST = 64  # tokens of a sentence


class MaskPredict(nn.Module):
    """A Transformer whose decoder has no causal mask, so that every word sees all others, before and behind it."""

    def __init__(
        self,
        vocab_size: int,
        d_model: int = 128,
        n_heads: int = 4,
        d_ff: int = 384,
        n_layers: int = 4,
        dropout: float = 0.2,
    ) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocab_size, d_model)
        self.position = nn.Embedding(LONGEST, d_model)
        for table in (self.embedding, self.position):
            nn.init.normal_(table.weight, std=d_model**-0.5)
        sizes = (d_model, n_heads, d_ff, dropout)
        self.encoder = nn.ModuleList(
            nn.TransformerEncoderLayer(*sizes, batch_first=True, norm_first=True) for _ in range(n_layers)
        )
        self.decoder = nn.ModuleList(
            nn.TransformerDecoderLayer(*sizes, batch_first=True, norm_first=True) for _ in range(n_layers)
        )
        self.encoder_norm, self.decoder_norm = nn.LayerNorm(d_model), nn.LayerNorm(d_model)
        self.length = nn.Linear(d_model, LONGEST)
        self.dropout = nn.Dropout(dropout)

    def embed(self, tokens: Tensor) -> Tensor:
        """Words and their positions (B, T) as vectors (B, T, D)."""
        positions = torch.arange(tokens.shape[1], device=tokens.device)
        return self.dropout(
            (self.embedding(tokens) + self.position(positions)) * math.sqrt(self.embedding.embedding_dim)
        )

    def read(self, source: Tensor) -> tuple[Tensor, Tensor]:
        """What the encoder makes of a source (B, S): its memory (B, S, D), and logits of the target's length (B, L)."""
        x, pad = self.embed(source), source == PAD
        for layer in self.encoder:
            x = layer(x, src_key_padding_mask=pad)
        memory = self.encoder_norm(x)
        words = ~pad[..., None]
        return memory, self.length((memory * words).sum(1) / words.sum(1))

    def write(self, memory: Tensor, source: Tensor, target: Tensor) -> Tensor:
        """Logits (B, T, V) of the word at each place of a target (B, T), some of whose words are hidden."""
        x, pad = self.embed(target), target == PAD
        for layer in self.decoder:
            x = layer(x, memory, tgt_key_padding_mask=pad, memory_key_padding_mask=source == PAD)
        return self.decoder_norm(x) @ self.embedding.weight.T

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        """Logits (B, T, V) of the word at each place of the target."""
        return self.write(self.read(source)[0], source, target)


def hide(target: Tensor) -> Tensor:
    """The target with some of its words hidden: one, or all, or anything between, each number as likely."""
    inside = target != PAD
    n = inside.sum(1, keepdim=True)
    n_hidden = 1 + (torch.rand(n.shape, device=target.device) * n).long()
    order = torch.rand(target.shape, device=target.device).masked_fill(~inside, 2.0).argsort(1).argsort(1)
    return target.masked_fill(inside & (order < n_hidden), MASK)


def mask_predict_loss(
    model: MaskPredict, source: Tensor, target: Tensor, hidden: Tensor, smoothing: float = 0.1
) -> Tensor:
    """Cross-entropy of the hidden words, and a tenth of the length's."""
    memory, lengths = model.read(source)
    asked = hidden == MASK
    words = F.cross_entropy(model.write(memory, source, hidden)[asked], target[asked], label_smoothing=smoothing)
    return words + 0.1 * F.cross_entropy(lengths, (target != PAD).sum(1))


@torch.no_grad()
def mask_predict(model: MaskPredict, source: Tensor, steps: int, n_lengths: int = 5) -> Tensor:
    """Translations (B, T), each the most certain of several lengths (B, S)."""
    memory, lengths = model.read(source)
    length = lengths[:, 1:].topk(n_lengths).indices.flatten() + 1  # (B * n), no sentence is empty
    memory, source = (x.repeat_interleave(n_lengths, dim=0) for x in (memory, source))
    inside = torch.arange(int(length.max()), device=source.device) < length[:, None]  # (B * n, T)
    tokens = torch.where(inside, MASK, PAD)
    certainty = torch.zeros(tokens.shape, device=source.device)
    for step in range(steps):
        hidden = tokens == MASK
        logits = model.write(memory, source, tokens).float()
        logits[..., : MASK + 1] = -torch.inf  # padding, beginning, end and mask are no words
        best, words = logits.log_softmax(-1).max(-1)
        tokens = torch.where(hidden, words, tokens)
        certainty = torch.where(hidden, best, certainty)
        if step + 1 < steps:  # hide the least certain again, fewer each time
            n_hidden = length * (steps - 1 - step) // steps
            order = certainty.masked_fill(~inside, torch.inf).argsort(1).argsort(1)
            tokens = tokens.masked_fill(order < n_hidden[:, None], MASK)
    score = certainty.masked_fill(~inside, 0).sum(1) / length
    row = score.view(-1, n_lengths).argmax(1) + torch.arange(0, len(score), n_lengths, device=source.device)
    return tokens[row]
