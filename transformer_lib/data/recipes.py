"""Recipes: sentences that describe If-Then programs, written by a grammar or collected on Zapier."""

import hashlib
import json
import random
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, NamedTuple

import torch
from jaxtyping import Int
from torch import Tensor

from transformer_lib.data.batching import batches
from transformer_lib.data.files import DataFile, Folder, fetch, read_table
from transformer_lib.data.text import one_line
from transformer_lib.data.tokenizer import BOS, EOS, Tokenizer

__all__ = [
    "HEADS", "UNSEEN", "ZAPIER", "Recipe", "RecipeBatch", "RecipeCoder", "RecipeExample", "load_zapier", "make_recipes",
    "recipe_batches", "recipe_words",
]  # fmt: skip

HEADS = ("trigger_channel", "trigger", "action_channel", "action")
UNSEEN = -1  # the number of a label that training did not meet


@dataclass(frozen=True)
class Recipe:
    """A sentence, and the If-Then program that it describes; a function is "channel.function".

    Source: Chen et al. (2016), section 2.
    """

    description: str
    trigger_channel: str
    trigger: str
    action_channel: str
    action: str

    @property
    def program(self) -> tuple[str, str, str, str]:
        """The four parts, in the order of ``HEADS``."""
        return self.trigger_channel, self.trigger, self.action_channel, self.action


# ---- recipes that a grammar writes


class Operation(NamedTuple):
    """Something that can be done in a channel, and the words for it."""

    channel: str
    preposition: str
    function: str
    verbs: str
    noun: str


TABLES = read_table("recipes")


@cache
def combinations(held_out: bool) -> list[tuple[Operation, Operation]]:
    """The pairs of trigger and action that are kept for testing, or all others."""
    known = [Operation(*row) for row in TABLES["operations"]]
    return [
        (trigger, action)
        for i, trigger in enumerate(known)
        for j, action in enumerate(known)
        if trigger.channel != action.channel and ((i + j) % 4 == 1) == held_out
    ]


def make_recipes(n: int, seed: int, *, held_out: bool = False) -> list[Recipe]:
    """Write recipes in which only the order of the words tells which part of the program they name.

    Every sentence has a mirror image with the same words and trigger and action exchanged, which is
    as likely. The same arguments give the same recipes on every machine.

    Args:
        n: how many, all with different sentences; at most 20,000.
        held_out: True for the pairs of trigger and action that are kept for testing.

    Source: after the examples in Chen et al. (2016), section 1.
    """
    if not (type(n) is type(seed) is int and 0 < n <= 20_000):
        raise ValueError(f"n={n}, seed={seed}: expected whole numbers, 1 to 20,000 recipes")
    rng = random.Random(seed).random  # the one method that is the same in all versions of Python

    def pick(options: Sequence[Any]) -> Any:
        return options[int(rng() * len(options))]

    def word(table: str) -> str:  # a dash stands for nothing
        return str(pick(TABLES[table])[0].strip("-"))

    recipes: dict[str, Recipe] = {}
    while len(recipes) < n:
        trigger, action = pick(combinations(held_out))
        kind = pick(("clauses", "clauses", "phrases"))
        both = (("T", trigger), ("A", action))
        parts = {letter: f"{one.channel} {one.noun}" for letter, one in both}
        if kind == "clauses":  # with a verb: named in full, and with a pronoun
            thing, parts = word("things"), {"when": word("when")}
            for letter, one in both:
                verb, place = pick(one.verbs.split()), f"{one.preposition} {one.channel}"
                parts[letter] = f"{verb} {thing} {place}"
                parts[letter.lower()] = f"{verb} it {place}"
        core = word(kind).format(**parts)
        text = " ".join(f"{word('openers')} {core} {word('closers')}".split())
        labels = [f"{one.channel}.{one.function}" for one in (trigger, action)]
        recipes.setdefault(text, Recipe(text, trigger.channel, labels[0], action.channel, labels[1]))
    return list(recipes.values())


# ---- recipes as numbers

RecipeExample = tuple[list[int], tuple[int, ...]]


def recipe_words(text: str) -> list[str]:
    """The words and punctuation marks of a description, in lower case."""
    return re.findall(r"\w+|[^\w\s]", one_line(text).lower())


