"""The scores and windows of chapter 5 on captions: several seeds each, quality, alignment and time.

    python benchmarks/scores.py [--models NAME ...] [--seeds 0 1 2] [--record results/captions-scores.json]

Every model has the same sizes and sees the same sentences in the same order; a seed changes the start. Decoding
is timed with all models of one seed in turn, and given relative to the first of them.
"""

from __future__ import annotations

import argparse
import shlex
import statistics
import sys
import time
from pathlib import Path
from typing import Any

import torch

from transformer_lib.data.batching import batches, encode_pairs
from transformer_lib.data.captions import Pair, make_captions
from transformer_lib.data.files import write_json
from transformer_lib.data.tokenizer import Tokenizer
from transformer_lib.decoding.greedy import translate
from transformer_lib.metrics import alignment_error_rate, bleu, exact_match
from transformer_lib.models.alignment import attention_maps, best_links
from transformer_lib.models.scores import LuongConfig, LuongSeq2Seq
from transformer_lib.training.loop import train_on
from transformer_lib.translation.evaluation import run_metadata

PAIRS, LENGTHS, TESTS = 16_000, (4, 14), 500
SIZES = {"d_model": 64, "d_hidden": 128, "dropout": 0.0}
PASSES, MAX_TOKENS, LEARNING_RATE, WINDOW = 5, 800, 4e-3, 3
VARIANTS: dict[str, dict[str, Any]] = {
    "global dot": {"score": "dot"},
    "global general": {"score": "general"},
    "global concat": {"score": "concat"},
    "global location": {"score": "location"},
    "local-m general": {"local": "m", "window": WINDOW},
    "local-p general": {"local": "p", "window": WINDOW},
    "global dot, no input feeding": {"score": "dot", "input_feeding": False},
}
FURTHER: dict[str, dict[str, Any]] = {  # on request only
    "local-m general, reach 6": {"local": "m", "window": 6},
    "local-p general, reach 6": {"local": "p", "window": 6},
    "local-p general, 12 passes": {"local": "p", "window": WINDOW, "passes": 12},
}


class Study:
    """Sentences to train and to test on, and what is done with them."""

    def __init__(self) -> None:
        low, high = LENGTHS
        train = make_captions(PAIRS, seed=0, min_length=low, max_length=high)
        seen = {pair.source for pair in train}
        fresh = make_captions(2 * TESTS, seed=1, min_length=low, max_length=high)
        self.test: list[Pair] = [pair for pair in fresh if pair.source not in seen][:TESTS]
        self.english = Tokenizer.train([pair.source for pair in train], level="word")
        self.german = Tokenizer.train([pair.target for pair in train], level="word")
        self.examples = encode_pairs(train, self.english, self.german)

    def train(self, seed: int, passes: int = PASSES, **look: Any) -> LuongSeq2Seq:
        """A model that looks at the source in some way, from a start of its own."""
        torch.manual_seed(seed)
        sizes = (self.english.vocab_size, self.german.vocab_size)
        model = LuongSeq2Seq(LuongConfig(*sizes, **SIZES, **look))
        optimizer = torch.optim.Adam(model.parameters(), lr=LEARNING_RATE)
        for epoch in range(passes):
            for group in optimizer.param_groups:
                group["lr"] = LEARNING_RATE * (1 - epoch / passes)
            train_on(model, batches(self.examples, MAX_TOKENS, seed=0, epoch=epoch), optimizer)
        return model

    def quality(self, model: LuongSeq2Seq) -> dict[str, float]:
        """Exact match in percent, BLEU and alignment error rate on the test sentences."""
        ours = translate(model, [pair.source for pair in self.test], self.english, self.german)
        right = [pair.target for pair in self.test]
        maps = attention_maps(model, self.test, self.english, self.german)
        gold = [pair.alignment for pair in self.test]
        return {
            "exact_match": 100 * exact_match(ours, right),
            "bleu": bleu(ours, right, tokenize="none").score,
            "alignment_error_rate": alignment_error_rate([best_links(weights) for weights in maps], gold),
        }

    def decoding_times(self, models: dict[str, LuongSeq2Seq], repeats: int = 5) -> dict[str, float]:
        """Median seconds for each word written, all models taking turns."""
        sentences = [pair.source for pair in self.test]
        times: dict[str, list[float]] = {name: [] for name in models}
        for _ in range(repeats):
            for name, model in models.items():
                started = time.perf_counter()
                written = translate(model, sentences, self.english, self.german)
                times[name].append((time.perf_counter() - started) / sum(len(text.split()) + 1 for text in written))
        return {name: statistics.median(found) for name, found in times.items()}


def one_seed(study: Study, names: list[str], seed: int) -> dict[str, dict[str, float]]:
    """Some variants from one seed."""
    models, found = {}, {}
    for name in names:
        models[name] = study.train(seed, **{**VARIANTS, **FURTHER}[name])
        found[name] = study.quality(models[name])
        print(seed, name, {key: round(value, 3) for key, value in found[name].items()}, flush=True)
    times = study.decoding_times(models)
    for name in found:
        found[name]["relative_decoding_time"] = times[name] / times[names[0]]
    return found


def spread(name: str, runs: list[dict[str, float]]) -> dict[str, str | float]:
    """A row of the table: mean and standard deviation of each measure over the seeds."""
    digits = {"exact_match": 1, "bleu": 1, "alignment_error_rate": 3, "relative_decoding_time": 2}
    row: dict[str, str | float] = {"model": name}
    for key, places in digits.items():
        values = [run[key] for run in runs]
        row[key] = round(statistics.mean(values), places)
        row[f"{key}_sd"] = round(statistics.stdev(values), places) if len(values) > 1 else 0.0
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    known = [*VARIANTS, *FURTHER]
    parser.add_argument("--models", choices=known, nargs="+", default=list(VARIANTS), metavar="NAME")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--record", type=Path)
    given = parser.parse_args()
    torch.set_num_threads(1)
    study = Study()
    runs = [one_seed(study, given.models, seed) for seed in given.seeds]
    rows = [spread(name, [run[name] for run in runs]) for name in given.models]
    for row in rows:
        print(row)
    if given.record:
        record = run_metadata(shlex.join(["python", "benchmarks/scores.py", *sys.argv[1:]]), given.seeds)
        record["title"] = "Scores and windows on captions"
        record["data"] = (
            f"{PAIRS} captions of {LENGTHS[0]} to {LENGTHS[1]} words, {PASSES} passes, width {SIZES['d_hidden']}; "
            f"{len(study.test)} test captions; window {WINDOW} to either side; unless the name says otherwise"
        )
        write_json(given.record, record | {"rows": rows})


if __name__ == "__main__":
    main()
