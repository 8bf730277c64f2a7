"""Translators between English and German that read and write text as people do.

A Transformer of at most 3 million parameters learns from the 29,000 raw sentence
pairs of Multi30k: cased, with spaces and punctuation, in subwords over bytes. Each
pair is read twice in every epoch, once as it stands and once with noise in its source
and with BPE-dropout, and the two predictions are pulled together (R-Drop).

    python benchmarks/real_translators.py train --source en --target de --output runs/a
    python benchmarks/real_translators.py train --output runs/a    # resumes
    python benchmarks/real_translators.py decay --start runs/a --output runs/b --epochs 10

The learning rate warms up and then stays where it is, so that a run may go on for as
long as one likes; ``decay`` branches off and brings it down to zero. What comes after,
``score_translators.py`` does: it chooses how to decode, exports, and scores.
"""

import argparse
import json
import math
import os
import random
import re
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.rnn import pad_sequence

from transformer_lib.data.batching import batches, encode_pairs
from transformer_lib.data.captions import Pair
from transformer_lib.data.files import write_atomically
from transformer_lib.data.multi30k import load_multi30k, moses_tokenize
from transformer_lib.data.tokenizer import BOS, EOS, PAD, Tokenizer
from transformer_lib.decoding.search import beam_search
from transformer_lib.metrics import bleu
from transformer_lib.models.multi_head import MultiHeadAttention
from transformer_lib.models.sublayers import FeedForward, LayerNorm
from transformer_lib.models.transformer import Transformer, TransformerConfig
from transformer_lib.training.checkpoints import load_tensors, save_tensors
from transformer_lib.training.loop import evaluate_loss

# ------------------------------------------------------------------ text and noise


def clean(text: str) -> str:
    """The text with single spaces between its words and none at its ends."""
    return " ".join(text.split())


