"""Why does the loss of a small language model stand still at that of a table of character pairs?"""

import random
from collections import Counter
from functools import lru_cache

import numpy as np
import torch

from experiments.harness import TUNING, Check, Finding, Study, plain
from experiments.statistics import difference
from experiments.studies.scaling_law import ROWS, WINDOW, loss_of, texts
from experiments.tasks import SMOKE, fit
from transformer_lib.data.everyday import load_everyday
from transformer_lib.models.gpt import GPT, GPTConfig

LAYERS, LETTERS, BATCH = 2, 64, WINDOW * ROWS
PARTS = {"a tenth": 0.1, "a third": 0.3165, "the whole": 1.0}  # of the characters that are read


@lru_cache(2)
def captions_or(sentences):
    """Captions or everyday sentences, to train on and held out, and their most frequent characters."""
    if not sentences or SMOKE:
        return texts()
    rng = random.Random(0)
    train, valid = ([pair.source for pair in load_everyday(part)] for part in ("train", "val"))
    train = rng.sample(train, 20_000)
    common = Counter("\n".join(train)).most_common(LETTERS - 1)
    return train, valid, {letter: place for place, (letter, _) in enumerate(common, start=1)}


def numbered(lines, letters):
    """Lines as one row of numbers."""
    return torch.tensor([letters.get(letter, 0) for letter in "\n".join(lines)])


def tables(text, new, order):
    """Nats a character of a table of runs of `order` characters: shorter runs fill in what it lacks (Witten and Bell)."""
    share = np.full(len(new), 1 / LETTERS)
    for length in range(order):
        seen, asked = (np.zeros(len(part) - length, dtype=np.int64) for part in (text, new))
        for k in range(length):
            seen, asked = (LETTERS * c + p[k : k + len(c)] for c, p in ((seen, text), (asked, new)))
        runs, counts = np.unique(LETTERS * seen + text[length:], return_counts=True)
        begun, kinds = np.unique(runs // LETTERS, return_counts=True)
        total = np.add.reduceat(counts, np.cumsum(kinds) - kinds)

        def of(keys, values, wanted):
            place = np.searchsorted(keys, wanted).clip(max=len(keys) - 1)
            return np.where(keys[place] == wanted, values[place], 0)

        own = of(runs, counts, LETTERS * asked + new[length:])
        often, different = of(begun, total, asked), of(begun, kinds, asked)
        filled = (own + different * share[length:]) / np.maximum(often + different, 1)
        share[length:] = np.where(often > 0, filled, share[length:])
    return -np.log(share).mean()


def measure(seed, budget, width=36, length=WINDOW, again=False, order=0, rate=0.01, sentences=False):
    """The loss after a tenth, a third and the whole of the budget, each in a run with a schedule of its own."""
    train, valid, letters = captions_or(sentences)
    train = list(train)
    random.Random(seed).shuffle(train)
    text, new, losses = numbered(train, letters), numbered(valid, letters), {}
    rows = text.unfold(0, length + 1, length)
    least = max(1, int(PARTS["a tenth"] * budget) // BATCH)  # updates
    for name, part in PARTS.items():
        if seed in TUNING and name != "a third":
            continue
        updates = max(1, int(part * budget) // BATCH)
        if order:
            losses[name] = tables(text[: updates * BATCH].numpy(), new.numpy(), order)
            continue
        torch.manual_seed(seed)
        model = GPT(GPTConfig(LETTERS, width, width // 6, LAYERS, dropout=0.0, max_length=length))
        own, a_batch = rows[: (least if again else updates) * BATCH // length], BATCH // length
        rounds = [own] + [own[torch.randperm(len(own))] for _ in range(updates // least if again else 0)]
        batches = torch.cat(rounds).split(a_batch)[:updates]
        model = fit(model, loss_of, batches, rate, updates)
        with torch.no_grad():
            losses[name] = loss_of(model, new.unfold(0, length + 1, length)).item()
    return losses | {"valid": losses["a third"]}


GPTS = {"new text": {}, "one character seen": {"length": 1}, "the same text again": {"again": True}}
NAMES = ("characters", "pairs", "threes", "fours", "fives")

STUDY = Study(
    chapter="scale/scaling_laws",
    equal="the first characters (a tenth of the budget); of the GPTs also width 36, two layers, batches of 256 characters, Adam, clipping, linear decay; and the number of updates",
    arms=GPTS | {f"a table of {name}": {"order": order} for order, name in enumerate(NAMES, start=1)},
    rates=dict.fromkeys(GPTS, (0.003, 0.01, 0.03)),
    measure=measure,
    metric="nats a character",
    budget=323_584,
    unit="characters",
    smoke=5_120,
    seeds=range(3),
    findings={
        "again": Finding(
            "A small GPT whose loss has come down to that of a table of character pairs falls at least 0.3 nats below it if it reads the same text ten times.",
            difference("the whole", "the same text again", "a table of pairs"),
            ("high", "<", -0.3),
            line="A small language model can stand still at a table of character pairs for want of updates, rather than of text.",
        ),
        "one": Finding(
            "After a tenth of the text, a GPT that sees one character is as good as one that sees 32: within 0.1 nats.",
            difference("a tenth", "one character seen", "new text"),
            (("low", ">", -0.1), ("high", "<", 0.1)),
        ),
    },
)

CHECKS = {
    "wider": Check(
        "width 60 in place of 36, and rates tuned again; seeds 300 to 302",
        ("again", "one"),
        range(300, 303),
        plain(STUDY),
        settings={"width": 60},
        rates=dict.fromkeys(GPTS, (0.001, 0.003, 0.01)),
    ),
    "sentences": Check(
        "everyday sentences in place of captions; seeds 400 to 402",
        ("again", "one"),
        range(400, 403),
        plain(STUDY),
        settings={"sentences": True},
    ),
}
