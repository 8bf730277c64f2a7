"""Six models of chapter 7 on generated recipes: what they know of word order, and which pairs they know by heart.

    python benchmarks/recipe_pairs.py [--seeds 0 1 2] [--folder FOLDER] [--record results/recipe-pairs.json]

Each model trains on the same 2,000 recipes for 16 epochs and is tested on new sentences for pairs of trigger and action
that occur in training, and on pairs that do not. Then the sentences are changed: a comma deleted, exchanged, another
word deleted. With ``--folder``, trained weights are kept there, and a run that was stopped goes on with what it has.
All numbers are percent, one for each seed.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from transformer_lib.data.files import write_json
from transformer_lib.data.recipes import Recipe, RecipeCoder, make_recipes, recipe_batches
from transformer_lib.models.latent_attention import IfThenConfig, IfThenModel, predict_programs
from transformer_lib.training.loop import train_on
from transformer_lib.translation.evaluation import run_metadata

EPOCHS, RATE, MAX_TOKENS = 16, 0.01, 800
SIZES = {"d_model": 48, "d_hidden": 64, "max_length": 32, "dropout": 0.1}
MODELS = [(encoder, attention) for encoder in ("dictionary", "lstm") for attention in ("none", "plain", "latent")]


def comma_of(recipe: Recipe) -> int | None:
    """The place of the comma between trigger and action; None without one, or with two."""
    words = recipe.description.split()
    commas = [i for i, word in enumerate(words) if word == ","][words[0] == "hello" :]
    return commas[0] if len(commas) == 1 else None


def edited(recipe: Recipe, place: int, *instead: str) -> Recipe:
    """The recipe with other words at a place of its sentence."""
    words = recipe.description.split()
    words[place : place + 1] = instead
    return replace(recipe, description=" ".join(words))


def changed_sentences(recipes: Sequence[Recipe]) -> dict[str, list[Recipe]]:
    """Recipes with a comma and the word "i" before it: as they are, and after one change."""
    chosen = [r for r in recipes if comma_of(r) and "i" in r.description.split()[: comma_of(r)]]
    return {
        "comma": chosen,
        "comma_deleted": [edited(r, comma_of(r)) for r in chosen],
        "comma_exchanged": [edited(r, comma_of(r), "please") for r in chosen],
        "i_deleted": [edited(r, r.description.split().index("i")) for r in chosen],
    }


def twins(recipes: Sequence[Recipe]) -> list[tuple[Recipe, Recipe]]:
    """For each program, "from TRIGGER to ACTION" and "to ACTION from TRIGGER": the same words and the same meaning."""
    nouns = {}
    for recipe in make_recipes(20_000, seed=2, held_out=True):
        words = recipe.description.split()
        if "i" not in words and "from" in words and "to" in words:
            for channel, label in (recipe.program[:2], recipe.program[2:]):
                nouns[label] = " ".join(words[words.index(channel) :][:2])
    return [
        tuple(
            Recipe(text.format(nouns[program[1]], nouns[program[3]]), *program)
            for text in ("from {0} to {1}", "to {1} from {0}")
        )
        for program in sorted({recipe.program for recipe in recipes})
    ]


class Study:
    """The recipes, and what is done with them."""

    def __init__(self, folder: Path | None) -> None:
        self.folder = folder
        self.training = make_recipes(2000, seed=0)
        known = {recipe.description for recipe in self.training}
        new = [recipe for recipe in make_recipes(900, seed=3) if recipe.description not in known]
        self.tests = {"seen": new[:600], "held_out": make_recipes(600, seed=1, held_out=True)}
        self.coder = RecipeCoder.train(self.training)
        self.examples = self.coder.encode(self.training)
        self.pairs = {(recipe.trigger, recipe.action) for recipe in self.training}

    def train(self, encoder: str, attention: str, seed: int) -> IfThenModel:
        """A trained model, from the folder if it is there."""
        torch.manual_seed(seed)
        vocabulary = self.coder.words.vocab_size, self.coder.n_labels
        model = IfThenModel(IfThenConfig(*vocabulary, encoder, attention, **SIZES))
        kept = self.folder and self.folder / f"{encoder}-{attention}-{seed}.pt"
        if kept and kept.is_file():
            model.load_state_dict(torch.load(kept, weights_only=True))
            return model
        optimizer = torch.optim.Adam(model.parameters(), lr=RATE)
        for epoch in range(EPOCHS):
            for group in optimizer.param_groups:
                group["lr"] = RATE * (1 - epoch / EPOCHS)
            train_on(model, recipe_batches(self.examples, MAX_TOKENS, seed, epoch), optimizer)
        if kept:
            torch.save(model.state_dict(), kept)
        return model

    def right(self, model: IfThenModel, recipes: Sequence[Recipe]) -> tuple[list[bool], list[tuple[str, ...]]]:
        """Whether all four parts of each recipe are right, and the programs that were written."""
        found = predict_programs(model, [recipe.description for recipe in recipes], self.coder)
        programs = [prediction.program for prediction in found]
        return [one == r.program for one, r in zip(programs, recipes, strict=True)], programs

    def measure(self, model: IfThenModel) -> dict[str, float]:
        """All numbers of one model."""
        sets = self.tests | changed_sentences(self.tests["held_out"])
        found = {name: self.right(model, recipes) for name, recipes in sets.items()}
        shares = {name: percent(right) for name, (right, _) in found.items()}
        written = found["held_out"][1]
        shares["channels_held_out"] = percent(
            [(p[0], p[2]) == (r.program[0], r.program[2]) for p, r in zip(written, self.tests["held_out"], strict=True)]
        )
        shares["pairs_of_training"] = percent([(program[1], program[3]) in self.pairs for program in written])
        both = twins(self.tests["held_out"])
        right = [self.right(model, two)[0] for two in both]
        shares["twins"] = percent([one for two in right for one in two])
        shares["both_twins"] = percent([all(two) for two in right])
        return shares

    def deciders(self, model: IfThenModel) -> dict[str, float]:
        """In how many percent of the held-out recipes a word has the largest latent weight of the trigger channel."""
        found = predict_programs(model, [recipe.description for recipe in self.tests["held_out"]], self.coder)
        top = Counter(one.words[int(one.attention.latent[0, 0].argmax())] for one in found)
        return {word: round(100 * count / len(found), 1) for word, count in top.most_common(6)}


def percent(right: Sequence[bool]) -> float:
    """The share that is right, in percent."""
    return round(100 * sum(right) / len(right), 1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--record", type=Path)
    given = parser.parse_args()
    torch.set_num_threads(1)
    if given.folder:
        given.folder.mkdir(parents=True, exist_ok=True)
    study, rows = Study(given.folder), []
    for encoder, attention in MODELS:
        models = [study.train(encoder, attention, seed) for seed in given.seeds]
        measured = [study.measure(model) for model in models]
        row: dict[str, Any] = {"encoder": encoder, "attention": attention}
        row |= {name: [one[name] for one in measured] for name in measured[0]}
        row["deciders"] = study.deciders(models[0]) if attention == "latent" else ""
        print(row, flush=True)
        rows.append(row)
    if given.record:
        command = f"python benchmarks/recipe_pairs.py --record {given.record}"
        record = run_metadata(command, given.seeds)
        record["title"] = "Generated recipes: seen and held-out pairs"
        record["data"] = (
            f"{len(study.training)} training recipes, 600 of seen and 600 of held-out pairs; "
            f"{len(changed_sentences(study.tests['held_out'])['comma'])} of them with a comma, "
            f"{len(twins(study.tests['held_out']))} twins; "
            "all four parts right in percent, one number for each seed"
        )
        write_json(given.record, record | {"rows": rows})


if __name__ == "__main__":
    main()
