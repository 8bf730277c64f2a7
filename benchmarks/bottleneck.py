"""How far one vector goes: a GRU with and without attention on the captions of chapter 3, by width and by training.

The model ``two-way`` is the control between the two: it reads the source in both directions, as the one with attention
does, and still hands over one vector.

    python benchmarks/bottleneck.py [--record results/bottleneck.json] [--only gru-128 ...]

Every row trains on the same 12,000 captions of 4 to 14 words with the same batches and is tested on the same 100
captions of each length, none of which occurs in training. The learning rate falls linearly from ``peak_rate`` to 0. The
clock is the processor time of the training on one thread, and longer where the machine does other work.
Rows of a record that are there already are not run again, so that the benchmark can be stopped and continued.
"""

from __future__ import annotations

import argparse
import json
import shlex
import sys
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

import torch

from transformer_lib.data.batching import batches, encode_pairs
from transformer_lib.data.captions import Pair, make_captions
from transformer_lib.data.files import write_json
from transformer_lib.data.tokenizer import PAD, Tokenizer
from transformer_lib.decoding.greedy import translate
from transformer_lib.metrics import bleu
from transformer_lib.models.alignment import AlignedSeq2Seq
from transformer_lib.models.recurrent import RecurrentConfig, RecurrentEncoder, RecurrentSeq2Seq
from transformer_lib.models.seq2seq import Seq2Seq, eval_mode
from transformer_lib.training.loop import train_on
from transformer_lib.translation.evaluation import run_metadata

LENGTHS = range(4, 15)


def two_way(config: RecurrentConfig) -> RecurrentSeq2Seq:
    return RecurrentSeq2Seq(config, RecurrentEncoder(config, bidirectional=True))


MODELS = {"gru": RecurrentSeq2Seq, "two-way": two_way, "attention": AlignedSeq2Seq}
# model, width of the state, epochs, seed: what tells most comes first
RUNS = [
    ("gru", 128, 6, 0),
    ("attention", 128, 6, 0),
    ("gru", 256, 6, 0),
    ("gru", 64, 6, 0),
    ("attention", 64, 6, 0),
    ("gru", 128, 30, 0),
    ("gru", 64, 30, 0),
    ("gru", 128, 6, 1),
    ("attention", 128, 6, 1),
    ("gru", 128, 6, 2),
    ("attention", 128, 6, 2),
    ("gru", 128, 30, 1),
    # more widths, trained longer, and the same for the model with attention
    ("gru", 256, 30, 0),
    ("attention", 128, 30, 0),
    ("gru", 64, 30, 1),
    ("gru", 256, 6, 1),
    ("gru", 512, 6, 0),
    ("attention", 64, 30, 0),
    ("gru", 256, 30, 1),
    ("attention", 256, 6, 0),
    ("gru", 512, 30, 0),
    ("gru", 128, 30, 2),
    # the width at which a GRU has the parameters of attention with 128
    ("gru", 192, 6, 0),
    ("gru", 192, 6, 1),
    ("gru", 192, 6, 2),
    # what the encoder of the model with attention does for a model without
    *(("two-way", 128, epochs, seed) for epochs in (6, 30) for seed in range(3)),
]


def shape_of(pair: Pair) -> str:
    """One clause, one with a relative clause, or two clauses."""
    words = set(pair.source.split())
    if words & {"because", "while", "and", "but"} or "," in words:
        return "two clauses"
    return "relative clause" if words & {"who", "that", "which", "whose", "whom"} else "one clause"


def peak_rate(width: int) -> float:
    return 8e-3 if width <= 128 else 4e-3 if width <= 256 else 2e-3


