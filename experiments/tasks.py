"""What most studies share: two tasks whose data a seed draws, so that an interval covers them, and training loops."""

import os
import random
from functools import lru_cache, partial
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.nn.utils.rnn import pad_sequence
from torch.utils._pytree import tree_map

from transformer_lib.data.batching import TokenBatches, encode_pairs
from transformer_lib.data.captions import make_captions
from transformer_lib.data.multi30k import load_multi30k
from transformer_lib.data.recipes import RecipeCoder, make_recipes
from transformer_lib.data.tokenizer import PAD, Tokenizer
from transformer_lib.models.loss import Loss, add_up
from transformer_lib.training.loop import train_on
from transformer_lib.translation.translator import Translator

SMOKE = bool(os.environ.get("SMOKE"))  # in miniature
# of a Transformer that learns in minutes
SIZES = {"d_model": 64, "n_heads": 4, "d_ff": 128, "n_encoder_layers": 2, "n_decoder_layers": 2}


def multi30k(split, *languages):
    """Captions of photographs, in one language and in another; in miniature made ones, which need no download."""
    return make_captions(40, seed=len(split)) if SMOKE else load_multi30k(split, *languages)


@lru_cache(2)
def translator(name):
    """A translator that comes with the library; in miniature a small one."""
    return Translator.from_pretrained("captions-en-de" if SMOKE else name, device="cpu")


class Rows(NamedTuple):
    """Inputs and outputs side by side, one row for each example, filled up with PAD."""

    source: Tensor
    target: Tensor

    def take(self, rows):
        """Some of the rows, as short as they can be."""
        return Rows(*(part[rows][:, : int((part[rows] != PAD).sum(1).max())] for part in self))

    def __len__(self):
        return len(self.source)


def encode(pairs, *tokenizers):
    """Sources with EOS, targets between BOS and EOS."""
    return Rows(*map(pad, zip(*encode_pairs(pairs, *tokenizers), strict=True)))


def pad(rows):
    """Lists of numbers as a tensor."""
    return pad_sequence([torch.tensor(row) for row in rows], batch_first=True, padding_value=PAD)


class Captions:
    """Captions with German translations, and new ones of the same lengths to tune and to test on: as pairs and as rows."""

    def __init__(self, seed, n=2500, shortest=4, longest=7, new=300):
        n, new = (300, 40) if SMOKE else (n, new)
        lengths = {"min_length": shortest, "max_length": longest}
        train = make_captions(n, seed=2 * seed, **lengths)
        known = {pair.source for pair in train}
        others = make_captions(n, seed=2 * seed + 1, **lengths)
        others = [pair for pair in others if pair.source not in known]
        self.pairs = {"train": train, "valid": others[:new], "test": others[new : 2 * new]}
        self.en = Tokenizer.train([pair.source for pair in train], level="word")
        self.de = Tokenizer.train([pair.target for pair in train], level="word")
        self.sizes = len(self.en), len(self.de)
        self.rows = {name: encode(pairs, self.en, self.de) for name, pairs in self.pairs.items()}


captions = lru_cache(16)(Captions)


