"""Latent, plain and no attention on the real recipes of chapter 7, beside two baselines: several seeds each.

    python benchmarks/recipes.py --text title [--seeds 0 1 2 3 4] [--record results/zapier-titles.json]

Every model gets the same budget. The learning rate and the dropout of each are those of the same four pairs that do
best on the validation split with seed 0; then each seed trains once, and the pass that does best on the validation
split is measured on the test split. A seed changes the start and the order of the recipes. The split is fixed.
"""

from __future__ import annotations

import argparse
import copy
import math
import statistics
from collections import Counter
from collections.abc import Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from transformer_lib.data.files import write_json
from transformer_lib.data.recipes import (
    Recipe,
    RecipeCoder,
    load_zapier,
    recipe_batches,
    recipe_words,
)
from transformer_lib.models.latent_attention import (
    IfThenConfig,
    IfThenModel,
    predict_programs,
    program_accuracy,
)
from transformer_lib.training.loop import train_on
from transformer_lib.translation.evaluation import run_metadata

PASSES, MIN_COUNT, CLIP = 20, 2, 5.0
MAX_TOKENS = {"title": 400, "description": 1200}  # of a batch: both hold about forty recipes
MAX_WORDS = 40  # of a description; titles have at most 19
SIZES = {"d_model": 64, "d_hidden": 128, "max_length": MAX_WORDS + 1}
SEARCH = [(rate, dropout) for rate in (0.003, 0.01) for dropout in (0.3, 0.5)]
MODELS = [(encoder, attention) for encoder in ("dictionary", "lstm") for attention in ("none", "plain", "latent")]
MEASURES = ("channels", "functions", "joint", "joint_once")


class Study:
    """The recipes, and what is done with them."""

    def __init__(self, text: str) -> None:
        self.max_tokens = MAX_TOKENS[text]
        self.splits = {split: load_zapier(split, text=text) for split in ("train", "val", "test")}
        self.coder = RecipeCoder.train(self.splits["train"], MIN_COUNT)
        self.examples = self.coder.encode(self.splits["train"], MAX_WORDS)

    def measure(self, programs: Sequence[Sequence[str]], split: str) -> dict[str, float]:
        """Accuracies in percent; ``joint_once`` counts every different description once."""
        recipes = self.splits[split]
        found = program_accuracy(programs, [recipe.program for recipe in recipes])
        once = {" ".join(recipe_words(recipe.description)): i for i, recipe in enumerate(recipes)}
        alone = program_accuracy([programs[i] for i in once.values()], [recipes[i].program for i in once.values()])
        values = (found.channels, found.functions, found.joint, alone.joint)
        return dict(zip(MEASURES, (100 * value for value in values), strict=True))

    def evaluate(self, model: IfThenModel, split: str) -> dict[str, float]:
        """What a model gets right."""
        descriptions = [recipe.description for recipe in self.splits[split]]
        found = predict_programs(model, descriptions, self.coder, max_words=MAX_WORDS)
        return self.measure([prediction.program for prediction in found], split)

    def train(self, encoder: str, attention: str, rate: float, dropout: float, seed: int) -> tuple[float, IfThenModel]:
        """Train a model; return its best joint accuracy on the validation split, and the model of that pass."""
        torch.manual_seed(seed)
        config = IfThenConfig(
            self.coder.words.vocab_size, self.coder.n_labels, encoder, attention, dropout=dropout, **SIZES
        )
        model = IfThenModel(config)
        optimizer = torch.optim.Adam(model.parameters(), lr=rate)
        best, weights = -1.0, model.state_dict()
        for epoch in range(PASSES):
            for group in optimizer.param_groups:
                group["lr"] = rate * (1 - epoch / PASSES)
            train_on(model, recipe_batches(self.examples, self.max_tokens, seed, epoch), optimizer, clip=CLIP)
            reached = self.evaluate(model, "val")["joint"]
            if reached > best:
                best, weights = reached, copy.deepcopy(model.state_dict())
        model.load_state_dict(weights)
        return best, model


def majority(study: Study) -> list[dict[str, float]]:
    """Always the most frequent label of each head."""
    columns = zip(*(recipe.program for recipe in study.splits["train"]), strict=True)
    program = [Counter(column).most_common(1)[0][0] for column in columns]
    return [study.measure([program] * len(study.splits["test"]), "test")]