class BpeDropout:
    """Cuts words into subwords in many ways: each possible merge is skipped by chance.

    A word has ``n_variants`` random cuts, each made when it is first asked for and
    from a seed of its own, so that the same random numbers give the same ids however
    often a training was interrupted.

    Args:
        tokenizer: over bytes; its merges are the ones skipped.
        dropout: probability of skipping a merge.
        n_variants: different cuts that a word may have.
        seed: of the cuts.

    Source: Provilkov et al. (2020), section 3.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        dropout: float = 0.1,
        n_variants: int = 32,
        seed: int = 0,
    ) -> None:
        if tokenizer.level != "bpe":
            raise ValueError(f"level={tokenizer.level!r} has no merges: it must be 'bpe'")
        if not 0 <= dropout <= 1:
            raise ValueError(f"dropout={dropout} must be a probability")
        self.tokenizer, self.dropout = tokenizer, dropout
        self.n_variants, self.seed = n_variants, seed
        self._ranks = {pair: rank for rank, pair in enumerate(tokenizer.merges)}
        self._known: dict[tuple[str, int], list[int]] = {}

    def cut(self, word: str, chance: random.Random) -> list[str]:
        """Cut one word, given in byte letters.

        Args:
            word: with the letter that stands for the space before it.
            chance: decides which merges are skipped.

        Returns:
            The pieces, which joined are the word.
        """
        pieces = list(word)
        while len(pieces) > 1:
            options = [
                (self._ranks[pair], i)
                for i, pair in enumerate(pairwise(pieces))
                if pair in self._ranks and chance.random() >= self.dropout
            ]
            if not options:
                break
            _, i = min(options)
            pieces[i : i + 2] = [pieces[i] + pieces[i + 1]]
        return pieces

    def encode(self, text: str, chance: random.Random) -> list[int]:
        """The ids of a text, cut by chance.

        Args:
            text: any text.
            chance: picks one of the cuts of each word.

        Returns:
            Ids that decode to the text.
        """
        ids: list[int] = []
        split = self.tokenizer._model.pre_tokenizer.pre_tokenize_str
        for word, _ in split(" " + text if text else ""):
            key = (word, int(chance.random() * self.n_variants))
            if key not in self._known:
                pieces = self.cut(word, random.Random(f"{self.seed} {key[1]} {word}"))
                self._known[key] = [self.tokenizer._ids[piece] for piece in pieces]
            ids += self._known[key]
        return ids


_LETTERS = "abcdefghijklmnopqrstuvwxyz"


def misspell(text: str, chance: random.Random) -> str:
    """Swap, drop, double or replace one letter inside one word of four or more letters.

    Args:
        text: a sentence.
        chance: decides where and how.

    Returns:
        The sentence with one typing error, or unchanged if it has no such word.
    """
    words = [match for match in re.finditer(r"[^\W\d_]{4,}", text)]
    if not words:
        return text
    word = chance.choice(words)
    at = chance.randrange(word.start() + 1, word.end() - 1)  # not the first, not the last
    kind = chance.randrange(4)
    if kind == 0:
        return text[:at] + text[at + 1] + text[at] + text[at + 2 :]
    if kind == 1:
        return text[:at] + text[at + 1 :]
    if kind == 2:
        return text[:at] + text[at] + text[at:]
    return text[:at] + chance.choice(_LETTERS) + text[at + 1 :]


@dataclass(frozen=True)
class NoiseConfig:
    """How often a training sentence is changed.

    The first three concern the source alone, in its noisy reading; the target stays a
    well-formed sentence. The last two change source and target together, in both
    readings.

    Args:
        capital: probability that the source loses its first capital; a fourth of it
            that it loses all, and a tenth of it that it has nothing but capitals.
        full_stop: probability that the source loses its full stop.
        typo: probability of a typing error.
        joined: probability that a second pair follows the first in one line.
        name: probability that "a man" and the like becomes a name, where there is one.
    """

    capital: float = 0.1
    full_stop: float = 0.1
    typo: float = 0.1
    joined: float = 0.03
    name: float = 0.15


def add_noise(text: str, noise: NoiseConfig, chance: random.Random) -> str:
    """The source as somebody in a hurry might type it.

    Args:
        text: a sentence.
        noise: how often to do what.
        chance: decides.

    Returns:
        The sentence, often unchanged.
    """
    if chance.random() < noise.typo:
        text = misspell(text, chance)
    drawn = chance.random()
    if drawn < noise.capital:
        text = text[:1].lower() + text[1:]
    elif drawn < 1.25 * noise.capital:
        text = text.lower()
    elif drawn < 1.35 * noise.capital:
        text = text.upper()
    if chance.random() < noise.full_stop:
        text = text.removesuffix(".").rstrip()
    return text


# English and German forms of the same person, and names that may stand for them.
_PERSONS = (
    (r"\b[Aa] man\b", r"\b[Ee]in(?:en|em)? Mann\b", "m"),
    (r"\b[Aa] boy\b", r"\b(?:[Ee]in Junge|einen Jungen|einem Jungen)\b", "m"),
    (r"\b[Aa] woman\b", r"\b[Ee]iner? Frau\b", "f"),
    (r"\b[Aa] girl\b", r"\b[Ee]in(?:em)? Mädchen\b", "f"),
)
_NAMES = {
    "m": "Peter Paul Thomas David Daniel Michael Martin Max Ben Tom Jan Lukas Omar Ali "
    "Carlos Ivan Hiro Adam Jonas Felix Simon Robert Frank Otto Kevin Noah Leo Samuel",
    "f": "Anna Maria Julia Laura Lisa Sarah Emma Eva Lena Sophie Clara Nina Ida Fatima "
    "Yuki Olga Carmen Ruth Hanna Marie Lucy Alice Jane Mary Linda Helen Sandra Aisha",
}


_ONSETS = "b d f g h j k l m n p r s t v w z br dr fr kr sh st th"
_VOWELS = "a e i o u ai ei ia"


def make_up_name(gender: str, chance: random.Random) -> str:
    """A first name; one in two is invented, so that copying is learned and not a list.

    Args:
        gender: "m" or "f", for the names that exist.
        chance: decides.

    Returns:
        A capitalised word.
    """
    if chance.random() < 0.5:
        return chance.choice(_NAMES[gender].split())
    syllables = [chance.choice(_ONSETS.split()) + chance.choice(_VOWELS.split()) for _ in range(chance.randint(1, 3))]
    return ("".join(syllables) + chance.choice(["", "", "n", "r", "s", "l", "k"])).title()


def insert_name(pair: Pair, source: str, chance: random.Random) -> Pair:
    """Replace a person by a name in both sentences, where just one is there to replace.

    Args:
        pair: English and German in either order.
        source: "en" or "de", the language of ``pair.source``.
        chance: picks the name.

    Returns:
        The pair with a name, or as it was.
    """
    english, german = (pair.source, pair.target) if source == "en" else (pair.target, pair.source)
    for en, de, gender in _PERSONS:
        if len(re.findall(en, english)) == len(re.findall(de, german)) == 1:
            name = make_up_name(gender, chance)
            english, german = re.sub(en, name, english), re.sub(de, name, german)
            break
    return Pair(*((english, german) if source == "en" else (german, english)))


@dataclass(frozen=True)
class Readings:
    """One epoch of training data: two readings of each source, and the target.

    Args:
        plain: ids of the sources as they stand, closed by EOS.
        noisy: ids of the same sources with noise and BPE-dropout.
        targets: ids of the targets between BOS and EOS.
    """

    plain: list[list[int]]
    noisy: list[list[int]]
    targets: list[list[int]]

    def batches(self, max_tokens: int, seed: int, epoch: int) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        """Cut into batches of similar length.

        Args:
            max_tokens: of one reading, padding included.
            seed: of the order.
            epoch: of the order too.

        Yields:
            Plain sources (B x S) and noisy ones (B x S2), and targets (B x T1).
        """
        longer = [max(two, key=len) for two in zip(self.plain, self.noisy, strict=True)]
        examples = list(zip(longer, self.targets, strict=True))
        for batch in batches(examples, max_tokens, seed, epoch):
            views = []
            for rows in (self.plain, self.noisy):
                chosen = [torch.tensor(rows[index]) for index in batch.indices]
                views.append(pad_sequence(chosen, batch_first=True, padding_value=PAD))
            yield views[0], views[1], batch.target


def make_readings(
    pairs: Sequence[Pair],
    source: str,
    bpe: BpeDropout,
    noise: NoiseConfig,
    target_dropout: bool,
    chance: random.Random,
) -> Readings:
    """Prepare one epoch.

    Args:
        pairs: the training pairs.
        source: language of the sources.
        bpe: cuts the noisy sources.
        noise: how often to change what.
        target_dropout: whether the targets are cut by chance as well.
        chance: decides all of it.

    Returns:
        The epoch's data, in the order of ``pairs``.
    """
    changed, noisy = [], []
    for pair in pairs:
        if chance.random() < noise.name:
            pair = insert_name(pair, source, chance)
        if chance.random() < noise.joined:
            other = chance.choice(pairs)
            if len(pair.source) + len(other.source) <= 200:
                source_text = f"{pair.source} {other.source}"
                pair = Pair(source_text, f"{pair.target} {other.target}")
        changed.append(pair)
        text = add_noise(pair.source, noise, chance)
        noisy.append([*bpe.encode(text, chance), EOS])
    tokenizer = bpe.tokenizer
    plain = [[*ids, EOS] for ids in tokenizer.encode_batch([p.source for p in changed])]
    if target_dropout:
        targets = [bpe.encode(pair.target, chance) for pair in changed]
    else:
        targets = tokenizer.encode_batch([pair.target for pair in changed])
    return Readings(plain, noisy, [[BOS, *ids, EOS] for ids in targets])


# ------------------------------------------------------------------ a fast training step


def dropout_mask(shape: Sequence[int], dropout: float, dtype: torch.dtype) -> Tensor:
    """Zeros and ones over (1 - p), drawn from one random byte each.

    The probability is rounded to a multiple of 1/256; the scale fits what is drawn.

    Args:
        shape: of the mask.
        dropout: probability of a zero.
        dtype: of the mask.

    Returns:
        The mask.
    """
    threshold, size = round(256 * dropout), math.prod(shape)
    words = torch.empty((size + 7) // 8, dtype=torch.int64).random_(-(2**63), None)
    kept = words.view(torch.uint8)[:size] >= threshold
    return kept.view(*shape).to(dtype).mul_(256 / (256 - threshold))


class TwoReadingsLoss(torch.autograd.Function):
    """Smoothed cross-entropy of one or two readings, and how far the two are apart.

    The logits are made in chunks of rows, and each chunk's gradient at once, so that
    nothing as large as tokens times vocabulary is ever written to memory.

    Source: Szegedy et al. (2016), section 7; Wu et al. (2021), eqs. 3 and 4 (R-Drop).
    """

    @staticmethod
    def forward(
        ctx: Any,
        hidden: Tensor,
        table: Tensor,
        target: Tensor,
        smoothing: float,
        consistency: float,
        chunk: int = 256,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Compute loss and gradients.

        Args:
            ctx: of autograd.
            hidden: the decoder's outputs, R x N x D for R readings of N tokens.
            table: V x D, of the output layer.
            target: the N right tokens.
            smoothing: of the labels.
            consistency: weight of the mean of the two KL divergences.
            chunk: rows to treat at once.

        Returns:
            The loss; and its two parts, cross-entropy and divergence, for the log.
        """
        readings, n_tokens, _ = hidden.shape
        rows, weights = hidden.detach(), table.detach().to(hidden.dtype)
        d_hidden = torch.empty_like(rows)
        d_table = torch.zeros_like(table)
        entropy = divergence = 0.0
        for start in range(0, n_tokens, chunk):
            part, right = (
                rows[:, start : start + chunk],
                target[start : start + chunk],
            )
            logits = [(part[r] @ weights.t()).float() for r in range(readings)]
            softmax = [each.softmax(-1) for each in logits]
            gradients, normalisers = [], []
            for z, p in zip(logits, softmax, strict=True):
                chosen = z.gather(1, right[:, None])
                found = p.gather(1, right[:, None]).clamp_min(1e-30)
                normaliser = chosen - found.log()
                normalisers.append(normaliser)
                loss = normaliser - (1 - smoothing) * chosen
                entropy += (loss - smoothing * z.mean(1, keepdim=True)).sum()
                gradient = p - smoothing / p.shape[1]
                lift = torch.full_like(chosen, smoothing - 1)
                gradients.append(gradient.scatter_add_(1, right[:, None], lift))
            if readings == 2 and consistency:
                p, q = softmax
                apart = (logits[0] - logits[1]).sub_(normalisers[0] - normalisers[1])
                forth = p * apart  # log p - log q, weighted
                back = q * apart
                kl_forth, kl_back = (
                    forth.sum(1, keepdim=True),
                    -back.sum(1, keepdim=True),
                )
                divergence += (kl_forth + kl_back).sum() / 2
                difference = p - q
                forth.addcmul_(p, kl_forth, value=-1).add_(difference)
                back.addcmul_(q, kl_back).add_(difference).neg_()
                gradients[0].add_(forth, alpha=consistency)
                gradients[1].add_(back, alpha=consistency)
            for r, gradient in enumerate(gradients):
                small = gradient.mul_(1 / (readings * n_tokens)).to(rows.dtype)
                d_hidden[r, start : start + chunk] = small @ weights
                d_table += small.t() @ part[r]
        ctx.save_for_backward(d_hidden, d_table)
        entropy = torch.as_tensor(entropy) / (readings * n_tokens)
        divergence = torch.as_tensor(divergence) / n_tokens
        ctx.mark_non_differentiable(entropy, divergence)
        return entropy + consistency * divergence, entropy, divergence

    @staticmethod
    def backward(ctx: Any, gradient: Tensor, *_: Any) -> tuple[Tensor | None, ...]:
        """The gradients that the forward pass has made, times the one from above."""
        d_hidden, d_table = ctx.saved_tensors
        found = (d_hidden * gradient.to(d_hidden.dtype), d_table * gradient)
        return (*found, None, None, None, None)