@lru_cache(16)
def recipes(seed):
    """Sizes, and 2,000 recipes to train on. Those to tune and to test on combine trigger and action as no other does."""
    n = 300 if SMOKE else 2000
    train = make_recipes(n, seed=2 * seed)
    new = make_recipes(3 * n // 5, seed=2 * seed + 1, held_out=True)
    pairs = sorted({(recipe.trigger, recipe.action) for recipe in new})
    random.Random(seed).shuffle(pairs)
    tune, coder = set(pairs[: len(pairs) // 2]), RecipeCoder.train(train)
    sides = ([r for r in new if ((r.trigger, r.action) in tune) == side] for side in (True, False))
    return recipe_rows(coder, train, *sides)


def recipe_rows(coder, *parts):
    """Sizes, and some parts as rows."""
    rows = (zip(*coder.encode(part), strict=True) for part in parts)
    parts = (Rows(pad(tokens), torch.tensor(labels)) for tokens, labels in rows)
    return (coder.words.vocab_size, coder.n_labels), *parts


def stream(rows, size, seed):
    """Batches of similar length without end: every epoch is shuffled anew."""
    generator = torch.Generator().manual_seed(seed)
    lengths = (rows.source != PAD).sum(1)
    while True:
        order = torch.randperm(len(rows), generator=generator)
        order = order[lengths[order].argsort(stable=True)]
        groups = order.split(size)
        for group in torch.randperm(len(groups), generator=generator).tolist():
            yield rows.take(groups[group])


def decay(update, budget):
    """A straight line from the peak to zero; updates count from 1."""
    return 1 - (update - 1) / budget


def rise(updates):
    """A warm-up of so many updates, and then `decay`."""
    return lambda update, budget: min(update / updates, decay(update, budget))


def fit(model, loss, batches, rate, budget, schedule=decay, betas=(0.9, 0.98)):
    """One update a batch with Adam; `loss` returns nats a word. A run that diverges has a loss that is NaN. Ends on the CPU."""
    place = os.environ.get("DEVICE", "cpu")
    adam = torch.optim.Adam(model.to(place).parameters(), betas=betas, eps=1e-9)

    def scheduled():
        for update, batch in zip(range(1, budget + 1), batches, strict=False):
            adam.param_groups[0]["lr"] = rate * schedule(update, budget)
            yield tree_map(lambda part: part.to(place), batch)

    train_on(model, scheduled(), adam, loss=lambda *given: as_it_is(loss(*given)), check=False)
    return model.cpu().eval()


def as_it_is(nats):
    """A mean as the loss of one word, so that it is not divided again."""
    return Loss(nats, torch.ones_like(nats, dtype=torch.long))


def fit_for_hours(model, loss, pairs, folder, seed, epochs, rate, judge, tokens=2000, bfloat16=False):
    """Train on pairs of rows for whole epochs, and go on from the last one if the folder holds any; ends on the CPU.

    Each epoch has a seed of its own, so that a run that was stopped ends like one that was not. A tenth of the updates
    warm up, and a straight line leads to zero. `judge` gets the model at least twelve times, or after each of fewer epochs,
    and its numbers are returned by epoch.
    """
    place = os.environ.get("DEVICE", "cpu")
    batches = TokenBatches([max(map(len, pair)) for pair in pairs], tokens, seed)
    total, last, begun, curve = epochs * len(batches), Path(folder, "last.pt"), 0, {}
    adam = torch.optim.Adam(model.to(place).parameters(), betas=(0.9, 0.98), eps=1e-9)
    if last.exists():
        begun, curve, weights, moments = torch.load(last, map_location=place, weights_only=True)
        model.load_state_dict(weights)
        adam.load_state_dict(moments)
    last.parent.mkdir(parents=True, exist_ok=True)

    def mean(model, batch):
        with torch.autocast(place.partition(":")[0], torch.bfloat16, enabled=bfloat16):
            return as_it_is(loss(model, *batch))

    def scheduled():
        for update, rows in enumerate(batches, start=batches.epoch * len(batches) + 1):
            adam.param_groups[0]["lr"] = rate * rise(max(1, total // 10))(update, total)
            yield [pad([pairs[i][side] for i in rows]).to(place) for side in (0, 1)]

    for batches.epoch in range(begun, epochs):
        torch.manual_seed(1000 * seed + batches.epoch)
        train_on(model, scheduled(), adam, loss=mean, check=False)
        done = batches.epoch + 1
        if done % max(1, epochs // 12) == 0 or done == epochs:
            curve[f"epoch {done}"] = judge(model.eval())
            print(f"{folder}, epoch {done}: {curve[f'epoch {done}']:.3f}", flush=True)
        torch.save((done, curve, model.state_dict(), adam.state_dict()), part := last.with_suffix(".part"))
        part.replace(last)
    model.cpu().eval()
    return curve


def summed_loss(model, batch, smoothing=0.0):
    """Cross-entropy of the next words: its sum, and their number."""
    logits, target = model(batch.source, batch.target[:, :-1]), batch.target[:, 1:]
    options = {"ignore_index": PAD, "label_smoothing": smoothing, "reduction": "sum"}
    nats = F.cross_entropy(logits.flatten(0, 1), target.flatten(), **options)
    return Loss(nats, (target != PAD).sum())


def translation_loss(model, batch, smoothing=0.0):
    """Nats a word, which `fit` lowers."""
    return summed_loss(model, batch, smoothing).mean


@torch.no_grad()
def mean_loss(model, rows, size=200):
    """Nats a word on new sentences."""
    model.eval()
    batches = [rows.take(group) for group in torch.arange(len(rows)).split(size)]
    total, n_words = add_up([summed_loss(model, batch) for batch in batches])
    return total / n_words


def learn(model, rows, seed, rate, updates, schedule=decay, betas=(0.9, 0.98), smoothing=0.0):
    """Train a translator in batches of 64 sentences; its loss on those to tune on, and on new ones."""
    loss = partial(translation_loss, smoothing=smoothing)
    fit(model, loss, stream(rows["train"], 64, seed), rate, updates, schedule, betas)
    return {"valid": mean_loss(model, rows["valid"]), "loss": mean_loss(model, rows["test"])}


@torch.no_grad()
def right(model, rows, size=200):
    """Percent of the sentences that greedy decoding translates word for word: those whose every next word comes first."""
    hits = 0
    for group in torch.arange(len(rows)).split(size):
        batch = rows.take(group)
        target = batch.target[:, 1:]
        best = model.eval()(batch.source, batch.target[:, :-1]).argmax(-1)
        hits += ((best == target) | (target == PAD)).all(1).sum().item()
    return 100 * hits / len(rows)
