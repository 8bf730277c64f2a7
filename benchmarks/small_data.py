"""What each means against too little data is worth by itself: English to German from 5,000 captions.

    TRANSFORMER_LIB_DATA=... python benchmarks/small_data.py train --output runs/small
    TRANSFORMER_LIB_DATA=... python benchmarks/small_data.py record --output runs/small --record results/small-data.json

The recipe of ``real_translators.py`` on the first 5,000 pairs of Multi30k, with a model of two layers on each side and
2,000 subwords. Every row changes one thing in the first; the weights are averaged in all of them. The learning rate is
constant for 18 epochs and falls to zero in the last 7. The validation set is translated greedily, as it stands and
with one typing error in every sentence. A training that has finished is not run again.
"""

from __future__ import annotations

import argparse
import json
import random
import time
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import mean
from typing import Any

import torch
from real_translators import NoiseConfig, Run, RunConfig, load_pairs, misspell, translate

from transformer_lib.data.batching import batches, encode_pairs
from transformer_lib.data.files import write_json
from transformer_lib.data.multi30k import moses_tokenize
from transformer_lib.data.tokenizer import Tokenizer
from transformer_lib.metrics import bleu
from transformer_lib.models.transformer import Transformer
from transformer_lib.training.loop import evaluate_loss
from transformer_lib.translation.evaluation import run_metadata

N_PAIRS = 5000
CONSTANT, FALLING = 18, 7  # epochs
SEEDS = (0, 1, 2)
MOMENTS = {  # of a training, and what the record has of it
    "end": {"bleu": "bleu", "bleu_with_typing_errors": "bleu_typo", "loss": "loss"},
    "last weights": {"bleu_before_the_fall_last_weights": "bleu"},
    "averaged weights": {"bleu_before_the_fall_averaged": "bleu"},
}
NONE = NoiseConfig(capital=0, full_stop=0, typo=0, joined=0, name=0)
PLAIN = RunConfig(
    vocab_size=2000,
    d_model=128,
    n_heads=4,
    n_encoder_layers=2,
    n_decoder_layers=2,
    d_ff=256,
    dropout=0.2,
    consistency=0.0,
    bpe_dropout=0.0,
    noise=NONE,
    readings=1,
    max_tokens=1000,
    learning_rate=2.5e-3,
    warmup=400,
)


@dataclass(frozen=True)
class Variant:
    """One row of the table.

    Args:
        title: as the table prints it.
        changes: fields of the plain configuration that differ.
        times: multiplies the epochs.
    """

    title: str
    changes: dict[str, Any]
    times: int = 1


VARIANTS = {
    "plain": Variant("plain", {}),
    "dropout-0.1": Variant("dropout 0.1 for 0.2", {"dropout": 0.1}),
    "dropout-0.3": Variant("dropout 0.3 for 0.2", {"dropout": 0.3}),
    "batches": Variant("batches twice as large", {"max_tokens": 2000}),
    "bpe-dropout": Variant("BPE-dropout", {"bpe_dropout": 0.1}),
    "noise": Variant("noise on the source", {"noise": NoiseConfig()}),
    "r-drop": Variant("R-Drop", {"readings": 2, "consistency": 2.0}),
    "twice": Variant("plain, twice the epochs", {}, times=2),
    "all": Variant(
        "BPE-dropout + noise + R-Drop",
        {"readings": 2, "consistency": 2.0, "bpe_dropout": 0.1, "noise": NoiseConfig()},
    ),
}


def measure(model: Transformer, run: Run) -> dict[str, float]:
    """Loss and BLEU of a model on the validation set.

    Args:
        model: what translates.
        run: whose validation pairs and tokenizer it is.

    Returns:
        The loss, and BLEU from the sentences as they stand and with a typing error in each.
    """
    model = model.eval()
    pairs, tokenizer = run.validation_pairs, run.tokenizer
    right = [moses_tokenize(pair.target, "de") for pair in pairs]
    chance = random.Random(0)
    sources = {"bleu": [pair.source for pair in pairs], "bleu_typo": [misspell(p.source, chance) for p in pairs]}
    found = {"loss": evaluate_loss(model, batches(encode_pairs(pairs, tokenizer, tokenizer), 4000))}
    for name, texts in sources.items():
        written = [moses_tokenize(text, "de") for text in translate(model, tokenizer, texts, beam_size=1)]
        found[name] = bleu(written, right, tokenize="none").score
    return {name: round(value, 4) for name, value in found.items()}


