"""The ladder of chapter 17: every model of the road on the same sentences, German to English.

    TRANSFORMER_LIB_DATA=... python benchmarks/ladder.py train --output runs/ladder
    TRANSFORMER_LIB_DATA=... python benchmarks/ladder.py score --runs runs/ladder --record results/ladder.json

All models read the same raw text in the same 5,000 subwords, have about two million parameters and a learning rate that
is halved after each epoch that does not lower the validation loss; each is trained until three epochs in a row have not
lowered it, or for 30 epochs. Bahdanau's model and the Transformer are trained with three seeds, the others with one.
``train`` can be stopped and goes on where it was.

``score`` translates the test set of 2016 with the weights of the best epoch, greedily and with a beam of 5. Intervals
are those of 1,000 test sets drawn with replacement; neighbours are compared on the same draws (Koehn 2004).
"""

from __future__ import annotations

import argparse
import shlex
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from intervals import by_length, difference
from sacrebleu.metrics.bleu import BLEU

from transformer_lib.data.files import write_json
from transformer_lib.data.multi30k import load_multi30k, moses_tokenize
from transformer_lib.metrics import bleu
from transformer_lib.models.recurrent import RecurrentConfig, RecurrentEncoder, RecurrentSeq2Seq
from transformer_lib.models.seq2seq import register_model
from transformer_lib.training.checkpoints import load_tensors
from transformer_lib.translation.cli import main as transformer_lib
from transformer_lib.translation.evaluation import bleu_interval, run_metadata
from transformer_lib.translation.translator import Translator

SHARED = (
    "--data multi30k --source de --target en --text raw --vocab-size 5000 --epochs 30 --patience 3 --max-tokens 2000"
)
RECURRENT = "--d-model 128 --d-hidden 256 --dropout 0.3 --learning-rate 0.002"
TRANSFORMER = (
    "--preset tiny --norm-first --dropout 0.2 --learning-rate 0.002 --schedule plateau --warmup 1000 --average 0"
)
OPTIONS = {
    "gru": RECURRENT,
    "gru-two-way": RECURRENT,
    "luong-global-general": RECURRENT,
    "luong-global-dot": RECURRENT,
    "bahdanau": RECURRENT,
    "transformer": TRANSFORMER,
}

KEPT = ("epochs", "best_epoch", "minutes", "validation_loss", "greedy", "beam 5")  # of a training with another seed
SEEDS = {"bahdanau": (0, 1, 2), "transformer": (0, 1, 2)}  # of the others, 0


class TwoWay(RecurrentSeq2Seq):
    """One vector for a sentence that was read in both directions, as the models with attention read it."""

    def __init__(self, config: RecurrentConfig) -> None:
        super().__init__(config, RecurrentEncoder(config, bidirectional=True))


register_model("gru-two-way", RecurrentConfig, TwoWay)


def folders(runs: Path, name: str) -> list[Path]:
    """Where the trainings of a model are, one for each seed.

    Args:
        runs: folder of all of them.
        name: of the model.
    """
    return [runs / f"seed-{seed}" / name if seed else runs / name for seed in SEEDS.get(name, (0,))]


def train(output: Path, names: list[str]) -> None:
    """Train the models one after the other; what was begun goes on.

    Args:
        output: one folder for each training is made in it.
        names: of the models.
    """
    for name in names:
        for seed, folder in zip(SEEDS.get(name, (0,)), folders(output, name), strict=True):
            if (folder / "config.json").exists():
                transformer_lib(["train", "--output", str(folder), "--resume"])
            else:
                options = f"--model {name} {SHARED} {OPTIONS[name]} --device cpu --seed {seed}"
                transformer_lib(["train", "--output", str(folder), *shlex.split(options)])


