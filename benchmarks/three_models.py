"""A GRU, a GRU with attention and a Transformer on the same captions: quality against updates and against seconds.

    python benchmarks/three_models.py [--record results/three-models.json]

The three have about as many parameters and see the same batches. The learning rate rises for 60 updates and then falls
linearly to 0; ``RATES`` holds its peak for each kind. The three take turns, 90 updates each, so that other work on the
machine slows all of them alike; the clock is the processor time of the updates on one thread. After every turn 25
captions of each length from 4 to 14 words, none of which occurs in training, are translated greedily.
"""

from __future__ import annotations

import argparse
import shlex
import sys
import time
from pathlib import Path
from typing import Any

import torch

from transformer_lib.data.batching import batches, encode_pairs
from transformer_lib.data.captions import make_captions
from transformer_lib.data.files import write_json
from transformer_lib.data.tokenizer import Tokenizer
from transformer_lib.decoding.greedy import translate
from transformer_lib.metrics import exact_match
from transformer_lib.models.alignment import AlignedSeq2Seq
from transformer_lib.models.recurrent import RecurrentConfig, RecurrentSeq2Seq
from transformer_lib.models.seq2seq import Seq2Seq
from transformer_lib.models.transformer import Transformer, TransformerConfig
from transformer_lib.training.loop import train_on
from transformer_lib.translation.evaluation import run_metadata

LENGTHS, UPDATES, TURN, WARMUP = range(4, 15), 540, 90, 60
RATES = {"gru": 8e-3, "attention": 8e-3, "transformer": 3e-3}
TRANSFORMER = {"d_model": 96, "n_heads": 4, "n_encoder_layers": 2, "n_decoder_layers": 2, "d_ff": 192, "dropout": 0.0}
RECURRENT = {"d_model": 128, "d_hidden": 128, "dropout": 0.0}


class Task:
    """The captions and their tokenizers."""

    def __init__(self) -> None:
        training = make_captions(12_000, seed=0, min_length=4, max_length=14)
        seen = {pair.source for pair in training}
        self.test = {}
        for n in LENGTHS:
            pairs = make_captions(400, seed=1, min_length=n, max_length=n)
            self.test[n] = [pair for pair in pairs if pair.source not in seen][:25]
        self.english = Tokenizer.train([pair.source for pair in training], level="word")
        self.german = Tokenizer.train([pair.target for pair in training], level="word")
        self.examples = encode_pairs(training, self.english, self.german)

    def model(self, kind: str, seed: int) -> Seq2Seq:
        torch.manual_seed(seed)
        sizes = self.english.vocab_size, self.german.vocab_size
        if kind == "transformer":
            return Transformer(TransformerConfig(*sizes, **TRANSFORMER, tie_embeddings="target"))
        if kind == "attention":
            return AlignedSeq2Seq(RecurrentConfig(*sizes, **RECURRENT))
        return RecurrentSeq2Seq(RecurrentConfig(*sizes, **RECURRENT, reverse_source=True))

    def order(self, seed: int) -> list[Any]:
        """The batches of a training, the same for each kind."""
        found: list[Any] = []
        while len(found) < UPDATES:
            found += batches(self.examples, max_tokens=1000, seed=seed, epoch=len(found) // 100)
        return found[:UPDATES]

    def score(self, model: Seq2Seq) -> dict[int, float]:
        """Exact match in percent, for each length."""
        found = {}
        for n, pairs in self.test.items():
            ours = translate(model, [pair.source for pair in pairs], self.english, self.german)
            found[n] = round(100 * exact_match(ours, [pair.target for pair in pairs]), 1)
        return found


class Learner:
    """One model on its way."""

    def __init__(self, task: Task, kind: str, seed: int, rate: float) -> None:
        self.task, self.rate, self.done = task, rate, 0
        self.model, self.batches = task.model(kind, seed), task.order(seed)
        self.optimizer = torch.optim.Adam(self.model.parameters(), betas=(0.9, 0.98), eps=1e-9)
        parameters = sum(parameter.numel() for parameter in self.model.parameters())
        self.row: dict[str, Any] = {"model": kind, "seed": seed, "rate": rate, "parameters": parameters}
        self.row |= {"updates": [], "seconds": [], "exact_match": []}
        self.used = 0.0

    def turn(self) -> None:
        started = time.process_time()
        for number in range(self.done, self.done + TURN):
            scale = min((number + 1) / WARMUP, (UPDATES - number) / (UPDATES - WARMUP))
            for group in self.optimizer.param_groups:
                group["lr"] = self.rate * scale
            train_on(self.model, self.batches[number : number + 1], self.optimizer)
        self.used += time.process_time() - started
        self.done += TURN
        scores = self.task.score(self.model)
        self.row["updates"].append(self.done)
        self.row["seconds"].append(round(self.used, 1))
        self.row["exact_match"].append(round(sum(scores.values()) / len(scores), 1))
        self.row["by_length"] = scores  # of the last turn


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--record", type=Path)
    parser.add_argument("--models", nargs="+", default=list(RATES), choices=list(RATES))
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--rates", nargs="+", type=float, help="instead of the rate of each kind")
    given = parser.parse_args()
    torch.set_num_threads(1)
    task, rows = Task(), []
    about = run_metadata(f"python benchmarks/three_models.py {shlex.join(sys.argv[1:])}", given.seeds)
    data = "12,000 captions of 4 to 14 words; tested on 25 of each length; greedy decoding; one thread"
    for seed in given.seeds:
        learners = [Learner(task, kind, seed, rate) for kind in given.models for rate in given.rates or [RATES[kind]]]
        for _ in range(UPDATES // TURN):
            for learner in learners:
                learner.turn()
        for learner in learners:
            row = learner.row
            rows.append(row)
            print(
                row["model"], row["rate"], seed, row["parameters"], row["seconds"][-1], row["exact_match"], flush=True
            )
        if given.record:  # after each seed, so that little is lost if the machine stops
            title = "A GRU, a GRU with attention and a Transformer"
            write_json(given.record, {**about, "title": title, "data": data, "rows": rows})


if __name__ == "__main__":
    main()