def _hide(source: Tensor) -> Tensor:
    """What is added to attention scores, B x 1 x 1 x S: very little where there is padding."""
    return torch.zeros(source.shape).masked_fill_(source == PAD, -1e9)[:, None, None]


class FastStep:
    """The loss of a pre-norm Transformer in training, with less work than its modules do.

    Same weights and same function as ``Transformer.encode`` and ``decode``. Matrix
    products run in ``dtype``; the residual stream, norms and softmaxes stay in single
    precision. Dropout masks come from random bytes, attention of short sentences is
    written out, and the output layer skips padding.

    Args:
        model: pre-norm, with one embedding table for all.
        smoothing: of the labels.
        consistency: weight of the divergence between two readings.
        dtype: of the matrix products.
    """

    def __init__(
        self,
        model: Transformer,
        smoothing: float = 0.1,
        consistency: float = 0.0,
        dtype: torch.dtype = torch.bfloat16,
    ) -> None:
        config = model.config
        wanted = {"norm_first": True, "tie_embeddings": "all", "activation": "relu", "positions": "sinusoidal"}
        wanted |= {"bias": True, "output_bias": False, "attention_dropout": 0, "activation_dropout": 0}
        for name, value in wanted.items():
            if getattr(config, name) != value:
                raise ValueError(f"{name}={getattr(config, name)!r}: FastStep is for {value!r}")
        if config.final_norm is False:
            raise ValueError("final_norm=False: FastStep is for models with a norm at the end of each stack")
        self.model, self.smoothing, self.consistency = model, smoothing, consistency
        self.dtype, self.dropout = dtype, config.dropout

    def _drop(self, inputs: Tensor) -> Tensor:
        if not self.dropout:
            return inputs
        return inputs * dropout_mask(inputs.shape, self.dropout, inputs.dtype)

    def _linear(self, inputs: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        return F.linear(inputs, weight.to(self.dtype), bias.to(self.dtype))

    def _embed(self, tokens: Tensor) -> Tensor:
        table, positions = self.model.target_embedding, self.model.target_positions
        return self._drop(positions(table(tokens) * math.sqrt(self.model.config.d_model), 0))

    def _attend(
        self,
        layer: MultiHeadAttention,
        inputs: Tensor,
        memory: Tensor | None,
        bias: Tensor,
    ) -> Tensor:
        """Attention written out; ``bias`` (B x H, T, S) is minus infinity where masked."""
        weight, given = layer.in_proj_weight, layer.in_proj_bias
        heads, queries = layer.n_heads, layer.widths[0]
        if memory is None:
            q, k, v = self._linear(inputs, weight, given).split(layer.widths, dim=-1)
        else:
            q = self._linear(inputs, weight[:queries], given[:queries])
            k, v = self._linear(memory, weight[queries:], given[queries:]).split(layer.widths[1:], dim=-1)
        q, k, v = (part.unflatten(-1, (heads, -1)).transpose(1, 2).float().flatten(0, 1) for part in (q, k, v))
        scores = torch.baddbmm(bias, q, k.transpose(1, 2), alpha=layer.d_key**-0.5)
        found = (scores.softmax(-1) @ v).to(self.dtype)  # (B H, T, K)
        found = found.unflatten(0, (-1, heads)).transpose(1, 2).flatten(2)
        return self._linear(found, layer.out_proj.weight, layer.out_proj.bias)

    def _norm(self, norm: LayerNorm, inputs: Tensor) -> Tensor:
        shape = (self.model.config.d_model,)
        return F.layer_norm(inputs, shape, norm.weight, norm.bias, norm.eps).to(self.dtype)

    def _feed(self, layer: FeedForward, norm: LayerNorm, inputs: Tensor) -> Tensor:
        inside = self._linear(self._norm(norm, inputs), layer.linear1.weight, layer.linear1.bias)
        found = self._linear(inside.relu(), layer.linear2.weight, layer.linear2.bias)
        return inputs + self._drop(found)

    def _encode(self, source: Tensor) -> Tensor:
        """The encoder's outputs."""
        heads, (rows, length) = self.model.config.n_heads, source.shape
        bias = _hide(source).expand(rows, heads, length, length).flatten(0, 1)
        x = self._embed(source)
        for layer in self.model.encoder.layers:
            normed = self._norm(layer.norm1, x)
            x = x + self._drop(self._attend(layer.self_attn, normed, None, bias))
            x = self._feed(layer.feed_forward, layer.norm2, x)
        return self._norm(self.model.encoder.norm, x)

    def hidden(self, readings: Sequence[Tensor], target: Tensor) -> Tensor:
        """The decoder's outputs under teacher forcing, all readings in one batch.

        Args:
            readings: R tensors of token ids, B x S, S of its own for each.
            target: B x T token ids, opened by BOS.

        Returns:
            R B x T x D.
        """
        heads, steps = self.model.config.n_heads, target.shape[1]
        longest = max(source.shape[1] for source in readings)
        spaces = [longest - source.shape[1] for source in readings]
        memory = torch.cat(
            [F.pad(self._encode(source), (0, 0, 0, space)) for source, space in zip(readings, spaces, strict=True)]
        )
        sources = torch.cat([F.pad(s, (0, space), value=PAD) for s, space in zip(readings, spaces, strict=True)])
        rows = len(sources)
        across = _hide(sources).expand(rows, heads, steps, longest).flatten(0, 1)
        future = torch.full((steps, steps), -1e9).triu(1).expand(rows * heads, -1, -1)
        y = self._embed(target.repeat(len(readings), 1))
        for layer in self.model.decoder.layers:
            normed = self._norm(layer.norm1, y)
            y = y + self._drop(self._attend(layer.self_attn, normed, None, future))
            normed = self._norm(layer.norm2, y)
            y = y + self._drop(self._attend(layer.cross_attn, normed, memory, across))
            y = self._feed(layer.feed_forward, layer.norm3, y)
        return self._norm(self.model.decoder.norm, y)

    def loss(self, readings: Sequence[Tensor], target: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The loss of one or two readings of the same sources.

        Args:
            readings: B x S token ids each.
            target: B x T1 token ids between BOS and EOS.

        Returns:
            The loss, and its two parts for the log.
        """
        count, steps = len(readings), target.shape[1] - 1
        after = target[:, 1:]
        outputs = self.hidden(readings, target[:, :-1])
        there = after.flatten() != PAD
        rows = outputs.view(count, len(target) * steps, -1)[:, there]
        table = self.model.output.weight
        return TwoReadingsLoss.apply(rows, table, after.flatten()[there], self.smoothing, self.consistency)


# ------------------------------------------------------------------ a run


@dataclass(frozen=True)
class RunConfig:
    """Everything that decides a run; stored with it, so that it can be resumed.

    Args:
        source: language to translate from.
        target: language to translate into.
        vocab_size: subwords that both languages share.
        d_model: width of the model.
        n_heads: attention heads.
        n_encoder_layers: layers that read.
        n_decoder_layers: layers that write.
        d_ff: width inside the feed-forward layers.
        dropout: in training.
        smoothing: of the labels.
        consistency: weight of the divergence between the two readings; 0 for none.
        bpe_dropout: probability of skipping a merge in the noisy reading.
        target_bpe_dropout: whether the targets are cut by chance too.
        noise: probabilities; see ``NoiseConfig``.
        readings: 2, or 1 for the plain or the noisy reading, batch by batch in turn.
        max_tokens: of one reading of a batch, padding included.
        learning_rate: after the warm-up.
        warmup: updates.
        averaging: the moving average of the weights keeps this share at each update.
        precision: of the matrix products, "float32" or "bfloat16": several times faster
            on processors that multiply it, several times slower on all others.
        seed: of everything.
        decay_epochs: epochs in which the rate falls to zero; 0 for a constant rate.
        decay_from: epoch after which it falls.
    """

    source: str = "en"
    target: str = "de"
    vocab_size: int = 5000
    d_model: int = 160
    n_heads: int = 5
    n_encoder_layers: int = 5
    n_decoder_layers: int = 3
    d_ff: int = 320
    dropout: float = 0.2
    smoothing: float = 0.1
    consistency: float = 2.0
    bpe_dropout: float = 0.1
    target_bpe_dropout: bool = False
    noise: NoiseConfig = NoiseConfig()
    readings: int = 2
    max_tokens: int = 1000
    learning_rate: float = 2.5e-3
    warmup: int = 1000
    averaging: float = 0.999
    precision: str = "float32"
    seed: int = 0
    decay_epochs: int = 0
    decay_from: int = 0

    @classmethod
    def from_notes(cls, notes: dict[str, Any]) -> "RunConfig":
        """The configuration that a checkpoint stores."""
        return cls(**{**notes, "noise": NoiseConfig(**notes["noise"])})

    def model(self) -> TransformerConfig:
        """The sizes of the Transformer."""
        return TransformerConfig(
            source_vocab_size=self.vocab_size,
            target_vocab_size=self.vocab_size,
            d_model=self.d_model,
            n_heads=self.n_heads,
            n_encoder_layers=self.n_encoder_layers,
            n_decoder_layers=self.n_decoder_layers,
            d_ff=self.d_ff,
            dropout=self.dropout,
            norm_first=True,
        )


def load_pairs(split: str, source: str, target: str) -> list[Pair]:
    """Raw pairs of Multi30k with their spaces cleaned.

    Args:
        split: name of the split.
        source: language.
        target: language.

    Returns:
        The pairs.
    """
    pairs = load_multi30k(split, source, target)
    return [Pair(clean(pair.source), clean(pair.target)) for pair in pairs]


class Run:
    """A training that can be stopped at any time and goes on from where it last saved.

    Its folder holds ``tokenizer.json``, ``last.safetensors`` (all it takes to go on),
    ``average.safetensors`` (the moving average of the weights) and ``log.jsonl``.

    Args:
        folder: of the run.
        config: how it is trained.
        tokenizer: joint, over bytes.
    """

    def __init__(self, folder: Path, config: RunConfig, tokenizer: Tokenizer) -> None:
        torch.manual_seed(config.seed)
        self.folder, self.config, self.tokenizer = folder, config, tokenizer
        self.model = Transformer(config.model())
        self.names = [name for name, _ in self.model.named_parameters()]
        self.parameters = list(self.model.parameters())
        self.average = [parameter.detach().clone() for parameter in self.parameters]
        rate = config.learning_rate
        self.optimizer = torch.optim.Adam(self.parameters, lr=rate, betas=(0.9, 0.98), eps=1e-9, fused=True)
        self.epoch = self.step = self.batch = 0  # batch: those taken of this epoch
        self.sums, self.seconds = [0.0, 0.0, 0.0], 0.0  # of this epoch
        self.log: list[dict[str, Any]] = []

    @cached_property
    def train_pairs(self) -> list[Pair]:
        """What it learns from."""
        return load_pairs("train", self.config.source, self.config.target)

    @cached_property
    def validation_pairs(self) -> list[Pair]:
        """What decisions are made by."""
        return load_pairs("val", self.config.source, self.config.target)

    @classmethod
    def start(cls, folder: Path, config: RunConfig) -> "Run":
        """A new run; its tokenizer is learned from the training pairs.

        Args:
            folder: of the run.
            config: how to train.

        Returns:
            The run before its first epoch.
        """
        path = folder / "tokenizer.json"
        if not path.exists():
            pairs = load_pairs("train", "en", "de")  # the same for both directions
            texts = [text for pair in pairs for text in (pair.source, pair.target)]
            Tokenizer.train(texts, config.vocab_size).save(path)
        return cls(folder, config, Tokenizer.load(path))

    @classmethod
    def load(cls, folder: Path, **changes: Any) -> "Run":
        """A run as it was after its last epoch.

        Args:
            folder: of the run.
            changes: fields of the configuration that are to differ from now on.

        Returns:
            The run.
        """
        tensors, notes = load_tensors(folder / "last.safetensors")
        config = replace(RunConfig.from_notes(notes["config"]), **changes)
        run = cls(folder, config, Tokenizer.load(folder / "tokenizer.json"))
        moments = {}
        for index, name in enumerate(run.names):
            run.parameters[index].data.copy_(tensors[f"model.{name}"])
            run.average[index].copy_(tensors[f"average.{name}"])
            moments[index] = {
                "step": torch.tensor(float(notes["step"])),
                "exp_avg": tensors[f"first.{name}"],
                "exp_avg_sq": tensors[f"second.{name}"],
            }
        groups = run.optimizer.state_dict()["param_groups"]
        run.optimizer.load_state_dict({"state": moments, "param_groups": groups})
        torch.set_rng_state(tensors["random"])
        run.epoch, run.step, run.log = notes["epoch"], notes["step"], notes["log"]
        if notes.get("batch"):
            run.batch, run.sums = notes["batch"], notes["sums"]
            run.seconds = notes["seconds"]
        return run

    def save(self) -> None:
        """Write everything, all or nothing."""
        tensors = {"random": torch.get_rng_state()}
        for index, name in enumerate(self.names):
            state = self.optimizer.state[self.parameters[index]]
            tensors[f"model.{name}"] = self.parameters[index].detach()
            tensors[f"average.{name}"] = self.average[index]
            tensors[f"first.{name}"] = state["exp_avg"]
            tensors[f"second.{name}"] = state["exp_avg_sq"]
        notes = {
            "config": asdict(self.config),
            "epoch": self.epoch,
            "step": self.step,
        }
        notes |= {"batch": self.batch, "sums": self.sums, "seconds": self.seconds}
        notes["log"] = self.log
        save_tensors(self.folder / "last.safetensors", tensors, notes)
        self.save_average(self.folder / "average.safetensors")
        lines = "".join(json.dumps(line) + "\n" for line in self.log)
        write_atomically(self.folder / "log.jsonl", lines.encode())

    def save_average(self, path: Path) -> None:
        """Write the averaged weights under the names of the model.

        Args:
            path: the file.
        """
        notes = {
            "config": asdict(self.config),
            "epoch": self.epoch,
            "step": self.step,
        }
        save_tensors(path, dict(zip(self.names, self.average, strict=True)), notes)

    def averaged_model(self) -> Transformer:
        """A model with the averaged weights, in evaluation mode."""
        model = Transformer(self.config.model())
        for parameter, average in zip(model.parameters(), self.average, strict=True):
            parameter.data.copy_(average)
        return model.eval()

    def rate(self, share: float) -> float:
        """The learning rate of the next update.

        Args:
            share: of the present epoch that is done.

        Returns:
            The rate: warmed up, then constant, then falling if this is a decay.
        """
        config = self.config
        factor = min(1.0, (self.step + 1) / config.warmup)
        if config.decay_epochs:
            done = (self.epoch - config.decay_from + share) / config.decay_epochs
            factor *= max(0.0, 1 - done)
        return config.learning_rate * factor

    def run_epoch(self, save_every: int = 100) -> dict[str, Any]:
        """Train for one epoch, or the rest of it.

        Args:
            save_every: updates between two saves.

        Returns:
            What was measured.
        """
        config, started = self.config, time.perf_counter()
        chance = random.Random(f"{config.seed} {self.epoch}")
        bpe = self.bpe
        noise, twice = config.noise, config.target_bpe_dropout
        data = make_readings(self.train_pairs, config.source, bpe, noise, twice, chance)
        order = list(data.batches(config.max_tokens, config.seed, self.epoch))
        dtype = getattr(torch, config.precision)
        fast = FastStep(self.model, config.smoothing, config.consistency, dtype)
        self.model.train()
        for number in range(self.batch, len(order)):
            plain, noisy, target = order[number]
            both = (plain, noisy)
            readings = both if config.readings == 2 else (both[number % 2],)
            loss, entropy, divergence = fast.loss(readings, target)
            self.optimizer.zero_grad(set_to_none=True)
            loss.backward()
            norm = nn.utils.clip_grad_norm_(self.parameters, 1.0)
            if not torch.isfinite(norm):
                raise ValueError(f"the gradient of update {self.step + 1} is not finite")
            for group in self.optimizer.param_groups:
                group["lr"] = self.rate(number / len(order))
            self.optimizer.step()
            self.step, self.batch = self.step + 1, number + 1
            keep = min(config.averaging, self.step / (self.step + 10))
            weights = [parameter.detach() for parameter in self.parameters]
            torch._foreach_lerp_(self.average, weights, 1 - keep)
            count = int((target[:, 1:] != PAD).sum())
            found = (entropy.item() * count, divergence.item() * count, count)
            self.sums = [a + b for a, b in zip(self.sums, found, strict=True)]
            now = time.perf_counter()
            self.seconds, started = self.seconds + now - started, now
            if self.batch % save_every == 0 and self.batch < len(order):
                self.save()
        line = {
            "epoch": self.epoch + 1,
            "updates": self.step,
            "readings": config.readings,
            "max_tokens": config.max_tokens,
            "cross_entropy": round(self.sums[0] / self.sums[2], 4),
            "divergence": round(self.sums[1] / self.sums[2], 4),
            "learning_rate": self.optimizer.param_groups[0]["lr"],
            "seconds": round(self.seconds, 1),
            "target_tokens_per_second": round(self.sums[2] / self.seconds),
        }
        self.epoch, self.batch = self.epoch + 1, 0
        self.sums, self.seconds = [0.0, 0.0, 0.0], 0.0
        return line

    @cached_property
    def bpe(self) -> BpeDropout:
        """Cuts sources by chance."""
        return BpeDropout(self.tokenizer, self.config.bpe_dropout, seed=self.config.seed)

    def train(self, epochs: int, score_every: int = 3) -> None:
        """Train until so many epochs are done, and save after each.

        Args:
            epochs: counted from the beginning of the run.
            score_every: epochs between two translations of the validation set.
        """
        config = self.config
        pairs = self.validation_pairs
        examples = encode_pairs(pairs, self.tokenizer, self.tokenizer)
        while self.epoch < epochs:
            line = self.run_epoch()
            model = self.averaged_model()
            line["validation_loss"] = round(evaluate_loss(model, batches(examples, 4000)), 4)
            if self.epoch % score_every == 0 or self.epoch == epochs:
                found = translate(model, self.tokenizer, [p.source for p in pairs], 1)
                scores = score(found, [p.target for p in pairs], config.target)
                line |= {f"validation_{n}": round(s["value"], 2) for n, s in scores.items()}
            self.log.append(line)
            self.save()
            if self.epoch % 5 == 0:
                self.save_average(self.folder / f"average-{self.epoch:03d}.safetensors")
            print(json.dumps(line), flush=True)


# ------------------------------------------------------------------ translations, scored


def translate(
    model: Transformer,
    tokenizer: Tokenizer,
    texts: Sequence[str],
    beam_size: int = 5,
    length_penalty: float = 1.0,
    max_tokens: int = 2000,
) -> list[str]:
    """Translate sentences as they are.

    Args:
        model: what translates.
        tokenizer: joint.
        texts: the sentences.
        beam_size: 1 for greedy search.
        length_penalty: its exponent.
        max_tokens: of the sources of a batch.

    Returns:
        One translation for each text.
    """
    sources = [[*ids, EOS] for ids in tokenizer.encode_batch([clean(t) for t in texts])]
    examples = [(source, [BOS, EOS]) for source in sources]
    found = [""] * len(texts)
    for batch in batches(examples, max(max_tokens, max(map(len, sources)))):
        longest = int(1.6 * batch.source.shape[1]) + 10
        ranked = beam_search(
            model, batch.source, beam_size=beam_size, length_penalty=length_penalty, max_length=longest
        )
        for index, hypotheses in zip(batch.indices, ranked, strict=True):
            found[index] = tokenizer.decode(hypotheses[0].tokens) if hypotheses else ""
    return found


def score(hypotheses: Sequence[str], references: Sequence[str], language: str) -> dict[str, dict[str, Any]]:
    """Three scores of the same raw translations, each with its signature.

    Args:
        hypotheses: what a system wrote, as it wrote it.
        references: what people wrote.
        language: of both.

    Returns:
        ``bleu`` (lower-cased and tokenised by Moses, as the literature on Multi30k
        scores), ``bleu_cased`` (13a) and ``chrf``.
    """
    from sacrebleu.metrics import CHRF

    moses = [[moses_tokenize(text, language) for text in texts] for texts in (hypotheses, references)]
    lower = bleu(*moses, tokenize="none")
    cased = bleu(list(hypotheses), list(references))
    chrf = CHRF()
    found = chrf.corpus_score(list(hypotheses), [list(references)])
    return {
        "bleu": {"value": lower.score, "signature": lower.signature},
        "bleu_cased": {"value": cased.score, "signature": cased.signature},
        "chrf": {"value": found.score, "signature": str(chrf.get_signature())},
        "reference_tokens": {"value": lower.reference_length},
    }


# ------------------------------------------------------------------ command line

DECAY_AVERAGING = 0.99


def build_parser() -> argparse.ArgumentParser:
    """The options of this program."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    commands = parser.add_subparsers(dest="command", required=True)
    train = commands.add_parser("train", help="begin a run, or go on with one")
    train.add_argument("--output", type=Path, required=True)
    train.add_argument("--epochs", type=int, default=1000)
    defaults = RunConfig()
    for name, value in asdict(defaults).items():
        if isinstance(value, str | int | float) and not isinstance(value, bool):
            option = "--" + name.replace("_", "-")
            train.add_argument(option, type=type(value), default=None)
    decay = commands.add_parser("decay", help="branch off and bring the rate down to zero")
    decay.add_argument("--start", type=Path, required=True)
    decay.add_argument("--output", type=Path, required=True)
    decay.add_argument("--epochs", type=int, default=10)
    return parser


def given_options(options: argparse.Namespace) -> dict[str, Any]:
    """The fields of ``RunConfig`` that a command line sets.

    Args:
        options: of the command ``train``.

    Returns:
        Values by name.
    """
    given = {name: getattr(options, name, None) for name in asdict(RunConfig())}
    return {name: value for name, value in given.items() if value is not None}


def _train(options: argparse.Namespace) -> None:
    given = given_options(options)
    if (options.output / "last.safetensors").exists():
        run = Run.load(options.output, **given)
    else:
        run = Run.start(options.output, RunConfig(**given))
    run.train(options.epochs)


def _decay(options: argparse.Namespace) -> None:
    if not (options.output / "last.safetensors").exists():
        options.output.mkdir(parents=True, exist_ok=True)
        for name in ("last.safetensors", "tokenizer.json"):
            write_atomically(options.output / name, (options.start / name).read_bytes())
    run = Run.load(options.output)
    if not run.config.decay_epochs:
        run.config = replace(
            run.config,
            decay_epochs=options.epochs,
            decay_from=run.epoch,
            averaging=DECAY_AVERAGING,
        )
    run.train(run.config.decay_from + run.config.decay_epochs, score_every=2)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line.

    Args:
        arguments: None for those of the process.
    """
    options = build_parser().parse_args(arguments)
    torch.set_flush_denormal(True)
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
    {"train": _train, "decay": _decay}[options.command](options)


if __name__ == "__main__":
    main()