def train(folder: Path, name: str, seed: int, precision: str) -> None:
    """Train one row with one seed and write what was measured.

    Args:
        folder: where the result goes; nothing happens if it is there.
        name: of the row.
        seed: of weights, order, dropout and noise.
        precision: of the matrix products.
    """
    path = folder / f"{name}-{seed}.json"
    if path.exists():
        return
    pairs = load_pairs("train", PLAIN.source, PLAIN.target)[:N_PAIRS]
    tokenizer = Tokenizer.train([text for pair in pairs for text in (pair.source, pair.target)], PLAIN.vocab_size)
    variant = VARIANTS[name]
    run = Run(folder, replace(PLAIN, **variant.changes, seed=seed, precision=precision), tokenizer)
    run.train_pairs = pairs
    started, curve = time.process_time(), []
    constant, falling = CONSTANT * variant.times, FALLING * variant.times
    result: dict[str, Any] = {"name": name, "seed": seed}
    while run.epoch < constant + falling:
        if run.epoch == constant:
            spent = time.process_time()
            result["last weights"] = measure(run.model, run)
            result["averaged weights"] = measure(run.averaged_model(), run)
            started += time.process_time() - spent  # training alone is timed
            run.config = replace(run.config, decay_epochs=falling, decay_from=constant, averaging=0.99)
        line = run.run_epoch(save_every=10**9)
        curve.append(line["cross_entropy"])
    result |= {
        "end": measure(run.averaged_model(), run),
        "updates": run.step,
        "seconds": round(time.process_time() - started, 1),
        "training_loss": curve,
    }
    write_json(path, result)
    print(json.dumps({key: value for key, value in result.items() if key != "training_loss"}), flush=True)


def rows(folder: Path, seeds: list[int]) -> list[dict[str, Any]]:
    """The table: one value for each seed.

    Args:
        folder: of the results.
        seeds: those to read.

    Returns:
        A row for each variant.
    """
    table = []
    for name, variant in VARIANTS.items():
        found = [json.loads((folder / f"{name}-{seed}.json").read_text()) for seed in seeds]
        row: dict[str, Any] = {"change": variant.title, "updates": found[0]["updates"]}
        row["seconds"] = round(mean(one["seconds"] for one in found))
        for moment, metrics in MOMENTS.items():
            for label, metric in metrics.items():
                row[label] = [round(one[moment][metric], 2) for one in found]
        table.append(row)
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=("train", "record"))
    parser.add_argument("--output", type=Path, default=Path("runs/small"), help="folder of the results")
    parser.add_argument("--variants", nargs="+", choices=VARIANTS, default=list(VARIANTS))
    parser.add_argument("--seeds", nargs="+", type=int, default=list(SEEDS))
    parser.add_argument("--precision", choices=("float32", "bfloat16"), default="float32")
    parser.add_argument("--record", type=Path, help="write a JSON record to this file")
    given = parser.parse_args()
    torch.set_flush_denormal(True)
    torch.set_num_threads(1)
    given.output.mkdir(parents=True, exist_ok=True)
    if given.what == "train":
        for seed in given.seeds:
            for name in given.variants:
                train(given.output, name, seed, given.precision)
        return
    table = rows(given.output, given.seeds)
    for row in table:
        print(f"{row['change']:30} {mean(row['bleu']):6.2f} {mean(row['bleu_with_typing_errors']):6.2f}")
    if given.record is not None:
        seeds = " ".join(map(str, given.seeds))
        command = f"python benchmarks/small_data.py train --precision {given.precision} --seeds {seeds}"
        content = {
            **run_metadata(command, given.seeds),
            "title": f"Means against too little data, each by itself: English to German from {N_PAIRS:,} captions",
            "data": f"the first {N_PAIRS:,} pairs of Multi30k; BLEU on its validation set, lower-cased, split by Moses",
            "notes": "greedy search; one value for each seed; seconds of processor time, the mean of the seeds",
            "rows": table,
        }
        write_json(given.record, content)


if __name__ == "__main__":
    main()