@dataclass(frozen=True, repr=False)
class RecipeCoder:
    """Turns recipes into numbers, and numbers into programs; made by ``RecipeCoder.train``."""

    words: Tokenizer
    labels: tuple[tuple[str, ...], ...]  # for each head, in the order of their numbers

    @classmethod
    def train(cls, recipes: Sequence[Recipe], min_count: int = 1) -> "RecipeCoder":
        """Learn labels and frequent words from the recipes of the training split, and of no other."""
        lines = [" ".join(recipe_words(recipe.description)) for recipe in recipes]
        counts = Counter(word for line in lines for word in line.split())
        frequent = sum(count >= min_count for count in counts.values())
        columns = zip(*(recipe.program for recipe in recipes), strict=True)
        labels = tuple(tuple(sorted(set(column))) for column in columns)
        return cls(Tokenizer.train(lines, 4 + frequent, level="word"), labels)

    @property
    def n_labels(self) -> tuple[int, ...]:
        """How many labels each head has."""
        return tuple(len(labels) for labels in self.labels)

    def encode(self, recipes: Sequence[Recipe]) -> list[RecipeExample]:
        """For each recipe its word ids, closed by EOS, and a number for each head."""
        numbers = [{label: i for i, label in enumerate(labels)} for labels in self.labels]
        lines = [" ".join(recipe_words(one.description)) for one in recipes]
        examples = []
        for ids, recipe in zip(self.words.encode_batch(lines), recipes, strict=True):
            pairs = zip(numbers, recipe.program, strict=True)
            examples.append(([*ids, EOS], tuple(known.get(label, UNSEEN) for known, label in pairs)))
        return examples

    def program(self, numbers: Sequence[int]) -> tuple[str, ...]:
        """The labels with these numbers, one for each head."""
        if min(numbers) < 0:
            raise ValueError(f"numbers={tuple(numbers)}: a label's number is 0 or more")
        return tuple(labels[i] for labels, i in zip(self.labels, numbers, strict=True))


@dataclass(frozen=True, eq=False)
class RecipeBatch:
    """A batch of recipes: word ids, the number of each head's label, and their indices."""

    tokens: Int[Tensor, "B S"]
    labels: Int[Tensor, "B H"]
    indices: tuple[int, ...]

    @property
    def n_tokens(self) -> int:
        """The number of labels to predict, which weighs a batch in training."""
        return int((self.labels != UNSEEN).sum())

    def __len__(self) -> int:
        return self.tokens.shape[0]

    def to(self, device: torch.device | str, non_blocking: bool = False) -> "RecipeBatch":
        """The same batch on another device."""
        tokens, labels = (part.to(device, non_blocking=non_blocking) for part in (self.tokens, self.labels))
        return replace(self, tokens=tokens, labels=labels)


def recipe_batches(
    examples: Sequence[RecipeExample], max_tokens: int, seed: int | None = None, epoch: int = 0
) -> Iterator[RecipeBatch]:
    """Batches of recipes of similar length, with a limit on their tokens; see ``batches``."""
    pairs = [(ids, [BOS, EOS]) for ids, _ in examples]
    for batch in batches(pairs, max_tokens, seed, epoch):
        labels = torch.tensor([examples[i][1] for i in batch.indices])
        yield RecipeBatch(batch.source, labels, batch.indices)


# ---- recipes that people published

ZAPIER = DataFile(*TABLES["zapier"][0])
ZAPIER_SIZES = {"test": 500, "val": 500}


def group_twins(rows: Sequence[dict[str, str]]) -> dict[str, list[int]]:
    """Groups of rows that share all words of a title or of a description, by the first one's title."""
    words = [[" ".join(recipe_words(row[key])) for key in ("title", "description")] for row in rows]
    parent, first = list(range(len(rows))), dict[tuple[int, str], int]()

    def root(row: int) -> int:
        return row if parent[row] == row else root(parent[row])

    for row, texts in enumerate(words):
        for key in enumerate(texts):
            low, high = sorted((root(first.setdefault(key, row)), root(row)))
            parent[high] = low
    groups: dict[str, list[int]] = {}
    for row in range(len(rows)):
        groups.setdefault(words[root(row)][0], []).append(row)
    return groups


def load_zapier(split: str, directory: Folder = None, *, text: str = "title") -> list[Recipe]:
    """Recipes from Zapier: 3,859 for training ("train"), 500 for validation ("val"), 500 for testing.

    Recipes that share all words of their title or of their description are in the same split. What
    the file leaves out is "None".

    Args:
        directory: a folder that has ``zapier/Zapier_test.json``; see ``fetch``.
        text: what becomes the description: "title", as in the paper's code, or "description".

    Source: Chen et al. (2016), section 4.
    """
    splits: dict[str, list[int]] = {"test": [], "val": [], "train": []}
    if split not in splits or text not in ("title", "description"):
        raise ValueError(f"{split=}, {text=}: expected train, val, test; title, description")
    rows = json.loads(fetch(ZAPIER, directory).read_bytes())
    groups = group_twins(rows)
    for title in sorted(groups, key=lambda title: hashlib.sha256(title.encode()).hexdigest()):
        for name, members in splits.items():
            if len(members) + len(groups[title]) <= ZAPIER_SIZES.get(name, len(rows)):
                members.extend(groups[title])
                break
    recipes = []
    for row in (rows[i] for i in sorted(splits[split])):
        event, action = f"{row['event_channel']}", f"{row['action_channel']}"
        recipes.append(Recipe(row[text], event, f"{event}.{row['event']}", action, f"{action}.{row['action']}"))
    return recipes