class Task:
    """The captions, their tokenizers, and how a model is scored on them."""

    def __init__(self) -> None:
        training = make_captions(12_000, seed=0, min_length=4, max_length=14)
        seen = {pair.source for pair in training}
        self.test = {
            length: [
                p for p in make_captions(400, seed=1, min_length=length, max_length=length) if p.source not in seen
            ][:100]
            for length in LENGTHS
        }
        self.english = Tokenizer.train([pair.source for pair in training], level="word")
        self.german = Tokenizer.train([pair.target for pair in training], level="word")
        self.examples = encode_pairs(training, self.english, self.german)

    def train(self, kind: str, width: int, epochs: int, seed: int) -> tuple[Seq2Seq, dict[str, Any]]:
        torch.manual_seed(seed)
        sizes = {"d_model": 64, "d_hidden": width, "dropout": 0.0}
        model = MODELS[kind](RecurrentConfig(self.english.vocab_size, self.german.vocab_size, **sizes))
        rate = peak_rate(width)
        optimizer = torch.optim.Adam(model.parameters(), lr=rate)
        started, updates, losses = time.process_time(), 0, []
        for epoch in range(epochs):
            for group in optimizer.param_groups:
                group["lr"] = rate * (1 - epoch / epochs)
            order = list(batches(self.examples, max_tokens=1000, seed=seed, epoch=epoch))
            losses.append(round(train_on(model, order, optimizer), 4))
            updates += len(order)
        used = time.process_time() - started
        return model, {"updates": updates, "seconds": round(used, 1), "train_loss": losses}

    def score(self, model: Seq2Seq) -> dict[str, Any]:
        """By length: exact match and BLEU of greedy translations, and tokens that are right after the right ones."""
        exact, scores, forced, shapes = {}, {}, {}, defaultdict(lambda: [0, 0])
        for length, pairs in self.test.items():
            ours = translate(model, [pair.source for pair in pairs], self.english, self.german)
            right = [pair.target for pair in pairs]
            hits = [a == b for a, b in zip(ours, right, strict=True)]
            exact[length] = sum(hits)
            scores[length] = round(bleu(ours, right, tokenize="none").score, 1)
            for pair, hit in zip(pairs, hits, strict=True):
                count = shapes[f"{length} {shape_of(pair)}"]
                count[0] += hit
                count[1] += 1
            forced[length] = round(100 * self.forced(model, pairs), 2)
        return {"exact_match": exact, "bleu": scores, "token_accuracy": forced, "shapes": dict(shapes)}

    def forced(self, model: Seq2Seq, pairs: list[Pair]) -> float:
        right = total = 0
        with eval_mode(model):
            for batch in batches(encode_pairs(pairs, self.english, self.german), max_tokens=4000):
                guess = model(batch.source, batch.target_input).argmax(dim=-1)
                there = batch.target_output != PAD
                right += int(((guess == batch.target_output) & there).sum())
                total += int(there.sum())
        return right / total


def write(record: Path | None, command: str, rows: list[dict[str, Any]]) -> None:
    if record:
        about = run_metadata(command, sorted({row["seed"] for row in rows}))
        data = "12,000 captions of 4 to 14 words; tested on 100 of each length; greedy decoding"
        write_json(record, {**about, "title": "How far one vector goes", "data": data, "rows": rows})


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--record", type=Path)
    parser.add_argument("--only", nargs="+", help="rows to run, such as gru-128-6-0; all by default")
    given = parser.parse_args()
    torch.set_num_threads(1)
    command, rows = f"python benchmarks/bottleneck.py {shlex.join(sys.argv[1:])}", []
    if given.record and given.record.is_file():
        rows = json.loads(given.record.read_text(encoding="utf-8"))["rows"]
    task = Task()
    for kind, width, epochs, seed in RUNS:
        name = f"{kind}-{width}-{epochs}-{seed}"
        if (given.only and name not in given.only) or any(row["name"] == name for row in rows):
            continue
        model, trained = task.train(kind, width, epochs, seed)
        parameters = sum(parameter.numel() for parameter in model.parameters())
        row = {"name": name, "model": kind, "d_hidden": width, "epochs": epochs, "seed": seed, "parameters": parameters}
        rows.append({**row, **trained, **task.score(model)})
        print(name, trained["seconds"], "s, exact match:", rows[-1]["exact_match"], flush=True)
        write(given.record, command, rows)  # after each row, so that little is lost if the machine stops
    write(given.record, command, rows)
    return 0


if __name__ == "__main__":
    sys.exit(main())