def bags(study: Study, recipes: Sequence[Recipe]) -> tuple[Tensor, Tensor]:
    """The word ids of all descriptions in one row, and where each description begins."""
    words = [ids for ids, _ in study.coder.encode(recipes, MAX_WORDS)]
    starts = [0, *accumulate(len(ids) for ids in words[:-1])]
    return torch.tensor([one for ids in words for one in ids]), torch.tensor(starts)


def logistic(study: Study) -> list[dict[str, float]]:
    """Logistic regression on the bag of words, one for each head; the penalty is the best of three on validation."""
    inputs = {split: bags(study, recipes) for split, recipes in study.splits.items()}
    labels = torch.tensor([numbers for _, numbers in study.examples])
    results = []
    for penalty in (0.1, 1.0, 10.0):
        heads = nn.ModuleList(
            nn.EmbeddingBag(study.coder.words.vocab_size, count, mode="sum") for count in study.coder.n_labels
        )
        for head in heads:
            nn.init.zeros_(head.weight)
        optimizer = torch.optim.Adam(heads.parameters(), lr=0.05)
        for _ in range(150):
            losses = [nn.functional.cross_entropy(one(*inputs["train"]), labels[:, i]) for i, one in enumerate(heads)]
            shrink = sum(one.weight.square().sum() for one in heads) / len(labels)
            optimizer.zero_grad()
            (torch.stack(losses).sum() + penalty * shrink).backward()
            optimizer.step()
        found = {}
        for split in ("val", "test"):
            numbers = torch.stack([one(*inputs[split]).argmax(dim=-1) for one in heads], dim=1).tolist()
            found[split] = study.measure([study.coder.program(row) for row in numbers], split)
        results.append(found)
    return [max(results, key=lambda found: found["val"]["joint"])["test"]]


def row(encoder: str, attention: str, chosen: tuple[float, float], runs: list[dict[str, float]]) -> dict[str, Any]:
    """A row of the table: mean and standard deviation of each measure over the seeds."""
    cells: dict[str, Any] = {"encoder": encoder, "attention": attention}
    cells["learning_rate"], cells["dropout"] = ("" if math.isnan(value) else value for value in chosen)
    for name in MEASURES:
        values = [run[name] for run in runs]
        cells[name] = round(statistics.mean(values), 1)
        cells[f"{name}_sd"] = round(statistics.stdev(values), 1) if len(values) > 1 else 0.0
    print(cells, flush=True)
    return cells


def one_model(study: Study, encoder: str, attention: str, seeds: Sequence[int]) -> dict[str, Any]:
    """Choose learning rate and dropout on the validation split, then train with every seed."""
    tried = {choice: study.train(encoder, attention, *choice, seeds[0]) for choice in SEARCH}
    chosen = max(tried, key=lambda choice: tried[choice][0])
    trained = [tried[chosen][1], *(study.train(encoder, attention, *chosen, seed)[1] for seed in seeds[1:])]
    return row(encoder, attention, chosen, [study.evaluate(model, "test") for model in trained])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--text", choices=("title", "description"), default="title")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2, 3, 4])
    parser.add_argument("--record", type=Path)
    given = parser.parse_args()
    torch.set_num_threads(1)
    study = Study(given.text)
    nothing = (math.nan, math.nan)
    rows = [row("majority", "", nothing, majority(study)), row("bag of words, logistic", "", nothing, logistic(study))]
    rows += [one_model(study, encoder, attention, given.seeds) for encoder, attention in MODELS]
    if given.record:
        command = f"python benchmarks/recipes.py --text {given.text} --record {given.record}"
        record = run_metadata(command, given.seeds)
        record["title"] = f"Zapier recipes, {given.text}s"
        cut = sum(len(recipe_words(recipe.description)) > MAX_WORDS for recipe in study.splits["test"])
        record["data"] = (
            f"{', '.join(f'{len(recipes)} {split}' for split, recipes in study.splits.items())}; "
            f"{study.coder.words.vocab_size} word ids, {sum(study.coder.n_labels)} labels; "
            f"{cut} test texts cut after {MAX_WORDS} words; accuracy in percent, joint_once counts equal texts once"
        )
        write_json(given.record, record | {"rows": rows})


if __name__ == "__main__":
    main()