def measure(folder: Path) -> tuple[dict[str, Any], dict[str, list[str]]]:
    """One model on the test set.

    Args:
        folder: of its run.

    Returns:
        Its row of the record, and its translations as Moses splits them, lower-cased, by search.
    """
    translator = Translator.from_pretrained(folder, device="cpu", weights="best")
    log = load_tensors(folder / "last.safetensors")[1]["progress"]["log"]
    best = min(log, key=lambda epoch: epoch["validation_loss"])
    pairs = load_multi30k("test_2016_flickr", "de", "en")
    sources, right = [pair.source for pair in pairs], [pair.target for pair in pairs]
    split_right = [moses_tokenize(text, "en") for text in right]
    row: dict[str, Any] = {
        "model": folder.name,
        "parameters": sum(parameter.numel() for parameter in translator.model.parameters()),
        "epochs": len(log),
        "best_epoch": best["epoch"],
        "minutes": round(sum(epoch["seconds"] for epoch in log) / 60, 1),
        "validation_loss": round(best["validation_loss"], 4),
    }
    split = {}
    for label, beam in (("greedy", 1), ("beam 5", 5)):
        written = translator.translate(sources, beam_size=beam, length_penalty=1.0)
        split[label] = [moses_tokenize(text, "en") for text in written]
        row[label] = {
            "bleu": round(bleu(split[label], split_right, tokenize="none").score, 2),
            "interval": bleu_interval(split[label], split_right, tokenize="none"),
        }
        row[f"{label} cased"] = {
            "bleu": round(bleu(written, right, tokenize="13a").score, 2),
            "interval": bleu_interval(written, right),
        }
    split_sources = [moses_tokenize(source, "de") for source in sources]
    row["by_length"] = by_length(split_sources, split["beam 5"], split_right, "none")
    row["curve"] = [
        {name: epoch[name] for name in ("epoch", "validation_loss", "learning_rate", "seconds")} for epoch in log
    ]
    print({name: value for name, value in row.items() if name != "curve"}, flush=True)
    return row, split


def score(runs: Path, names: list[str]) -> list[dict[str, Any]]:
    """The rows of the record: each model, and how much better it is than the one before on the same draws.

    The whole row is of the training with seed 0; those with other seeds stand in it shorter.

    Args:
        runs: the folder that ``train`` wrote.
        names: of the models, worst first.
    """
    right = [moses_tokenize(pair.target, "en") for pair in load_multi30k("test_2016_flickr", "de", "en")]
    metric = BLEU(tokenize="none", force=True)
    found = []
    for name in names:
        (row, split), *others = (measure(folder) for folder in folders(runs, name))
        row["other seeds"] = [
            {"seed": seed} | {key: other[key] for key in KEPT}
            for seed, (other, _) in zip(SEEDS.get(name, (0,))[1:], others, strict=True)
        ]
        found.append((row, split))
    found.sort(key=lambda one: one[0]["beam 5"]["bleu"])
    found[0][0].update({f"{label} minus the one before": None for label in ("greedy", "beam 5")})
    for (_, before), (row, split) in pairwise(found):
        for label in ("greedy", "beam 5"):
            row[f"{label} minus the one before"] = difference(split[label], before[label], right, metric)
    return [row for row, _ in found]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=("train", "score"))
    parser.add_argument("--output", "--runs", type=Path, default=Path("runs/ladder"), help="folder of the runs")
    parser.add_argument("--models", nargs="+", choices=OPTIONS, default=list(OPTIONS))
    parser.add_argument("--record", type=Path, help="write a JSON record to this file")
    given = parser.parse_args()
    torch.set_num_threads(1)
    if given.what == "train":
        train(given.output, given.models)
        return
    rows = score(given.output, given.models)
    if given.record is not None:
        content = {
            **run_metadata(
                "python benchmarks/ladder.py train && python benchmarks/ladder.py score --record results/ladder.json",
                [0, 1, 2],
            ),
            "title": "The ladder: German to English, every model trained until its patience ends",
            "data": "multi30k, test set of 2016, raw text, 5,000 subwords",
            "notes": (
                "BLEU of lower-cased text split as Moses does; length penalty 1.0; weights of the best epoch; minutes "
                "of a shared processor"
            ),
            "options": {name: f"{SHARED} {OPTIONS[name]}" for name in given.models},
            "rows": rows,
        }
        write_json(given.record, content)


if __name__ == "__main__":
    main()
