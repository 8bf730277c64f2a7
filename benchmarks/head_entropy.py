"""How widely the layers of trained Transformers look: where the entropy is 0, every look goes to a single place.

    python benchmarks/head_entropy.py RUN [RUN ...] [--sentences 100] [--record results/head-entropy.json]

Each RUN is a folder that ``transformer-lib train`` has left. Entropies are in nats, means over all positions of the
first sentences of its validation part, each read with its reference translation. The validation scores beside them are
those of ``transformer-lib evaluate --part validation``.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import torch

from transformer_lib.data.files import write_json
from transformer_lib.translation.evaluation import evaluate_run, run_metadata, typed
from transformer_lib.translation.options import load_corpus, read_options
from transformer_lib.translation.translator import Translator

PARTS = ("encoder", "decoder", "cross")


@torch.no_grad()
def entropies(translator: Translator, pairs: list) -> dict[str, str]:
    """For each part of the model, layer by layer: the mean entropy of a row of weights, over positions and heads."""
    sums, rows = dict.fromkeys(PARTS, 0.0), dict.fromkeys(PARTS, 0)
    for pair in pairs:
        looks = translator.attention(pair.source, pair.target, prepared=True)  # the text is tokenised already
        for part in PARTS:
            weights = getattr(looks, part)  # (layers, heads, T, S)
            sums[part] = sums[part] - torch.xlogy(weights, weights).sum(dim=(-2, -1))
            rows[part] += weights.shape[2]
    means = {part: (sums[part] / rows[part]).mean(dim=-1).tolist() for part in PARTS}
    return {part: ", ".join(f"{mean:.2f}" for mean in layers) for part, layers in means.items()}


def row(folder: Path, sentences: int) -> dict[str, Any]:
    """One run: its scores, and the entropies of its heads."""
    options = read_options(folder)
    translator = Translator.from_pretrained(folder, device="cpu")
    scores = evaluate_run(folder, "validation", device="cpu")
    table = translator.model.source_embedding.weight
    return {
        "norm": "pre-norm" if translator.model.config.norm_first else "post-norm",
        "validation_loss": scores["loss"],
        "validation_bleu": scores["bleu"],
        "embedding_norm": round(table.norm(dim=-1).mean().item(), 2),
        **entropies(translator, load_corpus(options).validation[:sentences]),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("runs", nargs="+", type=Path, metavar="RUN")
    parser.add_argument("--sentences", type=int, default=100)
    parser.add_argument("--record", type=Path, help="write a JSON record to this file")
    given = parser.parse_args()
    rows, commands = [], []
    for folder in given.runs:
        rows.append(row(folder, given.sentences))
        commands.append(f"transformer-lib train {typed(read_options(folder))}")
        print(rows[-1], flush=True)
    if given.record is not None:
        names = " ".join(f"runs/{'post' if row['norm'] == 'post-norm' else 'pre'}-norm" for row in rows)
        content = {
            **run_metadata(f"python benchmarks/head_entropy.py {names} --record {given.record}", [0]),
            "title": "How widely each head looks, after two trainings that differ in the place of the norm",
            "data": f"the first {given.sentences} sentences of the validation part of Multi30k, English to German",
            "notes": "entropies in nats, one for each layer; scores with a beam of 5, averaged weights; the runs: "
            + "; ".join(commands),
            "rows": rows,
        }
        write_json(given.record, content)


if __name__ == "__main__":
    main()
